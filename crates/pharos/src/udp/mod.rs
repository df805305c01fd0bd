//! Questions in datagrams: one thread per core, each with its own socket for
//! every address, fed by the kernel's SO_REUSEPORT.
//!
//! A thread receives a batch, answers it from the snapshot that is current,
//! sends the batch, and starts over. Between the two system calls nothing
//! allocates, locks, logs or waits.

pub mod mmsg;
mod outbox;

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use authority::respond::{Arrival, Context, Scratch, Transport, approach};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::counters::Counters;
use crate::fleet::{Door, Served};
use crate::publish::{Publisher, View};
pub use mmsg::Batch;
use mmsg::{Waiter, set_int};
pub use outbox::Outbox;

/// Messages that one system call brings or takes.
pub const BATCH_LEN: usize = 64;
/// Questions that are read before the first of them is answered: enough to
/// keep the memory busy, few enough to stay in the core's nearest cache.
const GROUP_LEN: usize = 16;
/// Questions longer than this are cut off by the kernel and not answered: one
/// with the longest name and every EDNS option in use has half of it.
pub const QUESTION_LEN_MAX: usize = 1500;
/// What the kernel may hold for a socket while its thread is busy, if the
/// system allows that much.
pub const RECEIVE_BUFFER_LEN: usize = 4 << 20;
/// How often an idle thread looks for a stop or a newer snapshot.
pub const IDLE: Duration = Duration::from_millis(500);

/// One thread's socket for one address, or for those of a fleet.
#[derive(Debug)]
pub struct Listener {
    pub socket: UdpSocket,
    door: Door,
    /// The socket takes datagrams for any address of the host, so each answer
    /// must be told which one to leave from.
    pub with_destination: bool,
}

impl Listener {
    /// Binds `address`. Other listeners may bind it too and share its load.
    pub fn bind(address: SocketAddr, door: Door) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_reuse_port(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        // Best effort: the system may allow less.
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER_LEN);
        let _ = socket.set_send_buffer_size(RECEIVE_BUFFER_LEN);
        socket.set_read_timeout(Some(IDLE))?;
        let with_destination = address.ip().is_unspecified();
        if with_destination {
            match address.ip() {
                IpAddr::V4(_) => set_int(&socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?,
                IpAddr::V6(_) => {
                    set_int(&socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
                }
            }
        }
        // Forged "packet too big" messages must not make us send fragments,
        // which an attacker could complete (RFC 9715, 3.1). Best effort.
        let _ = match address.ip() {
            IpAddr::V4(_) => {
                set_int(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_OMIT)
            }
            IpAddr::V6(_) => set_int(
                &socket,
                libc::IPPROTO_IPV6,
                libc::IPV6_MTU_DISCOVER,
                libc::IPV6_PMTUDISC_OMIT,
            ),
        };
        door.keep(&socket, address)?;
        socket.bind(&address.into())?;
        Ok(Listener { socket: socket.into(), door, with_destination })
    }

    /// Octets that the kernel holds for this socket. It says twice as many,
    /// for its own needs (socket(7)).
    pub fn receive_buffer_len(&self) -> usize {
        SockRef::from(&self.socket).recv_buffer_size().unwrap_or_default() / 2
    }
}

/// Says whether nobody else answers at `address`. SO_REUSEPORT would let a
/// second server of the same user take half of the questions unnoticed.
pub fn check_free(address: SocketAddr) -> io::Result<()> {
    reserve(address).map(drop)
}

/// Takes `address` for itself alone.
pub fn reserve(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// An answering thread.
#[derive(Debug)]
pub struct Worker {
    pub listeners: Vec<Listener>,
    pub publisher: Arc<Publisher>,
    pub counters: Arc<Counters>,
    pub stop: Arc<AtomicBool>,
}

impl Worker {
    /// Answers until told to stop. A panic is our bug, and costs the batch it
    /// happened in; the thread goes on, because everybody else still asks.
    pub fn run(self) {
        while !self.stop.load(Ordering::Relaxed) {
            if catch_unwind(AssertUnwindSafe(|| self.answer_all())).is_err() {
                self.counters.panics.add(1);
                tracing::error!("an answering thread failed and goes on; this is a bug");
            }
        }
    }

    fn answer_all(&self) {
        let mut view = self.publisher.view();
        let hasher = *self.publisher.hasher();
        let payload = view.load().settings.udp_payload as usize;
        let mut desk = Desk {
            batch: Batch::new(BATCH_LEN, QUESTION_LEN_MAX, payload.max(512)),
            scratches: vec![Scratch::default(); GROUP_LEN],
            hasher,
            counters: self.counters.clone(),
        };
        let mut waiter = Waiter::new(&self.listeners);
        while !self.stop.load(Ordering::Relaxed) {
            if let [listener] = &self.listeners[..] {
                desk.serve(listener, true, &mut view);
            } else {
                waiter.wait(IDLE);
                for (index, listener) in self.listeners.iter().enumerate() {
                    if waiter.is_ready(index) {
                        desk.serve(listener, false, &mut view);
                    }
                }
            }
            // Also when nothing came: an idle thread must not keep an old
            // snapshot in memory.
            view.load();
        }
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.socket.as_raw_fd()
    }
}

/// Who may come in, for one batch.
#[derive(Clone, Copy)]
struct Entry<'s> {
    door: &'s Door,
    served: &'s Served,
}

/// What a thread works with.
struct Desk {
    batch: Batch,
    scratches: Vec<Scratch>,
    hasher: authority::NameHasher,
    counters: Arc<Counters>,
}

impl Desk {
    /// Receives, answers and sends one batch.
    fn serve(&mut self, listener: &Listener, wait: bool, view: &mut View) {
        let socket = listener.socket.as_fd();
        let count = match self.batch.receive(socket, wait, listener.with_destination) {
            Ok(count) => count,
            // Timed out, interrupted, or an error left over from an earlier
            // send to somebody unreachable: there is always a next batch.
            Err(_) => return,
        };
        let arrived = Instant::now();
        let snapshot = view.load();
        let hasher = self.hasher;
        let context = Context {
            catalog: &snapshot.catalog,
            hasher: &hasher,
            settings: &snapshot.settings,
            now_secs: unix_secs(),
        };
        let entry = Entry { door: &listener.door, served: &snapshot.served };
        for start in (0..count).step_by(GROUP_LEN) {
            self.answer_group(&context, entry, start..count.min(start + GROUP_LEN));
        }
        let failed = self.batch.send(socket);
        self.counters.send_errors.add(failed as u64);
        self.counters.latency_us.observe(arrived.elapsed().as_micros() as u64, count as u64);
    }

    /// Answers some of the questions of the batch: reads them all first, so
    /// that the memory their answers need is on its way before the first is
    /// written.
    #[inline]
    fn answer_group(&mut self, context: &Context<'_>, entry: Entry<'_>, group: Range<usize>) {
        for (index, scratch) in group.clone().zip(&mut self.scratches) {
            if let Some((request, ..)) = self.batch.message(index) {
                scratch.read(context.hasher, request);
            }
        }
        approach(context.catalog, &self.scratches[..group.len()]);
        for (index, scratch) in group.zip(&mut self.scratches) {
            let server = match entry.door.admit(entry.served, || self.batch.destination(index)) {
                Ok(server) => server,
                Err(reason) => {
                    self.counters.drops[reason as usize].add(1);
                    continue;
                }
            };
            let Some((request, from, out)) = self.batch.message(index) else {
                self.counters.drops[wire::DropReason::Long as usize].add(1);
                continue;
            };
            if from.port() == 0 {
                self.counters.drops[wire::DropReason::NoPort as usize].add(1);
                continue;
            }
            let arrival = Arrival { from: from.ip(), server, transport: Transport::Udp };
            let outcome = scratch.answer(context, request, arrival, out);
            self.counters.count(request.len(), scratch.query.qtype, &outcome);
            if outcome.len > 0 {
                self.batch.push_answer(index, outcome.len);
            }
        }
    }
}

fn unix_secs() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as u32
}
