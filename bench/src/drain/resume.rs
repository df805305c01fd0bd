//! How long it takes to go on after a crash: from the opening of the store to a run that takes
//! events.
//!
//! The files are copied while the store is open, so what is opened is what a killed process
//! leaves behind: a database with a write-ahead log.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use drain::Plan;
use drain::engine::{Record, Run};
use store::{ENTRIES_MAX, Entry, NewRun, RunId, Store};

use super::engine_cost;
use super::report::Resume;
use super::sample::START;
use crate::interrupt;
use crate::progress::Progress;
use crate::stats::Spread;

/// Tasks of the runs that are taken up.
const TASKS: [usize; 4] = [79, 1_000, 3_000, 10_000];
/// How far each run was, as a share of its records.
const CRASHED_AT: f64 = 0.9;
const LEASE_MS: u64 = 1000;

/// Crashed runs of several sizes, each taken up some times.
pub fn measure(plan: &Plan, rounds: usize) -> Result<Vec<Resume>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    let directory = Scratch::new()?;
    let mut progress = Progress::new("resume", TASKS.len() * rounds);
    let mut found = Vec::new();
    for (at, tasks) in TASKS.into_iter().enumerate() {
        let (plan, mut records) = engine_cost::records(plan, tasks)?;
        records.truncate((records.len() as f64 * CRASHED_AT) as usize);
        let crashed =
            runtime.block_on(crash(&directory.0.join(tasks.to_string()), &plan, &records))?;
        let mut times = Vec::new();
        for round in 0..rounds {
            interrupt::check()?;
            times.push(runtime.block_on(take_up(&crashed, round, records.len()))?);
            progress.show(at * rounds + round + 1);
        }
        let over = |of: fn(&Times) -> f64| Spread::of(times.iter().map(of)).unwrap_or_default();
        found.push(Resume {
            tasks,
            records: records.len(),
            octets: size(&crashed)?,
            secs: over(|times| times.open + times.read + times.replay),
            open_secs: over(|times| times.open),
            read_secs: over(|times| times.read),
            replay_secs: over(|times| times.replay),
        });
    }
    progress.finish();
    Ok(found)
}

/// A directory that is gone when the measurement is.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch> {
        let path = std::env::temp_dir().join(format!("pharos-bench-resume-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left behind in the directory of temporary files is nobody's loss.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes a run down and leaves the files of a store that was never closed.
async fn crash(directory: &Path, plan: &Plan, records: &[Record]) -> Result<PathBuf> {
    fs::create_dir_all(directory)?;
    let live = directory.join("live.db");
    let store = Store::open(&live).await?;
    let json = serde_json::to_string(plan)?;
    let new = NewRun {
        datacenter: &plan.datacenter,
        direction: "drain",
        plan: &json,
        actor: "bench",
        reason: "a crash",
        at: START.0,
    };
    let id = store.create_run(new).await?;
    let lease = store.lease(id, "before", START.0, LEASE_MS).await?;
    let mut entries = Vec::with_capacity(records.len());
    for record in records {
        let json = serde_json::to_string(record)?;
        entries.push(Entry { seq: record.seq, at: record.at.0, json });
    }
    for some in entries.chunks(ENTRIES_MAX) {
        store.append(&lease, some).await?;
    }
    let crashed = directory.join("crashed.db");
    copy(&live, &crashed)?;
    store.close().await?;
    Ok(crashed)
}

/// The file and its write-ahead log. What they share in memory does not survive a crash.
fn copy(from: &Path, to: &Path) -> Result<()> {
    for suffix in ["", "-wal"] {
        let (from, to) = (with_suffix(from, suffix), with_suffix(to, suffix));
        fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    Ok(())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn size(path: &Path) -> Result<u64> {
    let sizes = ["", "-wal"].map(|suffix| fs::metadata(with_suffix(path, suffix)));
    let mut all = 0;
    for found in sizes {
        all += found?.len();
    }
    Ok(all)
}

#[derive(Debug)]
struct Times {
    open: f64,
    read: f64,
    replay: f64,
}

/// Takes up a copy of what the crash left, as a server that starts does.
async fn take_up(crashed: &Path, round: usize, expected: usize) -> Result<Times> {
    let path = crashed.with_file_name(format!("round-{round}.db"));
    copy(crashed, &path)?;
    let began = Instant::now();
    let store = Store::open(&path).await?;
    let open = began.elapsed().as_secs_f64();
    let id = RunId(1);
    let later = START.0 + 365 * 86_400_000;
    store.lease(id, "after", later, LEASE_MS).await?;
    let plan: Plan = serde_json::from_str(&store.plan(id).await?)?;
    let mut records = Vec::new();
    for entry in store.records(id, 0).all().await? {
        records.push(serde_json::from_str::<Record>(&entry.json)?);
    }
    let read = began.elapsed().as_secs_f64() - open;
    let run = Run::resume(plan.into(), &records).map_err(|error| anyhow::anyhow!("{error}"))?;
    let replay = began.elapsed().as_secs_f64() - open - read;
    ensure!(records.len() == expected, "{} of {expected} records", records.len());
    ensure!(run.state().closed.is_none(), "the run was over");
    store.close().await?;
    fs::remove_file(&path)?;
    Ok(Times { open, read, replay })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::sample::tests::sample;

    #[test]
    fn a_crashed_run_is_taken_up_again() {
        let plan = sample().drain_plan().unwrap();
        let (many, mut records) = engine_cost::records(&plan, 100).unwrap();
        records.truncate(records.len() / 2);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let scratch = Scratch::new().unwrap();
        let path = scratch.0.clone();
        runtime.block_on(async {
            let crashed = crash(&path.join("one"), &many, &records).await.unwrap();
            assert!(size(&crashed).unwrap() > 10_000);
            assert!(take_up(&crashed, 0, records.len()).await.unwrap().read > 0.0);
        });
        drop(scratch);
        assert!(!path.exists());
    }
}
