//! Clients of a cache over connections.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use wire::DropReason;

use super::admit::Network;
use super::{Command, Node};
use crate::counters::{AllCounters, Counters, Via};
use crate::fleet::Door;
use crate::tcp::{Answerer, Asker, Next};

/// Passes questions to the cells, in turn.
#[derive(Debug)]
pub struct CacheAnswerer {
    node: Arc<Node>,
    /// Who may ask; others must not hold places.
    allow: Vec<Network>,
    counters: Arc<Counters>,
    /// Counters have one writer; connections take turns.
    writing: Mutex<()>,
}

impl CacheAnswerer {
    pub fn new(node: Arc<Node>, allow: Vec<Network>, counters: &AllCounters) -> Self {
        let counters = counters.add(Via::Tcp);
        CacheAnswerer { node, allow, counters, writing: Mutex::default() }
    }
}

impl Answerer for CacheAnswerer {
    fn admit(
        &self,
        _door: Door,
        from: IpAddr,
        _address: Option<IpAddr>,
    ) -> Result<Option<u16>, DropReason> {
        if self.allow.iter().any(|network| network.contains(from)) {
            return Ok(None);
        }
        let _turn = self.writing.lock();
        self.counters.drops[DropReason::NotServed as usize].add(1);
        Err(DropReason::NotServed)
    }

    fn answer(&self, request: &[u8], asker: &Asker, _answers: &mut Vec<u8>) -> Next {
        // A header, and a question: answers and scraps are for nobody.
        let is_question = request.get(2).is_some_and(|flags| flags & 0x80 == 0);
        if request.len() < wire::query::HEADER_LEN || !is_question {
            return Next::Ends;
        }
        let command = Command::Ask {
            request: request.to_vec(),
            from: asker.from,
            idle_100ms: asker.idle_100ms,
            reply: asker.replies.clone(),
        };
        match self.node.next_cell().tell(command) {
            true => Next::Waits,
            false => Next::Ends,
        }
    }
}
