//! One command: started, bounded in time and output, and ended with everything
//! it started, also when the server is killed.

use std::convert::Infallible;
use std::future::pending;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use base::text::excerpt;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{sleep, timeout};

use super::supervisor::BEAT_EVERY;
use crate::error::{Error, Result};

/// The longest output that is read. A knob's value is short.
const OUTPUT_LEN_MAX: usize = 64 * 1024;
/// How much of what a command complains about is read, and how much is told.
const COMPLAINT_LEN_MAX: usize = 4096;
const COMPLAINT_CHARS_MAX: usize = 1000;
/// How long output may go on after the command has ended, from something that
/// it left behind.
const LINGER_MAX: Duration = Duration::from_millis(500);
/// How long to wait for what was killed to end.
const END_MAX: Duration = Duration::from_secs(5);

// From sysexits.h.
const EX_NOINPUT: i32 = 66;
const EX_TEMPFAIL: i32 = 75;
const EX_NOPERM: i32 = 77;

/// A command with everything filled in.
#[derive(Clone, Debug)]
pub struct Invocation<'a> {
    /// What starts the command, and ends it with this process.
    supervisor: &'a [String],
    template: &'a [String],
    /// As `{name}` in arguments and `PHAROS_NAME` in the environment.
    names: Vec<(&'static str, String)>,
    environment: Vec<(String, String)>,
}

impl<'a> Invocation<'a> {
    pub fn new(supervisor: &'a [String], template: &'a [String]) -> Self {
        Invocation { supervisor, template, names: Vec::new(), environment: Vec::new() }
    }

    pub fn set(&mut self, name: &'static str, value: &str) {
        self.environment.push((format!("PHAROS_{}", name.to_uppercase()), value.to_owned()));
        self.names.push((name, value.to_owned()));
    }

    pub fn set_environment(&mut self, name: String, value: &str) {
        self.environment.push((name, value.to_owned()));
    }

    /// Runs it; returns what it printed, without white space around it.
    pub async fn run(self, limit: Duration) -> Result<String> {
        let arguments: Vec<String> =
            self.template.iter().map(|argument| self.fill(argument)).collect();
        let Some(program) = arguments.first() else {
            return Err(Error::Broken("there is no command".into()));
        };
        let mut words = self.supervisor.iter().chain(&arguments);
        let stdin = if self.supervisor.is_empty() { Stdio::null() } else { Stdio::piped() };
        let child = Command::new(words.next().unwrap_or(program))
            .args(words)
            .envs(self.environment)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            // A supervisor ends by itself, after all that it started.
            .kill_on_drop(self.supervisor.is_empty())
            .spawn();
        let mut child =
            child.map_err(|error| Error::Broken(format!("cannot start `{program}`: {error}")))?;
        let lifeline = child.stdin.take();
        let is_supervised = lifeline.is_some();
        // The supervisor kills all of them when this is dropped.
        let mut beating = lifeline.map(|lifeline| Box::pin(beat(lifeline)));
        let id = child.id().and_then(|id| Pid::from_raw(id as i32));
        let mut group = Group { id, child, is_over: false, is_supervised };
        let finished = async {
            let Some(beating) = &mut beating else { return group.finish().await };
            tokio::select! {
                ended = group.finish() => ended,
                never = beating => match never {},
            }
        };
        match timeout(limit, finished).await {
            Ok(ended) => {
                let ended = ended?;
                match ended.status.signal() {
                    Some(signal) if group.is_supervised => {
                        group.kill_group();
                        Err(Error::Broken(format!(
                            "the process that runs `{program}` was killed (signal {signal}), and \
                             what it started in other groups may still run; accepted: look, then \
                             `retry`"
                        )))
                    }
                    _ => judge(program, ended),
                }
            }
            Err(_) => {
                drop(beating);
                let took = format!("`{program}` took longer than {} ms and", limit.as_millis());
                match group.end().await {
                    true => {
                        let then = "was killed, with all that it started";
                        Err(Error::Transient(format!("{took} {then}")))
                    }
                    // It may go on at any time, and do what is decided otherwise by then.
                    false => Err(Error::Broken(format!(
                        "{took} could not be killed: something that it started is left, and may \
                         still do it; accepted: end it, look, then `retry`"
                    ))),
                }
            }
        }
    }

    /// Replaces names in one pass, so that nothing in a value is replaced again.
    fn fill(&self, argument: &str) -> String {
        let mut filled = String::with_capacity(argument.len());
        let mut rest = argument;
        'braces: while let Some(at) = rest.find('{') {
            filled.push_str(&rest[..at]);
            rest = &rest[at..];
            for (name, value) in &self.names {
                let after = rest[1..].strip_prefix(name).and_then(|rest| rest.strip_prefix('}'));
                if let Some(after) = after {
                    filled.push_str(value);
                    rest = after;
                    continue 'braces;
                }
            }
            filled.push('{');
            rest = &rest[1..];
        }
        filled + rest
    }
}

/// A command and the processes that it started. Dropped before its end, all of
/// them are killed: by the supervisor, or else those of its group.
struct Group {
    id: Option<Pid>,
    child: Child,
    is_over: bool,
    is_supervised: bool,
}

struct Ended {
    status: ExitStatus,
    output: Vec<u8>,
    complaint: Vec<u8>,
}

impl Group {
    async fn finish(&mut self) -> Result<Ended> {
        let broken = |error: std::io::Error| Error::Broken(format!("its output: {error}"));
        let (mut output, mut complaint) = (Vec::new(), Vec::new());
        let stdout = self.child.stdout.take();
        let stderr = self.child.stderr.take();
        let status = {
            let reading = async {
                let (one, other) = tokio::join!(
                    drink(stdout, &mut output, OUTPUT_LEN_MAX + 1),
                    drink(stderr, &mut complaint, COMPLAINT_LEN_MAX)
                );
                one.and(other)
            };
            tokio::pin!(reading);
            tokio::select! {
                read = &mut reading => {
                    read.map_err(broken)?;
                    self.child.wait().await.map_err(broken)?
                }
                status = self.child.wait() => {
                    // Something that it left behind may hold the pipes for ever.
                    if let Ok(read) = timeout(LINGER_MAX, &mut reading).await {
                        read.map_err(broken)?;
                    }
                    status.map_err(broken)?
                }
            }
        };
        self.is_over = true;
        Ok(Ended { status, output, complaint })
    }

    /// Kills all of them; whether none is left.
    async fn end(&mut self) -> bool {
        if !self.is_supervised {
            self.kill();
        }
        let has_ended = timeout(END_MAX, self.child.wait()).await.is_ok_and(|ended| ended.is_ok());
        self.is_over |= has_ended;
        has_ended
    }

    fn kill(&self) {
        // Its number is its own as long as nobody has waited for it.
        if !self.is_over {
            self.kill_group();
        }
    }

    /// Kills what is left of the group. Nobody else gets its number before that is
    /// gone.
    fn kill_group(&self) {
        if let Some(id) = self.id {
            let _ = kill_process_group(id, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_supervised {
            self.kill();
        }
    }
}

/// Tells the supervisor that the server lives. It never ends: a supervisor that cannot
/// be told has ended, and what the command printed is still to be read.
async fn beat(mut lifeline: ChildStdin) -> Infallible {
    while lifeline.write_all(b".").await.is_ok() {
        sleep(BEAT_EVERY).await;
    }
    pending().await
}

/// Reads up to a bound and swallows the rest, so that nobody blocks on it.
async fn drink(
    stream: Option<impl AsyncRead + Unpin>,
    into: &mut Vec<u8>,
    max: usize,
) -> std::io::Result<()> {
    let Some(mut stream) = stream else { return Ok(()) };
    let mut buffer = [0; 4096];
    loop {
        let len = stream.read(&mut buffer).await?;
        if len == 0 {
            return Ok(());
        }
        let room = max.saturating_sub(into.len());
        into.extend_from_slice(&buffer[..len.min(room)]);
    }
}

fn judge(program: &str, ended: Ended) -> Result<String> {
    // It ends up in records, logs and on pages, where it must not make up lines.
    let complaint = String::from_utf8_lossy(&ended.complaint);
    let complaint = match excerpt(&complaint, COMPLAINT_CHARS_MAX) {
        said if said.is_empty() => "it said nothing on standard error".to_owned(),
        said => said,
    };
    match ended.status.code() {
        Some(0) => {}
        Some(EX_TEMPFAIL) => {
            return Err(Error::Transient(format!("`{program}` cannot now: {complaint}")));
        }
        Some(EX_NOPERM) => {
            return Err(Error::Refused(format!("`{program}` may not: {complaint}")));
        }
        Some(EX_NOINPUT) => {
            return Err(Error::Unknown(format!("`{program}` knows no such thing: {complaint}")));
        }
        _ => {
            let status = ended.status;
            return Err(Error::Broken(format!("`{program}` failed ({status}): {complaint}")));
        }
    }
    if ended.output.len() > OUTPUT_LEN_MAX {
        return Err(Error::Broken(format!(
            "`{program}` printed more than {OUTPUT_LEN_MAX} octets; print the value alone"
        )));
    }
    let output = String::from_utf8(ended.output);
    let output =
        output.map_err(|_| Error::Broken(format!("what `{program}` printed is not UTF-8")))?;
    Ok(output.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_cannot_forge_a_line_of_the_log() {
        let complaint = "bad\n2026-11-18T02:00:00Z  INFO over: \u{202e}Completed\u{2028}run=99\n";
        let (output, complaint) = (Vec::new(), complaint.as_bytes().to_vec());
        let ended = Ended { status: ExitStatus::from_raw(1 << 8), output, complaint };
        assert_eq!(
            judge("set-weight", ended).unwrap_err().message(),
            "`set-weight` failed (exit status: 1): bad 2026-11-18T02:00:00Z  INFO over: \
             ?Completed run=99"
        );
    }

    #[test]
    fn names_are_replaced_once() {
        let template = ["x".to_owned()];
        let mut invocation = Invocation::new(&[], &template);
        invocation.set("knob", "{value}");
        invocation.set("value", "7");
        let cases = [
            ("{knob}={value}", "{value}=7"),
            ("{other} {", "{other} {"),
            ("{{value}}", "{7}"),
            ("plain", "plain"),
            ("{knob", "{knob"),
        ];
        for (argument, expected) in cases {
            assert_eq!(invocation.fill(argument), expected);
        }
    }
}
