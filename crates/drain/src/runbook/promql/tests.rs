use proptest::prelude::*;

use super::*;

#[test]
fn queries_that_people_write_pass() {
    for query in [
        "up",
        "1 - 0.5e-3",
        "job:errors:rate5m",
        r#"up{job="web", dc!='east', code=~"5..",}"#,
        r#"{__name__="up"}"#,
        r#"{"a metric", job="web"}"#,
        r#"sum(rate(http_requests_total{code=~"5.."}[5m])) / sum(rate(http_requests_total[5m]))"#,
        "sum by (dc) (rate(errors_total[5m]))",
        "sum(rate(errors_total[1h30m])) without (instance,)",
        "SUM BY (dc) (up)",
        "histogram_quantile(0.99, sum(rate(latency_seconds_bucket[5m])) by (le))",
        "max_over_time(rate(x_total[1m])[1h:1m])",
        "max_over_time(up[1h:])",
        "x offset 5m - x offset -1d",
        "x @ 1609746000 + x @ start() - rate(x[5m] @ end() offset 1w)",
        "a / on(dc) group_left(zone) b",
        "a == bool 1 and on() b unless ignoring(x) c or d",
        "topk(3, up)",
        "quantile(0.9, up)",
        "count_values(\"version\", build_info)",
        "-(a + -b) ^ 2 % 3",
        "absent(up{job=\"x\"})",
        "label_replace(up, \"a\", \"$1\", \"b\", '(.*)')",
        "vector(1) > time() - 0x1F",
        "up # and a comment",
        "sum(up) or\n vector(0)",
        "Inf",
        "a_function_of_the_future(up[5m])",
        "rate(a[5m:1m] offset 1h)",
        "clamp_max(x, 5) atan2 y",
    ] {
        assert!(check(query).is_ok(), "{query}: {:?}", check(query));
    }
}

#[test]
fn what_is_wrong_is_found_where_it_is() {
    for (query, offset, what) in [
        ("", 0, "the query is empty"),
        ("sum(up", 6, "the end of the query stands where `,` or `)` should"),
        ("sum(up))", 7, "`)` does not belong there"),
        ("up up", 3, "`up` does not belong there"),
        ("a / / b", 4, "`/` stands where a value should"),
        ("rate(x_total)", 0, "`rate` is of samples over a span, and has none"),
        ("sum(x_total[5m])", 4, "`sum` aggregates what is not a vector"),
        ("abs(x[5m])", 4, "`abs` is of values at a moment"),
        ("x[5m]", 0, "the query has samples over a span"),
        ("x[5 m]", 4, "`m` stands where `]` should"),
        ("x[five]", 2, "`five` is not a span of time"),
        ("x[1m1h]", 2, "`1m1h` is not a span of time"),
        ("up{job=web}", 7, "`web` stands behind `=`"),
        ("up{job==\"web\"}", 6, "`==` stands where a comparison should"),
        ("up{job=\"web}", 7, "a text has no end"),
        ("up{job=\"web\"", 12, "the end of the query stands where `,` or `}` should"),
        ("{}", 0, "`{}` selects everything"),
        ("raet(x[5m])", 0, "there is no function `raet`"),
        ("sum(up, up)", 3, "`sum` has 2 arguments"),
        ("a & b", 2, "`&` is no sign"),
        ("x[5m] + 1", 0, "samples over a span cannot be reckoned with"),
        ("1 + \"a\"", 4, "a text cannot be reckoned with"),
        ("5x", 0, "`5x` is not a number"),
        ("1[5m]", 1, "a span follows what has no samples"),
        ("\"a\"", 0, "the query is a text"),
        ("a and", 5, "the end of the query stands where a value should"),
        ("a + bool b", 2, "`bool` does not go with `+`"),
        ("a and 1", 2, "a number does not go with `and`"),
        ("1 == 1", 2, "two numbers cannot be filtered by `==`"),
        ("sum by dc (up)", 7, "`dc` stands where `(` should"),
        ("sum by (1) (up)", 8, "`1` is not a label"),
    ] {
        let fault = check(query).expect_err(query);
        assert_eq!(fault.offset, offset, "{query}: {fault:?}");
        assert!(fault.what.starts_with(what), "{query}: {fault:?}");
        assert!(!fault.remedy.is_empty());
    }
    assert!(check(&"(".repeat(100_000)).is_err());
}

#[test]
fn what_cannot_be_negative_is_known_only_where_it_is_certain() {
    for (query, expected) in [
        ("sum(rate(errors_total[5m])) / sum(rate(all_total[5m]))", true),
        ("count(up)", true),
        ("errors_total", true),
        ("up", false),
        ("sum(rate(a_total[5m])) - 1", false),
        ("-count(up)", false),
        ("1 + 2 * (3 - 4)", false),
        ("delta(x[5m])", false),
        ("temperature == bool 5", true),
    ] {
        assert_eq!(check(query).map(|meaning| meaning.never_negative), Ok(expected), "{query}");
    }
}

proptest! {
    #[test]
    fn nothing_panics(text in ".{0,80}", query in "[a-z0-9(){}\\[\\],=~\"'+*/ :@.-]{0,60}") {
        for text in [text, query] {
            if let Err(fault) = check(&text) {
                prop_assert!(fault.offset <= text.len() && text.is_char_boundary(fault.offset));
            }
        }
    }
}
