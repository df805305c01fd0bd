//! One socket of the load and the questions outstanding on it.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use socket2::SockRef;

use super::TIMEOUT;
use crate::mmsg::Batch;

/// Places on one socket: a place is one octet of the id.
pub const SLOTS_MAX: usize = 256;
/// Holds the answers of some tenths of a second: a load that is kept from its core must not
/// lose what the server said in time.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// A node that refuses is not asked again for this long.
const REST: Duration = Duration::from_millis(100);

/// A question on its way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    pub number: u64,
    /// From here on its latency counts.
    pub since: Instant,
}

#[derive(Debug)]
pub struct Lane {
    pub socket: UdpSocket,
    slots: Vec<Slot>,
    free: Vec<u8>,
    resting_until: Option<Instant>,
}

/// A place in the window. The query id is the slot's number and its turn, so that an answer
/// to an earlier query, already counted as lost, is not taken for one to the present query.
#[derive(Clone, Copy, Debug)]
struct Slot {
    turn: u8,
    /// None if the slot is free.
    asked: Option<Asked>,
    /// When it left this socket.
    sent: Instant,
}

impl Lane {
    pub fn new(target: SocketAddr, slots: usize) -> Result<Lane> {
        let unspecified =
            if target.is_ipv4() { IpAddr::from([0u8; 4]) } else { IpAddr::from([0u16; 8]) };
        let socket =
            UdpSocket::bind((unspecified, 0)).context("cannot bind a socket for the load")?;
        SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
        socket.connect(target).with_context(|| format!("cannot ask {target}"))?;
        let free = (0..slots).rev().map(|slot| slot as u8).collect();
        let slot = Slot { turn: 0, asked: None, sent: Instant::now() };
        Ok(Lane { socket, slots: vec![slot; slots], free, resting_until: None })
    }

    /// How many questions may be sent now; none while the node rests.
    pub fn room(&self, now: Instant) -> usize {
        match self.resting_until {
            Some(until) if now < until => 0,
            _ => self.free.len(),
        }
    }

    pub fn is_half_free(&self) -> bool {
        self.free.len() * 2 >= self.slots.len()
    }

    pub fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Takes a free place for the question; returns the id to send it with.
    pub fn ask(&mut self, asked: Asked, now: Instant) -> Option<[u8; 2]> {
        let slot = self.free.pop()?;
        let place = &mut self.slots[usize::from(slot)];
        place.turn = place.turn.wrapping_add(1);
        (place.asked, place.sent) = (Some(asked), now);
        Some([place.turn, slot])
    }

    /// Sends the first `count` packets of `batch`; returns how many the socket took.
    pub fn send(&self, batch: &mut Batch, count: usize) -> io::Result<usize> {
        let sent = match batch.send(self.socket.as_fd(), count) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            result => result?,
        };
        if sent == count {
            return Ok(sent);
        }
        // A batch that ends early keeps to itself why. The next packet tells: its own error, or
        // that of a closed port, which is there at once on one machine.
        match self.socket.send(batch.packet(sent)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(sent),
            Err(error) => Err(error),
            Ok(_) => match self.socket.take_error()? {
                Some(error) => Err(error),
                None => Ok(sent + 1),
            },
        }
    }

    /// The question that `answer` belongs to, whose place is free again.
    pub fn take(&mut self, answer: &[u8]) -> Option<Asked> {
        let &[turn, slot, ..] = answer else { return None };
        let place = self.slots.get_mut(usize::from(slot))?;
        if place.turn != turn {
            return None;
        }
        let asked = place.asked.take()?;
        self.free.push(slot);
        Some(asked)
    }

    /// Frees the places that waited too long; returns how many.
    pub fn expire(&mut self, now: Instant) -> u64 {
        let mut expired = 0;
        for (index, place) in self.slots.iter_mut().enumerate() {
            if place.asked.is_some() && now.duration_since(place.sent) > TIMEOUT {
                place.asked = None;
                self.free.push(index as u8);
                expired += 1;
            }
        }
        expired
    }

    /// The node has gone: rests, and gives back what was outstanding.
    pub fn rest(&mut self, now: Instant, outstanding: &mut Vec<Asked>) {
        self.resting_until = Some(now + REST);
        for (index, place) in self.slots.iter_mut().enumerate() {
            if let Some(asked) = place.asked.take() {
                outstanding.push(asked);
                self.free.push(index as u8);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(slots: usize) -> Lane {
        let target = UdpSocket::bind("127.0.0.1:0").unwrap();
        Lane::new(target.local_addr().unwrap(), slots).unwrap()
    }

    fn asked(number: u64, since: Instant) -> Asked {
        Asked { number, since }
    }

    #[test]
    fn an_answer_is_taken_once_and_only_in_its_turn() {
        let (mut lane, now) = (lane(2), Instant::now());
        let id = lane.ask(asked(7, now), now).unwrap();
        assert!(!lane.is_idle() && lane.is_half_free());
        assert_eq!(lane.take(&[id[0].wrapping_sub(1), id[1], 0]), None);
        assert_eq!(lane.take(&[id[0], 200]), None);
        assert_eq!(lane.take(&[id[0]]), None);
        assert_eq!(lane.take(&id), Some(asked(7, now)));
        assert_eq!(lane.take(&id), None);
        assert!(lane.is_idle());
    }

    #[test]
    fn a_late_answer_is_lost() {
        let (mut lane, now) = (lane(1), Instant::now());
        let id = lane.ask(asked(7, now), now).unwrap();
        assert_eq!(lane.ask(asked(8, now), now), None);
        assert_eq!(lane.expire(now + TIMEOUT), 0);
        assert_eq!(lane.expire(now + TIMEOUT + REST), 1);
        assert_eq!(lane.take(&id), None);
        assert!(lane.is_idle());
    }

    #[test]
    fn a_node_that_refuses_rests_and_gives_its_questions_back() {
        let (mut lane, now) = (lane(2), Instant::now());
        let id = lane.ask(asked(7, now), now).unwrap();
        let mut outstanding = Vec::new();
        lane.rest(now, &mut outstanding);
        assert_eq!(outstanding, [asked(7, now)]);
        assert_eq!(lane.take(&id), None);
        assert_eq!((lane.room(now), lane.room(now + REST)), (0, 2));
    }
}
