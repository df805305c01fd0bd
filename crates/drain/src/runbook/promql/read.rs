//! Reads a query, and gathers what it is about on the way: what is known of each
//! part follows from its own parts, so no tree is kept.

use super::exact::Exactness;
use super::functions::{AGGREGATIONS, OF_RANGES, OTHERS, WITH_ARGUMENT, has, names};
use super::lex::{self, Token, lex};
use super::meaning::{Kind, Meaning, Operation, Selected, joined};
use super::values::Values;
use super::{Analysis, COMPARISONS, Fault, PARTS_MAX, QUERY_LEN_MAX};
use crate::runbook::words;
use crate::time::Millis;

/// Calls and brackets within each other.
const DEPTH_MAX: u32 = 64;

/// What helps with a query that is too large.
const SIMPLER: &str = "a recording rule can hold parts of it";

/// The step of a subquery that states none, as Prometheus evaluates rules by default.
const DEFAULT_STEP: Millis = Millis::from_secs(60);

const WORDS_BETWEEN: &[&str] = &["and", "or", "unless", "atan2"];

pub(super) fn read(query: &str) -> Result<Analysis, Fault> {
    check_length(query)?;
    let tokens = lex(query)?;
    let mut reader = Reader { query, tokens, at: 0, depth: 0, parts: 0 };
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
        Kind::Number | Kind::Vector => Ok(meaning.into_analysis(query)),
    }
}

/// Before anything is read: the time that takes must not be for others to choose.
fn check_length(query: &str) -> Result<(), Fault> {
    if query.len() <= QUERY_LEN_MAX {
        return Ok(());
    }
    Err(Fault {
        offset: query.floor_char_boundary(QUERY_LEN_MAX),
        what: format!("the query has {} bytes", query.len()),
        remedy: format!("accepted: up to {QUERY_LEN_MAX}; {SIMPLER}"),
    })
}

/// What an operator does not go with. `numbers`: which of its sides are single
/// numbers, not series.
fn check_operator(
    operator: &str,
    Modifiers { truth, matches }: Modifiers,
    numbers: [bool; 2],
) -> Result<(), (String, String)> {
    let compares = COMPARISONS.contains(&operator);
    let (what, remedy) = match operator {
        _ if truth && !compares => ("`bool` does not go with", "drop `bool`"),
        "and" | "or" | "unless" if numbers.contains(&true) => {
            ("a number does not go with", "put `vector(…)` around the number")
        }
        _ if matches && numbers.contains(&true) => {
            ("a number has no labels to be matched by", "drop `on` or `ignoring`")
        }
        _ if compares && !truth && numbers == [true, true] => {
            ("two numbers cannot be filtered by", "add `bool` behind it")
        }
        _ => return Ok(()),
    };
    Err((format!("{what} `{operator}`"), remedy.into()))
}

/// What a function takes.
struct Signature {
    takes: &'static [Kind],
    /// Arguments that it has at least.
    min: usize,
    /// The last kind may come any number of times.
    more: bool,
}

fn signature(function: &str) -> Signature {
    use Kind::{Number as N, Range as R, Text as T, Vector as V};
    let exactly = |takes: &'static [Kind]| Signature { takes, min: takes.len(), more: false };
    let at_least = |min, takes| Signature { takes, min, more: false };
    match function {
        "time" | "pi" => exactly(&[]),
        "vector" => exactly(&[N]),
        "hour" | "minute" | "month" | "year" | "day_of_month" | "day_of_week" | "day_of_year"
        | "days_in_month" => at_least(0, &[V]),
        "clamp" => exactly(&[V, N, N]),
        "clamp_min" | "clamp_max" => exactly(&[V, N]),
        "round" => at_least(1, &[V, N]),
        "histogram_quantile" => exactly(&[N, V]),
        "histogram_fraction" => exactly(&[N, N, V]),
        "quantile_over_time" => exactly(&[N, R]),
        "predict_linear" => exactly(&[R, N]),
        "holt_winters" | "double_exponential_smoothing" => exactly(&[R, N, N]),
        "label_replace" => exactly(&[V, T, T, T, T]),
        "label_join" => Signature { takes: &[V, T, T, T], min: 3, more: true },
        "sort_by_label" | "sort_by_label_desc" => Signature { takes: &[V, T], min: 1, more: true },
        "info" => at_least(1, &[V, V]),
        _ if has(OF_RANGES, function) => exactly(&[R]),
        _ => exactly(&[V]),
    }
}

fn exactness(name: &str, offset: usize, is_total: bool, arguments: &mut [Meaning]) -> Exactness {
    let arguments = arguments.iter_mut().map(|argument| std::mem::take(&mut argument.exactness));
    Exactness::called(name, offset, is_total, arguments)
}

fn described(kind: Kind) -> &'static str {
    match kind {
        Kind::Number => "a number",
        Kind::Vector => "a vector, such as a metric",
        Kind::Range => "samples over a span, such as `up[5m]`",
        Kind::Text => "a text in quotes",
    }
}

/// How strongly an operator binds.
fn precedence(operator: &str) -> u8 {
    match operator {
        "or" => 1,
        "and" | "unless" => 2,
        "+" | "-" => 4,
        "*" | "/" | "%" | "atan2" => 5,
        "^" => POWER,
        _ => 3,
    }
}

/// The strongest operator, and the only one that binds to the right. A sign
/// binds less: `-2 ^ 2` is -4.
const POWER: u8 = 6;

/// What follows an operator.
#[derive(Clone, Copy)]
struct Modifiers {
    /// `bool`.
    truth: bool,
    /// `on` or `ignoring` with labels.
    matches: bool,
}

struct Reader<'a> {
    query: &'a str,
    tokens: Vec<(usize, Token<'a>)>,
    at: usize,
    depth: u32,
    parts: u32,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).map(|(_, token)| *token)
    }

    fn offset(&self) -> usize {
        self.tokens.get(self.at).map_or(self.query.len(), |(offset, _)| *offset)
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

    /// Where the last token that was taken ends.
    fn end(&self) -> usize {
        let last = self.at.checked_sub(1).and_then(|at| self.tokens.get(at));
        last.map_or(0, |(offset, token)| offset + token.text().len())
    }

    fn expression(&mut self) -> Result<Meaning, Fault> {
        self.deeper(|reader| reader.operations(0))
    }

    fn deeper(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<Meaning, Fault>,
    ) -> Result<Meaning, Fault> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.fault(
                format!("more than {DEPTH_MAX} brackets lie within each other"),
                format!("accepted: a simpler query; {SIMPLER}"),
            );
        }
        let meaning = read(self)?;
        self.depth -= 1;
        Ok(meaning)
    }

    /// Counts one more number, selector, function or operator.
    fn part(&mut self, offset: usize) -> Result<(), Fault> {
        self.parts += 1;
        if self.parts <= PARTS_MAX {
            return Ok(());
        }
        Err(Fault {
            offset,
            what: format!("the query has more than {PARTS_MAX} parts"),
            remedy: format!(
                "accepted: up to {PARTS_MAX} numbers, selectors, functions and operators; {SIMPLER}"
            ),
        })
    }

    /// Terms with operators between them that bind at least so strongly.
    fn operations(&mut self, weakest: u8) -> Result<Meaning, Fault> {
        let mut left = self.signed()?;
        loop {
            let (offset, before) = (self.offset(), self.at);
            let Some(operator) = self.operator() else { return Ok(left) };
            let strength = precedence(&operator);
            if strength < weakest {
                self.at = before;
                return Ok(left);
            }
            self.operands(left.at.start, &left)?;
            let modifiers = self.modifiers()?;
            let right_at = self.offset();
            let right = match strength {
                POWER => self.deeper(|reader| reader.operations(POWER))?,
                _ => self.operations(strength + 1)?,
            };
            self.operands(right_at, &right)?;
            let numbers = [&left, &right].map(|side| side.kind == Kind::Number);
            check_operator(&operator, modifiers, numbers).map_err(|(what, remedy)| Fault {
                offset,
                what,
                remedy,
            })?;
            self.part(offset)?;
            let truth = modifiers.truth;
            left = joined(&Operation { offset, operator, truth }, self.query, left, right);
        }
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

    fn operands(&self, offset: usize, operand: &Meaning) -> Result<(), Fault> {
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

    /// What may follow an operator.
    fn modifiers(&mut self) -> Result<Modifiers, Fault> {
        let mut modifiers = Modifiers { truth: false, matches: false };
        while let Some(word) =
            self.take_word(&["bool", "on", "ignoring", "group_left", "group_right"])
        {
            match word.as_str() {
                "bool" => modifiers.truth = true,
                "on" | "ignoring" => {
                    let before = self.at;
                    self.labels()?;
                    // `on()` names no label, and Prometheus lets it pass.
                    modifiers.matches = self.at > before + 2;
                }
                _ if self.peek() == Some(Token::Sign("(")) => self.labels()?,
                _ => {}
            }
        }
        Ok(modifiers)
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

    /// A term with signs before it.
    fn signed(&mut self) -> Result<Meaning, Fault> {
        let start = self.offset();
        let (mut signs, mut minus) = (false, false);
        while let Some(Token::Sign(sign @ ("-" | "+"))) = self.peek() {
            (signs, minus) = (true, minus ^ (sign == "-"));
            self.at += 1;
        }
        if !signs {
            return self.term();
        }
        let operand_at = self.offset();
        let mut meaning = self.operations(POWER)?;
        self.operands(operand_at, &meaning)?;
        meaning.at.start = start;
        if minus {
            meaning.values = meaning.values.negated();
            meaning.exactness = meaning.exactness.negated();
        }
        Ok(meaning)
    }

    /// A value, and what may follow it: a range, `offset` and `@`.
    fn term(&mut self) -> Result<Meaning, Fault> {
        let mut meaning = self.primary()?;
        let is_selector = meaning.is_selector;
        let mut can_shift = is_selector;
        loop {
            let offset = self.offset();
            if self.take("[") {
                self.range(&mut meaning, offset, is_selector)?;
                can_shift = true;
            } else if self.take_word(&["offset"]).is_some() {
                self.check_shift(can_shift, offset, "offset")?;
                let backwards = !self.take("-");
                let _ = backwards && self.take("+");
                let length = self.span()?.0 as i64;
                for selected in &mut meaning.selected {
                    let shift = if backwards { length } else { -length };
                    selected.offset_millis = selected.offset_millis.saturating_add(shift);
                }
                meaning.exactness.fault(offset, "`offset` is of another time");
            } else if self.take("@") {
                self.check_shift(can_shift, offset, "@")?;
                self.moment()?;
                meaning.selected.iter_mut().for_each(|selected| selected.fixed = true);
                meaning.exactness.fault(offset, "`@` is of another time");
            } else {
                return Ok(meaning);
            }
            meaning.at.end = self.end();
        }
    }

    fn check_shift(&self, accepted: bool, offset: usize, what: &str) -> Result<(), Fault> {
        if accepted {
            return Ok(());
        }
        Err(Fault {
            offset,
            what: format!("`{what}` follows what is not a selector"),
            remedy: format!("put `{what}` right behind each metric, or behind its range"),
        })
    }

    /// What stands in `[5m]` or `[1h:1m]`.
    fn range(
        &mut self,
        meaning: &mut Meaning,
        offset: usize,
        is_selector: bool,
    ) -> Result<(), Fault> {
        let length = self.span()?;
        let sub = self.take(":");
        // Its points are at multiples of the step, so the oldest may be older by one.
        let step = match sub {
            true if self.peek() != Some(Token::Sign("]")) => self.span()?,
            true => DEFAULT_STEP,
            false => Millis::ZERO,
        };
        self.demand("]")?;
        let fault = |what: &str, remedy: &str| {
            Err(Fault { offset, what: what.into(), remedy: remedy.into() })
        };
        if meaning.kind != Kind::Vector {
            return fault(
                "a span follows what has no samples",
                "accepted: a span behind a metric such as `up[5m]`",
            );
        }
        if !sub && !is_selector {
            return fault(
                "a span follows what is computed",
                "accepted: a subquery such as `[5m:1m]`, or a span behind a metric",
            );
        }
        meaning.kind = Kind::Range;
        if sub {
            meaning.exactness.fault(offset, "a subquery may pass over the newest samples");
        }
        for selected in &mut meaning.selected {
            selected.window = selected.window + length + step;
            selected.sampled |= sub;
        }
        Ok(())
    }

    fn span(&mut self) -> Result<Millis, Fault> {
        let length = match self.peek() {
            Some(Token::Number(text)) => lex::millis(text),
            _ => None,
        };
        let Some(length) = length else {
            return self.fault(
                format!("{} is not a span of time", self.describe()),
                "accepted: a span such as `5m` or `1h30m`",
            );
        };
        self.at += 1;
        Ok(length)
    }

    /// What may follow `@`.
    fn moment(&mut self) -> Result<(), Fault> {
        if self.take_word(&["start", "end"]).is_some() {
            self.demand("(")?;
            return self.demand(")");
        }
        let _ = self.take("-") || self.take("+");
        self.span().map(drop)
    }

    fn primary(&mut self) -> Result<Meaning, Fault> {
        let start = self.offset();
        match self.peek() {
            Some(Token::Number(text)) => {
                let Some(value) = lex::number(text) else {
                    return self.fault(
                        format!("`{text}` is not a number"),
                        "accepted: a number such as `0.5`",
                    );
                };
                self.part(start)?;
                self.at += 1;
                Ok(Meaning::new(Kind::Number, Values::constant(value), start..self.end()))
            }
            Some(Token::Text(_)) => {
                self.at += 1;
                Ok(Meaning::new(Kind::Text, Values::ANY, start..self.end()))
            }
            Some(Token::Sign("(")) => {
                self.at += 1;
                let mut inner = self.expression()?;
                self.demand(")")?;
                (inner.at, inner.is_selector) = (start..self.end(), false);
                Ok(inner)
            }
            Some(Token::Sign("{")) => self.selector(None),
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
        let is_grouped = aggregates && self.grouping()?;
        if is_grouped || self.peek() == Some(Token::Sign("(")) {
            self.part(offset)?;
            return match aggregates {
                true => self.aggregation(&lower, offset, is_grouped),
                false => self.call(word, offset),
            };
        }
        if matches!(lower.as_str(), "inf" | "nan") {
            let value = if lower == "inf" { f64::INFINITY } else { f64::NAN };
            return Ok(Meaning::new(Kind::Number, Values::constant(value), offset..self.end()));
        }
        self.at -= 1;
        if WORDS_BETWEEN.contains(&lower.as_str()) {
            return self.fault(
                format!("`{word}` stands where a value should"),
                "accepted: a metric, a number, a function call, or brackets around them",
            );
        }
        self.selector(Some(word))
    }

    /// A metric, or matchers, or both.
    fn selector(&mut self, name: Option<&str>) -> Result<Meaning, Fault> {
        let start = self.offset();
        self.part(start)?;
        self.at += usize::from(name.is_some());
        let matchers = match self.peek() {
            Some(Token::Sign("{")) => self.matchers(name.is_some())?,
            _ => Vec::new(),
        };
        let mut text = name.unwrap_or_default().to_owned();
        if !matchers.is_empty() {
            text += &format!("{{{}}}", matchers.join(","));
        }
        // The name of a counter says that it is one.
        let counts = ["_total", "_count", "_bucket"]
            .iter()
            .any(|end| name.is_some_and(|name| name.ends_with(end)));
        let values = if counts { Values::NEVER_NEGATIVE } else { Values::ANY };
        let mut meaning = Meaning::new(Kind::Vector, values, start..self.end());
        meaning.is_selector = true;
        meaning.exactness = Exactness::of_selector();
        meaning.selected.push(Selected {
            text,
            window: Millis::ZERO,
            offset_millis: 0,
            fixed: false,
            optional: false,
            sampled: false,
        });
        Ok(meaning)
    }

    /// `by (a, b)` or `without (a, b)`.
    fn grouping(&mut self) -> Result<bool, Fault> {
        let grouped = self.take_word(&["by", "without"]).is_some();
        if grouped {
            self.labels()?;
        }
        Ok(grouped)
    }

    fn aggregation(
        &mut self,
        name: &str,
        offset: usize,
        is_grouped: bool,
    ) -> Result<Meaning, Fault> {
        let start = self.offset();
        let mut arguments = self.arguments()?;
        let is_grouped = self.grouping()? || is_grouped;
        let wanted = 1 + usize::from(has(WITH_ARGUMENT, name));
        if arguments.len() != wanted {
            return Err(Fault {
                offset: start,
                what: format!("`{name}` has {} arguments", arguments.len()),
                remedy: format!("accepted: {wanted}"),
            });
        }
        let last = &arguments[wanted - 1];
        let parameter = if name == "count_values" { Kind::Text } else { Kind::Number };
        if wanted == 2 && arguments[0].kind != parameter {
            return Err(Fault {
                offset: arguments[0].at.start,
                what: format!("argument 1 of `{name}` is {}", described(arguments[0].kind)),
                remedy: format!("accepted: {}", described(parameter)),
            });
        }
        if last.kind != Kind::Vector {
            return Err(Fault {
                offset: last.at.start,
                what: format!("`{name}` aggregates what is not a vector"),
                remedy: "accepted: a metric, or a function such as `rate(…)` of one".into(),
            });
        }
        let values = last.values.aggregated(name);
        let exactness = exactness(name, offset, !is_grouped, &mut arguments);
        let mut whole = Meaning::new(Kind::Vector, values, offset..self.end()).with(arguments);
        whole.exactness = exactness;
        Ok(whole)
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
        let mut arguments = self.arguments()?;
        let range = arguments.iter().find(|argument| argument.kind == Kind::Range);
        if of_ranges && range.is_none() {
            return Err(Fault {
                offset,
                what: format!("`{name}` is of samples over a span, and has none"),
                remedy: "add a span such as `[5m]` behind the metric".into(),
            });
        }
        if let Some(range) = range
            && !of_ranges
            && has(OTHERS, name)
        {
            return Err(Fault {
                offset: range.at.start,
                what: format!("`{name}` is of values at a moment, not of samples over a span"),
                remedy: "drop the span, or put a function such as `rate(…)` around it".into(),
            });
        }
        self.check_arguments(name, offset, &arguments)?;
        let values: Vec<Values> = arguments.iter().map(|argument| argument.values).collect();
        // What is computed is about the argument that has the samples.
        let subject = arguments.iter().position(|argument| argument.kind == Kind::Range);
        let values = Values::called(name, &values[subject.unwrap_or(0).min(values.len())..]);
        if matches!(name, "absent" | "absent_over_time") {
            arguments = arguments.into_iter().map(Meaning::made_optional).collect();
        }
        let kind = match name {
            "time" | "pi" | "scalar" => Kind::Number,
            _ => Kind::Vector,
        };
        let exactness = exactness(name, offset, false, &mut arguments);
        let mut whole = Meaning::new(kind, values, offset..self.end()).with(arguments);
        whole.exactness = exactness;
        Ok(whole)
    }

    /// Whether a function that is known has what it needs.
    fn check_arguments(
        &self,
        name: &str,
        offset: usize,
        arguments: &[Meaning],
    ) -> Result<(), Fault> {
        if !has(OF_RANGES, name) && !has(OTHERS, name) {
            return Ok(());
        }
        let Signature { takes, min, more } = signature(name);
        let max = if more { usize::MAX } else { takes.len() };
        if !(min..=max).contains(&arguments.len()) {
            let accepted = match (takes.len(), more) {
                (len, false) if len == min => format!("accepted: {min}"),
                (len, false) => format!("accepted: {min} to {len}"),
                (_, true) => format!("accepted: {min} or more"),
            };
            let what = format!("`{name}` has {} arguments", arguments.len());
            return Err(Fault { offset, what, remedy: accepted });
        }
        let last = takes.last().copied();
        for (at, argument) in arguments.iter().enumerate() {
            let Some(wanted) = takes.get(at).copied().or(last) else { continue };
            if argument.kind != wanted {
                return Err(Fault {
                    offset: argument.at.start,
                    what: format!(
                        "argument {} of `{name}` is {}",
                        at + 1,
                        described(argument.kind)
                    ),
                    remedy: format!("accepted: {}", described(wanted)),
                });
            }
        }
        Ok(())
    }

    fn arguments(&mut self) -> Result<Vec<Meaning>, Fault> {
        let mut arguments = Vec::new();
        self.demand("(")?;
        while !self.take(")") {
            arguments.push(self.expression()?);
            if !self.take(",") && self.peek() != Some(Token::Sign(")")) {
                return self.fault(
                    format!("{} stands where `,` or `)` should", self.describe()),
                    "accepted: `,` and another argument, or `)`",
                );
            }
        }
        Ok(arguments)
    }

    /// `{job="web", code=~"5.."}`.
    fn matchers(&mut self, has_name: bool) -> Result<Vec<String>, Fault> {
        let start = self.offset();
        self.demand("{")?;
        let mut matchers = Vec::new();
        while !self.take("}") {
            let quoted = matches!(self.peek(), Some(Token::Text(_)));
            if !quoted && !matches!(self.peek(), Some(Token::Word(_))) {
                return self.fault(
                    format!("{} is not a label", self.describe()),
                    "accepted: matchers such as `job=\"web\"`, with `,` between them, and `}`",
                );
            }
            let label = self.peek().map_or("", |token| token.text());
            self.at += 1;
            let sign = ["=", "!=", "=~", "!~"].into_iter().find(|sign| self.take(sign));
            match (sign, self.peek()) {
                (Some(sign), Some(Token::Text(text))) => {
                    matchers.push(format!("{label}{sign}{text}"));
                    self.at += 1;
                }
                (Some(sign), _) => {
                    return self.fault(
                        format!("{} stands behind `{sign}`", self.describe()),
                        "accepted: a text in quotes",
                    );
                }
                // A metric whose name needs quotes.
                (None, _) if quoted => matchers.push(label.to_owned()),
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
        if has_name || !matchers.is_empty() {
            return Ok(matchers);
        }
        Err(Fault {
            offset: start,
            what: "`{}` selects everything there is".into(),
            remedy: "accepted: the name of a metric, or a matcher such as `job=\"web\"`".into(),
        })
    }
}
