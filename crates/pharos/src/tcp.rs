//! Questions over connections (RFC 7766).
//!
//! A connection may carry any number of questions, one behind the other
//! without waiting. From zones every answer is ready as soon as its question is
//! read; a cache may have to ask others first, and each of its answers leaves
//! when it is ready, whichever question came first.
//! Connections are bounded in all and per source, in the time without a whole
//! question and in total time; one more than allowed is closed at once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use authority::respond::{Arrival, Context, Scratch, Transport, respond};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout_at;
use wire::DropReason;

use crate::config::TcpLimits;
use crate::counters::{AllCounters, Counters, Via};
use crate::fleet::Door;
use crate::publish::Publisher;

/// Octets of a message with its length in front.
const FRAME_LEN_MAX: usize = 2 + 65_535;
/// Answers are sent when this much has gathered, or no question is left.
const GATHER_LEN: usize = 32 * 1024;
/// Questions of one connection that wait for their answers; then no more are
/// read.
const WAITING_MAX: usize = 128;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Whoever answers the questions of connections.
pub trait Answerer: std::fmt::Debug + Send + Sync + 'static {
    /// Says whether a connection of `from` to `address` may come in, and which
    /// virtual name server that is, if it is one.
    fn admit(
        &self,
        door: Door,
        from: IpAddr,
        address: Option<IpAddr>,
    ) -> Result<Option<u16>, DropReason>;

    /// Appends the answer to `request` with its length in front, or sends it
    /// later, without its length, to the replies of `asker`.
    fn answer(&self, request: &[u8], asker: &Asker, answers: &mut Vec<u8>) -> Next;
}

/// Who asks over a connection.
#[derive(Debug)]
pub struct Asker {
    pub from: IpAddr,
    /// The virtual name server that the connection was made to.
    pub server: Option<u16>,
    /// How long the connection is kept when idle, in units of 100 ms.
    pub idle_100ms: u16,
    /// Where answers go that are not ready at once; an empty one ends the
    /// connection.
    pub replies: mpsc::Sender<Vec<u8>>,
}

/// What becomes of a connection after a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It was answered, or needs no answer.
    GoesOn,
    /// Its answer comes later.
    Waits,
    /// Who asks so is no DNS client.
    Ends,
}

/// Connections and their bounds.
#[derive(Debug)]
pub struct TcpServer<A> {
    answerer: A,
    limits: TcpLimits,
    places: Arc<Places>,
}

impl<A: Answerer> TcpServer<A> {
    pub fn new(answerer: A, limits: TcpLimits) -> Self {
        TcpServer { answerer, limits, places: Arc::new(Places::new(limits)) }
    }

    /// Connections that are open now, and those refused so far.
    pub fn connections(&self) -> (usize, u64) {
        self.places.connections()
    }

    /// Accepts connections for as long as the program runs.
    pub async fn run(self: Arc<Self>, listener: TcpListener, door: Door) {
        loop {
            match listener.accept().await {
                Ok((stream, from)) => self.take_in(stream, from.ip(), door),
                // Out of descriptors or memory: give others time to end.
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    /// Serves a connection if it may come in and there is a place for it; else
    /// closes it.
    fn take_in(self: &Arc<Self>, stream: TcpStream, from: IpAddr, door: Door) {
        let address = stream.local_addr().ok().map(|address| address.ip());
        let Ok(server) = self.answerer.admit(door, from, address) else { return };
        let Some(place) = self.places.take(from) else { return };
        let _ = stream.set_nodelay(true);
        let own = self.clone();
        tokio::spawn(async move {
            let _ = own.serve(stream, from, server).await;
            drop(place);
        });
    }

    /// Answers the questions of one connection until it ends. They are all
    /// for the virtual name server that it was made to, if that is one.
    async fn serve<S>(&self, mut stream: S, from: IpAddr, server: Option<u16>) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let now = tokio::time::Instant::now;
        let ends = now() + self.limits.total;
        let idle_100ms = (self.limits.idle.as_millis() / 100).min(u128::from(u16::MAX)) as u16;
        let (sender, mut replies) = mpsc::channel(WAITING_MAX);
        let asker = Asker { from, server, idle_100ms, replies: sender };
        let mut idle_ends = now() + self.limits.idle;
        let mut received = Vec::with_capacity(1024);
        let mut answers = Vec::new();
        let mut waiting = 0;
        // The other side sends no more, but may still listen.
        let mut is_closed = false;
        loop {
            if is_closed && waiting == 0 {
                return Ok(());
            }
            received.reserve(512);
            // While an answer is due, the connection is not idle.
            let deadline = if waiting > 0 { ends } else { idle_ends.min(ends) };
            let is_read = tokio::select! {
                read = stream.read_buf(&mut received), if waiting < WAITING_MAX && !is_closed => {
                    is_closed = read? == 0;
                    !is_closed
                }
                Some(reply) = replies.recv() => {
                    let mut next = Some(reply);
                    while let Some(reply) = next {
                        // Whoever sent what has no answer sent no question.
                        if reply.is_empty() {
                            return Ok(());
                        }
                        waiting -= 1;
                        put_frame(&mut answers, &reply);
                        next = replies.try_recv().ok();
                    }
                    false
                }
                () = tokio::time::sleep_until(deadline) => return Ok(()),
            };
            let mut at = 0;
            while waiting < WAITING_MAX
                && let Some(frame) = frame_at(&received, at)
            {
                let start = at + 2;
                at = start + frame;
                match self.answerer.answer(&received[start..at], &asker, &mut answers) {
                    Next::GoesOn => {}
                    Next::Waits => waiting += 1,
                    Next::Ends => return Ok(()),
                }
                if answers.len() >= GATHER_LEN {
                    self.send(&mut stream, &mut answers, ends).await?;
                }
            }
            received.drain(..at);
            if received.len() >= FRAME_LEN_MAX && waiting < WAITING_MAX {
                return Ok(());
            }
            self.send(&mut stream, &mut answers, ends).await?;
            // A whole question, not single octets: who sends one octet now and
            // then would hold a place for nothing.
            if at > 0 || !is_read {
                idle_ends = now() + self.limits.idle;
            }
        }
    }

    /// Sends what has gathered, before the connection ends at `ends`.
    async fn send<S: AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        answers: &mut Vec<u8>,
        ends: tokio::time::Instant,
    ) -> io::Result<()> {
        if !answers.is_empty() {
            let now = tokio::time::Instant::now();
            // A timeout lets pass what is ready at once, however late it is.
            if now >= ends {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // A reader that does not read holds up nobody but itself.
            timeout_at((now + self.limits.idle).min(ends), stream.write_all(answers)).await??;
            answers.clear();
        }
        Ok(())
    }
}

/// Appends a message with its length in front.
fn put_frame(answers: &mut Vec<u8>, message: &[u8]) {
    answers.extend((message.len() as u16).to_be_bytes());
    answers.extend_from_slice(message);
}

/// Answers from the zones of this server, always at once.
#[derive(Debug)]
pub struct ZoneAnswerer {
    publisher: Arc<Publisher>,
    counters: Arc<Counters>,
    /// Counters have one writer; connections take turns.
    writing: Mutex<()>,
}

impl ZoneAnswerer {
    pub fn new(publisher: Arc<Publisher>, counters: &AllCounters) -> Self {
        ZoneAnswerer { publisher, counters: counters.add(Via::Tcp), writing: Mutex::default() }
    }

    fn count_drop(&self, reason: DropReason) {
        let _turn = self.writing.lock();
        self.counters.drops[reason as usize].add(1);
    }
}

impl Answerer for ZoneAnswerer {
    fn admit(
        &self,
        door: Door,
        _from: IpAddr,
        address: Option<IpAddr>,
    ) -> Result<Option<u16>, DropReason> {
        let served = &self.publisher.current().served;
        door.admit(served, || address).inspect_err(|reason| self.count_drop(*reason))
    }

    fn answer(&self, request: &[u8], asker: &Asker, answers: &mut Vec<u8>) -> Next {
        thread_local! {
            static DESK: RefCell<(Scratch, Vec<u8>)> =
                RefCell::new((Scratch::default(), vec![0; FRAME_LEN_MAX]));
        }
        let Asker { from, server, idle_100ms, .. } = *asker;
        let started = Instant::now();
        let snapshot = self.publisher.current();
        // The host may have dropped the server since the connection was made.
        if server.is_some_and(|server| !snapshot.served.contains(server)) {
            self.count_drop(DropReason::NotServed);
            return Next::Ends;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let context = Context {
            catalog: &snapshot.catalog,
            hasher: self.publisher.hasher(),
            settings: &snapshot.settings,
            now_secs: now.as_secs() as u32,
        };
        DESK.with_borrow_mut(|(scratch, out)| {
            let arrival = Arrival { from, server, transport: Transport::Tcp { idle_100ms } };
            let outcome = respond(&context, scratch, request, arrival, out);
            let _turn = self.writing.lock();
            self.counters.count(request.len(), scratch.query.qtype, &outcome);
            self.counters.latency_us.observe(started.elapsed().as_micros() as u64, 1);
            if outcome.len > 0 {
                put_frame(answers, &out[..outcome.len]);
            }
            // Who sends answers or scraps here is no DNS client.
            if outcome.result.is_ok() { Next::GoesOn } else { Next::Ends }
        })
    }
}

/// Octets of the whole message that starts at `at`, if it is there.
fn frame_at(received: &[u8], at: usize) -> Option<usize> {
    let head = received.get(at..at + 2)?;
    let len = u16::from_be_bytes([head[0], head[1]]) as usize;
    (received.len() >= at + 2 + len).then_some(len)
}

/// Whose connections are counted together: an IPv4 address, or the 64 bits of
/// an IPv6 address that a network gives out. The rest of it anybody chooses for
/// himself, so it tells nobody apart.
fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address => address,
    }
}

/// The connections that are allowed, in all and per source.
#[derive(Debug)]
pub struct Places {
    connections_max: usize,
    per_source_max: usize,
    open: Mutex<Open>,
}

/// Connections that are open now.
#[derive(Debug, Default)]
struct Open {
    total: usize,
    /// By what [`source_of`] makes of the address.
    by_source: HashMap<IpAddr, usize>,
    refused: u64,
}

impl Places {
    pub fn new(limits: TcpLimits) -> Self {
        let TcpLimits { connections_max, per_source_max, .. } = limits;
        Places { connections_max, per_source_max, open: Mutex::default() }
    }

    /// Connections that are open now, and those refused so far.
    pub fn connections(&self) -> (usize, u64) {
        let open = self.open();
        (open.total, open.refused)
    }

    /// A place for a connection from `from`, if there is one.
    pub fn take(self: &Arc<Self>, from: IpAddr) -> Option<Place> {
        let from = source_of(from);
        let mut open = self.open();
        let own = open.by_source.get(&from).copied().unwrap_or(0);
        if open.total >= self.connections_max || own >= self.per_source_max {
            open.refused += 1;
            return None;
        }
        open.total += 1;
        open.by_source.insert(from, own + 1);
        Some(Place { places: self.clone(), from })
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// One connection's place among those allowed; given back when dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    from: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.places.open();
        open.total -= 1;
        if let Some(own) = open.by_source.get_mut(&self.from) {
            *own -= 1;
            if *own == 0 {
                open.by_source.remove(&self.from);
            }
        }
    }
}

/// A socket that takes connections, and whose questions they may carry.
#[derive(Debug)]
pub struct Listener {
    pub socket: std::net::TcpListener,
    pub door: Door,
}

impl Listener {
    /// Binds `address` for DNS. With `shares_port` another socket of this
    /// process may have the same port, for all addresses while this one is for
    /// one, or the other way round; each gets what is for it.
    pub fn bind(address: SocketAddr, door: Door, shares_port: bool) -> io::Result<Self> {
        let socket = new_socket(address)?;
        // A port that the system chooses is shared with nobody.
        if shares_port && address.port() != 0 {
            socket.set_reuse_port(true)?;
        }
        door.keep(&socket, address)?;
        Ok(Listener { socket: listen(socket, address)?, door })
    }
}

/// Binds `address` for connections.
pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    listen(new_socket(address)?, address)
}

/// Says whether nobody else takes connections at `address`. SO_REUSEPORT, which
/// sharing a port needs, would let a second server of the same user do so.
pub fn check_free(address: SocketAddr) -> io::Result<()> {
    new_socket(address)?.bind(&address.into())
}

fn new_socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn listen(socket: Socket, address: SocketAddr) -> io::Result<std::net::TcpListener> {
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Served;
    use authority::{NameHasher, Settings};
    use tokio::io::DuplexStream;
    use tokio::task::JoinHandle;

    const IDLE: Duration = Duration::from_secs(10);
    const TOTAL: Duration = Duration::from_secs(60);
    /// The question for the addresses of the root, with its length in front.
    const QUESTION: [u8; 19] = [0, 17, 0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1];

    /// A connection to a server without zones, which holds at most `held_len`
    /// octets that nobody reads, and how long the server kept it.
    fn connect(held_len: usize) -> (DuplexStream, JoinHandle<Duration>) {
        let settings = Settings { udp_payload: 1232, identity: None, version: None, cookies: None };
        let publisher =
            Arc::new(Publisher::new(NameHasher::new([7; 16]), settings, Served::default()));
        let limits = TcpLimits { connections_max: 1, per_source_max: 1, idle: IDLE, total: TOTAL };
        let answerer = ZoneAnswerer::new(publisher, &AllCounters::default());
        let server = TcpServer::new(answerer, limits);
        let (client, own) = tokio::io::duplex(held_len);
        let serving = tokio::spawn(async move {
            let started = tokio::time::Instant::now();
            let _ = server.serve(own, IpAddr::from([127, 0, 0, 1]), None).await;
            started.elapsed()
        });
        (client, serving)
    }

    async fn ask(client: &mut DuplexStream) -> io::Result<()> {
        client.write_all(&QUESTION).await?;
        let mut len = [0; 2];
        client.read_exact(&mut len).await?;
        client.read_exact(&mut vec![0; u16::from_be_bytes(len) as usize]).await?;
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn single_octets_do_not_keep_a_connection_open() {
        let (mut client, serving) = connect(1 << 16);
        // No question becomes whole before the connection must have ended.
        for octet in &QUESTION[..QUESTION.len() - 1] {
            let _ = client.write_all(&[*octet]).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(serving.await.unwrap(), IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn questions_keep_a_connection_open_until_its_time_is_up() {
        let (mut client, serving) = connect(1 << 16);
        while ask(&mut client).await.is_ok() {
            tokio::time::sleep(IDLE - Duration::from_secs(1)).await;
        }
        assert_eq!(serving.await.unwrap(), TOTAL);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_does_not_outstay_the_total_time() {
        // Each of its pauses is shorter than the idle time, and there is always
        // a next question.
        let (client, serving) = connect(GATHER_LEN);
        let (mut reading, mut writing) = tokio::io::split(client);
        let questions = QUESTION.repeat(1000);
        let asking =
            tokio::spawn(async move { while writing.write_all(&questions).await.is_ok() {} });
        let mut buffer = vec![0; GATHER_LEN / 2];
        for _ in 0..TOTAL.as_secs() {
            let _ = reading.read_exact(&mut buffer).await;
            tokio::time::sleep(IDLE / 2).await;
        }
        assert!(serving.is_finished(), "it is still served after {:?}", TOTAL * 5);
        assert!(serving.await.unwrap() <= TOTAL);
        asking.abort();
    }

    #[test]
    fn sources_are_addresses_and_networks() {
        let check = |address: &str, expected: &str| {
            let source = source_of(address.parse().unwrap());
            assert_eq!(source, expected.parse::<IpAddr>().unwrap(), "{address}");
        };
        check("192.0.2.1", "192.0.2.1");
        check("::ffff:192.0.2.1", "192.0.2.1");
        check("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::");
        check("2001:db8:1:3::1", "2001:db8:1:3::");
    }
}
