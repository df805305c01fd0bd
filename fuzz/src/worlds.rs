//! World files that anybody wrote: refused with the file's name, or a world
//! that can take its course.

use std::sync::Arc;

use drain::Time;
use lab::drains::{Site, World};

/// Larger ones find nothing that small ones do not.
const LEN_MAX: usize = 16 * 1024;
const FILE: &str = "world.yaml";

pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if text.len() > LEN_MAX {
        return;
    }
    match Site::read(FILE, text) {
        Err(problems) => {
            let text = problems.to_string();
            assert!(text.lines().next().is_some_and(|line| line.starts_with(FILE)), "{text}");
        }
        Ok(site) => {
            let places = site.datacenters.len();
            let mut world = World::new(Arc::new(site), Time(0));
            world.pass_until(Time(5_000));
            for place in 0..places {
                let utilisation = world.utilisation(place);
                assert!(utilisation.is_finite() && utilisation >= 0.0, "{utilisation}");
            }
        }
    }
}
