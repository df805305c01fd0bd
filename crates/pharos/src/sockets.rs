//! The sockets of a server.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use crate::config::{CacheConfig, Config};
use crate::counters::Via;
use crate::fleet::{Door, Fleet};
use crate::{peers, tcp, udp};

/// Ports of the system's choice that are tried.
const PORT_TRIES: usize = 16;

/// The sockets of a server, bound before anything is loaded: a busy port is
/// known at once, not after a million zones.
#[derive(Debug)]
pub struct Sockets {
    pub workers: Vec<Vec<udp::Listener>>,
    pub tcp: Vec<tcp::Listener>,
    /// `None`: something else has its port for now, and runs of drains are driven without it.
    pub admin: Option<std::net::TcpListener>,
    pub addresses: Vec<SocketAddr>,
    /// With the port that it has.
    pub fleet: Option<Fleet>,
    pub admin_address: SocketAddr,
    pub cache: Option<CacheSockets>,
}

/// The sockets of a cache node.
#[derive(Debug)]
pub struct CacheSockets {
    /// Where clients will ask: bound later, so that nobody asks a node that is
    /// not ready and waits in vain. A port of the system's choice is kept for it.
    pub datagrams: Datagrams,
    pub tcp: Vec<tcp::Listener>,
    pub addresses: Vec<SocketAddr>,
    /// For other cells, one for each cell.
    pub peers: Vec<UdpSocket>,
    pub gossip: UdpSocket,
    /// For other nodes; a node that is alone has none.
    pub grpc: Option<std::net::TcpListener>,
    pub peer_address: SocketAddr,
}

impl Sockets {
    /// Binds everything that `config` names.
    pub fn bind(config: &Config) -> Result<Self, String> {
        check_free(config)?;
        let mut doors = Doors::new(config);
        let mut addresses = Vec::new();
        for &wanted in &config.listen {
            addresses.push(doors.open(wanted, Door::Host)?);
        }
        let mut fleet = config.fleet;
        if let Some(Fleet { pool, port }) = &mut fleet {
            for family in pool.families() {
                // Port 0: the second family takes the port that the first got.
                *port = doors.open(family.any(*port), Door::Fleet(*pool))?.port();
            }
        }
        let admin = bind_admin(config)?;
        let bound = admin.as_ref().and_then(|admin| admin.local_addr().ok());
        let admin_address = bound.unwrap_or(config.admin);
        let Doors { workers, tcp, .. } = doors;
        let cache = config.cache.as_ref().map(CacheSockets::bind).transpose()?;
        Ok(Sockets { workers, tcp, admin, addresses, fleet, admin_address, cache })
    }

    /// Says what may surprise whoever runs this server.
    pub fn log_surprises(&self) {
        log_short_buffers(&self.workers);
        let admin = self.admin_address;
        if !admin.ip().to_canonical().is_loopback() {
            tracing::warn!(
                "admin HTTP on {admin} can be reached from other hosts, and shows everybody all \
                 zones; 127.0.0.1 or [::1] keeps it to this one"
            );
        }
    }
}

/// Any user of the host can take the port while the server is down: that keeps no run of a
/// drain from being driven.
fn bind_admin(config: &Config) -> Result<Option<std::net::TcpListener>, String> {
    match tcp::bind(config.admin) {
        Ok(admin) => Ok(Some(admin)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && config.drain.is_some() => {
            tracing::error!(
                "{}; drains are driven and the control socket answers all the same, and it is \
                 tried again every {} s",
                explain_bind("admin HTTP", config.admin, &error),
                crate::admin::BIND_EVERY.as_secs()
            );
            Ok(None)
        }
        Err(error) => Err(explain_bind("admin HTTP", config.admin, &error)),
    }
}

/// Says if the system gives the sockets of `workers` less room than they ask
/// for.
pub fn log_short_buffers(workers: &[Vec<udp::Listener>]) {
    let buffers = workers.iter().flatten().map(udp::Listener::receive_buffer_len);
    if let Some(len) = buffers.min()
        && len < udp::RECEIVE_BUFFER_LEN
    {
        tracing::warn!(
            "the system allows {} KiB for questions that wait on a UDP socket, not {} KiB; in a \
             flood some are lost sooner: raise it with sysctl net.core.rmem_max={}",
            len >> 10,
            udp::RECEIVE_BUFFER_LEN >> 10,
            udp::RECEIVE_BUFFER_LEN
        );
    }
}

impl CacheSockets {
    fn bind(config: &CacheConfig) -> Result<Self, String> {
        let (mut tcp, mut datagrams) = (Vec::new(), Vec::new());
        for &wanted in &config.listen {
            let (listener, address, kept) = try_ports(wanted, || {
                let failed = |via| move |error| (name_of(Door::Host, via), error);
                let listener = tcp::Listener::bind(wanted, Door::Host, false);
                let listener = listener.map_err(failed(Via::Tcp))?;
                let address = listener.socket.local_addr().map_err(failed(Via::Tcp))?;
                let kept = (wanted.port() == 0).then(|| udp::reserve(address)).transpose();
                Ok((listener, address, kept.map_err(failed(Via::Udp))?))
            })?;
            tcp.push(listener);
            datagrams.push((address, kept));
        }
        let addresses = datagrams.iter().map(|(address, _)| *address).collect();
        let wanted = config.peer_listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
        // Port 0: datagrams take the port that connections were given.
        let (grpc, peer_address, (peers, gossip)) = try_ports(wanted, || {
            let grpc = tcp::bind(wanted).map_err(|error| ("gRPC of peers", error))?;
            let address = grpc.local_addr().map_err(|error| ("gRPC of peers", error))?;
            let peers = peers::bind(address, config.workers as u8)
                .map_err(|error| ("datagrams of peers", error))?;
            Ok((grpc, address, peers))
        })?;
        let grpc = config.peer_listen.map(|_| grpc);
        let datagrams = Datagrams(datagrams);
        Ok(CacheSockets { datagrams, tcp, addresses, peers, gossip, grpc, peer_address })
    }
}

/// Where clients of a cache will ask over UDP.
#[derive(Debug)]
pub struct Datagrams(Vec<(SocketAddr, Option<UdpSocket>)>);

impl Datagrams {
    /// Binds the sockets of `cells` cells.
    pub fn open(self, cells: usize) -> Result<Vec<Vec<udp::Listener>>, String> {
        let mut workers: Vec<Vec<udp::Listener>> = (0..cells).map(|_| Vec::new()).collect();
        for (address, kept) in self.0 {
            drop(kept);
            for own in &mut workers {
                let listener = udp::Listener::bind(address, Door::Host);
                own.push(listener.map_err(|error| explain_bind("UDP", address, &error))?);
            }
        }
        Ok(workers)
    }
}

/// Says whether nobody else answers where `config` says. Before anything is
/// bound: where a fleet shares a port with single addresses, our own sockets
/// would be in the way.
fn check_free(config: &Config) -> Result<(), String> {
    let fleet = config.fleet.iter().flat_map(|fleet| {
        fleet.pool.families().map(|family| (family.any(fleet.port), Door::Fleet(fleet.pool)))
    });
    let cache = config.cache.iter().flat_map(|cache| &cache.listen);
    let listen = config.listen.iter().chain(cache).map(|address| (*address, Door::Host));
    for (address, door) in listen.chain(fleet).filter(|(address, _)| address.port() != 0) {
        let failed = |via, error| explain_bind(name_of(door, via), address, &error);
        tcp::check_free(address).map_err(|error| failed(Via::Tcp, error))?;
        udp::check_free(address).map_err(|error| failed(Via::Udp, error))?;
    }
    Ok(())
}

/// Sockets for DNS, while they are being bound.
struct Doors {
    workers: Vec<Vec<udp::Listener>>,
    tcp: Vec<tcp::Listener>,
    /// Sockets for all addresses and for single ones may have the same port.
    shares_ports: bool,
}

impl Doors {
    fn new(config: &Config) -> Self {
        let workers = (0..config.workers).map(|_| Vec::new()).collect();
        Doors { workers, tcp: Vec::new(), shares_ports: config.fleet.is_some() }
    }

    /// Binds `wanted`, which is free; returns the address that it is.
    fn open(&mut self, wanted: SocketAddr, door: Door) -> Result<SocketAddr, String> {
        let (connections, datagrams, address) = try_ports(wanted, || {
            let failed = |via| move |error| (name_of(door, via), error);
            let listener = tcp::Listener::bind(wanted, door, self.shares_ports);
            let listener = listener.map_err(failed(Via::Tcp))?;
            // Port 0: UDP takes the port that TCP was given.
            let address = listener.socket.local_addr().map_err(failed(Via::Tcp))?;
            if wanted.port() == 0 {
                udp::check_free(address).map_err(failed(Via::Udp))?;
            }
            let each = self.workers.iter().map(|_| udp::Listener::bind(address, door));
            let datagrams: io::Result<Vec<udp::Listener>> = each.collect();
            Ok((listener, datagrams.map_err(failed(Via::Udp))?, address))
        })?;
        self.workers.iter_mut().zip(datagrams).for_each(|(own, listener)| own.push(listener));
        self.tcp.push(connections);
        Ok(address)
    }
}

/// Binds something at `wanted`. With port 0 the system picks a port that is
/// free for connections; if datagrams of somebody else come there, another one
/// is tried.
fn try_ports<T>(
    wanted: SocketAddr,
    mut bind: impl FnMut() -> Result<T, (&'static str, io::Error)>,
) -> Result<T, String> {
    let mut tries = if wanted.port() == 0 { PORT_TRIES } else { 1 };
    loop {
        tries -= 1;
        match bind() {
            Ok(bound) => return Ok(bound),
            Err((_, error)) if tries > 0 && error.kind() == io::ErrorKind::AddrInUse => {}
            Err((what, error)) => return Err(explain_bind(what, wanted, &error)),
        }
    }
}

fn name_of(door: Door, via: Via) -> &'static str {
    match (door, via) {
        (Door::Host, Via::Udp) => "UDP",
        (Door::Host, Via::Tcp) => "TCP",
        (Door::Fleet(_), Via::Udp) => "UDP of the fleet",
        (Door::Fleet(_), Via::Tcp) => "TCP of the fleet",
    }
}

/// Why there is no listening at `address`, and what helps.
pub fn explain_bind(what: &str, address: SocketAddr, error: &io::Error) -> String {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => "another process listens there; stop it or choose another port",
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need root or CAP_NET_BIND_SERVICE; or choose a higher one"
        }
        io::ErrorKind::AddrNotAvailable => "no interface of this host has that address",
        _ => "check the address and the port",
    };
    format!("cannot listen on {address} ({what}): {error}; {hint}")
}
