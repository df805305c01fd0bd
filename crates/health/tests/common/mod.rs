//! Servers that tests ask: one that does as it is told, and a real Prometheus.
// Each test file uses a part.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use drain::{Comparison, Condition, Millis, NoData, Source};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tempfile::TempDir;

/// How long anything may take that is not the point of a test.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn condition(query: &str, comparison: Comparison, bound: f64) -> Condition {
    Condition {
        name: "test".into(),
        source: Source::Query(query.into()),
        comparison,
        bound,
        hold_for: Millis::ZERO,
        max_age: Millis::from_secs(30),
        no_data: NoData::Block,
        no_traffic: NoData::Block,
        no_traffic_back: NoData::Block,
        is_exact: false,
    }
}

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Which connection of the server it came by.
    pub connection: usize,
    pub head: String,
    pub body: String,
}

impl Asked {
    /// A field of the form.
    pub fn field(&self, name: &str) -> Option<String> {
        let fields = self.body.split('&').filter_map(|pair| pair.split_once('='));
        let value = fields.filter(|(key, _)| *key == name).map(|(_, value)| value).next()?;
        Some(percent_decode_str(value).decode_utf8().unwrap().into_owned())
    }
}

pub enum Reply {
    /// A status, a body; the connection is kept.
    Whole(u16, String),
    /// The same, and the connection is closed without a word.
    Last(u16, String),
    /// These octets, one after the other with pauses, then the end.
    Raw(Vec<u8>, Duration),
}

/// An HTTP server that does as it is told.
pub struct Stub {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Stub {
    pub fn start(handler: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Stub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, handler) = (asked.clone(), Arc::new(handler));
        std::thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                let (log, handler) = (log.clone(), handler.clone());
                let Ok(stream) = stream else { return };
                // A client that hangs up is no failure of the server.
                std::thread::spawn(move || {
                    let _ = serve(stream, connection, &log, &*handler);
                });
            }
        });
        Stub { address, asked }
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// What was asked since the last time.
    pub fn take(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

fn serve(
    mut stream: TcpStream,
    connection: usize,
    log: &Mutex<Vec<Asked>>,
    handler: &dyn Fn(&Asked) -> Reply,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let lower = head.to_ascii_lowercase();
        let len = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; len.map_or(0, |len| len.trim().parse().unwrap())];
        reader.read_exact(&mut body)?;
        let asked = Asked { connection, head, body: String::from_utf8(body).unwrap() };
        log.lock().unwrap().push(asked.clone());
        let whole = |status: u16, body: &str| {
            let kind = "text/plain; version=0.0.4";
            format!(
                "HTTP/1.1 {status} Status\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        match handler(&asked) {
            Reply::Whole(status, body) => stream.write_all(whole(status, &body).as_bytes())?,
            Reply::Last(status, body) => {
                return stream.write_all(whole(status, &body).as_bytes());
            }
            Reply::Raw(octets, pause) if pause.is_zero() => return stream.write_all(&octets),
            Reply::Raw(octets, pause) => {
                for octet in octets {
                    stream.write_all(&[octet])?;
                    std::thread::sleep(pause);
                }
                return Ok(());
            }
        }
    }
}

/// An address where nobody listens.
pub fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A page over HTTP/1.0: its status and body.
pub fn get(address: SocketAddr, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Ok((status, body.to_owned()))
}

/// A Prometheus from Debian's package, on a free port.
pub struct RealPrometheus {
    pub address: SocketAddr,
    process: Child,
    _folder: TempDir,
}

impl RealPrometheus {
    /// Starts one that reads these targets four times a second; `None` where
    /// there is none to start, which CI must have.
    pub fn start(targets: &[SocketAddr]) -> Option<RealPrometheus> {
        RealPrometheus::start_with("250ms", true, targets)
    }

    /// The same at another interval; it may believe the stamps of exporters, as
    /// it does by default, or not.
    pub fn start_with(
        interval: &str,
        honor_timestamps: bool,
        targets: &[SocketAddr],
    ) -> Option<RealPrometheus> {
        let program = ["/usr/bin/prometheus", "/usr/local/bin/prometheus"];
        let Some(program) = program.into_iter().find(|path| Path::new(path).exists()) else {
            let is_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
            assert!(!is_ci, "CI must have Prometheus");
            eprintln!("SKIPPED: no Prometheus here; `scripts/need test` installs it");
            return None;
        };
        for _ in 0..3 {
            let (folder, address) = (tempfile::tempdir().unwrap(), nobody());
            let list: Vec<String> = targets.iter().map(|target| format!("'{target}'")).collect();
            let config = format!(
                "global: {{scrape_interval: {interval}, scrape_timeout: {interval}}}\n\
                 scrape_configs: [{{job_name: test, honor_timestamps: {honor_timestamps}, \
                 static_configs: [{{targets: [{}]}}]}}]\n",
                list.join(", ")
            );
            std::fs::write(folder.path().join("prometheus.yml"), config).unwrap();
            let log = std::fs::File::create(folder.path().join("log")).unwrap();
            let process = Command::new(program)
                .arg(format!("--config.file={}", folder.path().join("prometheus.yml").display()))
                .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
                .arg(format!("--web.listen-address={address}"))
                .stdin(Stdio::null())
                .stdout(log.try_clone().unwrap())
                .stderr(log)
                .spawn()
                .expect("prometheus starts");
            let mut started = RealPrometheus { address, process, _folder: folder };
            if started.is_up() {
                return Some(started);
            }
        }
        panic!("Prometheus does not start");
    }

    fn is_up(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while self.process.try_wait().unwrap().is_none() {
            if get(self.address, "/-/ready").is_ok_and(|(status, _)| status == 200) {
                return true;
            }
            assert!(Instant::now() < deadline, "Prometheus does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }

    /// Stops it in the middle of whatever it does, or lets it go on.
    pub fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// What an instant query gives, as JSON.
    pub fn query(&self, query: &str, time_secs: f64) -> (u16, serde_json::Value) {
        let query = utf8_percent_encode(query, NON_ALPHANUMERIC);
        let path = format!("/api/v1/query?query={query}&time={time_secs:.3}");
        let (status, body) = get(self.address, &path).unwrap();
        (status, serde_json::from_str(&body).unwrap())
    }
}

impl Drop for RealPrometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
