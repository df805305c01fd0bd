//! One function per corner of the standards, each below its own label.

use std::fmt::Write as _;

use super::tree::target;
use super::{Builder, World};
use crate::name::Name;

/// SOA, NS and the variety that apexes carry. TTL and MINIMUM take turns in being the smaller
/// (RFC 2308 5: the smaller of the two is the negative TTL).
pub fn apex(b: &mut Builder, has_inside_server: bool) {
    let minimum = *b.random.pick(&[5, 60, 3600, 1_000_000]);
    let (mname, rname) = (b.text_of("ns1"), b.text_of("hostmaster"));
    b.add("", "SOA", format!("{mname} {rname} 2026111501 7200 3600 1209600 {minimum}"));
    // BIND wants addresses for every apex server inside the zone, and none can be below a DNAME.
    if has_inside_server {
        let inside = b.text_of("ns1");
        b.add("", "NS", inside);
        b.add_addresses("ns1");
    }
    b.add("", "NS", "ns.elsewhere.example.");
    b.add("", "TXT", "\"v=spf1 -all\"");
}

pub fn garden(b: &mut Builder, world: &World) {
    hosts(b, world);
    wildcards(b, world);
    empty_non_terminals(b);
    delegations(b, world);
    cnames(b, world);
    loops(b, world);
    dnames(b, world);
    odd_labels(b);
    big_sets(b);
    long_names(b);
}

fn hosts(b: &mut Builder, world: &World) {
    b.add("www", "A", "192.0.2.10");
    b.add("www", "AAAA", "2001:db8::10");
    b.add("www", "TXT", "\"Mixed Case\" \"two strings\"");
    if b.random.chance(50) {
        b.add_addresses("");
    }
    let mail = b.text_of("mail");
    b.add("", "MX", format!("10 {mail}"));
    b.add("", "MX", "20 mail.elsewhere.example.");
    b.add("", "CAA", "0 issue \"ca.example\"");
    b.add_addresses("mail");
    let www = b.text_of("www");
    b.add("_sip._tcp", "SRV", format!("0 5 5060 {www}"));
    b.add("_sip._tcp", "SRV", "1 0 5060 .");
    b.add("svc", "SVCB", format!("1 {www} alpn=h2,h3 port=8443 ipv4hint=192.0.2.1"));
    b.add("svc", "HTTPS", "1 . alpn=h2");
    b.add("svc-alias", "HTTPS", format!("0 {www}"));
    services(b);
    b.add("naptr", "NAPTR", format!("100 10 \"s\" \"SIP+D2U\" \"\" {www}"));
    b.add("naptr", "NAPTR", "100 20 \"u\" \"E2U+sip\" \"!^.*$!sip:info@example.com!\" .");
    b.add("ptr", "PTR", www.clone());
    b.add("unknown", "TYPE65280", "\\# 4 deadbeef");
    b.add("unknown", "TYPE65281", "\\# 0");
    b.add("ds-only", "DS", format!("1 13 2 {:064x}", 7));
    b.add("ds-only", "A", "192.0.2.77");
    let elsewhere = target(b, world);
    b.add("exchange", "MX", format!("5 {elsewhere}"));
    b.add("exchange", "MX", format!("6 {www}"));
}

/// RFC 9460: aliases of services, none, and targets that are the owner or made from a wildcard.
fn services(b: &mut Builder) {
    let (svc, alias) = (b.text_of("svc"), b.text_of("svc-alias"));
    b.add("svc-alias", "SVCB", format!("0 {svc}"));
    b.add("svc-twice", "HTTPS", format!("0 {alias}"));
    b.add("svc-off", "HTTPS", "0 .");
    b.add("svc-off", "A", "192.0.2.14");
    b.add("svc-own", "SVCB", "1 . port=53");
    let own = b.text_of("svc-own");
    b.add("svc-own", "SVCB", format!("2 {own} port=853"));
    b.add_addresses("svc-own");
    let (expanded, cut, missing) = (b.text_of("x.wild"), b.text_of("ns.glue"), b.text_of("no.svc"));
    b.add("svc-far", "HTTPS", format!("1 {expanded}"));
    b.add("svc-far", "HTTPS", format!("2 {cut}"));
    b.add("svc-far", "HTTPS", format!("3 {missing}"));
    b.add("*.svc-wild", "HTTPS", "1 .");
    b.add("*.svc-wild", "A", "192.0.2.15");
    b.add("mx-wild", "MX", format!("10 {expanded}"));
    // Below a cut there is nothing to make glue from.
    let server = b.text_of("ns.wild-glue");
    b.add("wild-glue", "NS", server);
    b.add("*.wild-glue", "A", "192.0.2.16");
}

/// RFC 4592: several depths, an alias, an empty non-terminal below, asterisks in the middle.
fn wildcards(b: &mut Builder, world: &World) {
    b.add("*.wild", "A", "192.0.2.20");
    b.add("*.wild", "TXT", "\"wild\"");
    b.add("host.ent.wild", "A", "192.0.2.21");
    b.add("*.sub.wild", "MX", "10 mail.elsewhere.example.");
    let www = b.text_of("www");
    b.add("*.wild-cname", "CNAME", www);
    b.add("here.wild-cname", "TXT", "\"not the wildcard\"");
    b.add("*.wild-out", "CNAME", "elsewhere.example.");
    let crossing = target(b, world);
    b.add("*.wild-cross", "CNAME", crossing);
    let to_wild = b.text_of("x.wild");
    b.add("*.wild-wild", "CNAME", to_wild);
    let itself = b.text_of("y.wild-self");
    b.add("*.wild-self", "CNAME", itself);
    b.add("a.*.middle", "TXT", "\"asterisk in the middle\"");
    b.add("*.*.double", "TXT", "\"two asterisks\"");
    b.add("*.only-ent.deep", "A", "192.0.2.22");
    // A cut below a wildcard's parent, beside the wildcard.
    b.add("cut.wild", "NS", "ns.elsewhere.example.");
    b.add("*.wild-srv", "SRV", "0 0 80 www.elsewhere.example.");
}

fn empty_non_terminals(b: &mut Builder) {
    b.add("a.b.c.ent", "TXT", "\"three empty names above\"");
    b.add("z.ent", "A", "192.0.2.30");
    b.add("q.w.e.r.t.y.u.i.o.p", "TXT", "\"ten deep\"");
}

fn delegations(b: &mut Builder, world: &World) {
    let mut cut = |name: &str, server: &str| {
        let server = b.text_of(server);
        b.add(name, "NS", server);
    };
    cut("glue", "ns.glue");
    cut("glue", "ns2.deep.glue");
    cut("sibling", "ns.glue");
    cut("no-glue", "ns.no-glue");
    // Glue that lies below another cut inside the delegated zone.
    cut("nested", "ns.below.nested");
    cut("below.nested", "ns.below.nested");
    cut("inside", "www");
    cut("secure", "ns.secure");
    cut("mixed", "ns.mixed");
    cut("self", "self");
    b.add("mixed", "NS", "ns.elsewhere.example.");
    b.add("outside", "NS", "ns1.elsewhere.example.");
    b.add("outside", "NS", "ns2.elsewhere.example.");
    for host in ["ns.glue", "ns2.deep.glue", "ns.below.nested", "ns.secure", "ns.mixed", "self"] {
        b.add_addresses(host);
    }
    b.add("secure", "DS", format!("4711 13 2 {:064X}", 1));
    b.add("secure", "DS", format!("4712 13 4 {:096x}", 2));
    let origin = b.random.pick(&world.origins).clone();
    b.add("to-hosted", "NS", format!("ns1.{origin}"));
    // Occluded: below a cut, so none of this is the zone's to give out.
    b.add("www.glue", "A", "192.0.2.66");
    b.add("www.glue", "TXT", "\"occluded\"");
    b.add("*.outside", "A", "192.0.2.67");
    b.add("alias.outside", "CNAME", "www.elsewhere.example.");
    b.add("mx.secure", "MX", "10 occluded.elsewhere.example.");
    for index in 0..13 {
        let server = b.text_of(&format!("ns{index}.big-cut"));
        b.add("big-cut", "NS", server);
        b.add(&format!("ns{index}.big-cut"), "A", format!("192.0.2.{}", 100 + index));
        for host in 0..2 {
            let address = format!("2001:db8:1:{host}::{index:x}");
            b.add(&format!("ns{index}.big-cut"), "AAAA", address);
        }
    }
    for index in 0..30 {
        b.add("huge-cut", "NS", format!("a-rather-long-server-name-{index}.elsewhere.example."));
    }
}

pub fn hosted_child(b: &mut Builder, child: &Name, signed: bool) {
    // A grandchild's parent is cut here and hosted nowhere: what follows is then occluded data.
    let parent = child.parent().expect("a child has a parent");
    if parent != b.origin {
        b.add_at(&parent, "NS", "ns.elsewhere.example.");
    }
    b.clear_below(child);
    b.add_at(child, "NS", format!("ns1.{child}"));
    b.add_at(&child.child(b"ns1").expect("a short name"), "A", "192.0.2.53");
    if signed {
        b.add_at(child, "DS", format!("50381 13 2 {:064x}", 99));
    }
}

fn cnames(b: &mut Builder, world: &World) {
    // 20 links pass every server's cap; 7 pass none.
    for (prefix, links) in [("cname-chain", 7), ("cname-long", 20)] {
        for link in 0..links {
            let next = match link + 1 == links {
                true => b.text_of("www"),
                false => b.text_of(&format!("{prefix}-{}", link + 1)),
            };
            b.add(&format!("{prefix}-{link}"), "CNAME", next);
        }
    }
    for (alias, inside) in [
        ("to-nothing", "does-not-exist"),
        ("to-nodata", "z.ent"),
        ("to-ent", "c.ent"),
        ("to-wild", "anything.wild"),
        ("to-wild-ent", "ent.wild"),
        ("to-wild-cname", "q.wild-cname"),
        ("to-dname", "host.dn"),
        ("to-dname-wild", "any.wt.dn"),
        ("to-cut", "www.glue"),
        ("to-cut-apex", "secure"),
        ("to-apex", ""),
        ("to-kid", "www.kid"),
        ("to-kid-apex", "kid"),
        ("to-big", "big-a"),
    ] {
        let target = b.text_of(inside);
        b.add(alias, "CNAME", target);
    }
    b.add("to-outside", "CNAME", "www.elsewhere.example.");
    b.add("to-root", "CNAME", ".");
    for index in 0..6 {
        let target = target(b, world);
        b.add(&format!("to-hosted-{index}"), "CNAME", target);
    }
}

fn loops(b: &mut Builder, world: &World) {
    for length in [1, 2, 5] {
        for link in 0..length {
            let next = b.text_of(&format!("loop{length}-{}", (link + 1) % length));
            b.add(&format!("loop{length}-{link}"), "CNAME", next);
        }
    }
    // Through every hosted zone and back, longer than any cap.
    let mine = world.origins.iter().position(|origin| *origin == b.origin).unwrap_or(0);
    let next = world.origins[(mine + 1) % world.origins.len()].clone();
    b.add("loop-zones", "CNAME", format!("loop-zones.{next}"));
}

/// RFC 6672: inside, across, outside, loops, growth, overflow; with other data at the owner.
fn dnames(b: &mut Builder, world: &World) {
    let tree = b.text_of("dn-tree");
    b.add("dn", "DNAME", tree.clone());
    b.add("dn", "TXT", "\"beside a DNAME\"");
    b.add("dn", "A", "192.0.2.40");
    b.add_addresses("host.dn-tree");
    b.add("*.wt.dn-tree", "TXT", "\"wildcard behind a DNAME\"");
    let www = b.text_of("www");
    b.add("alias.dn-tree", "CNAME", www);
    b.add("cut.dn-tree", "NS", "ns.elsewhere.example.");
    b.add("a.deep.dname", "DNAME", tree.clone());
    let second = b.text_of("dn");
    b.add("dn-twice", "DNAME", second);
    let origin = b.random.pick(&world.origins).clone();
    b.add("dn-cross", "DNAME", origin.to_string());
    b.add("dn-out", "DNAME", "elsewhere.example.");
    b.add("dn-root", "DNAME", ".");
    for (from, to) in [("dn-loop1", "dn-loop2"), ("dn-loop2", "dn-loop1"), ("dn-self", "dn-self")] {
        let target = b.text_of(to);
        b.add(from, "DNAME", target);
    }
    // Every substitution makes the name longer until it overflows or the cap is met.
    let growing = b.text_of("more.dn-grow");
    b.add("dn-grow", "DNAME", growing);
    let longer = "l".repeat(60);
    let growing = b.text_of(&format!("{longer}.dn-leap"));
    b.add("dn-leap", "DNAME", growing);
    let mut long = String::new();
    for letter in ["u", "v", "w"] {
        let _ = write!(long, "{}.", letter.repeat(60));
    }
    let overflowing = b.text_of(&format!("{long}x"));
    b.add("dn-long", "DNAME", overflowing);
    let in_cut = b.text_of("glue");
    b.add("dn-cut", "DNAME", in_cut);
    let at_wild = b.text_of("wild");
    b.add("dn-wild", "DNAME", at_wild);
    b.add("x.dn-parent", "DNAME", tree);
    b.add("y.dn-parent", "TXT", "\"beside\"");
}

fn odd_labels(b: &mut Builder) {
    let top = b.name("odd");
    let labels: [&[u8]; 11] = [
        b"dot.inside",
        b"with space",
        b"\x80\xff\xc3\xa9",
        b"\x00",
        b"nul\x00mid",
        b"_under_score",
        b"back\\slash",
        b"quote\"d",
        b"sem;col(on)@$",
        b"-hyphen-",
        &[b'M'; 63],
    ];
    for label in labels {
        let name = top.child(label).expect("a short name");
        b.add_addresses_at(&name);
        let target = name.to_string();
        b.add("odd-targets", "PTR", target);
    }
    let slash = top.child(b"back\\slash").expect("a short name");
    let alias = top.child(b"to \\ slash").expect("a short name");
    b.add_at(&alias, "CNAME", slash.to_string());
    // A label that is not a wildcard although it begins with an asterisk (RFC 4592 2.1.1).
    b.add_at(&top.child(b"*x").expect("a short name"), "TXT", "\"no wildcard\"");
    b.add("\u{1}.odd", "TXT", "\"control\"");
}

/// RRsets that overflow 512, 1232 and 4096 octets.
fn big_sets(b: &mut Builder) {
    for index in 0..60 {
        b.add("big-a", "A", format!("198.51.100.{index}"));
    }
    for index in 0..25 {
        b.add("mid-aaaa", "AAAA", format!("2001:db8:2::{index:x}"));
    }
    for index in 0..30 {
        b.add("big-txt", "TXT", format!("\"{index:03}{}\"", "t".repeat(180)));
        b.add("*.big-wild", "TXT", format!("\"{index:03}{}\"", "w".repeat(40)));
    }
    for index in 0..12 {
        b.add("big-mx", "MX", format!("{index} mx{index}.big-mx-hosts.elsewhere.example."));
        let host = b.text_of(&format!("mx{index}"));
        b.add("mx-with-hosts", "MX", format!("{index} {host}"));
        b.add_addresses(&format!("mx{index}"));
    }
    // Sizes around the limits, where one octet decides.
    let size = 420 + b.random.below(80);
    let (first, second) = (size.min(255), size.saturating_sub(255).max(1));
    b.add("edge", "TXT", format!("\"{}\" \"{}\"", "e".repeat(first), "f".repeat(second)));
    let strings = vec![format!("\"{}\"", "g".repeat(220)); 5];
    b.add("edge-1232", "TXT", strings.join(" "));
}

/// Names of the full length: an owner, an alias to it, and an empty space below.
fn long_names(b: &mut Builder) {
    let mut name = b.name("long");
    loop {
        let room = b.owner_octets_max - name.wire().len();
        if room < 2 {
            break;
        }
        // Leave either nothing or enough for another label of one octet.
        let size = match room {
            65 => 62,
            _ => (room - 1).min(63),
        };
        name = name.child(&vec![b'n'; size]).expect("room was counted");
    }
    assert_eq!(name.wire().len(), b.owner_octets_max);
    b.add_at(&name, "A", "192.0.2.55");
    b.add("to-longest", "CNAME", name.to_string());
    let parent = name.parent().expect("not the root");
    b.add_at(&parent, "TXT", "\"one below the longest\"");
}

pub fn apex_dname(b: &mut Builder, world: &World) {
    let target = match b.random.chance(70) {
        true => b.random.pick(&world.origins).clone(),
        false => Name::plain("elsewhere.example."),
    };
    b.add("", "DNAME", target.to_string());
    b.add("", "A", "192.0.2.90");
}
