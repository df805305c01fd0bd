//! What keeps a socket for every address of the host to those of a pool.
//!
//! One socket for thousands of addresses must be bound to all the host has. A
//! server that is told to answer on loopback must not thereby answer to the
//! Internet, so the kernel drops what is for an address outside of the pool,
//! by a filter of classic BPF (Linux, networking/filter.txt) that is attached
//! before the socket is bound. For TCP that is before a connection is made:
//! whoever knocks there hears nothing.

use std::net::IpAddr;

use libc::{BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W};
use socket2::SockFilter;

/// Where the destination stands in an IPv4 header (RFC 791, 3.1).
const DESTINATION_V4: u32 = 16;
/// Where the destination stands in an IPv6 header (RFC 8200, 3).
const DESTINATION_V6: u32 = 24;
/// Octets that a load takes.
const WORD_LEN: u32 = 4;

/// Lets pass what is sent to the addresses from `first` to `last`, which are
/// of one kind and differ in their last 32 bits at the most.
pub fn only(first: IpAddr, last: IpAddr) -> Vec<SockFilter> {
    let (at, first, last) = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            (DESTINATION_V4, vec![first.to_bits()], last.to_bits())
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            (DESTINATION_V6, words(first.to_bits()), last.to_bits() as u32)
        }
        _ => unreachable!("a pool's addresses are of one kind"),
    };
    let (&lowest, same) = first.split_last().expect("an address has words");
    // Two instructions for each word that must be the same, three for the
    // last, one to let pass; the one behind these drops.
    let drop = 2 * same.len() + 4;
    let mut program = Vec::with_capacity(drop + 1);
    for (index, &word) in same.iter().enumerate() {
        program.push(load(at + WORD_LEN * index as u32));
        let over = (drop - program.len() - 1) as u8;
        program.push(jump(BPF_JEQ, word, 0, over));
    }
    program.push(load(at + WORD_LEN * same.len() as u32));
    program.push(jump(BPF_JGE, lowest, 0, 2));
    program.push(jump(BPF_JGT, last, 1, 0));
    program.push(SockFilter::new((BPF_RET | BPF_K) as u16, 0, 0, u32::MAX));
    program.push(SockFilter::new((BPF_RET | BPF_K) as u16, 0, 0, 0));
    debug_assert_eq!(program.len(), drop + 1);
    program
}

/// The four words of an IPv6 address, as they are sent.
fn words(bits: u128) -> Vec<u32> {
    [96, 64, 32, 0].map(|shift| (bits >> shift) as u32).to_vec()
}

/// Takes the word at `at` of the IP header.
fn load(at: u32) -> SockFilter {
    let at = (libc::SKF_NET_OFF as u32).wrapping_add(at);
    SockFilter::new((BPF_LD | BPF_W | BPF_ABS) as u16, 0, 0, at)
}

/// Skips `if_so` or `if_not` instructions, as the word compares with `value`.
fn jump(compare: u32, value: u32, if_so: u8, if_not: u8) -> SockFilter {
    SockFilter::new((BPF_JMP | compare | BPF_K) as u16, if_so, if_not, value)
}
