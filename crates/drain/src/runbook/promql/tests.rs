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
        "a and 1 + b",
        "a unless -1 * b",
    ] {
        assert!(analyse(query).is_ok(), "{query}: {:?}", analyse(query));
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
        ("rate(x)[5m]", 0, "`rate` is of samples over a span"),
        ("sum(x)[5m]", 6, "a span follows what is computed"),
        ("(x) offset 5m", 4, "`offset` follows what is not a selector"),
        ("sum(x) @ 5", 7, "`@` follows what is not a selector"),
        ("abs(1)", 4, "argument 1 of `abs` is a number"),
        ("vector(up)", 7, "argument 1 of `vector` is a vector"),
        ("clamp_min(up)", 0, "`clamp_min` has 1 arguments"),
        ("quantile(\"a\", up)", 9, "argument 1 of `quantile` is a text"),
        ("up + on(a) 1", 3, "a number has no labels to be matched by `+`"),
        ("1 == 1", 2, "two numbers cannot be filtered by `==`"),
        ("sum by dc (up)", 7, "`dc` stands where `(` should"),
        ("sum by (1) (up)", 8, "`1` is not a label"),
    ] {
        let fault = analyse(query).expect_err(query);
        assert_eq!(fault.offset, offset, "{query}: {fault:?}");
        assert!(fault.what.starts_with(what), "{query}: {fault:?}");
        assert!(!fault.remedy.is_empty());
    }
    assert!(analyse(&"(".repeat(8000)).is_err());
    assert!(analyse(&"2 ^ ".repeat(2000)).is_err());
    assert!(analyse(&("a + ".repeat(127) + "a")).is_ok());
    assert!(analyse(&("-".repeat(8000) + "a")).is_ok());
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
        ("2 - 1", true),
        ("clamp_min(temperature, 0) + 1", true),
        ("temperature > 0", true),
        ("-a_total * -b_total", true),
    ] {
        assert_eq!(analyse(query).map(|analysis| analysis.never_negative), Ok(expected), "{query}");
    }
}

/// `text window`, with `past` and `optional` where they are so.
fn selectors(query: &str) -> Vec<String> {
    let analysis = analyse(query).unwrap_or_else(|fault| panic!("{query}: {fault}"));
    let shown = |selector: &Selector| {
        let mut shown = format!("{} {}", selector.text, selector.window.0 / 1000);
        shown += if selector.past { " past" } else { "" };
        shown + if selector.optional { " optional" } else { "" }
    };
    analysis.selectors.iter().map(shown).collect()
}

#[test]
fn selectors_have_the_longest_window_their_samples_lie_in() {
    for (query, expected) in [
        ("up", vec!["up 0"]),
        ("1 + time()", vec![]),
        ("rate(a_total[5m])", vec!["a_total 300"]),
        ("max_over_time(rate(a_total[5m])[1h:1m])", vec!["a_total 3960"]),
        ("max_over_time(sum(a + rate(b[1m]))[1h30m:])", vec!["a 5460", "b 5520"]),
        ("min_over_time(max_over_time(a[1h:])[1d:1h])", vec!["a 93660"]),
        ("rate(a[300])", vec!["a 300"]),
        (
            "sum(rate(a{code=~\"5..\"}[5m])) / sum(rate(a{}[1m] ) + rate(a[10m]))",
            vec!["a{code=~\"5..\"} 300", "a 600"],
        ),
        ("a{ x = \"1\" , y!='2', } - a{x=\"1\",y!='2'}", vec!["a{x=\"1\",y!='2'} 0"]),
        (
            "{__name__=\"a\"} * {\"a metric\", b=\"c\"}",
            vec!["{__name__=\"a\"} 0", "{\"a metric\",b=\"c\"} 0"],
        ),
        // What is compared with is not what is judged.
        ("a offset 1w", vec!["a 0 past"]),
        ("rate(a[5m]) / rate(a[1h] offset 1w)", vec!["a 300"]),
        ("rate(a[1h] offset 1w) / rate(a[5m])", vec!["a 300"]),
        ("a offset -5m", vec!["a 0"]),
        ("max_over_time((a offset 5m)[1h:] offset -5m)", vec!["a 3660"]),
        ("a @ 1609746000 + b @ end()", vec!["a 0 past", "b 0 past"]),
        ("max_over_time(rate(a[5m])[1h:] @ start())", vec!["a 3960 past"]),
        ("absent(up) or a > b", vec!["up 0 optional", "a 0 optional", "b 0 optional"]),
        ("a unless b + a", vec!["a 0", "b 0 optional"]),
        ("a and absent_over_time(b[5m])", vec!["a 0", "b 300 optional"]),
        ("label_replace(a, \"b\", \"c\", \"d\", \"e\")", vec!["a 0"]),
        ("quantile_over_time(0.5, a[5m])", vec!["a 300"]),
    ] {
        assert_eq!(selectors(query), expected, "{query}");
    }
}

#[test]
fn a_selector_is_a_query_by_itself() {
    for query in ["sum(rate(a{x=\"1\", y!~'[0-9]+',}[5m] offset 1h))", "{\"a b\", `c`=\"d\"}"] {
        for selector in analyse(query).expect(query).selectors {
            let timestamp = format!("timestamp({})", selector.text);
            assert!(analyse(&timestamp).is_ok(), "{timestamp}");
        }
    }
}

#[test]
fn divisions_by_what_may_be_zero_are_found() {
    use WhenZero::*;
    for (query, expected) in [
        ("a / 100", vec![]),
        ("a / (2 - 3)", vec![]),
        ("a / (1 - 1)", vec![("(1 - 1)", NotANumber)]),
        ("a / b", vec![("b", NotANumber)]),
        ("a % b", vec![("b", NotANumber)]),
        ("1 / b", vec![("b", Infinite)]),
        ("1 % b", vec![("b", NotANumber)]),
        ("sum(rate(a[5m])) / sum(rate(b[5m]))", vec![("sum(rate(b[5m]))", NotANumber)]),
        ("a / b * 100 + c", vec![("b", NotANumber)]),
        ("a / (b * 100 + c)", vec![("(b * 100 + c)", NotANumber)]),
        ("a / b ^ 2 / c", vec![("b ^ 2", NotANumber), ("c", NotANumber)]),
        ("a / -b", vec![("-b", NotANumber)]),
        ("a / on(dc) group_left() b", vec![("b", NotANumber)]),
        ("a / b offset 5m", vec![("b offset 5m", NotANumber)]),
        ("rate(a[5m]) / rate(b[5m] offset 1w) - 1", vec![("rate(b[5m] offset 1w)", NotANumber)]),
        // The denominator is never 0.
        ("a / clamp_min(b, 0.001)", vec![("clamp_min(b, 0.001)", Value)]),
        ("a / clamp_min(b, 0)", vec![("clamp_min(b, 0)", NotANumber)]),
        ("a / clamp(b, 1, 5)", vec![("clamp(b, 1, 5)", Value)]),
        ("a / clamp_max(b, 5)", vec![("clamp_max(b, 5)", NotANumber)]),
        ("a / (b + 1)", vec![("(b + 1)", Value)]),
        ("a / (sum(b) + 1e-9)", vec![("(sum(b) + 1e-9)", Value)]),
        ("a / (b - 1)", vec![("(b - 1)", NotANumber)]),
        ("a / (b - c + 1)", vec![("(b - c + 1)", NotANumber)]),
        ("a / (delta(b[5m]) + 1)", vec![("(delta(b[5m]) + 1)", NotANumber)]),
        ("a / b + 1", vec![("b", NotANumber)]),
        ("a / count(b)", vec![("count(b)", Value)]),
        ("a / sum(count(b) * 2)", vec![("sum(count(b) * 2)", Value)]),
        ("a / (sum(b) or vector(1))", vec![("(sum(b) or vector(1))", NotANumber)]),
        ("a / (sum(b) > 0 or vector(1))", vec![("(sum(b) > 0 or vector(1))", Value)]),
        ("a / (b > bool 0)", vec![("(b > bool 0)", NotANumber)]),
        ("a / exp(b)", vec![("exp(b)", Value)]),
        ("a / floor(clamp_min(b, 0.5))", vec![("floor(clamp_min(b, 0.5))", NotANumber)]),
        ("a / ceil(clamp_min(b, 0.5))", vec![("ceil(clamp_min(b, 0.5))", Value)]),
        // Where it is 0, there is no element; that needs a value from elsewhere.
        ("a / (b > 0)", vec![("(b > 0)", Nothing)]),
        ("a / (0 < b)", vec![("(0 < b)", Nothing)]),
        ("a / (b != 0)", vec![("(b != 0)", Nothing)]),
        ("a / (b >= 0)", vec![("(b >= 0)", NotANumber)]),
        ("a / sum(b > 0)", vec![("sum(b > 0)", Nothing)]),
        ("a / (b > 0) or vector(0)", vec![("(b > 0)", Value)]),
        ("sum(a / (b > 0)) or vector(0)", vec![("(b > 0)", Value)]),
        ("vector(0) or a / (b > 0)", vec![("(b > 0)", Nothing)]),
        // NaN is a value, unless a comparison drops it.
        ("a / b or vector(0)", vec![("b", NotANumber)]),
        ("a / b > 0", vec![("b", Nothing)]),
        ("a / b >= 0 or vector(0)", vec![("b", Value)]),
        ("a / b != 1 or vector(0)", vec![("b", NotANumber)]),
        ("(a / b or vector(0)) > 0", vec![("b", Nothing)]),
        ("a / b > bool 0 or vector(0)", vec![("b", NotANumber)]),
    ] {
        let analysis = analyse(query).unwrap_or_else(|fault| panic!("{query}: {fault}"));
        let found: Vec<(&str, WhenZero)> = analysis
            .divisions
            .iter()
            .map(|division| (division.denominator.as_str(), division.when_zero))
            .collect();
        assert_eq!(found, expected, "{query}");
        for division in &analysis.divisions {
            assert_eq!(&query[division.denominator_at.clone()], division.denominator);
            assert!(matches!(&query[division.offset..][..1], "/" | "%"), "{query}");
        }
    }
}

/// `offset what` of each part that is not exact.
fn inexact(query: &str) -> Vec<String> {
    let analysis = analyse(query).unwrap_or_else(|fault| panic!("{query}: {fault}"));
    analysis.inexact.iter().map(|fault| format!("{} {}", fault.offset, fault.what)).collect()
}

#[test]
fn a_query_is_exact_if_all_of_its_parts_are_known_to_be() {
    for query in [
        "lag",
        "lag{dc=\"west\"}",
        "{__name__=\"lag\"}",
        "(max(lag))",
        "sum by (shard) (lag)",
        "max(lag) without (pod)",
        "MAX(lag)",
        "abs(lag)",
        "max(max_over_time(lag[30s]))",
        "sum(written) - on() sum(applied)",
        "sum(offset_bytes{role=\"primary\"}) - sum(offset_bytes{role=\"replica\"})",
        "abs(sum(a) - sum(b)) + max(c)",
        "max(lag) + sum(queued)",
        "+lag",
        "-sum(a) + sum(b)",
        "-(sum(applied) - sum(written))",
        "max(-sum(applied) + sum(written))",
        "(sum(written) - sum(applied)) / 1024",
        "lag * 1000",
        "1e3 * lag / (60 * 60)",
        "lag / 0x10",
    ] {
        assert_eq!(inexact(query), [""; 0], "{query}");
    }
}

#[test]
fn what_can_make_zero_of_something_is_found_where_it_is() {
    for (query, expected) in [
        ("lag == 0", vec!["4 `==` can hide what is missing"]),
        ("max(lag > bool 100000)", vec!["8 `>` can hide what is missing"]),
        ("vector(0)", vec!["0 `vector` can hide what is missing"]),
        (
            "time() - time()",
            vec!["0 `time` can hide what is missing", "9 `time` can hide what is missing"],
        ),
        ("0", vec!["0 it reads no metric"]),
        ("min(lag)", vec!["0 `min` can hide what is missing"]),
        ("MIN(lag)", vec!["0 `min` can hide what is missing"]),
        ("avg(lag)", vec!["0 `avg` can hide what is missing"]),
        (
            "count(lag) - count(lag)",
            vec![
                "0 `count` can hide what is missing",
                "11 `lag` is on both sides of `-`",
                "13 `count` can hide what is missing",
            ],
        ),
        ("clamp_min(lag, 0)", vec!["0 `clamp_min` can hide what is missing"]),
        ("clamp_max(lag, 0)", vec!["0 `clamp_max` can hide what is missing"]),
        ("floor(lag / 1024)", vec!["0 `floor` can hide what is missing"]),
        ("quantile(0.5, lag)", vec!["0 `quantile` can hide what is missing"]),
        ("delta(lag[4s])", vec!["0 `delta` can hide what is missing"]),
        ("min_over_time(lag[10s])", vec!["0 `min_over_time` can hide what is missing"]),
        ("topk(1, lag)", vec!["0 `topk` can hide what is missing"]),
        ("scalar(lag) + a", vec!["0 `scalar` can hide what is missing"]),
        ("of_the_future(lag)", vec!["0 `of_the_future` can hide what is missing"]),
        (
            "min(up) - 1",
            vec!["0 `min` can hide what is missing", "10 `1` is no metric: so much may be missing"],
        ),
        ("lag - 5000", vec!["6 `5000` is no metric: so much may be missing"]),
        ("0 - lag", vec!["0 `0` is no metric: so much may be missing"]),
        ("lag * 0", vec!["6 `0` is no number from 1e-12 to 1e12"]),
        ("lag * (1 - 1)", vec!["6 `(1 - 1)` is no number from 1e-12 to 1e12"]),
        ("lag * -1", vec!["6 `-1` is no number from 1e-12 to 1e12"]),
        ("lag / Inf", vec!["6 `Inf` is no number from 1e-12 to 1e12"]),
        ("lag * 1e-300", vec!["6 `1e-300` is no number from 1e-12 to 1e12"]),
        (
            "max(lag * 1e-7) * 1e-7",
            vec!["18 all factors together, with `1e-7`, are not from 1e-12 to 1e12"],
        ),
        (
            "(sum(lag) * 1e7 + sum(gap)) / 1e-7",
            vec!["30 all factors together, with `1e-7`, are not from 1e-12 to 1e12"],
        ),
        ("lag * a", vec!["4 `*` is not by a number, and can hide what is missing"]),
        ("1 / lag", vec!["2 `/` is not by a number, and can hide what is missing"]),
        ("lag % 1024", vec!["4 `%` can hide what is missing"]),
        ("lag ^ 0", vec!["4 `^` can hide what is missing"]),
        ("lag and up", vec!["4 `and` can hide what is missing"]),
        ("lag unless up", vec!["4 `unless` can hide what is missing"]),
        (
            "lag or vector(0)",
            vec!["4 `or` can hide what is missing", "7 `vector` can hide what is missing"],
        ),
        ("max(lag offset 5m)", vec!["8 `offset` is of another time"]),
        ("lag offset -5m", vec!["4 `offset` is of another time"]),
        ("lag @ end()", vec!["4 `@` is of another time"]),
        ("max_over_time(lag[5m:1m])", vec!["17 a subquery may pass over the newest samples"]),
        ("lag - lag", vec!["4 `lag` is on both sides of `-`"]),
        (
            "sum(lag{}) - max(lag)",
            vec![
                "11 `lag` is on both sides of `-`",
                "13 `max` behind a `-` is the least that is missing",
            ],
        ),
        ("(sum(a) - sum(b)) + (sum(b) - sum(a))", vec!["18 `a` is on both sides of `+`"]),
        // A shard whose replica is not measured has no partner, and no say.
        (
            "max(written - on(shard) applied)",
            vec![
                "12 `-` passes over a series without a partner on the other side, unless it is \
                 between `sum` of all",
            ],
        ),
        (
            "max(lag + queued)",
            vec![
                "8 `+` passes over a series without a partner on the other side, unless it is \
                 between `sum` or `max` of all",
            ],
        ),
        (
            "sum by (shard) (written) - sum(applied) by (shard)",
            vec![
                "25 `-` passes over a series without a partner on the other side, unless it is \
                 between `sum` of all",
            ],
        ),
        // That of one shard, and that of another.
        (
            "max(written) - sum(applied)",
            vec![
                "13 `-` passes over a series without a partner on the other side, unless it is \
                 between `sum` of all",
            ],
        ),
        // The least, in another form.
        ("max(-lag)", vec!["0 `max` of what has a `-` before it is the least"]),
        ("-max(lag)", vec!["1 `max` behind a `-` is the least that is missing"]),
        ("sum(a) - max(b)", vec!["9 `max` behind a `-` is the least that is missing"]),
        (
            "sum(a) - sum(max_over_time(b[5s]))",
            vec!["13 `max_over_time` behind a `-` is the least that is missing"],
        ),
    ] {
        assert_eq!(inexact(query), expected, "{query}");
        assert!(
            analyse(query)
                .is_ok_and(|analysis| { analysis.inexact.is_sorted_by_key(|fault| fault.offset) })
        );
    }
}

/// A query of 80 kB held a whole server for half a minute.
#[test]
fn a_query_without_end_is_refused_before_it_is_read() {
    let long = vec!["a"; 4097].join("+");
    let fault = analyse(&long).unwrap_err();
    assert_eq!((fault.offset, fault.what.as_str()), (8192, "the query has 8193 bytes"));
    assert_eq!(analyse(&vec!["é"; 5000].join("")).unwrap_err().offset, 8192);
    let many = vec!["a"; 129].join("+");
    let fault = analyse(&many).unwrap_err();
    assert_eq!(fault.what, "the query has more than 256 parts");
    assert_eq!(&many[fault.offset..], "+a");
    assert!(analyse(&vec!["a"; 128].join("+")).is_ok());
    let numbers = format!("label_join(a, {})", vec!["'x'"; 300].join(","));
    assert!(analyse(&numbers).is_ok(), "{:?}", analyse(&numbers));
}

proptest! {
    #[test]
    fn nothing_panics(text in ".{0,80}", query in "[a-z0-9(){}\\[\\],=~\"'+*/ :@.-]{0,60}") {
        for text in [text, query] {
            if let Err(fault) = analyse(&text) {
                prop_assert!(fault.offset <= text.len() && text.is_char_boundary(fault.offset));
            }
        }
    }
}
