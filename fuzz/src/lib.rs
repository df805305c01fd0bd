//! The bodies of the fuzz targets, as plain functions: `targets/` hands them
//! what libFuzzer makes up, `tests/replay.rs` what it found worth keeping. They
//! panic when a property does not hold, and only then.
//!
//! An answer is judged by three parties that share no code with the server:
//! [`packet`] parses it strictly, [`judge`] compares it with the question and
//! with the answer over the other transport, and [`model`] says what the
//! zones' records make the right answer.
#![forbid(unsafe_code)]

pub mod cached;
pub mod judge;
pub mod metrics;
pub mod model;
pub mod packet;
pub mod peers;
pub mod queries;
pub mod runbooks;
pub mod server;
pub mod shards;
pub mod worlds;

use authority::problem::Problems;
use authority::zonefile::{Includes, Reader};
use authority::{Compiler, Image, Placement, RecordSet};
use cache::Answer;
use cached::Setup;
use drivers::haproxy::answer;
use model::Model;
use server::Server;
use shuffle::{Admission, Allocator};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::Name;

/// Origin that zone files of the fuzzer start with.
pub const ORIGIN: &[u8] = b"\x07example\0";
/// Longest zone file that is read: larger ones find nothing that small ones do
/// not, and cost the fuzzer its speed.
const ZONE_LEN_MAX: usize = 64 * 1024;
/// `$GENERATE` lines in a zone file that is read, and digits of the numbers in
/// its range: 65,536 records for each line would make the fuzzer crawl.
const GENERATES_MAX: usize = 1;
const GENERATE_DIGITS_MAX: usize = 4;
/// Records of a zone that is asked anything; larger ones are only compiled.
const RECORDS_ASKED_MAX: usize = 4096;
/// Record sets of a zone that are asked for.
const SETS_ASKED_MAX: usize = 24;
/// Questions to one zone.
const QUESTIONS_MAX: usize = 16;

/// A message from anybody, to the fixed catalogue of [`Server::fixed`].
///
/// The first octet chooses how the server is set up (see [`settings`] and
/// [`address`]) and whether it has a root zone; the rest is the message.
pub fn message(data: &[u8]) {
    let Some((&setup, packet)) = data.split_first() else { return };
    let fixed = Server::fixed(setup & 0x40 != 0);
    fixed.with(|server, model| {
        judge::judge(server, model, &server::settings(setup), address(setup), packet);
    });
}

/// The kept state of an allocator of shards, from a disk that may lie: what is
/// taken for whole can be kept again, and hands out no shard that it says is in
/// use.
///
/// The octets follow the state's head; the sum at its end is made right, so
/// that the fuzzer gets behind it.
pub fn allocator_state(data: &[u8]) {
    let Some((&which, body)) = data.split_first() else { return };
    let design = shards::design(which);
    let octets = shards::with_sum(&design, body);
    let Ok(mut allocator) = Allocator::from_bytes(design.clone(), &octets) else { return };
    let kept = allocator.to_bytes();
    let again = Allocator::from_bytes(design.clone(), &kept).expect("what it keeps is whole");
    assert_eq!(again.to_bytes(), kept);
    let end = design.index_end();
    let held: Vec<bool> = (0..end).map(|n| allocator.confirm(n).is_some()).collect();
    while let Some((index, shard)) = allocator.allocate(&Admission::everyone()) {
        assert!(!held[index.get() as usize], "{index} was in use");
        assert_eq!(design.index(&shard), Some(index));
    }
}

/// A message from an upstream server, or from whoever guessed an id: what the
/// cache keeps of it is what it says, and so are replies to clients.
///
/// The first two octets choose how it is asked for (see [`cached::Setup`]) and
/// how old it is when it is replied with; the rest is the message.
pub fn upstream_answer(data: &[u8]) {
    let Some((&[setup, age], message)) = data.split_first_chunk() else { return };
    let Some(answer) = Setup(setup).read(message) else { return };
    cached::check_kept(message, &answer);
    cached::check_replies(&answer, Setup(setup), u32::from(age).pow(2));
    cached::check_joined(&answer, Setup(setup));
    let mut octets = Vec::new();
    answer.encode(cached::START, &mut octets);
    let copy = Answer::decode(&octets, cached::START).expect("a peer takes what upstream said");
    assert_eq!(copy, (answer, &[][..]));
}

/// What something says that should be HAProxy, to any of the questions it is
/// asked. The names of sessions go back into commands, so they must be numbers
/// and nothing else.
pub fn haproxy_answer(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for backend in ["web", ""] {
        for server in answer::servers(text, backend).unwrap_or_default() {
            assert!(server.weight <= answer::WEIGHT_MAX && server.initial <= answer::WEIGHT_MAX);
        }
        let _ = answer::stats(text, backend);
        let sessions = answer::sessions(text, backend).unwrap_or_default();
        assert!(sessions.is_sorted_by(|older, younger| older.age_secs >= younger.age_secs));
        for session in sessions {
            let digits = session.id.strip_prefix("0x").expect("a number");
            assert!(digits.bytes().all(|octet| octet.is_ascii_hexdigit()) && digits.len() <= 16);
        }
    }
    assert!(answer::backends(text).iter().all(|name| !name.contains('\n')));
}

/// What a peer that holds the cluster's key says to a cell: whatever it is,
/// every client gets one reply, and nothing is left behind.
///
/// The input is a list of frames without their heads: for each its length in
/// two octets, the milliseconds that pass behind it in one, and its messages.
pub fn peer_frame(data: &[u8]) {
    let mut world = peers::World::start();
    let mut rest = data;
    while let Some((&[high, low, pause_ms], behind)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_be_bytes([high, low])).min(behind.len());
        let (messages, next) = behind.split_at(len);
        world.hear(messages, pause_ms);
        rest = next;
    }
    world.end();
}

/// An answer from a peer: refused, or such that it can be passed on as it came
/// and replied with.
///
/// The first two octets are those of [`upstream_answer`].
pub fn cached_answer(data: &[u8]) {
    let Some((&[setup, age], octets)) = data.split_first_chunk() else { return };
    let Some((answer, rest)) = Answer::decode(octets, cached::START) else { return };
    let mut again = Vec::new();
    answer.encode(cached::START, &mut again);
    assert_eq!(octets[..octets.len() - rest.len()], again);
    // As if it were just born, so that its age is known.
    again[5..13].fill(0);
    let (answer, _) = Answer::decode(&again, cached::START).expect("only its age is new");
    cached::check_replies(&answer, Setup(setup), u32::from(age).pow(2));
}

/// The metrics that a service shows: refused with the place, or within the
/// bounds and such that they can be written again and say the same.
///
/// The first octet chooses the format and small bounds; the rest is the page.
pub fn exposition(data: &[u8]) {
    let Some((&setup, page)) = data.split_first() else { return };
    metrics::check(page, setup);
}

/// Runbooks, with an octet 0 between files: refused with the place and a
/// remedy, or plans that can be carried out.
pub fn runbook(data: &[u8]) {
    runbooks::check(data);
}

/// A query over series of our own: refused with the place, or evaluated, and
/// accepted by the check of runbooks.
pub fn query(data: &[u8]) {
    queries::check(data);
}

/// A world to try drains in: refused with the file's name, or one that can
/// take its course.
pub fn world(data: &[u8]) {
    worlds::check(data);
}

/// A zone file from a tenant: it is read, compiled, and asked for everything
/// it holds and for much that it does not.
pub fn zone_file(data: &[u8]) {
    let Some(zone) = load(data) else { return };
    let settings = server::settings(0);
    let ask = |name: &[u8], qtype: u16, dnssec: bool| {
        let packet = packet::question(name, qtype, dnssec);
        judge::judge(&zone.server, &zone.model, &settings, address(0), &packet);
    };
    let origin = zone.origin();
    ask(origin, wire::rtype::SOA, false);
    let sets = zone.model.sets();
    let step = sets.len().div_ceil(SETS_ASKED_MAX).max(1);
    for (index, (owner, rtype)) in sets.iter().step_by(step).enumerate() {
        ask(owner, *rtype, index % 2 == 0);
        // One name near each, in turns: a zone has enough sets to see them all.
        let near = neighbours(owner);
        ask(&near[index % near.len()], *rtype, index % 3 == 0);
    }
    for (qtype, dnssec) in [(wire::rtype::ANY, true), (wire::rtype::RRSIG, false)] {
        ask(&sets[data.len() % sets.len()].0, qtype, dnssec);
    }
}

/// A zone file, an octet 0, and questions to the zone (see [`Questions`]).
pub fn zone_and_message(data: &[u8]) {
    let end = data.iter().position(|&octet| octet == 0).unwrap_or(data.len());
    let Some(zone) = load(&data[..end]) else { return };
    let origin = zone.origin();
    let rest = data.get(end + 1..).unwrap_or_default();
    for question in (Questions { rest, origin }).take(QUESTIONS_MAX) {
        let settings = server::settings(question.setup);
        judge::judge(
            &zone.server,
            &zone.model,
            &settings,
            address(question.setup),
            &question.packet,
        );
    }
}

/// A zone of the fuzzer that was good enough to be served.
struct Zone {
    server: Server,
    model: Model,
    image: Image,
}

impl Zone {
    fn origin(&self) -> &[u8] {
        self.image.origin().as_bytes()
    }
}

/// Reads and compiles a zone; there is one exactly if nobody noted an error.
fn load(text: &[u8]) -> Option<Zone> {
    if text.len() > ZONE_LEN_MAX || is_costly(text) {
        return None;
    }
    let (mut records, mut problems) = (RecordSet::default(), Problems::new("zone"));
    let origin = Name::parse(ORIGIN).expect("a name");
    Reader::new().read(text, Some(origin), &mut Shelf, &mut records, &mut problems);
    for record in records.iter() {
        let owner = Name::parse(record.owner).expect("an owner that was read is a name");
        assert_eq!(owner.as_bytes().len(), record.owner.len(), "octets behind an owner");
        packet::canonical_data(record.rtype, record.rdata).expect("data that was read is data");
    }
    let image = Compiler::new(server::hasher()).compile(
        &mut records,
        &Placement::Everywhere,
        &mut problems,
    );
    assert_eq!(image.is_some(), problems.errors() == 0, "image or errors:\n{problems}");
    // Complaints are shown to people: they must print, whatever they quote.
    let _ = problems.to_string();
    let image = image.filter(|_| records.len() <= RECORDS_ASKED_MAX)?;
    let mut model = Model::default();
    model.add_zone(&records);
    let server = Server::of(vec![image.clone()]);
    Some(Zone { server, model, image })
}

/// True if `text` may make very many records out of a few octets.
fn is_costly(text: &[u8]) -> bool {
    const WORD: &[u8] = b"$GENERATE";
    let found = |(_, word): &(usize, &[u8])| word.eq_ignore_ascii_case(WORD);
    let mut places = text.windows(WORD.len()).enumerate().filter(found);
    let is_long = |&(at, _): &(usize, &[u8])| {
        let range = text[at + WORD.len()..].trim_ascii_start();
        let range = range.split(u8::is_ascii_whitespace).next().unwrap_or_default();
        range.split(|octet| !octet.is_ascii_digit()).any(|run| run.len() > GENERATE_DIGITS_MAX)
    };
    places.clone().count() > GENERATES_MAX || places.any(|place| is_long(&place))
}

/// Names around `owner`: below it, the one above, beside it, and itself.
fn neighbours(owner: &[u8]) -> Vec<Vec<u8>> {
    let below = |label: &[u8]| [label, owner].concat();
    let mut near = vec![below(b"\x01*"), below(b"\x01a"), below(b"\x01\0\x02zz")];
    let len = owner[0] as usize;
    if len > 0 {
        let parent = &owner[1 + len..];
        near.push(parent.to_vec());
        near.push([b"\x05~none", parent].concat());
    }
    near.push(owner.to_vec());
    near.retain(|name| name.len() <= wire::name::NAME_LEN_MAX);
    near
}

/// Questions in a form that survives being mutated: an octet of set-up, an
/// octet of flags (1: EDNS; 2: and DNSSEC; 4: the type has two octets; 8: the
/// name is absolute), the type, and labels up to one of length 0.
struct Questions<'d> {
    rest: &'d [u8],
    origin: &'d [u8],
}

struct Question {
    setup: u8,
    packet: Vec<u8>,
}

impl Iterator for Questions<'_> {
    type Item = Question;

    fn next(&mut self) -> Option<Question> {
        let (&[setup, flags], mut rest) = self.rest.split_first_chunk()?;
        let (qtype, tail) = match flags & 4 != 0 {
            true => rest.split_first_chunk().map(|(code, tail)| (u16::from_be_bytes(*code), tail)),
            false => rest.split_first().map(|(code, tail)| (u16::from(*code), tail)),
        }?;
        rest = tail;
        let mut name = Vec::new();
        while let Some((&len, tail)) = rest.split_first() {
            let len = usize::from(len % 64).min(tail.len());
            rest = &tail[len..];
            if len == 0 {
                break;
            }
            name.push(len as u8);
            name.extend_from_slice(&tail[..len]);
        }
        name.extend_from_slice(if flags & 8 != 0 { &[0] } else { self.origin });
        self.rest = rest;
        let mut packet = packet::question(&name, qtype, flags & 2 != 0);
        if flags & 3 == 0 {
            packet.truncate(packet.len() - packet::OPT_LEN);
            packet[11] = 0;
        }
        Some(Question { setup, packet })
    }
}

/// The address that a question comes from.
fn address(setup: u8) -> IpAddr {
    match setup & 0x20 {
        0 => Ipv4Addr::new(192, 0, 2, 1).into(),
        _ => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    }
}

/// Files that a zone of the fuzzer may include.
struct Shelf;

impl Includes for Shelf {
    fn open(
        &mut self,
        path: &str,
        from_file: &str,
        _len_max: usize,
    ) -> Result<(String, Vec<u8>), String> {
        let text = match path {
            "hosts" => "h1 A 192.0.2.1\n$ORIGIN deep\nh2 A 192.0.2.2\n",
            "blank" => " A 192.0.2.1\n",
            "bad" => "ok A 192.0.2.1\nbad A 192.0.2.256\n",
            "self" => "$INCLUDE self\nx A 192.0.2.3\n",
            "ttl" => "$TTL 77\n",
            _ => return Err(format!("no file {path} beside {from_file}")),
        };
        Ok((path.to_string(), text.into()))
    }
}
