//! Virtual name servers over real sockets, with zones on fixed shards.

use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use authority::{Shard, ShardServer};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::*;
use crate::config::{self, Flags};
use crate::publish::Snapshot;
use crate::serve::{Server, start_connections, start_workers};
use crate::sockets::Sockets;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a test waits for what must not come.
const SILENCE: Duration = Duration::from_millis(300);
const REFUSED: u8 = 5;

/// The zone `a.test` lives on the servers 1 and 2, all others everywhere.
#[derive(Debug)]
struct FixedShards;

impl Placements for FixedShards {
    fn placement_of(&self, origin: Name<'_>) -> Result<Placement, String> {
        if origin.as_bytes() != b"\x01a\x04test\0" {
            return Ok(Placement::Everywhere);
        }
        let server = |number| ShardServer { number, name: Arc::from(&b"\x02ns\0"[..]) };
        Ok(Placement::Shard(Shard::new(vec![server(1), server(2)]).unwrap()))
    }
}

/// A host that serves the zones `a.test` and `b.test`.
struct Host {
    server: Arc<Server>,
    pool: Pool,
    port: u16,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    _runtime: Runtime,
    _home: TempDir,
}

impl Host {
    fn start(pool: Pool) -> Host {
        let home = tempfile::tempdir().unwrap();
        for zone in ["a.test", "b.test"] {
            let text = "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns.\nwww A 192.0.2.9\n";
            std::fs::write(home.path().join(format!("{zone}.zone")), text).unwrap();
        }
        let flags = Flags {
            listen: vec!["127.0.0.1:0".into()],
            admin: Some("127.0.0.1:0".into()),
            zones: Some(home.path().into()),
            workers: Some(2),
            ..Flags::default()
        };
        let mut config = config::read(None, &flags).unwrap();
        config.fleet = Some(Fleet { pool, port: 0 });
        let Sockets { workers, tcp, fleet, .. } = Sockets::bind(&config).unwrap();
        let server = Server::new(&config, Some(Arc::new(FixedShards))).unwrap();
        assert_eq!(server.load(&[]).unwrap().zones, 2);
        let stop = Arc::new(AtomicBool::new(false));
        let threads = start_workers(&server, workers, &stop).unwrap();
        let runtime = Runtime::new().unwrap();
        start_connections(&server, &runtime, tcp).unwrap();
        let port = fleet.unwrap().port;
        Host { server, pool, port, stop, threads, _runtime: runtime, _home: home }
    }

    fn address(&self, server: u16, family: Family) -> SocketAddr {
        SocketAddr::new(self.pool.address_of(server, family).unwrap(), self.port)
    }

    /// Compares the response codes of the answers to `name` over UDP and TCP;
    /// `None`: there must be no answer.
    fn check(&self, server: u16, name: &str, expected: Option<u8>) {
        let address = self.address(server, Family::V4);
        let patience = if expected.is_some() { PATIENCE } else { SILENCE };
        for answer in [ask_udp(address, name, patience), ask_tcp(address, name, patience)] {
            let code = answer.map(|answer| answer[3] & 0xf);
            assert_eq!(code, expected, "{name} at server {server}");
        }
    }

    fn serve(&self, servers: &[u16]) {
        let served: Served = servers.iter().copied().collect();
        self.server.publisher.update(|old| Snapshot { served, ..old.clone() });
    }

    /// Questions that were dropped because nobody serves the server asked.
    fn dropped(&self) -> u64 {
        let counters = self.server.counters.list();
        counters.iter().map(|c| c.drops[DropReason::NotServed as usize].get()).sum()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[test]
fn answers_may_leave_from_addresses_that_are_only_routed_here() {
    let socket = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::DGRAM, None).unwrap();
    let pool = Pool::new(4).with_network(Family::V6, "fd53::/126").unwrap();
    Door::Fleet(pool).keep(&socket, Family::V6.any(53)).unwrap();
    assert!(socket.freebind_v6().unwrap());
}

fn pool() -> Pool {
    Pool::new(4).with_network(Family::V4, "127.53.7.0/24").unwrap()
}

/// A question for the address of `name`, with EDNS.
fn question(name: &str) -> Vec<u8> {
    let mut message = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    message.extend(wire::name::from_text(name).unwrap());
    message.extend([0, 1, 0, 1]);
    message.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    message
}

/// The answer over UDP, from exactly the address that was asked.
fn ask_udp(address: SocketAddr, name: &str, patience: Duration) -> Option<Vec<u8>> {
    let from = if address.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    let socket = UdpSocket::bind(from).unwrap();
    // A connected socket takes answers from this address alone.
    socket.connect(address).unwrap();
    socket.send(&question(name)).unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    let mut answer = vec![0; 4096];
    let len = socket.recv(&mut answer).ok()?;
    answer.truncate(len);
    Some(answer)
}

fn ask_tcp(address: SocketAddr, name: &str, patience: Duration) -> Option<Vec<u8>> {
    exchange(&mut TcpStream::connect_timeout(&address, patience).ok()?, name)
}

fn check_silent(address: SocketAddr) {
    assert_eq!(ask_udp(address, "www.b.test", SILENCE), None, "{address}");
    assert!(TcpStream::connect_timeout(&address, SILENCE).is_err(), "{address}");
}

fn exchange(stream: &mut TcpStream, name: &str) -> Option<Vec<u8>> {
    let question = question(name);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&(question.len() as u16).to_be_bytes()).ok()?;
    stream.write_all(&question).ok()?;
    let mut len = [0; 2];
    stream.read_exact(&mut len).ok()?;
    let mut answer = vec![0; u16::from_be_bytes(len) as usize];
    stream.read_exact(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn a_zone_answers_on_its_servers_alone() {
    let host = Host::start(pool());
    for server in 0..4 {
        let expected = if matches!(server, 1 | 2) { 0 } else { REFUSED };
        host.check(server, "www.a.test", Some(expected));
        host.check(server, "www.b.test", Some(0));
    }
    // Extended error 20, not authoritative, with a text.
    let error = b"\0\x14not a name server of this name's zone";
    let address = host.address(3, Family::V4);
    for ask in [ask_udp, ask_tcp] {
        assert!(ask(address, "www.a.test", PATIENCE).unwrap().ends_with(error));
    }
    assert_eq!(host.dropped(), 0);
}

#[test]
fn other_addresses_are_not_even_heard() {
    let host = Host::start(pool());
    host.check(0, "www.b.test", Some(0));
    // The host's own, and those on both sides of the pool.
    for address in ["127.0.0.1", "127.53.6.255", "127.53.7.4", "127.53.7.255"] {
        check_silent(SocketAddr::new(address.parse().unwrap(), host.port));
    }
    assert_eq!(host.dropped(), 0, "the kernel dropped it");
}

#[test]
fn servers_are_picked_up_and_dropped_while_running() {
    let host = Host::start(pool());
    let mut stream = TcpStream::connect(host.address(2, Family::V4)).unwrap();
    assert!(exchange(&mut stream, "www.a.test").is_some());
    host.serve(&[0, 1]);
    host.check(1, "www.a.test", Some(0));
    host.check(2, "www.a.test", None);
    assert_eq!(exchange(&mut stream, "www.a.test"), None, "its server is gone");
    let started = Instant::now();
    // One datagram, one connection, and one question on another.
    while host.dropped() < 3 && started.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    let render = crate::metrics::render(&host.server, None);
    let metrics = tokio::runtime::Runtime::new().unwrap().block_on(render);
    for line in [
        "pharos_virtual_servers 2\n",
        "pharos_dropped_total{transport=\"udp\",reason=\"not_served\"} 1\n",
        "pharos_dropped_total{transport=\"tcp\",reason=\"not_served\"} 2\n",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    host.serve(&[2, 3]);
    host.check(1, "www.a.test", None);
    host.check(2, "www.a.test", Some(0));
}

#[test]
fn servers_have_addresses_of_both_kinds() {
    if UdpSocket::bind("[::1]:0").is_err() {
        eprintln!("SKIPPED: this machine has no IPv6 loopback");
        assert!(std::env::var_os("CI").is_none_or(|ci| ci.is_empty()), "CI must have IPv6");
        return;
    }
    let pool = Pool::new(1).with_network(Family::V4, "127.53.7.9/32").unwrap();
    let host = Host::start(pool.with_network(Family::V6, "::1/128").unwrap());
    for family in [Family::V4, Family::V6] {
        let address = host.address(0, family);
        for (name, expected) in [("www.b.test", 0), ("www.a.test", REFUSED)] {
            for ask in [ask_udp, ask_tcp] {
                let answer = ask(address, name, PATIENCE).unwrap();
                assert_eq!(answer[3] & 0xf, expected, "{name} at {address}");
            }
        }
    }
    let host = Host::start(Pool::new(1).with_network(Family::V6, "::2/128").unwrap());
    check_silent(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), host.port));
}
