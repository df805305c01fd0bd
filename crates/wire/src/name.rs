//! Domain names in uncompressed wire form.
//!
//! A [`Name`] borrows bytes that are known to be a well-formed absolute name:
//! labels of at most 63 octets, at most 255 octets in all, ending in the root
//! label. It is the one view of a name that every other module takes, so that
//! the check happens once, where the bytes enter.

use std::fmt;

/// Octets in the longest name, its root label included (RFC 1035, 2.3.4).
pub const NAME_LEN_MAX: usize = 255;
/// Octets in the longest label (RFC 1035, 2.3.4).
pub const LABEL_LEN_MAX: usize = 63;
/// Labels in the longest name, the root label not counted.
pub const LABELS_MAX: usize = 127;

/// A well-formed absolute name in uncompressed wire form.
///
/// Equality is by octet: compare names that were lowered.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name<'a>(&'a [u8]);

/// Why bytes are not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// The bytes end before the root label.
    Short,
    /// A label is longer than 63 octets, or is not a plain label at all.
    BadLabel,
    /// The name is longer than 255 octets.
    Long,
}

impl<'a> Name<'a> {
    /// The root name.
    pub const ROOT: Name<'static> = Name(&[0]);

    /// Reads one name from the start of `bytes`; what follows it is ignored.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, NameError> {
        let mut at = 0;
        loop {
            let len = *bytes.get(at).ok_or(NameError::Short)? as usize;
            if len > LABEL_LEN_MAX {
                return Err(NameError::BadLabel);
            }
            at += 1 + len;
            if at > NAME_LEN_MAX {
                return Err(NameError::Long);
            }
            if len == 0 {
                return Ok(Name(&bytes[..at]));
            }
        }
    }

    /// Takes bytes that are known to be a name, such as those of a compiled
    /// zone. Wrong bytes make wrong answers but never undefined behaviour.
    pub fn from_trusted(bytes: &'a [u8]) -> Self {
        debug_assert_eq!(Name::parse(bytes).map(|name| name.0.len()), Ok(bytes.len()));
        Name(bytes)
    }

    /// The octets, the root label included.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// True for the root name.
    pub fn is_root(self) -> bool {
        self.0.len() == 1
    }

    /// Number of labels, the root label not counted.
    pub fn label_count(self) -> usize {
        self.labels().count()
    }

    /// The labels from the left, without length octets, without the root.
    pub fn labels(self) -> Labels<'a> {
        Labels(self.0)
    }

    /// The name without its leftmost label; `None` for the root.
    pub fn parent(self) -> Option<Name<'a>> {
        match self.0[0] as usize {
            0 => None,
            len => Some(Name(&self.0[1 + len..])),
        }
    }

    /// True if `self` is `ancestor` or below it; both must be lowered.
    pub fn is_at_or_below(self, ancestor: Name<'_>) -> bool {
        self.strip_suffix(ancestor).is_some()
    }

    /// The octets of the labels of `self` that stand before `ancestor`.
    pub fn strip_suffix(self, ancestor: Name<'_>) -> Option<&'a [u8]> {
        let cut = self.0.len().checked_sub(ancestor.0.len())?;
        if self.0[cut..] != *ancestor.0 {
            return None;
        }
        // The octets match; they must also start at a label.
        let mut at = 0;
        while at < cut {
            at += 1 + self.0[at] as usize;
        }
        (at == cut).then(|| &self.0[..cut])
    }

    /// Canonical order (RFC 4034, 6.1): by label from the right, each label
    /// lowered and compared as octets.
    pub fn canonical_cmp(self, other: Name<'_>) -> std::cmp::Ordering {
        let (mut a_at, mut b_at) = ([0u8; LABELS_MAX], [0u8; LABELS_MAX]);
        let (mut a, mut b) = (label_starts(self.0, &mut a_at), label_starts(other.0, &mut b_at));
        while a > 0 && b > 0 {
            a -= 1;
            b -= 1;
            let (x, y) = (label_at(self.0, a_at[a]), label_at(other.0, b_at[b]));
            let lowered = |label: &'_ [u8]| label.to_ascii_lowercase();
            let order = if x.iter().chain(y).any(u8::is_ascii_uppercase) {
                lowered(x).cmp(&lowered(y))
            } else {
                x.cmp(y)
            };
            if order.is_ne() {
                return order;
            }
        }
        a.cmp(&b)
    }
}

fn label_starts(name: &[u8], starts: &mut [u8; LABELS_MAX]) -> usize {
    let (mut at, mut count) = (0, 0);
    while name[at] != 0 {
        starts[count] = at as u8;
        count += 1;
        at += 1 + name[at] as usize;
    }
    count
}

fn label_at(name: &[u8], start: u8) -> &[u8] {
    let start = start as usize;
    &name[start + 1..start + 1 + name[start] as usize]
}

/// Iterator over the labels of a name, see [`Name::labels`].
#[derive(Clone, Debug)]
pub struct Labels<'a>(&'a [u8]);

impl<'a> Iterator for Labels<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let len = *self.0.first()? as usize;
        if len == 0 {
            return None;
        }
        let (label, rest) = self.0[1..].split_at(len);
        self.0 = rest;
        Some(label)
    }
}

/// Reads a name in presentation form, with RFC 1035 escapes; a final dot may
/// be left out. For people's input, not for the query path: it allocates.
pub fn from_text(text: &str) -> Result<Vec<u8>, NameError> {
    let mut wire = Vec::with_capacity(text.len() + 2);
    let mut octets = text.bytes().peekable();
    match text {
        "." => return Ok(vec![0]),
        // Nothing written is a slip more often than it is the root.
        "" => return Err(NameError::BadLabel),
        _ => {}
    }
    while octets.peek().is_some() {
        let len_at = wire.len();
        wire.push(0);
        loop {
            match octets.next() {
                None | Some(b'.') => break,
                Some(b'\\') => wire.push(escaped(&mut octets)?),
                Some(octet) => wire.push(octet),
            }
        }
        let len = wire.len() - len_at - 1;
        if len == 0 || len > LABEL_LEN_MAX {
            return Err(NameError::BadLabel);
        }
        wire[len_at] = len as u8;
    }
    wire.push(0);
    if wire.len() > NAME_LEN_MAX {
        return Err(NameError::Long);
    }
    Ok(wire)
}

/// The octet behind a backslash: three decimal digits, or itself.
fn escaped(octets: &mut impl Iterator<Item = u8>) -> Result<u8, NameError> {
    let digit = |octet: Option<u8>| match octet {
        Some(digit @ b'0'..=b'9') => Ok(u16::from(digit - b'0')),
        _ => Err(NameError::BadLabel),
    };
    match octets.next().ok_or(NameError::Short)? {
        first @ b'0'..=b'9' => {
            let value =
                100 * u16::from(first - b'0') + 10 * digit(octets.next())? + digit(octets.next())?;
            u8::try_from(value).map_err(|_| NameError::BadLabel)
        }
        other => Ok(other),
    }
}

/// Presentation form with RFC 1035 escapes, always with the final dot.
impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str(".");
        }
        for label in self.labels() {
            for &octet in label {
                match octet {
                    b'.' | b'\\' | b'"' | b'(' | b')' | b';' | b'@' | b'$' => {
                        write!(f, "\\{}", octet as char)?
                    }
                    0x21..=0x7e => write!(f, "{}", octet as char)?,
                    _ => write!(f, "\\{octet:03}")?,
                }
            }
            f.write_str(".")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NameError::Short => "the name has no end",
            NameError::BadLabel => "a label has 1 to 63 octets",
            NameError::Long => "a name has at most 255 octets",
        })
    }
}

impl std::error::Error for NameError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(bytes: &[u8]) -> Name<'_> {
        Name::parse(bytes).unwrap()
    }

    #[test]
    fn suffixes_start_at_labels() {
        let www = name(b"\x03www\x07example\x00");
        assert_eq!(www.strip_suffix(name(b"\x07example\0")), Some(&b"\x03www"[..]));
        assert_eq!(www.strip_suffix(www), Some(&b""[..]));
        assert!(www.is_at_or_below(Name::ROOT));
        // One label that holds what looks like a length and a label.
        let tricky = name(b"\x0axx\x07example\x00");
        assert!(!tricky.is_at_or_below(name(b"\x07example\0")));
    }

    #[test]
    fn canonical_order_is_the_one_of_rfc_4034() {
        let sorted: [&[u8]; 7] = [
            b"\x07example\0",
            b"\x01a\x07example\0",
            b"\x08yljkjljk\x01a\x07example\0",
            b"\x01Z\x01a\x07example\0",
            b"\x04zABC\x01a\x07EXAMPLE\0",
            b"\x01z\x07example\0",
            b"\x01\xc8\x01z\x07example\0",
        ];
        for pair in sorted.windows(2) {
            assert!(name(pair[0]).canonical_cmp(name(pair[1])).is_lt(), "{pair:?}");
        }
        assert!(name(b"\x01A\0").canonical_cmp(name(b"\x01a\0")).is_eq());
    }

    #[test]
    fn bad_names_are_refused() {
        assert_eq!(Name::parse(b"\x03ww"), Err(NameError::Short));
        assert_eq!(Name::parse(b"\xc0\x0c"), Err(NameError::BadLabel));
        let long = [&[63u8; 64][..]; 5].concat();
        assert_eq!(Name::parse(&long), Err(NameError::Long));
    }

    #[test]
    fn presentation_escapes_what_a_zone_file_would_misread() {
        assert_eq!(name(b"\x04a.b\x01\x03c;d\0").to_string(), "a\\.b\\001.c\\;d.");
        assert_eq!(Name::ROOT.to_string(), ".");
    }

    #[test]
    fn text_reads_back_as_it_is_shown() {
        for wire in [&b"\x04a.b\x01\x03c;d\0"[..], b"\0", b"\x03WWW\x07example\0", b"\x01\xff\0"] {
            assert_eq!(from_text(&name(wire).to_string()).as_deref(), Ok(wire));
        }
        assert_eq!(from_text("www.example").as_deref(), Ok(&b"\x03www\x07example\0"[..]));
        for bad in ["a..b", "", "\\", "\\25", "\\999", &"x".repeat(64), &"x.".repeat(128)] {
            assert!(from_text(bad).is_err(), "{bad}");
        }
    }
}
