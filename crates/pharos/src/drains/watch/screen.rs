//! Lines of a terminal: texts with styles, cut and wrapped by the columns that
//! they take, and painted at the end.

use base::text::one_line;
use unicode_width::UnicodeWidthChar;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    Bold,
    Dim,
    Good,
    Warn,
    Bad,
    /// A heading of what is wrong.
    Alarm,
}

impl Style {
    fn code(self) -> Option<&'static str> {
        match self {
            Style::Plain => None,
            Style::Bold => Some("1"),
            Style::Dim => Some("90"),
            Style::Good => Some("32"),
            Style::Warn => Some("33"),
            Style::Bad => Some("31"),
            Style::Alarm => Some("1;31"),
        }
    }
}

/// How many columns a letter takes. What speaks to a terminal or turns the
/// direction of text takes none: it is not shown.
fn columns_of(letter: char) -> usize {
    letter.width().unwrap_or(0)
}

/// How many columns a text takes.
pub fn width(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

/// The beginning of a text that fits, with a mark if something is missing.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 0;
    for letter in text.chars() {
        used += columns_of(letter);
        if used > columns.saturating_sub(1) {
            break;
        }
        kept.push(letter);
    }
    if columns > 0 {
        kept.push('…');
    }
    kept
}

/// A text in lines that fit, broken at blanks; the last of `lines_max` is cut.
pub fn wrap(text: &str, columns: usize, lines_max: usize) -> Vec<String> {
    wrap_after(text, columns, columns, lines_max)
}

/// The same where the first line has fewer columns than the others.
pub fn wrap_after(text: &str, first: usize, columns: usize, lines_max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    let mut words = text.split(' ').filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        let columns = if lines.is_empty() { first } else { columns };
        let gap = if line.is_empty() { "" } else { " " };
        if width(&line) + gap.len() + width(word) <= columns {
            line = format!("{line}{gap}{word}");
        } else if lines.len() + 1 >= lines_max {
            let rest: Vec<&str> = std::iter::once(word).chain(words).collect();
            line = cut(&format!("{line}{gap}{}", rest.join(" ")), columns);
            break;
        } else if line.is_empty() && lines.is_empty() && first >= columns {
            lines.push(cut(word, columns));
        } else {
            // It may be longer than a line; then its beginning says enough.
            lines.push(std::mem::take(&mut line));
            line = cut(word, columns);
        }
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// One line: pieces of text, each in a style.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line(Vec<(Style, String)>);

impl Line {
    pub fn new(style: Style, text: impl AsRef<str>) -> Line {
        Line::default().and(style, text)
    }

    /// The same with more text.
    pub fn and(mut self, style: Style, text: impl AsRef<str>) -> Line {
        self.0.push((style, one_line(text.as_ref()).into_owned()));
        self
    }

    /// The same, filled up with blanks to a column.
    pub fn to(self, column: usize) -> Line {
        let missing = column.saturating_sub(self.width());
        self.and(Style::Plain, " ".repeat(missing))
    }

    pub fn width(&self) -> usize {
        self.0.iter().map(|(_, text)| width(text)).sum()
    }

    /// As it is written, in so many columns.
    pub fn paint(&self, columns: usize, has_colours: bool) -> String {
        let mut painted = String::new();
        let mut left = columns;
        let is_cut = self.width() > columns;
        for (at, (style, text)) in self.0.iter().enumerate() {
            let is_last = at + 1 == self.0.len();
            // Whoever is cut says so, also where the cut is between two pieces.
            let text = match is_cut && !is_last && width(text) >= left {
                true => cut(&format!("{text}……"), left),
                false => cut(text, left),
            };
            left -= width(&text);
            match style.code().filter(|_| has_colours && !text.is_empty()) {
                Some(code) => painted.push_str(&format!("\x1b[{code}m{text}\x1b[0m")),
                None => painted.push_str(&text),
            }
            if left == 0 {
                break;
            }
        }
        match has_colours {
            true => painted,
            false => painted.trim_end().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_by_the_columns_they_take() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!((cut("ab", 1), cut("ab", 0)), ("…".into(), String::new()));
    }

    #[test]
    fn texts_are_wrapped_at_blanks() {
        assert_eq!(wrap("one two three", 7, 3), ["one two", "three"]);
        assert_eq!(wrap("one two three four", 7, 2), ["one two", "three …"]);
        assert_eq!(wrap("immensely long", 6, 3), ["immen…", "long"]);
        assert_eq!(wrap("", 6, 3), [""]);
    }

    #[test]
    fn lines_are_cut_over_all_their_pieces() {
        let line = Line::new(Style::Bad, "✗ ").and(Style::Plain, "abc").and(Style::Dim, "defgh");
        assert_eq!(line.paint(20, false), "✗ abcdefgh");
        assert_eq!(line.paint(8, false), "✗ abcde…");
        assert_eq!(line.paint(5, false), "✗ ab…");
        assert_eq!(line.paint(3, true), "\u{1b}[31m✗ \u{1b}[0m…");
    }

    #[test]
    fn what_speaks_to_a_terminal_or_reorders_text_is_shown_as_a_mark() {
        let line = Line::new(Style::Plain, "a\u{1b}[2J\nb\u{202e}c");
        assert_eq!(line.paint(20, false), "a?[2J b?c");
    }
}
