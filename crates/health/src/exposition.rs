//! The text in which services show their metrics.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>: a sample a
//! line, `name{label="value"} value [time]`. What OpenMetrics adds is accepted
//! and passed over: exemplars and units. A page is taken whole or not at all: half
//! a page would look as if the other half had ended, and half a line says another
//! number. So the end that the formats demand is demanded.

use std::fmt;

use crate::series::{Labels, NAME};

/// How much a page may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageBounds {
    pub samples_max: usize,
    /// Labels of one series.
    pub labels_max: usize,
    /// Octets of all names and values of one series.
    pub series_len_max: usize,
}

impl Default for PageBounds {
    fn default() -> Self {
        PageBounds { samples_max: 5_000, labels_max: 64, series_len_max: 4096 }
    }
}

/// Which of the two formats a page says it is in: they count time differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Time stamps are milliseconds.
    Text,
    /// Time stamps are seconds.
    OpenMetrics,
}

impl Format {
    pub fn of(content_type: Option<&str>) -> Format {
        match content_type {
            Some(kind) if kind.trim_start().starts_with("application/openmetrics-text") => {
                Format::OpenMetrics
            }
            _ => Format::Text,
        }
    }
}

/// One line of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub labels: Labels,
    pub value: f64,
    /// When it was so, in milliseconds since 1970, if the page says it.
    pub at_millis: Option<i64>,
}

/// What is wrong with a page, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub line: usize,
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// Reads a page.
pub fn read(page: &[u8], format: Format, bounds: PageBounds) -> Result<Vec<Line>, Fault> {
    check_end(page, format)?;
    let mut lines = Vec::new();
    for (index, text) in page.split(|octet| *octet == b'\n').enumerate() {
        let fault = |what: String| Fault { line: index + 1, what };
        let text = text.trim_ascii_start();
        if text.is_empty() || text[0] == b'#' {
            continue;
        }
        if lines.len() == bounds.samples_max {
            return Err(fault(format!("more than {} samples", bounds.samples_max)));
        }
        let text = std::str::from_utf8(text).map_err(|_| fault("not UTF-8".into()))?;
        lines.push(Cursor { rest: text }.line(format, bounds).map_err(fault)?);
    }
    Ok(lines)
}

/// Whether the page ends as its format demands. `lag 0` may be the start of `lag 0.5`.
fn check_end(page: &[u8], format: Format) -> Result<(), Fault> {
    let text = page.strip_suffix(b"\n").unwrap_or(page);
    let last = text.rsplit(|octet| *octet == b'\n').next().unwrap_or_default();
    let (is_whole, accepted) = match format {
        Format::Text => {
            (text.len() < page.len() || page.is_empty(), "a line feed behind each line")
        }
        Format::OpenMetrics => (last == b"# EOF", "`# EOF` as the last line"),
    };
    if is_whole {
        return Ok(());
    }
    let line = 1 + text.iter().filter(|octet| **octet == b'\n').count();
    let what = format!("the page ends here as if it were cut off; accepted: {accepted}");
    Err(Fault { line, what })
}

/// The part of a line that is still to be read.
struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn line(mut self, format: Format, bounds: PageBounds) -> Result<Line, String> {
        let name = self.word(|letter| letter == ':');
        if name.is_empty() {
            return Err(format!("expected the name of a metric at `{}`", self.shown()));
        }
        let mut pairs = vec![(NAME.to_owned(), name.to_owned())];
        self.skip_blanks();
        if self.take('{') {
            self.labels(&mut pairs, bounds)?;
        }
        let len: usize = pairs.iter().map(|(name, value)| name.len() + value.len()).sum();
        if len > bounds.series_len_max {
            return Err(format!("labels longer than {} octets", bounds.series_len_max));
        }
        let labels = Labels::new(pairs).ok_or("a label stands there twice")?;
        let value = self.token().ok_or_else(|| format!("{labels} has no value"))?;
        let value: f64 = value
            .parse()
            .map_err(|_| format!("{labels} has the value `{}`, which is no number", cut(value)))?;
        // What stands behind a # is an exemplar.
        let stamp = self.token().filter(|token| !token.starts_with('#'));
        let at_millis = stamp.map(|stamp| time(stamp, format)).transpose()?;
        if stamp.is_some() {
            let behind = self.token();
            if let Some(garbage) = behind.filter(|token| !token.starts_with('#')) {
                return Err(format!("`{}` behind the time stamp", cut(garbage)));
            }
        }
        // Without its sign and payload a NaN cannot mean anything to us.
        let value = if value.is_nan() { f64::NAN } else { value };
        Ok(Line { labels, value, at_millis })
    }

    /// Labels up to the closing bracket.
    fn labels(
        &mut self,
        pairs: &mut Vec<(String, String)>,
        bounds: PageBounds,
    ) -> Result<(), String> {
        loop {
            self.skip_blanks();
            if self.take('}') {
                return Ok(());
            }
            let name = self.word(|_| false);
            if name.is_empty() {
                return Err(format!("expected the name of a label or `}}` at `{}`", self.shown()));
            }
            self.skip_blanks();
            if !self.take('=') {
                return Err(format!("expected `=` behind the label {}", cut(name)));
            }
            self.skip_blanks();
            let value = self.quoted()?;
            // Name and value of the metric are the first pair.
            if pairs.len() > bounds.labels_max {
                return Err(format!("more than {} labels", bounds.labels_max));
            }
            pairs.push((name.to_owned(), value));
            self.skip_blanks();
            if !self.take(',') && !self.rest.starts_with('}') {
                return Err(format!("expected `,` or `}}` at `{}`", self.shown()));
            }
        }
    }

    /// A name: letters, digits, underscores and what `also` allows; no digit
    /// first. Empty if there is none.
    fn word(&mut self, also: impl Fn(char) -> bool) -> &'a str {
        let is_inside =
            |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || also(letter);
        let end = self.rest.find(|letter| !is_inside(letter)).unwrap_or(self.rest.len());
        if self.rest.starts_with(|letter: char| letter.is_ascii_digit()) {
            return "";
        }
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn quoted(&mut self) -> Result<String, String> {
        if !self.take('"') {
            return Err(format!("expected a value in quotes at `{}`", self.shown()));
        }
        let mut value = String::new();
        let mut letters = self.rest.char_indices();
        while let Some((index, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.rest = &self.rest[index + 1..];
                    return Ok(value);
                }
                '\\' => match letters.next().map(|(_, letter)| letter) {
                    Some('n') => value.push('\n'),
                    Some(letter @ ('"' | '\\')) => value.push(letter),
                    // As Prometheus does: what is no escape is meant as it is.
                    Some(letter) => value.extend(['\\', letter]),
                    None => break,
                },
                _ => value.push(letter),
            }
        }
        Err("a value in quotes does not end".into())
    }

    /// What stands between blanks; `None` at the end.
    fn token(&mut self) -> Option<&'a str> {
        self.skip_blanks();
        let end = self.rest.find([' ', '\t']).unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!token.is_empty()).then_some(token)
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    fn take(&mut self, letter: char) -> bool {
        let rest = self.rest.strip_prefix(letter);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn shown(&self) -> String {
        cut(self.rest)
    }
}

fn time(stamp: &str, format: Format) -> Result<i64, String> {
    let wrong = || format!("`{}` is no time stamp", cut(stamp));
    match format {
        Format::Text => stamp.parse().map_err(|_| wrong()),
        Format::OpenMetrics => {
            let secs: f64 = stamp.parse().map_err(|_| wrong())?;
            if secs.is_finite() { Ok((secs * 1000.0).round() as i64) } else { Err(wrong()) }
        }
    }
}

/// The start of what somebody wrote.
fn cut(text: &str) -> String {
    const CHARS_MAX: usize = 24;
    base::text::excerpt(text, CHARS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(page: &str, format: Format) -> Result<Vec<String>, String> {
        let show = |line: &Line| match line.at_millis {
            None => format!("{} {}", line.labels, line.value),
            Some(at) => format!("{} {} at {at}", line.labels, line.value),
        };
        let lines = read(page.as_bytes(), format, PageBounds::default());
        lines.map(|lines| lines.iter().map(show).collect()).map_err(|fault| fault.to_string())
    }

    #[track_caller]
    fn check(page: &str, expected: &[&str]) {
        assert_eq!(shown(page, Format::Text).unwrap(), expected);
    }

    #[track_caller]
    fn refuse(page: &str, expected: &str) {
        assert_eq!(shown(&format!("{page}\n"), Format::Text).unwrap_err(), expected);
    }

    #[test]
    fn a_page_as_services_show_it() {
        check(
            "# HELP http_requests_total Requests.\n# TYPE http_requests_total counter\n\
             http_requests_total{method=\"post\",code=\"200\"} 1027 1395066363000\n\
             \n  msdos_file_access_time_seconds{path=\"C:\\\\DIR\\\\FILE.TXT\",error=\"no \\\"x\\\"\\n\"} 1.458255915e9\n\
             metric_without_timestamp_and_labels 12.47\n\
             up { a = \"b\" , } +Inf -3982045\na:b\t-inf\nnothing NaN\n",
            &[
                r#"http_requests_total{code="200",method="post"} 1027 at 1395066363000"#,
                r#"msdos_file_access_time_seconds{error="no \"x\"\n",path="C:\\DIR\\FILE.TXT"} 1458255915"#,
                "metric_without_timestamp_and_labels 12.47",
                r#"up{a="b"} inf at -3982045"#,
                "a:b -inf",
                "nothing NaN",
            ],
        );
    }

    #[test]
    fn what_openmetrics_adds_is_passed_over() {
        let page = "# UNIT a_seconds seconds\na_total 1 # {trace=\"x\"} 0.5 1.5\n\
                    a_created 2 1.25\nb_bucket{le=\"1\"} 3 4 # {} 0.7\n# EOF\n";
        let expected = ["a_total 1", "a_created 2 at 1250", r#"b_bucket{le="1"} 3 at 4000"#];
        assert_eq!(shown(page, Format::OpenMetrics).unwrap(), expected);
    }

    /// Half a page, or half a number.
    #[test]
    fn a_page_without_the_end_of_its_format_is_refused() {
        let check = |page: &str, format: Format, expected: Result<usize, usize>| {
            let read = read(page.as_bytes(), format, PageBounds::default());
            let read = read.map(|lines| lines.len()).map_err(|fault| fault.line);
            assert_eq!(read, expected, "{page:?}, {format:?}");
        };
        let text = |page, expected| check(page, Format::Text, expected);
        text("", Ok(0));
        text("up 1\nlag 0.5\n", Ok(2));
        text("up 1\nlag 0", Err(2));
        text("up 1\nlag 0.5", Err(2));
        text("up 1\n# HELP", Err(2));
        let open = |page, expected| check(page, Format::OpenMetrics, expected);
        open("# EOF\n", Ok(0));
        open("up 1\nlag 0.5\n# EOF", Ok(2));
        open("up 1\nlag 0.5\n# EOF\n", Ok(2));
        open("", Err(1));
        open("up 1\nlag 0", Err(2));
        open("up 1\nlag 0.5\n", Err(2));
        open("up 1\nlag 0.5\n# EO", Err(3));
        open("up 1\n# EOF\nlag 0.5\n", Err(3));
        assert_eq!(
            shown("up 1\nlag 0", Format::Text).unwrap_err(),
            "line 2: the page ends here as if it were cut off; accepted: a line feed behind each \
             line"
        );
        assert_eq!(
            shown("up 1\n", Format::OpenMetrics).unwrap_err(),
            "line 1: the page ends here as if it were cut off; accepted: `# EOF` as the last line"
        );
    }

    #[test]
    fn a_fault_names_its_place() {
        refuse("a 1\n\n1a 2", "line 3: expected the name of a metric at `1a 2`");
        refuse("a", "line 1: a has no value");
        refuse("a x", "line 1: a has the value `x`, which is no number");
        refuse("a 1 x", "line 1: `x` is no time stamp");
        refuse("a 1 2 3", "line 1: `3` behind the time stamp");
        refuse("a{b=\"c\"", "line 1: expected `,` or `}` at ``");
        refuse("a{b=\"c\" d=\"e\"} 1", "line 1: expected `,` or `}` at `d=\"e\"} 1`");
        refuse("a{b=\"c} 1", "line 1: a value in quotes does not end");
        refuse("a{b} 1", "line 1: expected `=` behind the label b");
        refuse("a{b=c} 1", "line 1: expected a value in quotes at `c} 1`");
        refuse("a{,} 1", "line 1: expected the name of a label or `}` at `,} 1`");
        refuse("a{b=\"1\",b=\"2\"} 1", "line 1: a label stands there twice");
        refuse("a{b=\"1\"}", "line 1: a{b=\"1\"} has no value");
    }

    #[test]
    fn bounds_are_kept() {
        let bounds = PageBounds { samples_max: 2, labels_max: 1, series_len_max: 20 };
        let read = |page: &str| {
            read(page.as_bytes(), Format::Text, bounds).map_err(|fault| fault.to_string())
        };
        assert_eq!(read("a 1\nb 2\n# c\n").unwrap().len(), 2);
        assert_eq!(read("a 1\nb 2\nc 3\n").unwrap_err(), "line 3: more than 2 samples");
        assert_eq!(read("a{b=\"c\",d=\"e\"} 1\n").unwrap_err(), "line 1: more than 1 labels");
        assert_eq!(read("a{b=\"c\"} 1\n").unwrap().len(), 1);
        let long = format!("a{{b=\"{}\"}} 1\n", "x".repeat(20));
        assert_eq!(read(&long).unwrap_err(), "line 1: labels longer than 20 octets");
        assert_eq!(
            crate::exposition::read(b"a\xff 1\n", Format::Text, bounds).unwrap_err().what,
            "not UTF-8"
        );
    }

    fn written(line: &Line) -> String {
        let labels = line.labels.iter().filter(|(name, _)| *name != NAME).map(|(name, value)| {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            format!("{name}=\"{value}\"")
        });
        let labels: Vec<String> = labels.collect();
        let stamp = line.at_millis.map_or(String::new(), |at| format!(" {at}"));
        format!("{}{{{}}} {:?}{stamp}\n", line.labels.name(), labels.join(","), line.value)
    }

    fn line() -> impl Strategy<Value = Line> {
        let labels =
            prop::collection::btree_map("[a-z_][a-z0-9_]{0,3}", ".{0,5}|[\\\\\"\n]{1,3}", 0..4);
        ("[a-z_:][a-z0-9:]{0,4}", labels, -1e6f64..1e6, prop::option::of(any::<i64>())).prop_map(
            |(name, labels, value, at_millis)| {
                let mut pairs: Vec<_> =
                    labels.into_iter().filter(|(name, _)| name != NAME).collect();
                pairs.push((NAME.into(), name));
                Line { labels: Labels::new(pairs).unwrap(), value, at_millis }
            },
        )
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(lines in prop::collection::vec(line(), 0..6)) {
            let page: String = lines.iter().map(written).collect();
            let read = read(page.as_bytes(), Format::Text, PageBounds::default());
            prop_assert_eq!(read.unwrap(), lines);
        }

        #[test]
        fn nothing_makes_it_panic(page in prop::collection::vec(any::<u8>(), 0..200)) {
            let page = [&page[..], b"\n"].concat();
            let _ = read(&page, Format::Text, PageBounds::default());
        }

        #[test]
        fn nothing_near_a_page_does(page in "[a{}=\"\\\\,# 1.e+\t\nµ-]{0,80}") {
            for (format, end) in [(Format::Text, "\n"), (Format::OpenMetrics, "\n# EOF\n")] {
                let page = page.clone() + end;
                let _ = read(page.as_bytes(), format, PageBounds::default());
            }
        }
    }
}
