//! Measures one query, three times:
//!
//! ```console
//! measure prometheus http://127.0.0.1:9090 'up'
//! measure scrape http://127.0.0.1:9100/metrics 'rate(node_cpu_seconds_total[1m])'
//! ```

use std::time::Duration;

use drain::{Comparison, Condition, Millis, NoData, Source};
use health::{Health, Prometheus, Scraper, ScraperSettings, Target, query};

const USAGE: &str = "give `prometheus URL QUERY` or `scrape URL QUERY`";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, url, text] = &arguments[..] else { return Err(USAGE.into()) };
    let endpoint = url.parse()?;
    let health: Box<dyn Health> = match kind.as_str() {
        "prometheus" => Box::new(Prometheus::new(endpoint, None, Duration::from_secs(5))?),
        "scrape" => {
            query::check(text)?;
            let target = Target { endpoint, job: "example".into(), credentials: None };
            let mut settings = ScraperSettings::new(vec![target]);
            settings.interval = Duration::from_secs(1);
            Box::new(Scraper::start(settings))
        }
        _ => return Err(USAGE.into()),
    };
    let condition = Condition {
        name: "example".into(),
        source: Source::Query(text.clone()),
        comparison: Comparison::AtMost,
        bound: 0.0,
        hold_for: Millis::ZERO,
        max_age: Millis::from_secs(30),
        no_data: NoData::Block,
        no_traffic: NoData::Block,
        no_traffic_back: NoData::Block,
        is_exact: false,
    };
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        match health.measure(&condition).await {
            Ok(reading) => println!("{} ({} old)", reading.value, reading.age),
            Err(why) => println!("no value: {why}"),
        }
    }
    Ok(())
}
