//! The scraper while queries are evaluated.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use drain::{Comparison, NoData, Source};

use super::*;

/// How long anything may take that is not the point of a test.
const PATIENCE: Duration = Duration::from_secs(20);

fn scraper(time_max: Duration) -> Scraper {
    Scraper::start(ScraperSettings { time_max, ..ScraperSettings::new(Vec::new()) })
}

fn condition() -> Condition {
    Condition {
        name: "test".into(),
        source: Source::Query("vector(7)".into()),
        comparison: Comparison::AtMost,
        bound: 0.0,
        hold_for: Millis::ZERO,
        max_age: Millis::from_secs(30),
        no_data: NoData::Block,
        no_traffic: NoData::Block,
        no_traffic_back: NoData::Block,
        is_exact: false,
    }
}

/// Keeps evaluations from going on until the sender is used. The thread says whether it
/// was, or else had to give up.
fn hold(scraper: &Scraper) -> (Sender<()>, JoinHandle<bool>) {
    let (book, (release, released), (held, is_held)) = (scraper.book.clone(), channel(), channel());
    let holder = std::thread::spawn(move || {
        let _book = lock(&book);
        held.send(()).unwrap();
        released.recv_timeout(PATIENCE).is_ok()
    });
    is_held.recv().unwrap();
    (release, holder)
}

#[tokio::test]
async fn the_runtime_goes_on_while_a_query_is_evaluated() {
    let scraper = scraper(2 * PATIENCE);
    let (release, holder) = hold(&scraper);
    let condition = condition();
    // This thread is the only one of the runtime.
    let (measured, sent) = tokio::join!(scraper.measure(&condition), async { release.send(()) });
    assert!(holder.join().unwrap() && sent.is_ok(), "nothing else ran until it was evaluated");
    assert_eq!(measured.unwrap().value, 7.0);
}

#[tokio::test]
async fn an_evaluation_that_takes_too_long_is_no_data_and_keeps_its_turn() {
    let scraper = scraper(Duration::from_millis(50));
    let (release, holder) = hold(&scraper);
    for _ in 0..=EVALUATIONS_MAX {
        let measured = scraper.measure(&condition()).await.unwrap_err();
        assert_eq!(measured, NoValue::Slow { limit: Millis(50) });
    }
    assert_eq!(scraper.turns.available_permits(), 0, "they are still under way");
    release.send(()).unwrap();
    assert!(holder.join().unwrap());
    let all = scraper.turns.acquire_many(EVALUATIONS_MAX as u32);
    drop(timeout(PATIENCE, all).await.expect("they end").unwrap());
}
