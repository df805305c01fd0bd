//! A Prometheus that fails in every way that a real one, or whoever answers in
//! its place, may fail.

mod common;

use std::time::{Duration, Instant};

use common::{Asked, Reply, Stub, condition, nobody};
use drain::Comparison;
use health::{Credentials, Health, NoValue, Prometheus};

const TIME_MAX: Duration = Duration::from_secs(2);

fn client(stub: &Stub) -> Prometheus {
    let endpoint = format!("http://{}/prefix/", stub.address).parse().unwrap();
    Prometheus::new(endpoint, None, TIME_MAX).unwrap()
}

/// Series with one value each, at the end that was asked for.
fn series(asked: &Asked, values: &[&str]) -> Reply {
    let end = asked.field("end").unwrap();
    let row = |value: &&str| format!(r#"{{"metric":{{}},"values":[[{end},"{value}"]]}}"#);
    let rows: Vec<String> = values.iter().map(row).collect();
    let data = format!(r#"{{"resultType":"matrix","result":[{}]}}"#, rows.join(","));
    Reply::Whole(200, format!(r#"{{"status":"success","data":{data}}}"#))
}

async fn measure(prometheus: &Prometheus) -> Result<f64, NoValue> {
    prometheus.measure(&condition("up == 1", Comparison::Below, 1.0)).await
}

fn steps(asked: &[Asked]) -> Vec<f64> {
    asked.iter().map(Asked::step).collect()
}

#[tokio::test]
async fn the_request_is_what_prometheus_wants() {
    let stub = Stub::start(|asked| series(asked, &["1", "3", "2"]));
    let prometheus = client(&stub);
    assert_eq!(measure(&prometheus).await, Ok(3.0));
    let at_least = condition("a+b", Comparison::AtLeast, 1.0);
    assert_eq!(prometheus.measure(&at_least).await, Ok(1.0));
    let asked = stub.asked();
    assert!(asked[0].head.starts_with("POST /prefix/api/v1/query_range HTTP/1.1\r\n"));
    assert_eq!(asked[0].field("query").unwrap(), "up == 1");
    assert_eq!(asked[1].field("query").unwrap(), "a+b");
    let secs = |name: &str| asked[0].field(name).unwrap().parse::<f64>().unwrap();
    assert!((secs("end") - secs("start") - 60.0).abs() < 0.01);
    assert!(!asked[0].head.to_lowercase().contains("authorization"));
    assert_eq!(asked[1].connection, 0, "connections are kept");
}

#[tokio::test]
async fn coarser_steps_are_tried_and_remembered() {
    let stub = Stub::start(|asked| match asked.step() {
        ..60.0 => Reply::Whole(422, r#"{"status":"error","error":"too many samples"}"#.into()),
        _ => series(asked, &["5"]),
    });
    let prometheus = client(&stub);
    assert_eq!(measure(&prometheus).await, Ok(5.0));
    assert_eq!(steps(&stub.take()), [1.0, 15.0, 60.0]);
    assert_eq!(measure(&prometheus).await, Ok(5.0));
    assert_eq!(steps(&stub.take()), [60.0]);
    // Other queries are not concerned.
    let other = condition("other", Comparison::Below, 1.0);
    assert_eq!(prometheus.measure(&other).await, Ok(5.0));
    assert_eq!(steps(&stub.take()), [1.0, 15.0, 60.0]);
}

#[tokio::test]
async fn which_refusals_are_worth_another_try() {
    let cases: [(u16, &str, usize); 10] = [
        (422, "too many samples", 4),
        (429, "slow down", 4),
        (503, "query timed out", 4),
        (502, "<html>", 4),
        (413, "too large", 4),
        (400, "exceeded maximum resolution of 11,000 points per timeseries", 4),
        (400, "parse error", 1),
        (401, "who are you", 1),
        (404, "no such page", 1),
        (302, "elsewhere", 1),
    ];
    for (status, text, times) in cases {
        let stub = Stub::start(move |_| Reply::Whole(status, text.into()));
        let refused = measure(&client(&stub)).await.unwrap_err();
        let NoValue::Refused { status: said, why, .. } = &refused else { panic!("{refused}") };
        assert_eq!((*said, why.as_str(), stub.asked().len()), (status, text, times));
    }
}

#[tokio::test]
async fn what_takes_too_long_is_tried_coarser_in_time() {
    let stub = Stub::start(|asked| {
        if asked.step() < 15.0 {
            std::thread::sleep(TIME_MAX);
        }
        series(asked, &["7"])
    });
    let (prometheus, start) = (client(&stub), Instant::now());
    assert_eq!(measure(&prometheus).await, Ok(7.0));
    assert!(start.elapsed() < TIME_MAX);
    assert_eq!(steps(&stub.take()), [1.0, 15.0]);
    assert_eq!(measure(&prometheus).await, Ok(7.0));
    assert_eq!(steps(&stub.take()), [15.0]);
}

/// Measures something hostile; the error comes in time.
#[track_caller]
fn suffer(reply: fn() -> Reply) -> impl Future<Output = NoValue> {
    let stub = Stub::start(move |_| reply());
    async move {
        let start = Instant::now();
        let error = measure(&client(&stub)).await.unwrap_err();
        assert!(start.elapsed() < TIME_MAX + Duration::from_secs(1), "{:?}", start.elapsed());
        error
    }
}

#[tokio::test]
async fn nothing_hostile_is_believed_or_waited_for() {
    let huge = suffer(|| Reply::Whole(200, " ".repeat(3 << 20))).await;
    assert!(matches!(&huge, NoValue::Garbled { why, .. } if why.contains("1048576")), "{huge}");
    let nonsense = suffer(|| Reply::Whole(200, "[]".into())).await;
    assert!(matches!(nonsense, NoValue::Garbled { .. }), "{nonsense}");
    let deep = suffer(|| Reply::Whole(200, format!("{{\"data\":{}", "[".repeat(100_000)))).await;
    assert!(matches!(deep, NoValue::Garbled { .. }), "{deep}");
    let slow = suffer(|| {
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n".to_vec();
        Reply::Raw([head, vec![b' '; 900]].concat(), Duration::from_millis(20))
    });
    let slow = slow.await;
    assert!(matches!(slow, NoValue::Late { .. }), "{slow}");
    let heads = suffer(|| {
        let endless = "x: y\r\n".repeat(100_000);
        Reply::Raw(format!("HTTP/1.1 200 OK\r\n{endless}").into_bytes(), Duration::ZERO)
    });
    let heads = heads.await;
    assert!(matches!(heads, NoValue::Unreachable { .. }), "{heads}");
    let other = suffer(|| Reply::Raw(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), Duration::ZERO)).await;
    assert!(matches!(other, NoValue::Unreachable { .. }), "{other}");
    let short = suffer(|| {
        let text = b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{}".to_vec();
        Reply::Raw(text, Duration::ZERO)
    });
    let short = short.await;
    assert!(matches!(short, NoValue::Unreachable { .. }), "{short}");
}

#[tokio::test]
async fn a_connection_that_was_closed_is_made_again() {
    let stub = Stub::start(|asked| match series(asked, &["1"]) {
        Reply::Whole(status, body) => Reply::Last(status, body),
        other => other,
    });
    let prometheus = client(&stub);
    for _ in 0..4 {
        assert_eq!(measure(&prometheus).await, Ok(1.0));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn many_at_once_share_few_connections() {
    let stub = Stub::start(|asked| {
        std::thread::sleep(Duration::from_millis(5));
        series(asked, &["1"])
    });
    let prometheus = std::sync::Arc::new(client(&stub));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let prometheus = prometheus.clone();
        tasks.spawn(async move { measure(&prometheus).await });
    }
    assert!(tasks.join_all().await.into_iter().all(|value| value == Ok(1.0)));
    let connections = stub.asked().iter().map(|asked| asked.connection).max().unwrap() + 1;
    assert!(connections <= 8, "{connections} connections");
}

#[tokio::test]
async fn nobody_at_home_is_said_at_once() {
    let endpoint = format!("http://{}", nobody()).parse().unwrap();
    let prometheus = Prometheus::new(endpoint, None, TIME_MAX).unwrap();
    let error = measure(&prometheus).await.unwrap_err();
    assert!(error.to_string().contains("does not answer: "), "{error}");
}

#[tokio::test]
async fn credentials_come_from_a_file_that_may_change() {
    let folder = tempfile::tempdir().unwrap();
    let token_file = folder.path().join("token");
    let stub = Stub::start(|asked| series(asked, &["1"]));
    let endpoint = format!("http://{}", stub.address).parse().unwrap();
    let credentials = Credentials::Bearer { token_file: token_file.clone() };
    let prometheus = Prometheus::new(endpoint, Some(credentials), TIME_MAX).unwrap();
    let missing = measure(&prometheus).await.unwrap_err();
    assert!(missing.to_string().contains("cannot read"), "{missing}");
    for token in ["first", "second"] {
        std::fs::write(&token_file, format!("{token}\n")).unwrap();
        assert_eq!(measure(&prometheus).await, Ok(1.0));
        let head = stub.take().remove(0).head.to_lowercase();
        assert!(head.contains(&format!("\r\nauthorization: bearer {token}\r\n")), "{head}");
    }
}
