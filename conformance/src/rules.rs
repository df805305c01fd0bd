//! The differences from the peers that Pharos accepts, each with the clause that decides. A rule
//! looks at one [`Atom`] in its [`Case`]; what Pharos itself sends is judged by
//! [`crate::invariants`] as well, so a rule never hides a wrong answer, only a right difference.

use crate::answer::{FLAG_AA, FLAG_AD, FLAG_CD, FLAG_TC, Rr, Section};
use crate::compare::{Atom, Case};
use crate::denial;
use crate::invariants;
use crate::model::{self, Alias, End, Link};
use crate::name::Name;
use crate::peers::Kind;
use crate::rtype;

#[derive(Debug)]
pub struct Rule {
    pub name: &'static str,
    /// Where it is decided.
    pub clause: &'static str,
    pub why: &'static str,
    pub accepts: fn(&Case<'_>, &Atom) -> bool,
}

pub const RULES: &[Rule] = &[
    Rule {
        name: "chain-stops-at-zone",
        clause: "RFC 1034 4.3.2 step 3a",
        why: "Knot and BIND stop where an alias leaves the zone; the rest was asked for and compared",
        accepts: |_, _| false,
    },
    Rule {
        name: "chain-shorter",
        clause: "RFC 1034 3.6.2, 5.2.2",
        why: "each server caps chains elsewhere; the rest was asked for and compared",
        accepts: |_, _| false,
    },
    Rule {
        name: "bind-limits-chaos",
        clause: "none: BIND's built-in `_bind` view",
        why: "BIND answers three queries a second of class CH and drops the rest",
        accepts: |_, _| false,
    },
    Rule {
        name: "cd-copied",
        clause: "RFC 4035 3.1.6",
        why: "an authority should clear CD; BIND copies it as a resolver must",
        accepts: |_, atom| matches!(atom, Atom::Flag { bit: FLAG_CD, ours: false }),
    },
    Rule {
        name: "truncation-point",
        clause: "RFC 2181 9, RFC 9471 3.1",
        why: "sizes differ with compression and optional records; whether ours had to is checked apart",
        accepts: truncation_point,
    },
    Rule {
        name: "any-one-rrset",
        clause: "RFC 8482 4.1",
        why: "ANY may be answered with any RRset of the name",
        accepts: |case, atom| case.query.qtype == rtype::ANY && is_at_end(case, atom),
    },
    Rule {
        name: "rrsig-some",
        clause: "RFC 8482 7",
        why: "RRSIG is as open to abuse as ANY; a server may choose among the signatures",
        accepts: |case, atom| case.query.qtype == rtype::RRSIG && is_at_end(case, atom),
    },
    Rule {
        name: "additional-optional",
        clause: "RFC 1034 4.3.2 step 6, RFC 9460 4.1, RFC 9471 3.2",
        why: "anything but glue below the cut is a courtesy; what ours must hold is checked apart",
        accepts: |case, atom| {
            let is_help = is_additional(atom, &[rtype::A, rtype::AAAA])
                || is_service(case) && is_additional(atom, &[case.query.qtype]);
            is_help && !is_required_glue(case, atom)
        },
    },
    Rule {
        name: "service-proofs",
        clause: "RFC 9460 4.1, 4.3",
        why: "proofs for the targets of SVCB are a SHOULD and Knot adds them; ours leaves out what needs one",
        accepts: |case, atom| {
            is_service(case)
                && matches!(atom, Atom::OnlyTheirs { .. })
                && is_additional(atom, &[rtype::NSEC, rtype::NSEC3])
        },
    },
    Rule {
        name: "peer-omits-glue",
        clause: "RFC 9471 3.1",
        why: "all glue of servers below the cut is due, or TC; the peer sent less without TC",
        accepts: |case, atom| matches!(atom, Atom::OnlyOurs { .. }) && is_required_glue(case, atom),
    },
    Rule {
        name: "denial-surplus",
        clause: "RFC 4035 3.1.3, RFC 5155 7.2",
        why: "the peer sends records that the proof does not need; ours is a proof",
        accepts: denial_surplus,
    },
    Rule {
        name: "denial-short",
        clause: "RFC 4035 3.1.3, RFC 5155 7.2",
        why: "what the peer sends is not a proof; ours is",
        accepts: denial_short,
    },
    Rule {
        name: "no-proof-exists",
        clause: "RFC 5155 7.1, 7.2.2",
        why: "opt-out left the closest encloser without a record, so absence cannot be proved; \
              Knot then leaves the authority section and AA out",
        accepts: |case, atom| {
            denial::has_no_proof(case.walk)
                && match atom {
                    Atom::Flag { bit: FLAG_AA, ours: true } => {
                        case.theirs.section(Section::Authority).is_empty()
                    }
                    Atom::OnlyOurs { section: Section::Authority, .. } => {
                        case.theirs.section(Section::Authority).is_empty()
                    }
                    _ => is_denial(atom),
                }
        },
    },
    Rule {
        name: "chain-servfail",
        clause: "RFC 1034 3.6.2, RFC 8914 4.1",
        why: "loops and long chains are to be signalled as errors: BIND says SERVFAIL, ours sends the \
              links with an extended error",
        accepts: |case, atom| {
            let is_long = case.walk.links.len() > 10;
            (is_long || matches!(case.walk.end, End::Loop | End::Cap))
                && matches!(atom, Atom::Rcode { theirs: 2, .. })
        },
    },
    Rule {
        name: "truncated-chain",
        clause: "RFC 2181 9",
        why: "the peer truncated before it reached the end of the chain; TCP answers were compared",
        accepts: |case, atom| {
            (case.theirs.tc() || case.ours.tc())
                && (!case.walk.links.is_empty() || matches!(case.walk.end, End::YxDomain { .. }))
                && matches!(atom, Atom::Rcode { .. })
        },
    },
    Rule {
        name: "chain-cap",
        clause: "RFC 1034 5.2.2",
        why: "our chains end after 16 links, the peer goes on",
        accepts: chain_cap,
    },
    Rule {
        name: "signing-type-at-alias",
        clause: "RFC 1034 4.3.2 step 3a, RFC 4035 2.5",
        why: "NSEC, NSEC3 or RRSIG absent beside an alias: follow it, or say so; peers do both",
        accepts: |case, _| {
            let is_alias = |link: &Link<'_>| matches!(link.alias, Alias::Cname { .. });
            model::is_signing_type(case.query.qtype) && case.walk.links.iter().any(is_alias)
        },
    },
    Rule {
        name: "nsec-at-cut",
        clause: "RFC 4035 3.1.4.1, RFC 1034 4.3.2 step 3b",
        why: "only DS is answered on the parent's side of a cut; BIND answers NSEC there as well",
        accepts: |case, _| {
            let at_cut = |cut: &Name| cut.eq_ignore_case(&last_name(case));
            case.query.qtype == rtype::NSEC
                && case.peer == Kind::Bind
                && matches!(&case.walk.end, End::Referral { cut, .. } if at_cut(cut))
        },
    },
    Rule {
        name: "ds-without-parent",
        clause: "RFC 4035 3.1.4.1",
        why: "an authority for the child and not for the parent says no data; peers refer from a zone \
              further above",
        accepts: |case, atom| {
            let is_child =
                matches!(&case.walk.end, End::NoData { zone, name, .. } if *name == zone.origin);
            case.query.qtype == rtype::DS
                && is_child
                && case.theirs.is_referral()
                && match atom {
                    Atom::Flag { bit: FLAG_AA, ours: true } => true,
                    _ => record(atom).is_some_and(|(section, _)| section != Section::Answer),
                }
        },
    },
    Rule {
        name: "yxdomain-knot",
        clause: "RFC 6672 3.2 step 3c",
        why: "an overflow ends the answer; Knot goes on with a shortened name, adds SOA or says NXDOMAIN",
        accepts: |case, atom| {
            case.peer == Kind::Knot
                && matches!(case.walk.end, End::YxDomain { .. })
                && match atom {
                    Atom::OnlyTheirs { rr, .. } => !is_on_chain(case, &rr.owner),
                    Atom::Rcode { ours: 6, theirs: 3 } => true,
                    _ => false,
                }
        },
    },
    Rule {
        name: "svcb-case-nsd",
        clause: "RFC 4343 4.1, RFC 4034 6.2",
        why: "NSD writes the target of SVCB and HTTPS in the case of another name; ours keeps the zone's",
        accepts: svcb_case,
    },
    Rule {
        name: "class-any",
        clause: "RFC 1035 3.2.5, 6.2",
        why: "QCLASS * is hardly defined: we refuse, BIND says FORMERR, Knot answers as IN, NSD without AA",
        accepts: |case, _| case.query.qclass == rtype::CLASS_ANY && case.ours.rcode == 5,
    },
    Rule {
        name: "ad-copied",
        clause: "RFC 4035 3.1.6",
        why: "an authority that has validated nothing leaves AD clear",
        accepts: |_, atom| matches!(atom, Atom::Flag { bit: FLAG_AD, ours: false }),
    },
];

/// For rules that are applied by the steps rather than by [`Rule::accepts`].
pub fn index_of(name: &str) -> usize {
    RULES.iter().position(|rule| rule.name == name).expect("a rule of the table")
}

fn truncation_point(case: &Case<'_>, atom: &Atom) -> bool {
    !case.query.tcp && matches!(atom, Atom::Flag { bit: FLAG_TC, .. })
}

/// The record and its section, when the difference is one of records.
fn record(atom: &Atom) -> Option<(Section, &Rr)> {
    match atom {
        Atom::OnlyOurs { section, rr } | Atom::OnlyTheirs { section, rr } => Some((*section, rr)),
        _ => None,
    }
}

/// A record of the answer section at the name where the walk ends in data.
fn is_at_end(case: &Case<'_>, atom: &Atom) -> bool {
    let End::Data { name, .. } = &case.walk.end else { return false };
    record(atom).is_some_and(|(section, rr)| section == Section::Answer && rr.owner == *name)
}

/// An additional record of one of `types`, or a signature over one.
fn is_additional(atom: &Atom, types: &[u16]) -> bool {
    record(atom).is_some_and(|(section, rr)| {
        section == Section::Additional && types.contains(&rr.covered().unwrap_or(rr.rtype))
    })
}

fn is_service(case: &Case<'_>) -> bool {
    matches!(case.query.qtype, rtype::SVCB | rtype::HTTPS)
}

fn is_required_glue(case: &Case<'_>, atom: &Atom) -> bool {
    let End::Referral { zone, cut } = &case.walk.end else { return false };
    record(atom).is_some_and(|(section, rr)| {
        section == Section::Additional && invariants::glue(zone, cut).contains(rr)
    })
}

fn is_denial(atom: &Atom) -> bool {
    record(atom).is_some_and(|(section, rr)| {
        let rtype = rr.covered().unwrap_or(rr.rtype);
        section == Section::Authority && matches!(rtype, rtype::NSEC | rtype::NSEC3)
    })
}

fn denial_surplus(case: &Case<'_>, atom: &Atom) -> bool {
    matches!(atom, Atom::OnlyTheirs { .. })
        && is_denial(atom)
        && denial::check(case.walk, case.query.qtype, case.ours).is_ok()
}

fn denial_short(case: &Case<'_>, atom: &Atom) -> bool {
    matches!(atom, Atom::OnlyOurs { .. })
        && is_denial(atom)
        && denial::check(case.walk, case.query.qtype, case.theirs).is_err()
}

fn chain_cap(case: &Case<'_>, atom: &Atom) -> bool {
    matches!(case.walk.end, End::Cap)
        && matches!(atom, Atom::OnlyTheirs { .. } | Atom::Rcode { ours: 0, .. })
}

/// Where the chain leads, or the name asked for.
fn last_name(case: &Case<'_>) -> Name {
    case.walk.links.last().map_or_else(|| case.query.name.lower(), |link| link.to.clone())
}

fn is_on_chain(case: &Case<'_>, name: &Name) -> bool {
    case.walk.links.iter().any(|link| link.from == *name)
}

/// One side has the record, the other the same in another case.
fn svcb_case(case: &Case<'_>, atom: &Atom) -> bool {
    let (rr, others) = match atom {
        Atom::OnlyOurs { section, rr } => (rr, case.theirs.section(*section)),
        Atom::OnlyTheirs { section, rr } => (rr, case.ours.section(*section)),
        _ => return false,
    };
    let is_same = |other: &Rr| {
        (&other.owner, other.rtype, other.ttl) == (&rr.owner, rr.rtype, rr.ttl)
            && other.rdata.eq_ignore_ascii_case(&rr.rdata)
    };
    case.peer == Kind::Nsd
        && matches!(rr.rtype, rtype::SVCB | rtype::HTTPS)
        && others.iter().any(is_same)
}
