//! The UDP sockets of a node's peer port: one for each cell and one for gossip,
//! all with the same address.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use base::Counter;
use socket2::{Domain, Protocol, Socket, Type};

use super::key::ClusterKey;
use super::seal::{OVERHEAD_LEN, Opener, Recipient, Refusal, Sealer};
use super::{GOSSIP, steer};
use crate::udp::RECEIVE_BUFFER_LEN;

/// Octets of a datagram at the most (RFC 768, over IPv4).
const DATAGRAM_LEN_MAX: usize = 65_507;
/// Octets of one message of gossip at the most.
pub const GOSSIP_LEN_MAX: usize = DATAGRAM_LEN_MAX - OVERHEAD_LEN;

/// Binds `address` for `cells` cells, at least one, and for gossip. Each cell's
/// socket gets the datagrams that start with its number, the last socket all
/// others.
///
/// Port 0 takes a free one. A port that anybody else has is refused, also if
/// they would share it. None of the sockets may be closed before all are.
pub fn bind(address: SocketAddr, cells: u8) -> io::Result<(Vec<UdpSocket>, UdpSocket)> {
    if cells == 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a node has at least one cell"));
    }
    // The first is bound alone, which fails if anybody is there, and opens its
    // group only then.
    let first = open(address)?;
    first.bind(&address.into())?;
    first.set_reuse_port(true)?;
    let first = UdpSocket::from(first);
    let address = first.local_addr()?;
    let mut group = vec![first];
    for _ in 0..cells {
        let socket = open(address)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address.into())?;
        group.push(socket.into());
    }
    steer::by_first_octet(&group[0], cells)?;
    let gossip = group.pop().expect("the group has two sockets at least");
    Ok((group, gossip))
}

fn open(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // Best effort: the system may allow less.
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER_LEN);
    let _ = socket.set_send_buffer_size(RECEIVE_BUFFER_LEN);
    Ok(socket)
}

/// The socket for gossip: seals what it sends and opens what it receives.
#[derive(Debug)]
pub struct GossipSocket {
    socket: tokio::net::UdpSocket,
    sending: Mutex<Sealer>,
    receiving: Mutex<Opener>,
    refused: Arc<RefusalCounters>,
}

/// Between two lines of the log about datagrams that are refused.
const SAY_EVERY_SECS: u64 = 60;

/// How many datagrams were refused, by reason.
#[derive(Debug, Default)]
pub struct RefusalCounters {
    counts: [Counter; Refusal::ALL.len()],
    /// When it was last said that somebody's datagrams are refused, in seconds.
    said: AtomicU64,
}

impl RefusalCounters {
    /// Counts one that came from `from`. Only the owner calls this.
    ///
    /// What an operator can set right is also said, now and then: whoever sends
    /// noise must not fill the log.
    pub fn add(&self, refusal: Refusal, from: SocketAddr) {
        self.counts[refusal as usize].add(1);
        let advice = match refusal {
            Refusal::BadSeal => "its key is another one; cluster.key_file must be the same",
            Refusal::Old => "its clock is another one; set both right",
            _ => return,
        };
        let now = u64::from(unix_secs());
        let said = self.said.load(Ordering::Relaxed);
        if now.abs_diff(said) >= SAY_EVERY_SECS {
            self.said.store(now, Ordering::Relaxed);
            tracing::warn!(%from, "datagrams to the peer port are refused: {advice}");
        }
    }

    /// Those refused for this reason so far.
    pub fn get(&self, refusal: Refusal) -> u64 {
        self.counts[refusal as usize].get()
    }
}

impl GossipSocket {
    /// Gossips over `socket`, which [`bind`] made for it, in a node whose
    /// `session` was drawn at its start. Called inside a tokio runtime.
    pub fn new(socket: UdpSocket, key: &ClusterKey, session: u64) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(GossipSocket {
            socket: tokio::net::UdpSocket::from_std(socket)?,
            sending: Mutex::new(Sealer::new(key, session, GOSSIP)),
            receiving: Mutex::new(Opener::new(key, Recipient::gossip(), session)),
            refused: Arc::default(),
        })
    }

    /// What it refused so far.
    pub fn refused(&self) -> Arc<RefusalCounters> {
        self.refused.clone()
    }

    /// Sends `message` to whoever gossips at `to`.
    pub async fn send(&self, to: SocketAddr, message: &[u8]) -> io::Result<()> {
        if message.len() > GOSSIP_LEN_MAX {
            let what =
                format!("gossip of {} octets; accepted: at most {GOSSIP_LEN_MAX}", message.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let mut sealed = Vec::with_capacity(message.len() + OVERHEAD_LEN);
        let write = |out: &mut Vec<u8>| out.extend_from_slice(message);
        lock(&self.sending).seal(Recipient::gossip(), unix_secs(), &mut sealed, write);
        self.socket.send_to(&sealed, to).await.map(drop)
    }

    /// Waits for the next message that opens, and writes it to `buffer`; the
    /// others are counted. Nothing is lost if the caller stops waiting.
    pub async fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        loop {
            self.socket.readable().await?;
            let mut datagram = vec![0; buffer.len() + OVERHEAD_LEN];
            let (len, from) = match self.socket.try_recv_from(&mut datagram) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                received => received?,
            };
            match lock(&self.receiving).open(unix_secs(), &mut datagram[..len]) {
                Ok(opened) => {
                    let len = opened.payload.len();
                    buffer[..len].copy_from_slice(opened.payload);
                    return Ok((len, from));
                }
                Err(refusal) => self.refused.add(refusal, from),
            }
        }
    }
}

impl crate::coordination::GossipSocket for GossipSocket {
    async fn send(&self, to: SocketAddr, octets: &[u8]) -> io::Result<()> {
        GossipSocket::send(self, to, octets).await
    }

    async fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        GossipSocket::receive(self, buffer).await
    }
}

/// What a poisoned lock guards here is whole: nothing panics half-way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Seconds since 1970, as datagrams tell them.
pub fn unix_secs() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as u32
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn loopbacks() -> [SocketAddr; 2] {
        ["127.0.0.1:0".parse().unwrap(), "[::1]:0".parse().unwrap()]
    }

    /// What there is to receive now.
    fn received(socket: &UdpSocket) -> Vec<Vec<u8>> {
        socket.set_nonblocking(true).unwrap();
        let mut buffer = [0; 64];
        std::iter::from_fn(|| socket.recv(&mut buffer).ok().map(|len| buffer[..len].to_vec()))
            .collect()
    }

    #[test]
    fn every_datagram_reaches_the_socket_it_names() {
        for address in loopbacks() {
            for cells in [1, 3] {
                let (sockets, gossip) = bind(address, cells).unwrap();
                let to = gossip.local_addr().unwrap();
                // From several ports, which the kernel would choose by.
                for _ in 0..8 {
                    let sender = UdpSocket::bind((address.ip(), 0)).unwrap();
                    for first in 0..=255 {
                        sender.send_to(&[first, 9], to).unwrap();
                    }
                    for (cell, socket) in sockets.iter().enumerate() {
                        assert_eq!(received(socket), [[cell as u8, 9]]);
                    }
                    let others: Vec<_> = (cells..=255).map(|first| [first, 9]).collect();
                    assert_eq!(received(&gossip), others);
                }
            }
        }
    }

    #[test]
    fn an_empty_datagram_does_no_harm() {
        let (sockets, gossip) = bind(loopbacks()[0], 2).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(&[], gossip.local_addr().unwrap()).unwrap();
        assert_eq!(received(&sockets[0]), [Vec::<u8>::new()]);
        assert!(received(&sockets[1]).is_empty() && received(&gossip).is_empty());
    }

    #[test]
    fn a_port_that_is_taken_is_refused() {
        for address in loopbacks() {
            let (_sockets, gossip) = bind(address, 2).unwrap();
            let taken = gossip.local_addr().unwrap();
            assert_eq!(bind(taken, 2).unwrap_err().kind(), io::ErrorKind::AddrInUse);
            let plain = UdpSocket::bind(address).unwrap();
            let taken = plain.local_addr().unwrap();
            assert_eq!(bind(taken, 2).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        }
        assert_eq!(bind(loopbacks()[0], 0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let (sockets, _) = bind(loopbacks()[0], 255).unwrap();
        assert_eq!(sockets.len(), 255);
    }

    /// A gossip socket, and the cells' sockets that must live beside it.
    fn gossip(key: &ClusterKey, session: u64) -> (GossipSocket, SocketAddr, Vec<UdpSocket>) {
        let (cells, socket) = bind(loopbacks()[0], 1).unwrap();
        let address = socket.local_addr().unwrap();
        (GossipSocket::new(socket, key, session).unwrap(), address, cells)
    }

    async fn hear(socket: &GossipSocket) -> (SocketAddr, Vec<u8>) {
        let mut buffer = vec![0; GOSSIP_LEN_MAX];
        let (len, from) = socket.receive(&mut buffer).await.unwrap();
        buffer.truncate(len);
        (from, buffer)
    }

    #[tokio::test]
    async fn gossip_arrives_and_noise_is_counted() {
        let key = ClusterKey::draw();
        let (a, a_address, _a_cells) = gossip(&key, 1);
        let (b, b_address, _b_cells) = gossip(&key, 2);
        let (stranger, ..) = gossip(&ClusterKey::draw(), 3);
        stranger.send(b_address, b"let me in").await.unwrap();
        let noise = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        noise.send_to(&[GOSSIP; 10], b_address).await.unwrap();
        a.send(b_address, b"hello").await.unwrap();
        let (from, message) = hear(&b).await;
        assert_eq!((from, &message[..]), (a_address, &b"hello"[..]));
        let refused = b.refused();
        assert_eq!(refused.get(Refusal::BadSeal), 1);
        assert_eq!(refused.get(Refusal::Short), 1);
        b.send(from, &vec![7; GOSSIP_LEN_MAX]).await.unwrap();
        assert_eq!(hear(&a).await.1, vec![7; GOSSIP_LEN_MAX]);
        let error = b.send(from, &vec![7; GOSSIP_LEN_MAX + 1]).await.unwrap_err();
        assert!(error.to_string().contains("accepted: at most"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_stops_waiting_loses_nothing() {
        let key = ClusterKey::draw();
        let (a, ..) = gossip(&key, 1);
        let (b, b_address, _b_cells) = gossip(&key, 2);
        let waited = tokio::time::timeout(Duration::from_secs(1), hear(&b)).await;
        assert!(waited.is_err());
        a.send(b_address, b"hello").await.unwrap();
        assert_eq!(hear(&b).await.1, b"hello");
    }
}
