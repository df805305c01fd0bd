//! How a node is, for people and machines.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cache::answer::{Answer, Kind};
use cache::cell::{PeerReport, Sizes};
use cache::upstream::Address;
use cache::{Bits, Cell, Moment};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Command, Node, SentFrames};
use crate::metrics::Page;
use crate::peers::Refusal;

/// How one cell is.
#[derive(Clone, Debug)]
pub struct CellReport {
    pub sizes: Sizes,
    pub upstreams: Vec<UpstreamReport>,
    pub peers: Vec<PeerReport>,
}

/// How one upstream server did.
#[derive(Clone, Debug, Serialize)]
pub struct UpstreamReport {
    pub domain: String,
    pub server: String,
    pub is_up: bool,
    pub rtt_us: Option<u64>,
    pub asked: u64,
    pub answered: u64,
    pub timeouts: u64,
}

/// One entry of the cache.
#[derive(Clone, Debug, Serialize)]
pub struct EntryReport {
    pub name: String,
    pub qtype: u16,
    pub dnssec: bool,
    pub checking_disabled: bool,
    pub kind: &'static str,
    pub remaining_secs: u32,
    pub stale_secs: u32,
    pub octets: usize,
}

impl CellReport {
    pub fn of(cell: &Cell, now: Moment) -> Self {
        let groups = cell.upstreams().groups().iter();
        let upstreams = groups.flat_map(|group| {
            group.servers.iter().map(|server| UpstreamReport {
                domain: wire::Name::from_trusted(&group.domain).to_string(),
                server: match server.address {
                    Address::Socket(address) => address.to_string(),
                    Address::Local => "local".to_owned(),
                },
                is_up: server.is_up(now),
                rtt_us: server.rtt().map(|rtt| rtt.as_micros() as u64),
                asked: server.asked,
                answered: server.answered,
                timeouts: server.timeouts,
            })
        });
        CellReport { sizes: cell.sizes(), upstreams: upstreams.collect(), peers: cell.peers() }
    }
}

/// Some of what a cell's L2 holds, from `cursor` on.
pub fn dump(
    cell: &mut Cell,
    now: Moment,
    cursor: usize,
    count: usize,
) -> (Vec<EntryReport>, Option<usize>) {
    let (entries, next) = cell.entries(cursor, count);
    let report = |answer: &Answer| {
        let question = answer.question();
        EntryReport {
            name: wire::Name::from_trusted(question.name).to_string(),
            qtype: question.qtype,
            dnssec: question.bits.has(Bits::DO),
            checking_disabled: question.bits.has(Bits::CD),
            kind: match answer.kind() {
                Kind::Positive => "positive",
                Kind::NoData => "nodata",
                Kind::NxDomain => "nxdomain",
                Kind::Failure => "failure",
            },
            remaining_secs: answer.remaining_secs(now),
            stale_secs: answer.stale_secs(now),
            octets: answer.len(),
        }
    };
    (entries.iter().map(|answer| report(answer)).collect(), next)
}

impl Node {
    /// Everything about this node, in JSON.
    pub async fn status(&self) -> Value {
        let routing = self.routing();
        let reports = self.ask_all(|done| Command::Report { done }).await;
        let cells: Vec<Value> = self.cells.iter().zip(&reports).map(cell_json).collect();
        let mut totals = serde_json::Map::new();
        for cell in &self.cells {
            for (name, count) in cell.counts.list() {
                let sum = totals.get(name).and_then(Value::as_u64).unwrap_or(0) + count;
                totals.insert(name.to_owned(), sum.into());
            }
        }
        json!({
            "node": &*self.own.name,
            "datacenter": &*self.own.datacenter,
            "view": routing.view().number(),
            "view_digest": format!("{:016x}", routing.view().digest()),
            "routing": format!("{:016x}", routing.tag()),
            "key_epoch": routing.epoch().number,
            "members": routing.view().members().len(),
            "coordination_reached": self.coordinator.is_reached(),
            "imbalance": routing.table().imbalance(),
            "totals": totals,
            "cells": cells,
        })
    }

    /// The members as this node knows them.
    pub async fn members(&self) -> Value {
        let routing = self.routing();
        let loads = routing.table().loads();
        let reports = self.ask_all(|done| Command::Report { done }).await;
        let peers: Vec<&PeerReport> =
            reports.iter().flatten().flat_map(|report| &report.peers).collect();
        let members = routing.view().members().iter().zip(loads).map(|(member, slots)| {
            let own = peers.iter().filter(|peer| peer.name == member.name);
            let rtt = own.clone().filter_map(|peer| peer.rtt).max();
            json!({
                "name": &*member.name,
                "datacenter": &*member.datacenter,
                "peer": member.peer,
                "listen": member.listen,
                "cells": member.cells,
                "standing": format!("{:?}", member.standing).to_lowercase(),
                "slots": slots,
                "suspect": own.clone().any(|peer| peer.is_suspect),
                "rtt_us": rtt.as_ref().map(Duration::as_micros),
                "self": member.name == self.own.name,
            })
        });
        json!({
            "view": routing.view().number(),
            "digest": format!("{:016x}", routing.view().digest()),
            "key_epoch": routing.epoch().number,
            "imbalance": routing.table().imbalance(),
            "coordination_reached": self.coordinator.is_reached(),
            "members": members.collect::<Vec<_>>(),
        })
    }
}

fn cell_json((cell, report): (&super::CellHandle, &Option<CellReport>)) -> Value {
    let counts: serde_json::Map<String, Value> = cell
        .counts
        .list()
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect();
    let Some(CellReport { sizes, upstreams, .. }) = report else {
        return json!({ "counts": counts, "busy": true });
    };
    json!({
        "counts": counts,
        "l1": { "entries": sizes.l1_entries, "bytes": sizes.l1_bytes, "evicted": sizes.l1_evicted },
        "l2": { "entries": sizes.l2_entries, "bytes": sizes.l2_bytes, "evicted": sizes.l2_evicted },
        "pending": sizes.pending,
        "handover_left": sizes.handover_left,
        "upstreams": upstreams,
    })
}

/// Adds the node's numbers to a page of metrics.
pub async fn metrics(node: &Node, page: &mut Page) {
    let reports = node.ask_all(|done| Command::Report { done }).await;
    let name = "pharos_cache_events_total";
    page.head(name, "counter", "What the cache did, by what; see docs/cache.md.");
    let mut totals: Vec<(&'static str, u64)> = Vec::new();
    for cell in &node.cells {
        for (at, (event, count)) in cell.counts.list().into_iter().enumerate() {
            match totals.get_mut(at) {
                Some(total) => total.1 += count,
                None => totals.push((event, count)),
            }
        }
    }
    for (event, count) in totals {
        page.line(name, &[("event", event)], count);
    }
    let sizes: Vec<Sizes> = reports.iter().flatten().map(|report| report.sizes).collect();
    let sum = |of: fn(&Sizes) -> usize| sizes.iter().map(of).sum::<usize>();
    page.head("pharos_cache_entries", "gauge", "Entries held, by layer.");
    page.line("pharos_cache_entries", &[("layer", "l1")], sum(|own| own.l1_entries));
    page.line("pharos_cache_entries", &[("layer", "l2")], sum(|own| own.l2_entries));
    page.head("pharos_cache_bytes", "gauge", "Octets held, by layer.");
    page.line("pharos_cache_bytes", &[("layer", "l1")], sum(|own| own.l1_bytes));
    page.line("pharos_cache_bytes", &[("layer", "l2")], sum(|own| own.l2_bytes));
    page.head("pharos_cache_pending", "gauge", "Questions that wait for their answers.");
    page.line("pharos_cache_pending", &[], sum(|own| own.pending));
    page.head("pharos_cache_handover_left", "gauge", "Entries still to be looked at for handover.");
    page.line("pharos_cache_handover_left", &[], sum(|own| own.handover_left));
    let name = "pharos_cache_handover_lost_total";
    page.head(name, "counter", "Pieces of handovers that found no room in a queue.");
    page.line(name, &[], node.handovers.lost());
    let routing = node.routing();
    page.head("pharos_cache_members", "gauge", "Members of the cluster as this node knows it.");
    page.line("pharos_cache_members", &[], routing.view().members().len());
    page.head("pharos_cache_view", "gauge", "Number of the view of the members.");
    page.line("pharos_cache_view", &[], routing.view().number());
    page.head("pharos_cache_key_epoch", "gauge", "Number of the hash key.");
    page.line("pharos_cache_key_epoch", &[], routing.epoch().number);
    page.head("pharos_cache_imbalance", "gauge", "Most slots of a member, in average shares.");
    page.line("pharos_cache_imbalance", &[], routing.table().imbalance());
    page.head("pharos_cache_coordination_up", "gauge", "Whether the coordination answers.");
    page.line("pharos_cache_coordination_up", &[], u8::from(node.coordinator.is_reached()));
    let peers: Vec<_> = node.cells.iter().map(|cell| &cell.counts.peer_us).collect();
    page.histogram(
        "pharos_cache_peer_seconds",
        "From asking another cell to its first word.",
        &[],
        &peers,
    );
    let upstream: Vec<_> = node.cells.iter().map(|cell| &cell.counts.upstream_us).collect();
    page.histogram(
        "pharos_cache_upstream_seconds",
        "From asking upstream to the answer.",
        &[],
        &upstream,
    );
    sent_frames(page, node);
    refusals(page, node);
    upstream_servers(page, reports.iter().flatten().flat_map(|report| &report.upstreams));
}

/// How cells spoke to other nodes.
fn sent_frames(page: &mut Page, node: &Node) {
    let name = "pharos_cache_peer_frames_total";
    page.head(name, "counter", "Frames sent to other nodes, by transport.");
    let sum =
        |of: fn(&SentFrames) -> u64| -> u64 { node.cells.iter().map(|cell| of(&cell.sent)).sum() };
    page.line(name, &[("transport", "datagram")], sum(|sent| sent.in_datagrams.get()));
    page.line(name, &[("transport", "connection")], sum(|sent| sent.over_connections.get()));
}

/// What was refused of those who say that they are peers.
fn refusals(page: &mut Page, node: &Node) {
    let name = "pharos_cache_peer_refused_total";
    page.head(name, "counter", "What came to the peer port and was refused, by reason.");
    for refusal in Refusal::ALL {
        let count: u64 = node.refusals.iter().map(|own| own.get(refusal)).sum();
        page.line(name, &[("reason", refusal.name())], count);
    }
    let Some(strangers) = node.strangers.get() else { return };
    for (reason, count) in [
        ("stranger", &strangers.strangers),
        ("connections", &strangers.connections),
        ("message", &strangers.messages),
    ] {
        page.line(name, &[("reason", reason)], count.load(Ordering::Relaxed));
    }
    let Some(clients) = &node.clients else { return };
    let name = "pharos_cache_peer_unsent_total";
    page.head(name, "counter", "Messages to peers that connections did not take.");
    let unsent = [clients.unsent(), strangers.unsent.clone()];
    let refused: u64 = unsent.iter().map(|own| own.refused.load(Ordering::Relaxed)).sum();
    let lost: u64 = unsent.iter().map(|own| own.lost.load(Ordering::Relaxed)).sum();
    page.line(name, &[("reason", "full")], refused);
    page.line(name, &[("reason", "lost")], lost);
}

fn upstream_servers<'a>(page: &mut Page, reports: impl Iterator<Item = &'a UpstreamReport>) {
    let mut servers: Vec<UpstreamReport> = Vec::new();
    for report in reports {
        let is_it =
            |own: &&mut UpstreamReport| own.server == report.server && own.domain == report.domain;
        match servers.iter_mut().find(is_it) {
            Some(own) => {
                own.asked += report.asked;
                own.answered += report.answered;
                own.timeouts += report.timeouts;
                own.is_up |= report.is_up;
                own.rtt_us = own.rtt_us.max(report.rtt_us);
            }
            None => servers.push(report.clone()),
        }
    }
    type Of = fn(&UpstreamReport) -> u64;
    let families: [(&str, &str, &str, Of); 4] = [
        ("asked_total", "counter", "Questions to an upstream server.", |own| own.asked),
        ("answered_total", "counter", "Answers of an upstream server.", |own| own.answered),
        ("timeouts_total", "counter", "Questions an upstream server left.", |own| own.timeouts),
        ("up", "gauge", "Whether an upstream server answers.", |own| u64::from(own.is_up)),
    ];
    for (name, kind, help, of) in families {
        let name = format!("pharos_cache_upstream_{name}");
        page.head(&name, kind, help);
        for own in &servers {
            let labels = [("server", own.server.as_str()), ("domain", own.domain.as_str())];
            page.line(&name, &labels, of(own));
        }
    }
}
