//! Which socket of a group that shares a port a datagram goes to: the one that
//! its first octet names.
//!
//! The kernel decides it by a program of classic BPF (socket(7),
//! SO_ATTACH_REUSEPORT_CBPF), so a datagram reaches the thread it is for
//! without passing through another. No crate sets that option, which makes
//! this the second place of the server with unsafe code.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;

use libc::{BPF_A, BPF_ABS, BPF_B, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, sock_filter};

/// Steers datagrams of the group that `socket` belongs to: to the socket whose
/// number, in the order they were bound, is the first octet; to number `last`
/// if that is less.
///
/// Numbers shift when a socket of the group is closed, so none may be.
pub fn by_first_octet(socket: &impl AsRawFd, last: u8) -> io::Result<()> {
    let mut program = program(last);
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program and its description live during the call, which
    // copies them, and their true lengths are given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as u32,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What it returns is the number of a socket. It reads from behind the UDP
/// header, and ends with 0 if there is no first octet.
fn program(last: u8) -> [sock_filter; 4] {
    let step = |code: u32, if_so, k| sock_filter { code: code as u16, jt: if_so, jf: 0, k };
    [
        step(BPF_LD | BPF_B | BPF_ABS, 0, 0),
        step(BPF_JMP | BPF_JGE | BPF_K, 1, last.into()),
        step(BPF_RET | BPF_A, 0, 0),
        step(BPF_RET | BPF_K, 0, last.into()),
    ]
}
