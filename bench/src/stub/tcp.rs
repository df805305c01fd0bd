//! Questions over TCP: a thread for each connection, which waits out the latency itself, so
//! the answers to one connection come in order.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use wire::{Query, Verdict};

use super::Shared;
use super::answer::{Asked, Transport, write};
use crate::stats::Random;

/// Connections at the same time; more are closed at once.
const CONNECTIONS_MAX: usize = 256;
const IDLE_MAX: Duration = Duration::from_secs(10);

/// Accepts until the process ends.
pub fn serve(listener: &TcpListener, shared: &Arc<Shared>) {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming().flatten() {
        if open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
            continue;
        }
        open.fetch_add(1, Ordering::Relaxed);
        let (shared, counted) = (shared.clone(), open.clone());
        let spawned = thread::Builder::new().name("connection".into()).spawn(move || {
            // The client has gone, is idle or talks nonsense: the connection ends.
            let _ = converse(stream, &shared);
            counted.fetch_sub(1, Ordering::Relaxed);
        });
        if spawned.is_err() {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn converse(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_read_timeout(Some(IDLE_MAX))?;
    stream.set_write_timeout(Some(IDLE_MAX))?;
    stream.set_nodelay(true)?;
    let port = stream.peer_addr()?.port();
    let mut random = Random::new(port.into());
    let (mut query, mut out) = (Query::default(), Vec::new());
    loop {
        let mut len = [0; 2];
        stream.read_exact(&mut len)?;
        let mut message = vec![0; usize::from(u16::from_be_bytes(len))];
        stream.read_exact(&mut message)?;
        let verdict = query.read(&message);
        if verdict == Verdict::Answer {
            shared.counts().add(&query, &message, port, Transport::Tcp);
        }
        let asked = Asked { query: &query, message: &message, verdict };
        let Some(said) = write(&asked, Transport::Tcp, shared.ttl_secs, &mut out) else {
            continue;
        };
        thread::sleep(said.delay.unwrap_or_else(|| shared.latency.draw(&mut random)));
        out.splice(..0, (out.len() as u16).to_be_bytes());
        stream.write_all(&out)?;
    }
}
