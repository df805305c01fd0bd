//! The differential run, from a seed to a report.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::answer::{Answer, Reply, Rr, Section};
use crate::ask;
use crate::compare;
use crate::invariants;
use crate::name::Name;
use crate::odd;
use crate::peers::{Kind, Program, Server, ZoneFile};
use crate::queries::{self, Query};
use crate::report::{Example, Report};
use crate::rtype;
use crate::rules;
use crate::scratch::Scratch;
use crate::sign;
use crate::truth::Truth;
use crate::zones::{self, Denial};

#[derive(Debug, Clone)]
pub struct Options {
    pub subject: Program,
    pub seed: u64,
    pub zones: usize,
    pub queries: usize,
    pub peers: Vec<Kind>,
    /// Only this query, with every answer shown.
    pub only: Option<usize>,
    /// Where zones, configurations and logs stay.
    pub keep: Option<PathBuf>,
    /// Change the address of `www` in the subject's copy of the zones: the run must find it.
    pub plant: bool,
}

/// Links of an alias chain that Pharos follows; the one after them is shown and ends the answer.
pub const CHAIN_LINKS_FOLLOWED_MAX: usize = 16;
const BATCH: usize = 4000;

type Peer = (Kind, SocketAddr);

struct Run {
    options: Options,
    truth: Truth,
    subject: Server,
    peers: Vec<Server>,
    report: Report,
}

pub fn run(options: Options) -> Result<Report> {
    let scratch = Scratch::new(options.keep.as_deref())?;
    eprintln!("zones, configurations and logs in {}", scratch.dir.display());
    let (files, denials) = write_zones(&options, &scratch.dir)?;
    let mut run = start(options, &scratch.dir, &files, denials)?;
    match run.options.only {
        Some(index) => run.only(index)?,
        None => {
            run.all()?;
            odd::run(&run.subject, &run.peers, &run.truth, &mut run.report)?;
        }
    }
    for server in run.peers.iter_mut().chain([&mut run.subject]) {
        if !server.is_running() {
            let tail = server.log_tail();
            let label = server.kind.label();
            let died = Example { index: None, dig: String::new(), detail: tail };
            run.report.finding(format!("{label} died"), || died);
        }
    }
    Ok(run.report)
}

fn write_zones(options: &Options, dir: &Path) -> Result<(Vec<ZoneFile>, Vec<Denial>)> {
    let (zone_dir, keys) = (dir.join("zones"), dir.join("keys"));
    fs::create_dir_all(&zone_dir)?;
    fs::create_dir_all(&keys)?;
    let mut files = Vec::new();
    let mut denials = Vec::new();
    for zone in zones::generate(options.seed, options.zones) {
        let path = zone_dir.join(format!("{}zone", zone.origin));
        sign::write(&zone.origin, &zone.text, &zone.denial, &keys, &path)?;
        files.push(ZoneFile { origin: zone.origin, path });
        denials.push(zone.denial);
    }
    eprintln!("{} zones written", files.len());
    Ok((files, denials))
}

fn start(options: Options, dir: &Path, files: &[ZoneFile], denials: Vec<Denial>) -> Result<Run> {
    let mut peers = Vec::new();
    for kind in options.peers.iter().copied() {
        if options.subject.kind() == kind {
            continue;
        }
        peers.push(Server::start(&Program::Peer(kind), &dir.join(kind.label()), files)?);
        eprintln!("{} serves all zones at {}", kind.label(), peers[peers.len() - 1].address);
    }
    let subject_files = match options.plant {
        true => plant(dir, files)?,
        false => files.to_vec(),
    };
    let subject = Server::start(&options.subject, &dir.join("subject"), &subject_files)?;
    eprintln!("subject {} serves all zones at {}", subject.kind.label(), subject.address);
    let source = peers.first().unwrap_or(&subject);
    let zones: Vec<_> = files.iter().map(|file| file.origin.clone()).zip(denials).collect();
    let truth = Truth::read(source.address, &zones)?;
    let report = Report::new(options.seed, options.zones);
    Ok(Run { options, truth, subject, peers, report })
}

fn plant(dir: &Path, files: &[ZoneFile]) -> Result<Vec<ZoneFile>> {
    let planted_dir = dir.join("planted");
    fs::create_dir_all(&planted_dir)?;
    let mut planted = Vec::new();
    let mut count = 0;
    for file in files {
        let text = fs::read_to_string(&file.path)?;
        let changed = zones::planted(&text);
        count += usize::from(changed.is_some());
        let path = planted_dir.join(file.path.file_name().context("a file name")?);
        fs::write(&path, changed.unwrap_or(text))?;
        planted.push(ZoneFile { origin: file.origin.clone(), path });
    }
    anyhow::ensure!(count > 0, "no zone has an address to plant a bug at");
    Ok(planted)
}

impl Run {
    fn all(&mut self) -> Result<()> {
        let total = self.options.queries;
        for from in (0..total).step_by(BATCH) {
            self.batch(from..total.min(from + BATCH))?;
            let done = total.min(from + BATCH);
            eprintln!("{done} of {total} queries, {} findings", self.report.findings());
        }
        Ok(())
    }

    fn only(&mut self, index: usize) -> Result<()> {
        self.batch(index..index + 1)?;
        let query = queries::query(self.options.seed, index, &self.truth);
        println!("{}", query.dig(self.subject.address.port()));
        for server in std::iter::once(&self.subject).chain(&self.peers) {
            let reply = ask::ask(server.address, std::slice::from_ref(&query))?.remove(0);
            println!("--- {}\n{reply}", server.kind.label());
            if reply.is_truncated() {
                let reply = ask::ask(server.address, &[query.over_tcp()])?.remove(0);
                println!("--- {} over TCP\n{reply}", server.kind.label());
            }
        }
        Ok(())
    }

    fn batch(&mut self, range: std::ops::Range<usize>) -> Result<()> {
        let queries: Vec<(usize, Query)> = range
            .map(|index| (index, queries::query(self.options.seed, index, &self.truth)))
            .collect();
        let replies = self.ask_all(&queries)?;
        self.report.queries += queries.len();
        // What anyone truncated is asked again of everyone.
        let again: Vec<usize> = (0..queries.len())
            .filter(|at| replies.iter().any(|server| server[*at].is_truncated()))
            .collect();
        let whole: Vec<(usize, Query)> =
            again.iter().map(|at| (queries[*at].0, queries[*at].1.over_tcp())).collect();
        let whole_replies = self.ask_all(&whole)?;
        self.report.retried_over_tcp += whole.len();
        for (place, at) in again.iter().enumerate() {
            let (index, query) = &queries[*at];
            let problems =
                invariants::truncation(query, &replies[0][*at], &whole_replies[0][place]);
            self.broken(*index, query, &replies[0][*at], problems);
        }
        self.judge(&queries, &replies)?;
        self.judge(&whole, &whole_replies)
    }

    /// The subject first, then the peers in order.
    fn ask_all(&mut self, queries: &[(usize, Query)]) -> Result<Vec<Vec<Reply>>> {
        let plain: Vec<Query> = queries.iter().map(|(_, query)| query.clone()).collect();
        let plain = plain.as_slice();
        let servers: Vec<(Kind, SocketAddr)> = std::iter::once(&self.subject)
            .chain(&self.peers)
            .map(|server| (server.kind, server.address))
            .collect();
        let replies = std::thread::scope(|scope| {
            let threads: Vec<_> = servers
                .iter()
                .map(|(kind, address)| (kind, scope.spawn(move || ask::ask(*address, plain))))
                .collect();
            threads
                .into_iter()
                .map(|(kind, thread)| {
                    let asked = thread.join().expect("asking does not panic");
                    asked.with_context(|| format!("ask {}: {}", kind.label(), self.log_of(*kind)))
                })
                .collect::<Result<Vec<_>>>()
        })?;
        self.report.answers += replies.len() * plain.len();
        Ok(replies)
    }

    fn log_of(&self, kind: Kind) -> String {
        let mut servers = std::iter::once(&self.subject).chain(&self.peers);
        servers.find(|server| server.kind == kind).map(Server::log_tail).unwrap_or_default()
    }

    fn judge(&mut self, queries: &[(usize, Query)], replies: &[Vec<Reply>]) -> Result<()> {
        for (at, (index, query)) in queries.iter().enumerate() {
            let subject = (self.subject.kind, self.subject.address);
            // Pharos must follow by itself; a peer in its place is helped like any peer.
            let ours = match subject.0 {
                Kind::Pharos => replies[0][at].clone(),
                _ => self.completed(&subject, query, &replies[0][at])?,
            };
            let problems = invariants::check(query, &ours, &self.truth);
            self.broken(*index, query, &ours, problems);
            for peer in 0..self.peers.len() {
                let server = (self.peers[peer].kind, self.peers[peer].address);
                let theirs = self.completed(&server, query, &replies[peer + 1][at])?;
                self.compare(*index, query, &ours, &theirs, peer);
            }
        }
        Ok(())
    }

    fn compare(&mut self, index: usize, query: &Query, ours: &Reply, theirs: &Reply, peer: usize) {
        let server = &self.peers[peer];
        let kind = server.kind;
        let judgement = compare::judge(query, &self.truth, kind, ours, theirs);
        for rule in judgement.rules {
            self.report.accepted(rule, kind, || query.dig(server.address.port()));
        }
        if judgement.unexplained.is_empty() {
            return;
        }
        let mut signatures: Vec<_> =
            judgement.unexplained.iter().map(compare::Atom::signature).collect();
        signatures.sort();
        signatures.dedup();
        let subject = &self.subject;
        let zone = zone_line(query, &self.truth);
        self.report.finding(format!("{}: {}", kind.label(), signatures.join("; ")), || {
            let mut detail = zone;
            for atom in judgement.unexplained.iter().take(12) {
                detail.push_str(&format!("! {atom}\n"));
            }
            detail.push_str(&format!("--- {}\n{ours}", subject.kind.label()));
            detail.push_str(&format!("--- {}\n{theirs}", kind.label()));
            Example { index: Some(index), dig: query.dig(subject.address.port()), detail }
        });
    }

    fn broken(&mut self, index: usize, query: &Query, ours: &Reply, problems: Vec<String>) {
        let port = self.subject.address.port();
        let zone = zone_line(query, &self.truth);
        for problem in problems {
            let kind = problem.split(':').next().unwrap_or(&problem).to_owned();
            self.report.finding(format!("invariant: {kind}"), || Example {
                index: Some(index),
                dig: query.dig(port),
                detail: format!("{zone}! {problem}\n{ours}"),
            });
        }
    }

    /// Pharos follows aliases through all its zones (RFC 1034 4.3.2 step 3a: "go back to step 1",
    /// which chooses the zone anew); a peer that stops at a zone's border or after fewer links is
    /// asked for the rest, so that the rest is compared too.
    fn completed(&mut self, server: &Peer, query: &Query, reply: &Reply) -> Result<Reply> {
        let mut reply = reply.clone();
        let mut asked = None;
        while let Reply::Answer(answer) = &mut reply {
            let Some((next, rule)) = unfollowed(query, answer, &self.truth) else { break };
            // It said what it has to say about this name, such as a referral.
            if asked.as_ref() == Some(&next) {
                break;
            }
            asked = Some(next.clone());
            let rest = Query { name: next, tcp: true, ..query.clone() };
            let Reply::Answer(rest) = ask::ask(server.1, &[rest])?.remove(0) else { break };
            let rule = rules::index_of(rule);
            self.report.accepted(rule, server.0, || query.dig(server.1.port()));
            answer.rcode = rest.rcode;
            answer.sections[0].extend(rest.sections[0].iter().cloned());
            // Proofs for wildcards on the way stay; a referral to a zone that is hosted goes.
            answer.sections[1].retain(|rr| {
                let rtype = rr.covered().unwrap_or(rr.rtype);
                matches!(rtype, rtype::NSEC | rtype::NSEC3)
            });
            answer.sections[1].extend(rest.sections[1].iter().cloned());
            answer.sections[2] = rest.sections[2].clone();
        }
        Ok(reply)
    }
}

/// Where to look up what the zone says.
fn zone_line(query: &Query, truth: &Truth) -> String {
    match truth.zone_for(&query.name, query.qtype) {
        Some(zone) => format!("; zone file: zones/{}zone below --keep DIR\n", zone.origin),
        None => "; no zone\n".to_owned(),
    }
}

/// The name where a chain ends that a hosted zone knows more about, and the rule that covers
/// stopping there.
fn unfollowed(query: &Query, answer: &Answer, truth: &Truth) -> Option<(Name, &'static str)> {
    if answer.tc() || query.qclass != rtype::CLASS_IN {
        return None;
    }
    let (chain, last) = answer.chain(&query.name, query.qtype);
    let is_loop = chain.last() != Some(&last);
    if chain.len() < 2 || is_loop || chain.len() > CHAIN_LINKS_FOLLOWED_MAX + 1 {
        return None;
    }
    let from = truth.zone_of(&chain[chain.len() - 2])?;
    let to = truth.zone_for(&last, query.qtype)?;
    let ends = |rr: &Rr| match rr.rtype {
        rtype::SOA => rr.owner == to.origin,
        rtype::NS => rr.owner.is_below(&to.origin),
        _ => false,
    };
    let is_overflow = answer.rcode == 6;
    let answers = is_overflow
        || answer.section(Section::Answer).iter().any(|rr| rr.owner == last)
        || answer.section(Section::Authority).iter().any(ends);
    let rule = match from.origin == to.origin {
        true => "chain-shorter",
        false => "chain-stops-at-zone",
    };
    (!answers).then_some((last, rule))
}
