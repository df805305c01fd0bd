//! Domain names in wire form, with exactly the operations that judging needs.

use std::fmt;

/// An absolute, uncompressed name: at most 255 octets including the root label.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Vec<u8>);

pub const NAME_OCTETS_MAX: usize = 255;
pub const LABEL_OCTETS_MAX: usize = 63;

impl Name {
    pub fn root() -> Self {
        Name(vec![0])
    }

    /// `None` when a label is empty or too long, or the whole exceeds 255 octets (RFC 1035 2.3.4).
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        let mut wire = Vec::new();
        for label in labels {
            if label.is_empty() || label.len() > LABEL_OCTETS_MAX {
                return None;
            }
            wire.push(label.len() as u8);
            wire.extend_from_slice(label);
        }
        wire.push(0);
        (wire.len() <= NAME_OCTETS_MAX).then_some(Name(wire))
    }

    /// Plain text without escapes, for names that the source code spells out.
    pub fn plain(text: &str) -> Self {
        let labels = text.trim_end_matches('.').split('.').filter(|label| !label.is_empty());
        Name::from_labels(labels.map(str::as_bytes)).expect("a valid name in the source")
    }

    pub fn wire(&self) -> &[u8] {
        &self.0
    }

    pub fn is_root(&self) -> bool {
        self.0.len() == 1
    }

    pub fn labels(&self) -> Vec<&[u8]> {
        let mut labels = Vec::new();
        let mut at = 0;
        while self.0[at] != 0 {
            let end = at + 1 + self.0[at] as usize;
            labels.push(&self.0[at + 1..end]);
            at = end;
        }
        labels
    }

    pub fn label_count(&self) -> usize {
        self.labels().len()
    }

    pub fn first_label(&self) -> Option<&[u8]> {
        (!self.is_root()).then(|| &self.0[1..1 + self.0[0] as usize])
    }

    pub fn is_wildcard(&self) -> bool {
        self.first_label() == Some(b"*")
    }

    pub fn parent(&self) -> Option<Name> {
        (!self.is_root()).then(|| Name(self.0[1 + self.0[0] as usize..].to_vec()))
    }

    pub fn child(&self, label: &[u8]) -> Option<Name> {
        let mut labels = vec![label];
        labels.extend(self.labels());
        Name::from_labels(labels)
    }

    /// Itself, its parent, … up to the root.
    pub fn ancestry(&self) -> Vec<Name> {
        std::iter::successors(Some(self.clone()), Name::parent).collect()
    }

    /// Length octets are at most 63, below `A`, so the whole wire form can be lowered at once.
    pub fn lower(&self) -> Name {
        Name(self.0.to_ascii_lowercase())
    }

    pub fn eq_ignore_case(&self, other: &Name) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }

    pub fn is_at_or_below(&self, top: &Name) -> bool {
        let (mine, tops) = (self.labels(), top.labels());
        mine.len() >= tops.len()
            && mine.iter().rev().zip(tops.iter().rev()).all(|(a, b)| a.eq_ignore_ascii_case(b))
    }

    pub fn is_below(&self, top: &Name) -> bool {
        self.label_count() > top.label_count() && self.is_at_or_below(top)
    }

    /// DNAME substitution (RFC 6672 2.2); `None` when the result overflows 255 octets.
    pub fn replace_suffix(&self, from: &Name, to: &Name) -> Option<Name> {
        assert!(self.is_below(from));
        let labels = self.labels();
        let kept = &labels[..labels.len() - from.label_count()];
        Name::from_labels(kept.iter().copied().chain(to.labels()))
    }

    /// Flips the case of letters as `flip` says, octet by octet (0x20).
    pub fn recase(&self, mut flip: impl FnMut() -> bool) -> Name {
        let flipped = self.0.iter().map(|octet| match octet.is_ascii_alphabetic() && flip() {
            true => octet ^ 0x20,
            false => *octet,
        });
        Name(flipped.collect())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str(".");
        }
        for label in self.labels() {
            for &octet in label {
                match octet {
                    b'.' | b'\\' | b'"' | b';' | b'(' | b')' | b'@' | b'$' => {
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

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::Name;

    #[test]
    fn suffixes_compare_by_label_and_without_case() {
        let zone = Name::plain("Example.");
        assert!(Name::plain("a.eXample.").is_below(&zone));
        assert!(!Name::plain("an-example.").is_at_or_below(&zone));
        assert!(Name::plain("a.example.").is_at_or_below(&Name::root()));
    }

    #[test]
    fn a_substitution_that_overflows_is_none() {
        let long = Name::from_labels([&[b'l'; 63][..], &[b'm'; 63], &[b'n'; 63]]).unwrap();
        let from = Name::plain("d.test.");
        let below = Name::from_labels([&[b'x'; 63][..], b"d", b"test"]).unwrap();
        assert_eq!(below.replace_suffix(&from, &long), None);
        let short = from.child(b"w").unwrap();
        assert_eq!(short.replace_suffix(&from, &long), long.child(b"w"));
    }

    #[test]
    fn odd_octets_are_escaped() {
        let name = Name::from_labels([&b"a.b"[..], b"\x00 \xff"]).unwrap();
        assert_eq!(name.to_string(), "a\\.b.\\000\\032\\255.");
    }
}
