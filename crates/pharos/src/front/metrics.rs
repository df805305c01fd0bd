//! A front's numbers in the text form that Prometheus reads.

use std::sync::atomic::Ordering::Relaxed;

use super::Front;
use super::counters::{Counters, Loss, NodeCounters};
use super::node::{Node, Standing};
use crate::metrics::Page;

/// The text of `/metrics`.
pub fn render(front: &Front) -> String {
    let mut page = Page::default();
    let table = front.board.table();
    for (_, node) in table.nodes() {
        node_lines(&mut page, node);
    }
    let sum = |of: &dyn Fn(&Counters) -> u64| front.counters.iter().map(|c| of(c)).sum::<u64>();
    page.head(
        "pharos_front_dropped_total",
        "counter",
        "Datagrams that went no further, by reason.",
    );
    for loss in Loss::ALL {
        let count = sum(&|c| c.losses[loss as usize].get());
        page.line("pharos_front_dropped_total", &[("reason", loss.name())], count);
    }
    let streams = &front.streams;
    let name = "pharos_front_failed_open_total";
    page.head(name, "counter", "Questions and connections placed while no node was ready.");
    page.line(name, &[("transport", "udp")], sum(&|c| c.open.get()));
    page.line(name, &[("transport", "tcp")], streams.open.load(Relaxed));
    let name = "pharos_front_out_of_shard_total";
    page.head(name, "counter", "Questions and connections placed outside of the client's shard.");
    page.line(name, &[("transport", "udp")], sum(&|c| c.out_of_shard.get()));
    page.line(name, &[("transport", "tcp")], streams.out_of_shard.load(Relaxed));
    let name = "pharos_front_retries_denied_total";
    page.head(name, "counter", "Questions not asked again because too many were.");
    page.line(name, &[], sum(&|c| c.retries_denied.get()));
    let (open, refused) = streams.places.connections();
    page.head("pharos_front_tcp_connections", "gauge", "Connections of clients open now.");
    page.line("pharos_front_tcp_connections", &[], open);
    let name = "pharos_front_tcp_refused_total";
    page.head(name, "counter", "Connections beyond a bound, closed at once.");
    page.line(name, &[], refused);
    let name = "pharos_front_tcp_untaken_total";
    page.head(name, "counter", "Connections that no node took.");
    page.line(name, &[], streams.untaken.load(Relaxed));
    if let Some(observer) = &front.observer {
        let name = "pharos_front_coordination_up";
        page.head(name, "gauge", "0 while nobody tells which nodes there are.");
        page.line(name, &[], u64::from(observer.is_reached()));
    }
    page.head("pharos_front_panics_total", "counter", "Batches lost to a bug; please report.");
    page.line("pharos_front_panics_total", &[], sum(&|c| c.panics.get()));
    page.text()
}

/// The lines of one node.
fn node_lines(page: &mut Page, node: &Node) {
    let label = ("node", node.spec.name.as_str());
    let mut line = |name: &str, kind: &str, help: &str, value: u64| {
        page.head(name, kind, help);
        page.line(name, &[label], value);
    };
    let sum = |of: fn(&NodeCounters) -> u64| node.sum(of);
    let is_up = u64::from(node.standing() != Standing::Down);
    line("pharos_front_node_up", "gauge", "1 if probes find the node well.", is_up);
    let draining = u64::from(node.is_draining());
    line("pharos_front_node_draining", "gauge", "1 if it gets no new questions.", draining);
    let name = "pharos_front_questions_total";
    line(name, "counter", "Questions sent to the node.", sum(|c| c.questions.get()));
    let name = "pharos_front_answers_total";
    line(name, "counter", "Answers of the node passed on.", sum(|c| c.answers.get()));
    let name = "pharos_front_retries_total";
    let help = "Questions that the node owed and another was asked.";
    line(name, "counter", help, sum(|c| c.retries.get()));
    let name = "pharos_front_outstanding";
    line(name, "gauge", "Questions that wait for the node.", sum(|c| c.outstanding.get()));
    let probes_failed = node.probes_failed.load(Relaxed);
    line("pharos_front_probes_failed_total", "counter", "Probes that failed.", probes_failed);
    let name = "pharos_front_node_connections";
    line(name, "gauge", "Connections to the node open now.", node.tcp.open.load(Relaxed));
    let name = "pharos_front_node_connections_total";
    line(name, "counter", "Connections that the node took.", node.tcp.made.load(Relaxed));
    let name = "pharos_front_node_connect_failures_total";
    line(name, "counter", "Connections that the node did not take.", node.tcp.failed.load(Relaxed));
    let name = "pharos_front_answer_seconds";
    let histograms: Vec<_> = node.udp.iter().map(|counters| &counters.latency_us).collect();
    page.histogram(name, "From asking the node to its answer.", &[label], &histograms);
}
