//! One cell and the owners of what it is asked, which say what a test lets
//! them say.

use std::net::SocketAddr;
use std::sync::Arc;

use cluster::{Epoch, HashKey, Member, Placement, Routing, Standing, View};

use super::super::scene::{START, ask_for, config, octets, question};
use super::*;
use crate::answer::Answer;
use crate::counts::Counts;
use crate::peer::FrameHead;
use crate::upstream::Address;

const NAME: &str = "www.example.";
const UPSTREAM: Address =
    Address::Socket(SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 53));
/// How long somebody may be silent of whom nothing is known.
const FIRST_PATIENCE: Duration = Duration::from_millis(60);

/// What another member was told.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Asked { name: String, manner: Manner },
    Else(String),
}

struct Setting {
    cell: Cell,
    effects: Effects,
    now: Moment,
    routing: Arc<Routing>,
    /// The tokens of all questions that others were asked, by name.
    tokens: Vec<(String, u64)>,
}

fn member(name: &str, at: u8) -> Member {
    Member {
        name: name.into(),
        datacenter: "dc".into(),
        incarnation: 1,
        peer: SocketAddr::from(([192, 0, 2, at], 5302)),
        listen: Vec::new(),
        cells: 1,
        standing: Standing::Serving,
    }
}

impl Setting {
    /// The cell of `n` beside members that are not `n`, each question with two
    /// owners.
    fn among(others: &[&str]) -> Setting {
        let names = std::iter::once("n").chain(others.iter().copied());
        let members = names.zip(1..).map(|(name, at)| member(name, at)).collect();
        let view = Arc::new(View::new(1, members).unwrap());
        let epoch = Epoch { number: 1, key: HashKey([7; 16]) };
        let routing = Arc::new(Routing::new(view, Placement::Rendezvous, 2, epoch));
        let config = config(&[(".", &[UPSTREAM])]);
        Setting {
            cell: Cell::new(config, routing.clone(), Arc::new(Counts::default())),
            effects: Effects::default(),
            now: START,
            routing,
            tokens: Vec::new(),
        }
    }

    /// A name that these members own in this order.
    fn name_of(&self, owners: [&str; 2]) -> String {
        let names = (0..1000).map(|number| format!("{number}.{NAME}"));
        let owners_of = |name: &String| {
            let mut encoded = Vec::new();
            question(&octets(name)).encode(&mut encoded);
            let members = self.routing.owners(self.routing.slot(&encoded));
            [0, 1].map(|rank| self.routing.view().members()[members[rank] as usize].name.clone())
        };
        names.into_iter().find(|name| owners_of(name).map(|own| own.to_string()) == owners).unwrap()
    }

    fn ask(&mut self, name: &str) {
        let reply = ask_for(&mut self.cell, self.now, name, &mut self.effects);
        assert_eq!(reply, None, "nothing is known yet");
    }

    /// Lets everything happen that is due until `later`.
    fn pass(&mut self, later: Duration) {
        let end = self.now + later;
        while let Some(due) = self.cell.next_due().filter(|due| *due <= end) {
            self.now = due.max(self.now);
            self.cell.tick(self.now, &mut self.effects);
        }
        self.now = end;
    }

    /// What other members were told since the last time, in order.
    fn told(&mut self) -> Vec<Told> {
        let mut told = Vec::new();
        for parcel in std::mem::take(&mut self.effects.parcels) {
            let members = self.routing.view().members();
            let to = members.iter().find(|own| cluster::name_tag(&own.name) == parcel.to.node);
            let name = to.unwrap().name.to_string();
            for message in FrameHead::read(&parcel.octets).unwrap().1 {
                told.push(match message.unwrap() {
                    Message::Lookup { request, manner, .. } => {
                        self.tokens.push((name.clone(), request));
                        Told::Asked { name: name.clone(), manner }
                    }
                    other => Told::Else(format!("{name}: {other:?}")),
                });
            }
        }
        told
    }

    /// How often upstream was asked.
    fn upstream(&self) -> u64 {
        self.cell.counts().upstream_asked.get()
    }

    /// `member` says `message` about the question that it was asked last.
    fn say(&mut self, member: &str, message: impl Fn(u64) -> Message<'static>) {
        let token = self.tokens.iter().rev().find(|(name, _)| name == member).unwrap().1;
        let mut frame = Vec::new();
        let head = FrameHead { tag: self.routing.tag(), from: cluster::name_tag(member) };
        head.write(&mut frame);
        message(token).write(&mut frame);
        let members = self.routing.view().members();
        let source = members.iter().find(|own| &*own.name == member).unwrap().peer;
        assert!(self.cell.take_frame(self.now, (source, 0), &frame, &mut self.effects));
    }

    /// `member` answers what it was asked last.
    fn answer(&mut self, member: &str, name: &str) {
        let wire = octets(name);
        let failure = Answer::failure(question(&wire), 60, self.now);
        let mut encoded = Vec::new();
        failure.encode(self.now, &mut encoded);
        let encoded: &'static [u8] = encoded.leak();
        self.say(member, |request| Message::Answer { request, is_stale: false, answer: encoded });
    }
}

fn asked(name: &str, manner: Manner) -> Told {
    Told::Asked { name: name.into(), manner }
}

#[test]
fn while_the_first_owner_may_wake_up_nobody_else_resolves() {
    let mut setting = Setting::among(&["a", "b"]);
    let name = setting.name_of(["a", "b"]);
    setting.ask(&name);
    assert_eq!(setting.told(), [asked("a", Manner::Resolve)]);
    setting.pass(FIRST_PATIENCE);
    assert_eq!(setting.told(), [asked("a", Manner::Resolve), asked("b", Manner::Peek)]);
    let tokens: Vec<u64> =
        setting.tokens.iter().filter(|own| own.0 == "a").map(|own| own.1).collect();
    assert_eq!(tokens[0], tokens[1], "it is the same question, and has one answer");
    // That the second knows nothing is no reason to hurry.
    setting.say("b", |request| Message::Miss { request });
    assert_eq!(setting.told(), []);
    // The first wakes up.
    setting.answer("a", &name);
    assert_eq!(setting.effects.replies.len(), 1);
    setting.pass(Duration::from_secs(5));
    assert_eq!((setting.told(), setting.upstream()), (vec![], 0));
    assert_eq!(setting.cell.counts().peer_given_up.get(), 0);
}

#[test]
fn what_the_second_owner_has_is_taken_while_the_first_is_silent() {
    let mut setting = Setting::among(&["a", "b"]);
    let name = setting.name_of(["a", "b"]);
    setting.ask(&name);
    setting.pass(FIRST_PATIENCE);
    setting.told();
    setting.answer("b", &name);
    assert_eq!(setting.effects.replies.len(), 1);
    assert_eq!(setting.cell.counts().warmed.get(), 0, "it owns it now, not before");
}

#[test]
fn the_second_owner_resolves_once_the_first_is_suspected() {
    let mut setting = Setting::among(&["a", "b"]);
    let name = setting.name_of(["a", "b"]);
    setting.ask(&name);
    setting.pass(FIRST_PATIENCE + 2 * REPEAT_EVERY);
    let told = setting.told();
    assert_eq!(told.last(), Some(&asked("b", Manner::Resolve)), "{told:?}");
    assert!(setting.now.since(START) < SILENCE_MAX);
    let is_suspect = |own: &super::super::PeerReport| &*own.name == "a" && own.is_suspect;
    assert!(setting.cell.peers().iter().any(is_suspect));
    assert_eq!(setting.cell.counts().peer_given_up.get(), 1);
    assert_eq!(setting.upstream(), 0);
}

#[test]
fn the_second_owner_resolves_when_the_first_says_other_things_for_too_long() {
    let mut setting = Setting::among(&["a", "b"]);
    let name = setting.name_of(["a", "b"]);
    setting.ask(&name);
    setting.told();
    let step = Duration::from_millis(10);
    let mut resolves = None;
    for _ in 0..20 {
        setting.pass(step);
        let told = setting.told();
        if told.contains(&asked("b", Manner::Peek)) {
            setting.say("b", |request| Message::Miss { request });
        }
        if told.contains(&asked("b", Manner::Resolve)) {
            resolves = resolves.or(Some(setting.now.since(START)));
        }
        setting.say("a", |_| Message::Pong { request: 0 });
    }
    assert_eq!(resolves, Some(SILENCE_MAX));
}

#[test]
fn an_heir_resolves_what_the_owner_does_not() {
    let mut setting = Setting::among(&["a", "b"]);
    let name = setting.name_of(["a", "n"]);
    setting.ask(&name);
    setting.pass(FIRST_PATIENCE + REPEAT_EVERY);
    assert_eq!(setting.upstream(), 0, "the owner may be at it");
    assert!(!setting.told().contains(&asked("b", Manner::Peek)), "it is none of b's");
    setting.pass(REPEAT_EVERY);
    assert_eq!(setting.upstream(), 1);
}

#[test]
fn who_refuses_is_not_waited_for() {
    let mut setting = Setting::among(&["a", "b"]);
    let name = setting.name_of(["a", "b"]);
    setting.ask(&name);
    setting.told();
    setting.say("a", |request| Message::Refused { request });
    assert_eq!(setting.told(), [asked("b", Manner::Resolve)]);
    setting.say("b", |request| Message::Refused { request });
    assert_eq!((setting.told(), setting.upstream()), (vec![], 1));
}
