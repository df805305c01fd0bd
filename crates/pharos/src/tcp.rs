//! Questions over connections (RFC 7766).
//!
//! A connection may carry any number of questions, one behind the other
//! without waiting. Every answer is ready as soon as its question is read, so
//! answers leave in the order of the questions and none waits for another.
//! Connections are bounded in all and per source, in idle time and in total
//! time; one more than allowed is closed at once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use authority::respond::{Context, Scratch, Transport, respond};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::config::TcpLimits;
use crate::counters::{AllCounters, Counters, Via};
use crate::publish::Publisher;

/// Octets of a message with its length in front.
const FRAME_LEN_MAX: usize = 2 + 65_535;
/// Answers are sent when this much has gathered, or no question is left.
const GATHER_LEN: usize = 32 * 1024;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Everything connections share.
#[derive(Debug)]
pub struct TcpServer {
    publisher: Arc<Publisher>,
    limits: TcpLimits,
    counters: Arc<Counters>,
    /// Counters have one writer; connections take turns.
    writing: Mutex<()>,
    open: Mutex<Open>,
}

/// Connections that are open now.
#[derive(Debug, Default)]
struct Open {
    total: usize,
    by_source: HashMap<IpAddr, usize>,
    refused: u64,
}

impl TcpServer {
    pub fn new(publisher: Arc<Publisher>, limits: TcpLimits, counters: &AllCounters) -> Self {
        TcpServer {
            publisher,
            limits,
            counters: counters.add(Via::Tcp),
            writing: Mutex::default(),
            open: Mutex::default(),
        }
    }

    /// Connections that are open now, and those refused so far.
    pub fn connections(&self) -> (usize, u64) {
        let open = self.open();
        (open.total, open.refused)
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Accepts connections for as long as the program runs.
    pub async fn run(self: Arc<Self>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, from)) => {
                    if let Some(place) = Place::take(&self, from.ip()) {
                        let server = self.clone();
                        tokio::spawn(async move {
                            let _ = server.serve(stream, from).await;
                            drop(place);
                        });
                    }
                }
                // Out of descriptors or memory: give others time to end.
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    /// Answers the questions of one connection until it ends.
    async fn serve(&self, mut stream: TcpStream, from: SocketAddr) -> io::Result<()> {
        let _ = stream.set_nodelay(true);
        let ends = tokio::time::Instant::now() + self.limits.total;
        let mut received = Vec::with_capacity(1024);
        let mut answers = Vec::new();
        loop {
            let idle = (tokio::time::Instant::now() + self.limits.idle).min(ends);
            received.reserve(512);
            match tokio::time::timeout_at(idle, stream.read_buf(&mut received)).await {
                Ok(Ok(0)) | Err(_) => return Ok(()),
                Ok(Err(error)) => return Err(error),
                Ok(Ok(_)) => {}
            }
            let mut at = 0;
            while let Some(frame) = frame_at(&received, at) {
                let start = at + 2;
                at = start + frame;
                if !self.answer(&received[start..at], from.ip(), &mut answers) {
                    return Ok(());
                }
                if answers.len() >= GATHER_LEN {
                    self.send(&mut stream, &mut answers).await?;
                }
            }
            received.drain(..at);
            if received.len() >= FRAME_LEN_MAX {
                return Ok(());
            }
            self.send(&mut stream, &mut answers).await?;
        }
    }

    async fn send(&self, stream: &mut TcpStream, answers: &mut Vec<u8>) -> io::Result<()> {
        if !answers.is_empty() {
            // A reader that does not read holds up nobody but itself.
            timeout(self.limits.idle, stream.write_all(answers)).await??;
            answers.clear();
        }
        Ok(())
    }

    /// Appends the answer to `request`; false if the connection must end.
    fn answer(&self, request: &[u8], from: IpAddr, answers: &mut Vec<u8>) -> bool {
        thread_local! {
            static DESK: RefCell<(Scratch, Vec<u8>)> =
                RefCell::new((Scratch::default(), vec![0; FRAME_LEN_MAX]));
        }
        let started = Instant::now();
        let snapshot = self.publisher.current();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let context = Context {
            catalog: &snapshot.catalog,
            hasher: self.publisher.hasher(),
            settings: &snapshot.settings,
            now_secs: now.as_secs() as u32,
        };
        let idle_100ms = (self.limits.idle.as_millis() / 100).min(u128::from(u16::MAX)) as u16;
        DESK.with_borrow_mut(|(scratch, out)| {
            let transport = Transport::Tcp { idle_100ms };
            let outcome = respond(&context, scratch, request, from, transport, out);
            let _turn = self.writing.lock();
            self.counters.count(request.len(), scratch.query.qtype, &outcome);
            self.counters.latency_us.observe(started.elapsed().as_micros() as u64, 1);
            answers.extend((outcome.len as u16).to_be_bytes());
            answers.extend_from_slice(&out[..outcome.len]);
            // Who sends answers or scraps here is no DNS client.
            if outcome.len == 0 {
                answers.truncate(answers.len() - 2);
            }
            outcome.result.is_ok()
        })
    }
}

/// Octets of the whole message that starts at `at`, if it is there.
fn frame_at(received: &[u8], at: usize) -> Option<usize> {
    let head = received.get(at..at + 2)?;
    let len = u16::from_be_bytes([head[0], head[1]]) as usize;
    (received.len() >= at + 2 + len).then_some(len)
}

/// One connection's place among those allowed; given back when dropped.
struct Place {
    server: Arc<TcpServer>,
    from: IpAddr,
}

impl Place {
    fn take(server: &Arc<TcpServer>, from: IpAddr) -> Option<Place> {
        let mut open = server.open();
        let own = open.by_source.get(&from).copied().unwrap_or(0);
        if open.total >= server.limits.connections_max || own >= server.limits.per_source_max {
            open.refused += 1;
            return None;
        }
        open.total += 1;
        open.by_source.insert(from, own + 1);
        Some(Place { server: server.clone(), from })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.server.open();
        open.total -= 1;
        if let Some(own) = open.by_source.get_mut(&self.from) {
            *own -= 1;
            if *own == 0 {
                open.by_source.remove(&self.from);
            }
        }
    }
}

/// Binds `address` for connections.
pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
