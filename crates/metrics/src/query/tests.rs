//! What queries give, over a few series. That it is what Prometheus gives is
//! shown by `tests/real.rs`.

use drain::{Millis, Time};

use super::*;
use crate::series::Bounds;

/// At each of these seconds there is a sample; the last one is now.
const SECONDS: [u64; 4] = [970, 980, 990, 1000];

fn labels(text: &str) -> Labels {
    let pairs =
        text.split_whitespace().map(|pair| pair.split_once('=').unwrap_or(("__name__", pair)));
    Labels::new(pairs.map(|(name, value)| (name.into(), value.into())).collect()).unwrap()
}

fn store() -> Store {
    let mut store = Store::new(Bounds::default());
    let series: [(&str, [f64; 4]); 7] = [
        ("load dc=a host=1", [1.0, 2.0, 3.0, 4.0]),
        ("load dc=a host=2", [2.0, 2.0, 2.0, 2.0]),
        ("load dc=b host=3", [9.0, 8.0, 7.0, 6.0]),
        ("cores dc=a host=1", [2.0; 4]),
        ("cores dc=b host=3", [4.0; 4]),
        ("hits_total dc=a", [100.0, 120.0, 140.0, 160.0]),
        ("hits_total dc=b", [30.0, 40.0, 0.0, 10.0]),
    ];
    for (name, values) in series {
        for (secs, value) in SECONDS.iter().zip(values) {
            store.append(&labels(name), Time(secs * 1000), value);
        }
    }
    store.append(&labels("gone"), Time(990_000), 1.0);
    store.end(&labels("gone"), Time(995_000));
    store
}

/// A result as text: `{dc="a"} 6` in order of labels, or a number alone.
fn shown(query: &str) -> String {
    let query = Query::parse(query).unwrap_or_else(|fault| panic!("{query}: {fault}"));
    match query.evaluate(&store(), Time(1_000_000)) {
        Ok(Outcome::Number(value)) => value.to_string(),
        Ok(Outcome::Vector(elements)) => {
            let show = |element: &Element| format!("{} {}", element.labels, element.value);
            let mut lines: Vec<String> = elements.iter().map(show).collect();
            lines.sort();
            lines.join("; ")
        }
        Err(why) => why,
    }
}

#[track_caller]
fn check(query: &str, expected: &str) {
    assert_eq!(shown(query), expected, "{query}");
}

#[test]
fn selectors() {
    check("cores", r#"cores{dc="a",host="1"} 2; cores{dc="b",host="3"} 4"#);
    check(r#"load{dc="a",host!="1"}"#, r#"load{dc="a",host="2"} 2"#);
    check(r#"{__name__=~"c.*",dc!~"a|x"}"#, r#"cores{dc="b",host="3"} 4"#);
    check(r#"load{dc="b"} offset 15s"#, r#"load{dc="b",host="3"} 8"#);
    check("gone", "");
    check("gone offset 6s", "gone 1");
    check("last_over_time(gone[1m])", "gone 1");
}

#[test]
fn spans_exclude_their_first_moment() {
    check(r#"sum_over_time(cores{dc="a"}[20s])"#, r#"{dc="a",host="1"} 4"#);
    check(r#"max_over_time(load{dc="b"}[10s] offset 20s)"#, r#"{dc="b",host="3"} 8"#);
    check(r#"rate(hits_total{dc="a"}[25s])"#, r#"{dc="a"} 2"#);
    check(r#"irate(hits_total[25s])"#, r#"{dc="a"} 2; {dc="b"} 1"#);
    check(r#"rate(hits_total{dc="a"}[10s])"#, "");
}

#[test]
fn aggregations() {
    check("sum(load)", "{} 12");
    check("avg by (dc) (load)", r#"{dc="a"} 3; {dc="b"} 6"#);
    check("count without (host) (load)", r#"{dc="a"} 2; {dc="b"} 1"#);
    check("max(load) by (nothing)", "{} 6");
    check("sum(nothing)", "");
}

#[test]
fn operators() {
    check("1 + 2 * 3", "7");
    check("load / cores", r#"{dc="a",host="1"} 2; {dc="b",host="3"} 1.5"#);
    check("load > cores", r#"load{dc="a",host="1"} 4; load{dc="b",host="3"} 6"#);
    check("cores >= bool 3", r#"{dc="a",host="1"} 0; {dc="b",host="3"} 1"#);
    check("3 > cores", r#"cores{dc="a",host="1"} 2"#);
    check("sum by (dc) (load) / on(dc) cores", r#"{dc="a"} 3; {dc="b"} 1.5"#);
    check("cores - ignoring(dc) cores", r#"{host="1"} 0; {host="3"} 0"#);
    check("cores / on(dc) load", r#"several series on the right side match {dc="a"}"#);
    check("load / on(dc) cores", r#"several series on the left side match {dc="a"}"#);
    check("load / nothing", "");
    check(r#"{__name__=~"load|cores"} * 2"#, "two series of the result have the same labels");
}

#[test]
fn functions() {
    check("scalar(cores)", "NaN");
    check(r#"scalar(cores{dc="a"}) + 1"#, "3");
    check("vector(3)", "{} 3");
    check("clamp(cores, 3, 5)", r#"{dc="a",host="1"} 3; {dc="b",host="3"} 4"#);
    check("clamp(cores, 5, 3)", "");
    check("clamp_min(vector(NaN), 0)", "{} NaN");
    check("abs(-cores)", r#"{dc="a",host="1"} 2; {dc="b",host="3"} 4"#);
    check("absent(cores)", "");
    check(r#"absent(gone{a="b",c=~"d"})"#, r#"{a="b"} 1"#);
}

#[test]
fn what_is_older_than_the_lookback_is_no_value() {
    let query = Query::parse(r#"cores{dc="a"}"#).unwrap();
    let values = |now| query.evaluate(&store(), now).unwrap().values();
    let last = Time(1_000_000);
    assert_eq!(values(last + LOOKBACK), Vec::<f64>::new());
    assert_eq!(values(Time(last.0 + LOOKBACK.0 - 1)), [2.0]);
    assert_eq!(values(last + Millis(1)), [2.0]);
}
