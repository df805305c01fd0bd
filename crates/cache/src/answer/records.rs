//! Records as they stand in a message. Names in the data of types that are
//! old enough to have theirs compressed are walked as well: whoever gets the
//! record must be able to read it.

use wire::class;
use wire::reply::RECORD_HEAD_LEN;
use wire::rtype;

use super::names::{NameAt, Names};

/// Octets of the shortest record: the root, and no data.
pub(super) const RECORD_LEN_MIN: usize = 1 + RECORD_HEAD_LEN;
/// Octets of numbers at the end of an SOA record; the last four are MINIMUM.
const SOA_NUMBERS_LEN: usize = 20;

/// Types that `wire` has no use for.
const MD: u16 = 3;
const MF: u16 = 4;
const MB: u16 = 7;
const MG: u16 = 8;
const MR: u16 = 9;
const MINFO: u16 = 14;
const RP: u16 = 17;
const AFSDB: u16 = 18;
const RT: u16 = 21;
pub(super) const SIG: u16 = 24;
const PX: u16 = 26;
const NAPTR: u16 = 35;
const KX: u16 = 36;

/// A well-formed record in a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub start: usize,
    pub owner: NameAt,
    pub rtype: u16,
    pub class: u16,
    /// Where its time to live stands.
    pub ttl_at: usize,
    pub data_at: usize,
    pub end: usize,
}

/// Reads the record at `at`. `None` if it is not whole, or if its data is not
/// of its type's form as far as names are concerned.
pub(super) fn read(names: &mut Names<'_>, at: usize) -> Option<Record> {
    let message = names.message();
    let (owner, head_at) = names.read(at)?;
    let data_at = head_at + RECORD_HEAD_LEN;
    let head = message.get(head_at..data_at)?;
    let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let record = Record {
        start: at,
        owner,
        rtype: word(0),
        class: word(2),
        ttl_at: head_at + 4,
        data_at,
        end: data_at + word(8) as usize,
    };
    let data = message.get(data_at..record.end)?;
    let is_whole = match layout(&record, data) {
        Some(layout) => layout.fits(names, &record)?,
        None => true,
    };
    is_whole.then_some(record)
}

/// MINIMUM of an SOA record that was read.
pub(super) fn soa_minimum_at(record: &Record) -> usize {
    record.end - 4
}

/// Octets before the names in the data of a record that was read, and how many
/// names there are.
pub(super) fn names_in_data(message: &[u8], record: &Record) -> (usize, usize) {
    let data = &message[record.data_at..record.end];
    layout(record, data).map_or((0, 0), |layout| (layout.before, layout.names))
}

/// True if names in the data of this type may be written with pointers: those
/// of RFC 1035 alone, which everybody can read (RFC 3597, 4).
pub(super) fn may_have_pointers(rtype: u16) -> bool {
    matches!(
        rtype,
        rtype::NS
            | rtype::CNAME
            | rtype::PTR
            | rtype::SOA
            | rtype::MX
            | MD
            | MF
            | MB
            | MG
            | MR
            | MINFO
    )
}

/// Where the names are in the data of a type.
struct Layout {
    /// Octets before the names.
    before: usize,
    names: usize,
    /// Octets behind the names; any number without.
    after: Option<usize>,
}

impl Layout {
    const fn new(before: usize, names: usize, after: Option<usize>) -> Self {
        Layout { before, names, after }
    }

    fn fits(&self, names: &mut Names<'_>, record: &Record) -> Option<bool> {
        let mut at = record.data_at + self.before;
        for _ in 0..self.names {
            at = names.read(at)?.1;
        }
        let after = record.end.checked_sub(at)?;
        Some(self.after.is_none_or(|expected| expected == after))
    }
}

/// The layout of a record's type; `None` for one that is opaque here.
fn layout(record: &Record, data: &[u8]) -> Option<Layout> {
    Some(match record.rtype {
        rtype::A if record.class == class::IN => Layout::new(4, 0, Some(0)),
        rtype::AAAA => Layout::new(16, 0, Some(0)),
        rtype::NS | rtype::CNAME | rtype::PTR | rtype::DNAME | MD | MF | MB | MG | MR => {
            Layout::new(0, 1, Some(0))
        }
        rtype::SOA => Layout::new(0, 2, Some(SOA_NUMBERS_LEN)),
        MINFO | RP => Layout::new(0, 2, Some(0)),
        rtype::MX | AFSDB | RT | KX => Layout::new(2, 1, Some(0)),
        PX => Layout::new(2, 2, Some(0)),
        rtype::SRV => Layout::new(6, 1, Some(0)),
        NAPTR => Layout::new(naptr_strings_end(data), 1, Some(0)),
        rtype::NSEC => Layout::new(0, 1, None),
        rtype::SVCB | rtype::HTTPS => Layout::new(2, 1, None),
        rtype::RRSIG | SIG => Layout::new(18, 1, None),
        _ => return None,
    })
}

/// Where the replacement of a NAPTR record starts: behind two numbers and
/// three strings. Past the data if they do not fit.
fn naptr_strings_end(data: &[u8]) -> usize {
    (0..3).fold(4, |at, _| match data.get(at) {
        Some(&len) => at + 1 + len as usize,
        None => data.len() + 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::query::HEADER_LEN;

    /// Reads a record of the root with this type and data.
    fn is_read(rtype: u16, data: &[u8]) -> bool {
        let mut octets = vec![0; HEADER_LEN + 1];
        octets.extend(rtype.to_be_bytes());
        octets.extend([0, 1, 0, 0, 0, 9]);
        octets.extend((data.len() as u16).to_be_bytes());
        octets.extend(data);
        let whole = read(&mut Names::new(&octets), HEADER_LEN);
        assert!(whole.is_none_or(|record| record.end == octets.len() && record.ttl_at == 17));
        let cut = &octets[..octets.len() - 1];
        assert!(read(&mut Names::new(cut), HEADER_LEN).is_none(), "one octet less is no record");
        whole.is_some()
    }

    #[test]
    fn data_has_the_form_of_its_type() {
        let numbers = [7; SOA_NUMBERS_LEN];
        let soa = [&b"\x01a\0\x01b\0"[..], &numbers].concat();
        let signature = [&[1; 18][..], b"\x01a\0signature"].concat();
        let naptr = b"\0\x01\0\x02\x01u\x03sip\0\x01a\0";
        let cases: [(u16, &[u8]); 9] = [
            (rtype::A, &[192, 0, 2, 1]),
            (rtype::AAAA, &[1; 16]),
            (rtype::CNAME, b"\x01a\0"),
            (rtype::SOA, &soa),
            (rtype::MX, b"\0\x0a\x01a\0"),
            (rtype::SRV, b"\0\x01\0\x02\0\x03\x01a\0"),
            (RP, b"\x01a\0\x01b\0"),
            (PX, b"\0\x01\x01a\0\x01b\0"),
            (NAPTR, naptr),
        ];
        for (rtype, data) in cases {
            assert!(is_read(rtype, data), "TYPE{rtype}");
            assert!(!is_read(rtype, &data[..data.len() - 1]), "TYPE{rtype} cut");
            assert!(!is_read(rtype, &[data, b"x"].concat()), "TYPE{rtype} and more");
        }
        for (rtype, data) in [
            (rtype::RRSIG, &signature[..]),
            (rtype::NSEC, b"\x01a\0\0\x01\x40"),
            (rtype::HTTPS, b"\0\x01\0\0\x01\0\x03\x02h2"),
        ] {
            assert!(is_read(rtype, data), "TYPE{rtype}");
            assert!(!is_read(rtype, &[0xff; 32]), "TYPE{rtype} without a name");
        }
    }

    #[test]
    fn names_in_data_are_walked() {
        assert!(!is_read(rtype::CNAME, b"\xc0\x00"), "a pointer into the header");
        assert!(!is_read(rtype::CNAME, b"\xc0\xff"), "a pointer ahead");
        assert!(!is_read(rtype::MX, b"\0\x01\x3fx\0"), "a label past the end");
        assert!(is_read(rtype::CNAME, b"\xc0\x0c"), "the root, pointed at");
        assert!(is_read(rtype::TXT, b"\xc0\x00"), "octets without names");
        assert!(is_read(65_280, b"\xff\xff"), "a type that nobody knows");
    }
}
