//! The scraper against a service that comes and goes.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime};

use common::{Reply, Stub, condition, nobody};
use drain::{Comparison, Millis};
use health::{Credentials, Endpoint, Health, NoValue, Scraper, ScraperSettings, Standing, Target};

fn target(address: std::net::SocketAddr) -> Target {
    let endpoint: Endpoint = format!("http://{address}/metrics").parse().unwrap();
    Target { endpoint, job: "test".into(), credentials: None }
}

fn start(targets: Vec<Target>) -> Scraper {
    let interval = Duration::from_millis(50);
    Scraper::start(ScraperSettings { interval, ..ScraperSettings::new(targets) })
}

/// Measures until it is as expected.
async fn until(
    scraper: &Scraper,
    query: &str,
    expected: impl Fn(&Result<f64, NoValue>) -> bool,
) -> Result<f64, NoValue> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let value = scraper.measure(&condition(query, Comparison::Below, 1.0)).await;
        let value = value.map(|reading| reading.value);
        if expected(&value) {
            return value;
        }
        assert!(Instant::now() < deadline, "{query} stays {value:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn values_end_when_their_service_does() {
    let (is_well, requests) = (Arc::new(AtomicBool::new(true)), AtomicUsize::new(0));
    let well = is_well.clone();
    let stub = Stub::start(move |_| {
        let count = requests.fetch_add(1, SeqCst);
        match well.load(SeqCst) {
            true => Reply::Whole(
                200,
                format!("requests_total {count}\nload{{cpu=\"0\"}} 2\nload{{cpu=\"1\"}} 7\n"),
            ),
            false => Reply::Whole(500, "no".into()),
        }
    });
    let scraper = start(vec![target(stub.address), target(nobody())]);
    assert_eq!(until(&scraper, "load", Result::is_ok).await, Ok(7.0));
    assert_eq!(until(&scraper, "sum(up)", Result::is_ok).await, Ok(1.0));
    let rate = until(&scraper, "rate(requests_total[10s])", Result::is_ok).await.unwrap();
    assert!(rate > 0.0, "{rate}");
    let asked = stub.asked();
    let is_kept = |two: &[common::Asked]| two[0].connection == two[1].connection;
    assert!(asked.windows(2).any(is_kept), "connections are kept");

    is_well.store(false, SeqCst);
    // A range still has samples from before.
    until(&scraper, "rate(requests_total[1h])", Result::is_err).await.unwrap_err();
    let gone = until(&scraper, "load", Result::is_err).await.unwrap_err();
    assert_eq!(
        gone.to_string(),
        format!("http://{}/metrics cannot be read: status 500", stub.address)
    );
    assert_eq!(until(&scraper, "sum(up)", Result::is_ok).await, Ok(0.0));
    assert!(matches!(scraper.standings()[0], Standing::Down { .. }));

    is_well.store(true, SeqCst);
    assert_eq!(until(&scraper, "load", Result::is_ok).await, Ok(7.0));
}

#[tokio::test]
async fn what_cannot_be_read_is_down_with_its_reason() {
    type Page = fn() -> Reply;
    let pages: [(Page, &str); 5] = [
        (|| Reply::Whole(200, "a 1\nb{ 2\n".into()), "line 2: "),
        (|| Reply::Whole(200, "#".repeat(5 << 20)), "its page has more than 4194304 octets"),
        (|| Reply::Whole(200, "a 0\na 0.5\n".into()), "line 2: a is 0.5, but 0 in line 1"),
        (|| Reply::Whole(404, String::new()), "status 404"),
        (|| Reply::Raw(vec![b'H'; 1000], Duration::from_millis(10)), "no answer within 50ms"),
    ];
    for (page, why) in pages {
        let stub = Stub::start(move |_| page());
        let scraper = start(vec![target(stub.address)]);
        let says_why = |value: &Result<f64, NoValue>| {
            value.as_ref().is_err_and(|error| error.to_string().contains(why))
        };
        until(&scraper, "a", says_why).await.unwrap_err();
    }
}

/// `lag 0.5` that was cut off says `lag 0`, and nothing is missing any more.
#[tokio::test]
async fn a_page_that_was_cut_off_is_no_page() {
    for (kind, page) in [
        ("text/plain; version=0.0.4", "up_to 1\nlag 0"),
        ("application/openmetrics-text; version=1.0.0", "up_to 1\nlag 0\n"),
    ] {
        // Without its length: the end of the connection is the end of the page.
        let head = format!("HTTP/1.0 200 OK\r\ncontent-type: {kind}\r\n\r\n{page}");
        let stub = Stub::start(move |_| Reply::Raw(head.clone().into_bytes(), Duration::ZERO));
        let scraper = start(vec![target(stub.address)]);
        let is_read = |value: &Result<f64, NoValue>| {
            value.is_ok() || value.as_ref().is_err_and(|why| why.to_string().contains("line 2"))
        };
        let refused = until(&scraper, "lag", is_read).await.unwrap_err().to_string();
        assert!(refused.contains("as if it were cut off; accepted: "), "{refused}");
    }
}

/// Of three replicas the one that is behind has no room in the store of series.
#[tokio::test]
async fn an_exact_condition_has_no_value_while_a_target_has_no_room() {
    let page = |body: String| Stub::start(move |_| Reply::Whole(200, body.clone()));
    let fillers: String = (0..4).map(|at| format!("filler{{i=\"{at}\"}} 1\n")).collect();
    let current = page(format!("lag{{replica=\"a\"}} 0\n{fillers}"));
    let behind = page("lag{replica=\"c\"} 5\n".into());
    let mut settings = ScraperSettings::new(vec![target(current.address), target(behind.address)]);
    settings.interval = Duration::from_millis(50);
    settings.store.series_max = 7;
    let scraper = Scraper::start(settings);
    let exact =
        drain::Condition { is_exact: true, ..condition("max(lag)", Comparison::AtMost, 0.0) };
    let is_asked = || scraper.standings().iter().all(|own| *own != Standing::Unknown);
    while !is_asked() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let refused = scraper.measure(&exact).await.unwrap_err().to_string();
    assert!(refused.contains("no room for its page"), "{refused}");
}

/// That a replica was there is forgotten when others need its room.
#[tokio::test]
async fn an_exact_condition_has_no_value_while_an_end_may_be_forgotten() {
    let turn = Arc::new(AtomicUsize::new(0));
    let own = turn.clone();
    let stub = Stub::start(move |_| {
        let others = ["lag{replica=\"c\"} 5\n", "one 1\n", "one 1\ntwo 2\n"];
        Reply::Whole(200, format!("lag{{replica=\"a\"}} 0\n{}", others[own.load(SeqCst)]))
    });
    let mut settings = ScraperSettings::new(vec![target(stub.address)]);
    settings.interval = Duration::from_millis(50);
    settings.store.series_max = 4;
    let scraper = Scraper::start(settings);
    until(&scraper, "max(lag)", |lag| *lag == Ok(5.0)).await.unwrap();
    for (at, query) in [(1, "one"), (2, "two")] {
        turn.store(at, SeqCst);
        until(&scraper, query, Result::is_ok).await.unwrap();
    }
    let exact =
        drain::Condition { is_exact: true, ..condition("max(lag)", Comparison::AtMost, 0.0) };
    let refused = scraper.measure(&exact).await.unwrap_err().to_string();
    assert!(refused.contains("were dropped for want of room"), "{refused}");
}

/// Reasons and series are shown to all who may see a run.
#[tokio::test]
async fn credentials_that_a_page_repeats_are_not_shown() {
    const SECRET: &str = "s3cret-of-some-length-that-is-cut-short";
    let folder = tempfile::tempdir().unwrap();
    let token_file = folder.path().join("token");
    std::fs::write(&token_file, SECRET).unwrap();
    let series = format!("a{{b=\"1\",token=\"{SECRET}\"}}");
    let ahead = stamp(Duration::from_secs(9));
    let two = format!("{series} 0\n{} 0\n", series.replace("b=\"1\"", "b=\"2\""));
    let cases = [
        (
            "a",
            format!("a {SECRET}\n"),
            "line 1: not shown, because the page repeats the credentials",
        ),
        ("a", format!("{series} 0\n{series} 1\n"), "line 2: a{b=\"1\",token=\"[redacted]\"} is 1"),
        ("a", format!("{series} 0 {ahead}\n"), "a{b=\"1\",token=\"[redacted]\"} is stamped 9s"),
        ("a", format!("{series} 0\n"), "token=\"[redacted]\"}"),
        ("a / on(token) a", two, "match {token=\"[redacted]\"}"),
    ];
    for (query, page, expected) in cases {
        let stub = Stub::start(move |_| Reply::Whole(200, page.clone()));
        let credentials = Some(Credentials::Bearer { token_file: token_file.clone() });
        let scraper = start(vec![Target { credentials, ..target(stub.address) }]);
        let deadline = Instant::now() + Duration::from_secs(20);
        let shown = loop {
            let shown = match scraper.measure(&condition(query, Comparison::AtMost, 1.0)).await {
                Ok(reading) => reading.series.unwrap(),
                Err(why) => why.to_string(),
            };
            assert!(!shown.contains(&SECRET[..6]), "{shown}");
            if !shown.contains("no live series") {
                break shown;
            }
            assert!(Instant::now() < deadline, "{shown}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        assert!(shown.contains(expected), "{shown}");
    }
}

#[tokio::test]
async fn reasons_are_told() {
    let stub = Stub::start(|_| Reply::Whole(200, "a NaN\nb{x=\"1\"} 1\nb{x=\"2\"} 2\n".into()));
    let scraper = start(vec![target(stub.address)]);
    until(&scraper, "b", Result::is_ok).await.unwrap();
    let said = async |query: &str| {
        let value = scraper.measure(&condition(query, Comparison::Below, 1.0)).await;
        value.unwrap_err().to_string()
    };
    assert_eq!(said("nothing").await, "no live series match nothing");
    assert_eq!(said("b > 5").await, "no series match");
    let nan = scraper.measure(&condition("a", Comparison::Below, 1.0)).await.unwrap();
    assert!(nan.value.is_nan(), "0/0 is a value, and says that there is no traffic");
    let worst = scraper.measure(&condition("b", Comparison::Below, 1.0)).await.unwrap();
    assert!(worst.series.unwrap().ends_with(r#"x="2"}"#), "the series that decides");
    assert_eq!(
        said("topk(1, b)").await,
        "the query cannot be evaluated: at 1: topk needs a Prometheus; the built-in scraper does not know it"
    );
    assert_eq!(
        said("b / on(job) b").await,
        "the query cannot be evaluated: several series on the right side match {job=\"test\"}"
    );
}

/// Milliseconds since 1970, by a clock that is ahead.
fn stamp(ahead: Duration) -> u128 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    (now + ahead).as_millis()
}

/// With such a stamp a value from before a fence seems to be from after it.
#[tokio::test]
async fn a_value_stamped_by_a_clock_that_is_ahead_is_no_data() {
    let ahead = Duration::from_secs(9);
    let stub =
        Stub::start(move |_| Reply::Whole(200, format!("up_to 1\nlag 0 {}\n", stamp(ahead))));
    let scraper = start(vec![target(stub.address)]);
    let refused = until(&scraper, "lag", |value| {
        value.as_ref().is_err_and(|error| error.to_string().contains("future"))
    });
    assert_eq!(
        refused.await.unwrap_err().to_string(),
        format!(
            "http://{}/metrics cannot be read: lag is stamped 9s in the future by its exporter; \
             accepted: at most 1s, or no stamp",
            stub.address
        )
    );
    assert!(until(&scraper, "up_to", Result::is_err).await.is_err(), "the page is taken whole");
}

/// A clock may be a little ahead, and nobody can tell; then the sample may be
/// that much older than it says.
#[tokio::test]
async fn a_value_that_is_stamped_by_its_exporter_is_never_taken_for_newer_than_it_is() {
    let stub = Stub::start(|_| {
        let page = format!("lag 0 {}\nplain 0\n", stamp(Duration::from_millis(500)));
        Reply::Whole(200, page)
    });
    let scraper = start(vec![target(stub.address)]);
    until(&scraper, "lag", Result::is_ok).await.unwrap();
    let stamped = scraper.measure(&condition("lag", Comparison::Below, 1.0)).await.unwrap();
    assert!(stamped.age >= Millis(400), "{}", stamped.age);
    let plain = scraper.measure(&condition("plain", Comparison::Below, 1.0)).await.unwrap();
    assert!(plain.age < Millis(400), "{}", plain.age);
}
