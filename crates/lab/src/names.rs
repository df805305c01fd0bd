//! The names that clients ask for, and how upstream servers treat each.

use crate::chance::Chance;

/// How upstream servers treat questions for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// A few records.
    Plain,
    /// As many aliases before the records, which expire at different times.
    Alias(u8),
    /// More records than a datagram holds: cut off in one, whole over a
    /// connection.
    Big,
    NoData,
    NxDomain,
    /// No data, without a word about how long that is so.
    Bare,
    /// Records that live for no time.
    Fleeting,
    /// SERVFAIL.
    Fails,
    /// REFUSED.
    Refuses,
    /// Not a word.
    Silent,
    /// Messages that are not what they should be.
    Broken,
    /// Cut off even over a connection.
    CutOff,
}

impl Behaviour {
    /// True if whoever asks long enough gets an answer that may be kept.
    pub fn is_kept(self) -> bool {
        use Behaviour::*;
        matches!(self, Plain | Alias(_) | Big | NoData | NxDomain)
    }

    /// True if whoever asks long enough gets an answer.
    pub fn is_answered(self) -> bool {
        self.is_kept() || matches!(self, Behaviour::Bare | Behaviour::Fleeting)
    }
}

/// One name.
#[derive(Clone, Debug)]
pub struct Name {
    /// In wire form, lowered.
    pub octets: Vec<u8>,
    pub behaviour: Behaviour,
    /// How long its answers live: the least of their records.
    pub ttl_secs: u32,
    /// Upstream vouches for its data (AD).
    pub is_vouched: bool,
}

/// All names, the most popular first.
#[derive(Clone, Debug)]
pub struct Names(Vec<Name>);

const WEIGHTS: [(u64, Behaviour); 14] = [
    (40, Behaviour::Plain),
    (8, Behaviour::Alias(1)),
    (6, Behaviour::Alias(3)),
    (7, Behaviour::Big),
    (8, Behaviour::NoData),
    (8, Behaviour::NxDomain),
    (3, Behaviour::Bare),
    (3, Behaviour::Fleeting),
    (4, Behaviour::Fails),
    (2, Behaviour::Refuses),
    (2, Behaviour::Silent),
    (3, Behaviour::Broken),
    (2, Behaviour::CutOff),
    (4, Behaviour::Alias(2)),
];
const TTLS_SECS: [u32; 9] = [1, 2, 3, 5, 8, 12, 20, 30, 60];

impl Names {
    /// As many; `is_brief` if they live for a second.
    pub fn draw(count: usize, is_brief: bool, chance: &mut Chance) -> Self {
        let name = |number| {
            let behaviour = chance.weigh(&WEIGHTS);
            let ttl_secs = match behaviour {
                Behaviour::Fleeting | Behaviour::Bare => 0,
                _ if is_brief => TTLS_SECS[0],
                _ => chance.pick(&TTLS_SECS),
            };
            let octets = wire_form(&format!("name{number}.zone{}.test", chance.among(0..4)));
            Name { octets, behaviour, ttl_secs, is_vouched: chance.happens(300) }
        };
        Names((0..count).map(name).collect())
    }

    pub fn get(&self, at: usize) -> &Name {
        &self.0[at]
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name with these octets, which are lowered.
    pub fn find(&self, octets: &[u8]) -> Option<&Name> {
        self.0.iter().find(|name| name.octets == octets)
    }
}

/// A name in wire form; its labels are short and not empty.
pub fn wire_form(text: &str) -> Vec<u8> {
    let mut octets = Vec::with_capacity(text.len() + 2);
    for label in text.split('.') {
        octets.push(label.len() as u8);
        octets.extend_from_slice(label.as_bytes());
    }
    octets.push(0);
    octets
}

/// A name for people.
pub fn text_form(octets: &[u8]) -> String {
    let (mut text, mut rest) = (String::new(), octets);
    while let Some((&len, more)) = rest.split_first()
        && len > 0
        && let Some((label, more)) = more.split_at_checked(len as usize)
    {
        text.push_str(&String::from_utf8_lossy(label));
        text.push('.');
        rest = more;
    }
    text
}
