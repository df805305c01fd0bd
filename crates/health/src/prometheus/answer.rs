//! What Prometheus responds, read with distrust.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::series::{Labels, NAME};

/// Why a response has no value.
#[derive(Debug, PartialEq)]
pub enum Nothing {
    Garbled(String),
    NotANumber,
}

/// One series of a response.
#[derive(Debug, PartialEq)]
pub struct Row {
    labels: BTreeMap<String, String>,
    /// When the query was evaluated, by the clock of the server.
    pub at_secs: f64,
    pub value: f64,
}

impl Row {
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(String::as_str)
    }

    /// Its labels without `hidden`, as PromQL writes them; `None` if it has none.
    pub fn series(&self, hidden: &str) -> Option<String> {
        self.shown(|name| name != NAME && name != hidden)
    }

    /// The same with the name of its metric.
    pub fn named(&self, hidden: &str) -> Option<String> {
        self.shown(|name| name != hidden)
    }

    fn shown(&self, keep: impl Fn(&str) -> bool) -> Option<String> {
        let own = self.labels.iter().filter(|(name, _)| keep(name));
        let own = own.map(|(name, value)| (crate::excerpt(name), crate::excerpt(value)));
        let own = Labels::new(own.collect()).filter(|own| own.iter().next().is_some());
        own.map(|own| crate::excerpt(&own.to_string()))
    }

    fn new(labels: BTreeMap<String, String>, point: Point) -> Result<Row, Nothing> {
        let Point(at_secs, text) = point;
        let value = text.parse().map_err(|_| garbled(&format!("{text:?} is no number")))?;
        Ok(Row { labels, at_secs, value })
    }
}

#[derive(Deserialize)]
struct Success {
    data: Data,
}

#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum Data {
    Matrix(IgnoredAny),
    Vector(Vec<Instant>),
    Scalar(Point),
    String(IgnoredAny),
}

#[derive(Deserialize)]
struct Instant {
    #[serde(default)]
    metric: BTreeMap<String, String>,
    /// Histograms have none.
    value: Option<Point>,
}

/// Seconds since 1970, and a number as text.
#[derive(Deserialize)]
struct Point(f64, String);

#[derive(Deserialize)]
struct Complaint {
    error: String,
}

/// The value of each series.
pub fn rows(body: &[u8]) -> Result<Vec<Row>, Nothing> {
    let success: Success =
        serde_json::from_slice(body).map_err(|error| garbled(&error.to_string()))?;
    match success.data {
        Data::Vector(instants) => {
            let rows = instants.into_iter().filter_map(|own| Some((own.metric, own.value?)));
            rows.map(|(labels, point)| Row::new(labels, point)).collect()
        }
        Data::Scalar(point) => Ok(vec![Row::new(BTreeMap::new(), point)?]),
        Data::Matrix(_) | Data::String(_) => Err(Nothing::NotANumber),
    }
}

/// What is wrong may quote the response, which may be long.
fn garbled(why: &str) -> Nothing {
    Nothing::Garbled(crate::excerpt(why))
}

/// What Prometheus says is wrong; else the text of whoever responds for it.
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

    fn read(kind: &str, result: &str) -> Result<Vec<(Option<String>, f64)>, Nothing> {
        let body = format!(
            r#"{{"status":"success","data":{{"resultType":"{kind}","result":{result}}},"x":1}}"#
        );
        let rows = rows(body.as_bytes())?;
        Ok(rows.into_iter().map(|row| (row.series("hidden"), row.value)).collect())
    }

    #[test]
    fn every_series_has_its_labels_and_its_value() {
        let vector = r#"[{"metric":{"__name__":"up","dc":"east","b":"c","hidden":"x"},"value":[1000,"2"]},
                         {"metric":{"__name__":"up"},"value":[1000.5,"+Inf"]},
                         {"metric":{},"histogram":[]}]"#;
        assert_eq!(
            read("vector", vector),
            Ok(vec![(Some(r#"{b="c",dc="east"}"#.into()), 2.0), (None, f64::INFINITY)])
        );
        assert_eq!(read("scalar", "[1000,\"6\"]"), Ok(vec![(None, 6.0)]));
        assert_eq!(read("vector", "[]"), Ok(Vec::new()));
        let nan = read("vector", r#"[{"metric":{},"value":[1000,"NaN"]}]"#).unwrap();
        assert!(nan[0].1.is_nan());
    }

    #[test]
    fn what_has_no_value_says_why() {
        assert_eq!(read("string", "[1000,\"x\"]"), Err(Nothing::NotANumber));
        let text = r#"[{"metric":{},"value":[1000,"much"]}]"#;
        assert_eq!(read("vector", text), Err(Nothing::Garbled("\"much\" is no number".into())));
        assert!(matches!(read("cube", "[]"), Err(Nothing::Garbled(_))));
        assert!(matches!(rows(b"<html>"), Err(Nothing::Garbled(_))));
        // What is quoted is cut, and cannot speak to a terminal.
        let Err(Nothing::Garbled(why)) = read(&("\\u001b".repeat(9) + &"x".repeat(5000)), "[]")
        else {
            panic!("nobody knows such a type");
        };
        assert!(why.len() < 500 && !why.contains('\u{1b}'), "{why:?}");
        let label = "\\u001b[2J".repeat(500);
        let vector = format!(r#"[{{"metric":{{"a":"{label}"}},"value":[1,"2"]}}]"#);
        let series = read("vector", &vector).unwrap().remove(0).0.unwrap();
        assert!(series.len() < 500 && !series.contains('\u{1b}'), "{series:?}");
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
        fn nothing_makes_it_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = rows(&body);
            let _ = complaint(&body);
        }

        #[test]
        fn no_numbers_do(at in any::<f64>(), value in ".{0,8}") {
            let point = serde_json::json!([at, value]).to_string();
            let body = format!(r#"{{"data":{{"resultType":"scalar","result":{point}}}}}"#);
            let _ = rows(body.as_bytes());
        }
    }
}
