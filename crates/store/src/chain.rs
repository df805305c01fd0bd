//! The chain of the audit log: each entry's digest covers the one before it,
//! so nothing can be changed, taken out, put in or moved without changing every
//! digest after it. Whoever remembers one digest can tell.
//!
//! Nothing here reads or writes anything.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// What stands before the first entry: the digest of a fixed text.
const GENESIS: &[u8] = b"pharos audit log 1";

/// SHA-256, printed as hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

/// What an entry's digest is made of.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    pub seq: u64,
    pub at: u64,
    pub actor: &'a str,
    pub action: &'a str,
    pub reason: &'a str,
    pub run: Option<u64>,
    pub json: &'a str,
}

impl Digest {
    /// Before the first entry.
    pub fn genesis() -> Digest {
        Digest(Sha256::digest(GENESIS).into())
    }

    /// Of any bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(Sha256::digest(bytes).into())
    }

    /// The digest of an entry that follows the one with this digest.
    ///
    /// Numbers are eight octets, the highest first; texts follow their length,
    /// so that no two entries are the same octets.
    pub fn followed_by(&self, link: &Link<'_>) -> Digest {
        let mut sum = Sha256::new();
        sum.update(self.0);
        sum.update(link.seq.to_be_bytes());
        sum.update(link.at.to_be_bytes());
        match link.run {
            Some(run) => {
                sum.update([1]);
                sum.update(run.to_be_bytes());
            }
            None => sum.update([0]),
        }
        for text in [link.actor, link.action, link.reason, link.json] {
            sum.update((text.len() as u64).to_be_bytes());
            sum.update(text.as_bytes());
        }
        Digest(sum.finalize().into())
    }

    /// Reads 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Digest> {
        from_hex(text).map(Digest)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

/// Bytes as hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads exactly so many bytes from hexadecimal digits.
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let value = |digit: u8| char::from(digit).to_digit(16);
        *byte = (value(pair[0])? << 4 | value(pair[1])?) as u8;
    }
    Some(bytes)
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link<'a>(actor: &'a str, action: &'a str) -> Link<'a> {
        Link { seq: 1, at: 2, actor, action, reason: "", run: None, json: "{}" }
    }

    #[test]
    fn the_chain_is_the_same_everywhere() {
        // Made with Python's hashlib, not with this code.
        assert_eq!(
            Digest::genesis().to_string(),
            "0593a7fa65900f5e4bccb8f149fce7bf07276a37240addbd4d162a60fe9cf20d"
        );
        assert_eq!(
            Digest::genesis().followed_by(&link("ada", "pause")).to_string(),
            "286c06353b1e477e5dad293f936afb0183977270f06662c8743d8df229a140ad"
        );
    }

    #[test]
    fn every_field_counts_and_none_runs_into_the_next() {
        let genesis = Digest::genesis();
        let base = genesis.followed_by(&link("ab", "c"));
        let others = [
            link("a", "bc"),
            Link { seq: 2, ..link("ab", "c") },
            Link { at: 3, ..link("ab", "c") },
            Link { reason: "x", ..link("ab", "c") },
            Link { run: Some(0), ..link("ab", "c") },
            Link { json: "[]", ..link("ab", "c") },
        ];
        for other in others {
            assert_ne!(genesis.followed_by(&other), base, "{other:?}");
        }
        assert_ne!(base.followed_by(&link("ab", "c")), base);
    }

    #[test]
    fn digests_are_read_as_they_are_printed() {
        let digest = Digest::genesis();
        assert_eq!(Digest::parse(&digest.to_string()), Some(digest));
        assert_eq!(Digest::parse("12"), None);
        assert_eq!(Digest::parse(&"g".repeat(64)), None);
        assert_eq!(Digest::parse(&"\u{e9}".repeat(32)), None);
    }
}
