//! What a node asks other members over connections: a client for each, which
//! connects as soon as the member is known, and after it was cut off when it is
//! next used.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use cluster::Member;
use futures_util::{Stream, StreamExt};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Response, Status};

use super::grpc::proto::{self, peer_client::PeerClient};
use super::grpc::{self, Flush, Frame, MESSAGE_LEN_MAX, Receiver};
use super::key::ClusterKey;
use super::outbox::{Outbox, Unsent, UnsentCounters};
use super::server::{CALL_TIME_MAX, HANDOVER_TIME_MAX, PROBE_TIME};
use super::{NodeTag, tls};
use crate::random;

/// How long it may take to connect, handshake included.
pub const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);
/// How long to wait before connecting again, at first and at the most. Each
/// failure doubles it.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// The other members, as a node calls them.
pub struct PeerClients {
    own: Arc<str>,
    tls: Arc<ClientConfig>,
    receiver: Arc<dyn Receiver>,
    runtime: Handle,
    unsent: Arc<UnsentCounters>,
    peers: RwLock<HashMap<Arc<str>, Arc<Peer>>>,
}

/// Why a call brought nothing.
#[derive(Debug)]
pub struct PeerError {
    node: String,
    call: &'static str,
    failure: Failure,
}

#[derive(Debug)]
enum Failure {
    Unknown,
    Late(Duration),
    Refused(Status),
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PeerError { node, call, failure } = self;
        match failure {
            Failure::Unknown => write!(f, "{node}: {call}: no member has that name"),
            Failure::Late(limit) => write!(f, "{node}: {call}: no answer within {limit:?}"),
            Failure::Refused(status) => {
                write!(f, "{node}: {call}: {} ({:?})", status.message(), status.code())
            }
        }
    }
}

impl std::error::Error for PeerError {}

impl PeerClients {
    /// Clients of the node called `own`, without members yet. Messages that
    /// come back go to `receiver`; all work is done on `runtime`.
    pub fn new(key: &ClusterKey, own: &str, receiver: Arc<dyn Receiver>, runtime: Handle) -> Self {
        PeerClients {
            own: own.into(),
            tls: tls::client_config(key),
            receiver,
            runtime,
            unsent: Arc::default(),
            peers: RwLock::default(),
        }
    }

    /// Takes the members there are now. Who left is given up, with all that
    /// waits for it; who moved is called where it is now.
    pub fn set_members(&self, members: &[Member]) {
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        let mut old = std::mem::take(&mut *peers);
        for member in members.iter().filter(|member| member.name != self.own) {
            let known = old.remove(&member.name).filter(|peer| peer.address == member.peer);
            let peer = known.unwrap_or_else(|| self.open(member));
            peers.insert(member.name.clone(), peer);
        }
    }

    /// Sends a message to a cell of the member `node`. Like a datagram it may
    /// be lost. Never waits.
    pub fn send(&self, node: &str, frame: Frame) -> Result<(), Unsent> {
        self.find(node).ok_or(Unsent::Unknown)?.outbox.push(frame)
    }

    /// How many messages were not sent so far, to anybody.
    pub fn unsent(&self) -> Arc<UnsentCounters> {
        self.unsent.clone()
    }

    /// Makes `node` forget; returns how many entries it had.
    pub async fn flush(&self, node: &str, flush: Flush) -> Result<u64, PeerError> {
        let request = proto::FlushRequest { name: flush.name, subtree: flush.subtree };
        let call = async |mut client: Client| client.flush(request).await;
        Ok(self.call(node, "flush", CALL_TIME_MAX, call).await?.removed)
    }

    /// Hands entries over to `node`, each item of `batches` in one message;
    /// returns how many it kept.
    pub async fn hand_over(
        &self,
        node: &str,
        batches: impl Stream<Item = Vec<Bytes>> + Send + 'static,
    ) -> Result<u64, PeerError> {
        let from = self.own.clone();
        let messages =
            batches.map(move |entries| proto::Entries { from: from.to_string(), entries });
        let call = async |mut client: Client| client.handover(messages).await;
        Ok(self.call(node, "handover", HANDOVER_TIME_MAX, call).await?.taken)
    }

    /// Makes `node` drain, or take its share back; returns how many entries it
    /// has.
    pub async fn drain(&self, node: &str, undo: bool) -> Result<u64, PeerError> {
        let call = async |mut client: Client| client.drain(proto::DrainRequest { undo }).await;
        Ok(self.call(node, "drain", CALL_TIME_MAX, call).await?.entries)
    }

    /// How `node` is, as a JSON object.
    pub async fn status(&self, node: &str) -> Result<String, PeerError> {
        let call = async |mut client: Client| client.status(proto::StatusRequest {}).await;
        Ok(self.call(node, "status", CALL_TIME_MAX, call).await?.json)
    }

    async fn call<T, F: Future<Output = Result<Response<T>, Status>>>(
        &self,
        node: &str,
        call: &'static str,
        limit: Duration,
        start: impl FnOnce(Client) -> F,
    ) -> Result<T, PeerError> {
        let failed = |failure| PeerError { node: node.to_owned(), call, failure };
        let peer = self.find(node).ok_or_else(|| failed(Failure::Unknown))?;
        match timeout(limit, start(client(&peer.channel))).await {
            Ok(answer) => {
                answer.map(Response::into_inner).map_err(|status| failed(Failure::Refused(status)))
            }
            Err(_) => Err(failed(Failure::Late(limit))),
        }
    }

    /// Hands over without looking at what it sends, as no node does.
    #[cfg(test)]
    pub(super) async fn hand_over_unbounded(
        &self,
        node: &str,
        entries: Vec<Bytes>,
    ) -> Result<u64, Status> {
        let peer = self.find(node).expect("a member");
        let mut client = PeerClient::new(peer.channel.clone());
        let message = proto::Entries { from: self.own.to_string(), entries };
        let messages = futures_util::stream::iter([message]);
        client.handover(messages).await.map(|reply| reply.into_inner().taken)
    }

    fn find(&self, node: &str) -> Option<Arc<Peer>> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).get(node).cloned()
    }

    /// A client for a member, which begins to connect.
    fn open(&self, member: &Member) -> Arc<Peer> {
        let _inside = self.runtime.enter();
        let channel = channel(member, self.tls.clone());
        let outbox = Outbox::new(self.unsent.clone());
        let pump = Pump {
            own: self.own.clone(),
            node: member.name.clone(),
            channel: channel.clone(),
            outbox: outbox.clone(),
            receiver: self.receiver.clone(),
        };
        let pump = self.runtime.spawn(pump.run()).abort_handle();
        Arc::new(Peer { address: member.peer, channel, outbox, pump })
    }
}

impl fmt::Debug for PeerClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerClients").field("own", &self.own).finish_non_exhaustive()
    }
}

type Client = PeerClient<Channel>;

fn client(channel: &Channel) -> Client {
    PeerClient::new(channel.clone())
        .max_decoding_message_size(MESSAGE_LEN_MAX)
        .max_encoding_message_size(MESSAGE_LEN_MAX)
}

/// One other member.
struct Peer {
    address: SocketAddr,
    channel: Channel,
    outbox: Outbox,
    pump: AbortHandle,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.outbox.close();
        self.pump.abort();
    }
}

/// A way to `member` that connects when it is used.
fn channel(member: &Member, tls: Arc<ClientConfig>) -> Channel {
    let (address, name) = (member.peer, tls::server_name(NodeTag::of(&member.name)));
    let connector = TlsConnector::from(tls);
    let connect = tower::service_fn(move |_: Uri| {
        let (connector, name) = (connector.clone(), name.clone());
        async move {
            let connecting = async {
                let stream = TcpStream::connect(address).await?;
                // Without it, questions would wait for acknowledgements.
                stream.set_nodelay(true)?;
                connector.connect(name, stream).await
            };
            let connected: io::Result<TlsStream<TcpStream>> =
                timeout(CONNECT_TIME_MAX, connecting).await?;
            connected.map(TokioIo::new)
        }
    });
    // Only the connector above connects: the address here is for show.
    Endpoint::from_static("http://peer.pharos.alt")
        .http2_keep_alive_interval(PROBE_TIME)
        .keep_alive_timeout(PROBE_TIME)
        .connect_with_connector_lazy(connect)
}

/// Carries messages between an outbox and a member.
struct Pump {
    own: Arc<str>,
    node: Arc<str>,
    channel: Channel,
    outbox: Outbox,
    receiver: Arc<dyn Receiver>,
}

impl Pump {
    /// Runs until the outbox is closed. It begins before there is a message, so
    /// that the first one does not wait for handshakes: who asked would take
    /// that time for silence.
    async fn run(self) {
        let mut failures = 0;
        loop {
            let started = Instant::now();
            if let Err(status) = self.exchange().await {
                tracing::debug!(node = %self.node, %status, "messages to a peer broke off");
                // Nobody waits any more for answers to what waited here.
                self.outbox.clear();
            }
            if started.elapsed() > BACKOFF_MAX {
                failures = 0;
            }
            sleep(backoff(failures, random::octets())).await;
            failures = failures.saturating_add(1);
            if !self.outbox.wait().await {
                return;
            }
        }
    }

    /// Exchanges messages until either side ends.
    async fn exchange(&self) -> Result<(), Status> {
        let own = self.own.clone();
        let frames = self.outbox.batches().map(move |frames| grpc::write_frames(&own, frames));
        let mut client = client(&self.channel);
        let late = |_| Status::deadline_exceeded("it took too long to begin");
        let begun = timeout(CALL_TIME_MAX, client.exchange(frames)).await.map_err(late)?;
        let mut replies = begun?.into_inner();
        while let Some(message) = replies.message().await? {
            let (from, frames) = grpc::read_frames(message)?;
            if *from != *self.node {
                return Err(Status::invalid_argument(format!(
                    "messages of {from:?}; accepted: those of {:?}",
                    self.node
                )));
            }
            self.receiver.receive(&from, frames, &self.outbox);
        }
        Ok(())
    }
}

/// How long to wait after so many failures: not the same for all nodes, or they
/// would all come back at once.
fn backoff(failures: u32, [random]: [u8; 1]) -> Duration {
    let longest = BACKOFF_MIN.saturating_mul(1 << failures.min(16)).min(BACKOFF_MAX);
    longest / 2 + longest.mul_f64(f64::from(random) / 512.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_stay_bounded() {
        assert!(backoff(0, [0]) >= BACKOFF_MIN / 2 && backoff(0, [255]) < BACKOFF_MIN);
        for failures in [7, 16, 17, u32::MAX] {
            assert_eq!(backoff(failures, [0]), BACKOFF_MAX / 2);
            assert!(backoff(failures, [255]) < BACKOFF_MAX);
        }
        assert!((0..6).all(|n| backoff(n, [9]) < backoff(n + 1, [9])));
    }
}
