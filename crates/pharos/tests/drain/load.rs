//! Steady load on the edge, and what became of every request.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, eventually};
use crate::site::Shop;

/// Clients of each service, and how long each waits between two requests.
const CLIENTS: usize = 4;
const PAUSE: Duration = Duration::from_millis(20);
/// How many of the last requests of a service say where its traffic goes.
const LAST: usize = 60;

#[derive(Default)]
pub struct Counts {
    pub requests: usize,
    /// What went wrong, each.
    pub failed: Vec<String>,
    /// And when.
    pub failed_at: Vec<Instant>,
    /// Conversations that were ended between two messages.
    pub begun_anew: usize,
    last: VecDeque<String>,
}

pub struct Load {
    services: [(&'static str, Arc<Mutex<Counts>>); 2],
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    pub fn start(shop: &Shop) -> Load {
        Load::start_on(|service| shop.door(service))
    }

    /// Load on the sockets where clients reach `web` and `chat`.
    pub fn start_on(socket: impl Fn(&str) -> PathBuf) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let services = ["web", "chat"].map(|name| (name, Arc::<Mutex<Counts>>::default()));
        let mut threads = Vec::new();
        for (name, counts) in &services {
            for _ in 0..CLIENTS {
                let (door, counts, stop) = (socket(name), counts.clone(), stop.clone());
                let is_sticky = *name == "chat";
                threads.push(std::thread::spawn(move || {
                    let mut client = Client { door, connection: None };
                    while !stop.load(SeqCst) {
                        client.work(&counts, is_sticky);
                        std::thread::sleep(PAUSE);
                    }
                }));
            }
        }
        Load { services, stop, threads }
    }

    /// Something about what happened to a service so far.
    pub fn of<T>(&self, service: &str, look: impl Fn(&Counts) -> T) -> T {
        let (_, counts) = self.services.iter().find(|own| own.0 == service).unwrap();
        look(&counts.lock().unwrap())
    }

    /// How many of the last requests of a service a datacenter answered.
    pub fn lately(&self, service: &str, datacenter: &str) -> usize {
        self.of(service, |counts| counts.last.iter().filter(|name| *name == datacenter).count())
    }

    /// Lets so many requests of a service pass that those before do not count
    /// any more.
    pub fn pass(&self, service: &str) {
        let before = self.of(service, |counts| counts.requests);
        let is_through = || self.of(service, |counts| counts.requests) > before + LAST + CLIENTS;
        eventually("requests pass", is_through);
    }

    /// Ends it; everything that failed.
    pub fn stop(mut self) -> Vec<String> {
        self.stop.store(true, SeqCst);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
        let failed = self.services.iter().map(|(_, counts)| counts.lock().unwrap().failed.clone());
        failed.flatten().collect()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
    }
}

/// One who asks: each time anew, or in a conversation.
struct Client {
    door: PathBuf,
    connection: Option<BufReader<UnixStream>>,
}

impl Client {
    fn work(&mut self, counts: &Mutex<Counts>, is_sticky: bool) {
        let was_open = self.connection.is_some();
        let said = self.ask();
        let mut counts = counts.lock().unwrap();
        match said {
            Ok(datacenter) => {
                counts.requests += 1;
                counts.last.push_back(datacenter);
                if counts.last.len() > LAST {
                    counts.last.pop_front();
                }
            }
            // A conversation that was ended before anything of the answer came: whoever asked asks
            // again, as any HTTP client does (RFC 9110, 9.2.2).
            Err(Trouble::NoAnswer(_)) if was_open => counts.begun_anew += 1,
            Err(Trouble::NoAnswer(why) | Trouble::Broken(why)) => {
                counts.failed.push(format!("{}: {why}", self.door.display()));
                counts.failed_at.push(Instant::now());
            }
        }
        drop(counts);
        if !is_sticky {
            self.connection = None;
        }
    }

    fn ask(&mut self) -> Result<String, Trouble> {
        if self.connection.is_none() {
            self.connection = Some(connect(&self.door).map_err(Trouble::broken)?);
        }
        let Some(connection) = &mut self.connection else { unreachable!("it was just made") };
        let said = exchange(connection);
        if said.is_err() {
            self.connection = None;
        }
        said
    }
}

enum Trouble {
    /// The connection ended before an octet of the answer.
    NoAnswer(String),
    Broken(String),
}

impl Trouble {
    fn broken(why: impl ToString) -> Trouble {
        Trouble::Broken(why.to_string())
    }
}

fn connect(door: &Path) -> std::io::Result<BufReader<UnixStream>> {
    let stream = UnixStream::connect(door)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(BufReader::new(stream))
}

fn exchange(connection: &mut BufReader<UnixStream>) -> Result<String, Trouble> {
    let no_answer = |error: std::io::Error| Trouble::NoAnswer(error.to_string());
    connection.get_mut().write_all(b"GET / HTTP/1.1\r\nhost: shop\r\n\r\n").map_err(no_answer)?;
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        match connection.read_line(&mut head) {
            Ok(0) if head.is_empty() => return Err(Trouble::NoAnswer("closed".into())),
            Ok(0) => return Err(Trouble::broken("cut off")),
            Ok(_) => {}
            Err(error) if head.is_empty() => return Err(no_answer(error)),
            Err(error) => return Err(Trouble::broken(error)),
        }
    }
    if !head.starts_with("HTTP/1.1 200") {
        return Err(Trouble::broken(head.lines().next().unwrap_or_default()));
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length = length.ok_or_else(|| Trouble::broken("no length"))?;
    let mut body = vec![0; length.parse().map_err(Trouble::broken)?];
    connection.read_exact(&mut body).map_err(Trouble::broken)?;
    String::from_utf8(body).map_err(Trouble::broken)
}
