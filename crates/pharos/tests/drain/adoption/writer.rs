//! A client that writes without a pause, follows the primary, and remembers
//! every write that was acknowledged.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::redis::Connection;

/// Between two writes. With the 80 bytes of a write in the replication stream
/// that is some 3 kB for each second of delay.
const PAUSE: Duration = Duration::from_millis(25);
const PADDING: &str = "0123456789012345678901234567890123456789";

pub struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    nodes: [SocketAddr; 2],
    is_over: AtomicBool,
    is_quiet: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    acknowledged: Vec<u64>,
    refused: usize,
    /// The last response that was an error.
    refusal: String,
    last: Option<Instant>,
    longest_gap: Duration,
}

impl Writer {
    /// One that writes at once, or when it is told to.
    pub fn start(nodes: [SocketAddr; 2], is_quiet: bool) -> Writer {
        let shared = Arc::new(Shared {
            nodes,
            is_over: AtomicBool::new(false),
            is_quiet: AtomicBool::new(is_quiet),
            seen: Mutex::default(),
        });
        let own = shared.clone();
        let thread = std::thread::spawn(move || own.write());
        Writer { shared, thread: Some(thread) }
    }

    pub fn set_quiet(&self, is_quiet: bool) {
        self.shared.is_quiet.store(is_quiet, SeqCst);
    }

    pub fn acknowledged(&self) -> usize {
        self.shared.seen.lock().unwrap().acknowledged.len()
    }

    /// Writes that were refused, and the longest time between two that were
    /// acknowledged: what the promotion cost.
    pub fn refused(&self) -> (usize, Duration, String) {
        let seen = self.shared.seen.lock().unwrap();
        (seen.refused, seen.longest_gap, seen.refusal.clone())
    }

    /// Ends it; the acknowledged writes that `primary` does not have.
    pub fn lost_on(mut self, primary: SocketAddr) -> Vec<u64> {
        self.end();
        let mut connection = Connection::open(primary).unwrap();
        let seen = self.shared.seen.lock().unwrap();
        let mut lost = Vec::new();
        for id in &seen.acknowledged {
            let found = connection.command(&format!("EXISTS w:{id}")).unwrap();
            if found.expect("EXISTS is allowed") == "0" {
                lost.push(*id);
            }
        }
        lost
    }

    fn end(&mut self) {
        self.shared.is_over.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn write(&self) {
        let mut connections = [const { None }; 2];
        let mut node = 0;
        for id in 0.. {
            while self.is_quiet.load(SeqCst) && !self.is_over.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            if self.is_over.load(SeqCst) {
                return;
            }
            match set(&mut connections[node], self.nodes[node], id) {
                Ok(()) => self.seen.lock().unwrap().acknowledge(id),
                Err(refusal) => {
                    let mut seen = self.seen.lock().unwrap();
                    seen.refused += 1;
                    seen.refusal = refusal;
                    node = 1 - node;
                }
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl Seen {
    fn acknowledge(&mut self, id: u64) {
        let now = Instant::now();
        if let Some(last) = self.last.replace(now) {
            self.longest_gap = self.longest_gap.max(now - last);
        }
        self.acknowledged.push(id);
    }
}

/// Writes once; an error if it was not acknowledged.
fn set(connection: &mut Option<Connection>, node: SocketAddr, id: u64) -> Result<(), String> {
    let unreachable = |error: std::io::Error| format!("{node}: {error}");
    if connection.is_none() {
        *connection = Some(Connection::open(node).map_err(unreachable)?);
    }
    let Some(open) = connection else { unreachable!("it was just opened") };
    match open.command(&format!("SET w:{id} {PADDING}")) {
        Ok(response) => response.map(drop),
        Err(error) => {
            *connection = None;
            Err(unreachable(error))
        }
    }
}
