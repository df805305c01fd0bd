//! The names that caches are asked for. The address that a right answer holds follows from the
//! name by the rule of the stub, so every answer can be checked.

use std::net::Ipv4Addr;

use crate::load::Questions;
use crate::mmsg::PACKET_BYTES_MAX;
use crate::queries::Expect;
use crate::stats::Random;
use crate::stub::rule;

const HEADER_BYTES: usize = 12;
/// Recursion desired, one question.
const HEADER: [u8; HEADER_BYTES] = [0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
/// Digits of the first label.
const DIGITS: usize = 10;
const ZONE: &[u8] = b"\x05cache\x07example\0";
/// Type A, class IN.
const TAIL: [u8; 4] = [0, 1, 0, 1];
/// Random numbers of Zipf's law drawn in advance; asked for over and over.
const DRAWN: usize = 1 << 20;

/// Names `n<number>.<tag>.cache.example` and the order they are asked in.
#[derive(Clone, Debug)]
pub struct Names {
    tag: String,
    order: Order,
}

#[derive(Clone, Debug)]
enum Order {
    /// One after the other, over and over.
    Each(u64),
    /// At random, all equally often.
    Uniform(u64),
    /// As drawn in advance.
    Drawn(Vec<u32>),
    /// Never the same again.
    Unique,
}

impl Names {
    /// All `count` names in turn.
    pub fn each(tag: &str, count: usize) -> Names {
        Names::new(tag, Order::Each(count as u64))
    }

    pub fn uniform(tag: &str, count: usize) -> Names {
        Names::new(tag, Order::Uniform(count as u64))
    }

    pub fn unique(tag: &str) -> Names {
        Names::new(tag, Order::Unique)
    }

    /// The name of rank r is asked for in proportion to 1/r.
    pub fn zipf(tag: &str, count: usize) -> Names {
        let mut sums = Vec::with_capacity(count);
        let mut sum = 0.0;
        for rank in 1..=count {
            sum += 1.0 / rank as f64;
            sums.push(sum);
        }
        let mut random = Random::new(count as u64);
        let draw = |_| {
            let at = random.share() * sum;
            sums.partition_point(|upper| *upper <= at).min(count - 1) as u32
        };
        Names::new(tag, Order::Drawn((0..DRAWN).map(draw).collect()))
    }

    /// The paper's: of `count` names, the popular 100 − `percent` % get `percent` % of the
    /// requests, the other names the rest.
    pub fn popular(tag: &str, count: usize, percent: u8, requests: usize) -> Names {
        let percent = usize::from(percent.min(100));
        let popular = (count * (100 - percent) / 100).clamp(1, count - 1);
        let mut random = Random::new(percent as u64 + 1);
        let draw = |_| match random.below(100) < percent {
            true => random.below(popular) as u32,
            false => (popular + random.below(count - popular)) as u32,
        };
        Names::new(tag, Order::Drawn((0..requests).map(draw).collect()))
    }

    /// The same names, never mixed with another set's.
    fn new(tag: &str, order: Order) -> Names {
        assert!((1..=63).contains(&tag.len()), "tags are labels");
        Names { tag: tag.to_ascii_lowercase(), order }
    }

    fn index(&self, number: u64) -> u64 {
        match &self.order {
            Order::Each(count) => number % count,
            Order::Uniform(count) => Random::new(number).next() % count,
            Order::Drawn(drawn) => drawn[(number % drawn.len() as u64) as usize].into(),
            Order::Unique => number,
        }
    }
}

impl Questions for Names {
    fn write(&self, number: u64, packet: &mut [u8; PACKET_BYTES_MAX]) -> (usize, Expect) {
        packet[..HEADER_BYTES].copy_from_slice(&HEADER);
        let mut at = HEADER_BYTES;
        let mut put = |octets: &[u8]| {
            packet[at..at + octets.len()].copy_from_slice(octets);
            at += octets.len();
        };
        put(&[DIGITS as u8 + 1, b'n']);
        put(&digits(self.index(number)));
        put(&[self.tag.len() as u8]);
        put(self.tag.as_bytes());
        put(ZONE);
        put(&TAIL);
        (at, expect(&packet[HEADER_BYTES..at - TAIL.len()]))
    }
}

/// What a cache in front of the stub says of `name`, in wire form and lower case.
pub fn expect(name: &[u8]) -> Expect {
    let address: Ipv4Addr = rule::address(rule::hash(name));
    Expect { authoritative: false, ..Expect::address(address) }
}

/// Sixteen values each, the last one lowest.
fn digits(mut value: u64) -> [u8; DIGITS] {
    let mut digits = [b'0'; DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(value & 15) as usize];
        value >>= 4;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn indexes(names: &Names, count: u64) -> HashMap<u64, usize> {
        let mut found = HashMap::new();
        for number in 0..count {
            *found.entry(names.index(number)).or_default() += 1;
        }
        found
    }

    #[test]
    fn questions_are_well_formed_and_lowered() {
        let names = Names::unique("Tag");
        let mut packet = [0; PACKET_BYTES_MAX];
        let (len, expect) = names.write(0x2a, &mut packet);
        assert_eq!(packet[12..len], *b"\x0bn000000002a\x03tag\x05cache\x07example\0\0\x01\0\x01");
        let mut query = wire::Query::default();
        assert_eq!(query.read(&packet[..len]), wire::Verdict::Answer);
        assert_eq!(expect, super::expect(query.name().as_bytes()));
    }

    #[test]
    fn orders_keep_to_their_names() {
        assert_eq!(indexes(&Names::each("t", 10), 30).values().collect::<Vec<_>>(), [&3; 10]);
        assert_eq!(indexes(&Names::unique("t"), 1000).len(), 1000);
        let uniform = indexes(&Names::uniform("t", 100), 100_000);
        assert!(uniform.len() == 100 && uniform.values().all(|it| (800..1200).contains(it)));
    }

    #[test]
    fn zipf_halves_with_the_rank() {
        let found = indexes(&Names::zipf("t", 1000), DRAWN as u64);
        // The harmonic number of 1000 is 7.485.
        for (rank, share) in [(1, 1.0 / 7.485), (2, 0.5 / 7.485), (10, 0.1 / 7.485)] {
            let measured = found[&(rank - 1)] as f64 / DRAWN as f64;
            assert!((measured / share - 1.0).abs() < 0.05, "{rank}: {measured}, {share}");
        }
        assert!(found.keys().all(|index| *index < 1000));
    }

    #[test]
    fn popular_names_get_their_share() {
        let found = indexes(&Names::popular("t", 2000, 90, 10_000), 10_000);
        let popular: usize =
            found.iter().filter(|(index, _)| **index < 200).map(|(_, count)| count).sum();
        assert!((8800..9200).contains(&popular), "{popular}");
        assert!(found.keys().all(|index| *index < 2000));
        indexes(&Names::popular("t", 2000, 100, 10), 10);
    }
}
