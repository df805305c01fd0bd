//! Two answers to one query: what differs, and which rule accepts it.

use std::collections::BTreeSet;
use std::fmt;

use crate::answer::{Answer, FLAG_DO, Reply, Rr, SECTIONS, Section, flags_text};
use crate::model::{self, Walk};
use crate::peers::Kind;
use crate::queries::Query;
use crate::rtype;
use crate::rules::{self, RULES};
use crate::truth::Truth;

/// The smallest difference a rule can decide about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Atom {
    Rcode {
        ours: u16,
        theirs: u16,
    },
    /// One bit of the header's second word, set on one side only.
    Flag {
        bit: u16,
        ours: bool,
    },
    OnlyOurs {
        section: Section,
        rr: Rr,
    },
    OnlyTheirs {
        section: Section,
        rr: Rr,
    },
    Ttl {
        section: Section,
        rr: Rr,
        theirs: u32,
    },
    /// OPT present on one side, or differing in version or flags.
    Opt(String),
    /// One side gave no readable answer.
    Reply(String),
}

/// Everything a rule may look at.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    pub query: &'a Query,
    /// What the zones say about the query.
    pub walk: &'a Walk<'a>,
    pub peer: Kind,
    pub ours: &'a Answer,
    pub theirs: &'a Answer,
}

#[derive(Debug, Default)]
pub struct Judgement {
    /// Indices into [`RULES`], each once.
    pub rules: BTreeSet<usize>,
    pub unexplained: Vec<Atom>,
}

pub fn judge(query: &Query, truth: &Truth, peer: Kind, ours: &Reply, theirs: &Reply) -> Judgement {
    let mut judgement = Judgement::default();
    let (ours, theirs) = match (ours, theirs) {
        (Reply::Answer(ours), Reply::Answer(theirs)) => (ours, theirs),
        (ours, theirs) => {
            match unequal_kinds(ours, theirs) {
                Some(_) if is_limited_by_bind(query, peer, theirs) => {
                    judgement.rules.insert(rules::index_of("bind-limits-chaos"));
                }
                Some(difference) => judgement.unexplained.push(Atom::Reply(difference)),
                None => {}
            }
            return judgement;
        }
    };
    let walk = model::walk(&query.name, query.qtype, truth);
    let case = Case { query, walk: &walk, peer, ours, theirs };
    for atom in differences(ours, theirs) {
        match RULES.iter().position(|rule| (rule.accepts)(&case, &atom)) {
            Some(rule) => drop(judgement.rules.insert(rule)),
            None => judgement.unexplained.push(atom),
        }
    }
    judgement
}

/// BIND's built-in view of class CH answers three queries a second and drops the rest.
fn is_limited_by_bind(query: &Query, peer: Kind, theirs: &Reply) -> bool {
    peer == Kind::Bind && query.qclass == rtype::CLASS_CH && matches!(theirs, Reply::Silence)
}

fn unequal_kinds(ours: &Reply, theirs: &Reply) -> Option<String> {
    let kind = |reply: &Reply| match reply {
        Reply::Answer(_) => "an answer".to_owned(),
        Reply::Unparsable(problem) => format!("unparsable: {problem}"),
        Reply::Silence => "silence".to_owned(),
    };
    let (ours, theirs) = (kind(ours), kind(theirs));
    (ours != theirs).then(|| format!("ours {ours}, theirs {theirs}"))
}

/// Sections are compared only when both are whole: a truncated answer is asked again over TCP,
/// and "must not use it except to know that more is to be had" (RFC 2181 9).
pub fn differences(ours: &Answer, theirs: &Answer) -> Vec<Atom> {
    let mut atoms = Vec::new();
    if ours.rcode != theirs.rcode {
        atoms.push(Atom::Rcode { ours: ours.rcode, theirs: theirs.rcode });
    }
    if ours.flags != theirs.flags {
        let differing = ours.flags ^ theirs.flags;
        let bits = (0..16).map(|shift| 1 << shift).filter(|bit| differing & bit != 0);
        atoms.extend(bits.map(|bit| Atom::Flag { bit, ours: ours.flags & bit != 0 }));
    }
    let opt = |answer: &Answer| {
        answer.opts.iter().map(|opt| (opt.version, opt.flags & FLAG_DO != 0)).collect::<Vec<_>>()
    };
    if opt(ours) != opt(theirs) {
        atoms.push(Atom::Opt(format!("ours {:?}, theirs {:?}", opt(ours), opt(theirs))));
    }
    if !ours.tc() && !theirs.tc() {
        for section in SECTIONS {
            section_differences(section, ours, theirs, &mut atoms);
        }
    }
    atoms
}

fn section_differences(section: Section, ours: &Answer, theirs: &Answer, atoms: &mut Vec<Atom>) {
    let (mine, others) = (ours.section(section), theirs.section(section));
    let same = |a: &Rr, b: &Rr| {
        a.owner == b.owner && a.rtype == b.rtype && a.class == b.class && a.rdata == b.rdata
    };
    for rr in mine.difference(others) {
        match others.iter().find(|other| same(rr, other)) {
            Some(other) => atoms.push(Atom::Ttl { section, rr: rr.clone(), theirs: other.ttl }),
            None => atoms.push(Atom::OnlyOurs { section, rr: rr.clone() }),
        }
    }
    for rr in others.difference(mine).filter(|rr| !mine.iter().any(|known| same(rr, known))) {
        atoms.push(Atom::OnlyTheirs { section, rr: rr.clone() });
    }
}

impl Atom {
    /// The kind of difference without names and addresses, to group findings by.
    pub fn signature(&self) -> String {
        match self {
            Atom::OnlyOurs { section, rr } => {
                format!("only ours: {section:?} {}", rtype::mnemonic(rr.rtype))
            }
            Atom::OnlyTheirs { section, rr } => {
                format!("only theirs: {section:?} {}", rtype::mnemonic(rr.rtype))
            }
            Atom::Ttl { section, rr, .. } => {
                format!("ttl: {section:?} {}", rtype::mnemonic(rr.rtype))
            }
            // Up to what was wrong with it, which names names.
            Atom::Reply(text) => {
                let kinds: Vec<_> =
                    text.split(", ").map(|side| side.split(':').next().unwrap_or(side)).collect();
                format!("reply: {}", kinds.join(", "))
            }
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Rcode { ours, theirs } => {
                let (ours, theirs) = (rtype::rcode_mnemonic(*ours), rtype::rcode_mnemonic(*theirs));
                write!(f, "rcode: ours {ours}, theirs {theirs}")
            }
            Atom::Flag { bit, ours } => {
                let side = if *ours { "ours" } else { "theirs" };
                write!(f, "flag: {} only {side}", flags_text(*bit))
            }
            Atom::OnlyOurs { section, rr } => write!(f, "only ours: {section:?} {rr}"),
            Atom::OnlyTheirs { section, rr } => write!(f, "only theirs: {section:?} {rr}"),
            Atom::Ttl { section, rr, theirs } => {
                write!(f, "ttl: {section:?} {rr}, theirs {theirs}")
            }
            Atom::Opt(text) => write!(f, "OPT: {text}"),
            Atom::Reply(text) => write!(f, "reply: {text}"),
        }
    }
}
