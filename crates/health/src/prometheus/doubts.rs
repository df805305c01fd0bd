//! Which doubts of a Prometheus were logged: each once, until it is another.

use std::collections::HashMap;

/// Queries that are remembered.
const REMEMBERED_MAX: usize = 10_000;

/// What was last said against the response to each query.
#[derive(Debug, Default)]
pub struct Doubts {
    said: HashMap<String, String>,
}

impl Doubts {
    /// Whether this is to be logged: it is not what was said before. Empty: nothing is said.
    pub fn is_new(&mut self, query: &str, why: &str) -> bool {
        if why.is_empty() {
            self.said.remove(query);
            return false;
        }
        if self.said.get(query).is_some_and(|before| before == why) {
            return false;
        }
        // Saying something twice is better than not saying it.
        if self.said.len() >= REMEMBERED_MAX {
            self.said.clear();
        }
        self.said.insert(query.to_owned(), why.to_owned());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_is_logged_once_until_it_changes() {
        let mut doubts = Doubts::default();
        let mut log = |query: &str, why: &str| doubts.is_new(query, why);
        assert_eq!([log("a", ""), log("a", "x"), log("a", "x")], [false, true, false]);
        assert_eq!([log("b", "x"), log("a", "y"), log("a", "y")], [true, true, false]);
        assert_eq!([log("a", ""), log("a", "y"), log("b", "x")], [false, true, false]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut doubts = Doubts::default();
        for query in 0..=REMEMBERED_MAX {
            assert!(doubts.is_new(&query.to_string(), "x"));
        }
        assert!(doubts.said.len() <= REMEMBERED_MAX);
    }
}
