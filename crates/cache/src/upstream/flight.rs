//! Questions on their way to upstream servers, found again by what an answer
//! must match: the port it comes to and its id.
//!
//! Whoever wants to forge an answer has to guess the port, the id and the case
//! of every letter. Ports are a pool of sockets of the node, known here by
//! their places; a socket that carried [`USES_MAX`] questions is replaced by
//! one on another port.

use hashbrown::HashTable;
use rand_chacha::rand_core::RngCore;

use super::server::ServerId;
use crate::slab::{Id, Slab};
use crate::time::Moment;

/// Questions that one port carries.
pub const USES_MAX: u32 = 256;
/// Draws of a port and an id until a free pair is found; with ports to spare
/// the first one is.
const DRAWS_MAX: usize = 8;

/// A question on its way.
#[derive(Clone, Debug)]
pub struct Flight {
    /// The pending question that waits for it.
    pub pending: Id,
    pub server: ServerId,
    pub id: u16,
    /// The place of its socket; `None` if it goes over a connection.
    pub port: Option<u16>,
    /// The name as it was sent, in its mixed case.
    pub name: Box<[u8]>,
    pub with_edns: bool,
    pub sent: Moment,
    /// Answers that came to its port with its id but were not its own.
    pub strangers: u32,
}

/// All questions on their way.
#[derive(Debug)]
pub struct Flights {
    flights: Slab<Flight>,
    /// Places of those that go in datagrams.
    by_port: HashTable<u32>,
    ports: Vec<Port>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Port {
    uses: u32,
    in_flight: u32,
}

impl Flights {
    /// Nothing on its way, over `ports` sockets.
    pub fn new(ports: u16) -> Self {
        Flights {
            flights: Slab::default(),
            by_port: HashTable::new(),
            ports: vec![Port::default(); ports.max(1) as usize],
        }
    }

    pub fn len(&self) -> usize {
        self.flights.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Draws a port and an id that no other flight has.
    pub fn draw(&self, random: &mut impl RngCore) -> Option<(u16, u16)> {
        (0..DRAWS_MAX).find_map(|_| {
            let draw = random.next_u32();
            let id = draw as u16;
            let port = (random.next_u32() as usize % self.ports.len()) as u16;
            self.find(port, id).is_none().then_some((port, id))
        })
    }

    /// Adds a flight; its port and id come from [`Flights::draw`].
    pub fn add(&mut self, flight: Flight) -> Id {
        let key = flight.port.map(|port| (port, flight.id));
        let id = self.flights.add(flight);
        if let Some((port, message_id)) = key {
            let own = &mut self.ports[port as usize];
            own.uses += 1;
            own.in_flight += 1;
            let flights = &self.flights;
            let hash = |place: &u32| {
                let flight = flights.at(*place).map(|(_, flight)| flight);
                flight.map_or(0, |flight| mix(flight.port.unwrap_or(0), flight.id))
            };
            self.by_port.insert_unique(mix(port, message_id), id.place(), hash);
        }
        id
    }

    /// The flight that an answer with this id at this port belongs to.
    pub fn find(&self, port: u16, id: u16) -> Option<Id> {
        let is_it = |place: &u32| {
            let flight = self.flights.at(*place).map(|(_, flight)| flight);
            flight.is_some_and(|flight| flight.port == Some(port) && flight.id == id)
        };
        let place = *self.by_port.find(mix(port, id), is_it)?;
        self.flights.at(place).map(|(id, _)| id)
    }

    pub fn get(&self, id: Id) -> Option<&Flight> {
        self.flights.get(id)
    }

    pub fn get_mut(&mut self, id: Id) -> Option<&mut Flight> {
        self.flights.get_mut(id)
    }

    /// Ends a flight. Returns it, and the place of its port if that has
    /// carried enough and nothing is on its way over it: time for another.
    pub fn remove(&mut self, id: Id) -> Option<(Flight, Option<u16>)> {
        let flight = self.flights.remove(id)?;
        let Some(port) = flight.port else { return Some((flight, None)) };
        let is_it = |place: &u32| *place == id.place();
        if let Ok(found) = self.by_port.find_entry(mix(port, flight.id), is_it) {
            found.remove();
        }
        let own = &mut self.ports[port as usize];
        own.in_flight -= 1;
        let is_worn = own.uses >= USES_MAX && own.in_flight == 0;
        if is_worn {
            *own = Port::default();
        }
        Some((flight, is_worn.then_some(port)))
    }
}

/// Ports and ids are random already; this only spreads them over 64 bits.
fn mix(port: u16, id: u16) -> u64 {
    (u64::from(port) << 16 | u64::from(id)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha12Rng;
    use rand_chacha::rand_core::SeedableRng;

    fn flight(port: Option<u16>, id: u16) -> Flight {
        Flight {
            pending: Id::from_token(0),
            server: ServerId { group: 0, server: 0 },
            id,
            port,
            name: Box::from(&b"\0"[..]),
            with_edns: true,
            sent: Moment(0),
            strangers: 0,
        }
    }

    #[test]
    fn flights_are_found_by_port_and_id_while_they_last() {
        let mut flights = Flights::new(4);
        let first = flights.add(flight(Some(1), 7));
        let other = flights.add(flight(Some(2), 7));
        let stream = flights.add(flight(None, 7));
        assert_eq!(flights.find(1, 7), Some(first));
        assert_eq!(flights.find(2, 7), Some(other));
        assert_eq!((flights.find(3, 7), flights.find(1, 8)), (None, None));
        assert!(flights.get(stream).is_some());
        assert!(flights.remove(first).is_some() && flights.remove(first).is_none());
        assert_eq!(flights.find(1, 7), None);
        assert_eq!(flights.len(), 2);
    }

    #[test]
    fn worn_ports_are_replaced_once_nothing_is_on_its_way_there() {
        let mut flights = Flights::new(1);
        let last = flights.add(flight(Some(0), 0));
        for id in 1..USES_MAX as u16 {
            let one = flights.add(flight(Some(0), id));
            assert_eq!(flights.remove(one).unwrap().1, None);
        }
        assert_eq!(flights.remove(last).unwrap().1, Some(0));
        let one = flights.add(flight(Some(0), 1));
        assert_eq!(flights.remove(one).unwrap().1, None, "it counts from the start");
    }

    #[test]
    fn draws_avoid_what_is_in_flight() {
        let mut random = ChaCha12Rng::seed_from_u64(3);
        let mut flights = Flights::new(64);
        for _ in 0..20_000 {
            let (port, id) = flights.draw(&mut random).unwrap();
            assert_eq!(flights.find(port, id), None);
            flights.add(flight(Some(port), id));
        }
        assert_eq!(flights.len(), 20_000);
    }
}
