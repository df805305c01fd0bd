//! Names as they stand in a message, whole or compressed, walked with bounds.

use wire::name::{LABELS_MAX, NAME_LEN_MAX};
use wire::reply::POINTER_MAX;

/// Pointers that one name may pass, one for each label of the longest name:
/// pointers to pointers would make reading cost the square of the length.
const POINTERS_MAX: usize = LABELS_MAX;
/// Octets of a message for each word of [`Names::starts`].
const WORD_BITS: usize = u64::BITS as usize;

/// The names of a message, read from its start to its end.
#[derive(Debug)]
pub(super) struct Names<'m> {
    message: &'m [u8],
    /// Where labels and pointers were read: a bit for each octet that a
    /// pointer reaches.
    starts: [u64; (POINTER_MAX + 1) / WORD_BITS],
}

/// A well-formed name in a message: the place of its first label, or of a
/// pointer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NameAt(usize);

impl<'m> Names<'m> {
    pub fn new(message: &'m [u8]) -> Self {
        Names { message, starts: [0; (POINTER_MAX + 1) / WORD_BITS] }
    }

    pub fn message(&self) -> &'m [u8] {
        self.message
    }

    /// Reads the name at `at`; returns it and where it ends. `None` if it is
    /// not whole or too long, or if a pointer does not lead back to a label of
    /// a name that was read.
    ///
    /// A pointer to other octets might read as a name today and not tomorrow:
    /// times to live change while an answer is kept.
    pub fn read(&mut self, at: usize) -> Option<(NameAt, usize)> {
        let (mut place, mut part) = (at, at);
        let (mut len, mut pointers) = (0, 0);
        let (mut first, mut end) = (None, None);
        loop {
            let octet = *self.message.get(place)?;
            if end.is_none() {
                self.note(place);
            }
            match octet {
                0xc0.. => {
                    let target = target(octet, *self.message.get(place + 1)?);
                    end.get_or_insert(place + 2);
                    pointers += 1;
                    // Each part starts before the one that points at it, so
                    // there are no loops.
                    if target >= part || pointers > POINTERS_MAX || !self.is_start(target) {
                        return None;
                    }
                    (place, part) = (target, target);
                }
                0..=63 => {
                    first.get_or_insert(place);
                    place += 1 + octet as usize;
                    len += 1 + octet as usize;
                    if len > NAME_LEN_MAX {
                        return None;
                    }
                    if octet == 0 {
                        return Some((NameAt(first?), end.unwrap_or(place)));
                    }
                }
                _ => return None,
            }
        }
    }

    fn note(&mut self, place: usize) {
        if let Some(word) = self.starts.get_mut(place / WORD_BITS) {
            *word |= 1 << (place % WORD_BITS);
        }
    }

    /// `place` is one that a pointer reaches.
    fn is_start(&self, place: usize) -> bool {
        self.starts[place / WORD_BITS] >> (place % WORD_BITS) & 1 == 1
    }
}

impl NameAt {
    /// The name at `place`, which was read before.
    pub fn again(place: usize) -> Self {
        NameAt(place)
    }
}

/// True if both are the same name, whatever their case.
pub(super) fn same(message: &[u8], a: NameAt, b: NameAt) -> bool {
    a == b || labels_match(labels(message, a), labels(message, b))
}

/// True if `name` is below `ancestor`, and not the same.
pub(super) fn is_below(message: &[u8], name: NameAt, ancestor: NameAt) -> bool {
    let mut own = labels(message, name);
    let above = labels(message, ancestor);
    let deeper = own.clone().count().saturating_sub(above.clone().count());
    for _ in 0..deeper {
        own.next();
    }
    deeper > 0 && labels_match(own, above)
}

fn labels_match(mut a: Labels<'_>, mut b: Labels<'_>) -> bool {
    loop {
        match (a.next(), b.next()) {
            (None, None) => return true,
            (Some((_, a)), Some((_, b))) if a.eq_ignore_ascii_case(b) => {}
            _ => return false,
        }
    }
}

/// A name that was read, whole and lowered.
pub(super) fn lowered(message: &[u8], name: NameAt) -> Box<[u8]> {
    let mut octets = Vec::with_capacity(NAME_LEN_MAX);
    write_whole(message, name, &mut octets);
    // Octets of length are never letters: they are at most 63.
    octets.make_ascii_lowercase();
    octets.into_boxed_slice()
}

/// Appends a name that was read, without pointers.
pub(super) fn write_whole(message: &[u8], name: NameAt, out: &mut Vec<u8>) {
    for (_, label) in labels(message, name) {
        out.push(label.len() as u8);
        out.extend_from_slice(label);
    }
    out.push(0);
}

/// The labels of a name that was read, each with its place.
pub(super) fn labels(message: &[u8], name: NameAt) -> Labels<'_> {
    Labels { message, at: name.0 }
}

/// The labels of a name that was read, without the root, each with its place.
#[derive(Clone)]
pub(super) struct Labels<'m> {
    message: &'m [u8],
    at: usize,
}

impl<'m> Iterator for Labels<'m> {
    type Item = (usize, &'m [u8]);

    fn next(&mut self) -> Option<(usize, &'m [u8])> {
        loop {
            match self.message[self.at] {
                0 => return None,
                high @ 0xc0.. => self.at = target(high, self.message[self.at + 1]),
                len => {
                    let place = self.at;
                    self.at = place + 1 + len as usize;
                    return Some((place, &self.message[place + 1..self.at]));
                }
            }
        }
    }
}

/// Where a pointer leads.
fn target(high: u8, low: u8) -> usize {
    usize::from(high & 0x3f) << 8 | usize::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::query::HEADER_LEN;

    /// A header's worth of octets, then `rest`.
    fn message(rest: &[u8]) -> Vec<u8> {
        [&[0; HEADER_LEN][..], rest].concat()
    }

    /// Reads the names at `places` in turn; all but the last must be good.
    fn read_all(message: &[u8], places: &[usize]) -> Option<(NameAt, usize)> {
        let mut names = Names::new(message);
        let (last, before) = places.split_last().unwrap();
        assert!(before.iter().all(|&at| names.read(at).is_some()));
        names.read(*last)
    }

    #[track_caller]
    fn check_bad(rest: &[u8], places: &[usize]) {
        assert_eq!(read_all(&message(rest), places), None);
    }

    #[test]
    fn names_end_where_their_own_octets_end() {
        let message = message(b"\x01a\x01b\0\x01c\xc0\x0e\xc0\x11\xc0\x15");
        assert_eq!(read_all(&message, &[12]), Some((NameAt(12), 17)));
        assert_eq!(read_all(&message, &[12, 17]), Some((NameAt(17), 21)));
        let start = read_all(&message, &[12, 17, 21]);
        assert_eq!(start, Some((NameAt(17), 23)), "it starts where it leads");
        assert_eq!(read_all(&message, &[12, 17, 21, 23]), Some((NameAt(17), 25)));
    }

    #[test]
    fn pointers_lead_back_to_names() {
        check_bad(b"\xc0\x0c", &[12]);
        check_bad(b"\xc0\x0b", &[12]);
        check_bad(b"\xc0\x00", &[12]);
        check_bad(b"\xc0\x0e\0", &[12]);
        check_bad(b"\x01a\xc0\x0c", &[12]);
        check_bad(b"\xc0", &[12]);
        check_bad(b"\xff\xff", &[12]);
        check_bad(b"\x02\x01a\0\xc0\x0d", &[12, 16]);
        check_bad(b"\x01a\0\x01b\0\xc0\x0f", &[12, 18]);
        assert!(read_all(&message(b"\x01a\0\x01b\0\xc0\x0f"), &[12, 15, 18]).is_some());
    }

    #[test]
    fn names_are_whole_and_at_most_255_octets_long() {
        check_bad(b"", &[12]);
        check_bad(b"\x03ab", &[12]);
        check_bad(b"\x01a", &[12]);
        check_bad(b"\x40a\0", &[12]);
        check_bad(b"\x80a\0", &[12]);
        let longest = [&b"\x01a".repeat(127)[..], b"\0"].concat();
        assert!(read_all(&message(&longest), &[12]).is_some());
        check_bad(&[&b"\x01a".repeat(128)[..], b"\0"].concat(), &[12]);
        let pointed = [&longest[..], b"\x01b\xc0\x0c"].concat();
        check_bad(&pointed, &[12, 12 + longest.len()]);
    }

    #[test]
    fn pointers_to_pointers_end_at_a_bound() {
        let (mut octets, mut places) = (message(b"\0"), vec![12]);
        for _ in 0..=POINTERS_MAX {
            let target = *places.last().unwrap() as u16;
            places.push(octets.len());
            octets.extend((0xc000 | target).to_be_bytes());
        }
        assert_eq!(read_all(&octets, &places), None);
        places.pop();
        assert_eq!(read_all(&octets, &places), Some((NameAt(12), octets.len() - 2)));
    }

    #[test]
    fn names_compare_by_their_labels() {
        let message = message(b"\x01a\x02bc\0\x01A\x02bC\0\x02bc\0\x01a\xc0\x0e\x04a\x02bc\0");
        let mut names = Names::new(&message);
        let [abc, upper, bc, pointed, tricky] =
            [12, 18, 24, 28, 32].map(|at| names.read(at).unwrap().0);
        assert!(same(&message, abc, upper) && same(&message, abc, pointed));
        assert!(!same(&message, abc, bc) && !same(&message, bc, abc));
        assert!(!same(&message, abc, tricky));
        assert!(is_below(&message, abc, bc) && is_below(&message, pointed, bc));
        assert!(!is_below(&message, abc, upper) && !is_below(&message, bc, abc));
        assert!(!is_below(&message, tricky, bc));
        assert_eq!(*lowered(&message, pointed), *b"\x01a\x02bc\0", "without its pointer");
        assert_eq!(*lowered(&message, upper), *b"\x01a\x02bc\0");
        let root = NameAt::again(17);
        assert!(is_below(&message, bc, root), "everything is below the root");
    }
}
