//! Text to entries: the tokens of one record or directive, over as many lines
//! as parentheses and quotes make it (RFC 1035, section 5.1).
//!
//! An entry is cut out whole before anything in it is understood, so a problem
//! inside it never confuses where the next one starts. The one thing that can
//! is a parenthesis or quote that is never closed; see [`Lexer::recover`].

use super::fault::{Fault, fault, show};
use super::types;
use super::{ENTRY_TOKENS_MAX, QUOTED_LINES_LEN_MAX, TOKEN_LEN_MAX};

/// One word or quoted string. For a quoted string `start..end` leaves out the
/// quotes, `column` is that of the opening quote.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub start: u32,
    pub end: u32,
    pub line: u32,
    pub column: u32,
    pub quoted: bool,
    /// Holds a backslash, or a quoted part as in `alpn="h2"`.
    pub escaped: bool,
}

impl Token {
    /// The token as it stands in the text.
    #[inline]
    pub fn raw<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        &text[self.start as usize..self.end as usize]
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Plain,
    Blank,
    Newline,
    Comment,
    Open,
    Close,
    Quote,
    Escape,
    Control,
}

static CLASSES: [Class; 256] = {
    let mut classes = [Class::Plain; 256];
    let mut octet = 0;
    while octet < 0x20 {
        classes[octet] = Class::Control;
        octet += 1;
    }
    classes[0x7f] = Class::Control;
    // A carriage return is the first half of a line end.
    classes[b'\r' as usize] = Class::Blank;
    classes[b'\t' as usize] = Class::Blank;
    classes[b' ' as usize] = Class::Blank;
    classes[b'\n' as usize] = Class::Newline;
    classes[b';' as usize] = Class::Comment;
    classes[b'(' as usize] = Class::Open;
    classes[b')' as usize] = Class::Close;
    classes[b'"' as usize] = Class::Quote;
    classes[b'\\' as usize] = Class::Escape;
    classes
};

#[inline]
fn class(octet: u8) -> Class {
    CLASSES[octet as usize]
}

/// Where something was opened that must be closed.
#[derive(Clone, Copy)]
struct Opening {
    at: usize,
    line: u32,
    column: u32,
}

/// Cuts a text into entries.
#[derive(Debug)]
pub(super) struct Lexer<'t> {
    text: &'t [u8],
    at: usize,
    line: u32,
    line_start: usize,
    /// First problem in the entry cut out last, which must not be interpreted
    /// then. The caller takes it before the next entry.
    pub fault: Option<Box<Fault>>,
    /// Set once a parenthesis turned out to be open at the end of the text.
    /// From then on a `(` on a later line proves an open one unclosed, so that
    /// no part of the text is read more than twice.
    strict: bool,
}

/// The entry was left because of an opening that is never closed.
struct Unclosed;

impl<'t> Lexer<'t> {
    /// Reads `text` from its first line, past a byte order mark.
    pub fn new(text: &'t [u8]) -> Self {
        let at = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        Lexer { text, at, line: 1, line_start: at, fault: None, strict: false }
    }

    /// Cuts out the next entry. Returns whether it starts with a blank, that
    /// is with its owner left out; `None` at the end of the text.
    pub fn next_entry(&mut self, tokens: &mut Vec<Token>) -> Option<bool> {
        tokens.clear();
        let mut starts_blank = false;
        let mut depth = 0usize;
        let mut opening = Opening { at: 0, line: 0, column: 0 };
        loop {
            let Some(&octet) = self.text.get(self.at) else {
                if depth > 0 {
                    self.strict = true;
                    self.leave_unclosed(opening, '(');
                    return Some(starts_blank);
                }
                let ended = tokens.is_empty() && self.fault.is_none();
                return (!ended).then_some(starts_blank);
            };
            match class(octet) {
                Class::Blank => {
                    starts_blank |= self.at == self.line_start && tokens.is_empty() && depth == 0;
                    self.at += 1;
                }
                Class::Newline => {
                    self.end_line();
                    if depth == 0 {
                        if !tokens.is_empty() || self.fault.is_some() {
                            return Some(starts_blank);
                        }
                        starts_blank = false;
                    }
                }
                Class::Comment => self.skip_line(),
                Class::Open => {
                    if depth == 0 {
                        opening = self.here();
                    } else if self.line != opening.line && (self.strict || self.in_first_column()) {
                        self.leave_unclosed(opening, '(');
                        return Some(starts_blank);
                    }
                    depth += 1;
                    self.at += 1;
                }
                Class::Close => {
                    if depth == 0 {
                        self.complain("`)` without a `(` before it", "no `)` here");
                    }
                    depth = depth.saturating_sub(1);
                    self.at += 1;
                }
                _ if depth > 0 && self.proves_unclosed(octet, tokens.len()) => {
                    self.leave_unclosed(opening, '(');
                    return Some(starts_blank);
                }
                _ if tokens.len() == ENTRY_TOKENS_MAX => {
                    let accepted = format!("at most {ENTRY_TOKENS_MAX} words in an entry");
                    self.complain("too many words in one entry", accepted);
                    self.skip_line();
                }
                // Two pushes: a token that passes through one variable is
                // written in parts and read as a whole, which stalls.
                Class::Quote => {
                    let Ok(token) = self.quoted() else { return Some(starts_blank) };
                    tokens.push(token);
                }
                Class::Plain | Class::Escape | Class::Control => {
                    let Ok(token) = self.word() else { return Some(starts_blank) };
                    tokens.push(token);
                }
            }
        }
    }

    /// True if a word that starts with `octet` shows that the parenthesis
    /// around it has no end: a directive never stands inside one, and no entry
    /// has so many words.
    #[inline]
    fn proves_unclosed(&mut self, octet: u8, count: usize) -> bool {
        let overlong = count == ENTRY_TOKENS_MAX;
        self.strict |= overlong;
        overlong || octet == b'$' && self.at == self.line_start
    }

    /// Reads an unquoted word; a value may be quoted after `=`, as the
    /// parameters of SVCB are (RFC 9460, 2.1).
    #[inline(always)]
    fn word(&mut self) -> Result<Token, Unclosed> {
        let opening = self.here();
        let mut escaped = false;
        loop {
            self.skip_plain();
            let Some(&octet) = self.text.get(self.at) else { break };
            match class(octet) {
                Class::Escape => {
                    escaped = true;
                    if matches!(self.text.get(self.at + 1), None | Some(b'\n' | b'\r')) {
                        self.complain(
                            "`\\` at the end of a line",
                            "`\\` before the octet it escapes",
                        );
                    } else {
                        self.at += 1;
                    }
                }
                Class::Control => self.complain_of_control(octet),
                Class::Quote if self.at > opening.at && self.text[self.at - 1] == b'=' => {
                    escaped = true;
                    let quote = self.here();
                    let inner = self.quoted()?;
                    if inner.line != self.line {
                        self.leave_unclosed(quote, '"');
                        return Err(Unclosed);
                    }
                    continue;
                }
                Class::Quote => {
                    self.complain(
                        "`\"` inside a word",
                        "a blank before it, or `\\\"` for the quote itself",
                    );
                }
                _ => break,
            }
            self.at += 1;
        }
        Ok(self.token(opening, opening.at, self.at, false, escaped))
    }

    /// Reads a quoted string. It may run over lines, but what follows a quote
    /// that closes on a later line has to look like the end of a string:
    /// otherwise the quote was the opening one of the next string, and the
    /// closing one of this string is missing.
    fn quoted(&mut self) -> Result<Token, Unclosed> {
        let opening = self.here();
        let mut escaped = false;
        self.at += 1;
        let end = loop {
            self.skip_plain();
            let Some(&octet) = self.text.get(self.at) else {
                self.leave_unclosed(opening, '"');
                return Err(Unclosed);
            };
            match class(octet) {
                Class::Quote => break self.at,
                Class::Escape => {
                    escaped = true;
                    self.at += 1;
                    if self.text.get(self.at) != Some(&b'\n') {
                        self.at += 1;
                        continue;
                    }
                    self.end_line();
                }
                Class::Newline => self.end_line(),
                Class::Control => {
                    self.complain_of_control(octet);
                    self.at += 1;
                }
                _ => self.at += 1,
            }
            if self.line != opening.line && self.at - opening.at > QUOTED_LINES_LEN_MAX {
                self.leave_unclosed(opening, '"');
                return Err(Unclosed);
            }
        };
        self.at += 1;
        let next = self.text.get(self.at).map_or(Class::Newline, |&octet| class(octet));
        if matches!(next, Class::Plain | Class::Escape | Class::Control | Class::Quote) {
            if self.line != opening.line {
                self.leave_unclosed(opening, '"');
                return Err(Unclosed);
            }
            if next != Class::Quote {
                let found = format!("{} right after a closing quote", show(self.rest_of_word()));
                self.complain(
                    found,
                    "a blank after the quote, or `\\\"` for a quote in the string",
                );
            }
        }
        Ok(self.token(opening, opening.at + 1, end, true, escaped))
    }

    #[inline(always)]
    fn token(
        &mut self,
        opening: Opening,
        start: usize,
        end: usize,
        quoted: bool,
        escaped: bool,
    ) -> Token {
        let Opening { line, column, .. } = opening;
        if end - start > TOKEN_LEN_MAX {
            self.complain_of_length(opening, end - start);
        }
        Token { start: start as u32, end: end as u32, line, column, quoted, escaped }
    }

    #[inline]
    fn here(&self) -> Opening {
        let column = (self.at - self.line_start + 1) as u32;
        Opening { at: self.at, line: self.line, column }
    }

    /// Steps over the newline at the current place.
    #[inline]
    fn end_line(&mut self) {
        self.at += 1;
        self.line += 1;
        self.line_start = self.at;
    }

    /// Goes to the next octet that is more than part of a word. Most of the
    /// time is spent here.
    #[inline(always)]
    fn skip_plain(&mut self) {
        let rest = &self.text[self.at.min(self.text.len())..];
        let len = rest.iter().position(|&octet| class(octet) != Class::Plain);
        self.at += len.unwrap_or(rest.len());
    }

    /// Goes to the newline that ends this line.
    fn skip_line(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.iter().position(|&octet| octet == b'\n').unwrap_or(rest.len());
    }

    /// True if this line starts with something other than a blank or bracket.
    fn in_first_column(&self) -> bool {
        !matches!(class(self.text[self.line_start]), Class::Blank | Class::Open | Class::Close)
    }

    fn rest_of_word(&self) -> &'t [u8] {
        let rest = &self.text[self.at..];
        let len = rest.iter().position(|&octet| class(octet) != Class::Plain);
        &rest[..len.unwrap_or(rest.len()).max(1)]
    }

    #[cold]
    fn complain(&mut self, what: impl Into<String>, accepted: impl Into<String>) {
        let Opening { line, column, .. } = self.here();
        self.note(fault(what, accepted).at(line, column));
    }

    #[cold]
    fn complain_of_control(&mut self, octet: u8) {
        let what = format!("control octet \\{octet:03}");
        self.complain(what, format!("text; in a name or string, the escape `\\{octet:03}`"));
    }

    #[cold]
    fn complain_of_length(&mut self, opening: Opening, len: usize) {
        let fault =
            fault(format!("a word of {len} octets"), format!("at most {TOKEN_LEN_MAX} octets"));
        self.note(fault.at(opening.line, opening.column));
    }

    /// Keeps the first fault of an entry: those after it follow from it.
    fn note(&mut self, fault: Box<Fault>) {
        self.fault.get_or_insert(fault);
    }

    #[cold]
    fn leave_unclosed(&mut self, opening: Opening, mark: char) {
        let (name, accepted) = match mark {
            '(' => ("parenthesis `(`", "a `)` that ends the entry"),
            _ => ("quote `\"`", "a `\"` that ends the string"),
        };
        let fault = fault(format!("the {name} is never closed"), accepted);
        self.fault = Some(fault.at(opening.line, opening.column));
        self.recover(opening);
    }

    /// Goes on at the first line after `opening` that looks like an entry of
    /// its own, so that one missing `)` neither hides the problems after it
    /// nor makes false ones out of the lines that belong to it.
    fn recover(&mut self, opening: Opening) {
        self.at = opening.at;
        self.line = opening.line;
        loop {
            self.skip_line();
            if self.at == self.text.len() {
                return;
            }
            self.end_line();
            let rest = &self.text[self.at..];
            let len = rest.iter().position(|&octet| octet == b'\n').unwrap_or(rest.len());
            if looks_like_entry(&rest[..len]) {
                return;
            }
        }
    }
}

/// True for a directive, or an owner in the first column that is followed by a
/// type, perhaps with a TTL and class between them.
fn looks_like_entry(line: &[u8]) -> bool {
    match line {
        [b'$', letter, ..] if letter.is_ascii_alphabetic() => return true,
        [first, ..] if class(*first) == Class::Plain || class(*first) == Class::Escape => {}
        _ => return false,
    }
    let is_blank = |octet: &u8| matches!(octet, b' ' | b'\t' | b'\r');
    let mut words = line.split(is_blank).filter(|word| !word.is_empty());
    words.by_ref().take(4).skip(1).any(|word| types::code(word).is_some())
}
