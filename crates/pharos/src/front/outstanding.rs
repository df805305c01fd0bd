//! The questions of one thread that wait for an answer.
//!
//! There is room for as many as a node can tell apart by their ids, made once:
//! a question's place is its id. Each node has its questions in the order in
//! which they were asked, in three stages, so that whoever looks after the time
//! looks at the first of each and no further:
//!
//! | stage | meaning | ends with |
//! |---|---|---|
//! | fresh | asked | a second node, or *slow* if the first answers others |
//! | slow | its node is busy with it | a second node |
//! | last | nobody else will be asked | giving up |
//!
//! Nothing here knows a socket or a clock. Times are microseconds.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::choice::NODES_MAX;
use super::message::QUESTION_END_MAX;

/// Questions that wait at once.
pub const OUTSTANDING_MAX: usize = 1 << 16;
/// Octets of a question that are kept: enough for one with the longest name
/// and the usual EDNS options. A longer one is not asked a second time.
pub const KEPT_LEN_MAX: usize = 512;
const _: () = assert!(KEPT_LEN_MAX >= QUESTION_END_MAX);

/// No place, no node.
const NONE: u32 = u32::MAX;
const STAGES: usize = 3;

/// Whom an answer goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    pub address: SocketAddr,
    /// The id that it gave its question.
    pub id: u16,
    /// The socket that it asked, by its place among the thread's.
    pub listener: u8,
    /// The address that it asked, if the socket has several.
    pub source: Option<IpAddr>,
}

/// How far a question is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Fresh,
    Slow,
    Last,
}

/// A question that waits.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub client: Client,
    /// The node asked last, and when.
    pub seat: u8,
    pub asked_us: u64,
    /// The node asked before it, and when.
    pub before: Option<(u8, u64)>,
    stage: Stage,
    since_us: u64,
    len: u16,
    is_taken: bool,
    previous: u32,
    next: u32,
}

impl Entry {
    /// When the node at `seat` was asked, if it was.
    #[inline]
    pub fn asked_at(&self, seat: u8) -> Option<u64> {
        match self.before {
            _ if seat == self.seat => Some(self.asked_us),
            Some((before, asked_us)) if seat == before => Some(asked_us),
            _ => None,
        }
    }
}

/// The questions of one node in one stage, the oldest first.
#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

/// All questions that wait. See the module's text.
#[derive(Debug)]
pub struct Outstanding {
    entries: Box<[Entry]>,
    kept: Box<[u8]>,
    /// The place given back last is used next: its memory is still near.
    free: Vec<u16>,
    lists: Box<[[List; STAGES]]>,
    counts: Box<[u32]>,
}

impl Outstanding {
    /// Nothing waits; ids will be given out in an order that `random` decides.
    pub fn new(mut random: impl FnMut() -> u64) -> Self {
        let nobody = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let entry = Entry {
            client: Client { address: nobody, id: 0, listener: 0, source: None },
            seat: 0,
            asked_us: 0,
            before: None,
            stage: Stage::Fresh,
            since_us: 0,
            len: 0,
            is_taken: false,
            previous: NONE,
            next: NONE,
        };
        let mut free: Vec<u16> = (0..=u16::MAX).collect();
        for at in (1..free.len()).rev() {
            free.swap(at, (random() % (at as u64 + 1)) as usize);
        }
        Outstanding {
            entries: vec![entry; OUTSTANDING_MAX].into(),
            kept: vec![0; OUTSTANDING_MAX * KEPT_LEN_MAX].into(),
            free,
            lists: vec![[List { first: NONE, last: NONE }; STAGES]; NODES_MAX].into(),
            counts: vec![0; NODES_MAX].into(),
        }
    }

    /// Questions that wait.
    pub fn len(&self) -> usize {
        OUTSTANDING_MAX - self.free.len()
    }

    /// Questions that wait for the node at `seat`.
    #[inline]
    pub fn count(&self, seat: usize) -> u32 {
        self.counts[seat]
    }

    /// Takes a question that the node at `seat` is asked now, and gives it the
    /// id it has to be asked with. If there is no room, the one that waits
    /// longest is given up; its node is returned.
    pub fn insert(
        &mut self,
        client: Client,
        question: &mut [u8],
        seat: u8,
        now_us: u64,
    ) -> Option<u8> {
        let (id, given_up) = match self.free.pop() {
            Some(id) => (id, None),
            None => {
                let oldest = self.oldest();
                let seat = self.remove(oldest).map(|entry| entry.seat);
                // Just given back.
                (self.free.pop().unwrap_or(oldest), seat)
            }
        };
        super::message::set_id(question, id);
        let kept_len = question.len().min(KEPT_LEN_MAX);
        let start = id as usize * KEPT_LEN_MAX;
        self.kept[start..start + kept_len].copy_from_slice(&question[..kept_len]);
        let entry = &mut self.entries[id as usize];
        entry.client = client;
        (entry.asked_us, entry.before) = (now_us, None);
        entry.len = question.len() as u16;
        entry.is_taken = true;
        self.append(id, seat, Stage::Fresh, now_us);
        given_up
    }

    /// The question with this id, if it waits.
    #[inline]
    pub fn get(&self, id: u16) -> Option<&Entry> {
        Some(&self.entries[id as usize]).filter(|entry| entry.is_taken)
    }

    /// What is kept of the question with this id.
    #[inline]
    pub fn kept(&self, id: u16) -> &[u8] {
        let len = (self.entries[id as usize].len as usize).min(KEPT_LEN_MAX);
        let start = id as usize * KEPT_LEN_MAX;
        &self.kept[start..start + len]
    }

    /// The question with this id if all of it is kept.
    pub fn whole(&self, id: u16) -> Option<&[u8]> {
        let is_whole = self.entries[id as usize].len as usize <= KEPT_LEN_MAX;
        is_whole.then(|| self.kept(id))
    }

    /// The first question of a node in a stage, if it came there at `until_us`
    /// or earlier.
    #[inline]
    pub fn due(&self, seat: usize, stage: Stage, until_us: u64) -> Option<u16> {
        let first = self.lists[seat][stage as usize].first;
        let entry = self.entries.get(first as usize)?;
        (entry.since_us <= until_us).then_some(first as u16)
    }

    /// Any question of a node.
    pub fn any_of(&self, seat: usize) -> Option<u16> {
        let lists = &self.lists[seat];
        lists.iter().find(|list| list.first != NONE).map(|list| list.first as u16)
    }

    /// Moves a question to a later stage.
    pub fn advance(&mut self, id: u16, stage: Stage, now_us: u64) {
        let seat = self.entries[id as usize].seat;
        self.unlink(id);
        self.append(id, seat, stage, now_us);
    }

    /// Says that a second node is asked now, the one at `seat`.
    pub fn ask_again(&mut self, id: u16, seat: u8, now_us: u64) {
        self.unlink(id);
        let entry = &mut self.entries[id as usize];
        entry.before = Some((entry.seat, entry.asked_us));
        entry.asked_us = now_us;
        self.append(id, seat, Stage::Last, now_us);
    }

    /// Takes a question out, if it waits.
    #[inline]
    pub fn remove(&mut self, id: u16) -> Option<Entry> {
        let entry = *self.get(id)?;
        self.unlink(id);
        self.entries[id as usize].is_taken = false;
        self.free.push(id);
        Some(entry)
    }

    /// The question that is in its stage for longest. Something waits.
    fn oldest(&self) -> u16 {
        let firsts = self.lists.iter().flatten().map(|list| list.first).filter(|id| *id != NONE);
        let oldest = firsts.min_by_key(|id| self.entries[*id as usize].since_us);
        oldest.unwrap_or_default() as u16
    }

    #[inline]
    fn append(&mut self, id: u16, seat: u8, stage: Stage, now_us: u64) {
        let list = &mut self.lists[seat as usize][stage as usize];
        let previous = std::mem::replace(&mut list.last, u32::from(id));
        match previous {
            NONE => list.first = u32::from(id),
            previous => self.entries[previous as usize].next = u32::from(id),
        }
        let entry = &mut self.entries[id as usize];
        (entry.seat, entry.stage, entry.since_us) = (seat, stage, now_us);
        (entry.previous, entry.next) = (previous, NONE);
        self.counts[seat as usize] += 1;
    }

    #[inline]
    fn unlink(&mut self, id: u16) {
        let Entry { seat, stage, previous, next, .. } = self.entries[id as usize];
        let list = &mut self.lists[seat as usize][stage as usize];
        match previous {
            NONE => list.first = next,
            previous => self.entries[previous as usize].next = next,
        }
        match next {
            NONE => list.last = previous,
            next => self.entries[next as usize].previous = previous,
        }
        self.counts[seat as usize] -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::message;
    use super::*;
    use proptest::prelude::*;

    fn client(id: u16) -> Client {
        let address = SocketAddr::from(([192, 0, 2, 1], 1000));
        Client { address, id, listener: 0, source: None }
    }

    fn empty() -> Outstanding {
        Outstanding::new(|| 0)
    }

    fn ask(table: &mut Outstanding, seat: u8, now_us: u64) -> u16 {
        let mut question = [7; 20];
        assert_eq!(table.insert(client(1), &mut question, seat, now_us), None);
        message::id(&question)
    }

    #[test]
    fn a_question_is_found_by_the_id_it_is_asked_with() {
        let mut table = empty();
        let mut question = [9; 40];
        table.insert(client(77), &mut question, 3, 5);
        let id = message::id(&question);
        assert_eq!(table.kept(id), question);
        assert_eq!(table.get(id).unwrap().asked_at(3), Some(5));
        assert_eq!(table.get(id).unwrap().asked_at(2), None);
        assert_eq!((table.count(3), table.len()), (1, 1));
        assert_eq!(table.remove(id).unwrap().client, client(77));
        assert!(table.remove(id).is_none() && table.get(id).is_none());
        assert_eq!((table.count(3), table.len()), (0, 0));
    }

    #[test]
    fn stages_are_left_in_the_order_they_were_entered() {
        let mut table = empty();
        let (one, two) = (ask(&mut table, 4, 10), ask(&mut table, 4, 20));
        assert_eq!(table.due(4, Stage::Fresh, 9), None);
        assert_eq!(table.due(4, Stage::Fresh, 10), Some(one));
        table.advance(one, Stage::Slow, 30);
        assert_eq!(table.due(4, Stage::Fresh, 30), Some(two));
        assert_eq!(table.due(4, Stage::Slow, 30), Some(one));
        table.ask_again(one, 5, 40);
        assert_eq!((table.count(4), table.count(5)), (1, 1));
        let entry = table.get(one).unwrap();
        assert_eq!((entry.asked_at(4), entry.asked_at(5)), (Some(10), Some(40)));
        assert_eq!(table.due(5, Stage::Last, 40), Some(one));
        assert_eq!(
            (table.any_of(4), table.any_of(5), table.any_of(6)),
            (Some(two), Some(one), None)
        );
    }

    #[test]
    fn a_full_table_gives_up_what_waits_longest() {
        let mut table = empty();
        let first = ask(&mut table, 1, 0);
        for number in 1..OUTSTANDING_MAX as u64 {
            ask(&mut table, (number % 3) as u8, number);
        }
        let mut question = [1; 20];
        assert_eq!(table.insert(client(9), &mut question, 2, 1 << 20), Some(1));
        assert_eq!(message::id(&question), first);
        assert_eq!(table.len(), OUTSTANDING_MAX);
    }

    #[test]
    fn a_long_question_is_known_but_not_whole() {
        let mut table = empty();
        let mut question = [1; KEPT_LEN_MAX + 1];
        table.insert(client(9), &mut question, 0, 0);
        let id = message::id(&question);
        assert_eq!(table.kept(id), &question[..KEPT_LEN_MAX]);
        assert_eq!(table.whole(id), None);
        table.remove(id);
        table.insert(client(9), &mut question[..KEPT_LEN_MAX], 0, 0);
        assert_eq!(table.whole(id).map(<[u8]>::len), Some(KEPT_LEN_MAX));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        /// Whatever happens, each waiting question is in exactly one list of
        /// its node, in the order of time, and the counts are right.
        #[test]
        fn lists_stay_whole(steps in prop::collection::vec((0..5u8, 0..4u8, any::<u16>()), 1..300)) {
            let mut table = empty();
            let mut waiting: Vec<u16> = Vec::new();
            for (now_us, (step, seat, pick)) in (0u64..).zip(steps) {
                let at = pick as usize % waiting.len().max(1);
                match (step, waiting.get(at).copied()) {
                    (0, Some(id)) => table.advance(id, Stage::Slow, now_us),
                    (1, Some(id)) => table.ask_again(id, seat, now_us),
                    (2, Some(id)) => {
                        prop_assert!(table.remove(id).is_some());
                        waiting.swap_remove(at);
                    }
                    _ => waiting.push(ask(&mut table, seat, now_us)),
                }
            }
            prop_assert_eq!(table.len(), waiting.len());
            let mut found = Vec::new();
            for seat in 0..4 {
                let mut count = 0;
                for stage in [Stage::Fresh, Stage::Slow, Stage::Last] {
                    let mut last_us = 0;
                    while let Some(id) = table.due(seat, stage, u64::MAX) {
                        let entry = table.remove(id).unwrap();
                        prop_assert!(entry.since_us >= last_us && entry.seat as usize == seat);
                        last_us = entry.since_us;
                        found.push(id);
                        count += 1;
                    }
                }
                prop_assert_eq!((count > 0, table.count(seat)), (count > 0, 0));
            }
            found.sort_unstable();
            waiting.sort_unstable();
            prop_assert_eq!(found, waiting);
        }
    }
}
