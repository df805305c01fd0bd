//! Whether a query is PromQL, and if not, where it stops to be.
//!
//! A check of syntax and of the types that decide whether a query has one value
//! at a moment. It is not the evaluator: what Prometheus may have learnt since,
//! such as new functions, passes. The parsers that exist say that a query is
//! wrong, but not where; here the place is the point.

mod functions;
mod lex;

use functions::{
    AGGREGATIONS, KEEPS_SIGN, NEVER_NEGATIVE, OF_RANGES, OTHERS, WITH_ARGUMENT, has, names,
};
use lex::{Token, lex};

use super::words;

/// Calls and brackets within each other.
const DEPTH_MAX: u32 = 64;

/// What is wrong with a query, and at which octet of it.
#[derive(Debug, PartialEq)]
pub(crate) struct Fault {
    pub offset: usize,
    pub what: String,
    pub remedy: String,
}

/// What is known of the value of a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Meaning {
    kind: Kind,
    /// Certainly not below zero.
    pub never_negative: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Number,
    Vector,
    /// Samples over a span: `up[5m]`.
    Range,
    Text,
}

const COMPARISONS: &[&str] = &["==", "!=", "<=", "<", ">=", ">"];
const WORDS_BETWEEN: &[&str] = &["and", "or", "unless", "atan2"];

/// What a query means, or what is wrong with it.
pub(crate) fn check(query: &str) -> Result<Meaning, Fault> {
    let tokens = lex(query)?;
    let mut reader = Reader { tokens, at: 0, end: query.len(), depth: 0 };
    if reader.peek().is_none() {
        return reader.fault("the query is empty", "accepted: PromQL such as `sum(up)`");
    }
    let meaning = reader.expression()?;
    if reader.peek().is_some() {
        return reader.fault(
            format!("{} does not belong there", reader.describe()),
            "accepted: an operator such as `/` between two terms, or the end of the query",
        );
    }
    match meaning.kind {
        Kind::Range => Err(Fault {
            offset: 0,
            what: "the query has samples over a span, not one value".into(),
            remedy: "put a function such as `rate(…)` around it".into(),
        }),
        Kind::Text => Err(Fault {
            offset: 0,
            what: "the query is a text, not a number".into(),
            remedy: "accepted: PromQL such as `sum(up)`".into(),
        }),
        Kind::Number | Kind::Vector => Ok(meaning),
    }
}

/// What an operator does not go with. `numbers`: which of its sides are single
/// numbers, not series.
fn check_operator(operator: &str, truth: bool, numbers: [bool; 2]) -> Result<(), (String, String)> {
    let compares = COMPARISONS.contains(&operator);
    let (what, remedy) = match operator {
        _ if truth && !compares => ("`bool` does not go with", "drop `bool`"),
        "and" | "or" | "unless" if numbers.contains(&true) => {
            ("a number does not go with", "put `vector(…)` around the number")
        }
        _ if compares && !truth && numbers == [true, true] => {
            ("two numbers cannot be filtered by", "add `bool` behind it")
        }
        _ => return Ok(()),
    };
    Err((format!("{what} `{operator}`"), remedy.into()))
}

struct Reader<'a> {
    tokens: Vec<(usize, Token<'a>)>,
    at: usize,
    /// Octets of the query.
    end: usize,
    depth: u32,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).map(|(_, token)| *token)
    }

    fn offset(&self) -> usize {
        self.tokens.get(self.at).map_or(self.end, |(offset, _)| *offset)
    }

    fn describe(&self) -> String {
        match self.peek() {
            Some(token) => format!("`{token}`"),
            None => "the end of the query".into(),
        }
    }

    fn fault<T>(&self, what: impl Into<String>, remedy: impl Into<String>) -> Result<T, Fault> {
        Err(Fault { offset: self.offset(), what: what.into(), remedy: remedy.into() })
    }

    /// Takes this sign, if it is next.
    fn take(&mut self, sign: &str) -> bool {
        let found = self.peek() == Some(Token::Sign(sign));
        self.at += usize::from(found);
        found
    }

    fn demand(&mut self, sign: &str) -> Result<(), Fault> {
        if self.take(sign) {
            return Ok(());
        }
        self.fault(
            format!("{} stands where `{sign}` should", self.describe()),
            format!("accepted: `{sign}`"),
        )
    }

    /// Takes this word, however its letters are written, if it is next.
    fn take_word(&mut self, words: &[&str]) -> Option<String> {
        let Some(Token::Word(word)) = self.peek() else { return None };
        let lower = word.to_ascii_lowercase();
        words.contains(&lower.as_str()).then(|| {
            self.at += 1;
            lower
        })
    }

    fn expression(&mut self) -> Result<Meaning, Fault> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.fault(
                format!("more than {DEPTH_MAX} brackets lie within each other"),
                "accepted: a simpler query; a recording rule can hold parts of it",
            );
        }
        let start = self.offset();
        let mut meaning = self.term()?;
        loop {
            let operator_at = self.offset();
            let Some(operator) = self.operator() else { break };
            self.operands(start, meaning)?;
            let truth = self.modifiers()?;
            let right_at = self.offset();
            let right = self.term()?;
            self.operands(right_at, right)?;
            let numbers = [meaning, right].map(|side| side.kind == Kind::Number);
            check_operator(&operator, truth, numbers).map_err(|(what, remedy)| Fault {
                offset: operator_at,
                what,
                remedy,
            })?;
            meaning = Meaning {
                kind: if meaning.kind == Kind::Number && right.kind == Kind::Number {
                    Kind::Number
                } else {
                    Kind::Vector
                },
                // Precedence does not matter for this: one minus spoils all.
                never_negative: !matches!(operator.as_str(), "-" | "atan2")
                    && (truth || meaning.never_negative)
                    && (truth || right.never_negative),
            };
        }
        self.depth -= 1;
        Ok(meaning)
    }

    fn operator(&mut self) -> Option<String> {
        const SIGNS: [&str; 12] = ["+", "-", "*", "/", "%", "^", "==", "!=", "<=", "<", ">=", ">"];
        if let Some(Token::Sign(sign)) = self.peek()
            && SIGNS.contains(&sign)
        {
            self.at += 1;
            return Some(sign.to_owned());
        }
        self.take_word(WORDS_BETWEEN)
    }

    fn operands(&self, offset: usize, operand: Meaning) -> Result<(), Fault> {
        let what = match operand.kind {
            Kind::Range => "samples over a span cannot be reckoned with",
            Kind::Text => "a text cannot be reckoned with",
            Kind::Number | Kind::Vector => return Ok(()),
        };
        Err(Fault {
            offset,
            what: what.into(),
            remedy: "accepted: numbers, or a function such as `rate(…)` around a span".into(),
        })
    }

    /// What may follow an operator. Whether one of it is `bool`.
    fn modifiers(&mut self) -> Result<bool, Fault> {
        let mut truth = false;
        while let Some(word) =
            self.take_word(&["bool", "on", "ignoring", "group_left", "group_right"])
        {
            match word.as_str() {
                "bool" => truth = true,
                "on" | "ignoring" => self.labels()?,
                _ if self.peek() == Some(Token::Sign("(")) => self.labels()?,
                _ => {}
            }
        }
        Ok(truth)
    }

    /// `(a, b)`.
    fn labels(&mut self) -> Result<(), Fault> {
        self.demand("(")?;
        while !self.take(")") {
            match self.peek() {
                Some(Token::Word(_) | Token::Text(_)) => self.at += 1,
                _ => {
                    return self.fault(
                        format!("{} is not a label", self.describe()),
                        "accepted: names of labels, with `,` between them, and `)`",
                    );
                }
            }
            if !self.take(",") && self.peek() != Some(Token::Sign(")")) {
                return self.demand(")");
            }
        }
        Ok(())
    }

    fn term(&mut self) -> Result<Meaning, Fault> {
        let mut minus = false;
        while let Some(Token::Sign(sign @ ("-" | "+"))) = self.peek() {
            minus |= sign == "-";
            self.at += 1;
        }
        let mut meaning = self.primary()?;
        loop {
            let offset = self.offset();
            if self.take("[") {
                self.span()?;
                let sub = self.take(":");
                if sub && self.peek() != Some(Token::Sign("]")) {
                    self.span()?;
                }
                self.demand("]")?;
                if meaning.kind != Kind::Vector {
                    return Err(Fault {
                        offset,
                        what: "a span follows what has no samples".into(),
                        remedy: "accepted: a span behind a metric such as `up[5m]`".into(),
                    });
                }
                meaning.kind = Kind::Range;
            } else if self.take_word(&["offset"]).is_some() {
                let _ = self.take("-") || self.take("+");
                self.span()?;
            } else if self.take("@") {
                self.moment()?;
            } else {
                meaning.never_negative &= !minus;
                return Ok(meaning);
            }
        }
    }

    fn span(&mut self) -> Result<(), Fault> {
        match self.peek() {
            Some(Token::Number(text)) if lex::is_duration(text) || lex::is_number(text) => {
                self.at += 1;
                Ok(())
            }
            _ => self.fault(
                format!("{} is not a span of time", self.describe()),
                "accepted: a span such as `5m` or `1h30m`",
            ),
        }
    }

    /// What may follow `@`.
    fn moment(&mut self) -> Result<(), Fault> {
        if self.take_word(&["start", "end"]).is_some() {
            self.demand("(")?;
            return self.demand(")");
        }
        let _ = self.take("-") || self.take("+");
        self.span()
    }

    fn primary(&mut self) -> Result<Meaning, Fault> {
        let meaning = |kind, never_negative| Ok(Meaning { kind, never_negative });
        match self.peek() {
            Some(Token::Number(text)) if lex::is_number(text) || lex::is_duration(text) => {
                self.at += 1;
                meaning(Kind::Number, true)
            }
            Some(Token::Number(text)) => {
                self.fault(format!("`{text}` is not a number"), "accepted: a number such as `0.5`")
            }
            Some(Token::Text(_)) => {
                self.at += 1;
                meaning(Kind::Text, false)
            }
            Some(Token::Sign("(")) => {
                self.at += 1;
                let inner = self.expression()?;
                self.demand(")")?;
                Ok(inner)
            }
            Some(Token::Sign("{")) => {
                self.matchers(false)?;
                meaning(Kind::Vector, false)
            }
            Some(Token::Word(word)) => self.named(word),
            _ => self.fault(
                format!("{} stands where a value should", self.describe()),
                "accepted: a metric, a number, a function call, or brackets around them",
            ),
        }
    }

    fn named(&mut self, word: &'a str) -> Result<Meaning, Fault> {
        let lower = word.to_ascii_lowercase();
        let offset = self.offset();
        self.at += 1;
        let aggregates = has(AGGREGATIONS, &lower);
        if aggregates && self.grouping()? || self.peek() == Some(Token::Sign("(")) {
            return if aggregates { self.aggregation(&lower) } else { self.call(word, offset) };
        }
        if matches!(lower.as_str(), "inf" | "nan") {
            return Ok(Meaning { kind: Kind::Number, never_negative: lower == "inf" });
        }
        if WORDS_BETWEEN.contains(&lower.as_str()) {
            self.at -= 1;
            return self.fault(
                format!("`{word}` stands where a value should"),
                "accepted: a metric, a number, a function call, or brackets around them",
            );
        }
        if self.peek() == Some(Token::Sign("{")) {
            self.matchers(true)?;
        }
        // The name of a counter says that it is one.
        let counts = ["_total", "_count", "_bucket"].iter().any(|end| word.ends_with(end));
        Ok(Meaning { kind: Kind::Vector, never_negative: counts })
    }

    /// `by (a, b)` or `without (a, b)`.
    fn grouping(&mut self) -> Result<bool, Fault> {
        let grouped = self.take_word(&["by", "without"]).is_some();
        if grouped {
            self.labels()?;
        }
        Ok(grouped)
    }

    fn aggregation(&mut self, name: &str) -> Result<Meaning, Fault> {
        let start = self.offset();
        let arguments = self.arguments()?;
        self.grouping()?;
        let wanted = 1 + usize::from(has(WITH_ARGUMENT, name));
        if arguments.len() != wanted {
            return Err(Fault {
                offset: start,
                what: format!("`{name}` has {} arguments", arguments.len()),
                remedy: format!("accepted: {wanted}"),
            });
        }
        let (offset, last) = arguments[wanted - 1];
        if last.kind != Kind::Vector {
            return Err(Fault {
                offset,
                what: format!("`{name}` aggregates what is not a vector"),
                remedy: "accepted: a metric, or a function such as `rate(…)` of one".into(),
            });
        }
        let never_negative =
            matches!(name, "count" | "group" | "stddev" | "stdvar" | "count_values")
                || last.never_negative;
        Ok(Meaning { kind: Kind::Vector, never_negative })
    }

    fn call(&mut self, name: &str, offset: usize) -> Result<Meaning, Fault> {
        let known = || names(OF_RANGES).chain(names(OTHERS));
        let of_ranges = has(OF_RANGES, name);
        if !known().any(|function| function == name)
            && let Some(near) = words::nearest(name, known().chain(names(AGGREGATIONS)))
        {
            return Err(Fault {
                offset,
                what: format!("there is no function `{name}`"),
                remedy: format!("did you mean `{near}`?"),
            });
        }
        let arguments = self.arguments()?;
        if of_ranges && !arguments.iter().any(|(_, argument)| argument.kind == Kind::Range) {
            return Err(Fault {
                offset,
                what: format!("`{name}` is of samples over a span, and has none"),
                remedy: "add a span such as `[5m]` behind the metric".into(),
            });
        }
        let range = arguments.iter().find(|(_, argument)| argument.kind == Kind::Range);
        if let Some((offset, _)) = range
            && !of_ranges
            && has(OTHERS, name)
        {
            return Err(Fault {
                offset: *offset,
                what: format!("`{name}` is of values at a moment, not of samples over a span"),
                remedy: "drop the span, or put a function such as `rate(…)` around it".into(),
            });
        }
        let keeps = has(KEEPS_SIGN, name)
            && arguments.first().is_some_and(|(_, first)| first.never_negative);
        let kind = match name {
            "time" | "pi" | "scalar" => Kind::Number,
            _ => Kind::Vector,
        };
        Ok(Meaning { kind, never_negative: keeps || has(NEVER_NEGATIVE, name) })
    }

    fn arguments(&mut self) -> Result<Vec<(usize, Meaning)>, Fault> {
        let mut arguments = Vec::new();
        self.demand("(")?;
        while !self.take(")") {
            let offset = self.offset();
            arguments.push((offset, self.expression()?));
            if !self.take(",") && self.peek() != Some(Token::Sign(")")) {
                return self.fault(
                    format!("{} stands where `,` or `)` should", self.describe()),
                    "accepted: `,` and another argument, or `)`",
                )?;
            }
        }
        Ok(arguments)
    }

    /// `{job="web", code=~"5.."}`.
    fn matchers(&mut self, has_name: bool) -> Result<(), Fault> {
        let start = self.offset();
        self.demand("{")?;
        let mut some = has_name;
        while !self.take("}") {
            let quoted = matches!(self.peek(), Some(Token::Text(_)));
            if !quoted && !matches!(self.peek(), Some(Token::Word(_))) {
                return self.fault(
                    format!("{} is not a label", self.describe()),
                    "accepted: matchers such as `job=\"web\"`, with `,` between them, and `}`",
                );
            }
            self.at += 1;
            some = true;
            let sign = ["=", "!=", "=~", "!~"].into_iter().find(|sign| self.take(sign));
            match (sign, self.peek()) {
                (Some(_), Some(Token::Text(_))) => self.at += 1,
                (Some(sign), _) => {
                    return self.fault(
                        format!("{} stands behind `{sign}`", self.describe()),
                        "accepted: a text in quotes",
                    );
                }
                // A metric whose name needs quotes.
                (None, _) if quoted => {}
                (None, _) => {
                    return self.fault(
                        format!("{} stands where a comparison should", self.describe()),
                        "accepted: `=`, `!=`, `=~` or `!~`",
                    );
                }
            }
            if !self.take(",") && self.peek() != Some(Token::Sign("}")) {
                return self.fault(
                    format!("{} stands where `,` or `}}` should", self.describe()),
                    "accepted: `,` and another matcher, or `}`",
                );
            }
        }
        if some {
            return Ok(());
        }
        Err(Fault {
            offset: start,
            what: "`{}` selects everything there is".into(),
            remedy: "accepted: the name of a metric, or a matcher such as `job=\"web\"`".into(),
        })
    }
}

#[cfg(test)]
mod tests;
