//! From words to what can be evaluated. Everything else is refused by name.

#[cfg(test)]
mod tests;

use regex::RegexBuilder;

use super::expr::{
    Aggregation, Binary, Each, Expr, Grouping, Kind, Match, Matcher, Operator, Over, Selector,
};
use super::lex::{Placed, Token, lex};
use super::{Fault, QUERY_LEN_MAX};
use crate::series::NAME;
use drain::runbook::promql::PARTS_MAX;

/// Brackets and operands within each other.
const DEPTH_MAX: u32 = 48;
/// Octets of a compiled pattern.
const PATTERN_LEN_MAX: usize = 1 << 20;

/// How tightly operators bind. A sign binds as multiplication does: `-a ^ b` is
/// `-(a ^ b)`.
const EITHER: u8 = 1;
const BOTH: u8 = 2;
const COMPARISON: u8 = 3;
const SUM: u8 = 4;
const PRODUCT: u8 = 5;
const POWER: u8 = 6;

pub fn parse(text: &str) -> Result<Expr, Fault> {
    if text.len() > QUERY_LEN_MAX {
        let what = format!("a query has at most {QUERY_LEN_MAX} octets");
        return Err(Fault { offset: QUERY_LEN_MAX, what });
    }
    let mut parser = Parser { tokens: lex(text)?, next: 0, end: text.len(), depth: 0, parts: 0 };
    let offset = parser.offset();
    let root = parser.operand(0)?;
    if parser.peek().is_some() {
        return Err(parser.unexpected("an operator or the end"));
    }
    root.instant(offset)
}

struct Parser {
    tokens: Vec<Placed>,
    next: usize,
    /// The offset behind the last word.
    end: usize,
    depth: u32,
    parts: u32,
}

/// What an operand is: ranges are arguments of functions only.
enum Operand {
    Instant(Expr),
    Range(Selector, u64),
}

impl Operand {
    fn instant(self, offset: usize) -> Result<Expr, Fault> {
        match self {
            Operand::Instant(expr) => Ok(expr),
            Operand::Range(..) => {
                let what = "a range has no single value; apply a function such as rate() to it";
                Err(Fault { offset, what: what.into() })
            }
        }
    }
}

impl Parser {
    /// An operand and all operators behind it that bind at least as tightly as
    /// `tightness`.
    fn operand(&mut self, tightness: u8) -> Result<Operand, Fault> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.fault(format!("more than {DEPTH_MAX} brackets within each other")));
        }
        let start = self.offset();
        let mut left = self.signed()?;
        while let Some((operator, own)) = self.operator()? {
            if own < tightness {
                break;
            }
            let offset = self.offset();
            self.next += 1;
            let is_bool = self.boolean(operator, offset)?;
            let matching = self.matching()?;
            let behind = self.offset();
            // Powers are the only ones that group from the right.
            let right = self.operand(if own == POWER { own } else { own + 1 })?.instant(behind)?;
            let binary = Binary {
                operator,
                left: left.instant(start)?,
                right,
                is_bool,
                matching: matching.clone().unwrap_or(Grouping::Without(Vec::new())),
            };
            left = Operand::Instant(self.joined(binary, matching.is_some(), offset)?);
        }
        self.depth -= 1;
        Ok(left)
    }

    /// Two operands that an operator can join.
    fn joined(&mut self, binary: Binary, is_matched: bool, offset: usize) -> Result<Expr, Fault> {
        let kinds = (binary.left.kind(), binary.right.kind());
        if kinds != (Kind::Vector, Kind::Vector) && is_matched {
            let what = "on and ignoring match two vectors; one side here is a number";
            return Err(Fault { offset, what: what.into() });
        }
        if kinds != (Kind::Vector, Kind::Vector) && binary.operator.is_set() {
            let what = "and, or and unless join two vectors; one side here is a number";
            return Err(Fault { offset, what: what.into() });
        }
        let is_plain = binary.operator.is_comparison() && !binary.is_bool;
        if kinds == (Kind::Number, Kind::Number) && is_plain {
            let what = "a comparison of two numbers needs bool: `1 < bool 2`";
            return Err(Fault { offset, what: what.into() });
        }
        self.part(Expr::Binary(Box::new(binary)))
    }

    /// The operator that comes next, if one does.
    fn operator(&self) -> Result<Option<(Operator, u8)>, Fault> {
        let found = match self.peek() {
            Some(Token::Sign(sign)) => match *sign {
                "==" => (Operator::Equal, COMPARISON),
                "!=" => (Operator::NotEqual, COMPARISON),
                "<" => (Operator::Less, COMPARISON),
                "<=" => (Operator::LessOrEqual, COMPARISON),
                ">" => (Operator::Greater, COMPARISON),
                ">=" => (Operator::GreaterOrEqual, COMPARISON),
                "+" => (Operator::Add, SUM),
                "-" => (Operator::Subtract, SUM),
                "*" => (Operator::Multiply, PRODUCT),
                "/" => (Operator::Divide, PRODUCT),
                "%" => (Operator::Modulo, PRODUCT),
                "^" => (Operator::Power, POWER),
                _ => return Ok(None),
            },
            Some(Token::Word(word)) if stands_between(word) => {
                match word.to_ascii_lowercase().as_str() {
                    "and" => (Operator::And, BOTH),
                    "unless" => (Operator::Unless, BOTH),
                    "or" => (Operator::Or, EITHER),
                    _ => return Err(self.unsupported(word)),
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(found))
    }

    fn boolean(&mut self, operator: Operator, offset: usize) -> Result<bool, Fault> {
        let is_bool = self.take_word("bool");
        if is_bool && !operator.is_comparison() {
            return Err(Fault { offset, what: "bool is for comparisons".into() });
        }
        Ok(is_bool)
    }

    fn matching(&mut self) -> Result<Option<Grouping>, Fault> {
        let matching = if self.take_word("on") {
            Some(Grouping::By(self.label_list()?))
        } else if self.take_word("ignoring") {
            Some(Grouping::Without(self.label_list()?))
        } else {
            None
        };
        match self.word().as_deref() {
            Some(word @ ("group_left" | "group_right")) => Err(self.unsupported(word)),
            _ => Ok(matching),
        }
    }

    /// An operand with its signs.
    fn signed(&mut self) -> Result<Operand, Fault> {
        let is_negative = match self.peek() {
            Some(Token::Sign("-")) => true,
            Some(Token::Sign("+")) => false,
            _ => return self.with_suffixes(),
        };
        self.next += 1;
        let offset = self.offset();
        let of = self.operand(POWER)?.instant(offset)?;
        Ok(Operand::Instant(match (is_negative, of) {
            (false, of) => of,
            (true, Expr::Number(value)) => Expr::Number(-value),
            (true, of) => self.part(Expr::Negate(Box::new(of)))?,
        }))
    }

    /// An operand with its range and offset.
    fn with_suffixes(&mut self) -> Result<Operand, Fault> {
        let start = self.offset();
        // In brackets a selector is an operand like others.
        let is_bare = !matches!(self.peek(), Some(Token::Sign("(")));
        let mut operand = self.primary()?;
        loop {
            if let Some(Token::Sign("[")) = self.peek() {
                operand = self.range(operand, is_bare)?;
                continue;
            }
            if let Some(Token::Sign("@")) = self.peek() {
                return Err(self.unsupported("@"));
            }
            if !self.take_word("offset") {
                return Ok(operand);
            }
            let offset_millis = self.signed_millis()?;
            match &mut operand {
                Operand::Instant(Expr::Select(selector)) | Operand::Range(selector, _)
                    if is_bare && selector.offset_millis == 0 =>
                {
                    selector.offset_millis = offset_millis;
                }
                _ => {
                    let what = "offset belongs behind a selector, once";
                    return Err(Fault { offset: start, what: what.into() });
                }
            }
        }
    }

    fn range(&mut self, operand: Operand, is_bare: bool) -> Result<Operand, Fault> {
        let offset = self.offset();
        self.next += 1;
        let span_millis = self.millis()?;
        if let Some(Token::Sign(":")) = self.peek() {
            return Err(Fault { offset, what: unsupported("a subquery") });
        }
        self.expect("]")?;
        match operand {
            Operand::Instant(Expr::Select(selector)) if is_bare && selector.offset_millis == 0 => {
                Ok(Operand::Range(selector, span_millis))
            }
            _ => Err(Fault { offset, what: "a range belongs right behind a selector".into() }),
        }
    }

    fn primary(&mut self) -> Result<Operand, Fault> {
        let offset = self.offset();
        match self.peek().cloned() {
            Some(Token::Number(value)) => {
                self.next += 1;
                Ok(Operand::Instant(self.part(Expr::Number(value))?))
            }
            Some(Token::Sign("(")) => {
                self.next += 1;
                let inner = self.operand(0)?.instant(offset)?;
                self.expect(")")?;
                Ok(Operand::Instant(inner))
            }
            Some(Token::Sign("{")) => self.selector(None),
            Some(Token::Word(word)) if !stands_between(&word) => self.named(&word),
            Some(Token::Text(_)) => Err(self.unsupported("a text")),
            _ => Err(self.unexpected("a selector, a number, a function or `(`")),
        }
    }

    /// A metric, a function or an aggregation.
    fn named(&mut self, word: &str) -> Result<Operand, Fault> {
        let offset = self.offset();
        self.next += 1;
        let lower = word.to_ascii_lowercase();
        let is_called = matches!(self.peek(), Some(Token::Sign("(")));
        let is_grouped = matches!(self.word().as_deref(), Some("by" | "without"));
        if !is_called && !is_grouped {
            return self.selector(Some(word));
        }
        if let Some(how) = Aggregation::named(&lower) {
            return self.aggregation(how).map(Operand::Instant);
        }
        let expr = match (word, Over::named(word)) {
            (_, Some(function)) => self.over(function, word)?,
            ("abs", _) => self.each(Each::Abs, 0, word)?,
            ("clamp", _) => self.each(Each::Clamp, 2, word)?,
            ("clamp_min", _) => self.each(Each::ClampMin, 1, word)?,
            ("clamp_max", _) => self.each(Each::ClampMax, 1, word)?,
            ("ceil", _) => self.each(Each::Ceil, 0, word)?,
            ("floor", _) => self.each(Each::Floor, 0, word)?,
            ("time", _) => {
                self.expect("(")?;
                self.expect(")")?;
                Expr::Time
            }
            ("histogram_quantile", _) => {
                self.expect("(")?;
                let share = Box::new(self.argument(Kind::Number, word)?);
                self.expect(",")?;
                let of = Box::new(self.argument(Kind::Vector, word)?);
                self.expect(")")?;
                Expr::Quantile { share, of }
            }
            ("vector", _) => Expr::Vector(Box::new(self.only_argument(Kind::Number, word)?)),
            ("scalar", _) => Expr::Scalar(Box::new(self.only_argument(Kind::Vector, word)?)),
            ("absent", _) => Expr::Absent(Box::new(self.only_argument(Kind::Vector, word)?)),
            _ => return Err(Fault { offset, what: unsupported(word) }),
        };
        self.part(expr).map(Operand::Instant)
    }

    fn aggregation(&mut self, how: Aggregation) -> Result<Expr, Fault> {
        let before = self.grouping()?;
        let of = Box::new(self.only_argument(Kind::Vector, "an aggregation")?);
        let grouping = match before {
            Some(grouping) => Some(grouping),
            None => self.grouping()?,
        };
        let grouping = grouping.unwrap_or(Grouping::By(Vec::new()));
        self.part(Expr::Aggregate { how, grouping, of })
    }

    fn grouping(&mut self) -> Result<Option<Grouping>, Fault> {
        if self.take_word("by") {
            return self.label_list().map(Grouping::By).map(Some);
        }
        if self.take_word("without") {
            return self.label_list().map(Grouping::Without).map(Some);
        }
        Ok(None)
    }

    fn over(&mut self, function: Over, name: &str) -> Result<Expr, Fault> {
        self.expect("(")?;
        let offset = self.offset();
        let argument = self.operand(0)?;
        self.expect(")")?;
        match argument {
            Operand::Range(of, span_millis) => Ok(Expr::Over { function, of, span_millis }),
            Operand::Instant(_) => {
                let what = format!("{name}() takes a range, such as `requests_total[5m]`");
                Err(Fault { offset, what })
            }
        }
    }

    fn each(&mut self, function: Each, numbers: usize, name: &str) -> Result<Expr, Fault> {
        self.expect("(")?;
        let of = Box::new(self.argument(Kind::Vector, name)?);
        let mut arguments = Vec::new();
        for _ in 0..numbers {
            self.expect(",")?;
            arguments.push(self.argument(Kind::Number, name)?);
        }
        self.expect(")")?;
        Ok(Expr::Each { function, of, arguments })
    }

    fn only_argument(&mut self, kind: Kind, name: &str) -> Result<Expr, Fault> {
        self.expect("(")?;
        let argument = self.argument(kind, name)?;
        self.expect(")")?;
        Ok(argument)
    }

    fn argument(&mut self, kind: Kind, name: &str) -> Result<Expr, Fault> {
        let offset = self.offset();
        let argument = self.operand(0)?.instant(offset)?;
        if argument.kind() == kind {
            return Ok(argument);
        }
        let (wanted, found) = match kind {
            Kind::Number => ("a number", "a vector"),
            Kind::Vector => ("a vector", "a number"),
        };
        Err(Fault { offset, what: format!("{name} takes {wanted} here, not {found}") })
    }

    /// A selector, from the opening bracket on if it has one.
    fn selector(&mut self, name: Option<&str>) -> Result<Operand, Fault> {
        let offset = self.offset();
        let mut matchers = Vec::new();
        if let Some(name) = name {
            matchers.push(Matcher { label: NAME.into(), how: Match::Equal(name.into()) });
        }
        if let Some(Token::Sign("{")) = self.peek() {
            self.next += 1;
            while !self.take("}") {
                matchers.push(self.matcher()?);
                if !self.take(",") && !matches!(self.peek(), Some(Token::Sign("}"))) {
                    return Err(self.unexpected("`,` or `}`"));
                }
            }
        }
        if matchers.iter().all(|matcher| matcher.how.accepts("")) {
            let what = "a selector needs a name, or a matcher that refuses the empty text";
            return Err(Fault { offset, what: what.into() });
        }
        self.part(Expr::Select(Selector { matchers, offset_millis: 0 })).map(Operand::Instant)
    }

    fn matcher(&mut self) -> Result<Matcher, Fault> {
        let Some(Token::Word(label)) = self.peek().cloned() else {
            return Err(self.unexpected("the name of a label"));
        };
        self.next += 1;
        let sign = match self.peek() {
            Some(Token::Sign(sign @ ("=" | "!=" | "=~" | "!~"))) => *sign,
            _ => return Err(self.unexpected("`=`, `!=`, `=~` or `!~`")),
        };
        self.next += 1;
        let offset = self.offset();
        let Some(Token::Text(value)) = self.peek().cloned() else {
            return Err(self.unexpected("a text in quotes"));
        };
        self.next += 1;
        let pattern = || {
            let built =
                RegexBuilder::new(&format!("^(?:{value})$")).size_limit(PATTERN_LEN_MAX).build();
            let what = |_| format!("`{value}` is no regular expression, or too large a one");
            built.map_err(what).map_err(|what| Fault { offset, what })
        };
        let how = match sign {
            "=~" => Match::Like(pattern()?),
            "!~" => Match::NotLike(pattern()?),
            "!=" => Match::NotEqual(value),
            _ => Match::Equal(value),
        };
        Ok(Matcher { label, how })
    }

    fn label_list(&mut self) -> Result<Vec<String>, Fault> {
        self.expect("(")?;
        let mut labels = Vec::new();
        while !self.take(")") {
            let Some(Token::Word(label)) = self.peek().cloned() else {
                return Err(self.unexpected("the name of a label or `)`"));
            };
            labels.push(label);
            self.next += 1;
            if !self.take(",") && !matches!(self.peek(), Some(Token::Sign(")"))) {
                return Err(self.unexpected("`,` or `)`"));
            }
        }
        Ok(labels)
    }

    fn signed_millis(&mut self) -> Result<i64, Fault> {
        let is_negative = self.take("-");
        // Durations are bounded far below.
        let millis = i64::try_from(self.millis()?).unwrap_or(i64::MAX);
        Ok(if is_negative { -millis } else { millis })
    }

    fn millis(&mut self) -> Result<u64, Fault> {
        let Some(Token::Millis(millis @ 1..)) = self.peek() else {
            return Err(self.unexpected("a duration such as 5m"));
        };
        let millis = *millis;
        self.next += 1;
        Ok(millis)
    }

    /// Counts what is evaluated.
    fn part(&mut self, expr: Expr) -> Result<Expr, Fault> {
        self.parts += 1;
        if self.parts > PARTS_MAX {
            return Err(self.fault(format!("a query has at most {PARTS_MAX} parts")));
        }
        Ok(expr)
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|placed| &placed.token)
    }

    /// The word that comes next, in small letters.
    fn word(&self) -> Option<String> {
        match self.peek() {
            Some(Token::Word(word)) => Some(word.to_ascii_lowercase()),
            _ => None,
        }
    }

    fn take_word(&mut self, word: &str) -> bool {
        let is_there = self.word().as_deref() == Some(word);
        self.next += usize::from(is_there);
        is_there
    }

    fn take(&mut self, sign: &str) -> bool {
        let is_there = matches!(self.peek(), Some(Token::Sign(found)) if *found == sign);
        self.next += usize::from(is_there);
        is_there
    }

    fn expect(&mut self, sign: &str) -> Result<(), Fault> {
        if self.take(sign) { Ok(()) } else { Err(self.unexpected(&format!("`{sign}`"))) }
    }

    fn offset(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |placed| placed.offset)
    }

    fn fault(&self, what: String) -> Fault {
        Fault { offset: self.offset(), what }
    }

    fn unexpected(&self, wanted: &str) -> Fault {
        let found = match self.peek() {
            None => "the query ends".to_owned(),
            Some(Token::Word(word)) => format!("found `{word}`"),
            Some(Token::Number(value)) => format!("found {value}"),
            Some(Token::Millis(_)) => "found a duration".to_owned(),
            Some(Token::Text(_)) => "found a text".to_owned(),
            Some(Token::Sign(sign)) => format!("found `{sign}`"),
        };
        self.fault(format!("expected {wanted}; {found}"))
    }

    fn unsupported(&self, what: &str) -> Fault {
        self.fault(unsupported(what))
    }
}

/// Whether a word is an operator.
fn stands_between(word: &str) -> bool {
    matches!(word.to_ascii_lowercase().as_str(), "and" | "or" | "unless" | "atan2")
}

fn unsupported(what: &str) -> String {
    format!("{what} needs a Prometheus; the built-in scraper does not know it")
}
