//! The sockets of a server.

use std::io;
use std::net::SocketAddr;

use crate::config::Config;
use crate::{tcp, udp};

/// The sockets of a server, bound before anything is loaded: a busy port is
/// known at once, not after a million zones.
#[derive(Debug)]
pub struct Sockets {
    pub workers: Vec<Vec<udp::Listener>>,
    pub tcp: Vec<std::net::TcpListener>,
    pub admin: std::net::TcpListener,
    pub addresses: Vec<SocketAddr>,
    pub admin_address: SocketAddr,
}

impl Sockets {
    /// Binds everything that `config` names.
    pub fn bind(config: &Config) -> Result<Self, String> {
        let mut workers: Vec<Vec<udp::Listener>> = (0..config.workers).map(|_| vec![]).collect();
        let mut tcp = Vec::new();
        let mut addresses = Vec::new();
        for &wanted in &config.listen {
            let failed = |what: &str, error: io::Error| explain_bind(what, wanted, &error);
            let listener = tcp::bind(wanted).map_err(|error| failed("TCP", error))?;
            // Port 0: UDP takes the port that TCP was given.
            let address = listener.local_addr().map_err(|error| failed("TCP", error))?;
            // Without this a second server would silently share the port.
            udp::check_free(address).map_err(|error| failed("UDP", error))?;
            for own in &mut workers {
                own.push(udp::Listener::bind(address).map_err(|error| failed("UDP", error))?);
            }
            tcp.push(listener);
            addresses.push(address);
        }
        let admin = tcp::bind(config.admin)
            .map_err(|error| explain_bind("admin HTTP", config.admin, &error))?;
        let admin_address = admin.local_addr().unwrap_or(config.admin);
        Ok(Sockets { workers, tcp, admin, addresses, admin_address })
    }

    /// Says what may surprise whoever runs this server.
    pub fn log_surprises(&self) {
        let buffers = self.workers.iter().flatten().map(udp::Listener::receive_buffer_len);
        if let Some(len) = buffers.min()
            && len < udp::RECEIVE_BUFFER_LEN
        {
            tracing::warn!(
                "the system allows {} KiB for questions that wait on a UDP socket, not {} KiB; in \
                 a flood some are lost sooner: raise it with sysctl net.core.rmem_max={}",
                len >> 10,
                udp::RECEIVE_BUFFER_LEN >> 10,
                udp::RECEIVE_BUFFER_LEN
            );
        }
        let admin = self.admin_address;
        if !admin.ip().to_canonical().is_loopback() {
            tracing::warn!(
                "admin HTTP on {admin} can be reached from other hosts, and shows everybody all \
                 zones; 127.0.0.1 or [::1] keeps it to this one"
            );
        }
    }
}

fn explain_bind(what: &str, address: SocketAddr, error: &io::Error) -> String {
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
