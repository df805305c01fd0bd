//! How fast a store is on this disk: appends, and reading a run back.
//!
//!     cargo run --release -p store --example measure -- FILE

use std::time::Instant;

use store::{Entry, NewRun, Store};

const RECORDS: u64 = 100_000;

fn entry(seq: u64) -> Entry {
    let json = format!(
        r#"{{"issued":{{"effect":{seq},"task":17,"what":{{"write":{{"knob":3,"value":0.35}}}}}}}}"#
    );
    Entry { seq, at: 1_800_000_000_000 + seq, json }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("which file? It must not exist yet")?;
    let store = Store::open(&path).await?;
    let new = NewRun {
        datacenter: "dc1",
        direction: "drain",
        plan: "{}",
        actor: "me",
        reason: "to measure",
        at: 0,
    };
    let run = store.create_run(new).await?;
    let lease = store.lease(run, "me", 0, 1000).await?;

    let mut next = 0;
    for (len, appends) in [(1, 500), (10, 500), (100, 200)] {
        let start = Instant::now();
        for _ in 0..appends {
            let batch: Vec<_> = (next..next + len).map(entry).collect();
            store.append(&lease, &batch).await?;
            next += len;
        }
        let secs = start.elapsed().as_secs_f64();
        let (per_sec, records) =
            (f64::from(appends) / secs, f64::from(appends) * len as f64 / secs);
        println!("appends of {len}: {per_sec:.0}/s, {records:.0} records/s");
    }
    while next < RECORDS {
        let batch: Vec<_> = (next..RECORDS.min(next + 5000)).map(entry).collect();
        store.append(&lease, &batch).await?;
        next += batch.len() as u64;
    }
    store.close().await?;

    let start = Instant::now();
    let store = Store::open(&path).await?;
    println!("open with its check: {:.0} ms", start.elapsed().as_secs_f64() * 1000.0);
    let start = Instant::now();
    let mut pages = store.records(run, 0);
    let mut count = 0;
    while let Some(page) = pages.next_page().await? {
        count += page.len();
    }
    println!("read {count} records: {:.0} ms", start.elapsed().as_secs_f64() * 1000.0);
    let size = std::fs::metadata(&path)?.len();
    println!("file: {:.1} MB", size as f64 / 1e6);
    Ok(())
}
