//! Commands of `exec` drivers end with all that they started: when they take too
//! long, and when the server is gone.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use drivers::Driver;
use drivers::exec::{Config, Exec};

use crate::common::eventually;

/// What puts a command into a group or a session of its own, or leaves it behind.
const WRAPPERS: [&[&str]; 5] = [
    &["env"],
    &["timeout", "60"],
    &["setsid", "--wait"],
    &["sh", "-c", "set -m; \"$@\" & wait", "sh"],
    &["sh", "-c", "(\"$@\" &); sleep 60", "sh"],
];

/// Whether a process has these words among its arguments. Its supervisor has them too,
/// and so has the command itself before it is tied to that.
pub fn runs(words: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.into_iter().any(|process| {
        let arguments = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        arguments.contains(words) && !arguments.contains(" supervise --")
    })
}

/// A wrapped command that takes a minute, and how it is found.
fn slow(wrapper: usize, test: u32) -> (Vec<String>, String) {
    // Nobody else sleeps for exactly so long.
    let span = format!("61.{test}{wrapper}{}", std::process::id());
    let command = WRAPPERS[wrapper].iter().copied().chain(["sleep", &span]);
    (command.map(str::to_owned).collect(), format!("sleep {span}"))
}

fn supervised(command: &[String]) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_pharos"));
    child.args(["supervise", "--"]).args(command).stdin(Stdio::piped()).process_group(0);
    child.spawn().unwrap()
}

#[test]
fn a_command_ends_with_its_server_and_with_its_supervisor() {
    for wrapper in 0..WRAPPERS.len() {
        for signal in [None, Some("TERM"), Some("INT")] {
            let (command, name) = slow(wrapper, 1);
            let mut supervisor = supervised(&command);
            eventually("it runs", || runs(&name));
            match signal {
                // As when the server dies.
                None => drop(supervisor.stdin.take()),
                Some(signal) => {
                    let pid = supervisor.id().to_string();
                    let told = Command::new("kill").args(["-s", signal, &pid]).status();
                    assert!(told.unwrap().success());
                }
            }
            assert_eq!(supervisor.wait().unwrap().code(), Some(137), "{command:?} {signal:?}");
            assert!(!runs(&name), "{command:?} {signal:?}");
        }
    }
}

/// As when the server and its supervisor are killed together: nobody is left to end it.
#[test]
fn a_command_ends_with_a_supervisor_that_is_killed() {
    // Longer than anything is waited for.
    let name = format!("sleep 600.5{}", std::process::id());
    let command: Vec<String> = name.split(' ').map(str::to_owned).collect();
    let mut supervisor = supervised(&command);
    // The server may be gone, or may still be telling it that it lives.
    let _lifeline = supervisor.stdin.take();
    eventually("it runs", || runs(&name));
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    eventually("it is killed too", || !runs(&name));
}

/// A supervisor may be killed before its command has asked to be killed with it.
#[test]
fn a_command_does_not_begin_when_its_supervisor_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("promoted");
    let tied = |parent: u32| {
        let mut tied = Command::new(env!("CARGO_BIN_EXE_pharos"));
        tied.args(["supervise", "--tied-to", &parent.to_string(), "--", "touch"]).arg(&file);
        tied.output().unwrap()
    };
    // Whatever its number, it is not the one that starts this.
    let refused = tied(u32::MAX);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("did not start this, or has ended"), "{said}");
    assert!(!file.exists());
    assert!(tied(std::process::id()).status.success());
    assert!(file.exists());
}

#[test]
fn the_exit_status_of_a_command_is_passed_on() {
    let code = |script: &str| {
        let mut supervisor = supervised(&["sh", "-c", script].map(str::to_owned));
        let _lifeline = supervisor.stdin.take();
        supervisor.wait().unwrap().code()
    };
    assert_eq!(code("exit 0"), Some(0));
    assert_eq!(code("exit 75"), Some(75));
    assert_eq!(code("kill -9 $$"), Some(137));
    let mut missing = supervised(&["/no/such/program".to_owned()]);
    let _lifeline = missing.stdin.take();
    assert_eq!(missing.wait().unwrap().code(), Some(127));
}

/// The next try must not meet the one before.
#[tokio::test]
async fn a_command_that_takes_too_long_ends_with_all_that_it_started() {
    let supervisor = [env!("CARGO_BIN_EXE_pharos"), "supervise", "--"].map(str::to_owned);
    for wrapper in 0..WRAPPERS.len() {
        let (command, name) = slow(wrapper, 2);
        let config = Config { read: command, timeout_ms: 1000, ..Config::default() };
        let text = Exec::new(&config, &supervisor).read("k").await.unwrap_err().to_string();
        assert!(text.ends_with("was killed, with all that it started"), "{text}");
        assert!(!runs(&name), "{:?}", config.read);
    }
}

/// Another server may have taken the run meanwhile.
#[test]
fn a_command_ends_when_its_server_is_stopped() {
    let (command, name) = slow(1, 3);
    // Nobody writes to it.
    let mut supervisor = supervised(&command);
    let _lifeline = supervisor.stdin.take();
    eventually("it runs", || runs(&name));
    assert_eq!(supervisor.wait().unwrap().code(), Some(75));
    assert!(!runs(&name));
}

/// It is tried again, and must not meet what is left of the try before.
#[test]
fn a_command_that_failed_leaves_nothing_behind() {
    let (command, name) = slow(1, 4);
    let script = format!("{} & exit 75", command.join(" "));
    let mut supervisor = supervised(&["sh", "-c", &script].map(str::to_owned));
    let _lifeline = supervisor.stdin.take();
    assert_eq!(supervisor.wait().unwrap().code(), Some(75));
    assert!(!runs(&name));
}

/// What it left in the background holds its output open for a while.
#[tokio::test]
async fn what_a_command_printed_is_read_whatever_it_leaves_behind() {
    let supervisor = [env!("CARGO_BIN_EXE_pharos"), "supervise", "--"].map(str::to_owned);
    // Around the moments in which the server says that it lives.
    for pause in ["0.6", "0.8", "0.95"] {
        let script = format!("(sleep 3 &); sleep {pause}; echo 42");
        let read = ["sh", "-c", &script].map(str::to_owned).to_vec();
        let config = Config { read, timeout_ms: 10_000, ..Config::default() };
        let found = Exec::new(&config, &supervisor).read("k").await;
        assert_eq!(found, Ok(drain::Value::Number(42.0)), "{pause}");
    }
}
