//! The world: everything around the cells, and the loop that lets time pass.

mod ask;
mod changes;
mod drive;
mod outside;

use std::net::SocketAddr;
use std::rc::Rc;

use cache::answer::TtlLimits;
use cache::upstream::Address;
use cache::{Config, Effects};
use cluster::HashKey;
use wire::Query;

use crate::chance::{Chance, Popularity};
use crate::checkers::{Checkers, Event, Violation};
use crate::inquiry::{Inquiry, Wish};
use crate::names::Names;
use crate::network::Network;
use crate::node::{CellId, Node, PORTS};
use crate::plan::{self, Change};
use crate::queue::{Micros, Queue};
use crate::sabotage::Sabotage;
use crate::service::{Service, Told};
use crate::settings::{Kind, MILLI, SECOND, START, Settings};
use crate::trace::Trace;
use crate::upstream::{Server, Upstream};

/// Happenings of a world at the most: one that has more goes round in circles.
const HAPPENINGS_MAX: u64 = 3_000_000;

/// What came of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub settings: Settings,
    /// The first property that did not hold.
    pub violation: Option<Violation>,
    /// Equal if the same happened.
    pub trace: u64,
    /// The last lines of what happened.
    pub tail: String,
    pub tally: Tally,
}

/// What happened, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub asked: u64,
    pub replied: u64,
    pub failed: u64,
    pub stale: u64,
    pub consulted: u64,
    pub forged: u64,
    pub frames: u64,
    pub changes: u64,
}

/// Runs the world of a seed to its end, or to the first violation.
pub fn run(seed: u64, sabotage: Option<Sabotage>) -> Outcome {
    let mut chance = Chance::new(seed);
    let settings = Settings::draw(seed, &mut chance);
    World::new(settings, chance, sabotage).run()
}

/// The same with a kind of world that the seed does not decide.
pub fn run_kind(seed: u64, kind: Kind, sabotage: Option<Sabotage>) -> Outcome {
    let mut chance = Chance::new(seed);
    let settings = Settings::of_kind(seed, kind, &mut chance);
    World::new(settings, chance, sabotage).run()
}

/// Something that is going to happen.
#[derive(Debug)]
enum Happening {
    /// Some client asks.
    Turn,
    /// Many ask the same.
    Burst,
    /// A client asks this.
    Ask {
        to: CellId,
        wish: Wish,
        over_stream: bool,
    },
    Wake {
        cell: CellId,
        life: u64,
    },
    Frame {
        from: CellId,
        to: CellId,
        octets: Vec<u8>,
    },
    Handover {
        to: CellId,
        octets: Vec<u8>,
        /// How long it was under way.
        waited: Micros,
    },
    /// A question comes to an upstream server.
    Question {
        from: Origin,
        octets: Vec<u8>,
    },
    /// An answer comes back, or the news that there will be none.
    Saying {
        to: Origin,
        source: SocketAddr,
        octets: Option<Vec<u8>>,
    },
    View {
        cell: CellId,
        life: u64,
        told: Told,
    },
    Change(Change),
    /// A reply that was held back.
    Reply {
        number: u64,
        octets: Vec<u8>,
    },
}

/// Where an upstream question comes from, and its answer has to go.
#[derive(Clone, Copy, Debug)]
struct Origin {
    cell: CellId,
    life: u64,
    server: usize,
    way: Way,
}

#[derive(Clone, Copy, Debug)]
enum Way {
    /// From one of the cell's sockets, in one of its uses.
    Datagram {
        port: u16,
        use_: u32,
    },
    Stream {
        token: u64,
    },
}

/// Which names clients ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Known,
    New,
    Nothing,
}

#[derive(Debug)]
struct World {
    settings: Settings,
    sabotage: Option<Sabotage>,
    /// A sabotage that happens once did.
    is_sabotaged: bool,
    now: Micros,
    queue: Queue<Happening>,
    chance: Chance,
    names: Rc<Names>,
    known: Popularity,
    new: Popularity,
    phase: Phase,
    upstream: Upstream,
    network: Network,
    service: Service,
    nodes: Vec<Node>,
    config: Config,
    checkers: Checkers,
    violation: Option<Violation>,
    trace: Trace,
    tally: Tally,
    is_healed: bool,
    is_over: bool,
    /// Inquiries by their numbers.
    inquiries: Vec<Rc<Inquiry>>,
    wishes: Vec<Wish>,
    /// Which cells forgers aimed at, with which question.
    aims: Vec<(CellId, Wish)>,
    effects: Effects,
    query: Query,
    out: Vec<u8>,
}

impl World {
    fn new(settings: Settings, mut chance: Chance, sabotage: Option<Sabotage>) -> Self {
        let names = Rc::new(Names::draw(
            settings.names + settings.fresh_names,
            settings.is_brief,
            &mut chance,
        ));
        let servers = draw_servers(settings.kind, &mut chance);
        let config = config(&settings, &servers);
        let mut nodes: Vec<Node> =
            (0..settings.nodes_max).map(|at| Node::new(at, &settings)).collect();
        for node in &mut nodes[..settings.nodes] {
            node.incarnation = chance.among(1..1 << 60);
            node.ahead = chance.among(0..1 << 40);
        }
        if sabotage == Some(Sabotage::SlowClock) {
            nodes[0].slowness = 2;
        }
        let members = nodes[..settings.nodes].iter().map(Node::member).collect();
        let key = HashKey(chance.octets());
        let service = Service::new(members, key, settings.placement, settings.replicas);
        for node in &mut nodes[..settings.nodes] {
            node.start(service.told(), &config, || chance.octets());
            node.is_open = true;
        }
        let mut queue = Queue::default();
        for (at, change) in plan::draw(&settings, START, &mut chance) {
            queue.add(at, Happening::Change(change));
        }
        queue.add(START, Happening::Turn);
        queue.add(START + chance.among(0..3 * SECOND), Happening::Burst);
        World {
            known: Popularity::of(settings.names),
            new: Popularity::of(settings.fresh_names),
            phase: Phase::Known,
            checkers: Checkers::new(&settings, &names),
            upstream: Upstream::new(servers),
            network: Network::default(),
            sabotage,
            is_sabotaged: false,
            now: START,
            violation: None,
            trace: Trace::new(START),
            tally: Tally::default(),
            is_healed: false,
            is_over: false,
            inquiries: Vec::new(),
            wishes: Vec::new(),
            aims: Vec::new(),
            effects: Effects::default(),
            query: Query::default(),
            out: vec![0; 65_535],
            settings,
            queue,
            chance,
            names,
            service,
            nodes,
            config,
        }
    }

    fn run(mut self) -> Outcome {
        self.trace.note(self.now, format_args!("{:?}", self.settings));
        let mut count = 0;
        while let Some((at, happening)) = self.queue.next()
            && !self.is_over
            && self.violation.is_none()
        {
            self.now = at;
            self.let_happen(happening);
            count += 1;
            assert!(count < HAPPENINGS_MAX, "seed {} never ends", self.settings.seed);
        }
        if self.violation.is_none() {
            self.violation = self.checkers.finish();
        }
        Outcome {
            settings: self.settings,
            violation: self.violation,
            trace: self.trace.hash(),
            tail: self.trace.tail(),
            tally: self.tally,
        }
    }

    fn let_happen(&mut self, happening: Happening) {
        match happening {
            Happening::Turn => self.take_turn(),
            Happening::Burst => self.burst(),
            Happening::Ask { to, wish, over_stream } => self.ask(to, wish, over_stream),
            Happening::Wake { cell, life } => self.wake(cell, life),
            Happening::Frame { from, to, octets } => self.deliver_frame(from, to, &octets),
            Happening::Handover { to, octets, waited } => {
                self.deliver_handover(to, &octets, waited)
            }
            Happening::Question { from, octets } => self.consult(from, &octets),
            Happening::Saying { to, source, octets } => self.tell(to, source, octets.as_deref()),
            Happening::View { cell, life, told } => self.show_view(cell, life, told),
            Happening::Change(change) => self.change(change),
            Happening::Reply { number, octets } => self.note_reply(number, &octets),
        }
    }

    /// Shows an event to the checkers.
    fn show(&mut self, event: &Event<'_>) {
        let found = self.checkers.see(self.now, event);
        if let Some(violation) = found {
            self.trace.note(self.now, format_args!("VIOLATION of {violation}"));
            self.violation.get_or_insert(violation);
        }
    }

    /// True the first time it is asked about the sabotage of this world.
    fn sabotages(&mut self, sabotage: Sabotage) -> bool {
        let does = self.sabotage == Some(sabotage) && !self.is_sabotaged;
        self.is_sabotaged |= does;
        does
    }
}

/// Servers that answer well within the time in which nobody else is asked.
fn draw_servers(kind: Kind, chance: &mut Chance) -> Vec<Server> {
    let count = chance.among(1..4) as u8;
    (0..count)
        .map(|at| {
            let least = chance.among(500..22 * MILLI);
            Server {
                address: SocketAddr::from(([192, 0, 2, at + 1], 53)),
                latency_us: least..least + chance.among(1..3 * MILLI),
                lowers_case: kind == Kind::Chaos && chance.happens(100),
            }
        })
        .collect()
}

fn config(settings: &Settings, servers: &[Server]) -> Config {
    let addresses = servers.iter().map(|server| Address::Socket(server.address)).collect();
    Config {
        name: "".into(),
        cell: 0,
        cells: 1,
        l1: settings.tables,
        l2: settings.tables,
        ttl: TtlLimits::default(),
        stale_secs: settings.stale_secs,
        prefetch: settings.prefetch,
        pending_max: 10_000,
        pending_per_source_max: 1000,
        udp_payload: 1232,
        identity: None,
        upstreams: vec![(Box::from(&b"\0"[..]), addresses)],
        upstream_ports: PORTS,
        upstream_per_sec: None,
        seed: [0; 32],
    }
}
