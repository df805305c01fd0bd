//! Against a real Prometheus: that ours means the same by a query, and that a
//! measurement ends when Prometheus is stuck.

mod common;

use std::f64::consts::TAU;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use common::{RealPrometheus, Reply, Stub, condition, nobody};
use drain::{Comparison, Condition, Millis, Time};
use health::query::{Outcome, Query};
use health::series::{Bounds, Labels, Store};
use health::{Health, NoValue, Prometheus, Scraper, ScraperSettings, Target};
use serde_json::Value;

/// How long metrics are collected before they are compared.
const COLLECTED: Duration = Duration::from_secs(8);

/// Queries whose results must be the same, from the same samples.
const QUERIES: &[&str] = &[
    "temperature",
    "temperature{room=\"hall\"}",
    "temperature{room!=\"hall\"}",
    "temperature{room=~\"h.*|attic\"}",
    "temperature{room!~\"h.*\"}",
    "temperature{room=~\"hal\"}",
    "{__name__=~\"temp.*\",room=\"hall\"}",
    "{room=\"cellar\"}",
    "temperature{nothing=\"\"}",
    "no_such_metric",
    "up",
    "odd",
    "odd > -10",
    "wave offset 2s",
    "wave offset -1s",
    "requests_total offset 3s",
    "rate(requests_total[3s])",
    "rate(requests_total[5s] offset 1s)",
    "rate(requests_total{code=\"500\"}[1m])",
    "increase(requests_total[4s])",
    "increase(fresh_total[1m])",
    "rate(fresh_total[5s])",
    "irate(requests_total[5s])",
    "rate(falling_total[5s])",
    "increase(falling_total[1m])",
    "irate(falling_total[3s])",
    "delta(wave[4s])",
    "delta(temperature[5s])",
    "rate(wave[200ms])",
    "avg_over_time(wave[5s])",
    "max_over_time(wave[5s])",
    "min_over_time(wave[5s])",
    "sum_over_time(wave[2s])",
    "last_over_time(wave[2s])",
    "last_over_time(temperature[3s] offset 1s)",
    "max_over_time(odd[3s])",
    "sum(temperature)",
    "sum by (room) (pressure)",
    "sum(pressure) by (side)",
    "avg without (side) (pressure)",
    "avg by () (pressure)",
    "min(temperature)",
    "max by (room, side) (pressure)",
    "count(pressure) without (room, instance)",
    "count(odd)",
    "max(odd)",
    "min(odd)",
    "sum(no_such_metric)",
    "temperature + 1",
    "10 - temperature",
    "temperature * temperature",
    "temperature / limit",
    "temperature % 7",
    "2 ^ temperature",
    "-temperature ^ 2",
    "-temperature",
    "1 + 2 * 3 ^ 2 ^ 0.5 - -4 % 3",
    "-1 ^ 2",
    "temperature > 20",
    "temperature > bool 20",
    "20 < temperature",
    "30 >= bool temperature",
    "temperature == temperature",
    "temperature != bool limit",
    "temperature > limit",
    "temperature > ignoring(room) limit",
    "temperature > on(room) limit",
    "temperature - on(room, job) limit",
    "pressure / ignoring(side) limit",
    "sum(pressure) by (room) / on(room) sum(limit) by (room)",
    "sum by (room) (rate(requests_total{code=\"500\"}[5s])) / sum by (room) (rate(requests_total[5s]))",
    "rate(requests_total[5s]) > 3",
    "sum(rate(requests_total{code=\"500\"}[5s])) / sum(rate(requests_total[5s])) < bool 0.5",
    "0 / 0",
    "temperature / 0",
    "abs(odd)",
    "clamp(temperature, 13, 25)",
    "clamp(temperature, 25, 13)",
    "clamp_min(odd, 0)",
    "clamp_max(temperature, 20)",
    "vector(7)",
    "vector(1) + temperature",
    "scalar(temperature{room=\"hall\"})",
    "scalar(temperature)",
    "temperature - scalar(limit{room=\"hall\"})",
    "absent(temperature)",
    "absent(no_such_metric{a=\"b\",c=~\"d\",e=\"f\",e=\"g\"})",
    "absent(sum(no_such_metric))",
    "1 < bool 2",
    "Inf > bool 1",
    "0x1F + 1e2 + .5",
    "abs({__name__=~\"temperature|limit\"})",
    "{__name__=~\"temperature|limit\"} + 1",
    "temperature or pressure",
    "temperature or on(room) limit",
    "limit or on(room) temperature",
    "temperature and on(room) limit",
    "temperature unless on(room) limit",
    "temperature and ignoring(side) pressure",
    "temperature > 100 or vector(0)",
    "no_such_metric or vector(3)",
    "sum(rate(requests_total{code=\"none\"}[5s])) or vector(0)",
    "sum(rate(requests_total{code=\"500\"}[5s])) / (sum(rate(requests_total[5s])) > 1e9) or vector(0)",
    "temperature > 20 and temperature < 25 or limit",
    "histogram_quantile(0.9, latency_bucket)",
    "histogram_quantile(0.99, sum(rate(latency_bucket[5s])) by (le))",
    "histogram_quantile(0.5, sum by (le, room) (rate(latency_bucket[5s])))",
    "histogram_quantile(1, latency_bucket)",
    "histogram_quantile(0, latency_bucket)",
    "histogram_quantile(2, latency_bucket)",
    "histogram_quantile(-1, latency_bucket)",
    "histogram_quantile(0.999, latency_bucket)",
    "histogram_quantile(0.5, temperature)",
    "histogram_quantile(0.5, latency_bucket{le!=\"+Inf\"})",
    "histogram_quantile(0.5, latency_bucket{le=\"+Inf\"})",
    "histogram_quantile(0.5, latency_bucket * 0)",
    "count_over_time(wave[2s])",
    "ceil(temperature)",
    "floor(temperature)",
    "time() - time()",
    "temperature + {__name__=~\"temperature|limit\"}",
];

/// A page of metrics: some hold still, some move.
fn page(elapsed: Duration) -> String {
    let secs = elapsed.as_secs_f64();
    let mut page = String::new();
    for (room, degrees) in [("hall", 21.5), ("cellar", 12.25), ("attic", 30.0)] {
        writeln!(page, "temperature{{room=\"{room}\"}} {degrees}").unwrap();
        for (side, share) in [("in", 0.5), ("out", 0.125)] {
            writeln!(page, "pressure{{room=\"{room}\",side=\"{side}\"}} {}", degrees * share)
                .unwrap();
        }
        for (code, slope) in [("200", 10.0), ("500", 2.0)] {
            let count = 1000.0 + slope * degrees * secs;
            writeln!(page, "requests_total{{room=\"{room}\",code=\"{code}\"}} {count}").unwrap();
        }
    }
    for (room, speed) in [("hall", 3.0), ("attic", 1.0)] {
        for (bound, share) in [("0.1", 0.5), ("0.5", 0.75), ("2", 0.96), ("+Inf", 1.0)] {
            let count = 100.0 + speed * share * secs * 10.0;
            writeln!(page, "latency_bucket{{room=\"{room}\",le=\"{bound}\"}} {count}").unwrap();
        }
    }
    writeln!(page, "limit{{room=\"hall\"}} 25\nlimit{{room=\"cellar\"}} 10").unwrap();
    writeln!(page, "odd{{kind=\"nan\"}} NaN\nodd{{kind=\"inf\"}} +Inf\nodd{{kind=\"less\"}} -4")
        .unwrap();
    writeln!(page, "wave {}", (secs * TAU / 3.0).sin()).unwrap();
    writeln!(page, "fresh_total {}", 5.0 * secs).unwrap();
    writeln!(page, "falling_total {}", (secs * 40.0) % 75.0).unwrap();
    page
}

/// A service that shows [`page`].
fn service() -> Stub {
    let start = Instant::now();
    Stub::start(move |_| Reply::Whole(200, page(start.elapsed())))
}

fn now_secs() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// A result of Prometheus in our form, in order of labels.
fn outcome(data: &Value) -> Outcome {
    let number = |value: &Value| value[1].as_str().unwrap().parse::<f64>().unwrap();
    match data["resultType"].as_str().unwrap() {
        "scalar" => Outcome::Number(number(&data["result"])),
        "vector" => sorted(Outcome::Vector(
            rows(data)
                .map(|row| health::query::Element {
                    labels: labels(&row["metric"]),
                    value: number(&row["value"]),
                })
                .collect(),
        )),
        other => panic!("a {other}"),
    }
}

fn rows(data: &Value) -> impl Iterator<Item = &Value> {
    data["result"].as_array().unwrap().iter()
}

fn labels(metric: &Value) -> Labels {
    let pairs = metric.as_object().unwrap().iter();
    let pairs = pairs.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()));
    Labels::new(pairs.collect()).unwrap()
}

fn sorted(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Vector(mut elements) => {
            elements.sort_by(|a, b| a.labels.cmp(&b.labels));
            Outcome::Vector(elements)
        }
        number => number,
    }
}

/// Why two results are not the same up to a relative difference.
fn difference(ours: &Outcome, theirs: &Outcome, tolerance: f64) -> Option<String> {
    let is_near = |ours: f64, theirs: f64| {
        ours == theirs
            || ours.is_nan() && theirs.is_nan()
            || (ours - theirs).abs() <= tolerance * theirs.abs().max(ours.abs())
    };
    let same = match (ours, theirs) {
        (Outcome::Number(ours), Outcome::Number(theirs)) => is_near(*ours, *theirs),
        (Outcome::Vector(ours), Outcome::Vector(theirs)) => {
            ours.len() == theirs.len()
                && ours.iter().zip(theirs).all(|(ours, theirs)| {
                    ours.labels == theirs.labels && is_near(ours.value, theirs.value)
                })
        }
        _ => false,
    };
    (!same).then(|| format!("\n  ours   {ours:?}\n  theirs {theirs:?}"))
}

/// All samples that Prometheus has, in a store of ours.
fn copied(prometheus: &RealPrometheus, at_secs: f64) -> Store {
    let (status, answer) = prometheus.query("{__name__=~\".+\"}[1h]", at_secs);
    assert_eq!(status, 200, "{answer}");
    let mut store = Store::new(Bounds { samples_max: 10_000, ..Bounds::default() });
    for row in rows(&answer["data"]) {
        for sample in row["values"].as_array().unwrap() {
            let at = Time((sample[0].as_f64().unwrap() * 1000.0).round() as u64);
            let value = sample[1].as_str().unwrap().parse().unwrap();
            assert!(store.append(&labels(&row["metric"]), at, value));
        }
    }
    assert!(store.len() > 20, "{} series", store.len());
    store
}

/// A moment between two samples of the service, so that none is at the very
/// edge of a span: there the versions of Prometheus disagree with each other.
fn moment(prometheus: &RealPrometheus) -> f64 {
    let now = now_secs();
    let (_, answer) = prometheus.query("temperature[5s]", now);
    let row = rows(&answer["data"]).next().expect("a series");
    let last = row["values"].as_array().unwrap().last().unwrap();
    last[0].as_f64().unwrap() + 0.037 - 1.0
}

#[test]
fn the_same_samples_give_the_same_results() {
    let service = service();
    let Some(prometheus) = RealPrometheus::start(&[service.address, nobody()]) else { return };
    std::thread::sleep(COLLECTED);
    let at_secs = moment(&prometheus);
    let store = copied(&prometheus, at_secs + 1.0);
    let at = Time((at_secs * 1000.0).round() as u64);
    let (mut wrong, mut empty) = (Vec::new(), 0);
    for query in QUERIES {
        let (status, answer) = prometheus.query(query, at.0 as f64 / 1000.0);
        let ours = Query::parse(query).unwrap_or_else(|fault| panic!("{query}: {fault}"));
        let ours = ours.evaluate(&store, at).map(sorted);
        let found = match (status, &ours) {
            (200, Ok(ours)) => {
                let theirs = outcome(&answer["data"]);
                empty += usize::from(theirs.values().is_empty());
                difference(ours, &theirs, 1e-9)
            }
            // Both refuse.
            (422, Err(_)) => None,
            _ => Some(format!("\n  ours   {ours:?}\n  theirs {status} {answer}")),
        };
        wrong.extend(found.map(|found| format!("{query}{found}")));
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), QUERIES.len(), wrong.join("\n"));
    assert!(empty < QUERIES.len() / 4, "{empty} queries compare nothing with nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_read_the_same_service() {
    let (service, dead) = (service(), nobody());
    let Some(prometheus) = RealPrometheus::start(&[service.address, dead]) else { return };
    let targets = [service.address, dead].map(|address| Target {
        endpoint: format!("http://{address}/metrics").parse().unwrap(),
        job: "test".into(),
        credentials: None,
    });
    let interval = Duration::from_millis(250);
    let settings = ScraperSettings { interval, ..ScraperSettings::new(targets.into()) };
    let scraper = Scraper::start(settings);
    // What holds still is the same to the last bit; what moves, nearly.
    let is_still = |query: &&&str| {
        !["wave", "_total", "latency", "time()", "{room=\"cellar\"}"]
            .iter()
            .any(|word| query.contains(word))
    };
    let moving = [
        "rate(requests_total[5s])",
        "increase(requests_total[4s])",
        "sum by (room) (rate(requests_total[5s]))",
        "sum(rate(requests_total{code=\"500\"}[5s])) / sum(rate(requests_total[5s]))",
        "rate(fresh_total[5s])",
    ];
    let still = QUERIES.iter().filter(is_still).map(|query| (*query, 1e-12));
    let all: Vec<(&str, f64)> = still.chain(moving.map(|query| (query, 0.05))).collect();
    assert!(all.len() >= 60, "only {} queries", all.len());
    // A busy machine makes either miss a read now and then.
    let deadline = Instant::now() + 6 * COLLECTED;
    loop {
        tokio::time::sleep(COLLECTED).await;
        let differs = |(query, tolerance): &(&str, f64)| {
            let (status, answer) = prometheus.query(query, now_secs());
            let ours = scraper.evaluate(query).map(sorted);
            let found = match (status, &ours) {
                (200, Ok(ours)) => difference(ours, &outcome(&answer["data"]), *tolerance),
                (422, Err(_)) => None,
                _ => Some(format!("\n  ours   {ours:?}\n  theirs {status} {answer}")),
            };
            found.map(|found| format!("{query}{found}"))
        };
        let wrong: Vec<String> = all.iter().filter_map(differs).collect();
        if wrong.is_empty() {
            return;
        }
        let is_late = Instant::now() > deadline;
        assert!(!is_late, "{} of {}:\n{}", wrong.len(), all.len(), wrong.join("\n"));
    }
}

#[tokio::test]
async fn a_stuck_prometheus_gives_no_value_and_later_one_again() {
    const TIME_MAX: Duration = Duration::from_secs(2);
    let service = service();
    let Some(server) = RealPrometheus::start(&[service.address]) else { return };
    let endpoint = format!("http://{}", server.address).parse().unwrap();
    let prometheus = Prometheus::new(endpoint, None, TIME_MAX).unwrap();
    let hottest = condition("temperature", Comparison::Below, 40.0);
    let measured = async |patience: Duration| {
        let deadline = Instant::now() + patience;
        loop {
            let value = prometheus.measure(&hottest).await.map(|reading| reading.value);
            if value.is_ok() || Instant::now() > deadline {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert_eq!(measured(Duration::from_secs(20)).await, Ok(30.0));
    // Scalars, texts and nonsense, as a real one answers them.
    let ask = async |query: &str| {
        let reading = prometheus.measure(&condition(query, Comparison::Below, 1.0)).await;
        reading.map(|reading| reading.value)
    };
    assert_eq!(ask("6 * 7").await, Ok(42.0));
    assert_eq!(ask("nothing").await, Err(NoValue::Ended { selector: "nothing".into() }));
    assert_eq!(ask("temperature > 1000").await, Err(NoValue::NoSeries));
    assert!(ask("odd{kind=\"nan\"}").await.unwrap().is_nan());
    for wrong in ["\"text\"", "rate(", "temperature[5m]"] {
        let refused = ask(wrong).await.unwrap_err();
        assert!(matches!(refused, NoValue::Unanswerable(_)), "{wrong}: {refused}");
    }

    server.signal("STOP");
    for _ in 0..2 {
        let start = Instant::now();
        let stuck = prometheus.measure(&hottest).await;
        let limit = Millis(TIME_MAX.as_millis() as u64);
        assert!(
            matches!(&stuck, Err(NoValue::Late { limit: said, .. }) if *said == limit),
            "{stuck:?}"
        );
        assert!(start.elapsed() < TIME_MAX + Duration::from_secs(1), "{:?}", start.elapsed());
    }
    server.signal("CONT");
    assert_eq!(measured(Duration::from_secs(20)).await, Ok(30.0));
}

/// A service whose clock is ahead by `ahead` of the time since it started. It
/// shows when each page was made, truly, and stamps that as its clock is; and the
/// same without a stamp.
fn ahead(ahead: impl Fn(Duration) -> Duration + Send + Sync + 'static) -> Stub {
    let start = Instant::now();
    Stub::start(move |_| {
        let taken_secs = now_secs();
        let stamp = ((taken_secs + ahead(start.elapsed()).as_secs_f64()) * 1000.0) as u64;
        let page = format!("taken_secs {taken_secs} {stamp}\nplain_secs {taken_secs}\n");
        Reply::Whole(200, page)
    })
}

/// Measures when a sample was taken, truly; an error if it is taken for newer.
async fn judged(prometheus: &Prometheus, query: &str) -> Result<Result<f64, NoValue>, String> {
    let asked = Time((now_secs() * 1000.0) as u64);
    let reading = prometheus.measure(&condition(query, Comparison::Below, 1.0)).await;
    let Ok(reading) = reading else { return Ok(reading.map(|reading| reading.value)) };
    let (taken, judged) = (reading.value, reading.measurement(asked).to.0 as f64 / 1000.0);
    // Times are whole milliseconds.
    match judged <= taken + 0.002 {
        true => Ok(Ok(taken)),
        false => Err(format!("{query} is taken for {:.3} s newer than it is", judged - taken)),
    }
}

fn client(server: &RealPrometheus) -> Prometheus {
    let endpoint = format!("http://{}", server.address).parse().unwrap();
    Prometheus::new(endpoint, None, Duration::from_secs(5)).unwrap()
}

/// Of a service that is 30 s ahead, the sample that is stamped "now" was taken
/// 30 s ago, perhaps before the fence that it is to judge.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_of_an_exporter_that_is_30s_ahead_are_no_data() {
    const AHEAD: Duration = Duration::from_secs(30);
    // Its clock gains until it is so far ahead: this does not take half a minute.
    let service = ahead(|uptime| (uptime * 10).min(AHEAD));
    let Some(believing) = RealPrometheus::start(&[service.address]) else { return };
    let Some(own) = RealPrometheus::start_with("250ms", false, &[service.address]) else { return };
    let (believing, own) = (client(&believing), client(&own));
    let deadline = Instant::now() + 6 * COLLECTED;
    let expected = "samples of taken_secs are stamped up to 30s in the future; accepted: exporters \
                    whose clock is right, or `honor_timestamps: false` in Prometheus";
    loop {
        let value = judged(&believing, "taken_secs").await.unwrap();
        if value.as_ref().is_err_and(|why| why.to_string() == expected) {
            break;
        }
        assert!(Instant::now() < deadline, "{value:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let rate = judged(&believing, "max(max_over_time(taken_secs[1m] offset 5s))").await.unwrap();
    assert_eq!(rate.unwrap_err().to_string(), expected);
    // Stamped by Prometheus. A busy machine makes it miss a scrape now and then.
    for (prometheus, query) in [(&believing, "plain_secs"), (&own, "taken_secs")] {
        while let Err(why) = judged(prometheus, query).await.unwrap() {
            assert!(Instant::now() < deadline, "{query}: {why}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Ahead by less than the interval between two scrapes, the last sample is
/// stamped in the past most of the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_of_an_exporter_that_is_3s_ahead_are_never_taken_for_newer() {
    let service = ahead(|_| Duration::from_secs(3));
    let server = RealPrometheus::start_with("4s", true, &[service.address]);
    let Some(server) = server else { return };
    let (start, mut values) = (Instant::now(), 0);
    while start.elapsed() < 2 * COLLECTED {
        // A new one each time: it remembers nothing.
        let value = judged(&client(&server), "taken_secs").await.unwrap();
        values += usize::from(value.is_ok());
        judged(&client(&server), "plain_secs").await.unwrap().ok();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(values > 0, "nothing was compared");
}

/// Two replicas behind a load balancer that sends each request to the other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_behind_a_load_balancer_are_never_taken_for_newer() {
    let service = ahead(|_| Duration::ZERO);
    let start = || RealPrometheus::start_with("3s", true, &[service.address]);
    let Some(first) = start() else { return };
    // Their scrapes are apart.
    std::thread::sleep(Duration::from_millis(1500));
    let Some(second) = start() else { return };
    let requests = AtomicUsize::new(0);
    let balancer = Stub::start(move |asked| {
        let turn = requests.fetch_add(1, Ordering::SeqCst) % 2;
        let (status, body) =
            [&first, &second][turn].query(&asked.field("query").unwrap(), now_secs());
        Reply::Whole(status, body.to_string())
    });
    let endpoint = format!("http://{}", balancer.address).parse().unwrap();
    let prometheus = Prometheus::new(endpoint, None, Duration::from_secs(5)).unwrap();
    let (start, mut values) = (Instant::now(), 0);
    while start.elapsed() < 2 * COLLECTED {
        let value = judged(&prometheus, "plain_secs").await.unwrap();
        values += usize::from(value.is_ok());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(values > 50, "{values} values were compared");
}

/// The Prometheus, and a scraper of the same targets.
fn both(server: &RealPrometheus, targets: &[SocketAddr]) -> [Box<dyn Health>; 2] {
    let interval = Duration::from_millis(250);
    let targets = targets.iter().map(|address| Target {
        endpoint: format!("http://{address}/metrics").parse().unwrap(),
        job: "test".into(),
        credentials: None,
    });
    let settings = ScraperSettings { interval, ..ScraperSettings::new(targets.collect()) };
    [Box::new(client(server)), Box::new(Scraper::start(settings))]
}

/// Measures an exact condition until its value, or why there is none, contains this.
async fn until(health: &dyn Health, query: &str, what: &str) {
    let exact = Condition { is_exact: true, ..condition(query, Comparison::AtMost, 0.0) };
    let deadline = Instant::now() + 6 * COLLECTED;
    loop {
        let text = match health.measure(&exact).await {
            Ok(reading) => reading.value.to_string(),
            Err(why) => why.to_string(),
        };
        if text.contains(what) {
            return;
        }
        assert!(Instant::now() < deadline, "{query}: {text}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// One of two replicas is behind, and its exporter dies: the other one is not what
/// an exact condition is about.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exact_condition_misses_the_series_of_an_exporter_that_died() {
    let died = Arc::new(AtomicBool::new(false));
    let behind = died.clone();
    let behind = Stub::start(move |_| match behind.load(Ordering::SeqCst) {
        true => Reply::Whole(503, String::new()),
        false => Reply::Whole(200, "lag 500\n".into()),
    });
    let level = Stub::start(|_| {
        Reply::Whole(200, "lag 0\nodd{shard=\"a\"} NaN\nodd{shard=\"b\"} 0\n".into())
    });
    let targets = [behind.address, level.address];
    let Some(server) = RealPrometheus::start(&targets) else { return };
    let healths = both(&server, &targets);
    for health in &healths {
        until(&**health, "count(lag)", "2").await;
        until(&**health, "lag", "500").await;
    }
    // Aggregations pass over what is not a number.
    for query in ["max(odd)", "min(odd)", "{__name__=~\"od.*\"}"] {
        for health in &healths {
            until(&**health, query, "is NaN").await;
        }
    }
    died.store(true, Ordering::SeqCst);
    for (health, why) in healths.iter().zip(["series of lag ended less than 5m ago", "status 503"])
    {
        for query in ["lag", "max(lag)", "sum(lag)"] {
            until(&**health, query, why).await;
        }
    }
}

/// Many exporters say -1 where the lag is not known, and `max` passes over it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exact_condition_has_no_value_while_one_of_its_series_is_negative() {
    let stub = Stub::start(|_| {
        let lag = "lag{replica=\"west\"} -1\nlag{replica=\"south\"} 0\n";
        let odd = "odd{shard=\"a\"} -Inf\nodd{shard=\"b\"} 0\n";
        let counters = "written 700\napplied{replica=\"west\"} 700\n";
        Reply::Whole(200, [lag, odd, counters].concat())
    });
    let Some(server) = RealPrometheus::start(&[stub.address]) else { return };
    let instance = format!("instance=\"{}\",job=\"test\"", stub.address);
    let west = format!("lag{{{instance},replica=\"west\"}} is -1: a negative value means unknown");
    let endless = format!("odd{{{instance},shard=\"a\"}} is -inf: a negative value means unknown");
    for health in both(&server, &[stub.address]) {
        // Whatever the query makes of it.
        for query in [
            "max(lag)",
            "sum(lag) + 1",
            "abs(lag)",
            "lag >= 0",
            "clamp_min(lag, 0)",
            "max_over_time(lag[1m])",
            "max({__name__=~\"la.*\"})",
            "max(applied) - max(written) + max(lag)",
        ] {
            until(&*health, query, &west).await;
        }
        until(&*health, "max(odd)", &endless).await;
        let value = async |is_exact, query: &str| {
            let condition = condition(query, Comparison::AtMost, 0.0);
            let reading = health.measure(&Condition { is_exact, ..condition }).await;
            reading.map(|reading| reading.value)
        };
        assert_eq!(value(true, "lag{replica=\"south\"}").await, Ok(0.0));
        // Counters are not negative; their difference may be, and is judged as a value.
        assert_eq!(value(true, "max(written) - min(applied)").await, Ok(0.0));
        assert_eq!(value(true, "max(applied) - max(written) - 5").await, Ok(-5.0));
        assert_eq!(value(false, "max(lag)").await, Ok(0.0));
    }
}
