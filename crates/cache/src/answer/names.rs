//! Names as they stand in a message, whole or compressed, walked with bounds.

use wire::name::{LABELS_MAX, NAME_LEN_MAX};
use wire::query::HEADER_LEN;

/// Pointers that one name may pass, one for each label of the longest name:
/// pointers to pointers would make reading cost the square of the length.
const POINTERS_MAX: usize = LABELS_MAX;

/// A well-formed name in a message: the place of its first label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NameAt(usize);

/// Reads the name at `at`; returns it and where it ends. `None` if it is not
/// whole, too long, or if a pointer leads into the header or not back: each
/// part of a name starts before the one that points at it, so there are no
/// loops.
pub(super) fn read(message: &[u8], at: usize) -> Option<(NameAt, usize)> {
    let (mut place, mut part) = (at, at);
    let (mut len, mut pointers) = (0, 0);
    let (mut first, mut end) = (None, None);
    loop {
        match *message.get(place)? {
            high @ 0xc0.. => {
                let target = target(high, *message.get(place + 1)?);
                end.get_or_insert(place + 2);
                pointers += 1;
                if target < HEADER_LEN || target >= part || pointers > POINTERS_MAX {
                    return None;
                }
                (place, part) = (target, target);
            }
            label_len @ 0..=63 => {
                first.get_or_insert(place);
                place += 1 + label_len as usize;
                len += 1 + label_len as usize;
                if len > NAME_LEN_MAX {
                    return None;
                }
                if label_len == 0 {
                    return Some((NameAt(first?), end.unwrap_or(place)));
                }
            }
            _ => return None,
        }
    }
}

/// True if both are the same name, whatever their case.
pub(super) fn same(message: &[u8], a: NameAt, b: NameAt) -> bool {
    a == b || labels_match(Labels { message, at: a.0 }, Labels { message, at: b.0 })
}

/// True if `name` is below `ancestor`, and not the same.
pub(super) fn is_below(message: &[u8], name: NameAt, ancestor: NameAt) -> bool {
    let mut own = Labels { message, at: name.0 };
    let above = Labels { message, at: ancestor.0 };
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
            (Some(a), Some(b)) if a.eq_ignore_ascii_case(b) => {}
            _ => return false,
        }
    }
}

/// The labels of a name that was read, without the root.
#[derive(Clone)]
struct Labels<'m> {
    message: &'m [u8],
    at: usize,
}

impl<'m> Iterator for Labels<'m> {
    type Item = &'m [u8];

    fn next(&mut self) -> Option<&'m [u8]> {
        loop {
            match self.message[self.at] {
                0 => return None,
                high @ 0xc0.. => self.at = target(high, self.message[self.at + 1]),
                len => {
                    let start = self.at + 1;
                    self.at = start + len as usize;
                    return Some(&self.message[start..self.at]);
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

    /// A header's worth of octets, then `rest`.
    fn message(rest: &[u8]) -> Vec<u8> {
        [&[0; HEADER_LEN][..], rest].concat()
    }

    #[track_caller]
    fn check_bad(rest: &[u8], at: usize) {
        assert_eq!(read(&message(rest), at), None);
    }

    #[test]
    fn names_end_where_their_own_octets_end() {
        let message = message(b"\x01a\x01b\0\x01c\xc0\x0e\xc0\x11");
        assert_eq!(read(&message, 12), Some((NameAt(12), 17)));
        assert_eq!(read(&message, 17), Some((NameAt(17), 21)));
        assert_eq!(read(&message, 21), Some((NameAt(17), 23)), "it starts where it leads");
    }

    #[test]
    fn pointers_lead_back_and_never_into_the_header() {
        check_bad(b"\xc0\x0c", 12);
        check_bad(b"\xc0\x0b", 12);
        check_bad(b"\xc0\x00", 12);
        check_bad(b"\xc0\x0e\0", 12);
        check_bad(b"\x01a\xc0\x0c", 12);
        check_bad(b"\x01a\xc0\x10\xc0\x0c", 16);
        check_bad(b"\xc0", 12);
    }

    #[test]
    fn names_are_whole_and_at_most_255_octets_long() {
        check_bad(b"", 12);
        check_bad(b"\x03ab", 12);
        check_bad(b"\x01a", 12);
        check_bad(b"\x40a\0", 12);
        check_bad(b"\x80a\0", 12);
        let longest = [&b"\x01a".repeat(127)[..], b"\0"].concat();
        assert!(read(&message(&longest), 12).is_some());
        check_bad(&[&b"\x01a".repeat(128)[..], b"\0"].concat(), 12);
        let pointed = [&longest[..], b"\x01b\xc0\x0c"].concat();
        check_bad(&pointed, 12 + longest.len());
    }

    #[test]
    fn pointers_to_pointers_end_at_a_bound() {
        let mut octets = message(b"\0");
        for link in 0..=POINTERS_MAX {
            let target = if link == 0 { 12 } else { 11 + 2 * link };
            octets.extend((0xc000 | target as u16).to_be_bytes());
        }
        let last = octets.len() - 2;
        assert_eq!(read(&octets, last), None);
        assert_eq!(read(&octets, last - 2), Some((NameAt(12), last)));
    }

    #[test]
    fn names_compare_by_their_labels() {
        let message = message(b"\x01a\x02bc\0\x01A\x02bC\0\x02bc\0\x01a\xc0\x0e\x04a\x02bc\0");
        let name = |at| read(&message, at).unwrap().0;
        let (abc, upper, bc, pointed, tricky) = (name(12), name(18), name(24), name(28), name(32));
        assert!(same(&message, abc, upper) && same(&message, abc, pointed));
        assert!(!same(&message, abc, bc) && !same(&message, bc, abc));
        assert!(!same(&message, abc, tricky));
        assert!(is_below(&message, abc, bc) && is_below(&message, pointed, bc));
        assert!(!is_below(&message, abc, upper) && !is_below(&message, bc, abc));
        assert!(!is_below(&message, tricky, bc));
        assert!(is_below(&message, bc, name(17)), "everything is below the root");
    }
}
