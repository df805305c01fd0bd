//! Proofs that something is absent: which NSEC or NSEC3 records go with an
//! answer from a signed zone (RFC 4035, 3.1.3; RFC 5155, 7.2).

use sha1::{Digest, Sha1};
use wire::name::NAME_LEN_MAX;
use wire::rtype;

use crate::image::{Image, NSEC_KEY_LEN, NSEC3_HASH_LEN, Node};

/// Most records one proof needs: closest encloser, next closer, wildcard.
pub(crate) const PROOF_LEN_MAX: usize = 3;

/// The owners of the records of a proof, none twice.
#[derive(Clone, Copy, Default)]
pub(crate) struct Proof<'z> {
    nodes: [Option<Node<'z>>; PROOF_LEN_MAX],
}

impl<'z> Proof<'z> {
    fn add(&mut self, node: Option<Node<'z>>) {
        let Some(node) = node else { return };
        for place in &mut self.nodes {
            match place {
                Some(known) if known.offset() == node.offset() => return,
                Some(_) => {}
                None => {
                    *place = Some(node);
                    return;
                }
            }
        }
    }

    /// The nodes that hold the NSEC or NSEC3 records.
    pub fn nodes(self) -> impl Iterator<Item = Node<'z>> {
        self.nodes.into_iter().flatten()
    }
}

/// What is to be proved. Names are the labels before the zone's own name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Absence<'n> {
    /// The name exists, the type does not.
    Type { name: &'n [u8] },
    /// Neither the name nor a wildcard for it exists.
    Name { name: &'n [u8], closest: &'n [u8] },
    /// The answer came from the wildcard below `closest`: the name itself
    /// does not exist.
    Expanded { name: &'n [u8], closest: &'n [u8] },
    /// The wildcard below `closest` covers the name but lacks the type.
    WildcardType { name: &'n [u8], closest: &'n [u8] },
}

/// The records that prove `absence` in `image`.
pub(crate) fn prove<'z>(image: &'z Image, absence: Absence<'_>) -> Proof<'z> {
    match image.is_nsec3() {
        true => Nsec3(image).prove(absence),
        false => prove_nsec(image, absence),
    }
}

fn prove_nsec<'z>(image: &'z Image, absence: Absence<'_>) -> Proof<'z> {
    let mut proof = Proof::default();
    let covering = |relative: &[u8]| nsec_at_or_before(image, relative);
    match absence {
        // An empty non-terminal has no NSEC of its own; the one before it
        // shows by its next name that there is something below.
        Absence::Type { name } | Absence::Expanded { name, .. } => proof.add(covering(name)),
        Absence::Name { name, closest } | Absence::WildcardType { name, closest } => {
            proof.add(covering(name));
            proof.add(covering(Wildcard::below(closest).labels()));
        }
    }
    proof
}

/// The last owner of an NSEC record that is not behind `relative`.
fn nsec_at_or_before<'z>(image: &'z Image, relative: &[u8]) -> Option<Node<'z>> {
    let key = order_key(relative);
    let (mut low, mut high) = (0, image.chain_len());
    while low < high {
        let middle = (low + high) / 2;
        let (middle_key, node) = image.nsec(middle);
        let order = middle_key.cmp(&key).then_with(|| cmp_relative(node.relative(), relative));
        if order.is_le() {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low.checked_sub(1).map(|index| image.nsec(index).1)
}

/// The start of a name's place in canonical order, as a number: a lower number
/// is an earlier name, the same number may be any. Labels from the right, each
/// ended by a zero octet; octets that could be taken for that end are written
/// as two.
pub(crate) fn order_key(relative: &[u8]) -> u128 {
    let mut key = [0; NSEC_KEY_LEN];
    let mut len = 0;
    let (starts, count) = label_starts(relative);
    for &start in starts[..count].iter().rev() {
        let start = start as usize + 1;
        for &octet in &relative[start..start + relative[start - 1] as usize] {
            let written: &[u8] = match octet {
                0 => &[1, 1],
                1 => &[1, 2],
                _ => &[octet],
            };
            for &octet in written {
                if len == key.len() {
                    return u128::from_be_bytes(key);
                }
                key[len] = octet;
                len += 1;
            }
        }
        len = (len + 1).min(key.len());
    }
    u128::from_be_bytes(key)
}

/// Canonical order of labels before the same name; both lowered.
fn cmp_relative(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    let ((a_starts, mut a_count), (b_starts, mut b_count)) = (label_starts(a), label_starts(b));
    while a_count > 0 && b_count > 0 {
        a_count -= 1;
        b_count -= 1;
        let label = |name: &'_ [u8], start: u8| {
            let start = start as usize;
            start + 1..start + 1 + name[start] as usize
        };
        let order = a[label(a, a_starts[a_count])].cmp(&b[label(b, b_starts[b_count])]);
        if order.is_ne() {
            return order;
        }
    }
    a_count.cmp(&b_count)
}

fn label_starts(relative: &[u8]) -> ([u8; 128], usize) {
    let mut starts = [0; 128];
    let (mut at, mut count) = (0, 0);
    while at < relative.len() {
        starts[count] = at as u8;
        count += 1;
        at += 1 + relative[at] as usize;
    }
    (starts, count)
}

/// A zone with an NSEC3 chain.
struct Nsec3<'z>(&'z Image);

impl<'z> Nsec3<'z> {
    fn prove(&self, absence: Absence<'_>) -> Proof<'z> {
        let mut proof = Proof::default();
        match absence {
            Absence::Type { name } => match self.matching(name) {
                Some(node) => proof.add(Some(node)),
                // A name without its own record lies in an opted-out span
                // (RFC 5155, 7.2.4): prove the closest encloser that has one.
                None => {
                    self.add_encloser(&mut proof, name, parent(name));
                }
            },
            Absence::Name { name, closest } => {
                let closest = self.add_encloser(&mut proof, name, closest);
                proof.add(self.covering(Wildcard::below(closest).labels()));
            }
            // RFC 5155, 7.2.6: the next closer name is all there is to deny.
            Absence::Expanded { name, closest } => {
                proof.add(self.covering(next_closer(name, closest)));
            }
            Absence::WildcardType { name, closest } => {
                let closest = self.add_encloser(&mut proof, name, closest);
                // A wildcard that is only a step to an unsigned delegation may
                // have no record of its own; then its span is all there is.
                let wildcard = Wildcard::below(closest);
                let own = self.matching(wildcard.labels());
                proof.add(own.or_else(|| self.covering(wildcard.labels())));
            }
        }
        proof
    }

    /// Adds the closest provable encloser at or above `closest` and the cover
    /// of the next closer name (RFC 5155, 7.2.1); returns that encloser.
    fn add_encloser<'n>(
        &self,
        proof: &mut Proof<'z>,
        name: &'n [u8],
        mut closest: &'n [u8],
    ) -> &'n [u8] {
        loop {
            if let Some(node) = self.matching(closest) {
                proof.add(Some(node));
                break;
            }
            if closest.is_empty() {
                break;
            }
            closest = parent(closest);
        }
        proof.add(self.covering(next_closer(name, closest)));
        closest
    }

    fn matching(&self, relative: &[u8]) -> Option<Node<'z>> {
        let hash = self.hash(relative);
        self.search(&hash).ok().map(|index| self.0.nsec3(index).1)
    }

    fn covering(&self, relative: &[u8]) -> Option<Node<'z>> {
        let hash = self.hash(relative);
        let index = match self.search(&hash) {
            Ok(index) => index,
            // Before the first is behind the last: the chain is a ring.
            Err(0) => self.0.chain_len() - 1,
            Err(index) => index - 1,
        };
        Some(self.0.nsec3(index).1)
    }

    fn search(&self, hash: &[u8]) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.0.chain_len());
        while low < high {
            let middle = (low + high) / 2;
            match self.0.nsec3(middle).0.cmp(hash) {
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// The hash of RFC 5155, 5.
    fn hash(&self, relative: &[u8]) -> [u8; NSEC3_HASH_LEN] {
        let (iterations, salt) = self.0.nsec3_parameters();
        let mut hasher = Sha1::new();
        hasher.update(relative);
        hasher.update(self.0.origin().as_bytes());
        hasher.update(salt);
        let mut hash = hasher.finalize();
        for _ in 0..iterations {
            let mut hasher = Sha1::new();
            hasher.update(hash);
            hasher.update(salt);
            hash = hasher.finalize();
        }
        hash.into()
    }
}

/// The labels of the wildcard below a name, without an allocation.
struct Wildcard {
    octets: [u8; NAME_LEN_MAX + 2],
    len: usize,
}

impl Wildcard {
    fn below(closest: &[u8]) -> Self {
        let mut octets = [0; NAME_LEN_MAX + 2];
        let len = closest.len() + 2;
        octets[..2].copy_from_slice(b"\x01*");
        octets[2..len].copy_from_slice(closest);
        Wildcard { octets, len }
    }

    fn labels(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}

/// The labels without the leftmost; of none, none.
fn parent(relative: &[u8]) -> &[u8] {
    match relative.first() {
        Some(&len) => &relative[1 + len as usize..],
        None => relative,
    }
}

/// The suffix of `name` that is one label longer than `closest`.
fn next_closer<'n>(name: &'n [u8], closest: &[u8]) -> &'n [u8] {
    let mut at = name;
    while parent(at).len() > closest.len() {
        at = parent(at);
    }
    at
}

/// What the NSEC3 records of one chain share: algorithm, iterations, salt.
pub(crate) type Chain<'r> = (u8, u16, &'r [u8]);

/// The chain that the data of an NSEC3 or NSEC3PARAM record belongs to
/// (RFC 5155, 3.2 and 4.2).
pub(crate) fn chain_of(rdata: &[u8]) -> Option<Chain<'_>> {
    let head = rdata.first_chunk::<5>()?;
    let salt = rdata.get(5..5 + head[4] as usize)?;
    Some((head[0], u16::from_be_bytes([head[2], head[3]]), salt))
}

/// The hash that a label of an NSEC3 owner writes in base32hex.
pub(crate) fn decode_base32hex(label: &[u8]) -> Option<[u8; NSEC3_HASH_LEN]> {
    if label.len() != 32 {
        return None;
    }
    let mut hash = [0; NSEC3_HASH_LEN];
    let (mut bits, mut pending, mut at) = (0u32, 0, 0);
    for &character in label {
        let value = match character.to_ascii_lowercase() {
            digit @ b'0'..=b'9' => digit - b'0',
            letter @ b'a'..=b'v' => letter - b'a' + 10,
            _ => return None,
        };
        bits = bits << 5 | u32::from(value);
        pending += 5;
        if pending >= 8 {
            pending -= 8;
            hash[at] = (bits >> pending) as u8;
            at += 1;
        }
    }
    Some(hash)
}

/// The type of the records of a proof in `image`.
pub(crate) fn proof_type(image: &Image) -> u16 {
    if image.is_nsec3() { rtype::NSEC3 } else { rtype::NSEC }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Few different octets, so that names share beginnings.
    fn relative() -> impl Strategy<Value = Vec<u8>> {
        let octet = prop::sample::select(vec![0, 1, 2, b'a', b'b', 0xff]);
        let label = prop::collection::vec(octet, 1..12);
        prop::collection::vec(label, 0..4).prop_map(|labels| {
            labels.iter().flat_map(|l| [&[l.len() as u8], &l[..]].concat()).collect()
        })
    }

    proptest! {
        #[test]
        fn keys_never_contradict_the_canonical_order(a in relative(), b in relative()) {
            match order_key(&a).cmp(&order_key(&b)) {
                std::cmp::Ordering::Equal => {}
                order => prop_assert_eq!(order, cmp_relative(&a, &b)),
            }
        }
    }

    #[test]
    fn keys_of_short_names_decide() {
        assert!(order_key(b"") < order_key(b"\x01a"));
        assert!(order_key(b"\x01a") < order_key(b"\x01\x00\x01a"));
        assert!(order_key(b"\x01z\x01a") < order_key(b"\x02a\x00"));
        assert!(order_key(b"\x02a\x00") < order_key(b"\x02a\x01"));
    }
}
