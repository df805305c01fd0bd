//! Patterns over names: `*` is any number of characters, `?` is one.

/// A pattern over names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Pattern {
    pub fn new(text: impl Into<String>) -> Pattern {
        Pattern(text.into())
    }

    /// Whether a name matches, in time that is bounded by the product of the
    /// lengths.
    pub fn matches(&self, name: &str) -> bool {
        let (pattern, name) = (self.0.as_bytes(), name.as_bytes());
        let (mut at, mut from) = (0, 0);
        // Where to go on after the last star: past it, with one more octet under it.
        let mut retry = None;
        while from < name.len() {
            match pattern.get(at) {
                Some(b'*') => {
                    retry = Some((at + 1, from + 1));
                    at += 1;
                }
                Some(&octet) if octet == b'?' || octet == name[from] => {
                    at += 1;
                    from += 1;
                }
                _ => match retry {
                    Some((after_star, next)) => {
                        (at, from) = (after_star, next);
                        retry = Some((after_star, next + 1));
                    }
                    None => return false,
                },
            }
        }
        pattern[at..].iter().all(|&octet| octet == b'*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same, from its definition.
    fn slow(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, rest) => rest.is_none(),
            (Some((b'*', after)), rest) => {
                slow(after, name) || rest.is_some_and(|(_, name)| slow(pattern, name))
            }
            (Some(_), None) => false,
            (Some((octet, after)), Some((first, name))) => {
                (*octet == b'?' || octet == first) && slow(after, name)
            }
        }
    }

    #[test]
    fn names_of_a_datacenter() {
        let matches = |pattern: &str, name| Pattern::new(pattern).matches(name);
        assert!(matches("dc1-*", "dc1-web7"));
        assert!(!matches("dc1-*", "dc11-web7"));
        assert!(matches("*-web?", "dc1-web7"));
        assert!(matches("*", ""));
        assert!(!matches("", "a"));
    }

    proptest! {
        #[test]
        fn it_is_what_it_is_defined_as(pattern in "[ab*?]{0,8}", name in "[ab]{0,8}") {
            let expected = slow(pattern.as_bytes(), name.as_bytes());
            prop_assert_eq!(Pattern::new(pattern).matches(&name), expected);
        }
    }
}
