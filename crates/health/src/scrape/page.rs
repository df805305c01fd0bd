//! Whether a page contradicts itself.
//!
//! A series stands on a page once. Of two values of one series nobody knows which
//! is right, and the first may be the one that lets a promotion through.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::exposition::Line;
use crate::secrets::Secrets;

/// What is wrong if a page has two samples of one series that are not the same. `lines`
/// are what was read from it, `target` the labels that they get.
pub fn contradiction(
    page: &[u8],
    lines: &[Line],
    target: &[(String, String)],
    secrets: &Secrets,
) -> Option<String> {
    let mut first = HashMap::with_capacity(lines.len());
    for (at, line) in lines.iter().enumerate() {
        // Two series may become one by the labels of their target.
        match first.entry(line.labels.under(target)) {
            Entry::Vacant(entry) => _ = entry.insert(at),
            Entry::Occupied(entry) if is_same(&lines[*entry.get()], line) => {}
            Entry::Occupied(entry) => {
                let series = secrets.excerpt(&line.labels.to_string());
                return Some(complaint(page, lines, *entry.get(), at, &series));
            }
        }
    }
    None
}

fn is_same(one: &Line, other: &Line) -> bool {
    let is_same_value = one.value == other.value || (one.value.is_nan() && other.value.is_nan());
    is_same_value && one.at_millis == other.at_millis
}

fn complaint(page: &[u8], lines: &[Line], before: usize, at: usize, series: &str) -> String {
    let shown = |line: &Line| match line.at_millis {
        Some(stamp) => format!("{} at {stamp}", line.value),
        None => line.value.to_string(),
    };
    format!(
        "line {}: {series} is {}, but {} in line {}; accepted: each series once, or twice the same",
        line_number(page, at),
        shown(&lines[at]),
        shown(&lines[before]),
        line_number(page, before),
    )
}

/// The line in which a sample stands; comments and empty lines have none.
fn line_number(page: &[u8], sample: usize) -> usize {
    let has_sample =
        |line: &&[u8]| line.trim_ascii_start().first().is_some_and(|byte| *byte != b'#');
    let lines = page.split(|byte| *byte == b'\n').enumerate();
    lines.filter(|(_, line)| has_sample(line)).nth(sample).map_or(0, |(index, _)| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::{Format, PageBounds, read};

    #[track_caller]
    fn check(page: &str, expected: Option<&str>) {
        let lines = read(page.as_bytes(), Format::Text, PageBounds::default()).unwrap();
        let target = [("instance".to_owned(), "a:1".to_owned())];
        let found = contradiction(page.as_bytes(), &lines, &target, &Secrets::default());
        let accepted = "accepted: each series once, or twice the same";
        assert_eq!(found, expected.map(|why| format!("{why}; {accepted}")), "{page}");
    }

    #[test]
    fn a_series_with_two_values_is_named_with_its_lines() {
        check(
            "# HELP lag s\nlag{r=\"a\"} 0\n\n  # a comment\nlag{r=\"b\"} 0\nlag{ r=\"a\", } 0.5\n",
            Some(r#"line 6: lag{r="a"} is 0.5, but 0 in line 2"#),
        );
        check("lag 0.5\nlag 0\n", Some("line 2: lag is 0, but 0.5 in line 1"));
        check("lag NaN\nlag 0\n", Some("line 2: lag is 0, but NaN in line 1"));
        check("lag{r=\"\"} 0\nlag 1\n", Some("line 2: lag is 1, but 0 in line 1"));
    }

    /// Which of them is the newest is said by the clock of the exporter alone.
    #[test]
    fn a_series_with_two_stamps_is_refused() {
        check(
            "lag 0 2000\nlag 5 1000\n",
            Some("line 2: lag is 5 at 1000, but 0 at 2000 in line 1"),
        );
        check("lag 0\nlag 0 1000\n", Some("line 2: lag is 0 at 1000, but 0 in line 1"));
    }

    #[test]
    fn series_that_the_labels_of_a_target_make_one_are_refused() {
        check(
            "lag{instance=\"b\"} 0\nlag{exported_instance=\"b\"} 1\n",
            Some(r#"line 2: lag{exported_instance="b"} is 1, but 0 in line 1"#),
        );
    }

    #[test]
    fn the_same_sample_twice_contradicts_nothing() {
        check("lag 1 1000\nlag 1 1000\nother NaN\nother NaN\nlag{r=\"a\"} 2\n", None);
        check("", None);
    }
}
