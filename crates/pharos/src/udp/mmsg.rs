//! Batches of datagrams: recvmmsg(2) and sendmmsg(2) over buffers that are
//! made once. With `outbox` beside it and `peers::steer`, the only unsafe code
//! of the server.
//!
//! A [`Batch`] owns its buffers and the C structures that point into them; the
//! structures are filled once, and between calls only what the kernel changed
//! is set back.
#![allow(unsafe_code)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Octets of ancillary data: room for one in6_pktinfo.
const CONTROL_LEN: usize = 64;
/// Ancillary data, aligned as it must be.
type Control = [u64; CONTROL_LEN / 8];

/// Buffers for one batch of messages, and for their answers or their way on.
pub struct Batch {
    receive_len: usize,
    send_len: usize,
    received: Vec<u8>,
    sent: Vec<u8>,
    names: Vec<libc::sockaddr_storage>,
    controls: Vec<Control>,
    /// Where messages that are passed on go to, and leave from.
    targets: Vec<libc::sockaddr_storage>,
    sources: Vec<Control>,
    /// Point to `received`, `names` and `controls`, in their order.
    receive_headers: Vec<libc::mmsghdr>,
    receive_vectors: Vec<libc::iovec>,
    /// Point to `sent`, `names` and `controls` for answers, to `received`,
    /// `targets` and `sources` for what is passed on.
    send_headers: Vec<libc::mmsghdr>,
    send_vectors: Vec<libc::iovec>,
    received_count: usize,
    answer_count: usize,
}

// SAFETY: the raw pointers lead into buffers that the batch owns on the heap
// and never resizes; they are only followed by the system calls below.
unsafe impl Send for Batch {}

impl Batch {
    /// A batch of `len_max` messages of at most `receive_len` octets, with
    /// answers of at most `send_len`.
    pub fn new(len_max: usize, receive_len: usize, send_len: usize) -> Self {
        // SAFETY: these are plain C structures for which all zeroes is valid.
        let (name, header) = unsafe {
            (std::mem::zeroed::<libc::sockaddr_storage>(), std::mem::zeroed::<libc::mmsghdr>())
        };
        let vector = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let (receive_len, send_len) = (spread(receive_len), spread(send_len));
        let mut batch = Batch {
            receive_len,
            send_len,
            received: vec![0; len_max * receive_len],
            sent: vec![0; len_max * send_len],
            names: vec![name; len_max],
            controls: vec![[0; CONTROL_LEN / 8]; len_max],
            targets: vec![name; len_max],
            sources: vec![[0; CONTROL_LEN / 8]; len_max],
            receive_headers: vec![header; len_max],
            receive_vectors: vec![vector; len_max],
            send_headers: vec![header; len_max],
            send_vectors: vec![vector; len_max],
            // All headers count as used, so that the first call resets them.
            received_count: len_max,
            answer_count: 0,
        };
        for index in 0..len_max {
            batch.receive_vectors[index] = libc::iovec {
                iov_base: batch.received[index * receive_len..].as_mut_ptr().cast(),
                iov_len: receive_len,
            };
            let header = &mut batch.receive_headers[index].msg_hdr;
            header.msg_name = (&raw mut batch.names[index]).cast();
            header.msg_iov = &raw mut batch.receive_vectors[index];
            header.msg_iovlen = 1;
            let header = &mut batch.send_headers[index].msg_hdr;
            header.msg_iov = &raw mut batch.send_vectors[index];
            header.msg_iovlen = 1;
        }
        batch
    }

    /// Receives what is there, at least one message if `wait`; returns how
    /// many. With `with_destination` the address each was sent to is kept, and
    /// its answer leaves from there.
    pub fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        wait: bool,
        with_destination: bool,
    ) -> io::Result<usize> {
        // The kernel wrote lengths and flags into the headers it used.
        for index in 0..self.received_count {
            let header = &mut self.receive_headers[index].msg_hdr;
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
            header.msg_flags = 0;
            (header.msg_control, header.msg_controllen) = match with_destination {
                true => (self.controls[index].as_mut_ptr().cast(), CONTROL_LEN as _),
                false => (std::ptr::null_mut(), 0),
            };
        }
        self.received_count = 0;
        self.answer_count = 0;
        let flags = if wait { libc::MSG_WAITFORONE } else { libc::MSG_DONTWAIT };
        // SAFETY: every header points to buffers of this batch that live and
        // stay in place during the call, with their true lengths.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.receive_headers.as_mut_ptr(),
                self.receive_headers.len() as u32,
                flags,
                std::ptr::null_mut(),
            )
        };
        if count < 0 {
            return Err(io::Error::last_os_error());
        }
        self.received_count = count as usize;
        Ok(self.received_count)
    }

    /// The `index`th question, where it came from, and room for its answer.
    /// `None`: it was cut off, or its sender has an address of no known kind.
    #[inline]
    pub fn message(&mut self, index: usize) -> Option<(&[u8], SocketAddr, &mut [u8])> {
        let header = &self.receive_headers[index];
        if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            return None;
        }
        let from = read_address(&self.names[index])?;
        let start = index * self.receive_len;
        let len = (header.msg_len as usize).min(self.receive_len);
        let out = index * self.send_len;
        Some((&self.received[start..start + len], from, &mut self.sent[out..out + self.send_len]))
    }

    /// The address that the `index`th question was sent to; `None` if it was
    /// not asked for when receiving.
    #[inline]
    pub fn destination(&self, index: usize) -> Option<IpAddr> {
        match self.receive_headers[index].msg_hdr.msg_controllen {
            0 => None,
            _ => read_destination(&self.controls[index]),
        }
    }

    /// Says that the first `len` octets of the `index`th answer are to be sent.
    #[inline]
    pub fn push_answer(&mut self, index: usize, len: usize) {
        let at = self.answer_count;
        let start = index * self.send_len;
        let octets = &mut self.sent[start..start + len];
        self.send_vectors[at] =
            libc::iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: octets.len() };
        let question = &self.receive_headers[index].msg_hdr;
        if question.msg_controllen > 0 {
            forget_interface(&mut self.controls[index]);
        }
        let header = &mut self.send_headers[at].msg_hdr;
        header.msg_name = question.msg_name;
        header.msg_namelen = question.msg_namelen;
        header.msg_control = question.msg_control;
        header.msg_controllen = question.msg_controllen;
        self.answer_count += 1;
    }

    /// The `index`th message, to be changed and passed on, and where it came
    /// from. `None` as for [`Batch::message`].
    #[inline]
    pub fn message_mut(&mut self, index: usize) -> Option<(&mut [u8], SocketAddr)> {
        let header = &self.receive_headers[index];
        if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            return None;
        }
        let from = read_address(&self.names[index])?;
        let start = index * self.receive_len;
        let len = (header.msg_len as usize).min(self.receive_len);
        Some((&mut self.received[start..start + len], from))
    }

    /// Says that the `index`th message itself is to be sent to `to`, as it is
    /// now; from `source`, if the socket has several addresses. Once a message
    /// and call of [`Batch::send`].
    #[inline]
    pub fn push_onward(&mut self, index: usize, to: SocketAddr, source: Option<IpAddr>) {
        let at = self.answer_count;
        let start = index * self.receive_len;
        let len = (self.receive_headers[index].msg_len as usize).min(self.receive_len);
        let octets = &mut self.received[start..start + len];
        self.send_vectors[at] =
            libc::iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: octets.len() };
        let header = &mut self.send_headers[at].msg_hdr;
        header.msg_namelen = write_address(&mut self.targets[at], to);
        header.msg_name = (&raw mut self.targets[at]).cast();
        (header.msg_control, header.msg_controllen) = match source {
            Some(source) => {
                let len = write_source(&mut self.sources[at], source);
                (self.sources[at].as_mut_ptr().cast(), len as _)
            }
            None => (std::ptr::null_mut(), 0),
        };
        self.answer_count += 1;
    }

    /// Sends what was pushed; returns how many the system did not take.
    pub fn send(&mut self, socket: BorrowedFd<'_>) -> usize {
        let mut at = 0;
        let mut failed = 0;
        while at < self.answer_count {
            let ready = &mut self.send_headers[at..self.answer_count];
            // SAFETY: these headers were filled by `push_answer` and point to
            // buffers of this batch that are still in place.
            let sent = unsafe {
                libc::sendmmsg(socket.as_raw_fd(), ready.as_mut_ptr(), ready.len() as u32, 0)
            };
            if sent > 0 {
                at += sent as usize;
            } else if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                // One asker that cannot be reached must not stop the others.
                at += 1;
                failed += 1;
            }
        }
        self.answer_count = 0;
        failed
    }
}

/// Rounds a buffer's length up to an odd number of cache lines: buffers that
/// start a power of two apart would all compete for the same few lines.
fn spread(len: usize) -> usize {
    const LINE: usize = 64;
    (len.div_ceil(LINE) | 1) * LINE
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("len_max", &self.names.len()).finish_non_exhaustive()
    }
}

/// The ancillary data of a question says to which address and interface it
/// came; sent back, it says where the answer leaves from. The address must
/// stay, the interface is for the routing table to choose: sets it to "any".
fn forget_interface(control: &mut Control) {
    // A header of two words: its length; level and type. Then an in_pktinfo,
    // which starts with the interface, or an in6_pktinfo, which ends with it.
    const LOWER: u64 = 0xffff_ffff;
    match (control[1] & LOWER) as i32 {
        libc::IPPROTO_IP => control[2] &= !LOWER,
        libc::IPPROTO_IPV6 => control[4] &= !LOWER,
        _ => {}
    }
}

/// The address that the ancillary data of a question names. Its form stands
/// at [`forget_interface`]; in an in_pktinfo, the address in the header comes
/// last, behind the one that an answer leaves from.
#[inline]
fn read_destination(control: &Control) -> Option<IpAddr> {
    let words = control.map(u64::to_ne_bytes);
    let [a, b, c, d, e, f, g, h] = words[1];
    let level = i32::from_ne_bytes([a, b, c, d]);
    match (level, i32::from_ne_bytes([e, f, g, h])) {
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            let octets: [u8; 4] = *words[3].first_chunk()?;
            Some(Ipv4Addr::from(octets).into())
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            let octets: [u8; 16] = words[2..4].as_flattened().try_into().ok()?;
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}

#[inline]
fn read_address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the kernel says by the family that it wrote a
            // sockaddr_in, and the storage is large and aligned enough.
            let v4 = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above, for sockaddr_in6.
            let v6 = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            // Without its scope a link-local address leads nowhere.
            Some(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Writes ancillary data that makes a message leave from `source`, in the form
/// that stands at [`forget_interface`]; returns its length.
fn write_source(control: &mut Control, source: IpAddr) -> usize {
    const HEAD_LEN: usize = 16;
    let kind = |level: i32, kind: i32| {
        let [a, b, c, d] = level.to_ne_bytes();
        let [e, f, g, h] = kind.to_ne_bytes();
        u64::from_ne_bytes([a, b, c, d, e, f, g, h])
    };
    *control = [0; CONTROL_LEN / 8];
    match source {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            control[0] = (HEAD_LEN + size_of::<libc::in_pktinfo>()) as u64;
            control[1] = kind(libc::IPPROTO_IP, libc::IP_PKTINFO);
            control[2] = u64::from_ne_bytes([0, 0, 0, 0, a, b, c, d]);
            32
        }
        IpAddr::V6(address) => {
            let octets = address.octets();
            let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|n| octets[at + n]));
            control[0] = (HEAD_LEN + size_of::<libc::in6_pktinfo>()) as u64;
            control[1] = kind(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO);
            (control[2], control[3]) = (word(0), word(8));
            40
        }
    }
}

/// Writes `address` in C's form; returns its length.
#[inline]
fn write_address(storage: &mut libc::sockaddr_storage, address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(address) => {
            // SAFETY: the storage is large and aligned enough for every kind
            // of address, and any octets are a valid sockaddr_in.
            let v4 = unsafe { &mut *(&raw mut *storage).cast::<libc::sockaddr_in>() };
            v4.sin_family = libc::AF_INET as _;
            v4.sin_port = address.port().to_be();
            v4.sin_addr.s_addr = address.ip().to_bits().to_be();
            size_of::<libc::sockaddr_in>() as u32
        }
        SocketAddr::V6(address) => {
            // SAFETY: as above, for sockaddr_in6.
            let v6 = unsafe { &mut *(&raw mut *storage).cast::<libc::sockaddr_in6>() };
            v6.sin6_family = libc::AF_INET6 as _;
            v6.sin6_port = address.port().to_be();
            v6.sin6_flowinfo = 0;
            v6.sin6_addr.s6_addr = address.ip().octets();
            v6.sin6_scope_id = address.scope_id();
            size_of::<libc::sockaddr_in6>() as u32
        }
    }
}

/// Sets an integer option of a socket that no crate knows by name.
pub fn set_int(socket: &impl AsRawFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the value lives during the call and its true size is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<i32>() as u32,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Waits for several sockets at once.
pub struct Waiter(Vec<libc::pollfd>);

impl Waiter {
    /// A waiter for `sockets`, in their order.
    pub fn new(sockets: &[impl AsRawFd]) -> Self {
        let wait = |socket: &_| libc::pollfd {
            fd: AsRawFd::as_raw_fd(socket),
            events: libc::POLLIN,
            revents: 0,
        };
        Waiter(sockets.iter().map(wait).collect())
    }

    /// Waits until at least one socket has something to receive, or until
    /// `timeout` has passed.
    pub fn wait(&mut self, timeout: Duration) {
        // SAFETY: the list lives during the call and its true length is given.
        let count = unsafe {
            libc::poll(self.0.as_mut_ptr(), self.0.len() as _, timeout.as_millis() as i32)
        };
        if count <= 0 {
            self.0.iter_mut().for_each(|wait| wait.revents = 0);
        }
    }

    /// True if the last wait found something at the `index`th socket.
    pub fn is_ready(&self, index: usize) -> bool {
        self.0[index].revents & libc::POLLIN != 0
    }
}
