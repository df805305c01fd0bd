//! Connections: each client's is passed through to one node, octet by octet.
//!
//! Messages are only counted, to tell whether anything gets done: a connection
//! on which no whole message passes for a while ends, as does one that has its
//! time. A node that does not take the connection is replaced by another
//! before anything was said.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until, timeout};

use super::board::Board;
use super::choice::{Dice, Reach, Seats};
use super::node::Node;
use crate::config::TcpLimits;
use crate::random;
use crate::tcp::Places;

/// How long a node may take to accept a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_millis(500);
/// Nodes that are tried for a connection.
const NODES_TRIED_MAX: usize = 3;
/// Octets that are passed on at once.
const PASSED_LEN_MAX: usize = 8 * 1024;

/// Everything connections share.
#[derive(Debug)]
pub struct Streams {
    board: Arc<Board>,
    limits: TcpLimits,
    pub places: Arc<Places>,
    /// The last number drawn to choose a node.
    drawn: AtomicU64,
    /// Connections that no node took.
    pub untaken: AtomicU64,
    /// Connections placed while no node was ready.
    pub open: AtomicU64,
    /// Connections placed outside of their client's shard.
    pub out_of_shard: AtomicU64,
}

impl Streams {
    pub fn new(board: Arc<Board>, limits: TcpLimits) -> Self {
        Streams {
            board,
            limits,
            places: Arc::new(Places::new(limits)),
            drawn: AtomicU64::new(u64::from_le_bytes(random::octets())),
            untaken: AtomicU64::new(0),
            open: AtomicU64::new(0),
            out_of_shard: AtomicU64::new(0),
        }
    }

    /// Accepts connections for as long as the program runs.
    pub async fn run(self: Arc<Self>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, from)) => self.take_in(stream, from),
                // Out of descriptors or memory: give others time to end.
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    /// Passes a connection on if there is a place for it; else closes it.
    fn take_in(self: &Arc<Self>, client: TcpStream, from: SocketAddr) {
        let Some(place) = self.places.take(from.ip()) else { return };
        let own = self.clone();
        tokio::spawn(async move {
            match own.connect(from.ip()).await {
                Some((node, stream)) => {
                    let _visit = Visit::new(node);
                    let _ = client.set_nodelay(true);
                    pass(client, stream, own.limits).await;
                }
                None => drop(own.untaken.fetch_add(1, Relaxed)),
            }
            drop(place);
        });
    }

    /// A connection to a node for a client.
    async fn connect(&self, client: IpAddr) -> Option<(Arc<Node>, TcpStream)> {
        let mut tried = Seats::default();
        for _ in 0..NODES_TRIED_MAX {
            let (seat, node) = self.choose(client, tried)?;
            match timeout(CONNECT_TIME_MAX, TcpStream::connect(node.spec.address)).await {
                Ok(Ok(stream)) => {
                    let _ = stream.set_nodelay(true);
                    return Some((node, stream));
                }
                Ok(Err(_)) | Err(_) => {
                    node.tcp.failed.fetch_add(1, Relaxed);
                    node.wake.notify_one();
                    tried = tried.with(seat);
                }
            }
        }
        None
    }

    /// A node for a client, none of those that were tried.
    fn choose(&self, client: IpAddr, tried: Seats) -> Option<(usize, Arc<Node>)> {
        let table = self.board.table();
        let mut standings = table.standings();
        for seats in [&mut standings.trusted, &mut standings.ready, &mut standings.all] {
            *seats = seats.without(tried);
        }
        let strict = self.board.sharding.is_some_and(|sharding| sharding.strict);
        let (candidates, reach) = standings.candidates(table.shard_of(client), strict);
        match reach {
            Reach::Ready => {}
            Reach::OutOfShard => drop(self.out_of_shard.fetch_add(1, Relaxed)),
            Reach::Open => drop(self.open.fetch_add(1, Relaxed)),
        }
        let mut dice = Dice(self.drawn.load(Relaxed));
        let random = dice.roll();
        // Two at once may draw the same: no harm.
        self.drawn.store(dice.0, Relaxed);
        let load = |seat| table.node(seat).map_or(0, |node| node.tcp.open.load(Relaxed));
        let seat = candidates.pick(random, load)?;
        table.node(seat).map(|node| (seat, node.clone()))
    }
}

/// One connection of a node, counted while it is open.
struct Visit(Arc<Node>);

impl Visit {
    fn new(node: Arc<Node>) -> Self {
        node.tcp.open.fetch_add(1, Relaxed);
        node.tcp.made.fetch_add(1, Relaxed);
        Visit(node)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.tcp.open.fetch_sub(1, Relaxed);
    }
}

/// Passes octets both ways until both sides have ended, one of them failed, or
/// the time is up.
async fn pass<C, N>(client: C, node: N, limits: TcpLimits)
where
    C: AsyncRead + AsyncWrite,
    N: AsyncRead + AsyncWrite,
{
    let ends = Instant::now() + limits.total;
    let moved = Moved::now();
    let (client_reads, client_writes) = tokio::io::split(client);
    let (node_reads, node_writes) = tokio::io::split(node);
    let both = async {
        tokio::try_join!(
            pass_one_way(client_reads, node_writes, &moved),
            pass_one_way(node_reads, client_writes, &moved),
        )
    };
    let idle = async {
        loop {
            sleep_until((moved.last() + limits.idle).min(ends)).await;
            if Instant::now() >= (moved.last() + limits.idle).min(ends) {
                return;
            }
        }
    };
    tokio::select! {
        // What went wrong is for both sides to notice: they are closed.
        _ = both => {}
        () = idle => {}
    }
}

/// When a whole message last passed, either way.
struct Moved {
    started: Instant,
    last_ms: AtomicU64,
}

impl Moved {
    fn now() -> Self {
        Moved { started: Instant::now(), last_ms: AtomicU64::new(0) }
    }

    fn last(&self) -> Instant {
        self.started + Duration::from_millis(self.last_ms.load(Relaxed))
    }

    fn note(&self) {
        self.last_ms.store(self.started.elapsed().as_millis() as u64, Relaxed);
    }
}

/// Passes octets from `reads` to `writes` until they end, and notes whenever a
/// whole message has passed.
async fn pass_one_way<R, W>(mut reads: R, mut writes: W, moved: &Moved) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; PASSED_LEN_MAX];
    let mut frames = Frames::default();
    loop {
        let len = reads.read(&mut buffer).await?;
        if len == 0 {
            return writes.shutdown().await;
        }
        writes.write_all(&buffer[..len]).await?;
        if frames.pass(&buffer[..len]) {
            moved.note();
        }
    }
}

/// Finds the ends of messages, each of which has its length in front, in
/// octets that come in pieces.
#[derive(Debug, Default)]
struct Frames {
    /// Octets of the current message that are still to come.
    left: usize,
    /// The first octet of a length whose second is still to come.
    half: Option<u8>,
}

impl Frames {
    /// Takes the next octets; says whether a message ended in them.
    fn pass(&mut self, mut octets: &[u8]) -> bool {
        let mut has_ended = false;
        while let Some((&first, rest)) = octets.split_first() {
            if self.left > 0 {
                let taken = self.left.min(octets.len());
                self.left -= taken;
                octets = &octets[taken..];
                has_ended |= self.left == 0;
                continue;
            }
            octets = rest;
            match self.half.take() {
                None => self.half = Some(first),
                // A message of no octets is none: it is no reason to go on.
                Some(high) => self.left = usize::from(u16::from_be_bytes([high, first])),
            }
        }
        has_ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::DuplexStream;
    use tokio::task::JoinHandle;

    const LIMITS: TcpLimits = TcpLimits {
        connections_max: 1,
        per_source_max: 1,
        idle: Duration::from_secs(10),
        total: Duration::from_secs(60),
    };
    /// A message of three octets.
    const FRAME: &[u8] = &[0, 3, 7, 8, 9];

    /// A client, a node, and how long the connection between them lasts.
    fn connect() -> (DuplexStream, DuplexStream, JoinHandle<Duration>) {
        let (client, client_end) = tokio::io::duplex(1 << 10);
        let (node, node_end) = tokio::io::duplex(1 << 10);
        let passing = tokio::spawn(async move {
            let started = Instant::now();
            pass(client_end, node_end, LIMITS).await;
            started.elapsed()
        });
        (client, node, passing)
    }

    #[test]
    fn ends_of_messages_are_found_in_any_pieces() {
        let octets = [FRAME, &[0, 0], FRAME, &[1, 0], &[5; 256]].concat();
        for piece_len in 1..octets.len() {
            let mut frames = Frames::default();
            let mut ends = 0;
            for piece in octets.chunks(piece_len) {
                ends += usize::from(frames.pass(piece));
            }
            assert!((1..=3).contains(&ends) && frames.left == 0, "{piece_len}");
            assert!(piece_len > 1 || ends == 3);
        }
        assert!(!Frames::default().pass(&FRAME[..4]));
        assert!(!Frames::default().pass(&[0; 9]));
    }

    #[tokio::test(start_paused = true)]
    async fn both_ways_are_open_until_both_have_ended() {
        let (mut client, mut node, passing) = connect();
        client.write_all(FRAME).await.unwrap();
        client.shutdown().await.unwrap();
        let mut asked = Vec::new();
        node.read_to_end(&mut asked).await.unwrap();
        assert_eq!(asked, FRAME);
        // The client has said all, and still gets its answer.
        node.write_all(FRAME).await.unwrap();
        node.shutdown().await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, FRAME);
        assert_eq!(passing.await.unwrap(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn single_octets_do_not_keep_a_connection_open() {
        let (mut client, _node, passing) = connect();
        client.write_all(&[1, 0]).await.unwrap();
        for _ in 0..30 {
            let _ = client.write_all(&[7]).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(passing.await.unwrap(), LIMITS.idle);
    }

    #[tokio::test(start_paused = true)]
    async fn messages_keep_a_connection_open_until_its_time_is_up() {
        let (mut client, mut node, passing) = connect();
        let mut asked = [0; FRAME.len()];
        while client.write_all(FRAME).await.is_ok() && node.read_exact(&mut asked).await.is_ok() {
            tokio::time::sleep(LIMITS.idle - Duration::from_secs(1)).await;
        }
        assert_eq!(passing.await.unwrap(), LIMITS.total);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_does_not_read_is_left() {
        let (client, mut node, passing) = connect();
        let frames = FRAME.repeat(1000);
        while node.write_all(&frames).await.is_ok() {}
        assert_eq!(passing.await.unwrap(), LIMITS.idle);
        drop(client);
    }
}
