//! HTTP connections, bounded in number and in time: whoever asks slowly or
//! often must not take the descriptors that DNS needs, nor keep others from
//! their answers.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::{Extension, Router};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;
use tower::ServiceExt;

use super::peer::Peer;

/// Connections of one listener that are open at once. For a further one the
/// oldest is closed whose client is waited for; if there is none, it waits, and
/// those behind it in the kernel, where they cost no descriptor.
pub const CONNECTIONS_MAX: usize = 64;
/// How long a client may take to say what it wants.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a connection may last on which everything is quick.
pub const READING_TIME_MAX: Duration = Duration::from_secs(30);
/// The same for the control socket, on which a reload is waited for.
pub const CONTROL_TIME_MAX: Duration = Duration::from_secs(3600);

/// Where connections come from.
pub trait Listener {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>>;

    /// Whom the kernel names as the client of a connection.
    fn peer(stream: &Self::Stream) -> Option<Peer>;
}

impl Listener for TcpListener {
    type Stream = tokio::net::TcpStream;

    async fn accept(&self) -> io::Result<Self::Stream> {
        TcpListener::accept(self).await.map(|(stream, _)| stream)
    }

    fn peer(_: &Self::Stream) -> Option<Peer> {
        None
    }
}

impl Listener for UnixListener {
    type Stream = tokio::net::UnixStream;

    async fn accept(&self) -> io::Result<Self::Stream> {
        UnixListener::accept(self).await.map(|(stream, _)| stream)
    }

    fn peer(stream: &Self::Stream) -> Option<Peer> {
        Peer::of(stream)
    }
}

/// Serves `routes` for as long as the program runs; a connection lasts
/// `time_max` at the longest.
pub async fn serve<L: Listener>(listener: L, routes: Router, time_max: Duration) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let clients = Arc::new(Clients::default());
    loop {
        match listener.accept().await {
            Ok(stream) => {
                if places.available_permits() == 0 {
                    clients.close_oldest_waited_for();
                }
                // Never closed, so there is always a place sooner or later.
                let Ok(place) = places.clone().acquire_owned().await else { return };
                let peer = L::peer(&stream);
                let client = clients.enter(peer.as_ref().map(|peer| peer.uid));
                let routes = match peer {
                    Some(peer) => routes.clone().layer(Extension(peer)),
                    None => routes.clone(),
                };
                let clients = clients.clone();
                tokio::spawn(async move {
                    serve_one(stream, routes, time_max, &client).await;
                    clients.leave(&client);
                    drop(place);
                });
            }
            // Out of descriptors or memory: give others time to end.
            Err(error) => {
                tracing::warn!(%error, "an HTTP connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Answers the one request of a connection.
async fn serve_one<S>(stream: S, routes: Router, time_max: Duration, client: &Client)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let answer = service_fn(|request: Request<Incoming>| async {
        client.set(Stage::Answered);
        let response = routes.clone().oneshot(request).await;
        client.set(Stage::Reads);
        response
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIME_MAX)
        // An idle connection would keep its place from others.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    tokio::select! {
        // Whatever went wrong is the client's to notice.
        _ = timeout(time_max, connection) => {}
        () = client.closed.notified() => {}
    }
}

/// Who has a connection, the oldest first.
#[derive(Debug, Default)]
struct Clients(Mutex<Vec<Arc<Client>>>);

#[derive(Debug)]
struct Client {
    /// A [`Stage`].
    stage: AtomicU8,
    closed: Notify,
    /// Of the control socket.
    uid: Option<u32>,
}

/// Whose turn it is on a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// The client's: it has not said all of its request.
    Asks,
    /// The server's.
    Answered,
    /// The client's again: it has not read all of the response.
    Reads,
}

impl Client {
    fn new(uid: Option<u32>) -> Client {
        Client { stage: AtomicU8::new(Stage::Asks as u8), closed: Notify::new(), uid }
    }

    fn set(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    fn is_waited_for(&self) -> bool {
        self.stage.load(Ordering::Relaxed) != Stage::Answered as u8
    }
}

impl Clients {
    fn enter(&self, uid: Option<u32>) -> Arc<Client> {
        let client = Arc::new(Client::new(uid));
        self.list().push(client.clone());
        client
    }

    fn leave(&self, client: &Arc<Client>) {
        self.list().retain(|own| !Arc::ptr_eq(own, client));
    }

    /// Makes room: who says a request slowly, or does not read the response, has
    /// to give way to those who do, first of all those of the account with the most
    /// connections. What the server itself works on is not given up.
    fn close_oldest_waited_for(&self) {
        let mut list = self.list();
        let count = |uid: Option<u32>| list.iter().filter(|own| own.uid == uid).count();
        let waited_for = list.iter().enumerate().filter(|(_, own)| own.is_waited_for());
        // Of equals the last of the reversed is the oldest.
        let greatest = waited_for.rev().max_by_key(|(_, own)| count(own.uid)).map(|(at, _)| at);
        if let Some(at) = greatest {
            list.remove(at).closed.notify_one();
        }
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Client>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::time::Instant;

    /// A connection to a server of one page, of a megabyte.
    fn connect(held_len: usize) -> DuplexStream {
        let (client, own) = tokio::io::duplex(held_len);
        let routes = Router::new().route("/", get(async || "x".repeat(1 << 20)));
        tokio::spawn(async move {
            serve_one(own, routes, READING_TIME_MAX, &Client::new(None)).await;
        });
        client
    }

    /// Says `request`, and how long the connection lasts then.
    async fn lasts(request: &str) -> Duration {
        let mut client = connect(1 << 16);
        let started = Instant::now();
        client.write_all(request.as_bytes()).await.unwrap();
        client.read_to_end(&mut Vec::new()).await.unwrap();
        started.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_does_not_come_is_not_waited_for() {
        assert_eq!(lasts("").await, REQUEST_TIME_MAX);
        assert_eq!(lasts("GET / HTTP/1.1\r\nhost: x\r\n").await, REQUEST_TIME_MAX);
    }

    /// Two hundred half-sent requests kept alarms blind for as long as they were
    /// repeated.
    #[tokio::test]
    async fn half_sent_requests_keep_nobody_from_an_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = Router::new().route("/healthz", get(async || "ready"));
        let server = tokio::spawn(serve(listener, routes, READING_TIME_MAX));
        let mut held = Vec::new();
        for _ in 0..2 * CONNECTIONS_MAX {
            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
            held.push(stream);
        }
        let ask = async {
            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let answer = timeout(Duration::from_secs(5), ask).await.expect("an answer in time");
        assert!(answer.ends_with("ready"), "{answer}");
        server.abort();
    }

    #[test]
    fn the_account_with_the_most_connections_gives_way() {
        let clients = Clients::default();
        let root = clients.enter(Some(0));
        let flood: Vec<Arc<Client>> = (0..3).map(|_| clients.enter(Some(1000))).collect();
        flood[0].set(Stage::Answered);
        clients.close_oldest_waited_for();
        let is_left =
            |client: &Arc<Client>| clients.list().iter().any(|own| Arc::ptr_eq(own, client));
        assert!(is_left(&root) && is_left(&flood[0]) && !is_left(&flood[1]) && is_left(&flood[2]));
        // Of equals the oldest.
        clients.leave(&flood[0]);
        clients.close_oldest_waited_for();
        assert!(!is_left(&root) && is_left(&flood[2]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_carries_one_request() {
        assert_eq!(lasts("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_does_not_read_is_left() {
        let mut client = connect(1024);
        let started = Instant::now();
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut one = [0];
        while client.read_exact(&mut one).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(started.elapsed() < READING_TIME_MAX * 10);
        }
    }
}
