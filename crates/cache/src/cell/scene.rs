//! What the tests of cells begin with.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use wire::{Query, Verdict, rtype};

use super::{Ask, Asker, Cell, Config, Effects, Opt};
use crate::answer::{PAYLOAD, TtlLimits, build_question};
use crate::question::{Bits, Question};
use crate::store::Limits;
use crate::time::Moment;
use crate::upstream::Address;

pub const START: Moment = Moment(1_000_000_000);
const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7);

pub fn octets(name: &str) -> Vec<u8> {
    wire::name::from_text(name).unwrap()
}

/// The cell of a node named `n`, with these servers for these domains.
pub fn config(groups: &[(&str, &[Address])]) -> Config {
    let tables = Limits { entries: 100, bytes: 1 << 20 };
    let group = |(domain, servers): &(&str, &[Address])| (octets(domain).into(), servers.to_vec());
    Config {
        name: "n".into(),
        cell: 0,
        cells: 1,
        l1: tables,
        l2: tables,
        ttl: TtlLimits::default(),
        stale_secs: 3600,
        prefetch: false,
        pending_max: 100,
        pending_per_source_max: 100,
        udp_payload: PAYLOAD,
        identity: None,
        upstreams: groups.iter().map(group).collect(),
        upstream_ports: 8,
        upstream_per_sec: None,
        seed: [1; 32],
    }
}

/// The question for the address of `name`.
pub fn question(name: &[u8]) -> Question<'_> {
    Question { name, qtype: rtype::A, qclass: 1, bits: Bits::default() }
}

/// A client asks for the address of `name`; returns what is replied at once.
pub fn ask_for(cell: &mut Cell, now: Moment, name: &str, effects: &mut Effects) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    build_question(question(&octets(name)), || false, 7, PAYLOAD, &mut request);
    let mut query = Query::default();
    assert_eq!(query.read(&request), Verdict::Answer);
    let opt = Opt { dnssec_ok: false, wants_nsid: false, cookie: None, keepalive: None };
    let ask = Ask {
        query: &query,
        hash: cell.hash_of(&query),
        request: &request,
        asker: Asker::Datagram { listener: 0, from: CLIENT, to: None },
        from: CLIENT.ip(),
        limit: 1232,
        opt: Some(opt),
    };
    let mut out = vec![0; 1232];
    let answered = cell.ask(now, &ask, &mut out, effects)?;
    out.truncate(answered.len);
    Some(out)
}
