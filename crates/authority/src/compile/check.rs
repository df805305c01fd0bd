//! What only the whole zone can show to be wrong.

use wire::{Name, rtype};

use super::tree::{NO_NODE, Tree, TreeNode};
use super::{NSEC3_ITERATIONS_MAX, render};
use crate::image::{NODE_CUT, NODE_REDIRECT};
use crate::problem::Problems;
use crate::records::RecordSet;

/// Notes everything wrong with the zone in `tree`.
pub(super) fn check(tree: &mut Tree, records: &RecordSet, problems: &mut Problems) {
    check_apex(tree, records, problems);
    for index in 0..tree.nodes.len() {
        check_node(tree, index, records, problems);
    }
}

fn check_apex(tree: &Tree, records: &RecordSet, problems: &mut Problems) {
    let apex = &tree.nodes[0];
    let at = records.get(tree.soa).at;
    if tree.set(apex, rtype::NS).is_none() {
        problems.error(
            at,
            format!("no NS record at {}", tree.display(apex)),
            "at least one NS record at the name of the zone",
        );
    }
    if let Some(set) = tree.set(apex, rtype::NSEC3PARAM) {
        for &index in tree.records_of(set) {
            let record = records.get(index as usize);
            let iterations = match record.rdata {
                [_, _, high, low, ..] => u16::from_be_bytes([*high, *low]),
                _ => 0,
            };
            if iterations > NSEC3_ITERATIONS_MAX {
                problems.error(
                    record.at,
                    format!("{iterations} NSEC3 iterations"),
                    format!("at most {NSEC3_ITERATIONS_MAX}, better 0 (RFC 9276)"),
                );
            }
        }
    }
}

fn check_node(tree: &Tree, index: usize, records: &RecordSet, problems: &mut Problems) {
    let node = &tree.nodes[index];
    for set in tree.sets_of(node) {
        let members = tree.records_of(set);
        match set.rtype {
            rtype::CNAME => check_alias(tree, node, records, problems),
            rtype::DNAME => check_redirect(tree, node, members, records, problems),
            rtype::NS if tree.relative(node).starts_with(b"\x01*") => problems.warning(
                tree.place(set, records),
                format!("an NS record at the wildcard {} delegates nothing", tree.display(node)),
                "NS records at names that are no wildcards (RFC 4592, 4.2)",
            ),
            rtype::NS => check_name_servers(tree, index, members, records, problems),
            _ => {}
        }
    }
    // One complaint per name directly below a DNAME is enough.
    if node.parent != NO_NODE
        && tree.nodes[node.parent as usize].flags & NODE_REDIRECT != 0
        && let Some(set) = first_set_at_or_below(tree, index)
    {
        problems.error(
            tree.place(set, records),
            format!("{} lies below a DNAME record and can never be found", tree.display(node)),
            "no records below a name that has a DNAME record (RFC 6672, 2.4)",
        );
    }
}

/// The first record set of a node or, if it is empty, of what lies below it.
fn first_set_at_or_below(tree: &Tree, index: usize) -> Option<&super::tree::TreeSet> {
    tree.nodes[index..].iter().find_map(|node| tree.sets_of(node).first())
}

fn check_redirect(
    tree: &Tree,
    node: &TreeNode,
    members: &[u32],
    records: &RecordSet,
    problems: &mut Problems,
) {
    if members.len() > 1 {
        problems.error(
            records.get(members[1] as usize).at,
            format!("a second DNAME record at {}", tree.display(node)),
            "one DNAME record at a name (RFC 6672, 2.4)",
        );
    }
    if node.parent != NO_NODE
        && let Some(servers) = tree.set(node, rtype::NS)
    {
        problems.error(
            tree.place(servers, records),
            format!("an NS record beside the DNAME record at {}", tree.display(node)),
            "either of both at a name below the top of the zone (RFC 6672, 2.3)",
        );
    }
}

fn check_alias(tree: &Tree, node: &TreeNode, records: &RecordSet, problems: &mut Problems) {
    for set in tree.sets_of(node) {
        let members = tree.records_of(set);
        match set.rtype {
            rtype::CNAME if members.len() > 1 => problems.error(
                records.get(members[1] as usize).at,
                format!("a second CNAME record at {}", tree.display(node)),
                "one CNAME record at a name (RFC 2181, 10.1)",
            ),
            // RFC 4035, 2.5: this may stand beside an alias; so may KEY.
            rtype::CNAME | rtype::NSEC | 25 => {}
            _ => problems.error(
                tree.place(set, records),
                format!("other data beside the CNAME record at {}", tree.display(node)),
                "a CNAME record alone at its name (RFC 1034, 3.6.2)",
            ),
        }
    }
}

/// A name server whose name lies in this zone needs an address in it.
fn check_name_servers(
    tree: &Tree,
    index: usize,
    members: &[u32],
    records: &RecordSet,
    problems: &mut Problems,
) {
    let node = &tree.nodes[index];
    for &member in members {
        let record = records.get(member as usize);
        let lowered = record.rdata.to_ascii_lowercase();
        let Ok(target) = Name::parse(&lowered) else { continue };
        let Some(relative) = target.strip_suffix(Name::from_trusted(&tree.origin)) else {
            continue;
        };
        let needed = node.flags & NODE_CUT == 0 || relative.ends_with(tree.relative(node));
        if needed && render::find_addresses(tree, relative).is_none() {
            problems.warning(
                record.at,
                format!("the name server {target} has no address in the zone"),
                "an A or AAAA record for each name server whose name lies in the zone",
            );
        }
    }
}
