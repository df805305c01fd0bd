//! The servers that know what the cache does not, in groups: one for each
//! domain that is forwarded elsewhere, and one for all the rest.
//!
//! Of a group the server that answers fastest is asked, and now and then
//! another, to learn whether that is still so. One that keeps silent is left
//! alone for a while, longer each time.

use std::net::SocketAddr;
use std::time::Duration;

use rand_chacha::rand_core::RngCore;
use wire::Name;

use crate::time::Moment;

/// Questions without an answer, one after the other, until a server counts as
/// down.
const SILENT_MAX: u32 = 3;
/// How long a server that is down is left alone: at first, and at the most.
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(30);
/// How long a server that failed on EDNS is asked without: it may have been a
/// bad moment, and answers are smaller so.
const NO_EDNS: Duration = Duration::from_secs(60);
/// One question in this many goes to a server that is not the fastest.
const EXPLORE: u32 = 32;
/// How long a server that was never asked is assumed to take.
const RTT_UNKNOWN_US: f64 = 50_000.0;
/// Bounds of the time after which another server is asked as well.
const PATIENCE_MIN: Duration = Duration::from_millis(30);
const PATIENCE_MAX: Duration = Duration::from_millis(800);

/// Where a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    Socket(SocketAddr),
    /// The zones of this very process, asked without a socket.
    Local,
}

/// One server of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerId {
    pub group: u16,
    pub server: u16,
}

/// Servers that all know the same names.
#[derive(Clone, Debug)]
pub struct Group {
    /// The domain, lowered and in wire form; the root for all names.
    pub domain: Box<[u8]>,
    pub servers: Vec<Server>,
}

/// One server and how it did lately.
#[derive(Clone, Debug)]
pub struct Server {
    pub address: Address,
    /// Until when it is asked without EDNS, on which it failed.
    no_edns_until: Option<Moment>,
    pub asked: u64,
    pub answered: u64,
    pub timeouts: u64,
    /// Smoothed time to an answer and its spread; nothing before the first.
    rtt_us: Option<(f64, f64)>,
    silent: u32,
    rests_until: Option<Moment>,
    rest: Duration,
}

impl Server {
    pub fn new(address: Address) -> Self {
        Server {
            address,
            no_edns_until: None,
            asked: 0,
            answered: 0,
            timeouts: 0,
            rtt_us: None,
            silent: 0,
            rests_until: None,
            rest: REST_MIN,
        }
    }

    /// Smoothed time to an answer, if there was one.
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt_us.map(|(rtt, _)| Duration::from_micros(rtt as u64))
    }

    /// True unless it kept silent and is left alone.
    pub fn is_up(&self, now: Moment) -> bool {
        self.rests_until.is_none_or(|until| until <= now)
    }

    /// How long to wait for it before somebody else is asked.
    pub fn patience(&self) -> Duration {
        let expected = match self.rtt_us {
            Some((rtt, spread)) => rtt + 4.0 * spread,
            None => 8.0 * RTT_UNKNOWN_US,
        };
        Duration::from_micros(expected as u64).clamp(PATIENCE_MIN, PATIENCE_MAX)
    }

    /// It answered after `took`, whatever it said.
    pub fn note_answer(&mut self, took: Duration) {
        self.answered += 1;
        self.silent = 0;
        self.rests_until = None;
        self.rest = REST_MIN;
        let took = took.as_micros() as f64;
        // RFC 6298, 2.
        self.rtt_us = Some(match self.rtt_us {
            None => (took, took / 2.0),
            Some((rtt, spread)) => {
                (rtt + (took - rtt) / 8.0, spread + ((took - rtt).abs() - spread) / 4.0)
            }
        });
    }

    /// It failed on EDNS.
    pub fn note_no_edns(&mut self, now: Moment) {
        self.no_edns_until = Some(now + NO_EDNS);
    }

    /// False while it is asked without EDNS.
    pub fn knows_edns(&self, now: Moment) -> bool {
        self.no_edns_until.is_none_or(|until| until <= now)
    }

    /// It did not answer in time.
    pub fn note_silence(&mut self, now: Moment) {
        self.timeouts += 1;
        self.silent += 1;
        if self.silent >= SILENT_MAX {
            self.rests_until = Some(now + self.rest);
            self.rest = (self.rest * 2).min(REST_MAX);
            // After its rest one silence more is enough.
            self.silent = SILENT_MAX - 1;
        }
    }
}

/// All servers.
#[derive(Clone, Debug)]
pub struct Upstreams {
    groups: Vec<Group>,
}

impl Upstreams {
    /// `groups`, at most one for each domain.
    pub fn new(groups: Vec<(Box<[u8]>, Vec<Address>)>) -> Self {
        let make = |(domain, servers): (_, Vec<Address>)| Group {
            domain,
            servers: servers.into_iter().map(Server::new).collect(),
        };
        let mut groups: Vec<Group> = groups.into_iter().map(make).collect();
        // The longest first: the first that fits is the nearest.
        groups.sort_by_key(|group| std::cmp::Reverse(group.domain.len()));
        Upstreams { groups }
    }

    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The group that knows `name`, which is lowered; the nearest of several.
    pub fn group_of(&self, name: &[u8]) -> Option<u16> {
        let name = Name::from_trusted(name);
        let holds = |group: &Group| {
            !group.servers.is_empty() && name.is_at_or_below(Name::from_trusted(&group.domain))
        };
        self.groups.iter().position(holds).map(|at| at as u16)
    }

    pub fn server(&self, id: ServerId) -> &Server {
        &self.groups[id.group as usize].servers[id.server as usize]
    }

    pub fn server_mut(&mut self, id: ServerId) -> &mut Server {
        &mut self.groups[id.group as usize].servers[id.server as usize]
    }

    /// How many servers a group has.
    pub fn count(&self, group: u16) -> usize {
        self.groups[group as usize].servers.len()
    }

    /// The servers of a group that are the zones of this process, a bit each.
    pub fn local_ones(&self, group: u16) -> u64 {
        let servers = self.groups[group as usize].servers.iter().enumerate();
        let local = servers.filter(|(_, server)| server.address == Address::Local);
        local.fold(0, |bits, (at, _)| bits | 1u64.checked_shl(at as u32).unwrap_or(0))
    }

    /// The server to ask next: not one of `tried` (a bit each) if another is
    /// up.
    pub fn choose(
        &self,
        group: u16,
        tried: u64,
        now: Moment,
        random: &mut impl RngCore,
    ) -> ServerId {
        let servers = &self.groups[group as usize].servers;
        let is_fresh = |at: usize| at >= 64 || tried & (1 << at) == 0;
        let all = || 0..servers.len();
        let mut best: Vec<usize> =
            all().filter(|&at| is_fresh(at) && servers[at].is_up(now)).collect();
        if best.is_empty() {
            best = all().filter(|&at| servers[at].is_up(now)).collect();
        }
        if best.is_empty() {
            // All rest: the one that is due first.
            best = all().collect();
            best.sort_by_key(|&at| servers[at].rests_until);
            best.truncate(1);
        } else if !random.next_u32().is_multiple_of(EXPLORE) {
            let time = |at: &usize| servers[*at].rtt_us.map_or(0.0, |(rtt, _)| rtt);
            let fastest = best.iter().map(time).fold(f64::INFINITY, f64::min);
            // Those that are about as fast share the load.
            best.retain(|at| time(at) <= fastest * 1.25 + 1000.0);
        }
        let server = best[random.next_u32() as usize % best.len()] as u16;
        ServerId { group, server }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha12Rng;
    use rand_chacha::rand_core::SeedableRng;

    fn address(last: u8) -> Address {
        Address::Socket(SocketAddr::from(([192, 0, 2, last], 53)))
    }

    fn three() -> Upstreams {
        Upstreams::new(vec![(Box::from(&b"\0"[..]), (1..=3).map(address).collect())])
    }

    /// How often each of three servers is chosen.
    fn choices(upstreams: &Upstreams, tried: u64, now: Moment) -> [usize; 3] {
        let mut random = ChaCha12Rng::seed_from_u64(1);
        let mut counts = [0; 3];
        for _ in 0..1000 {
            counts[upstreams.choose(0, tried, now, &mut random).server as usize] += 1;
        }
        counts
    }

    #[test]
    fn the_nearest_domain_decides() {
        let upstreams = Upstreams::new(vec![
            (Box::from(&b"\0"[..]), vec![address(1)]),
            (Box::from(&b"\x04corp\0"[..]), vec![address(2)]),
            (Box::from(&b"\x02eu\x04corp\0"[..]), vec![Address::Local]),
        ]);
        let check = |name: &[u8], expected: Address| {
            let group = upstreams.group_of(name).unwrap();
            let first = ServerId { group, server: 0 };
            assert_eq!(upstreams.server(first).address, expected, "{name:?}");
        };
        check(b"\x03www\x04test\0", address(1));
        check(b"\0", address(1));
        check(b"\x04corp\0", address(2));
        check(b"\x05xcorp\0", address(1));
        check(b"\x01a\x02eu\x04corp\0", Address::Local);
        let none = Upstreams::new(vec![(Box::from(&b"\x04corp\0"[..]), vec![address(2)])]);
        assert_eq!(none.group_of(b"\x04test\0"), None);
    }

    #[test]
    fn the_fastest_is_asked_most_and_the_others_now_and_then() {
        let mut upstreams = three();
        for (at, millis) in [(0, 40), (1, 5), (2, 90)] {
            for _ in 0..20 {
                let id = ServerId { group: 0, server: at };
                upstreams.server_mut(id).note_answer(Duration::from_millis(millis));
            }
        }
        let counts = choices(&upstreams, 0, Moment(0));
        assert!(counts[1] > 930 && counts[0] > 0 && counts[2] > 0, "{counts:?}");
        assert_eq!(choices(&upstreams, 0b010, Moment(0))[1], 0, "it was tried");
        assert_eq!(choices(&upstreams, 0b111, Moment(0)).iter().sum::<usize>(), 1000);
    }

    #[test]
    fn the_silent_rest_longer_each_time_and_come_back() {
        let mut upstreams = three();
        let id = ServerId { group: 0, server: 0 };
        let now = Moment(1_000_000);
        for _ in 0..SILENT_MAX {
            assert!(upstreams.server(id).is_up(now));
            upstreams.server_mut(id).note_silence(now);
        }
        assert!(!upstreams.server(id).is_up(now));
        assert_eq!(choices(&upstreams, 0, now)[0], 0);
        assert!(upstreams.server(id).is_up(now + REST_MIN));
        upstreams.server_mut(id).note_silence(now + REST_MIN);
        assert!(!upstreams.server(id).is_up(now + REST_MIN * 2), "twice as long");
        upstreams.server_mut(id).note_answer(Duration::from_millis(1));
        assert!(upstreams.server(id).is_up(now + REST_MIN));
    }

    #[test]
    fn if_all_rest_one_is_asked_all_the_same() {
        let mut upstreams = three();
        for at in [2, 0, 1] {
            let id = ServerId { group: 0, server: at };
            let now = Moment(u64::from(at) + 10);
            (0..SILENT_MAX).for_each(|_| upstreams.server_mut(id).note_silence(now));
        }
        assert_eq!(choices(&upstreams, 0, Moment(11)), [1000, 0, 0], "the one due first");
    }
}
