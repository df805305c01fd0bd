//! The gRPC server of a node: what other members ask it over connections.
//!
//! Strangers get as far as a handshake, a bounded number of them for a bounded
//! time; members are bounded in connections, in calls on each, and in the size
//! and the time of what they say.

use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{error::Elapsed, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;
use tonic::{Request, Response, Status, Streaming};

use super::grpc::proto::{self, peer_server};
use super::grpc::{self, MESSAGE_LEN_MAX, PeerService};
use super::key::ClusterKey;
use super::outbox::{Outbox, UnsentCounters};
use super::{NodeTag, tls};

/// Handshakes under way at once; further connections wait in the kernel.
pub const HANDSHAKES_MAX: usize = 256;
/// How long a handshake may take. Less than members are ready to wait for, so
/// that strangers who say nothing do not keep them out.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(2);
/// Connections of members at once. A member needs one; while it restarts, two.
pub const CONNECTIONS_MAX: usize = 2 * cluster::MEMBERS_MAX;
/// Calls on one connection at once.
pub const CALLS_MAX: u32 = 64;
/// Octets of a call's headers at the most.
const HEADERS_LEN_MAX: u32 = 16 << 10;
/// How long the node may take for what it is asked.
pub const CALL_TIME_MAX: Duration = Duration::from_secs(10);
/// How long entries that are handed over may take to come, in all.
pub const HANDOVER_TIME_MAX: Duration = Duration::from_secs(300);
/// How long a member that exchanges messages, or hands over, may say nothing.
pub const SILENCE_TIME_MAX: Duration = Duration::from_secs(60);
/// How often a connection is probed, and how long the other side may take to
/// show that it is there.
pub const PROBE_TIME: Duration = Duration::from_secs(5);
/// How long calls that are under way may take when the node stops.
const STOP_TIME_MAX: Duration = Duration::from_secs(2);
/// How long to wait when the system gives no connection.
const PAUSE: Duration = Duration::from_millis(50);

/// What a server refused.
#[derive(Debug, Default)]
pub struct ServerCounters {
    /// Connections whose other side did not prove that it holds the key.
    pub strangers: AtomicU64,
    /// Connections of members beyond [`CONNECTIONS_MAX`].
    pub connections: AtomicU64,
    /// Messages that were too long, or no messages.
    pub messages: AtomicU64,
    /// Messages to other members that were not sent.
    pub unsent: Arc<UnsentCounters>,
}

/// Answers other members.
#[derive(Debug)]
pub struct PeerServer<S> {
    acceptor: Arc<tokio_rustls::rustls::ServerConfig>,
    own: Arc<str>,
    service: Arc<S>,
    counters: Arc<ServerCounters>,
}

impl<S: PeerService> PeerServer<S> {
    /// A server of the node called `own`, for which `service` acts.
    pub fn new(key: &ClusterKey, own: &str, service: Arc<S>) -> Self {
        let acceptor = tls::server_config(key, NodeTag::of(own));
        PeerServer { acceptor, own: own.into(), service, counters: Arc::default() }
    }

    /// What it refused so far.
    pub fn counters(&self) -> Arc<ServerCounters> {
        self.counters.clone()
    }

    /// Answers on `listener` until `stop`. Called inside a tokio runtime.
    pub async fn run(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
    ) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| format!("gRPC of peers: {error}");
        listener.set_nonblocking(true).map_err(|error| failed(&error))?;
        let listener =
            tokio::net::TcpListener::from_std(listener).map_err(|error| failed(&error))?;
        let (ready, connections) = mpsc::channel(1);
        let door = Door::new(self.acceptor, self.counters.clone(), ready);
        let (running, until) = watch::channel(());
        let calls = Calls { own: self.own, service: self.service, counters: self.counters, until };
        let service = peer_server::PeerServer::new(calls)
            .max_decoding_message_size(MESSAGE_LEN_MAX)
            .max_encoding_message_size(MESSAGE_LEN_MAX);
        let connections = stream::unfold(connections, async |mut connections| {
            connections.recv().await.map(|one| (Ok::<Connection, Infallible>(one), connections))
        });
        let (stopping, mut stopped) = watch::channel(());
        let stop = async {
            stop.await;
            // Exchanges would never end by themselves.
            drop(running);
            drop(stopping);
        };
        let serve = builder().add_service(service).serve_with_incoming_shutdown(connections, stop);
        let overdue = async {
            let _ = stopped.changed().await;
            sleep(STOP_TIME_MAX).await;
        };
        tokio::select! {
            served = serve => served.map_err(|error| failed(&error)),
            () = overdue => Ok(()),
            () = door.open(listener) => Ok(()),
        }
    }
}

fn builder() -> tonic::transport::Server {
    tonic::transport::Server::builder()
        .max_concurrent_streams(CALLS_MAX)
        .http2_max_header_list_size(HEADERS_LEN_MAX)
        .http2_keepalive_interval(Some(PROBE_TIME))
        .http2_keepalive_timeout(Some(PROBE_TIME))
        // Behind the bounds of each call, and above all of them.
        .timeout(HANDOVER_TIME_MAX + CALL_TIME_MAX)
}

/// Lets members in.
struct Door {
    acceptor: TlsAcceptor,
    counters: Arc<ServerCounters>,
    handshakes: Arc<Semaphore>,
    places: Arc<Semaphore>,
    ready: mpsc::Sender<Connection>,
}

impl Door {
    fn new(
        config: Arc<tokio_rustls::rustls::ServerConfig>,
        counters: Arc<ServerCounters>,
        ready: mpsc::Sender<Connection>,
    ) -> Arc<Self> {
        Arc::new(Door {
            acceptor: config.into(),
            counters,
            handshakes: Arc::new(Semaphore::new(HANDSHAKES_MAX)),
            places: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            ready,
        })
    }

    /// Accepts connections for as long as it is polled.
    async fn open(self: Arc<Self>, listener: tokio::net::TcpListener) {
        loop {
            // Never closed, so there is always one sooner or later.
            let Ok(handshake) = self.handshakes.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let door = self.clone();
                    tokio::spawn(async move {
                        if let Some(connection) = door.admit(stream).await {
                            drop(handshake);
                            // Nobody is there to take it once the node stops.
                            let _ = door.ready.send(connection).await;
                        }
                    });
                }
                // Out of descriptors or memory: give others time to end.
                Err(error) => {
                    tracing::warn!(%error, "a connection of a peer could not be accepted");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Shakes hands, and finds a place for the connection.
    async fn admit(&self, stream: TcpStream) -> Option<Connection> {
        // Without it, answers would wait for acknowledgements.
        let _ = stream.set_nodelay(true);
        let shaken = timeout(HANDSHAKE_TIME_MAX, self.acceptor.accept(stream)).await;
        let Ok(Ok(stream)) = shaken else {
            count(&self.counters.strangers);
            return None;
        };
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            count(&self.counters.connections);
            return None;
        };
        Some(Connection { stream, _place: place })
    }
}

/// A connection of a member.
struct Connection {
    stream: TlsStream<TcpStream>,
    /// Given back when it ends.
    _place: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, octets)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Answers calls.
struct Calls<S> {
    own: Arc<str>,
    service: Arc<S>,
    counters: Arc<ServerCounters>,
    /// Changes when the node stops.
    until: watch::Receiver<()>,
}

impl ServerCounters {
    /// Counts what a member should not have said; a connection that broke is
    /// none of it.
    fn note(&self, status: Status) -> Status {
        use tonic::Code::{Internal, InvalidArgument, OutOfRange};
        if matches!(status.code(), Internal | InvalidArgument | OutOfRange) {
            count(&self.messages);
        }
        status
    }
}

#[tonic::async_trait]
impl<S: PeerService> peer_server::Peer for Calls<S> {
    type ExchangeStream = Pin<Box<dyn Stream<Item = Result<proto::Frames, Status>> + Send>>;

    async fn exchange(
        &self,
        request: Request<Streaming<proto::Frames>>,
    ) -> Result<Response<Self::ExchangeStream>, Status> {
        let back = Outbox::new(self.counters.unsent.clone());
        let (own, batches) = (self.own.clone(), back.batches());
        let (service, counters) = (self.service.clone(), self.counters.clone());
        let mut until = self.until.clone();
        tokio::spawn(async move {
            let frames = request.into_inner();
            tokio::select! {
                () = receive_all(&*service, frames, &back, &counters) => {}
                _ = until.changed() => {}
            }
            back.close();
        });
        let replies = batches.map(move |frames| Ok(grpc::write_frames(&own, frames)));
        Ok(Response::new(Box::pin(replies)))
    }

    async fn flush(
        &self,
        request: Request<proto::FlushRequest>,
    ) -> Result<Response<proto::FlushReply>, Status> {
        let flush =
            grpc::read_flush(request.into_inner()).map_err(|status| self.counters.note(status))?;
        let removed = act(self.service.flush(flush)).await?;
        Ok(Response::new(proto::FlushReply { removed }))
    }

    async fn handover(
        &self,
        request: Request<Streaming<proto::Entries>>,
    ) -> Result<Response<proto::HandoverReply>, Status> {
        let mut entries = request.into_inner();
        let take_all = async {
            let mut taken = 0;
            while let Some(message) =
                next(&mut entries).await.map_err(|status| self.counters.note(status))?
            {
                let read =
                    grpc::read_entries(message).map_err(|status| self.counters.note(status))?;
                taken += act(self.service.take(&read.0, read.1)).await?;
            }
            Ok(Response::new(proto::HandoverReply { taken }))
        };
        timeout(HANDOVER_TIME_MAX, take_all).await.map_err(late)?
    }

    async fn drain(
        &self,
        request: Request<proto::DrainRequest>,
    ) -> Result<Response<proto::DrainReply>, Status> {
        let entries = act(self.service.drain(request.into_inner().undo)).await?;
        Ok(Response::new(proto::DrainReply { entries }))
    }

    async fn status(
        &self,
        _: Request<proto::StatusRequest>,
    ) -> Result<Response<proto::StatusReply>, Status> {
        let json = act(self.service.status()).await?;
        Ok(Response::new(proto::StatusReply { json }))
    }
}

/// Hands messages to the cells until the member ends, breaks off, falls silent
/// or says what it should not.
async fn receive_all<S: PeerService>(
    service: &S,
    mut frames: Streaming<proto::Frames>,
    back: &Outbox,
    counters: &ServerCounters,
) {
    loop {
        let read = match next(&mut frames).await {
            Ok(Some(message)) => grpc::read_frames(message),
            Ok(None) => return,
            Err(status) => Err(status),
        };
        match read {
            Ok((from, frames)) => service.receive(&from, frames, back),
            Err(status) => {
                let status = counters.note(status);
                tracing::debug!(%status, "a peer's messages broke off");
                return;
            }
        }
    }
}

/// The next message of a member that does not fall silent.
async fn next<T>(messages: &mut Streaming<T>) -> Result<Option<T>, Status> {
    timeout(SILENCE_TIME_MAX, messages.message()).await.map_err(late)?
}

/// Does what a member asked for, in bounded time.
async fn act<T>(action: impl Future<Output = Result<T, String>>) -> Result<T, Status> {
    let done = timeout(CALL_TIME_MAX, action).await.map_err(late)?;
    done.map_err(Status::internal)
}

fn late(_: Elapsed) -> Status {
    Status::deadline_exceeded("it took too long")
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use tokio_rustls::TlsConnector;

    use super::*;

    /// Lets a member knock at a door with so many places left; true if it got
    /// in.
    async fn knock(places: usize, counters: &Arc<ServerCounters>) -> bool {
        let (key, own) = (ClusterKey::draw(), NodeTag::of("b"));
        let (ready, _connections) = mpsc::channel(1);
        let config = tls::server_config(&key, own);
        let mut door = Door::new(config, counters.clone(), ready);
        Arc::get_mut(&mut door).unwrap().places = Arc::new(Semaphore::new(places));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let member = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let connector = TlsConnector::from(tls::client_config(&key));
        let call = connector.connect(tls::server_name(own), member);
        let (admitted, _called) = tokio::join!(door.admit(stream), call);
        if admitted.is_some() {
            assert_eq!(door.places.available_permits(), places - 1);
            drop(admitted);
            assert_eq!(door.places.available_permits(), places);
            return true;
        }
        false
    }

    #[tokio::test]
    async fn connections_of_members_are_bounded() {
        let counters = Arc::<ServerCounters>::default();
        assert!(knock(1, &counters).await);
        assert_eq!(counters.connections.load(Ordering::Relaxed), 0);
        assert!(!knock(0, &counters).await);
        assert_eq!(counters.connections.load(Ordering::Relaxed), 1);
    }

    /// A silent one is given up, and counted with the strangers.
    #[tokio::test(start_paused = true)]
    async fn handshakes_are_bounded_in_time() {
        let counters = Arc::<ServerCounters>::default();
        let config = tls::server_config(&ClusterKey::draw(), NodeTag::of("b"));
        let door = Door::new(config, counters.clone(), mpsc::channel(1).0);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _silent = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        assert!(door.admit(stream).await.is_none());
        assert_eq!(counters.strangers.load(Ordering::Relaxed), 1);
    }
}
