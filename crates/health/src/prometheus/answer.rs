//! What Prometheus responds, read with distrust.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::series::{Labels, NAME};

/// Why a response has no value. Texts are as they came: the caller cuts them short.
#[derive(Debug, PartialEq)]
pub enum Nothing {
    Garbled(String),
    /// It does not call itself a success.
    Failed {
        status: String,
        why: String,
    },
    NotANumber,
}

/// What a query gives.
#[derive(Debug, PartialEq)]
pub struct Answer {
    pub rows: Vec<Row>,
    /// Why there may be more than these rows: warnings, and series without a number.
    pub doubts: Vec<String>,
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
        shown(&self.labels, keep)
    }

    fn new(labels: BTreeMap<String, String>, point: Point) -> Result<Row, Nothing> {
        let Point(at_secs, text) = point;
        let value = text.parse();
        let value = value.map_err(|_| Nothing::Garbled(format!("{text:?} is no number")))?;
        Ok(Row { labels, at_secs, value })
    }
}

/// Some labels, as PromQL writes them; `None` if there are none.
fn shown(labels: &BTreeMap<String, String>, keep: impl Fn(&str) -> bool) -> Option<String> {
    let own = labels.iter().filter(|(name, _)| keep(name));
    let own = own.map(|(name, value)| (name.clone(), value.clone()));
    let own = Labels::new(own.collect()).filter(|own| own.iter().next().is_some());
    own.map(|own| own.to_string())
}

#[derive(Deserialize)]
struct Response {
    status: String,
    /// Errors have none.
    data: Option<Data>,
    error: Option<String>,
    warnings: Option<Vec<String>>,
    infos: Option<Vec<String>>,
    /// As VictoriaMetrics says it.
    #[serde(rename = "isPartial")]
    is_partial: Option<bool>,
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

/// Infos that are about the query and not about what it found. Others, such as those
/// about histograms that an aggregation left out, may mean that something is missing.
const HARMLESS_INFOS: [&str; 2] = [
    "PromQL info: metric might not be a counter",
    "PromQL info: input to histogram_quantile needed to be fixed for monotonicity",
];

/// The value of each series. `hidden` is a label that is not shown.
pub fn read(body: &[u8], hidden: &str) -> Result<Answer, Nothing> {
    let garbled = |why: &dyn ToString| Nothing::Garbled(why.to_string());
    let response: Response = serde_json::from_slice(body).map_err(|error| garbled(&error))?;
    if response.status != "success" {
        let why = response.error.unwrap_or_else(|| "it does not say why".into());
        return Err(Nothing::Failed { status: response.status, why });
    }
    let mut doubts = doubts(&response);
    let rows = match response.data.ok_or_else(|| garbled(&"a success without data"))? {
        Data::Vector(instants) => {
            let (whole, bare): (Vec<_>, Vec<_>) =
                instants.into_iter().partition(|own| own.value.is_some());
            doubts.extend(bare.first().map(|first| without_number(bare.len(), first, hidden)));
            let rows = whole.into_iter().filter_map(|own| Some((own.metric, own.value?)));
            rows.map(|(labels, point)| Row::new(labels, point)).collect::<Result<_, _>>()?
        }
        Data::Scalar(point) => vec![Row::new(BTreeMap::new(), point)?],
        Data::Matrix(_) | Data::String(_) => return Err(Nothing::NotANumber),
    };
    Ok(Answer { rows, doubts })
}

/// What a response says against itself.
fn doubts(response: &Response) -> Vec<String> {
    let partial = response.is_partial.filter(|is_partial| *is_partial);
    let partial = partial.map(|_| "it calls itself partial".to_owned());
    let is_harmless = |info: &&String| HARMLESS_INFOS.iter().any(|own| info.starts_with(own));
    let infos = response.infos.iter().flatten().filter(|info| !is_harmless(info));
    response.warnings.iter().flatten().chain(infos).cloned().chain(partial).collect()
}

fn without_number(count: usize, first: &Instant, hidden: &str) -> String {
    let first = shown(&first.metric, |name| name != hidden).unwrap_or_else(|| "{}".into());
    format!("{count} series without a number, such as a histogram, of which one is {first}")
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
        let rows = super::read(body.as_bytes(), "hidden")?.rows;
        Ok(rows.into_iter().map(|row| (row.series("hidden"), row.value)).collect())
    }

    /// What a response with these fields beside its status and its data says against itself.
    #[track_caller]
    fn doubt(fields: &str, result: &str, expected: &[&str]) {
        let data = format!(r#"{{"resultType":"vector","result":{result}}}"#);
        let body = format!(r#"{{"status":"success","data":{data}{fields}}}"#);
        assert_eq!(super::read(body.as_bytes(), "hidden").unwrap().doubts, expected, "{body}");
    }

    #[test]
    fn a_response_that_may_be_incomplete_is_doubted() {
        let one = r#"[{"metric":{},"value":[1000,"2"]}]"#;
        doubt("", one, &[]);
        doubt(r#","warnings":null,"infos":[],"isPartial":false"#, one, &[]);
        doubt(r#","warnings":["a: partial response","b"]"#, one, &["a: partial response", "b"]);
        doubt(r#","isPartial":true"#, one, &["it calls itself partial"]);
        let harmless = "PromQL info: metric might not be a counter, name does not end in _total";
        doubt(&format!(r#","infos":["{harmless}: \"x\" (1:6)"]"#), one, &[]);
        let ignored = "PromQL info: ignored histogram in max aggregation (1:1)";
        doubt(&format!(r#","infos":["{harmless}","{ignored}"]"#), one, &[ignored]);
        let histograms = r#"[{"metric":{},"value":[1000,"2"]},
            {"metric":{"__name__":"lag","replica":"c","hidden":"x"},"histogram":[1000,{}]},
            {"metric":{},"histogram":[1000,{}]}]"#;
        let left_out = "2 series without a number, such as a histogram, of which one is \
                        lag{replica=\"c\"}";
        doubt("", histograms, &[left_out]);
    }

    #[test]
    fn what_is_not_called_a_success_is_none() {
        let failed = |body: &str| super::read(body.as_bytes(), "hidden").unwrap_err();
        let said =
            |status: &str, why: &str| Nothing::Failed { status: status.into(), why: why.into() };
        let data = r#""data":{"resultType":"scalar","result":[1,"0"]}"#;
        let error = r#"{"status":"error","error":"replica c is gone""#;
        assert_eq!(failed(&format!("{error},{data}}}")), said("error", "replica c is gone"));
        assert_eq!(failed(&format!("{error}}}")), said("error", "replica c is gone"));
        assert_eq!(failed(&format!("{error},\"data\":null}}")), said("error", "replica c is gone"));
        let odd = failed(&format!("{{\"status\":\"partial\",{data}}}"));
        assert_eq!(odd, said("partial", "it does not say why"));
        assert!(matches!(failed(&format!("{{{data}}}")), Nothing::Garbled(_)));
        assert!(matches!(failed(r#"{"status":"success"}"#), Nothing::Garbled(_)));
    }

    #[test]
    fn every_series_has_its_labels_and_its_value() {
        let vector = r#"[{"metric":{"__name__":"up","dc":"east","b":"c","hidden":"x"},"value":[1000,"2"]},
                         {"metric":{"__name__":"up"},"value":[1000.5,"+Inf"]}]"#;
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
        assert!(matches!(super::read(b"<html>", "hidden"), Err(Nothing::Garbled(_))));
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
            let _ = super::read(&body, "hidden");
            let _ = complaint(&body);
        }

        #[test]
        fn no_numbers_do(at in any::<f64>(), value in ".{0,8}") {
            let point = serde_json::json!([at, value]).to_string();
            let body = format!(
                r#"{{"status":"success","data":{{"resultType":"scalar","result":{point}}}}}"#
            );
            let _ = super::read(body.as_bytes(), "hidden");
        }
    }
}
