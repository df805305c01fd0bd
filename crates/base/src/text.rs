//! Text of others, as it is shown: in a log, on a terminal, on a page.
//!
//! What a command complains about, the name of a file or the reason that an
//! operator typed may hold line breaks, which forge lines of a log, and
//! characters that nobody sees, which hide or reorder what stands beside them.
//! What is kept stays as it was written; what is shown passes through here.

use std::borrow::Cow;

/// Whether a character is not seen, or changes how others are: control
/// characters, separators of lines, and Unicode's format characters (general
/// category Cf), among them the bidirectional ones and those without a width.
/// Fillers and joiners that look like nothing are among them too; the two
/// selectors that choose between a letter and an emoji are not.
pub fn is_hidden(letter: char) -> bool {
    if letter.is_ascii() {
        return letter.is_ascii_control();
    }
    letter.is_control()
        || matches!(
            letter,
            '\u{ad}'
                | '\u{34f}'
                | '\u{600}'..='\u{605}'
                | '\u{61c}'
                | '\u{6dd}'
                | '\u{70f}'
                | '\u{890}'..='\u{891}'
                | '\u{8e2}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0d}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{110bd}'
                | '\u{110cd}'
                | '\u{13430}'..='\u{1343f}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// The text as part of one line: a space for what breaks lines, a question mark
/// for everything else that is hidden.
pub fn one_line(text: &str) -> Cow<'_, str> {
    replaced(text, is_hidden, |letter| if breaks_line(letter) { ' ' } else { '?' })
}

/// The text with its lines and tabs, and nothing else that is hidden.
pub fn many_lines(text: &str) -> Cow<'_, str> {
    let is_hidden = |letter| is_hidden(letter) && !matches!(letter, '\n' | '\t');
    replaced(text, is_hidden, |_| '?')
}

/// The start of a text as part of one line, without white space around it, and
/// with a mark if something is missing.
pub fn excerpt(text: &str, chars_max: usize) -> String {
    let text = text.trim();
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => one_line(&text[..end]).into_owned() + "…",
        None => one_line(text).into_owned(),
    }
}

fn breaks_line(letter: char) -> bool {
    matches!(letter, '\t'..='\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn replaced(
    text: &str,
    is_bad: impl Fn(char) -> bool,
    replacement: impl Fn(char) -> char,
) -> Cow<'_, str> {
    if !text.contains(&is_bad) {
        return text.into();
    }
    let shown =
        text.chars().map(|letter| if is_bad(letter) { replacement(letter) } else { letter });
    Cow::Owned(shown.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_cannot_begin_a_line() {
        for end in ["\n", "\r", "\r\n", "\u{b}", "\u{c}", "\u{85}", "\u{2028}", "\u{2029}"] {
            let text = format!("bad{end}2026-11-18T02:00:00Z  INFO over: Completed");
            let line = one_line(&text);
            assert_eq!(line.lines().count(), 1, "{line:?}");
            assert!(line.starts_with("bad "), "{line:?}");
            assert!(!line.contains(is_hidden), "{line:?}");
        }
    }

    #[test]
    fn foreign_text_cannot_hide_or_reorder_what_stands_beside_it() {
        for hidden in [
            '\0',
            '\u{7}',
            '\u{1b}',
            '\u{7f}',
            '\u{9b}',
            '\u{ad}',
            '\u{61c}',
            '\u{180e}',
            '\u{200b}',
            '\u{200d}',
            '\u{200e}',
            '\u{202a}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{2069}',
            '\u{206f}',
            '\u{3164}',
            '\u{feff}',
            '\u{fff9}',
            '\u{1d173}',
            '\u{e0041}',
        ] {
            let text = format!("a{hidden}b");
            assert_eq!(one_line(&text), "a?b", "{text:?}");
            assert_eq!(many_lines(&text), "a?b", "{text:?}");
        }
    }

    #[test]
    fn what_people_write_is_shown_as_it_is() {
        for text in ["plain · ✓ → …", "Grüße, 日本語, שלום", "⚠\u{fe0f} 80 %", "a\u{301}"]
        {
            assert!(matches!(one_line(text), Cow::Borrowed(_)), "{text:?}");
        }
        assert_eq!(many_lines("a\n\tb\rc\u{2028}d"), "a\n\tb?c?d");
    }

    #[test]
    fn an_excerpt_is_bounded_and_says_so() {
        assert_eq!(excerpt("  two\nlines \n", 20), "two lines");
        assert_eq!(excerpt("日本語", 2), "日本…");
        assert_eq!(excerpt(&"x".repeat(9000), 200).chars().count(), 201);
    }
}
