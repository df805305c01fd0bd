//! Numbers in the text form that Prometheus reads.

use std::fmt::{Display, Write as _};

use base::Histogram;
use wire::{DropReason, Rcode};

use crate::counters::{Counters, LATENCY_BUCKETS, QTYPES, Via};
use crate::drains::{self, Drains};
use crate::serve::Server;

/// Zones that are listed among the heaviest.
const TOP_SHOWN: usize = 20;

/// The text of `/metrics`.
pub async fn render(server: &Server, drains: Option<&Drains>) -> String {
    let mut page = Page::default();
    let counters = server.counters.list();
    for via in [Via::Udp, Via::Tcp] {
        let own: Vec<_> = counters.iter().filter(|c| c.via == via).map(AsRef::as_ref).collect();
        traffic(&mut page, via, &own);
    }
    let snapshot = server.publisher.current();
    let totals = snapshot.catalog.totals();
    page.head("pharos_zones", "gauge", "Zones served, the broken ones included.");
    page.line("pharos_zones", &[], totals.zones);
    page.head("pharos_zones_broken", "gauge", "Zones answered with SERVFAIL.");
    page.line("pharos_zones_broken", &[], totals.broken);
    page.head("pharos_records", "gauge", "Records of all zones.");
    page.line("pharos_records", &[], totals.records);
    page.head("pharos_zone_memory_bytes", "gauge", "Octets of all compiled zones.");
    page.line("pharos_zone_memory_bytes", &[], totals.memory_len);
    page.head("pharos_resident_memory_bytes", "gauge", "Memory of the process.");
    page.line("pharos_resident_memory_bytes", &[], resident_len());
    page.head(
        "pharos_snapshot_generation",
        "gauge",
        "Number of the last change of what is served.",
    );
    page.line("pharos_snapshot_generation", &[], snapshot.generation);
    page.head("pharos_virtual_servers", "gauge", "Virtual name servers that this host serves now.");
    page.line("pharos_virtual_servers", &[], snapshot.served.len());
    let (open, refused) = server.tcp.connections();
    page.head("pharos_tcp_connections", "gauge", "Connections open now.");
    page.line("pharos_tcp_connections", &[], open);
    page.head("pharos_tcp_refused_total", "counter", "Connections beyond a bound, closed at once.");
    page.line("pharos_tcp_refused_total", &[], refused);
    page.head("pharos_reloads_total", "counter", "Loads of the zone directory, by result.");
    let loads = server.loads();
    page.line("pharos_reloads_total", &[("result", "ok")], loads.succeeded);
    page.line("pharos_reloads_total", &[("result", "failed")], loads.failed);
    top_zones(&mut page, server, &counters.iter().map(AsRef::as_ref).collect::<Vec<_>>());
    if let Some(node) = server.node() {
        crate::node::metrics(node, &mut page).await;
    }
    if let Some(drains) = drains {
        drains::write_metrics(drains, &mut page).await;
    }
    page.text()
}

fn traffic(page: &mut Page, via: Via, counters: &[&Counters]) {
    let transport = ("transport", via.name());
    let sum = |of: &dyn Fn(&Counters) -> u64| counters.iter().map(|c| of(c)).sum::<u64>();
    page.head("pharos_answers_total", "counter", "Answers sent, by response code.");
    for rcode in Rcode::ALL {
        let labels = [transport, ("rcode", rcode.name())];
        page.line("pharos_answers_total", &labels, sum(&|c| c.answers[rcode.index()].get()));
    }
    page.head("pharos_queries_total", "counter", "Questions answered, by type.");
    let names = QTYPES.iter().map(|(_, name)| *name).chain(["other"]);
    for (index, name) in names.enumerate() {
        let labels = [transport, ("type", name)];
        page.line("pharos_queries_total", &labels, sum(&|c| c.qtypes[index].get()));
    }
    page.head("pharos_dropped_total", "counter", "Messages that got no answer, by reason.");
    for reason in DropReason::ALL {
        let labels = [transport, ("reason", reason.name())];
        page.line("pharos_dropped_total", &labels, sum(&|c| c.drops[reason as usize].get()));
    }
    page.head("pharos_truncated_total", "counter", "Answers that were cut (TC).");
    page.line("pharos_truncated_total", &[transport], sum(&|c| c.truncated.get()));
    page.head("pharos_send_errors_total", "counter", "Answers that the system did not take.");
    page.line("pharos_send_errors_total", &[transport], sum(&|c| c.send_errors.get()));
    page.head("pharos_panics_total", "counter", "Batches lost to a bug; please report.");
    page.line("pharos_panics_total", &[transport], sum(&|c| c.panics.get()));
    page.head("pharos_received_bytes_total", "counter", "Octets of questions.");
    page.line("pharos_received_bytes_total", &[transport], sum(&|c| c.received_len.get()));
    page.head("pharos_sent_bytes_total", "counter", "Octets of answers.");
    page.line("pharos_sent_bytes_total", &[transport], sum(&|c| c.sent_len.get()));
    latency(page, transport, counters);
}

fn latency(page: &mut Page, transport: (&str, &str), counters: &[&Counters]) {
    let histograms: Vec<_> = counters.iter().map(|counters| &counters.latency_us).collect();
    let help = "From the arrival of a batch to the departure of its answers.";
    page.histogram("pharos_answer_seconds", help, &[transport], &histograms);
}

fn top_zones(page: &mut Page, server: &Server, counters: &[&Counters]) {
    page.head(
        "pharos_zone_queries_sampled",
        "gauge",
        "Questions of the zones asked most, estimated from a sample.",
    );
    let mut weights = std::collections::HashMap::new();
    for (zone, weight) in counters.iter().flat_map(|counters| counters.top_zones.entries()) {
        *weights.entry(zone).or_insert(0) += weight;
    }
    let mut heaviest: Vec<(u64, u64)> = weights.into_iter().collect();
    heaviest.sort_unstable_by_key(|(zone, weight)| (std::cmp::Reverse(*weight), *zone));
    let snapshot = server.publisher.current();
    for (zone, weight) in heaviest.into_iter().take(TOP_SHOWN) {
        if let Some(image) = snapshot.catalog.by_hash(zone) {
            let name = image.origin().to_string();
            page.line("pharos_zone_queries_sampled", &[("zone", &name)], weight);
        }
    }
}

/// Octets of memory that the process has; 0 if the system does not say.
fn resident_len() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let resident = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    resident.unwrap_or(0) * rustix::param::page_size() as u64
}

/// A page in Prometheus's text format, which wants all lines of a metric side
/// by side.
#[derive(Debug, Default)]
pub struct Page {
    families: Vec<(String, String)>,
    current: usize,
}

impl Page {
    /// Turns to a metric; what it is gets written once.
    pub fn head(&mut self, name: &str, kind: &str, help: &str) {
        let known = self.families.iter().position(|(known, _)| known == name);
        self.current = known.unwrap_or_else(|| {
            let head = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
            self.families.push((name.to_owned(), head));
            self.families.len() - 1
        });
    }

    /// Adds a line to the metric turned to.
    pub fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let text = &mut self.families[self.current].1;
        text.push_str(name);
        for (index, (key, value)) in labels.iter().enumerate() {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let open = if index == 0 { '{' } else { ',' };
            let _ = write!(text, "{open}{key}=\"{value}\"");
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(text, "{close} {value}");
    }

    /// Adds the sum of histograms of microseconds.
    pub fn histogram(
        &mut self,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        histograms: &[&Histogram<LATENCY_BUCKETS>],
    ) {
        self.head(name, "histogram", help);
        let mut buckets = [0; LATENCY_BUCKETS];
        for histogram in histograms {
            for (sum, count) in buckets.iter_mut().zip(histogram.counts()) {
                *sum += count;
            }
        }
        let mut total = 0;
        for (index, count) in buckets.iter().enumerate() {
            total += count;
            let bound = match index {
                last if last == LATENCY_BUCKETS - 1 => "+Inf".to_owned(),
                index => (f64::from(1u32 << index) / 1e6).to_string(),
            };
            let labels = [labels, &[("le", bound.as_str())]].concat();
            self.line(&format!("{name}_bucket"), &labels, total);
        }
        let sum: u64 = histograms.iter().map(|histogram| histogram.sum()).sum();
        self.line(&format!("{name}_sum"), labels, sum as f64 / 1e6);
        self.line(&format!("{name}_count"), labels, total);
    }

    /// The whole page.
    pub fn text(self) -> String {
        self.families.into_iter().map(|(_, text)| text).collect()
    }
}
