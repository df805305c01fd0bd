use super::*;
use proptest::prelude::*;

/// With brackets everywhere, to see what binds.
fn shown(expr: &Expr) -> String {
    match expr {
        Expr::Number(value) => value.to_string(),
        Expr::Select(selector) => selector.name().unwrap_or("?").to_owned(),
        Expr::Negate(of) => format!("-{}", shown(of)),
        Expr::Binary(binary) => {
            let operator = format!("{:?}", binary.operator);
            format!("({} {operator} {})", shown(&binary.left), shown(&binary.right))
        }
        other => format!("{other:?}"),
    }
}

#[track_caller]
fn check(query: &str, expected: &str) {
    assert_eq!(parse(query).map(|expr| shown(&expr)).unwrap(), expected, "{query}");
}

#[test]
fn operators_bind_as_in_prometheus() {
    check("a + b * c", "(a Add (b Multiply c))");
    check("a - b - c", "((a Subtract b) Subtract c)");
    check("a ^ b ^ c", "(a Power (b Power c))");
    check("-a ^ b", "-(a Power b)");
    check("-a * b", "(-a Multiply b)");
    check("a * -b + c", "((a Multiply -b) Add c)");
    check("a / b > c + 1", "((a Divide b) Greater (c Add 1))");
    check("-1 ^ 2", "-(1 Power 2)");
    check("2 ^ -1", "(2 Power -1)");
    check("a or b and c > d", "(a Or (b And (c Greater d)))");
    check("a and b or c unless d", "((a And b) Or (c Unless d))");
    check("(a + b) * c", "((a Add b) Multiply c)");
    check("sum", "sum");
    check("by + rate", "(by Add rate)");
}

#[track_caller]
fn refuse(query: &str, expected: &str) {
    assert_eq!(parse(query).unwrap_err().to_string(), expected, "{query}");
}

#[test]
fn what_is_not_known_is_named() {
    let unknown = |at: usize, what: &str| {
        format!("at {at}: {what} needs a Prometheus; the built-in scraper does not know it")
    };
    refuse("holt_winters(a, 0.1, 0.1)", &unknown(1, "holt_winters"));
    refuse("1 + topk(3, a)", &unknown(5, "topk"));
    refuse("a atan2 b", &unknown(3, "atan2"));
    refuse("1 or a", "at 3: and, or and unless join two vectors; one side here is a number");
    refuse("a / on(x) group_left b", &unknown(11, "group_left"));
    refuse("max_over_time(a[5m:1m])", &unknown(16, "a subquery"));
    refuse("a @ 5", &unknown(3, "@"));
    refuse("\"text\"", &unknown(1, "a text"));
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    refuse("", "at 1: expected a selector, a number, a function or `(`; the query ends");
    refuse("a +", "at 4: expected a selector, a number, a function or `(`; the query ends");
    refuse("rate(a)", "at 6: rate() takes a range, such as `requests_total[5m]`");
    refuse("a[5m]", "at 1: a range has no single value; apply a function such as rate() to it");
    refuse("a b", "at 3: expected an operator or the end; found `b`");
    refuse("1 < 2", "at 3: a comparison of two numbers needs bool: `1 < bool 2`");
    refuse("1 + on(a) b", "at 3: on and ignoring match two vectors; one side here is a number");
    refuse("sum(1)", "at 5: an aggregation takes a vector here, not a number");
    refuse("vector(a)", "at 8: vector takes a number here, not a vector");
    refuse(
        "{a=~\".*\"}",
        "at 1: a selector needs a name, or a matcher that refuses the empty text",
    );
    refuse("{a=~\"(\"}", "at 5: `(` is no regular expression, or too large a one");
    refuse("a{b=1}", "at 5: expected a text in quotes; found 1");
    refuse("(a) offset 5m", "at 1: offset belongs behind a selector, once");
    refuse("a offset 5m offset 1m", "at 1: offset belongs behind a selector, once");
    refuse("rate((a)[5m])", "at 9: a range belongs right behind a selector");
    refuse("a + bool b", "at 3: bool is for comparisons");
    refuse("rate(a[0s])", "at 8: expected a duration such as 5m; found a duration");
}

#[test]
fn nothing_is_nested_without_end() {
    let deep = format!("{}a", "(".repeat(4000));
    assert!(parse(&deep).unwrap_err().what.contains("within each other"));
    let signs = format!("{}a", "-".repeat(4000));
    assert!(parse(&signs).unwrap_err().what.contains("within each other"));
    let long = vec!["a"; 2000].join("+");
    assert_eq!(parse(&long).unwrap_err().what, "a query has at most 256 parts");
    let longer = vec!["a"; 9000].join("+");
    assert_eq!(parse(&longer).unwrap_err().what, "a query has at most 8192 octets");
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(query in ".{0,60}") {
        let _ = parse(&query);
    }

    #[test]
    fn nothing_near_a_query_does(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "a", "sum", "rate", "by", "(", ")", "[", "]", "5m", "1", "-", "+", "^", "<",
                "bool", "on", "{", "}", "=", "=~", "\"x\"", ",", "offset", "clamp", "absent",
                "scalar", "vector", ":", "@", "1e", "0x", "e-", "''", "µ",
            ]),
            0..24,
        ),
    ) {
        let _ = parse(&words.join(" "));
        let _ = parse(&words.concat());
    }
}
