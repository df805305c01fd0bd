//! Queries that anybody wrote, over a few series: refused with the place, or
//! evaluated; and what can be evaluated may stand in a runbook.

use std::sync::LazyLock;

use drain::Time;
use drain::runbook::Library;
use health::query::{Outcome, Query};
use health::series::{Bounds, Labels, NAME, Store};

/// Longer ones find nothing that short ones do not.
const LEN_MAX: usize = 1024;
const NOW: Time = Time(1_000_000);

pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if text.len() > LEN_MAX {
        return;
    }
    match Query::parse(text) {
        Err(fault) => assert!(fault.offset <= text.len(), "{fault} of {} octets", text.len()),
        Ok(query) => {
            if let Ok(Outcome::Vector(elements)) = query.evaluate(&STORE, NOW) {
                let mut labels: Vec<_> = elements.iter().map(|element| &element.labels).collect();
                labels.sort();
                assert!(labels.is_sorted_by(|one, next| one != next), "labels twice: {text}");
            }
            check_in_runbook(text);
        }
    }
}

/// A series or two of everything that queries tell apart: a counter that began
/// anew, a gauge that is no number, one that ended.
static STORE: LazyLock<Store> = LazyLock::new(|| {
    let mut store = Store::new(Bounds::default());
    let series: [(&str, &str, [f64; 4]); 6] = [
        ("load", "east", [1.0, 2.0, 3.0, 4.0]),
        ("load", "west", [9.0, -8.0, 1e308, 6.0]),
        ("cores", "east", [2.0; 4]),
        ("odd", "east", [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0]),
        ("hits_total", "east", [100.0, 120.0, 140.0, 160.0]),
        ("hits_total", "west", [30.0, 40.0, 0.0, 10.0]),
    ];
    for (name, dc, values) in series {
        let labels = labels(name, dc);
        for (at, value) in (0u64..).zip(values) {
            store.append(&labels, Time(970_000 + at * 10_000), value);
        }
    }
    store.append(&labels("gone", "east"), Time(990_000), 1.0);
    store.end(&labels("gone", "east"), Time(995_000));
    store
});

fn labels(name: &str, dc: &str) -> Labels {
    let pairs = [(NAME, name), ("dc", dc)].map(|(label, value)| (label.into(), value.into()));
    Labels::new(pairs.to_vec()).expect("each label once")
}

/// Two readers of one language: the check of runbooks knows all of it, the
/// scraper a part. A dollar is a variable to runbooks alone, and not every letter
/// may stand in YAML.
fn check_in_runbook(query: &str) {
    if query.contains('$') || !query.bytes().all(|octet| matches!(octet, b' '..=b'~')) {
        return;
    }
    let query = serde_json::to_string(query).expect("text");
    let task = r#"{"shift": {"template": "TrafficShift", "with": {"knob": "edge:web", "to": 0}}}"#;
    let runbook = format!(
        r#"{{"pharos": "service/v1", "service": "web", "traffic": "stateless", "user_facing": true,
"health": {{"errors": {{"query": {query}, "below": 1, "no_data": "block"}}}},
"drain": {task}, "restore": {}}}"#,
        task.replace("\"to\": 0", "\"to\": \"original\"")
    );
    let library = Library::new(vec![("web.yaml".to_owned(), runbook)]);
    let problems = library.problems();
    // It may warn: of what sees only the past, or divides by what can be 0.
    assert!(library.is_sound(), "{query} can be evaluated, but {problems:#?}");
}
