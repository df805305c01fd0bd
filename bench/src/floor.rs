//! The floor: a responder that looks nothing up. It copies the id and the question into one
//! fixed answer, with the batches a real server uses. What it costs, any server over sockets
//! costs at least.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, Socket, Type};

use crate::mmsg::{Batch, PACKET_BYTES_MAX, Wait};
use crate::queries::question_end;

/// The address in every answer of the floor.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Room for the window of any sensible load generator.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Owner (pointer to the question), A, IN, TTL 300, length 4, [`ADDRESS`].
const ANSWER: [u8; 16] = [0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 192, 0, 2, 1];

/// Answers on `listen` until the process is stopped.
pub fn run(listen: SocketAddr) -> Result<()> {
    let socket = bind(listen).with_context(|| format!("floor: cannot listen on {listen}"))?;
    let mut batch = Batch::new();
    loop {
        let count = match batch.receive(socket.as_fd(), Wait::ForOne) {
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context("floor: recvmmsg failed"),
        };
        for index in 0..count {
            batch.rewrite(index, answer);
        }
        // What does not fit the send buffer is lost, as it would be on a network.
        let _ = batch.reply(socket.as_fd(), count);
    }
}

fn bind(listen: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(listen), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_port(true)?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    socket.set_send_buffer_size(RECEIVE_BUFFER_BYTES)?;
    socket.bind(&listen.into())?;
    Ok(socket.into())
}

/// Turns the query in `bytes` into the fixed answer; returns its length.
fn answer(bytes: &mut [u8; PACKET_BYTES_MAX], len: usize) -> usize {
    let Some(end) = question_end(&bytes[..len]) else {
        return 0;
    };
    if end + ANSWER.len() > PACKET_BYTES_MAX {
        return 0;
    }
    // QR and AA; one question, one answer, nothing else.
    bytes[2..12].copy_from_slice(&[0x84, 0, 0, 1, 0, 1, 0, 0, 0, 0]);
    bytes[end..end + ANSWER.len()].copy_from_slice(&ANSWER);
    end + ANSWER.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queries::{EdnsMode, Expect, check_answer, query_packet};

    #[test]
    fn answer_is_what_the_load_generator_expects() {
        let query = query_packet("www.example.test", 1, EdnsMode::Dnssec);
        let mut bytes = [0; PACKET_BYTES_MAX];
        bytes[..query.len()].copy_from_slice(&query);
        let len = answer(&mut bytes, query.len());
        assert_eq!(check_answer(&query, &bytes[..len], &Expect::floor()), Ok(()));
    }

    #[test]
    fn nonsense_is_answered_with_nothing() {
        let mut bytes = [0xff; PACKET_BYTES_MAX];
        assert_eq!(answer(&mut bytes, 11), 0);
        assert_eq!(answer(&mut bytes, 400), 0);
    }
}
