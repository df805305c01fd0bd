//! All nodes agree again once nothing is in their way.

use super::{Checker, Event};
use crate::queue::Micros;

use cache::peer::FrameHead;

/// Some time after the last trouble all cells of all nodes route alike, and
/// say so in their frames.
#[derive(Debug, Default)]
pub struct Agreement {
    /// By which they should route.
    tag: Option<u64>,
    is_calm: bool,
}

impl Checker for Agreement {
    fn name(&self) -> &'static str {
        "agreement"
    }

    fn see(&mut self, _: Micros, event: &Event<'_>) -> Result<(), String> {
        match *event {
            Event::Calm => self.is_calm = true,
            Event::Rested { cell, tag, .. } if *self.tag.get_or_insert(tag) != tag => {
                return Err(format!("cell {cell} does not route as the others do"));
            }
            Event::Framed { from, octets, .. } if self.is_calm => {
                let tag = FrameHead::read(octets).map(|(head, _)| head.tag);
                if tag.is_none() || tag != self.tag {
                    return Err(format!("a frame of cell {from} says it routes otherwise"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
