//! Where heads of the audit log go: out of the database, so that a log that was
//! cut off or made anew can be told from the one that was.
//!
//! Each head covers all entries before it. So one that could not be sent is made
//! up for by the next: what is tried again is only ever the last.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use store::{KnownHead, SentHead};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use drain::Time;
use drain::date::rfc3339;
use jiff::tz::TimeZone;

/// Where the system's logger listens.
const SYSLOG: &str = "/dev/log";
/// Facility `authpriv`, severity `notice`.
const PRIORITY: u32 = 10 * 8 + 5;
/// How long to wait before a head that could not be sent is sent again.
const SEND_AGAIN: Duration = Duration::from_secs(5);
/// Longer sinks are not read: a head has some 300 bytes.
const SINK_LEN_MAX: u64 = 1 << 30;

/// `log`, `file:PATH` or `syslog`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sink {
    Log,
    File(PathBuf),
    Syslog(PathBuf),
}

impl Sink {
    pub fn parse(text: &str) -> Result<Sink, String> {
        match text.split_once(':') {
            None if text == "log" => Ok(Sink::Log),
            None if text == "syslog" => Ok(Sink::Syslog(SYSLOG.into())),
            Some(("file", path)) if path.starts_with('/') => Ok(Sink::File(path.into())),
            Some(("syslog", path)) if path.starts_with('/') => Ok(Sink::Syslog(path.into())),
            _ => Err(format!(
                "`{text}` is no sink; accepted: log, syslog, file:PATH with a whole path"
            )),
        }
    }

    /// Whether it can be used at all: said at the start, not at the first entry.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Sink::File(path) => open(path).map(drop).map_err(|error| {
                format!(
                    "audit_sink: {}: cannot be written: {error}; accepted: a file in a folder that \
                     exists, writable by the server's user",
                    path.display()
                )
            }),
            Sink::Log | Sink::Syslog(_) => Ok(()),
        }
    }

    fn send(&self, sent: &SentHead) -> io::Result<()> {
        let line = sent.line();
        match self {
            Sink::Log => {
                tracing::info!(target: "pharos::audit", "audit head {line}");
                Ok(())
            }
            Sink::File(path) => {
                let mut file = open(path)?;
                // In one call: other servers may write to the same file.
                file.write_all(format!("{line} {}Z\n", now().replace(' ', "T")).as_bytes())?;
                file.sync_data()
            }
            Sink::Syslog(path) => {
                let socket = UnixDatagram::unbound()?;
                let text = format!("<{PRIORITY}>pharos[{}]: audit head {line}", std::process::id());
                socket.send_to(text.as_bytes(), path).map(drop)
            }
        }
    }
}

fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    rfc3339(Time(since.as_millis() as u64), &TimeZone::UTC)
}

fn open(path: &Path) -> io::Result<File> {
    // A pipe that nobody reads is an error and nothing to wait for.
    let flags = libc::O_NONBLOCK;
    OpenOptions::new().append(true).create(true).mode(0o640).custom_flags(flags).open(path)
}

/// Sends heads as they come, for as long as there is a store that makes them.
pub async fn keep_sending(
    sink: Sink,
    mut heads: UnboundedReceiver<SentHead>,
    failures: Arc<AtomicU64>,
) {
    let mut unsent: Option<SentHead> = None;
    loop {
        let head = match unsent.take() {
            None => match heads.recv().await {
                Some(head) => head,
                None => return,
            },
            Some(last) => match timeout(SEND_AGAIN, heads.recv()).await {
                Ok(Some(head)) => head,
                Ok(None) => return,
                Err(_) => last,
            },
        };
        let (own, sent) = (sink.clone(), head.clone());
        let sent = tokio::task::spawn_blocking(move || own.send(&sent)).await;
        if let Err(error) = sent.unwrap_or_else(|_| Err(io::Error::other("it panicked"))) {
            failures.fetch_add(1, Ordering::Relaxed);
            tracing::error!(
                entries = head.head.entries,
                "audit_sink: a head cannot be sent: {error}"
            );
            unsent = Some(head);
        }
    }
}

/// The heads in a file, for a verification. A signed one counts only if its
/// signature is of it.
pub fn read_heads(path: &Path) -> Result<Vec<KnownHead>, String> {
    let place = path.display();
    let unread = |error: io::Error| format!("{place}: cannot be read: {error}");
    let len = std::fs::metadata(path).map_err(unread)?.len();
    if len > SINK_LEN_MAX {
        return Err(format!("{place}: {len} bytes; accepted: up to {SINK_LEN_MAX}"));
    }
    let text = std::fs::read_to_string(path).map_err(unread)?;
    let mut heads = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        // Of a line in a log only what follows the mark.
        let own = line.rsplit_once("audit head ").map_or(line, |(_, own)| own);
        let sent = SentHead::parse(own).ok_or_else(|| {
            format!(
                "{place}:{}: no head; accepted: lines of a file that `audit_sink` wrote, or lines \
                 of a log with `audit head`",
                at + 1
            )
        })?;
        if sent.signature.is_some_and(|signature| !signature.is_of(&sent.head)) {
            return Err(format!("{place}:{}: its signature is not of this head", at + 1));
        }
        heads.push(KnownHead { head: sent.head, from: format!("{place}:{}", at + 1) });
    }
    Ok(heads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Head;

    #[test]
    fn sinks_are_read_as_people_write_them() {
        assert_eq!(Sink::parse("log"), Ok(Sink::Log));
        assert_eq!(Sink::parse("syslog"), Ok(Sink::Syslog(SYSLOG.into())));
        assert_eq!(Sink::parse("file:/a/b"), Ok(Sink::File("/a/b".into())));
        for wrong in ["", "file:", "file:a", "journal", "log:x"] {
            assert!(Sink::parse(wrong).unwrap_err().contains("accepted: log"), "{wrong}");
        }
    }

    #[test]
    fn a_pipe_that_nobody_reads_is_no_sink_and_nothing_to_wait_for() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let refused = Sink::File(path).check().unwrap_err();
        assert!(refused.contains("cannot be written"), "{refused}");
    }

    #[tokio::test]
    async fn heads_go_to_a_file_one_a_line_and_to_syslog_as_a_datagram() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("heads");
        let heads: Vec<_> = (1..4)
            .map(|entries| SentHead { head: Head { entries, ..Head::genesis() }, signature: None })
            .collect();
        let (send, receive) = tokio::sync::mpsc::unbounded_channel();
        heads.iter().for_each(|head| send.send(head.clone()).unwrap());
        drop(send);
        keep_sending(Sink::File(path.clone()), receive, Arc::default()).await;
        let read: Vec<Head> = read_heads(&path).unwrap().into_iter().map(|own| own.head).collect();
        assert_eq!(read, heads.iter().map(|own| own.head).collect::<Vec<_>>());
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.lines().all(|line| line.ends_with('Z')), "{text}");

        let log = home.path().join("log");
        let logger = UnixDatagram::bind(&log).unwrap();
        Sink::Syslog(log).send(&heads[0]).unwrap();
        let mut datagram = [0; 1000];
        let len = logger.recv(&mut datagram).unwrap();
        let text = std::str::from_utf8(&datagram[..len]).unwrap();
        assert!(text.starts_with("<85>pharos["), "{text}");
        std::fs::write(&path, text).unwrap();
        assert_eq!(read_heads(&path).unwrap()[0].head, heads[0].head);
        std::fs::write(&path, "hello\n").unwrap();
        assert!(read_heads(&path).unwrap_err().contains(":1: no head"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_could_not_be_sent_is_sent_when_it_can_be() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("away/heads");
        let (send, receive) = tokio::sync::mpsc::unbounded_channel();
        let failures = Arc::new(AtomicU64::new(0));
        let sending = keep_sending(Sink::File(path.clone()), receive, failures.clone());
        let sending = tokio::spawn(sending);
        send.send(SentHead { head: Head::genesis(), signature: None }).unwrap();
        while failures.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        std::fs::create_dir(home.path().join("away")).unwrap();
        while std::fs::read_to_string(&path).unwrap_or_default().is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        drop(send);
        sending.await.unwrap();
    }
}
