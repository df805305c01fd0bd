//! Batches of UDP packets over recvmmsg and sendmmsg: the only `unsafe` of this crate.
//!
//! The server, the floor responder and the load generator move packets the same way, so a
//! difference between them is a difference in what they do with a packet.
#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::mem;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Packets moved by one system call at most.
pub const BATCH_MAX: usize = 64;
/// The largest packet kept whole; longer ones are cut by the kernel.
pub const PACKET_BYTES_MAX: usize = 1536;

/// What a receive does when nothing has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Block until one packet is there, then take whatever else is.
    ForOne,
    /// Return `WouldBlock`.
    Never,
}

/// Up to [`BATCH_MAX`] packets with the addresses they came from.
pub struct Batch {
    bytes: Box<[[u8; PACKET_BYTES_MAX]]>,
    lens: [usize; BATCH_MAX],
    addresses: Box<[libc::sockaddr_storage]>,
    address_lens: [libc::socklen_t; BATCH_MAX],
    vectors: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
}

// SAFETY: the pointers inside vectors and headers refer to memory that the batch owns, are
// set anew before every call that uses them, and never leave it.
unsafe impl Send for Batch {}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").finish_non_exhaustive()
    }
}

impl Batch {
    pub fn new() -> Batch {
        // SAFETY: all three are plain C structs for which all-zero bytes are a valid value
        // (null pointers, zero lengths, address family AF_UNSPEC).
        let (address, vector, header) = unsafe { (mem::zeroed(), mem::zeroed(), mem::zeroed()) };
        Batch {
            bytes: vec![[0; PACKET_BYTES_MAX]; BATCH_MAX].into(),
            lens: [0; BATCH_MAX],
            addresses: vec![address; BATCH_MAX].into(),
            address_lens: [0; BATCH_MAX],
            vectors: vec![vector; BATCH_MAX].into(),
            headers: vec![header; BATCH_MAX].into(),
        }
    }

    /// The packet at `index`, as received or as set.
    pub fn packet(&self, index: usize) -> &[u8] {
        &self.bytes[index][..self.lens[index]]
    }

    /// Where the packet at `index` came from or goes to; none on a connected socket.
    pub fn sender(&self, index: usize) -> Option<SocketAddr> {
        if self.address_lens[index] == 0 {
            return None;
        }
        let address = &self.addresses[index];
        match libc::c_int::from(address.ss_family) {
            libc::AF_INET => {
                // SAFETY: the storage is larger than every address, aligned for all, wholly
                // initialised, and its family says which one it holds.
                let v4 = unsafe { &*ptr::from_ref(address).cast::<libc::sockaddr_in>() };
                let ip = u32::from_be(v4.sin_addr.s_addr).into();
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let v6 = unsafe { &*ptr::from_ref(address).cast::<libc::sockaddr_in6>() };
                let (ip, port) = (v6.sin6_addr.s6_addr.into(), u16::from_be(v6.sin6_port));
                Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }

    /// Makes `packet` the one at `index`, for [`Batch::reply`] to send to `to`.
    pub fn set_to(&mut self, index: usize, packet: &[u8], to: SocketAddr) {
        self.set(index, packet);
        let address = ptr::from_mut(&mut self.addresses[index]);
        let len = match to {
            SocketAddr::V4(v4) => {
                let raw = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                    sin_zero: [0; 8],
                };
                // SAFETY: the storage is larger than every address and aligned for all.
                unsafe { address.cast::<libc::sockaddr_in>().write(raw) };
                mem::size_of_val(&raw)
            }
            SocketAddr::V6(v6) => {
                let raw = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: as above.
                unsafe { address.cast::<libc::sockaddr_in6>().write(raw) };
                mem::size_of_val(&raw)
            }
        };
        self.address_lens[index] = len as libc::socklen_t;
    }

    /// Makes `packet` the one at `index`, for a connected socket to send.
    pub fn set(&mut self, index: usize, packet: &[u8]) -> &mut [u8] {
        self.lens[index] = packet.len();
        let bytes = &mut self.bytes[index][..packet.len()];
        bytes.copy_from_slice(packet);
        bytes
    }

    /// Lets `rewrite` turn the received packet (buffer, length) into its answer and keep the
    /// address, so that a send goes back to where the packet came from. A length of 0 sends
    /// an empty datagram.
    pub fn rewrite(
        &mut self,
        index: usize,
        rewrite: impl FnOnce(&mut [u8; PACKET_BYTES_MAX], usize) -> usize,
    ) {
        let len = rewrite(&mut self.bytes[index], self.lens[index]);
        self.lens[index] = len.min(PACKET_BYTES_MAX);
    }

    /// Receives up to a batch; returns how many packets there are.
    pub fn receive(&mut self, socket: BorrowedFd<'_>, wait: Wait) -> io::Result<usize> {
        self.lens = [PACKET_BYTES_MAX; BATCH_MAX];
        self.address_lens =
            [mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t; BATCH_MAX];
        self.point(BATCH_MAX);
        let flags = match wait {
            Wait::ForOne => libc::MSG_WAITFORONE,
            Wait::Never => libc::MSG_DONTWAIT,
        };
        // SAFETY: `point` made the first BATCH_MAX headers refer to buffers and address slots
        // that this batch owns, with their true sizes; they stay put and are borrowed by
        // nobody else during the call. A null timeout is allowed.
        let got = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                BATCH_MAX as libc::c_uint,
                flags as _,
                std::ptr::null_mut(),
            )
        };
        let count = count_or_error(got)?;
        for index in 0..count {
            self.lens[index] = self.headers[index].msg_len as usize;
            self.address_lens[index] = self.headers[index].msg_hdr.msg_namelen;
        }
        Ok(count)
    }

    /// Sends the first `count` packets to the addresses they came from.
    pub fn reply(&mut self, socket: BorrowedFd<'_>, count: usize) -> io::Result<usize> {
        self.send_pointed(socket, count)
    }

    /// Sends the first `count` packets on a connected socket.
    pub fn send(&mut self, socket: BorrowedFd<'_>, count: usize) -> io::Result<usize> {
        self.address_lens = [0; BATCH_MAX];
        self.send_pointed(socket, count)
    }

    fn send_pointed(&mut self, socket: BorrowedFd<'_>, count: usize) -> io::Result<usize> {
        assert!(count <= BATCH_MAX);
        self.point(count);
        // SAFETY: `point` made the first `count` headers refer to initialised bytes and
        // addresses that this batch owns, with their true sizes; the kernel only reads them.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT as _,
            )
        };
        count_or_error(sent)
    }

    /// Points the first `count` headers at their buffers and addresses.
    fn point(&mut self, count: usize) {
        for index in 0..count {
            self.vectors[index] = libc::iovec {
                iov_base: self.bytes[index].as_mut_ptr().cast(),
                iov_len: self.lens[index],
            };
        }
        let vectors = self.vectors.as_mut_ptr();
        let addresses = self.addresses.as_mut_ptr();
        for index in 0..count {
            let header = &mut self.headers[index].msg_hdr;
            let named = self.address_lens[index] > 0;
            // SAFETY: index < count <= BATCH_MAX, the length of both slices, so both results
            // stay inside their allocations.
            unsafe {
                header.msg_iov = vectors.add(index);
                header.msg_name =
                    if named { addresses.add(index).cast() } else { std::ptr::null_mut() };
            }
            header.msg_iovlen = 1;
            header.msg_namelen = self.address_lens[index];
        }
    }
}

fn count_or_error(returned: libc::c_int) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn packets_go_there_and_back() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        let mut batch = Batch::new();
        batch.set(0, b"one");
        batch.set(1, b"three");
        assert_eq!(batch.send(client.as_fd(), 2).unwrap(), 2);

        let mut inbox = Batch::new();
        let mut got = 0;
        while got < 2 {
            let count = inbox.receive(server.as_fd(), Wait::ForOne).unwrap();
            for index in 0..count {
                inbox.rewrite(index, |bytes, len| {
                    bytes[len] = b'!';
                    len + 1
                });
            }
            assert_eq!(inbox.reply(server.as_fd(), count).unwrap(), count);
            got += count;
        }

        let mut texts = Vec::new();
        while texts.len() < 2 {
            let count = batch.receive(client.as_fd(), Wait::ForOne).unwrap();
            texts.extend((0..count).map(|index| batch.packet(index).to_vec()));
        }
        assert_eq!(texts, [b"one!".to_vec(), b"three!".to_vec()]);
        let empty = batch.receive(client.as_fd(), Wait::Never).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn packets_go_where_they_are_told() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let (one, two) = (UdpSocket::bind(local).unwrap(), UdpSocket::bind(local).unwrap());
            let mut batch = Batch::new();
            batch.set_to(0, b"hello", two.local_addr().unwrap());
            assert_eq!(batch.sender(0), two.local_addr().ok());
            assert_eq!(batch.reply(one.as_fd(), 1).unwrap(), 1);
            assert_eq!(batch.receive(two.as_fd(), Wait::ForOne).unwrap(), 1);
            assert_eq!((batch.packet(0), batch.sender(0)), (&b"hello"[..], one.local_addr().ok()));
        }
    }
}
