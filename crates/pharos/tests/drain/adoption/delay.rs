//! A TCP proxy that delivers everything from the server to the client late: a
//! slow line between a primary and its replica.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Reads that may be under way. A sender that is ahead by more waits.
const CHUNKS_MAX: usize = 10_000;
const CHUNK_LEN_MAX: usize = 16 * 1024;

type Chunk = (Instant, Vec<u8>);

/// The address of a proxy before `server` that delays by `delay` for as long as
/// the test runs.
pub fn delayed(delay: Duration) -> Delayed {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    Delayed { address: listener.local_addr().unwrap(), listener, delay }
}

/// A proxy whose address is known before its server is.
pub struct Delayed {
    pub address: SocketAddr,
    listener: TcpListener,
    delay: Duration,
}

impl Delayed {
    pub fn serve(self, server: SocketAddr) {
        std::thread::spawn(move || {
            for client in self.listener.incoming().flatten() {
                // A server that is down: the client sees its connection closed.
                if let Ok(server) = TcpStream::connect(server) {
                    relay(client, server, self.delay);
                }
            }
        });
    }
}

fn relay(client: TcpStream, server: TcpStream, delay: Duration) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (to_client, from_client) = (client.try_clone().unwrap(), client);
    let (from_server, to_server) = (server.try_clone().unwrap(), server);
    let (sender, receiver) = sync_channel(CHUNKS_MAX);
    std::thread::spawn(move || copy(from_client, to_server));
    std::thread::spawn(move || take(from_server, delay, &sender));
    std::thread::spawn(move || deliver(&receiver, to_client));
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}

fn take(mut from: TcpStream, delay: Duration, sender: &SyncSender<Chunk>) {
    let mut buffer = vec![0; CHUNK_LEN_MAX];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        if sender.send((Instant::now() + delay, buffer[..len].to_vec())).is_err() {
            return;
        }
    }
}

fn deliver(receiver: &Receiver<Chunk>, mut to: TcpStream) {
    for (due, chunk) in receiver {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&chunk).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
