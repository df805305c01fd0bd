//! Datagrams that are sent when there is something to say, not as the answers
//! of the batch that was just received: sendmmsg(2) over buffers that are used
//! again.
#![allow(unsafe_code)]

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use socket2::SockAddr;

/// Datagrams that one system call takes.
const BATCH_LEN: usize = 64;
/// Words of ancillary data: room for one in6_pktinfo and its header.
const CONTROL_WORDS: usize = 5;

/// Datagrams to be sent over one socket.
#[derive(Default)]
pub struct Outbox {
    octets: Vec<u8>,
    letters: Vec<Letter>,
}

struct Letter {
    start: usize,
    len: usize,
    to: SockAddr,
    control: [u64; CONTROL_WORDS],
    control_len: usize,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").field("letters", &self.letters.len()).finish_non_exhaustive()
    }
}

impl Outbox {
    pub fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    /// Adds a datagram to `to`, which leaves from the address `from` if that is
    /// said.
    pub fn push(&mut self, to: SocketAddr, from: Option<IpAddr>, octets: &[u8]) {
        self.push_with(to, from, |out| out.extend_from_slice(octets));
    }

    /// Adds a datagram that `write` appends to what it gets.
    pub fn push_with(
        &mut self,
        to: SocketAddr,
        from: Option<IpAddr>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = self.octets.len();
        write(&mut self.octets);
        let (control, control_len) = from.map_or(([0; CONTROL_WORDS], 0), control_of);
        let len = self.octets.len() - start;
        self.letters.push(Letter { start, len, to: to.into(), control, control_len });
    }

    /// Sends everything; returns how many datagrams the system did not take.
    pub fn send(&mut self, socket: BorrowedFd<'_>) -> usize {
        let mut failed = 0;
        for letters in self.letters.chunks_mut(BATCH_LEN) {
            failed += send_batch(socket, &mut self.octets, letters);
        }
        self.letters.clear();
        self.octets.clear();
        failed
    }
}

fn send_batch(socket: BorrowedFd<'_>, octets: &mut [u8], letters: &mut [Letter]) -> usize {
    // SAFETY: plain C structures for which all zeroes is valid.
    let mut headers: [libc::mmsghdr; BATCH_LEN] = unsafe { std::mem::zeroed() };
    let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH_LEN];
    for (index, letter) in letters.iter_mut().enumerate() {
        let octets = &mut octets[letter.start..letter.start + letter.len];
        vectors[index] =
            libc::iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: octets.len() };
        let header = &mut headers[index].msg_hdr;
        header.msg_name = letter.to.as_ptr().cast_mut().cast();
        header.msg_namelen = letter.to.len();
        header.msg_iov = &raw mut vectors[index];
        header.msg_iovlen = 1;
        if letter.control_len > 0 {
            header.msg_control = letter.control.as_mut_ptr().cast();
            header.msg_controllen = letter.control_len as _;
        }
    }
    let (mut at, mut failed) = (0, 0);
    while at < letters.len() {
        let ready = &mut headers[at..letters.len()];
        // SAFETY: the headers point to addresses, octets and ancillary data
        // that live and stay in place during the call.
        let sent = unsafe {
            libc::sendmmsg(socket.as_raw_fd(), ready.as_mut_ptr(), ready.len() as u32, 0)
        };
        if sent > 0 {
            at += sent as usize;
        } else if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            // One that cannot be reached must not stop the others.
            at += 1;
            failed += 1;
        }
    }
    failed
}

/// Ancillary data that makes a datagram leave from `address`: a header of two
/// words (its length; level and type), then an in_pktinfo or an in6_pktinfo.
fn control_of(address: IpAddr) -> ([u64; CONTROL_WORDS], usize) {
    const HEADER_LEN: usize = 16;
    let mut octets = [0u8; CONTROL_WORDS * 8];
    let (level, kind, len) = match address {
        IpAddr::V4(address) => {
            // Interface, the address to leave from, the address in the header.
            octets[HEADER_LEN + 4..HEADER_LEN + 8].copy_from_slice(&address.octets());
            (libc::IPPROTO_IP, libc::IP_PKTINFO, size_of::<libc::in_pktinfo>())
        }
        IpAddr::V6(address) => {
            octets[HEADER_LEN..HEADER_LEN + 16].copy_from_slice(&address.octets());
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, size_of::<libc::in6_pktinfo>())
        }
    };
    octets[..8].copy_from_slice(&((HEADER_LEN + len) as u64).to_ne_bytes());
    octets[8..12].copy_from_slice(&level.to_ne_bytes());
    octets[12..16].copy_from_slice(&kind.to_ne_bytes());
    let mut words = [0; CONTROL_WORDS];
    for (word, octets) in words.iter_mut().zip(octets.chunks_exact(8)) {
        *word = u64::from_ne_bytes(octets.try_into().expect("8 octets"));
    }
    // Padded to whole words, as CMSG_SPACE has it.
    (words, HEADER_LEN + len.next_multiple_of(8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    fn socket(address: &str) -> UdpSocket {
        UdpSocket::bind(address).unwrap()
    }

    #[test]
    fn datagrams_arrive_from_the_address_that_was_said() {
        let (sender, receiver) = (socket("0.0.0.0:0"), socket("127.0.0.1:0"));
        let to = receiver.local_addr().unwrap();
        let mut outbox = Outbox::default();
        let from = IpAddr::from([127, 0, 0, 5]);
        outbox.push(to, Some(from), b"one");
        outbox.push(to, None, b"two");
        assert_eq!(outbox.send(sender.as_fd()), 0);
        assert!(outbox.is_empty());
        let mut buffer = [0; 16];
        let (len, source) = receiver.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..len], source.ip()), (&b"one"[..], from));
        let (len, source) = receiver.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..len], source.ip()), (&b"two"[..], IpAddr::from([127, 0, 0, 1])));
    }

    #[test]
    fn ipv6_too_and_more_than_one_call_takes() {
        let (sender, receiver) = (socket("[::]:0"), socket("[::1]:0"));
        let to = receiver.local_addr().unwrap();
        let mut outbox = Outbox::default();
        let count = BATCH_LEN * 2 + 1;
        for n in 0..count as u64 {
            outbox.push(to, Some(to.ip()), &n.to_be_bytes());
        }
        // Nobody is there.
        outbox.push(SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 0)), None, b"lost");
        assert_eq!(outbox.send(sender.as_fd()), 1);
        let mut buffer = [0; 16];
        for n in 0..count as u64 {
            let len = receiver.recv(&mut buffer).unwrap();
            assert_eq!(buffer[..len], n.to_be_bytes());
        }
    }
}
