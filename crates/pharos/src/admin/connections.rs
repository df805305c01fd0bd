//! HTTP connections, bounded in number and in time: whoever asks slowly or
//! often must not take the descriptors that DNS needs, nor keep others from
//! their answers.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use axum::{Extension, Router};
use hyper::Request;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;
use tower::ServiceExt;

use super::error;
use super::peer::Peer;

/// Connections of one listener that are open at once. For a further one the
/// oldest is closed whose client is waited for; if there is none, it waits, and
/// those behind it in the kernel, where they cost no descriptor.
pub const CONNECTIONS_MAX: usize = 64;
/// Those of one account at the control socket, so that none keeps the others out.
/// For a further one its own oldest gives way that changes nothing.
const OF_ACCOUNT_MAX: usize = CONNECTIONS_MAX / 2;
/// What is worked on for a client keeps its connection, whoever comes. So an account
/// has at most this part of the connections that the work of others leaves: however
/// few accounts work together, another one gets in at once.
const WORK_PART: usize = 4;
const _: () = assert!(
    CONNECTIONS_MAX / WORK_PART < OF_ACCOUNT_MAX,
    "of the connections of an account one can always give way"
);
/// How long a client may take to say what it wants: for the head of its request,
/// and as long for the body.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// The longest body of a request, in bytes: a list of zones to load.
pub const BODY_LEN_MAX: usize = 2 << 20;
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
                let peer = L::peer(&stream);
                let uid = peer.as_ref().map(|peer| peer.uid);
                clients.make_room_in(uid);
                if places.available_permits() == 0 {
                    clients.close_oldest();
                }
                // Never closed, so there is always a place sooner or later.
                let Ok(place) = places.clone().acquire_owned().await else { return };
                let client = clients.enter(uid);
                let routes = match peer {
                    Some(peer) => routes.clone().layer(Extension(peer)),
                    None => routes.clone(),
                };
                let clients = clients.clone();
                tokio::spawn(async move {
                    serve_one(stream, routes, time_max, &client, &clients).await;
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
async fn serve_one<S>(
    stream: S,
    routes: Router,
    time_max: Duration,
    client: &Arc<Client>,
    clients: &Clients,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let answer = service_fn(|request: Request<Incoming>| async {
        let (head, body) = request.into_parts();
        // The client's turn until all of it is there: whoever sends half a body keeps nobody out.
        let response = match whole(body).await {
            Err(refused) => Ok(refused),
            Ok(body) => {
                let is_page = matches!(head.method, Method::GET | Method::HEAD);
                match clients.begin(client, is_page) {
                    Err(text) => Ok(error(StatusCode::SERVICE_UNAVAILABLE, text)),
                    Ok(()) => {
                        let request = Request::from_parts(head, Body::from(body));
                        routes.clone().oneshot(request).await
                    }
                }
            }
        };
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

/// The body of a request, in time and not too long.
async fn whole(body: Incoming) -> Result<Bytes, Response> {
    let refused = |what: &str| {
        let text = format!("the body of the request: {what}; accepted: up to {BODY_LEN_MAX} bytes");
        error(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    if body.size_hint().lower() > BODY_LEN_MAX as u64 {
        return Err(refused("it is too long"));
    }
    match timeout(REQUEST_TIME_MAX, to_bytes(Body::new(body), BODY_LEN_MAX)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(failed)) => Err(refused(&failed.to_string())),
        Err(_) => {
            let secs = REQUEST_TIME_MAX.as_secs();
            let text = format!("the body of the request did not end within {secs} s");
            Err(error(StatusCode::REQUEST_TIMEOUT, text))
        }
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
    /// The server's: it does something.
    Answered,
    /// The server's: it makes a page, and nothing changes if it does not.
    Shown,
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

    fn is_at(&self, stage: Stage) -> bool {
        self.stage.load(Ordering::Relaxed) == stage as u8
    }

    fn is_waited_for(&self) -> bool {
        !self.is_at(Stage::Answered) && !self.is_at(Stage::Shown)
    }

    /// Whether it can be closed for others: if its client is waited for, and pages
    /// of an account that is known. Over TCP one who asks for many pages is like
    /// all the others, who would get none.
    fn may_give_way(&self) -> bool {
        self.is_waited_for() || (self.is_at(Stage::Shown) && self.uid.is_some())
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

    /// Makes room: first of all the account with the most connections has to give
    /// way, and of those one that says a request slowly, or does not read the
    /// response. What the server itself does is not given up.
    fn close_oldest(&self) {
        let list = self.list();
        let count = |uid: Option<u32>| list.iter().filter(|own| own.uid == uid).count();
        let counts: Vec<usize> = list.iter().map(|own| count(own.uid)).collect();
        close(list, |at, own| Some((counts[at], own.is_waited_for())));
    }

    /// Lets an account have a further connection, for which its oldest is closed if
    /// it has as many as it may.
    fn make_room_in(&self, uid: Option<u32>) {
        let list = self.list();
        let is_full = list.iter().filter(|own| own.uid == uid).count() >= OF_ACCOUNT_MAX;
        if uid.is_some() && is_full {
            close(list, |_, own| (own.uid == uid).then_some(own.is_waited_for()));
        }
    }

    /// Has the server do what a client asks for, or says why not: if its account has
    /// enough that is worked on, or if it is being closed.
    fn begin(&self, client: &Arc<Client>, is_page: bool) -> Result<(), String> {
        let list = self.list();
        // Nothing is begun that would be broken off at once.
        if !list.iter().any(|own| Arc::ptr_eq(own, client)) {
            return Err("the connection gives way to another; try again".into());
        }
        if is_page {
            client.set(Stage::Shown);
            return Ok(());
        }
        let working = list.iter().filter(|own| own.is_at(Stage::Answered));
        let (own, others): (Vec<_>, Vec<_>) = working.partition(|own| own.uid == client.uid);
        let max = ((CONNECTIONS_MAX - others.len()) / WORK_PART).max(1);
        // Over TCP nobody knows whose it is, and nothing is done there that takes long.
        if client.uid.is_some() && own.len() >= max {
            return Err(format!(
                "{} commands of this account are worked on; accepted: at most {max} while other \
                 accounts have {}; try again when one has ended",
                own.len(),
                others.len()
            ));
        }
        client.set(Stage::Answered);
        Ok(())
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Client>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the connection of the greatest rank, of equals the oldest, if one may be
/// closed.
fn close<R: Ord>(
    mut list: std::sync::MutexGuard<'_, Vec<Arc<Client>>>,
    rank: impl Fn(usize, &Client) -> Option<R>,
) {
    let closable = list.iter().enumerate().filter(|(_, own)| own.may_give_way());
    let ranked = closable.filter_map(|(at, own)| Some((at, rank(at, own)?)));
    // Of equals the last of the reversed is the oldest.
    let ranked: Vec<(usize, R)> = ranked.collect();
    let greatest = ranked.iter().rev().max_by_key(|(_, rank)| rank).map(|(at, _)| *at);
    if let Some(at) = greatest {
        list.remove(at).closed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::{get, post};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::time::Instant;

    /// A connection to a server of one page, of a megabyte.
    fn connect(held_len: usize) -> DuplexStream {
        let (client, own) = tokio::io::duplex(held_len);
        let routes = Router::new()
            .route("/", get(async || "x".repeat(1 << 20)))
            .route("/", post(async |body: String| body));
        tokio::spawn(async move {
            let clients = Clients::default();
            let client = clients.enter(None);
            serve_one(own, routes, READING_TIME_MAX, &client, &clients).await;
        });
        client
    }

    /// Says `request`, and what comes back.
    async fn said(request: &str) -> String {
        let mut client = connect(1 << 16);
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
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
    async fn a_body_that_does_not_come_is_not_waited_for() {
        let head = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n";
        assert_eq!(lasts(&format!("{head}x")).await, REQUEST_TIME_MAX);
        let said = said("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc").await;
        assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("abc"), "{said}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_bounded_in_length() {
        let len = BODY_LEN_MAX + 1;
        let head = format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {len}\r\n\r\n");
        let said = said(&(head + &"x".repeat(1 << 15))).await;
        assert!(said.starts_with("HTTP/1.1 413"), "{said}");
    }

    /// A member of the control group kept everybody from the control socket with 64
    /// requests whose bodies did not end.
    #[tokio::test]
    async fn half_sent_bodies_keep_nobody_from_an_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = Router::new().route("/say", post(async |said: String| said));
        let server = tokio::spawn(serve(listener, routes, CONTROL_TIME_MAX));
        let ask = async |body: &str| {
            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let head = "POST /say HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n";
            stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            stream
        };
        let mut held = Vec::new();
        for _ in 0..2 * CONNECTIONS_MAX {
            held.push(ask("a").await);
        }
        let answer = async {
            let mut answer = String::new();
            ask("abort").await.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let answer = timeout(Duration::from_secs(5), answer).await.expect("an answer in time");
        assert!(answer.ends_with("abort"), "{answer}");
        server.abort();
    }

    /// 150 requests for pages of one operator made the commands of all others fail.
    #[tokio::test]
    async fn pages_of_one_account_give_way_to_a_command_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let routes = Router::new()
            .route("/page", get(std::future::pending::<()>))
            .route("/work", post(std::future::pending::<()>))
            .route("/say", post(async || "said"));
        let server = tokio::spawn(serve(listener, routes, CONTROL_TIME_MAX));
        let ask = async |request: &str| {
            let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
            let head = format!("{request} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
            // It may have been refused by then.
            let _ = stream.write_all(head.as_bytes()).await;
            stream
        };
        let answer = async || {
            let mut answer = String::new();
            let mut stream = ask("POST /say").await;
            let read = timeout(Duration::from_secs(5), stream.read_to_string(&mut answer)).await;
            let _ = read.expect("an answer in time");
            answer
        };
        let mut held = Vec::new();
        for _ in 0..2 * CONNECTIONS_MAX {
            held.push(ask("GET /page").await);
        }
        assert!(answer().await.ends_with("said"));
        // What is worked on is not given up, nor may it take all there is.
        for _ in 0..CONNECTIONS_MAX {
            held.push(ask("POST /work").await);
        }
        let refused = answer().await;
        let expected = "16 commands of this account are worked on; accepted: at most 16 while";
        assert!(refused.contains("503") && refused.contains(expected), "{refused}");
        server.abort();
    }

    /// A control socket whose clients say who they are: by the name of their own
    /// socket, `UID-NUMBER`. The tests are one user only.
    struct Claimed(UnixListener);

    impl Listener for Claimed {
        type Stream = tokio::net::UnixStream;

        async fn accept(&self) -> io::Result<Self::Stream> {
            Listener::accept(&self.0).await
        }

        fn peer(stream: &Self::Stream) -> Option<Peer> {
            let own = stream.peer_addr().unwrap();
            let name = own.as_pathname()?.file_name()?.to_str()?.to_owned();
            let uid = name.split_once('-')?.0.parse().unwrap();
            Some(Peer { uid, gid: 1, pid: None })
        }
    }

    /// Two accounts with 32 commands each that took long kept everybody else from the
    /// control socket.
    #[tokio::test]
    async fn commands_of_some_accounts_keep_no_other_account_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let listener = Claimed(UnixListener::bind(&path).unwrap());
        let routes = Router::new()
            .route("/work", post(std::future::pending::<()>))
            .route("/say", post(async || "said"));
        let server = tokio::spawn(serve(listener, routes, CONTROL_TIME_MAX));
        let number = std::cell::Cell::new(0);
        let ask = async |uid: u32, request: &str| {
            number.set(number.get() + 1);
            let socket = tokio::net::UnixSocket::new_stream().unwrap();
            socket.bind(folder.path().join(format!("{uid}-{}", number.get()))).unwrap();
            let mut stream = socket.connect(&path).await.unwrap();
            // It may have been refused by then.
            let _ = stream.write_all(request.as_bytes()).await;
            stream
        };
        let work = "POST /work HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
        let half = "POST /work HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nx";
        let say = "POST /say HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
        let answer = async |uid: u32| {
            let mut answer = String::new();
            let mut stream = ask(uid, say).await;
            let read = timeout(Duration::from_secs(5), stream.read_to_string(&mut answer)).await;
            let _ = read.expect("an answer in time");
            answer
        };
        let mut held = Vec::new();
        for uid in 1000..1010 {
            // Half-sent first, then all at once, and more of them.
            let mut slow = Vec::new();
            for _ in 0..CONNECTIONS_MAX {
                slow.push(ask(uid, half).await);
            }
            for stream in &mut slow {
                let _ = stream.write_all(b"x".repeat(8).as_slice()).await;
            }
            held.extend(slow);
            for _ in 0..CONNECTIONS_MAX {
                held.push(ask(uid, work).await);
            }
            let said = answer(uid + 1).await;
            assert!(said.ends_with("said"), "{uid} keeps {} out: {said}", uid + 1);
        }
        server.abort();
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
        clients.close_oldest();
        let is_left =
            |client: &Arc<Client>| clients.list().iter().any(|own| Arc::ptr_eq(own, client));
        assert!(is_left(&root) && is_left(&flood[0]) && !is_left(&flood[1]) && is_left(&flood[2]));
        // Of equals the oldest.
        clients.leave(&flood[0]);
        clients.close_oldest();
        assert!(!is_left(&root) && is_left(&flood[2]));
    }

    #[test]
    fn pages_of_the_account_with_the_most_connections_give_way_to_others() {
        let clients = Clients::default();
        let flood: Vec<Arc<Client>> = (0..3).map(|_| clients.enter(Some(1000))).collect();
        flood.iter().for_each(|own| own.set(Stage::Shown));
        flood[0].set(Stage::Answered);
        let other = clients.enter(Some(1001));
        clients.close_oldest();
        let is_left =
            |client: &Arc<Client>| clients.list().iter().any(|own| Arc::ptr_eq(own, client));
        assert!(is_left(&other) && is_left(&flood[0]) && !is_left(&flood[1]));
        // Over TCP nobody knows whose they are.
        let clients = Clients::default();
        let pages: Vec<Arc<Client>> = (0..3).map(|_| clients.enter(None)).collect();
        pages.iter().for_each(|own| own.set(Stage::Shown));
        clients.close_oldest();
        assert_eq!(clients.list().len(), 3);
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
