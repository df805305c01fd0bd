//! A process that is killed, and a disk that is full: what was said to be kept
//! is there, and nothing half of anything.
//!
//! The process that is killed is this test itself, started again to run
//! [`child_that_appends`].

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::*;
use store::{Entry, Error, Store};
use tempfile::TempDir;

const FILE: &str = "STORE_TEST_FILE";
/// Records of one append of the child: none of them, or all.
const BATCH: u64 = 7;

/// Appends until it is killed or cannot. Says what is kept, line by line.
#[tokio::test]
#[ignore = "run by the others, in a process of its own"]
async fn child_that_appends() {
    let Some(file) = std::env::var_os(FILE) else { return };
    let store = Store::open(Path::new(&file)).await.unwrap();
    let run = new_run(&store, "dc1").await;
    let lease = store.lease(run, "child", 0, TTL_MS).await.unwrap();
    let padding = "x".repeat(700);
    for first in (0..).step_by(BATCH as usize) {
        let batch: Vec<_> = (first..first + BATCH)
            .map(|seq| Entry { seq, at: 0, json: format!("{seq} {padding}") })
            .collect();
        match store.append(&lease, &batch).await {
            Ok(()) => println!("kept {}", first + BATCH),
            Err(error) => {
                println!("refused {error}");
                // The store is not spoilt by it: reading goes on, and so does refusing.
                let kept = store.records(run, 0).all().await.unwrap();
                println!("has {}", kept.len());
                let again = store.append(&lease, &batch).await.unwrap_err();
                assert!(matches!(again, Error::NoRoom { .. }), "{again}");
                return;
            }
        }
    }
}

/// Starts the child through a command that ends in its own arguments.
fn start(mut command: Command, file: &Path) -> Child {
    command
        .args(["--exact", "child_that_appends", "--ignored", "--nocapture"])
        .env(FILE, file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Checks that the file has a prefix of what the child wrote, at least as long
/// as it said.
async fn check_prefix(file: &Path, said: u64) {
    let store = Store::open(file).await.unwrap();
    let run = store.runs(store::Filter::default(), 1).await.unwrap().remove(0);
    let kept = store.records(run.id, 0).all().await.unwrap();
    assert_eq!(kept.len() as u64, run.records);
    assert!(run.records >= said, "{} kept, {said} said to be", run.records);
    assert_eq!(run.records % BATCH, 0, "half of an append is there");
    for (seq, entry) in (0..).zip(&kept) {
        assert_eq!(entry.seq, seq);
        assert!(entry.json.starts_with(&format!("{seq} ")));
    }
    let next = store.seize(run.id, "heir", 0, TTL_MS).await.unwrap();
    store.append(&next, &entries(run.records..run.records + 1)).await.unwrap();
}

#[tokio::test]
async fn killed_in_the_middle_of_appends() {
    // At different moments: the more was kept, the later.
    for lines in [1, 2, 5, 17, 40] {
        let folder = TempDir::new().unwrap();
        let mut child = start(Command::new(std::env::current_exe().unwrap()), &path(&folder));
        let mut said = 0;
        let output = BufReader::new(child.stdout.take().unwrap());
        let kept = output.lines().map(Result::unwrap);
        let kept = kept.filter_map(|line| line.strip_prefix("kept ")?.parse::<u64>().ok());
        for count in kept.take(lines) {
            said = count;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(said, lines as u64 * BATCH);
        check_prefix(&path(&folder), said).await;
    }
}

/// Lets the child run into the end of its disk; checks what it says of it.
async fn run_out_of_room(command: Command, folder: &TempDir, file: &Path) {
    let output = start(command, file).wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let told = |what: &str| text.lines().filter_map(|line| line.strip_prefix(what)).next_back();
    let refused = told("refused ").unwrap_or_else(|| panic!("no end of the disk: {text}"));
    assert!(refused.contains("keeping records: the disk takes nothing more"), "{refused}");
    assert!(refused.contains("make room"), "{refused}");
    let said: u64 = told("kept ").unwrap().parse().unwrap();
    assert_eq!(told("has ").unwrap().parse(), Ok(said));
    // There is room now.
    let elsewhere = folder.path().join("elsewhere.db");
    for end in ["", "-wal"] {
        let from = format!("{}{end}", file.display());
        if Path::new(&from).exists() {
            std::fs::copy(from, format!("{}{end}", elsewhere.display())).unwrap();
        }
    }
    check_prefix(&elsewhere, said).await;
}

#[tokio::test]
async fn a_file_that_may_not_grow_is_said_so() {
    let folder = TempDir::new().unwrap();
    let mut command = Command::new("sh");
    // In blocks of 512 octets. Without the trap the kernel would kill the process.
    let script = r#"trap '' XFSZ; ulimit -f 512; exec "$0" "$@""#;
    command.args(["-c", script]).arg(std::env::current_exe().unwrap());
    run_out_of_room(command, &folder, &path(&folder)).await;
}

#[tokio::test]
async fn a_full_disk_is_said_so() {
    let folder = TempDir::new().unwrap();
    let (disk, keep) = (folder.path().join("disk"), folder.path().join("keep"));
    std::fs::create_dir(&disk).unwrap();
    std::fs::create_dir(&keep).unwrap();
    // A disk of its own, in name spaces of its own; it goes with the last process, so the files
    // are copied out first.
    let script = r#"mount -t tmpfs -o size=600k tmpfs "$DISK" && "$0" "$@"; status=$?
                    cp "$DISK"/* "$KEEP"/ || exit 90; exit $status"#;
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c", script]).arg(std::env::current_exe().unwrap());
    command.env("DISK", &disk).env("KEEP", &keep);
    let can = Command::new("unshare").args(["-Urm", "true"]).status();
    if !can.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no disk of our own can be made here (unshare -Urm)");
        return;
    }
    let output = start(command, &disk.join("drain.db")).wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("the disk takes nothing more"), "{text}");
    let said = text.lines().filter_map(|line| line.strip_prefix("kept ")).next_back().unwrap();
    check_prefix(&keep.join("drain.db"), said.parse().unwrap()).await;
}
