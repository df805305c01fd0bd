//! HTTP connections, bounded in number and in time: whoever asks slowly or
//! often must not take the descriptors that DNS needs.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::peer::Peer;

/// Connections of one listener that are open at once. Further ones wait in the
/// kernel, where they cost no descriptor.
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
    loop {
        // Never closed, so there is always a place sooner or later.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok(stream) => {
                let routes = match L::peer(&stream) {
                    Some(peer) => routes.clone().layer(Extension(peer)),
                    None => routes.clone(),
                };
                tokio::spawn(async move {
                    serve_one(stream, routes, time_max).await;
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
async fn serve_one<S>(stream: S, routes: Router, time_max: Duration)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIME_MAX)
        // An idle connection would keep its place from others.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    // Whatever went wrong is the client's to notice.
    let _ = timeout(time_max, connection).await;
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
        tokio::spawn(serve_one(own, routes, READING_TIME_MAX));
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
