//! Whether the NSEC or NSEC3 records of an answer prove what the answer claims (RFC 4035 3.1.3,
//! RFC 5155 7.2). Peers differ in what they send; this decides who sends a proof.

use std::collections::BTreeSet;

use sha1::{Digest, Sha1};

use crate::answer::{Answer, Rr, Section};
use crate::model::{End, Walk};
use crate::name::Name;
use crate::rtype;
use crate::truth::ZoneTruth;
use crate::wire;
use crate::zones::Denial;

type Proof = Result<(), String>;

/// Everything that `walk` denies must be proven by the authority section of `answer`.
pub fn check(walk: &Walk<'_>, qtype: u16, answer: &Answer) -> Proof {
    let authority = answer.section(Section::Authority);
    for (zone, name, wildcard) in walk.expansions() {
        if zone.is_signed() {
            let proof = Records::new(zone, authority);
            let encloser = wildcard.parent().expect("a wildcard has a parent");
            proof.nothing_closer(name, &encloser)?;
        }
    }
    match &walk.end {
        End::NoData { zone, name, source } if zone.is_signed() => {
            let proof = Records::new(zone, authority);
            if source != name {
                let encloser = source.parent().expect("a wildcard has a parent");
                proof.nothing_closer(name, &encloser)?;
                proof.encloser_is_shown(name, &encloser)?;
            }
            proof.lacks(source, qtype)
        }
        End::NxDomain { zone, name } if zone.is_signed() => {
            Records::new(zone, authority).missing(name)
        }
        End::Referral { zone, cut } if zone.is_signed() && zone.set(cut, rtype::DS).is_none() => {
            Records::new(zone, authority).lacks(cut, rtype::DS)
        }
        _ => Ok(()),
    }
}

/// True if no NSEC3 of the zone can prove that the name at the end of `walk` is missing, because
/// its closest encloser is an empty name that opt-out left without a record (RFC 5155 7.1).
pub fn has_no_proof(walk: &Walk<'_>) -> bool {
    let End::NxDomain { zone, name } = &walk.end else { return false };
    if !zone.is_signed() || zone.denial == Denial::Nsec {
        return false;
    }
    let none = BTreeSet::new();
    let records = Records::new(zone, &none);
    records.is_below_hidden_encloser(name, &records.provable(name).0)
}

/// The records that deny, of one zone.
struct Records<'a> {
    zone: &'a ZoneTruth,
    records: Vec<&'a Rr>,
}

impl<'a> Records<'a> {
    fn new(zone: &'a ZoneTruth, authority: &'a BTreeSet<Rr>) -> Self {
        let wanted = if zone.denial == Denial::Nsec { rtype::NSEC } else { rtype::NSEC3 };
        let of_zone = |rr: &&Rr| rr.rtype == wanted && rr.owner.is_at_or_below(&zone.origin);
        Records { zone, records: authority.iter().filter(of_zone).collect() }
    }

    fn is_nsec(&self) -> bool {
        self.zone.denial == Denial::Nsec
    }

    /// `name` has neither `qtype` nor an alias.
    fn lacks(&self, name: &Name, qtype: u16) -> Proof {
        if self.is_nsec() {
            let shown = self.records.iter().any(|rr| {
                let exact =
                    rr.owner == *name && !has_type(rr, qtype) && !has_type(rr, rtype::CNAME);
                exact || is_empty_by(rr, name)
            });
            return ok_or(shown, || format!("no NSEC shows that {name} lacks the type"));
        }
        let exact = self.matching(name);
        if exact.is_some_and(|rr| !has_type(rr, qtype) && !has_type(rr, rtype::CNAME)) {
            return Ok(());
        }
        // Opt-out leaves insecure delegations, and empty names that lead only to them, without a
        // record of their own (RFC 5155 7.2.4, 6).
        let (encloser, next) = self.provable(name);
        let opted_out = self.covering(&next).is_some_and(|rr| rr.rdata.get(1) == Some(&1));
        let shown = encloser != *name && self.matching(&encloser).is_some() && opted_out;
        ok_or(shown, || format!("no NSEC3 shows that {name} lacks the type"))
    }

    /// Nothing between `encloser` and `name` exists.
    fn nothing_closer(&self, name: &Name, encloser: &Name) -> Proof {
        let covered = match self.is_nsec() {
            true => self.records.iter().any(|rr| covers(rr, name)),
            false => self.covering(&next_closer(name, encloser)).is_some(),
        };
        ok_or(covered, || format!("nothing shows that no closer match for {name} exists"))
    }

    fn encloser_is_shown(&self, name: &Name, encloser: &Name) -> Proof {
        let shown = self.is_nsec() || self.matching(encloser).is_some();
        ok_or(shown, || format!("no NSEC3 matches {encloser}, the closest encloser of {name}"))
    }

    fn missing(&self, name: &Name) -> Proof {
        let (encloser, next) = match self.is_nsec() {
            true => self.existing_encloser(name),
            false => self.provable(name),
        };
        let wildcard = encloser.child(b"*");
        if self.is_nsec() {
            let covered = self.records.iter().any(|rr| covers(rr, name));
            ok_or(covered, || format!("no NSEC covers {name}"))?;
            let wild = |wild: &Name| self.records.iter().any(|rr| covers(rr, wild));
            return ok_or(wildcard.as_ref().is_none_or(wild), || {
                format!("no NSEC covers *.{encloser}")
            });
        }
        ok_or(self.matching(&encloser).is_some(), || format!("no NSEC3 matches {encloser}"))?;
        ok_or(self.covering(&next).is_some(), || format!("no NSEC3 covers {next}"))?;
        if self.is_below_hidden_encloser(name, &encloser) {
            return Ok(());
        }
        let wild = |wild: &Name| self.covering(wild).is_some();
        ok_or(wildcard.as_ref().is_none_or(wild), || format!("no NSEC3 covers *.{encloser}"))
    }

    /// The real closest encloser is an empty name that opt-out left without a record, so the
    /// wildcard below the provable one, which does not apply, cannot be denied: it may exist.
    fn is_below_hidden_encloser(&self, name: &Name, provable: &Name) -> bool {
        !self.is_nsec() && self.existing_encloser(name).0 != *provable
    }

    fn existing_encloser(&self, name: &Name) -> (Name, Name) {
        let path = name.ancestry();
        let encloser = path.iter().find(|above| self.zone.names.contains(above));
        let encloser = encloser.unwrap_or(&self.zone.origin).clone();
        let next = next_closer(name, &encloser);
        (encloser, next)
    }

    /// The closest encloser that has an NSEC3 in the zone, and the name one label longer
    /// (RFC 5155 1.3: closest provable encloser).
    fn provable(&self, name: &Name) -> (Name, Name) {
        let has_record = |above: &&Name| {
            let owner = self.hashed_owner(above);
            self.zone.set(&owner, rtype::NSEC3).is_some()
        };
        let path = name.ancestry();
        let encloser = path.iter().find(has_record).unwrap_or(&self.zone.origin).clone();
        let next = next_closer(name, &encloser);
        (encloser, next)
    }

    fn matching(&self, name: &Name) -> Option<&'a Rr> {
        let owner = self.hashed_owner(name);
        self.records.iter().find(|rr| rr.owner == owner).copied()
    }

    fn covering(&self, name: &Name) -> Option<&'a Rr> {
        let hash = self.hash(name);
        self.records
            .iter()
            .find(|rr| {
                let owner = rr.owner.first_label().and_then(base32hex_octets).unwrap_or_default();
                let next = nsec3_fields(rr).0;
                is_between(owner.as_slice(), hash.as_slice(), next)
            })
            .copied()
    }

    fn hash(&self, name: &Name) -> Vec<u8> {
        let Denial::Nsec3 { salt, iterations, .. } = &self.zone.denial else { return Vec::new() };
        let salt = salt_octets(salt);
        let mut digest =
            Sha1::new().chain_update(name.lower().wire()).chain_update(&salt).finalize();
        for _ in 0..*iterations {
            digest = Sha1::new().chain_update(digest).chain_update(&salt).finalize();
        }
        digest.to_vec()
    }

    fn hashed_owner(&self, name: &Name) -> Name {
        let label = base32hex(&self.hash(name));
        self.zone.origin.child(label.as_bytes()).expect("a hash fits any zone here")
    }
}

fn ok_or(holds: bool, problem: impl FnOnce() -> String) -> Proof {
    if holds { Ok(()) } else { Err(problem()) }
}

fn next_closer(name: &Name, encloser: &Name) -> Name {
    let depth = encloser.label_count() + 1;
    let path = name.ancestry();
    path.into_iter().find(|above| above.label_count() == depth).unwrap_or_else(|| name.clone())
}

/// Cyclic: the last record's next is the first owner, and a lone record covers all but itself.
fn is_between<T: PartialOrd>(owner: T, item: T, next: T) -> bool {
    if owner < next { owner < item && item < next } else { item > owner || item < next }
}

/// Canonical order: labels from the right, as lowered octets (RFC 4034 6.1).
fn canonical(name: &Name) -> Vec<Vec<u8>> {
    name.lower().labels().iter().rev().map(|label| label.to_vec()).collect()
}

fn covers(nsec: &Rr, name: &Name) -> bool {
    let Some((next, _)) = wire::name_in(&nsec.rdata, 0) else { return false };
    // An NSEC at a cut or a DNAME says nothing about names below (RFC 6840 4.1, RFC 6672 5.3.4.1).
    let is_ancestor = name.is_below(&nsec.owner);
    let is_cut = has_type(nsec, rtype::NS) && !has_type(nsec, rtype::SOA);
    if is_ancestor && (is_cut || has_type(nsec, rtype::DNAME)) {
        return false;
    }
    nsec.owner != *name && is_between(canonical(&nsec.owner), canonical(name), canonical(&next))
}

/// An empty name is shown by an NSEC that leads from before it to below it.
fn is_empty_by(nsec: &Rr, name: &Name) -> bool {
    let next = wire::name_in(&nsec.rdata, 0);
    covers(nsec, name) && next.is_some_and(|(next, _)| next.is_below(name))
}

fn has_type(rr: &Rr, rtype: u16) -> bool {
    let mut bitmap = match rr.rtype {
        rtype::NSEC => wire::name_in(&rr.rdata, 0).map_or(&[][..], |(_, at)| &rr.rdata[at..]),
        _ => nsec3_fields(rr).1,
    };
    while let [window, length, rest @ ..] = bitmap {
        let length = (*length as usize).min(rest.len());
        if u16::from(*window) == rtype >> 8 {
            let octet = rest[..length].get((rtype & 0xff) as usize / 8);
            return octet.is_some_and(|octet| octet & (0x80 >> (rtype % 8)) != 0);
        }
        bitmap = &rest[length..];
    }
    false
}

/// The next hash and the type bitmap (RFC 5155 3.2).
fn nsec3_fields(rr: &Rr) -> (&[u8], &[u8]) {
    let salt = rr.rdata.get(4).map_or(0, |length| *length as usize);
    let hash_at = 5 + salt;
    let length = rr.rdata.get(hash_at).map_or(0, |length| *length as usize);
    let end = hash_at + 1 + length;
    match end <= rr.rdata.len() {
        true => (&rr.rdata[hash_at + 1..end], &rr.rdata[end..]),
        false => (&[], &[]),
    }
}

fn salt_octets(salt: &str) -> Vec<u8> {
    let digits = salt.trim_start_matches('-').as_bytes();
    let digit = |octet: u8| (octet as char).to_digit(16).expect("salts are hex") as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

const BASE32HEX: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

fn base32hex(octets: &[u8]) -> String {
    let mut text = String::new();
    for chunk in octets.chunks(5) {
        let mut wide = [0; 8];
        wide[3..3 + chunk.len()].copy_from_slice(chunk);
        let bits = u64::from_be_bytes(wide);
        for digit in 0..(chunk.len() * 8).div_ceil(5) {
            text.push(BASE32HEX[(bits >> (35 - 5 * digit)) as usize & 31] as char);
        }
    }
    text
}

fn base32hex_octets(text: &[u8]) -> Option<Vec<u8>> {
    let mut octets = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for letter in text.to_ascii_lowercase() {
        let digit = BASE32HEX.iter().position(|known| *known == letter)?;
        bits = bits << 5 | digit as u32;
        count += 5;
        if count >= 8 {
            count -= 8;
            octets.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(octets)
}

#[cfg(test)]
mod tests {
    use super::{base32hex, base32hex_octets, is_between, salt_octets};
    use sha1::{Digest, Sha1};

    /// RFC 5155 appendix A: H(example) with salt aabbccdd and 12 iterations.
    #[test]
    fn hashes_as_in_rfc_5155() {
        let salt = salt_octets("aabbccdd");
        let mut digest = Sha1::new().chain_update(b"\x07example\0").chain_update(&salt).finalize();
        for _ in 0..12 {
            digest = Sha1::new().chain_update(digest).chain_update(&salt).finalize();
        }
        let text = base32hex(&digest);
        assert_eq!(text, "0p9mhaveqvm6t7vbl5lop2u3t2rp3tom");
        assert_eq!(base32hex_octets(text.as_bytes()).unwrap(), digest.to_vec());
    }

    #[test]
    fn intervals_wrap() {
        assert!(is_between(5, 7, 9) && !is_between(5, 5, 9) && !is_between(5, 9, 9));
        assert!(is_between(9, 10, 2) && is_between(9, 1, 2) && !is_between(9, 5, 2));
        assert!(is_between(4, 5, 4) && !is_between(4, 4, 4));
    }
}
