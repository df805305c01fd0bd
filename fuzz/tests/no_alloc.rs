//! The query path allocates nothing: an allocator that counts says so.
//!
//! Alone in its binary, because a binary has one allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};

use authority::{Arrival, Context, Scratch, Transport, respond};
use cache::answer::ReplyTo;
use fuzz::cached::{self, Setup};
use fuzz::packet;
use fuzz::server::{self, Server};
use wire::name::from_text;
use wire::rtype::{A, AAAA, ANY, DNAME, DS, HTTPS, MX, NS, RRSIG, SOA, SRV, SVCB, TXT};
use wire::{Flags, OptReply, Rcode};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; the counter is
// a constant-initialised cell without a destructor, so reaching it allocates
// nothing and cannot come back here.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Calls of the allocator while `work` runs.
fn count(work: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

/// Names and types, and what their answers are.
const QUESTIONS: [(&str, u16, &str); 40] = [
    ("www.rich.test", A, "plain"),
    ("rich.test", SOA, "plain at the apex"),
    ("rich.test", NS, "with addresses"),
    ("rich.test", MX, "with addresses"),
    ("_sip._tcp.rich.test", SRV, "with addresses"),
    ("many.rich.test", A, "large"),
    ("huge.rich.test", TXT, "larger than a pointer reaches"),
    ("pool.rich.test", MX, "large with addresses"),
    ("nowhere.rich.test", A, "NXDOMAIN"),
    ("www.rich.test", TXT, "no data"),
    ("b.c.empty.rich.test", A, "no data at an empty name"),
    ("x.wild.rich.test", A, "wildcard"),
    ("x.wild.rich.test", MX, "wildcard without data"),
    ("x.cut.rich.test", A, "referral"),
    ("x.cutbig.rich.test", A, "referral that is truncated over UDP"),
    ("child.rich.test", DS, "the parent's side"),
    ("c1.rich.test", A, "aliases"),
    ("link0.rich.test", A, "many aliases"),
    ("cout.rich.test", A, "alias into another zone"),
    ("a.loops.test", A, "aliases in a ring"),
    ("a.dn.rich.test", A, "DNAME"),
    ("a.d.loops.test", A, "DNAMEs in a ring"),
    ("a.dd.loops.test", DNAME, "DNAME that grows"),
    ("w.far.loops.test", A, "DNAME with large signatures"),
    ("cbroken.rich.test", A, "alias into a broken zone"),
    ("svc-alias.rich.test", SVCB, "service that leads to another"),
    ("a.svc-wild.rich.test", HTTPS, "service from a wildcard"),
    ("rich.test", DS, "the child's side"),
    ("rich.test", ANY, "ANY"),
    ("www.nsec.test", RRSIG, "signatures"),
    ("nowhere.nsec.test", A, "NXDOMAIN with NSEC"),
    ("nowhere.nsec3.test", A, "NXDOMAIN with NSEC3"),
    ("www.nsec.test", AAAA, "no data with NSEC"),
    ("www.nsec3.test", AAAA, "no data with NSEC3"),
    ("a.wild.nsec.test", A, "wildcard with NSEC"),
    ("a.wild.nsec3.test", A, "wildcard with NSEC3"),
    ("a.plain.nsec3.test", A, "unsigned referral with NSEC3"),
    ("a.plain.optout.test", A, "unsigned referral in an opted-out span"),
    ("www.broken.test", A, "SERVFAIL"),
    ("www.elsewhere.invalid", A, "REFUSED"),
];

#[test]
fn answers_allocate_nothing() {
    assert_ne!(count(|| drop(std::hint::black_box(Box::new(1)))), 0, "the allocator counts");
    let from: IpAddr = Ipv4Addr::new(192, 0, 2, 1).into();
    // Cookies and version: everything that needs no long texts.
    let (settings, hasher) = (server::settings(5), server::hasher());
    let (mut scratch, mut out) = (Scratch::default(), vec![0; 65_535]);
    Server::fixed(false).with(|server, _| {
        let catalog = server.catalog();
        let context =
            Context { catalog, hasher: &hasher, settings: &settings, now_secs: server::NOW_SECS };
        for (name, qtype, what) in QUESTIONS {
            for dnssec in [false, true] {
                let packet = packet::question(&from_text(name).unwrap(), qtype, dnssec);
                for transport in [Transport::Udp, Transport::Tcp { idle_100ms: 300 }] {
                    // As if on a shard: the search for a zone has more to decide.
                    let arrival = Arrival { from, server: Some(7), transport };
                    let mut outcome = None;
                    let calls = count(|| {
                        let out = &mut out[..];
                        outcome = Some(respond(&context, &mut scratch, &packet, arrival, out));
                    });
                    assert_eq!(calls, 0, "{what}: {name} TYPE{qtype} {transport:?} {outcome:?}");
                    assert!(outcome.is_some_and(|outcome| outcome.result.is_ok()));
                }
            }
        }
    });
}

#[test]
fn messages_that_are_no_questions_allocate_nothing() {
    let arrival = Arrival::new(Ipv4Addr::new(192, 0, 2, 1).into(), Transport::Udp);
    let (settings, hasher) = (server::settings(7), server::hasher());
    let (mut scratch, mut out) = (Scratch::default(), vec![0; 65_535]);
    let good = packet::question(&from_text("www.rich.test").unwrap(), A, true);
    Server::fixed(false).with(|server, _| {
        let catalog = server.catalog();
        let context =
            Context { catalog, hasher: &hasher, settings: &settings, now_secs: server::NOW_SECS };
        for at in 0..good.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut packet = good.clone();
                packet[at] ^= flip;
                let len = if flip == 0xff { at } else { packet.len() };
                let calls = count(|| {
                    let (packet, out) = (&packet[..len], &mut out[..]);
                    respond(&context, &mut scratch, packet, arrival, out);
                });
                assert_eq!(calls, 0, "octet {at} changed by {flip:#x}");
            }
        }
    });
}

#[test]
fn replies_from_the_cache_allocate_nothing() {
    let address = b"\xc0\x0c\0\x01\0\x01\0\0\x01\x2c\0\x04\xc0\0\x02\x01";
    let mut message = b"\0\0\x81\x80\0\x01\0\x28\0\0\0\0\x03www\x04test\0\0\x01\0\x01".to_vec();
    let question = message[12..].to_vec();
    message.extend(address.repeat(40));
    let answer = Setup(2).read(&message).expect("an answer");
    let opt = OptReply {
        payload: 1232,
        dnssec_ok: true,
        rcode: Rcode::NoError,
        nsid: Some(b"node"),
        cookie: None,
        keepalive: None,
        error: None,
    };
    let mut out = vec![0; 65_535];
    for (opt, limit) in [(None, 512), (None, 1232), (Some(opt), 1232)] {
        for stale_ttl_secs in [None, Some(30)] {
            let flags = Flags(Flags::RD | Flags::AD);
            let to = ReplyTo { id: 7, flags, question: &question, limit, opt, stale_ttl_secs };
            let mut written = None;
            let calls = count(|| {
                if answer.is_for(&answer.question()) {
                    written = Some(answer.write(cached::START, &to, &mut out));
                }
            });
            assert_eq!(calls, 0, "{to:?}");
            assert!(written.is_some_and(|written| written.truncated == (limit == 512)));
        }
    }
}
