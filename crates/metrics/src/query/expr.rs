//! What a query consists of, once it is known that it can be evaluated.

use regex::Regex;

use crate::series::Labels;

#[derive(Clone, Debug)]
pub enum Expr {
    Number(f64),
    Select(Selector),
    /// A function of the samples of a span.
    Over {
        function: Over,
        of: Selector,
        span_millis: u64,
    },
    Aggregate {
        how: Aggregation,
        grouping: Grouping,
        of: Box<Expr>,
    },
    Negate(Box<Expr>),
    /// A function of each value alone.
    Each {
        function: Each,
        of: Box<Expr>,
        arguments: Vec<Expr>,
    },
    /// A number as a vector.
    Vector(Box<Expr>),
    /// A vector of one as a number.
    Scalar(Box<Expr>),
    Absent(Box<Expr>),
    /// The seconds since 1970.
    Time,
    /// `histogram_quantile(share, buckets)`.
    Quantile {
        share: Box<Expr>,
        of: Box<Expr>,
    },
    Binary(Box<Binary>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Number,
    Vector,
}

/// Which series, and how long ago.
#[derive(Clone, Debug)]
pub struct Selector {
    pub matchers: Vec<Matcher>,
    /// How far back; negative if forward.
    pub offset_millis: i64,
}

#[derive(Clone, Debug)]
pub struct Matcher {
    pub label: String,
    pub how: Match,
}

#[derive(Clone, Debug)]
pub enum Match {
    Equal(String),
    NotEqual(String),
    Like(Regex),
    NotLike(Regex),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    Rate,
    Irate,
    Increase,
    Delta,
    Avg,
    Max,
    Min,
    Sum,
    Count,
    Last,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregation {
    Sum,
    Avg,
    Min,
    Max,
    Count,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Each {
    Abs,
    Clamp,
    ClampMin,
    ClampMax,
    Ceil,
    Floor,
}

/// Which labels tell groups apart: of an aggregation, or of two vectors that
/// are matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grouping {
    By(Vec<String>),
    Without(Vec<String>),
}

#[derive(Clone, Debug)]
pub struct Binary {
    pub operator: Operator,
    pub left: Expr,
    pub right: Expr,
    /// A comparison gives 0 and 1 and filters nothing.
    pub is_bool: bool,
    /// `on` or `ignoring`.
    pub matching: Grouping,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Power,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    And,
    Or,
    Unless,
}

impl Expr {
    pub fn kind(&self) -> Kind {
        match self {
            Expr::Number(_) | Expr::Scalar(_) | Expr::Time => Kind::Number,
            Expr::Negate(of) => of.kind(),
            Expr::Binary(binary) => match (binary.left.kind(), binary.right.kind()) {
                (Kind::Number, Kind::Number) => Kind::Number,
                _ => Kind::Vector,
            },
            _ => Kind::Vector,
        }
    }
}

impl Selector {
    /// The name of the metric, if it must be one.
    pub fn name(&self) -> Option<&str> {
        self.matchers.iter().find_map(|matcher| match &matcher.how {
            Match::Equal(name) if matcher.label == crate::series::NAME => Some(name.as_str()),
            _ => None,
        })
    }

    pub fn matches(&self, labels: &Labels) -> bool {
        self.matchers.iter().all(|matcher| matcher.how.accepts(labels.get(&matcher.label)))
    }
}

impl Match {
    pub fn accepts(&self, value: &str) -> bool {
        match self {
            Match::Equal(wanted) => wanted == value,
            Match::NotEqual(unwanted) => unwanted != value,
            Match::Like(pattern) => pattern.is_match(value),
            Match::NotLike(pattern) => !pattern.is_match(value),
        }
    }
}

impl Over {
    pub fn named(name: &str) -> Option<Over> {
        Some(match name {
            "rate" => Over::Rate,
            "irate" => Over::Irate,
            "increase" => Over::Increase,
            "delta" => Over::Delta,
            "avg_over_time" => Over::Avg,
            "max_over_time" => Over::Max,
            "min_over_time" => Over::Min,
            "sum_over_time" => Over::Sum,
            "count_over_time" => Over::Count,
            "last_over_time" => Over::Last,
            _ => return None,
        })
    }
}

impl Aggregation {
    pub fn named(name: &str) -> Option<Aggregation> {
        Some(match name {
            "sum" => Aggregation::Sum,
            "avg" => Aggregation::Avg,
            "min" => Aggregation::Min,
            "max" => Aggregation::Max,
            "count" => Aggregation::Count,
            _ => return None,
        })
    }
}

impl Operator {
    pub fn is_comparison(self) -> bool {
        use Operator::*;
        matches!(self, Equal | NotEqual | Less | LessOrEqual | Greater | GreaterOrEqual)
    }

    /// Whether it is about which elements there are, not about their values.
    pub fn is_set(self) -> bool {
        matches!(self, Operator::And | Operator::Or | Operator::Unless)
    }

    /// The number of an arithmetic operator, or 1 and 0 for true and false.
    pub fn apply(self, left: f64, right: f64) -> f64 {
        match self {
            Operator::Add => left + right,
            Operator::Subtract => left - right,
            Operator::Multiply => left * right,
            Operator::Divide => left / right,
            Operator::Modulo => left % right,
            Operator::Power => left.powf(right),
            comparison => f64::from(u8::from(comparison.holds(left, right))),
        }
    }

    pub fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Operator::Equal => left == right,
            Operator::NotEqual => left != right,
            Operator::Less => left < right,
            Operator::LessOrEqual => left <= right,
            Operator::Greater => left > right,
            Operator::GreaterOrEqual => left >= right,
            _ => false,
        }
    }
}
