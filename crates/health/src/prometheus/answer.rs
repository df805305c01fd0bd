//! What Prometheus answers, read with distrust.

use drain::{FRESH_FOR, Millis};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// How far samples may be ahead of the end that was asked for.
const AHEAD_SECS_MAX: f64 = 1.0;

/// Why an answer has no value.
#[derive(Debug, PartialEq)]
pub enum Nothing {
    Garbled(String),
    NoSeries,
    Stale { age: Millis },
    NotANumber,
}

#[derive(Deserialize)]
struct Success {
    data: Data,
}

#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum Data {
    Matrix(Vec<Row>),
    Vector(Vec<Instant>),
    Scalar(Point),
    String(IgnoredAny),
}

#[derive(Deserialize)]
struct Row {
    /// Histograms have none.
    #[serde(default)]
    values: Vec<Point>,
}

#[derive(Deserialize)]
struct Instant {
    value: Option<Point>,
}

/// Seconds since 1970, and a number as text.
#[derive(Deserialize)]
struct Point(f64, String);

#[derive(Deserialize)]
struct Complaint {
    error: String,
}

/// The newest value of each series, of those that have a fresh one; `step` is
/// the one that was asked for, up to `end_secs`.
pub fn values(body: &[u8], end_secs: f64, step: Millis) -> Result<Vec<f64>, Nothing> {
    let success: Success =
        serde_json::from_slice(body).map_err(|error| garbled(&error.to_string()))?;
    let newest: Vec<Point> = match success.data {
        Data::Matrix(rows) => {
            let is_past = |point: &Point| point.0 <= end_secs + AHEAD_SECS_MAX;
            let newest = |row: Row| {
                let points = row.values.into_iter().filter(is_past);
                points.reduce(|newest, point| if point.0 > newest.0 { point } else { newest })
            };
            rows.into_iter().filter_map(newest).collect()
        }
        Data::Vector(instants) => instants.into_iter().filter_map(|row| row.value).collect(),
        Data::Scalar(point) => vec![point],
        Data::String(_) => return Err(Nothing::NotANumber),
    };
    let age = |point: &Point| Millis(((end_secs - point.0).max(0.0) * 1000.0) as u64);
    let Some(youngest) = newest.iter().map(age).min() else { return Err(Nothing::NoSeries) };
    let fresh: Vec<&Point> = newest.iter().filter(|point| age(point) <= FRESH_FOR + step).collect();
    if fresh.is_empty() {
        return Err(Nothing::Stale { age: youngest });
    }
    let mut values = Vec::with_capacity(fresh.len());
    for Point(_, text) in fresh {
        let value: f64 = text.parse().map_err(|_| garbled(&format!("{text:?} is no number")))?;
        values.push(value);
    }
    values.retain(|value| !value.is_nan());
    if values.is_empty() { Err(Nothing::NotANumber) } else { Ok(values) }
}

/// What is wrong may quote the answer, which may be long.
fn garbled(why: &str) -> Nothing {
    Nothing::Garbled(crate::excerpt(why))
}

/// What Prometheus says is wrong; else the text of whoever answers for it.
pub fn complaint(body: &[u8]) -> String {
    match serde_json::from_slice::<Complaint>(body) {
        Ok(complaint) => complaint.error,
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(kind: &str, result: &str) -> Result<Vec<f64>, Nothing> {
        let body = format!(
            r#"{{"status":"success","data":{{"resultType":"{kind}","result":{result}}},"x":1}}"#
        );
        values(body.as_bytes(), 1000.0, Millis::from_secs(15))
    }

    #[test]
    fn the_newest_of_each_series_counts_if_it_is_fresh() {
        let matrix = r#"[{"metric":{"a":"b"},"values":[[940,"1"],[1000,"2"],[970,"3"]]},
                         {"metric":{},"values":[[955,"4"]]},
                         {"metric":{},"values":[[954,"5"]]},
                         {"metric":{},"values":[[1000,"NaN"]]},
                         {"metric":{},"values":[[1000,"+Inf"],[2000,"7"]]},
                         {"metric":{},"histograms":[]}]"#;
        assert_eq!(read("matrix", matrix), Ok(vec![2.0, 4.0, f64::INFINITY]));
        assert_eq!(read("scalar", "[1000,\"6\"]"), Ok(vec![6.0]));
        assert_eq!(read("vector", r#"[{"metric":{},"value":[1000,"6"]}]"#), Ok(vec![6.0]));
    }

    #[test]
    fn what_has_no_value_says_why() {
        assert_eq!(read("matrix", "[]"), Err(Nothing::NoSeries));
        let old = r#"[{"metric":{},"values":[[900,"1"]]}]"#;
        assert_eq!(read("matrix", old), Err(Nothing::Stale { age: Millis::from_secs(100) }));
        let nan = r#"[{"metric":{},"values":[[1000,"NaN"]]}]"#;
        assert_eq!(read("matrix", nan), Err(Nothing::NotANumber));
        assert_eq!(read("string", "[1000,\"x\"]"), Err(Nothing::NotANumber));
        let text = r#"[{"metric":{},"values":[[1000,"much"]]}]"#;
        assert_eq!(read("matrix", text), Err(Nothing::Garbled("\"much\" is no number".into())));
        assert!(matches!(read("cube", "[]"), Err(Nothing::Garbled(_))));
        assert!(matches!(values(b"<html>", 0.0, Millis(1)), Err(Nothing::Garbled(_))));
        // What is quoted is cut, and cannot speak to a terminal.
        let Err(Nothing::Garbled(why)) = read(&("\\u001b".repeat(9) + &"x".repeat(5000)), "[]")
        else {
            panic!("nobody knows such a type");
        };
        assert!(why.len() < 500 && !why.contains('\u{1b}'), "{why:?}");
    }

    #[test]
    fn complaints_are_read_or_shown() {
        assert_eq!(
            complaint(br#"{"status":"error","errorType":"x","error":"too many"}"#),
            "too many"
        );
        assert_eq!(complaint(b"Bad Gateway"), "Bad Gateway");
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(
            body in prop::collection::vec(any::<u8>(), 0..200),
            end_secs in any::<f64>(),
        ) {
            let _ = values(&body, end_secs, Millis(1000));
            let _ = complaint(&body);
        }

        #[test]
        fn no_numbers_do(at in any::<f64>(), value in ".{0,8}", end_secs in any::<f64>()) {
            let point = serde_json::json!([at, value]).to_string();
            let body = format!(r#"{{"data":{{"resultType":"scalar","result":{point}}}}}"#);
            let _ = values(body.as_bytes(), end_secs, Millis(1000));
        }
    }
}
