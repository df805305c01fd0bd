//! Ends a command with the server that started it, and with all that it started.
//!
//! A server that is killed cannot end what it started, and a promotion that goes
//! on by itself would undo what the next server does meanwhile. So a small process
//! stands between them. It holds one end of a pipe whose other end no process but
//! the server has: when that end is closed, the server is gone, or wants an end; when
//! nothing comes for a while, it is stopped.
//! It also adopts whatever the command leaves behind, so that all of it is found,
//! in whichever group and session it is: `timeout` and job control make groups of
//! their own. The same if it is told to end itself. SIGKILL leaves it no time: then
//! the kernel kills the command itself, which asked for it before it began
//! ([`run_tied`]), and what the command started is left.

use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpgrp, getpid, getppid, pidfd_open, pidfd_send_signal,
    set_child_subreaper, set_parent_process_death_signal, wait,
};
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

/// What a shell says of a program that cannot be started, and of one that was
/// killed.
const EXIT_NOT_STARTED: u8 = 127;
const EXIT_KILLED: u8 = 137;
/// Try again, from sysexits.h.
const EXIT_AGAIN: u8 = 75;
/// What a shell adds to the number of a signal.
const EXIT_SIGNALLED: i32 = 128;
/// How long a server may be silent: less than the lease on a run lasts, after which
/// another server takes it.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How often it says that it lives.
pub(super) const BEAT_EVERY: Duration = Duration::from_secs(1);
/// How long to wait before looking for descendants again.
const KILL_AGAIN: Duration = Duration::from_millis(2);

/// Runs a program with its arguments until it ends, or until standard input does.
/// Returns its exit status, as a shell would. `tie` is a command that calls [`run_tied`]
/// with the process id and the arguments that follow it.
pub fn supervise(tie: &[&str], command: &[OsString]) -> Result<u8, String> {
    let [starter, options @ ..] = tie else { return Err("nothing starts the command".into()) };
    let own = getpid().as_raw_nonzero().to_string();
    let mut tied = Command::new(starter);
    tied.args(options).args([own.as_str(), "--"]).args(command).stdin(Stdio::null());
    if getpgrp() != getpid() {
        return Err("only a server starts this: it kills whatever it has started".into());
    }
    let failed = |error: rustix::io::Errno| format!("cannot adopt what is left behind: {error}");
    set_child_subreaper(Some(getpid())).map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot wait for a command: {error}"))?;
    let code = runtime.block_on(run(tied));
    // Whoever reads standard input cannot be stopped.
    runtime.shutdown_background();
    code
}

/// Becomes a program that the kernel kills when the process that started it, `parent`,
/// ends. Only what fails returns; the exit status is that of a shell.
///
/// This asks for itself: asking between fork and exec takes unsafe code.
pub fn run_tied(parent: u32, command: &[OsString]) -> Result<u8, String> {
    let [program, arguments @ ..] = command else { return Err("there is no command".into()) };
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("cannot be killed with its supervisor: {error}"))?;
    // A supervisor that was gone before is not told of.
    if getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs()) != Some(parent) {
        return Err(format!("process {parent} did not start this, or has ended"));
    }
    let error = std::process::Command::new(program).args(arguments).exec();
    eprintln!("cannot start `{}`: {error}", program.display());
    Ok(EXIT_NOT_STARTED)
}

async fn run(mut tied: Command) -> Result<u8, String> {
    // Before anything is started, so that nothing is left behind.
    let told = |kind| signal(kind).map_err(|error| format!("cannot wait for signals: {error}"));
    let (mut terminate, mut interrupt) =
        (told(SignalKind::terminate())?, told(SignalKind::interrupt())?);
    let (mut hangup, mut quit) = (told(SignalKind::hangup())?, told(SignalKind::quit())?);
    // It is tied to the thread that starts it, which is this one until the end.
    let started = tied.spawn();
    let mut child = started.map_err(|error| format!("cannot start a command: {error}"))?;
    let code = tokio::select! {
        code = end_of_input() => code,
        _ = terminate.recv() => EXIT_KILLED,
        _ = interrupt.recv() => EXIT_KILLED,
        _ = hangup.recv() => EXIT_KILLED,
        _ = quit.recv() => EXIT_KILLED,
        status = child.wait() => {
            let status = status.map_err(|error| format!("cannot wait for a command: {error}"))?;
            // It is called failed, and tried again: nothing of it may go on.
            if !status.success() {
                end_descendants();
            }
            let signal = || EXIT_SIGNALLED + status.signal().unwrap_or_default();
            return Ok(u8::try_from(status.code().unwrap_or_else(signal)).unwrap_or(u8::MAX));
        }
    };
    end_descendants();
    Ok(code)
}

/// When the server is gone, or wants an end, or has been silent for too long: one
/// that is stopped may have lost the run to another.
async fn end_of_input() -> u8 {
    let mut input = tokio::io::stdin();
    let mut beats = [0; 64];
    loop {
        match timeout(SILENCE_MAX, input.read(&mut beats)).await {
            Ok(Ok(len)) if len > 0 => {}
            Ok(_) => return EXIT_KILLED,
            Err(_) => {
                let secs = SILENCE_MAX.as_secs();
                eprintln!("killed: the server said nothing for {secs} s, and may be stopped");
                return EXIT_AGAIN;
            }
        }
    }
}

/// Kills all descendants of this process, again until none is left: they may start
/// others meanwhile.
fn end_descendants() {
    loop {
        let descendants = descendants();
        if descendants.is_empty() {
            return;
        }
        for pid in descendants {
            // A number may have been given to another process since.
            let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            if is_descendant(pid) {
                let _ = pidfd_send_signal(&held, Signal::KILL);
            }
        }
        while wait(WaitOptions::NOHANG).is_ok_and(|waited| waited.is_some()) {}
        std::thread::sleep(KILL_AGAIN);
    }
}

fn descendants() -> Vec<Pid> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes
        .flatten()
        .filter_map(|process| Pid::from_raw(process.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| is_descendant(*pid)).collect()
}

/// Whether a process lives and comes from this one.
fn is_descendant(pid: Pid) -> bool {
    let own = getpid();
    let Some((mut parent, is_alive)) = parent(pid) else { return false };
    // As deep as there are processes, whatever changes meanwhile.
    for _ in 0..1 << 16 {
        if parent == own {
            return is_alive;
        }
        match self::parent(parent) {
            Some((next, _)) => parent = next,
            None => return false,
        }
    }
    false
}

/// The parent of a process, and whether the process lives: one that has ended stays
/// until somebody has asked how.
fn parent(pid: Pid) -> Option<(Pid, bool)> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // `PID (NAME) STATE PARENT …`, where the name may have anything in it.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let is_alive = !matches!(fields.next()?, "Z" | "X");
    Some((Pid::from_raw(fields.next()?.parse().ok()?)?, is_alive))
}
