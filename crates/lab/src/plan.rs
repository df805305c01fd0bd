//! What goes wrong in a world, and when.

use crate::chance::Chance;
use crate::queue::Micros;
use crate::settings::{Kind, MILLI, SECOND, Settings};
use crate::upstream::Weather;

/// How long nothing is asked before cells are looked at.
const REST: Micros = 12 * SECOND;
/// How long new names are asked for afterwards.
const CALM: Micros = 8 * SECOND;
/// What is handed over and told has this long before the next orderly change.
const ORDERLY_EVERY: std::ops::Range<u64> = 2_000..5_000;
/// How long a node takes from its last question to its end.
const FAREWELL: Micros = 5 * SECOND;

/// Something that happens to nodes, network, upstream servers or the
/// coordination service. What makes no sense when its time comes does not
/// happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A node starts and becomes a member.
    Join(usize),
    /// A node is on its way out: it hands over, then leaves, then stops.
    Drain(usize),
    Leave {
        node: usize,
        life: u64,
    },
    Stop {
        node: usize,
        life: u64,
    },
    /// A node loses everything without a word. The service notices later; it
    /// may come back before or after that.
    Crash(usize),
    Expire {
        node: usize,
        life: u64,
    },
    /// A node loses its membership, though nothing is wrong with it, and gets
    /// it back.
    Flap(usize),
    Return {
        node: usize,
        life: u64,
    },
    Rotate,
    /// The coordination service says nothing, and then again something.
    Stall,
    Resume,
    /// Nothing passes between these pairs of nodes.
    Cut(Vec<(usize, usize)>),
    Mend,
    /// Frames are lost, doubled, held up.
    Noise {
        loss: u32,
        double: u32,
        spike: u32,
    },
    Weather(Weather),
    /// Nothing goes wrong from now on, and nobody asks for a while.
    Heal,
    /// Cells are looked at.
    Rest,
    /// New names are asked for.
    Calm,
    /// Nobody asks any more.
    Hush,
    End,
}

/// Everything that is known from the start.
pub fn draw(settings: &Settings, start: Micros, chance: &mut Chance) -> Vec<(Micros, Change)> {
    let mut plan = match settings.kind {
        Kind::Calm => Vec::new(),
        Kind::Orderly => orderly(settings, start, chance),
        Kind::Chaos => chaos(settings, start, chance),
    };
    let healed = start + settings.trouble;
    let calm = healed + REST;
    let hush = calm + CALM;
    plan.extend([
        (healed, Change::Heal),
        (calm, Change::Rest),
        (calm, Change::Calm),
        (hush, Change::Hush),
        (hush + REST, Change::Rest),
        (hush + REST, Change::End),
    ]);
    plan
}

fn orderly(settings: &Settings, start: Micros, chance: &mut Chance) -> Vec<(Micros, Change)> {
    let mut plan = Vec::new();
    let mut at = start + 4 * SECOND;
    while at + 2 * FAREWELL < start + settings.trouble {
        let node = chance.index(settings.nodes_max);
        let change = chance.pick(&[0, 1, 2]);
        plan.push((at, [Change::Join(node), Change::Drain(node), Change::Rotate][change].clone()));
        at += chance.among(ORDERLY_EVERY) * MILLI;
    }
    plan
}

fn chaos(settings: &Settings, start: Micros, chance: &mut Chance) -> Vec<(Micros, Change)> {
    let mut plan = Vec::new();
    let mut at = start + SECOND;
    while at < start + settings.trouble {
        let node = chance.index(settings.nodes_max);
        let other = chance.index(settings.nodes_max);
        let change = match chance.among(0..20) {
            0..3 => Change::Join(node),
            3..5 => Change::Drain(node),
            5..8 => Change::Crash(node),
            8 => Change::Flap(node),
            9..11 => Change::Rotate,
            11 => Change::Stall,
            12 => Change::Cut(vec![(node, other)]),
            13 => Change::Cut(around(node, settings.nodes_max)),
            14 => Change::Mend,
            15..18 => noise(chance),
            _ if settings.has_weather => Change::Weather(weather(chance)),
            _ => noise(chance),
        };
        plan.push((at, change));
        at += chance.among(100..2_000) * MILLI;
    }
    plan
}

/// All ways between a node and the others.
fn around(node: usize, nodes: usize) -> Vec<(usize, usize)> {
    let others = (0..nodes).filter(|other| *other != node);
    others.flat_map(|other| [(node, other), (other, node)]).collect()
}

fn noise(chance: &mut Chance) -> Change {
    let mut draw = |most| if chance.happens(500) { chance.among(0..most) as u32 } else { 0 };
    Change::Noise { loss: draw(400), double: draw(300), spike: draw(200) }
}

fn weather(chance: &mut Chance) -> Weather {
    Weather {
        loss_per_mille: chance.pick(&[0, 0, 100, 500]),
        slow_per_mille: chance.pick(&[0, 0, 200]),
        is_silent: chance.happens(250),
        is_failing: chance.happens(250),
    }
}

/// What follows from a change once it happened.
pub fn sequel(
    change: &Change,
    node_life: u64,
    now: Micros,
    chance: &mut Chance,
) -> Vec<(Micros, Change)> {
    let life = node_life;
    match *change {
        Change::Drain(node) => {
            let left = now + chance.among(2_000..4_000) * MILLI;
            vec![
                (left, Change::Leave { node, life }),
                (left + FAREWELL, Change::Stop { node, life }),
            ]
        }
        Change::Crash(node) => {
            let noticed = now + chance.among(500..4_000) * MILLI;
            let back = now + chance.among(100..6_000) * MILLI;
            vec![(noticed, Change::Expire { node, life }), (back, Change::Join(node))]
        }
        Change::Flap(node) => {
            vec![(now + chance.among(10..3_000) * MILLI, Change::Return { node, life })]
        }
        Change::Stall => vec![(now + chance.among(500..6_000) * MILLI, Change::Resume)],
        Change::Cut(_) => vec![(now + chance.among(200..5_000) * MILLI, Change::Mend)],
        Change::Weather(weather) if weather != Weather::default() => {
            let over = now + chance.among(500..6_000) * MILLI;
            vec![(over, Change::Weather(Weather::default()))]
        }
        _ => Vec::new(),
    }
}
