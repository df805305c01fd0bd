//! Drains over HTTP: anybody on the host may read, only the server's user and
//! its operators may write, and what is not understood is answered with what would be.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::common::{PATIENCE, http};
use crate::operator::start;

/// One request to the control socket: its status and what was said.
fn control(home: &Path, method: &str, path: &str, body: &str) -> (u16, Value) {
    let mut stream = UnixStream::connect(home.join("control.sock")).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {text}")))
}

#[test]
fn nobody_writes_over_the_network() {
    let (home, pharos) = start();
    let wanted = json!({ "datacenter": "east", "direction": "drain", "by": "eve" }).to_string();
    let (status, said) = http(pharos.admin, "POST", "/v1/drains");
    assert_eq!(status, 405, "{said}");
    assert!(said.contains("on the control socket"), "{said}");
    assert_eq!(pharos.json(&["history"])["runs"], json!([]));
    let (status, begun) = control(home.path(), "POST", "/v1/drains", &wanted);
    assert_eq!((status, &begun), (200, &json!({ "run": 1, "warnings": [] })));
    for path in ["/v1/drains/1/say", "/v1/drains/1"] {
        let (status, _) = http(pharos.admin, "POST", path);
        assert!(status == 404 || status == 405, "{path}: {status}");
    }
    assert_eq!(http(pharos.admin, "GET", "/v1/drains/1").0, 200);
    assert!(pharos.admin.ip().is_loopback());
}

#[test]
fn what_is_not_understood_is_answered_with_what_would_be() {
    let (home, pharos) = start();
    pharos.say(&["drain", "east", "--by", "ann"]);
    let say = "/v1/drains/1/say";
    let begin = "/v1/drains";
    for (method, path, body, status, expected) in [
        ("POST", begin, "{", 400, "accepted: {"),
        ("POST", begin, r#"{"datacenter": "east"}"#, 400, "missing field `direction`"),
        ("POST", begin, r#"{"datacenter": "east", "direction": "up", "by": "x"}"#, 400, "drain"),
        ("POST", begin, r#"{"datacentre": "east"}"#, 400, "unknown field `datacentre`"),
        (
            "POST",
            begin,
            r#"{"datacenter": "east", "direction": "drain", "by": "x"}"#,
            409,
            "has not ended",
        ),
        ("POST", say, r#"{"verb": "hurry", "by": "x"}"#, 400, "pause, resume, skip"),
        ("POST", say, r#"{"verb": "skip", "by": "x"}"#, 400, "missing field `task`"),
        ("POST", say, r#"{"verb": "skip", "task": "nix", "by": "x"}"#, 404, "accepted: web.ask"),
        ("POST", say, r#"{"verb": "skip", "task": "web.ask", "by": "x"}"#, 409, "reason"),
        ("POST", say, r#"{"verb": "pause", "taks": "web.ask", "by": "x"}"#, 400, "unknown field"),
        ("POST", say, r#"{"verb": "waive", "task": "web.ask"}"#, 400, "unknown field `task`"),
        ("POST", "/v1/drains/7/say", r#"{"verb": "pause", "by": "x"}"#, 404, "no run 7"),
        ("GET", "/v1/drains/7", "", 404, "no run 7"),
        ("GET", "/v1/drains/7/events", "", 404, "no run 7"),
        ("GET", "/v1/drains/7/report", "", 404, "no run 7"),
        ("GET", "/v1/drains/7/report.html", "", 404, "no run 7"),
        ("GET", "/v1/drains/1/events?since=2", "", 400, "from=SEQ"),
        ("GET", "/v1/drains/seven", "", 400, "the number of a run"),
        ("GET", "/v1/drains/9223372036854775808", "", 400, "the number of a run"),
        ("GET", "/v1/drains/9223372036854775807", "", 404, "no run 9223372036854775807"),
        ("GET", "/v1/drains?page=2", "", 400, "limit=N"),
        ("GET", "/v1/plans/up/east", "", 400, "/v1/plans/drain/DATACENTER"),
        ("GET", "/v1/plans/drain/north", "", 404, "accepted: east, west"),
        ("GET", "/v1/drain", "", 404, "/v1/drains"),
        ("DELETE", "/v1/drains/1", "", 405, "accepted: GET"),
    ] {
        let (found, said) = control(home.path(), method, path, body);
        let said = said["error"].as_str().unwrap_or_else(|| panic!("{path} {body}: {said}"));
        assert!(found == status && said.contains(expected), "{path} {body}: {found} {said}");
    }
}

#[test]
fn events_are_told_from_the_first_to_the_last() {
    let (home, pharos) = start();
    pharos.say(&["drain", "east", "--by", "ann"]);
    let mut stream = UnixStream::connect(home.path().join("control.sock")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET /v1/drains/1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut seen = Vec::new();
    let mut is_told = false;
    loop {
        let line = lines.next().expect("the last record comes").unwrap();
        // Between the chunks of HTTP/1.1.
        let Ok(record @ Value::Object(_)) = serde_json::from_str::<Value>(&line) else { continue };
        seen.push(record["seq"].as_u64().unwrap());
        if !is_told {
            pharos.say(&["approve", "web.ask", "--by", "bob"]);
            is_told = true;
        }
        if !record["fact"]["closed"].is_null() {
            break;
        }
    }
    assert_eq!(seen, (0..seen.len() as u64).collect::<Vec<_>>());
}

#[test]
fn events_of_a_run_that_is_over_end_and_begin_where_they_are_asked_from() {
    let (_home, pharos) = start();
    pharos.say(&["drain", "east", "--by", "ann"]);
    pharos.say(&["abort", "--by", "ann", "--reason", "enough"]);
    let status = pharos.until("it ends", |status| status.outcome().is_some());
    let events = |from: u64| {
        let (status, body) = http(pharos.admin, "GET", &format!("/v1/drains/1/events?from={from}"));
        assert_eq!(status, 200);
        // Between the chunks of HTTP/1.1.
        let records = body.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        records.filter_map(|record| record["seq"].as_u64()).collect::<Vec<u64>>()
    };
    let end = status.next_seq();
    assert_eq!(events(0), (0..end).collect::<Vec<_>>());
    assert_eq!(events(end - 1), vec![end - 1]);
    assert!(events(end).is_empty());
}
