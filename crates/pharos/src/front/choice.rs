//! Which node a question goes to: the one with fewer questions outstanding of
//! two live ones drawn at random, out of all or out of the client's shard.

use std::hash::Hasher;
use std::net::IpAddr;

use shuffle::{Fleet, FleetError, Key, Signature, Worker};
use siphasher::sip::SipHasher24;

/// Nodes of a front at the most: a set of them is one word.
pub const NODES_MAX: usize = 128;
/// Shards that are drawn in advance. A client network falls into one of them,
/// so that finding its nodes costs the same whoever asks.
const DRAWS: usize = 16_384;
/// Bits of an address that make a client's network.
const NETWORK_BITS: (u32, u32) = (24, 56);

/// A set of nodes, by their seats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seats(u128);

impl Seats {
    /// The set of one node.
    pub fn one(seat: usize) -> Self {
        debug_assert!(seat < NODES_MAX);
        Seats(1 << seat)
    }

    pub fn with(self, seat: usize) -> Self {
        Seats(self.0 | Seats::one(seat).0)
    }

    pub fn without(self, other: Seats) -> Self {
        Seats(self.0 & !other.0)
    }

    pub fn within(self, other: Seats) -> Self {
        Seats(self.0 & other.0)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// The `n`th of them, which are more than `n`.
    #[inline]
    fn nth(self, n: u32) -> usize {
        let mut rest = self.0;
        for _ in 0..n {
            rest &= rest - 1;
        }
        rest.trailing_zeros() as usize
    }

    /// The one with less load of two drawn by `random`; `None` of no nodes.
    #[inline]
    pub fn pick(self, random: u64, load: impl Fn(usize) -> u64) -> Option<usize> {
        let len = u64::from(self.len());
        if len < 2 {
            return (len == 1).then(|| self.nth(0));
        }
        let below = |random: u64, len: u64| (((random & 0xffff_ffff) * len) >> 32) as u32;
        let first = below(random, len);
        // Of the others, so that there are two.
        let second = below(random >> 32, len - 1);
        let second = second + u32::from(second >= first);
        let (one, other) = (self.nth(first), self.nth(second));
        Some(if load(other) < load(one) { other } else { one })
    }
}

/// How the nodes stand at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standings {
    /// Up, and not on their way out.
    pub ready: Seats,
    /// Of those, the ones that were not silent lately.
    pub trusted: Seats,
    pub all: Seats,
}

/// How far a question had to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// To a node that is ready.
    Ready,
    /// To a ready node outside of its client's shard, where none is.
    OutOfShard,
    /// No node is ready: to any.
    Open,
}

impl Standings {
    /// Among which nodes a question is to be placed. With `strict` a client
    /// never leaves its shard, ready or not.
    #[inline]
    pub fn candidates(&self, shard: Option<Seats>, strict: bool) -> (Seats, Reach) {
        let own = shard.unwrap_or(self.all);
        for seats in [self.trusted.within(own), self.ready.within(own)] {
            if !seats.is_empty() {
                return (seats, Reach::Ready);
            }
        }
        match shard {
            Some(own) if strict => (own.within(self.all), Reach::Open),
            Some(_) if !self.trusted.is_empty() => (self.trusted, Reach::OutOfShard),
            Some(_) if !self.ready.is_empty() => (self.ready, Reach::OutOfShard),
            _ => (self.all, Reach::Open),
        }
    }
}

/// How shards are made.
#[derive(Clone, Copy, Debug)]
pub struct Sharding {
    /// Nodes of a shard, 1 to [`shuffle::SIZE_MAX`].
    pub size: usize,
    pub strict: bool,
    pub key: Key,
}

/// The shards of client networks. Fronts with the same names of nodes and the
/// same key come to the same.
#[derive(Clone)]
pub struct Shards {
    draws: Vec<Seats>,
    key: Key,
}

impl Shards {
    /// Shards of `nodes`, given by name and seat. `None` if there are not more
    /// nodes than a shard has.
    pub fn draw(nodes: &[(&str, usize)], sharding: &Sharding) -> Option<Self> {
        if nodes.len() <= sharding.size {
            return None;
        }
        let signature = signature(nodes, sharding).ok()?;
        let seat = |worker: &&Worker| {
            nodes.iter().find(|(name, _)| *name == worker.id).map(|(_, seat)| *seat)
        };
        let draw = |number: usize| {
            let shard = signature.shard(&(number as u32).to_be_bytes());
            shard.iter().filter_map(seat).fold(Seats::default(), Seats::with)
        };
        Some(Shards { draws: (0..DRAWS).map(draw).collect(), key: sharding.key })
    }

    /// The nodes for a client's network.
    #[inline]
    pub fn of(&self, client: IpAddr) -> Seats {
        let mut hasher = SipHasher24::new_with_key(&self.key.to_bytes());
        let (network, bits) = network_of(client);
        hasher.write(&network.to_be_bytes());
        hasher.write(&[bits]);
        self.draws[hasher.finish() as usize % DRAWS]
    }
}

impl std::fmt::Debug for Shards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shards").field("draws", &self.draws.len()).finish_non_exhaustive()
    }
}

fn signature(nodes: &[(&str, usize)], sharding: &Sharding) -> Result<Signature, FleetError> {
    let worker =
        |(name, _): &(&str, usize)| Worker { id: (*name).into(), domains: Vec::new(), weight: 1.0 };
    let fleet = Fleet::new(Vec::new(), nodes.iter().map(worker).collect())?;
    Signature::whole(&fleet, sharding.size, &sharding.key)
}

/// The network of a client as a number, and its length, which tells the
/// families apart.
fn network_of(client: IpAddr) -> (u128, u8) {
    let (v4, v6) = NETWORK_BITS;
    match client.to_canonical() {
        IpAddr::V4(address) => (u128::from(address.to_bits() >> (32 - v4)), v4 as u8),
        IpAddr::V6(address) => (address.to_bits() >> (128 - v6), v6 as u8),
    }
}

/// Numbers that are random enough to spread load: SplitMix64 (Steele, Lea and
/// Flood, 2014).
#[derive(Clone, Copy, Debug)]
pub struct Dice(pub u64);

impl Dice {
    #[inline]
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(list: &[usize]) -> Seats {
        list.iter().copied().fold(Seats::default(), Seats::with)
    }

    fn sharding(size: usize, key: &str) -> Sharding {
        Sharding { size, strict: false, key: Key::from_hex(key).unwrap() }
    }

    #[test]
    fn the_less_loaded_of_two_is_picked() {
        let mut dice = Dice(7);
        assert_eq!(Seats::default().pick(dice.roll(), |_| 0), None);
        assert_eq!(seats(&[127]).pick(dice.roll(), |_| 0), Some(127));
        let loads = [5, 0, 9];
        let mut counts = [0; 3];
        for _ in 0..3000 {
            counts[seats(&[0, 1, 2]).pick(dice.roll(), |seat| loads[seat]).unwrap()] += 1;
        }
        // Each pair is drawn one time in three; the heaviest never wins.
        assert!((900..1100).contains(&counts[0]), "{counts:?}");
        assert_eq!(counts[2], 0);
    }

    #[test]
    fn equal_nodes_get_equal_shares() {
        let mut dice = Dice(1);
        let mut counts = [0; 5];
        for _ in 0..10_000 {
            counts[seats(&[0, 1, 2, 3, 4]).pick(dice.roll(), |_| 0).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| (1800..2200).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_client_leaves_its_shard_only_when_nobody_is_ready_there() {
        let all = seats(&[0, 1, 2, 3]);
        let own = Some(seats(&[0, 1]));
        let check = |trusted: &[usize], ready: &[usize], strict, expected: (&[usize], Reach)| {
            let standings = Standings { trusted: seats(trusted), ready: seats(ready), all };
            let found = standings.candidates(own, strict);
            assert_eq!(found, (seats(expected.0), expected.1), "{trusted:?} {ready:?}");
        };
        check(&[0, 1, 2, 3], &[0, 1, 2, 3], false, (&[0, 1], Reach::Ready));
        check(&[1, 2, 3], &[1, 2, 3], false, (&[1], Reach::Ready));
        check(&[2, 3], &[0, 2, 3], false, (&[0], Reach::Ready));
        check(&[2], &[2, 3], false, (&[2], Reach::OutOfShard));
        check(&[], &[3], false, (&[3], Reach::OutOfShard));
        check(&[], &[], false, (&[0, 1, 2, 3], Reach::Open));
        check(&[2], &[2, 3], true, (&[0, 1], Reach::Open));
    }

    #[test]
    fn fronts_agree_about_shards_whatever_seats_their_nodes_have() {
        let names = ["a", "b", "c", "d", "e", "f"];
        let seated: Vec<_> = names.iter().enumerate().map(|(seat, name)| (*name, seat)).collect();
        let other: Vec<_> =
            names.iter().rev().zip(10..).map(|(name, seat)| (*name, seat)).collect();
        let [one, two] =
            [&seated, &other].map(|nodes| Shards::draw(nodes, &sharding(2, "1")).unwrap());
        let foreign = Shards::draw(&seated, &sharding(2, "2")).unwrap();
        let mut differ = 0;
        for number in 0..200u8 {
            let client = IpAddr::from([192, 0, number, 1]);
            let names_of = |nodes: &[(&'static str, usize)], own: Seats| {
                let mut list: Vec<_> = nodes
                    .iter()
                    .filter(|(_, seat)| !own.within(Seats::one(*seat)).is_empty())
                    .map(|(name, _)| *name)
                    .collect();
                list.sort_unstable();
                list
            };
            assert_eq!(one.of(client).len(), 2);
            assert_eq!(names_of(&seated, one.of(client)), names_of(&other, two.of(client)));
            differ += usize::from(one.of(client) != foreign.of(client));
        }
        assert!(differ > 100, "{differ} of 200 networks have other nodes under another key");
    }

    #[test]
    fn networks_are_told_apart_and_nothing_finer() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let same = |one: &str, other: &str| network_of(address(one)) == network_of(address(other));
        assert!(same("192.0.2.1", "192.0.2.254"));
        assert!(same("192.0.2.1", "::ffff:192.0.2.9"));
        assert!(!same("192.0.2.1", "192.0.3.1"));
        assert!(same("2001:db8:0:1::1", "2001:db8:0:ff::"));
        assert!(!same("2001:db8:0:1::1", "2001:db8:0:101::1"));
        assert!(!same("0.0.0.1", "::"));
    }

    #[test]
    fn few_nodes_need_no_shards() {
        assert!(Shards::draw(&[("a", 0), ("b", 1)], &sharding(2, "1")).is_none());
        assert!(Shards::draw(&[], &sharding(2, "1")).is_none());
    }
}
