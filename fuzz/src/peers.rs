//! A cell between a client, a peer that says anything, and an upstream server
//! that says nothing.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use cache::answer::TtlLimits;
use cache::cell::{ANSWER_WITHIN, Ask, Asker};
use cache::peer::FrameHead;
use cache::store::Limits;
use cache::upstream::Address;
use cache::{Cell, Config, Counts, Effects, Moment};
use cluster::{Epoch, HashKey, Member, Placement, Routing, Standing, View};
use wire::{Query, Verdict};

use crate::packet;

/// When everything starts; any later time will do.
const START: Moment = Moment(1 << 50);
/// The name of the cell's node, and of its peer.
const NAMES: [&str; 2] = ["own", "peer"];
/// A question for `a.` and one for `b.`, of which the cell and its peer own one
/// each; the key decides which.
const QUESTIONS: [&[u8]; 2] = [
    b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01",
    b"\0\x02\x01\0\0\x01\0\0\0\0\0\0\x01b\0\0\x01\0\x01",
];

/// The cell's world.
#[derive(Debug)]
pub struct World {
    cell: Cell,
    effects: Effects,
    now: Moment,
    /// Replies to each of the questions.
    replies: [usize; 2],
}

impl World {
    /// Both questions were just asked.
    pub fn start() -> Self {
        let config = Config {
            name: NAMES[0].into(),
            cell: 0,
            cells: 1,
            l1: Limits { entries: 16, bytes: 1 << 20 },
            l2: Limits { entries: 16, bytes: 1 << 20 },
            ttl: TtlLimits::default(),
            stale_secs: 0,
            prefetch: true,
            pending_max: 32,
            pending_per_source_max: 16,
            udp_payload: 1232,
            identity: None,
            upstreams: vec![(Box::from(&b"\0"[..]), vec![Address::Socket(address(9))])],
            upstream_ports: 4,
            upstream_per_sec: None,
            seed: [7; 32],
        };
        let members = (0u16..).zip(NAMES).map(|(at, name)| Member {
            name: name.into(),
            datacenter: "".into(),
            incarnation: 1,
            peer: address(at),
            listen: Vec::new(),
            cells: 1,
            standing: Standing::Serving,
        });
        let view = Arc::new(View::new(1, members.collect()).expect("two members"));
        let epoch = Epoch { number: 1, key: HashKey([1; 16]) };
        let routing = Arc::new(Routing::new(view, Placement::Rendezvous, 2, epoch));
        let mut world = World {
            cell: Cell::new(config, routing, Arc::new(Counts::default())),
            effects: Effects::default(),
            now: START,
            replies: [0; 2],
        };
        world.ask();
        world
    }

    fn ask(&mut self) {
        for (number, request) in QUESTIONS.iter().enumerate() {
            let mut query = Query::default();
            assert_eq!(query.read(request), Verdict::Answer);
            let ask = Ask {
                query: &query,
                hash: self.cell.hash_of(&query),
                request,
                asker: Asker::Stream(number as u64),
                from: IpAddr::from([192, 0, 2, 1]),
                limit: 1232,
                opt: None,
            };
            let mut out = [0; 1232];
            if let Some(answered) = self.cell.ask(self.now, &ask, &mut out, &mut self.effects) {
                self.replies[number] += 1;
                check_reply(number, &out[..answered.len]);
            }
        }
        self.look();
    }

    /// The peer says `messages`, then `pause_ms` pass.
    pub fn hear(&mut self, messages: &[u8], pause_ms: u8) {
        let mut frame = Vec::new();
        FrameHead { tag: 0, from: cluster::name_tag(NAMES[1]) }.write(&mut frame);
        frame.extend_from_slice(messages);
        self.cell.take_frame(self.now, (address(1), 0), &frame, &mut self.effects);
        self.look();
        self.wait(Duration::from_millis(pause_ms.into()));
    }

    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(due) = self.cell.next_due().filter(|due| *due <= until) {
            self.now = due.max(self.now);
            self.cell.tick(self.now, &mut self.effects);
            self.look();
        }
        self.now = until;
    }

    /// Counts and checks what the cell wants done.
    fn look(&mut self) {
        for reply in &self.effects.replies {
            let Asker::Stream(number) = reply.asker else { panic!("nobody asked so") };
            self.replies[number as usize] += 1;
            check_reply(number as usize, &self.effects.octets[reply.octets.clone()]);
        }
        self.effects.clear();
    }

    /// After all time is over, both were answered, once, and nothing is left.
    pub fn end(mut self) {
        self.wait(ANSWER_WITHIN * 3);
        assert_eq!(self.replies, [1, 1]);
        let sizes = self.cell.sizes();
        assert_eq!((sizes.pending, sizes.requests, sizes.flights), (0, 0, 0), "{sizes:?}");
        assert!(sizes.l1_entries <= 16 && sizes.l2_entries <= 16, "{sizes:?}");
    }
}

/// A reply has the form of one, and is for its question.
fn check_reply(number: usize, reply: &[u8]) {
    let asked = QUESTIONS[number];
    assert_eq!(reply[..2], asked[..2], "its id");
    assert_eq!(reply[12..asked.len()], asked[12..], "its question");
    packet::parse(reply).expect("a reply that can be read");
}

fn address(last: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last as u8], 53))
}
