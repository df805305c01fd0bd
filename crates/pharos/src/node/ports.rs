//! The sockets that a cell asks upstream from: a pool, each on a port drawn at
//! random, replaced when it carried its share of questions.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

/// Sockets of one cell: a forger must hit the right one of all ports of the
/// host, and these are too few to find by scanning before they are replaced.
pub const PORTS: u16 = 64;
/// Draws of a port until one is free.
const DRAWS_MAX: usize = 32;
/// Ports below these belong to services.
const PORT_MIN: u16 = 10_000;

/// The sockets of a cell. Places are known to the engine; each has a socket of
/// either kind, made when it is first needed.
#[derive(Debug)]
pub struct Ports {
    places: Vec<Place>,
}

#[derive(Debug, Default)]
struct Place {
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
}

impl Ports {
    pub fn new() -> Self {
        Ports { places: (0..PORTS).map(|_| Place::default()).collect() }
    }

    /// The socket of `place` for servers like `to`, and whether it is new.
    pub fn get(&mut self, place: u16, to: SocketAddr) -> io::Result<(&UdpSocket, bool)> {
        let place = &mut self.places[place as usize];
        let own = if to.is_ipv4() { &mut place.v4 } else { &mut place.v6 };
        let is_new = own.is_none();
        let socket = match own.take() {
            Some(socket) => socket,
            None => open(to.is_ipv4())?,
        };
        Ok((own.insert(socket), is_new))
    }

    /// The sockets of `place`.
    pub fn sockets(&self, place: u16) -> impl Iterator<Item = &UdpSocket> {
        let Place { v4, v6 } = &self.places[place as usize];
        v4.iter().chain(v6)
    }

    /// Closes the sockets of `place`; the next ones will be on other ports.
    pub fn renew(&mut self, place: u16, mut closing: impl FnMut(&dyn AsFd)) {
        self.sockets(place).for_each(|socket| closing(socket));
        self.places[place as usize] = Place::default();
    }
}

/// A socket on a port drawn at random. Not by the system: its draws are from a
/// range that is known, and on some systems in order.
fn open(is_v4: bool) -> io::Result<UdpSocket> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..DRAWS_MAX {
        let draw = u16::from_ne_bytes(crate::random::octets());
        let port = PORT_MIN + draw % (u16::MAX - PORT_MIN);
        let address = match is_v4 {
            true => SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
            false => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
        };
        match UdpSocket::bind(address) {
            Ok(socket) => {
                socket.set_nonblocking(true)?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn places_keep_their_ports_until_they_are_renewed() {
        let mut ports = Ports::new();
        let to = SocketAddr::from(([127, 0, 0, 1], 53));
        let port = |ports: &mut Ports, place| {
            let (socket, is_new) = ports.get(place, to).unwrap();
            (socket.local_addr().unwrap().port(), is_new)
        };
        let first = port(&mut ports, 3);
        assert!(first.1);
        assert_eq!(port(&mut ports, 3), (first.0, false));
        let mut closed = 0;
        ports.renew(3, |_| closed += 1);
        assert_eq!(closed, 1);
        assert!(port(&mut ports, 3).1);
        let all: HashSet<u16> = (0..PORTS).map(|place| port(&mut ports, place).0).collect();
        assert_eq!(all.len(), PORTS as usize, "each has its own");
    }
}
