//! Plain HTTP to one place: connections that are kept, answers bounded in
//! length. Waits are bounded by whoever calls: a request that is dropped takes
//! its connection with it.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::secrets::Secrets;

/// Requests at once to one place; others wait their turn.
const REQUESTS_MAX: usize = 8;
/// Octets of a head of an answer.
const HEAD_LEN_MAX: usize = 64 * 1024;
/// Octets of a file with a password or a token.
const SECRET_LEN_MAX: u64 = 16 * 1024;

/// A place that speaks HTTP: `http://host[:port][/path]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    host: String,
    port: u16,
    /// With the part behind `?`, if there is one.
    path: String,
}

impl Endpoint {
    /// As HOST:PORT.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    pub fn path(&self) -> &str {
        &self.path
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The text may hold a password, so it is not repeated.
        let wrong = |what: &str| format!("{what}; give http://HOST:PORT or http://HOST:PORT/PATH");
        let uri: Uri = text.parse().map_err(|_| wrong("this is no URL"))?;
        if uri.scheme_str() != Some("http") {
            return Err(wrong("only plain http is spoken; for https put a proxy before it"));
        }
        let authority = uri.authority().ok_or_else(|| wrong("the URL has no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("a URL is shown and logged; credentials belong into a file"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(wrong("the URL has no host"));
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let port = authority.port_u16().unwrap_or(80);
        Ok(Endpoint { host: host.to_owned(), port, path: path.to_owned() })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.path.trim_end_matches('/'))
    }
}

/// How to prove who asks. Secrets stay in their files and are read for each
/// request, so that one can be replaced at any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    Basic { username: String, password_file: PathBuf },
    Bearer { token_file: PathBuf },
}

impl Credentials {
    /// The header that is sent; what is secret in it is remembered.
    fn header(&self, secrets: &Secrets) -> Result<HeaderValue, Failure> {
        let (file, value) = match self {
            Credentials::Basic { username, password_file } => {
                let password = secret(password_file)?;
                let pair = format!("{username}:{password}");
                let pair = base64::engine::general_purpose::STANDARD.encode(pair);
                secrets.remember(password.trim());
                // Some leave the padding out.
                secrets.remember(pair.trim_end_matches('='));
                (password_file, format!("Basic {pair}"))
            }
            Credentials::Bearer { token_file } => {
                let token = secret(token_file)?;
                secrets.remember(token.trim());
                (token_file, format!("Bearer {token}"))
            }
        };
        let mut value = HeaderValue::try_from(value).map_err(|_| {
            Failure::Credentials(format!("{} holds more than one line", file.display()))
        })?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// The content of a small file, without the line's end.
fn secret(path: &Path) -> Result<String, Failure> {
    let fail = |why: String| Failure::Credentials(format!("cannot read {}: {why}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| fail(error.to_string()))?;
    let mut text = String::new();
    file.take(SECRET_LEN_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|error| fail(error.to_string()))?;
    if text.len() as u64 > SECRET_LEN_MAX {
        return Err(fail(format!("it has more than {SECRET_LEN_MAX} octets")));
    }
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// What came back, whatever its status.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub content_type: Option<String>,
    pub body: Bytes,
}

/// Why nothing came back.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// No connection, or one that broke.
    Broken(String),
    /// More octets than are read.
    TooLong,
    /// The secret cannot be had.
    Credentials(String),
}

/// A client of one place.
pub struct Client {
    endpoint: Endpoint,
    credentials: Option<Credentials>,
    body_len_max: usize,
    secrets: Arc<Secrets>,
    /// Connections that wait for the next request.
    idle: Mutex<Vec<Connection>>,
    turns: Semaphore,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// A connection, which ends when this is dropped.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    task: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Client {
    /// Whatever secrets it sends are remembered in `secrets`.
    pub fn new(
        endpoint: Endpoint,
        credentials: Option<Credentials>,
        body_len_max: usize,
        secrets: Arc<Secrets>,
    ) -> Self {
        let idle = Mutex::default();
        let turns = Semaphore::new(REQUESTS_MAX);
        Client { endpoint, credentials, body_len_max, secrets, idle, turns }
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub async fn get(&self, path: &str, accept: &str) -> Result<Answer, Failure> {
        let request = Request::get(path).header(ACCEPT, accept);
        self.send(request, Bytes::new()).await
    }

    /// Posts a form.
    pub async fn post(&self, path: &str, form: String) -> Result<Answer, Failure> {
        let request = Request::post(path)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.send(request, form.into()).await
    }

    async fn send(
        &self,
        request: hyper::http::request::Builder,
        body: Bytes,
    ) -> Result<Answer, Failure> {
        let mut request = request
            .header(HOST, self.endpoint.authority())
            .header(USER_AGENT, "pharos")
            .body(Full::new(body))
            .map_err(|error| Failure::Broken(error.to_string()))?;
        if let Some(credentials) = &self.credentials {
            request.headers_mut().insert(AUTHORIZATION, credentials.header(&self.secrets)?);
        }
        let turn = self.turns.acquire().await;
        let _turn = turn.map_err(|_| Failure::Broken("the client is closed".into()))?;
        // A connection that was kept may have been closed meanwhile by the other
        // side. That says nothing about it; a new one does.
        while let Some(mut kept) = self.take_idle() {
            if kept.sender.ready().await.is_err() {
                continue;
            }
            match self.exchange(kept, request.clone()).await {
                Err(Failure::Broken(_)) => break,
                ended => return ended,
            }
        }
        let fresh = self.connect().await?;
        self.exchange(fresh, request).await
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        let broken = |why: String| Failure::Broken(why);
        let address = (self.endpoint.host.as_str(), self.endpoint.port);
        let stream =
            TcpStream::connect(address).await.map_err(|error| broken(error.to_string()))?;
        // Requests are small and wait for answers.
        stream.set_nodelay(true).map_err(|error| broken(error.to_string()))?;
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_LEN_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| broken(reason(&error)))?;
        let task = tokio::spawn(async move {
            // What goes wrong is told to the request under way.
            let _ = connection.await;
        });
        Ok(Connection { sender, task: task.abort_handle() })
    }

    /// One request and its whole answer; the connection is kept if it can be.
    async fn exchange(
        &self,
        mut connection: Connection,
        request: Request<Full<Bytes>>,
    ) -> Result<Answer, Failure> {
        let answer = connection.sender.send_request(request).await;
        let answer = answer.map_err(|error| Failure::Broken(reason(&error)))?;
        let status = answer.status().as_u16();
        let content_type = answer.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|kind| kind.to_str().ok()).map(str::to_owned);
        let body = Limited::new(answer.into_body(), self.body_len_max).collect().await;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => Failure::TooLong,
            false => Failure::Broken(error.to_string()),
        })?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < REQUESTS_MAX && !connection.sender.is_closed() {
            idle.push(connection);
        }
        Ok(Answer { status, content_type, body: body.to_bytes() })
    }

    fn take_idle(&self) -> Option<Connection> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

/// What hyper says, with what lies below it.
fn reason(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let shown = |text: &str| text.parse::<Endpoint>().map(|endpoint| endpoint.to_string());
        assert_eq!(shown("http://a:9090").unwrap(), "http://a:9090");
        assert_eq!(shown("http://a/prom/").unwrap(), "http://a:80/prom");
        assert_eq!(shown("http://[::1]:1/m?x=y").unwrap(), "http://[::1]:1/m?x=y");
        for wrong in ["", "a:9090", "https://a", "http://u:secret@a", "http://", "/metrics"] {
            let said = shown(wrong).unwrap_err();
            assert!(said.ends_with("give http://HOST:PORT or http://HOST:PORT/PATH"), "{said}");
            assert!(!said.contains("secret"), "{said}");
        }
    }

    #[test]
    fn secrets_come_from_files_and_stay_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "s3cret\n").unwrap();
        let header = |credentials: &Credentials| credentials.header(&Secrets::default());
        let bearer = Credentials::Bearer { token_file: file.clone() };
        assert_eq!(header(&bearer).unwrap().as_bytes(), b"Bearer s3cret");
        assert!(!format!("{:?}", header(&bearer).unwrap()).contains("s3cret"));
        let basic = Credentials::Basic { username: "me".into(), password_file: file.clone() };
        assert_eq!(header(&basic).unwrap().as_bytes(), b"Basic bWU6czNjcmV0");
        let secrets = Secrets::default();
        basic.header(&secrets).unwrap();
        let shown = "me:[redacted] is [redacted]== or [redacted]";
        assert_eq!(secrets.redact("me:s3cret is bWU6czNjcmV0== or bWU6czNjcmV0"), shown);
        std::fs::write(&file, "a\nb").unwrap();
        assert!(
            matches!(header(&bearer), Err(Failure::Credentials(why)) if why.contains("more than one line"))
        );
        std::fs::write(&file, vec![b'x'; SECRET_LEN_MAX as usize + 1]).unwrap();
        assert!(matches!(header(&bearer), Err(Failure::Credentials(_))));
        std::fs::remove_file(&file).unwrap();
        assert!(matches!(header(&bearer), Err(Failure::Credentials(why)) if why.contains("token")));
    }
}
