//! A Prometheus that fails in every way that a real one, or whoever answers in
//! its place, may fail.

mod common;

use std::time::{Duration, Instant};

use common::{Reply, Stub, condition, nobody};
use drain::{Comparison, Condition, Millis, Time};
use health::{Credentials, Health, NoValue, Prometheus};

const TIME_MAX: Duration = Duration::from_secs(2);

fn client(stub: &Stub) -> Prometheus {
    let endpoint = format!("http://{}/prefix/", stub.address).parse().unwrap();
    Prometheus::new(endpoint, None, TIME_MAX).unwrap()
}

/// When the stub evaluates queries, by its own clock.
const NOW_SECS: f64 = 1000.0;

/// Series with one value each; the samples of as many selectors were taken
/// `age_secs` ago.
fn series(values: &[&str], age_secs: f64) -> Reply {
    // Prometheus stamped them when it scraped them.
    let taken = NOW_SECS - age_secs;
    let places = 0..values.len();
    let stamps = places.flat_map(|at| [at.to_string(), format!("{at} scraped")]);
    response(values, stamps.map(|place| (place, taken)))
}

/// The series of a query, and the times of its selectors.
fn response(values: &[&str], times: impl Iterator<Item = (String, f64)>) -> Reply {
    let row = |labels: String, value: &str| {
        format!(r#"{{"metric":{{{labels}}},"value":[{NOW_SECS},"{value}"]}}"#)
    };
    let values = values
        .iter()
        .enumerate()
        .map(|(at, value)| row(format!(r#""n":"{at}","pharos_selector":"value""#), value));
    let times = times
        .map(|(place, secs)| row(format!(r#""pharos_selector":"{place}""#), &secs.to_string()));
    let rows: Vec<String> = values.chain(times).collect();
    let data = format!(r#"{{"resultType":"vector","result":[{}]}}"#, rows.join(","));
    Reply::Whole(200, format!(r#"{{"status":"success","data":{data}}}"#))
}

/// A Prometheus that says this about the times of samples, and 0 of their value.
fn timed(times: impl Fn() -> Vec<(&'static str, f64)> + Send + Sync + 'static) -> Stub {
    Stub::start(move |_| {
        response(&["0"], times().into_iter().map(|(place, secs)| (place.to_owned(), secs)))
    })
}

async fn age(prometheus: &Prometheus) -> Result<Millis, String> {
    let reading = prometheus.measure(&condition("lag", Comparison::AtMost, 0.0)).await;
    reading.map(|reading| reading.age).map_err(|error| error.to_string())
}

async fn measure(prometheus: &Prometheus) -> Result<f64, NoValue> {
    let reading = prometheus.measure(&condition("up == 1", Comparison::Below, 1.0)).await;
    reading.map(|reading| reading.value)
}

#[tokio::test]
async fn the_request_is_what_prometheus_wants() {
    let stub = Stub::start(|_| series(&["1", "3", "2"], 0.0));
    let prometheus = client(&stub);
    assert_eq!(measure(&prometheus).await, Ok(3.0));
    let at_least = condition("a+b", Comparison::AtLeast, 1.0);
    assert_eq!(prometheus.measure(&at_least).await.unwrap().value, 1.0);
    let asked = stub.asked();
    assert!(asked[0].head.starts_with("POST /prefix/api/v1/query HTTP/1.1\r\n"));
    let queries: Vec<String> = asked.iter().map(|asked| asked.field("query").unwrap()).collect();
    let time = |selector: &str, at: u32| {
        let named = |of: &str, query: String| {
            format!(r#"label_replace({query},"pharos_selector","{at}{of}","","")"#)
        };
        [
            named("", format!("min(timestamp({selector}))")),
            named(" scraped", format!("min(timestamp(up) and on(job,instance) {selector})")),
            named(" ahead", format!("count(present_over_time({selector}[1h] offset -1h1s))")),
            named(" lead", format!("max(timestamp({selector} offset -5m))")),
        ]
        .join(" or ")
    };
    let value =
        |query: &str| format!("label_replace({query}\n,\"pharos_selector\",\"value\",\"\",\"\")");
    let up = format!("{} or {}", value("up == 1"), time("up", 0));
    let both = format!("{} or {} or {}", value("a+b"), time("a", 0), time("b", 1));
    assert_eq!(queries, [up, both]);
    assert!(!asked[0].head.to_lowercase().contains("authorization"));
    assert_eq!(asked[1].connection, 0, "connections are kept");
}

/// A query is answered from the last samples for minutes after an exporter died.
#[tokio::test]
async fn a_value_is_as_old_as_its_samples() {
    let stub = Stub::start(|_| series(&["1", "3"], 42.0));
    let rate = condition("sum by (n) (rate(x[1m]))", Comparison::Below, 1.0);
    let reading = client(&stub).measure(&rate).await.unwrap();
    assert_eq!(reading.series.as_deref(), Some(r#"{n="1"}"#));
    assert_eq!(reading.window, Millis::from_secs(60));
    // And by what it took to ask.
    assert!((42_000..44_000).contains(&reading.age.0), "{}", reading.age);
    let taken = reading.measurement(Time(1_000_000));
    assert_eq!(taken.to, Time(1_000_000 - reading.age.0));
    assert_eq!(taken.from, Time(1_000_000 - reading.age.0 - 60_000));
}

/// Of two replicas that scrape at different moments, one is asked about both.
#[tokio::test]
async fn replicas_behind_one_address_are_not_mixed() {
    let requests = std::sync::atomic::AtomicUsize::new(0);
    let stub = Stub::start(move |_| {
        match requests.fetch_add(1, std::sync::atomic::Ordering::SeqCst).is_multiple_of(2) {
            true => series(&["5000"], 1.0),
            false => series(&["0"], 20.0),
        }
    });
    let prometheus = client(&stub);
    for _ in 0..5 {
        let lag = condition("lag", Comparison::AtMost, 0.0);
        let reading = prometheus.measure(&lag).await.unwrap();
        let expected = if reading.value == 0.0 { 20_000..22_000 } else { 1000..3000 };
        assert!(expected.contains(&reading.age.0), "{reading:?}");
    }
}

/// What is missing behind a fence may be in the series that is gone.
#[tokio::test]
async fn an_exact_condition_has_no_value_when_one_of_its_series_is_gone_or_not_a_number() {
    let exact = |is_exact| Condition { is_exact, ..condition("lag", Comparison::AtMost, 0.0) };
    let seen = || ["0", "0 scraped"].map(|place| (place.to_owned(), 999.0));
    let ended = move || seen().into_iter().chain([("0 ended".to_owned(), 1.0)]);
    let stub = Stub::start(move |asked| {
        let is_asked = asked.field("query").unwrap().contains("unless");
        response(&["0"], ended().take(if is_asked { 3 } else { 2 }))
    });
    let measured = client(&stub).measure(&exact(true)).await;
    assert_eq!(
        measured,
        Err(NoValue::Vanished { selector: "lag".into(), within: Millis::from_secs(300) })
    );
    let query = stub.take().remove(0).field("query").unwrap();
    assert!(query.contains("count(last_over_time(lag[300000ms]) unless lag)"), "{query}");
    client(&stub).measure(&exact(false)).await.unwrap();
    let query = stub.take().remove(0).field("query").unwrap();
    assert!(!query.contains("unless") && !query.contains("-Inf"), "{query}");

    let undefined = move || seen().into_iter().chain([("0 undefined".to_owned(), 2.0)]);
    let stub = Stub::start(move |_| response(&["0"], undefined()));
    let measured = client(&stub).measure(&exact(true)).await;
    assert_eq!(measured, Err(NoValue::Undefined { selector: "lag".into() }));

    let stub = Stub::start(move |_| response(&["0", "NaN"], seen().into_iter()));
    let reading = client(&stub).measure(&exact(true)).await.unwrap();
    assert!(reading.value.is_nan() && reading.series.as_deref() == Some(r#"{n="1"}"#));
    assert_eq!(client(&stub).measure(&exact(false)).await.unwrap().value, 0.0);
}

#[tokio::test]
async fn an_exact_condition_has_no_value_when_one_of_its_series_is_negative() {
    let exact = |is_exact| Condition { is_exact, ..condition("max(lag)", Comparison::AtMost, 0.0) };
    let row = |labels: &str, value: &str| {
        format!(r#"{{"metric":{{{labels}}},"value":[{NOW_SECS},"{value}"]}}"#)
    };
    let stub = Stub::start(move |asked| {
        let is_asked = asked.field("query").unwrap().contains("bottomk(1,lag < 0)");
        let west = r#""__name__":"lag","replica":"west","pharos_selector":"0 negative""#;
        let rows = [
            row(r#""pharos_selector":"value""#, "0"),
            row(r#""pharos_selector":"0""#, "999"),
            row(r#""pharos_selector":"0 scraped""#, "999"),
            row(west, "-1"),
        ];
        let rows = rows[..if is_asked { 4 } else { 3 }].join(",");
        let data = format!(r#"{{"resultType":"vector","result":[{rows}]}}"#);
        Reply::Whole(200, format!(r#"{{"status":"success","data":{data}}}"#))
    });
    let refused = client(&stub).measure(&exact(true)).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "lag{replica=\"west\"} is -1: a negative value means unknown; accepted: 0 or more in every \
         series of lag, or a query that selects none but the series that count"
    );
    assert_eq!(client(&stub).measure(&exact(false)).await.unwrap().value, 0.0);
}

const AHEAD: &str = "accepted: exporters whose clock is right, or `honor_timestamps: false` in \
                     Prometheus";

/// Of an exporter that is 30 s ahead, the sample that is stamped "now" was taken
/// 30 s ago.
#[tokio::test]
async fn samples_stamped_in_the_future_are_no_data() {
    let cases = [
        (Some(1030.0), "samples of lag are stamped up to 30s in the future"),
        (Some(1001.2), "samples of lag are stamped up to 2s in the future"),
        // So far ahead that only their presence is seen.
        (None, "samples of lag are stamped in the future"),
    ];
    for (newest, expected) in cases {
        let stub = timed(move || {
            let seen = [("0", 999.0), ("0 scraped", 999.0), ("0 ahead", 1.0)];
            seen.into_iter().chain(newest.map(|secs| ("0 lead", secs))).collect()
        });
        let refused = age(&client(&stub)).await.unwrap_err();
        assert_eq!(refused, format!("{expected}; {AHEAD}"));
    }
}

/// An exporter that dies while its clock is ahead leaves samples that become
/// "fresh" one after the other, until the last of them is.
#[tokio::test]
async fn samples_that_were_in_the_future_a_moment_ago_are_no_data() {
    let is_first = std::sync::atomic::AtomicBool::new(true);
    let stub = timed(move || {
        let seen = vec![("0", 999.0), ("0 scraped", 999.0)];
        match is_first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            true => [seen, vec![("0 ahead", 1.0), ("0 lead", 1030.0)]].concat(),
            false => seen,
        }
    });
    let prometheus = client(&stub);
    age(&prometheus).await.unwrap_err();
    let refused = age(&prometheus).await.unwrap_err();
    let expected = "samples of lag were stamped up to 30s in the future less than 5m ago";
    assert_eq!(refused, format!("{expected}; {AHEAD}"));
    assert!(age(&client(&stub)).await.is_ok(), "the stub has nothing against it any more");
}

/// Ahead by less than the scrape interval, stamps are in the past soon.
#[tokio::test]
async fn a_sample_is_never_newer_than_the_last_scrape_of_its_target() {
    let stub = timed(|| vec![("0", 999.5), ("0 scraped", 991.0)]);
    let age = age(&client(&stub)).await.unwrap();
    assert!((9000..11_500).contains(&age.0), "{age}");
}

/// A clock that is a little ahead cannot be noticed.
#[tokio::test]
async fn a_sample_that_prometheus_did_not_stamp_counts_as_a_second_older() {
    let cases = [
        (vec![("0", 999.5), ("0 scraped", 999.5)], 500..900),
        (vec![("0", 999.5), ("0 scraped", 999.8)], 1500..1900),
        (vec![("0", 999.5)], 1500..1900),
        (vec![("0", 999.5), ("0 scraped", 999.8), ("0 lead", 1000.4)], 1500..1900),
        // The one before it is as much ahead.
        (vec![("0", 997.0), ("0 scraped", 998.0), ("0 lead", 1000.5)], 5500..5900),
        // A time that cannot be is not "just now".
        (vec![("0", 1003.0)], 1000..1400),
    ];
    for (times, expected) in cases {
        let seen = times.clone();
        let age = age(&client(&timed(move || times.clone()))).await.unwrap();
        assert!(expected.contains(&age.0), "{seen:?}: {age}");
    }
}

/// Ages are differences on its own clock.
#[tokio::test]
async fn a_prometheus_whose_clock_is_wrong_or_jumps_changes_no_age() {
    const JUMPS_SECS: [f64; 4] = [0.0, 4e9, -900.0, 86_400.0];
    let requests = std::sync::atomic::AtomicUsize::new(0);
    let stub = Stub::start(move |_| {
        let request = requests.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let jump_secs = JUMPS_SECS[request % JUMPS_SECS.len()];
        let Reply::Whole(status, mut body) = series(&["0"], 3.0) else { panic!("a body") };
        for secs in [NOW_SECS, NOW_SECS - 3.0] {
            body = body.replace(&secs.to_string(), &(secs + jump_secs).to_string());
        }
        Reply::Whole(status, body)
    });
    let prometheus = client(&stub);
    for _ in 0..JUMPS_SECS.len() {
        let age = age(&prometheus).await.unwrap();
        assert!((3000..3400).contains(&age.0), "{age}");
    }
}

#[tokio::test]
async fn a_rate_over_samples_that_have_ended_is_no_value() {
    let stub = timed(Vec::new);
    let rate = condition("rate(x[5m])", Comparison::Below, 1.0);
    let ended = client(&stub).measure(&rate).await.unwrap_err();
    assert_eq!(ended, NoValue::Ended { selector: "x".into() });
}

#[tokio::test]
async fn nothing_over_nothing_is_no_traffic_and_not_no_data() {
    let stub = Stub::start(|_| series(&["NaN"], 0.0));
    let ratio = condition("sum(rate(x[5m])) / sum(rate(y[5m]))", Comparison::Below, 1.0);
    assert!(client(&stub).measure(&ratio).await.is_err(), "y has no time");
    let ratio = condition("sum(rate(x[5m])) / sum(rate(x[5m]))", Comparison::Below, 1.0);
    assert!(client(&stub).measure(&ratio).await.unwrap().value.is_nan());
}

#[tokio::test]
async fn refusals_are_told() {
    let cases: [(u16, &str); 5] = [
        (422, "too many samples"),
        (503, "query timed out"),
        (400, "parse error"),
        (401, "who are you"),
        (302, "elsewhere"),
    ];
    for (status, text) in cases {
        let stub = Stub::start(move |_| Reply::Whole(status, text.into()));
        let refused = measure(&client(&stub)).await.unwrap_err();
        let NoValue::Refused { status: said, why, .. } = &refused else { panic!("{refused}") };
        assert_eq!((*said, why.as_str()), (status, text));
    }
}

/// A response with a value of 0 for `lag`, these fields beside its data, and these rows
/// beside those.
fn whole(fields: &str, more: &str) -> Reply {
    let times = ["0", "0 scraped", "0 count"].map(|place| (place.to_owned(), 999.0));
    let Reply::Whole(status, body) = response(&["0"], times.into_iter()) else { panic!("a body") };
    let body = body.strip_suffix("]}}").unwrap();
    Reply::Whole(status, format!("{body}{more}]}}{fields}}}"))
}

/// What a condition has to say about `lag`.
async fn said(prometheus: &Prometheus, is_exact: bool) -> String {
    let condition = condition("lag", Comparison::AtMost, 0.0);
    match prometheus.measure(&Condition { is_exact, ..condition }).await {
        Ok(reading) => reading.value.to_string(),
        Err(why) => why.to_string(),
    }
}

#[tokio::test]
async fn an_error_with_a_good_status_code_is_no_data() {
    let stub = Stub::start(|_| {
        let Reply::Whole(status, body) = whole(r#","error":"c is gone""#, "") else { panic!() };
        Reply::Whole(status, body.replace("success", "error"))
    });
    let name = format!("prometheus at http://{}/prefix", stub.address);
    let expected = format!("{name} responds with status `error`: c is gone; accepted: `success`");
    for is_exact in [true, false] {
        assert_eq!(said(&client(&stub), is_exact).await, expected);
    }
}

/// The series that is left out may be the one that counts.
#[tokio::test]
async fn an_exact_condition_has_no_value_when_a_response_may_be_incomplete() {
    const HISTOGRAM: &str = r#",{"metric":{"pharos_selector":"value","replica":"c"},
                               "histogram":[1000,{"count":"1"}]}"#;
    let cases = [
        (r#","warnings":["c: partial response"]"#, "", "c: partial response"),
        (r#","isPartial":true"#, "", "it calls itself partial"),
        (
            r#","infos":["PromQL info: ignored histogram in max aggregation"]"#,
            "",
            "PromQL info: ignored histogram in max aggregation",
        ),
        (
            "",
            HISTOGRAM,
            "1 series without a number, such as a histogram, of which one is {replica=\"c\"}",
        ),
    ];
    for (fields, more, why) in cases {
        let stub = Stub::start(move |_| whole(fields, more));
        let name = format!("prometheus at http://{}/prefix", stub.address);
        let accepted = "accepted by an exact condition: no warnings, and a number for every series";
        let expected = format!("the response of {name} may be incomplete: {why}; {accepted}");
        assert_eq!(said(&client(&stub), true).await, expected);
        assert_eq!(said(&client(&stub), false).await, "0", "{why}");
    }
    let stub = Stub::start(|_| whole(r#","warnings":[],"infos":null,"isPartial":false"#, ""));
    assert_eq!(said(&client(&stub), true).await, "0");
}

/// The value of a header of a request.
fn authorization(asked: &common::Asked) -> &str {
    let line = asked.head.lines().find_map(|line| line.strip_prefix("authorization: "));
    line.unwrap_or_default()
}

/// What is shown of a response to a request with these credentials.
async fn shown(credentials: &Credentials, reply: fn(&common::Asked) -> Reply) -> String {
    let stub = Stub::start(reply);
    let endpoint = format!("http://{}", stub.address).parse().unwrap();
    let prometheus = Prometheus::new(endpoint, Some(credentials.clone()), TIME_MAX).unwrap();
    let condition = condition("lag", Comparison::AtMost, 0.0);
    let measured = prometheus.measure(&Condition { is_exact: true, ..condition }).await;
    assert!(authorization(&stub.asked()[0]).len() > 10);
    match measured {
        Ok(reading) => reading.series.unwrap_or_default(),
        Err(why) => why.to_string(),
    }
}

/// Reasons and series are shown to all who may see a run.
#[tokio::test]
async fn credentials_that_a_response_repeats_are_not_shown() {
    const SECRET: &str = "s3cret/of+some-length==";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, format!("{SECRET}\n")).unwrap();
    let bearer = Credentials::Bearer { token_file: file.clone() };
    let basic = Credentials::Basic { username: "me".into(), password_file: file };
    let replies: [fn(&common::Asked) -> Reply; 8] = [
        |asked| Reply::Whole(401, format!("what is {}?", authorization(asked))),
        |_| Reply::Whole(401, format!("{SECRET}, {SECRET}")),
        // Cut short in the middle of it.
        |asked| Reply::Whole(502, format!("{}{}", "x".repeat(180), authorization(asked))),
        |asked| Reply::Whole(400, format!(r#"{{"error":"no {}"}}"#, authorization(asked))),
        |asked| Reply::Whole(200, format!(r#"{{"status":"{}"}}"#, authorization(asked))),
        |asked| {
            let why = authorization(asked).replace('/', "\\/");
            Reply::Whole(200, format!(r#"{{"status":"error","error":"{why}"}}"#))
        },
        |asked| whole(&format!(r#","warnings":["for {}"]"#, authorization(asked)), ""),
        |asked| {
            let row = format!(r#","for":"{}""#, authorization(asked));
            let Reply::Whole(status, body) = whole("", "") else { panic!() };
            Reply::Whole(status, body.replacen(r#""n":"0""#, &format!(r#""n":"0"{row}"#), 1))
        },
    ];
    for reply in replies {
        for credentials in [&bearer, &basic] {
            let text = shown(credentials, reply).await;
            assert!(text.contains("[redacted]"), "{text}");
            let start = |secret: &str| text.contains(&secret[..6]);
            // The name and the password in base64.
            assert!(!start(SECRET) && !start("bWU6czNjcmV0"), "{text}");
        }
    }
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
    let stub = Stub::start(|_| match series(&["1"], 0.0) {
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
    let stub = Stub::start(|_| {
        std::thread::sleep(Duration::from_millis(5));
        series(&["1"], 0.0)
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
    let stub = Stub::start(|_| series(&["1"], 0.0));
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
