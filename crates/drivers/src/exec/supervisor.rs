//! Ends a command with the server that started it.
//!
//! A server that is killed cannot end what it started, and a promotion that goes
//! on by itself would undo what the next server does meanwhile. So a small process
//! stands between them: it leads the group of the command, and holds one end of a
//! pipe whose other end no process but the server has. When that end is closed,
//! the server is gone, and the group is killed.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use rustix::process::{Signal, getpgrp, getpid, kill_process_group};

/// What a shell says of a program that cannot be started.
const EXIT_NOT_STARTED: u8 = 127;
/// What a shell adds to the number of a signal.
const EXIT_SIGNALLED: i32 = 128;

/// Runs a program with its arguments until it ends, or until standard input does.
/// Returns its exit status, as a shell would.
pub fn supervise(command: &[OsString]) -> Result<u8, String> {
    let [program, arguments @ ..] = command else { return Err("there is no command".into()) };
    let group = getpgrp();
    if group != getpid() {
        return Err("only a server starts this: it kills its group of processes".into());
    }
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        while input.read(&mut [0; 64]).is_ok_and(|len| len > 0) {}
        let _ = kill_process_group(group, Signal::KILL);
    });
    match Command::new(program).args(arguments).stdin(Stdio::null()).status() {
        Ok(status) => {
            let signal = || EXIT_SIGNALLED + status.signal().unwrap_or_default();
            Ok(u8::try_from(status.code().unwrap_or_else(signal)).unwrap_or(u8::MAX))
        }
        Err(error) => {
            eprintln!("cannot start `{}`: {error}", program.display());
            Ok(EXIT_NOT_STARTED)
        }
    }
}
