//! HAProxy's runtime socket: one connection, one line, one answer.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::answer::start;
use crate::error::{Error, Result};

/// The longest answer: some hundred thousand sessions.
const ANSWER_LEN_MAX: u64 = 128 << 20;
/// Connections at once. HAProxy takes 10 by default (`stats maxconn`), and other
/// programs ask it, too.
const CONNECTIONS_MAX: usize = 4;
/// How long to wait before connecting again to a socket that is busy.
const CONNECT_AGAIN: Duration = Duration::from_millis(20);

/// Where the socket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "{}", path.display()),
            Address::Tcp(address) => write!(f, "{address}"),
        }
    }
}

#[derive(Debug)]
pub struct Socket {
    pub address: Address,
    /// For a whole exchange, from the wait for a turn to the end of the answer.
    timeout: Duration,
    turns: Semaphore,
}

impl Socket {
    pub fn new(address: Address, timeout: Duration) -> Socket {
        Socket { address, timeout, turns: Semaphore::new(CONNECTIONS_MAX) }
    }

    /// Sends a line and returns all that is said to it.
    pub async fn ask(&self, line: &str) -> Result<String> {
        let answer = timeout(self.timeout, self.exchange(line)).await;
        let answer = answer.unwrap_or_else(|_| {
            let millis = self.timeout.as_millis();
            Err(Error::Transient(format!("no answer within {millis} ms")))
        });
        answer.map_err(|error| error.within(&format!("HAProxy at {}", self.address)))
    }

    async fn exchange(&self, line: &str) -> Result<String> {
        // Never closed.
        let _turn = self.turns.acquire().await;
        match &self.address {
            Address::Unix(path) => loop {
                match UnixStream::connect(path).await {
                    // The queue of those who wait for HAProxy is full: it is there.
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                        sleep(CONNECT_AGAIN).await;
                    }
                    connected => return converse(connected.map_err(connecting)?, line).await,
                }
            },
            Address::Tcp(address) => {
                converse(TcpStream::connect(address).await.map_err(connecting)?, line).await
            }
        }
    }
}

fn connecting(error: std::io::Error) -> Error {
    let text = format!("cannot connect: {error}");
    match error.kind() {
        // Nobody but an operator can change that.
        std::io::ErrorKind::PermissionDenied => Error::Refused(format!(
            "{text}; the user that Pharos runs as must be able to write to the socket"
        )),
        _ => Error::Transient(format!("{text}; is HAProxy running, with this `stats socket`?")),
    }
}

async fn converse(mut stream: impl AsyncRead + AsyncWrite + Unpin, line: &str) -> Result<String> {
    let transient = |error: std::io::Error| Error::Transient(format!("cut off: {error}"));
    stream.write_all(format!("{line}\n").as_bytes()).await.map_err(transient)?;
    let mut answer = Vec::new();
    let mut bounded = stream.take(ANSWER_LEN_MAX + 1);
    bounded.read_to_end(&mut answer).await.map_err(transient)?;
    if answer.len() as u64 > ANSWER_LEN_MAX {
        return Err(Error::Broken(format!("the answer is longer than {ANSWER_LEN_MAX} octets")));
    }
    // Every answer ends with an empty line; without one it was cut off, by a reload for example.
    // The end of any other line is not enough: a list would seem shorter than it is.
    if answer != b"\n" && !answer.ends_with(b"\n\n") {
        return Err(Error::Transient("the answer was cut off".into()));
    }
    let answer =
        String::from_utf8(answer).map_err(|_| Error::Broken("the answer is not UTF-8".into()))?;
    if answer.starts_with("Permission denied") {
        return Err(Error::Refused(format!(
            "`{}`: permission denied; its `stats socket` needs `level admin`",
            start(line)
        )));
    }
    Ok(answer)
}
