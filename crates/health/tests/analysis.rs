//! What `drain::promql` says of a query, held against a real Prometheus: that
//! both accept the same queries, bind operators in the same way, and that what
//! is said of values is so.

mod common;

use common::RealPrometheus;
use drain::promql::{Analysis, WhenZero, analyse};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::Value;

const QUERIES: usize = 1500;

/// Queries over numbers, so that Prometheus knows their value without a target.
fn query() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        prop::sample::select(vec!["0", "1", "2", "0.5", "3"]).prop_map(str::to_owned),
        prop::sample::select(vec![
            "vector(0)",
            "vector(1)",
            "vector(-2)",
            "vector(0.25)",
            "nothing"
        ])
        .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(5, 24, 3, |inner| {
        let operator = prop::sample::select(vec![
            "+", "-", "*", "/", "/", "/", "%", "^", "==", "!=", "<=", "<", ">=", ">", "== bool",
            "> bool", "< bool", "and", "or", "or", "unless", "atan2", "/ on()", "+ ignoring(a)",
        ]);
        let function = prop::sample::select(vec![
            "", "-", "+", "abs", "ceil", "floor", "round", "sqrt", "exp", "scalar", "sum", "avg",
            "max", "count", "stddev", "sgn", "absent", "sort", "group", "vector",
        ]);
        let with_number = prop::sample::select(vec![
            "clamp_min", "clamp_max", "quantile", "topk",
        ]);
        let over = prop::sample::select(vec![
            "sum_over_time", "avg_over_time", "max_over_time", "count_over_time", "rate",
        ]);
        let after = prop::sample::select(vec!["[2m:1m]", "[1m:]", "[1m:1m] offset 1m", "[1m]"]);
        prop_oneof![
            6 => (inner.clone(), operator, inner.clone())
                .prop_map(|(left, operator, right)| format!("{left} {operator} {right}")),
            3 => (function, inner.clone()).prop_map(|(function, of)| match function {
                "-" | "+" => format!("{function}{of}"),
                _ => format!("{function}({of})"),
            }),
            1 => (with_number, inner.clone(), prop::sample::select(vec!["0", "0.5", "1"]))
                .prop_map(|(function, of, number)| match function {
                    "quantile" | "topk" => format!("{function}({number}, {of})"),
                    _ => format!("{function}({of}, {number})"),
                }),
            1 => (over, inner, after).prop_map(|(over, of, after)| format!("{over}(({of}){after})")),
        ]
    })
}

/// The values of a result; `None` if Prometheus could not evaluate it.
fn values(status: u16, answer: &Value) -> Option<Vec<f64>> {
    let number = |value: &Value| value[1].as_str().unwrap().parse::<f64>().unwrap();
    let data = &answer["data"];
    match (status, data["resultType"].as_str()) {
        (200, Some("scalar")) => Some(vec![number(&data["result"])]),
        (200, Some("vector")) => {
            let rows = data["result"].as_array().unwrap();
            Some(rows.iter().map(|row| number(&row["value"])).collect())
        }
        (422, _) => None,
        _ => panic!("{status} {answer}"),
    }
}

/// The query with brackets around every denominator.
fn bracketed(query: &str, analysis: &Analysis) -> String {
    let mut inserts: Vec<(usize, char)> = Vec::new();
    for division in &analysis.divisions {
        inserts.push((division.denominator_at.start, '('));
        inserts.push((division.denominator_at.end, ')'));
    }
    // From the end; at one place those of inner denominators are no matter.
    inserts.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    let mut text = query.to_owned();
    for (at, bracket) in inserts {
        text.insert(at, bracket);
    }
    text
}

fn same(ours: &Option<Vec<f64>>, theirs: &Option<Vec<f64>>) -> bool {
    let bits = |values: &Option<Vec<f64>>| {
        let bits = |value: &f64| if value.is_nan() { 0 } else { value.to_bits() };
        values.as_ref().map(|values| values.iter().map(bits).collect::<Vec<u64>>())
    };
    bits(ours) == bits(theirs)
}

#[test]
fn an_analysis_agrees_with_prometheus() {
    let Some(prometheus) = RealPrometheus::start(&[]) else { return };
    let at_secs = 1_700_000_000.0;
    let mut runner = TestRunner::deterministic();
    let (mut wrong, mut accepted, mut divided, mut positive) = (Vec::new(), 0, 0, 0);
    for _ in 0..QUERIES {
        let query = query().new_tree(&mut runner).unwrap().current();
        let (status, answer) = prometheus.query(&query, at_secs);
        let analysis = match analyse(&query) {
            Ok(analysis) => analysis,
            Err(fault) => {
                if status != 400 {
                    wrong.push(format!("{query}: we refuse it: {fault}"));
                }
                continue;
            }
        };
        if status == 400 {
            wrong.push(format!("{query}: we accept it: {answer}"));
            continue;
        }
        accepted += 1;
        let found = values(status, &answer);
        divided += usize::from(!analysis.divisions.is_empty());
        let again = bracketed(&query, &analysis);
        let (status, answer) = prometheus.query(&again, at_secs);
        if !same(&found, &values(status, &answer)) {
            wrong.push(format!("{query}: {found:?}, but {again}: {answer}"));
        }
        let Some(found) = found else { continue };
        positive += usize::from(analysis.never_negative && !found.is_empty());
        if analysis.never_negative && found.iter().any(|value| *value < 0.0) {
            wrong.push(format!("{query}: never negative, but {found:?}"));
        }
        let guarded = analysis
            .divisions
            .iter()
            .all(|division| matches!(division.when_zero, WhenZero::Value | WhenZero::Nothing));
        // Roots of negative numbers and numbers past all bounds are none either,
        // as is the value of a vector without elements.
        let other = ["^", "sqrt", "exp", "scalar"].iter().any(|word| query.contains(word));
        if guarded && !other && found.iter().any(|value| value.is_nan()) {
            wrong.push(format!("{query}: no division by 0, but {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    let counts = [accepted, divided, positive];
    assert!(counts.iter().all(|count| *count > QUERIES / 30), "{counts:?}");
}

#[test]
fn selectors_are_queries_for_prometheus() {
    let Some(prometheus) = RealPrometheus::start(&[]) else { return };
    for query in [
        r#"sum(rate(http_requests_total{code=~"5..",dc!='east',}[5m])) / sum(rate(a:b{}[5m]))"#,
        r#"max_over_time({__name__=~"a.*", b=`c`}[5m] offset 1h)"#,
        r#"a{b="\"}#x"} # a comment"#,
        "a{ # why\n b=\"c\" }",
    ] {
        assert_eq!(prometheus.query(query, 0.0).0, 200, "{query}");
        for selector in analyse(query).expect(query).selectors {
            let timestamp = format!("timestamp({})", selector.text);
            assert_eq!(prometheus.query(&timestamp, 0.0).0, 200, "{timestamp}");
        }
    }
}
