//! An exporter that shows how far the replica of a Redis pair is behind, and
//! that can fail in the ways in which exporters fail.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use super::redis;

/// How the exporter responds to a scrape.
#[derive(Clone, Copy, PartialEq)]
pub enum Manner {
    Works,
    NotFound,
    /// Status 200 without a single series.
    Empty,
}

/// One scrape that had a value: when the exporter looked, as time since the
/// epoch, and what it found.
#[derive(Clone, Copy, Debug)]
pub struct Scrape {
    pub at: Duration,
    pub lag: u64,
}

pub struct Exporter {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    nodes: [SocketAddr; 2],
    manner: Mutex<Manner>,
    scrapes: Mutex<Vec<Scrape>>,
}

impl Exporter {
    pub fn start(nodes: [SocketAddr; 2]) -> Exporter {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            nodes,
            manner: Mutex::new(Manner::Works),
            scrapes: Mutex::default(),
        });
        let own = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = own.clone();
                // A scraper that hangs up is served no longer.
                std::thread::spawn(move || _ = respond(stream, &shared));
            }
        });
        Exporter { address, shared }
    }

    pub fn behave(&self, manner: Manner) {
        *self.shared.manner.lock().unwrap() = manner;
    }

    /// Every scrape so far that had a value.
    pub fn scrapes(&self) -> Vec<Scrape> {
        self.shared.scrapes.lock().unwrap().clone()
    }
}

pub fn since_epoch() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

fn respond(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let manner = *shared.manner.lock().unwrap();
        let (status, body) = match manner {
            Manner::Works => ("200 OK", page(shared)),
            Manner::NotFound => ("404 Not Found", String::new()),
            Manner::Empty => ("200 OK", String::new()),
        };
        write!(
            stream,
            "HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )?;
    }
}

/// The lag, unless nothing replicates: then there is no such number, and no
/// series.
fn page(shared: &Shared) -> String {
    let at = since_epoch();
    let Some(lag) = lag(shared.nodes) else { return "redis_replication_up 0\n".into() };
    shared.scrapes.lock().unwrap().push(Scrape { at, lag });
    format!("redis_replication_up 1\nredis_replication_lag_bytes {lag}\n")
}

/// How many bytes of the primary's replication stream the replica has not
/// applied. The replica is read first: what is written between the two reads
/// makes the lag larger, never smaller.
fn lag(nodes: [SocketAddr; 2]) -> Option<u64> {
    let found = nodes.map(redis::replication);
    let replica = found.iter().flatten().find(|own| own["role"] == "slave")?;
    let primary = nodes.iter().zip(&found);
    let primary =
        primary.filter(|(_, own)| own.as_ref().is_some_and(|own| own["role"] == "master"));
    // Read again, after the replica.
    let primary = redis::replication(*primary.map(|(node, _)| node).next()?)?;
    let is_up = replica.get("master_link_status").is_some_and(|status| status == "up");
    let offset = |of: &std::collections::BTreeMap<String, String>, key: &str| -> Option<u64> {
        of.get(key)?.parse().ok()
    };
    // The offsets of two histories say nothing.
    let is_one_history = replica.get("master_replid") == primary.get("master_replid");
    let lag =
        offset(&primary, "master_repl_offset")?.checked_sub(offset(replica, "slave_repl_offset")?);
    lag.filter(|_| is_up && is_one_history)
}
