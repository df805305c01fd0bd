//! Every rule of an authoritative answer, by example: zones, a question, and
//! the whole answer as text.

mod common;

use std::fmt::Write as _;

use authority::{Catalog, Change, Image, NameHasher, Placement};
use common::{HASHER, ask, catalog, compile, extended_error, show};

fn check(zones: &[&str], query: &str, expected: &str) {
    let shown = show(&ask(&catalog(zones), query));
    let expected: String = expected.lines().map(|line| format!("{}\n", line.trim())).collect();
    let expected = expected.trim_start_matches('\n');
    assert_eq!(shown.replace(".. ", ". "), expected, "{query}");
}

const ZONE: &str = "
$ORIGIN example.
$TTL 3600
@ SOA ns1 host 1 2 3 4 60
@ NS ns1
@ NS ns.other.test.
@ MX 10 Mail
ns1 A 192.0.2.1
ns1 AAAA 2001:db8::1
mail A 192.0.2.2
www A 192.0.2.3
alias CNAME www
away CNAME elsewhere.test.
dead CNAME nothing
chain1 CNAME chain2
chain2 CNAME chain3
chain3 CNAME www
loop1 CNAME loop2
loop2 CNAME loop1
self CNAME self
*.wild A 192.0.2.4
*.wild MX 1 mail
below.ent.wild TXT x
*.walias CNAME www
a.b.c TXT deep
child NS ns.child
child NS ns.sibling
child DS 1 8 2 00112233445566778899AABBCCDDEEFF00112233445566778899AABBCCDDEEFF
ns.child A 192.0.2.5
hidden.child A 192.0.2.6
sibling NS ns.sibling
ns.sibling A 192.0.2.7
lame NS ns.nowhere.test.
wcut NS ns.wcut
*.wcut A 192.0.2.10
dn DNAME target.test.
dloop DNAME x.dloop
dlocal DNAME c
_s._tcp SRV 1 2 3 mail
svc HTTPS 1 . alpn=h2
svc A 192.0.2.8
alias-svc HTTPS 0 www
UPPER A 192.0.2.9
";

#[test]
fn names_that_exist() {
    let check = |query: &str, expected: &str| check(&[ZONE], query, expected);
    check("www.example. A", "NOERROR aa\nan www.example. 3600 A 192.0.2.3");
    check("wWw.eXample. A", "NOERROR aa\nan wWw.eXample. 3600 A 192.0.2.3");
    check("upper.example. A", "NOERROR aa\nan upper.example. 3600 A 192.0.2.9");
    check(
        "www.example. AAAA",
        "NOERROR aa\nau example. 60 SOA ns1.example. host.example. 1 2 3 4 60",
    );
    check(
        "example. MX",
        "NOERROR aa\nan example. 3600 MX 10 Mail.example.\nad Mail.example. 3600 A 192.0.2.2",
    );
    check(
        "example. NS",
        "NOERROR aa
         an example. 3600 NS ns.other.test.
         an example. 3600 NS ns1.example.
         ad ns1.example. 3600 A 192.0.2.1
         ad ns1.example. 3600 AAAA 2001:db8::1",
    );
    check(
        "_s._tcp.example. SRV",
        "NOERROR aa
         an _s._tcp.example. 3600 SRV 1 2 3 mail.example
         ad mail.example. 3600 A 192.0.2.2",
    );
    check(
        "svc.example. HTTPS",
        "NOERROR aa\nan svc.example. 3600 HTTPS 1 . alpn=h2\nad svc.example. 3600 A 192.0.2.8",
    );
    check(
        "alias-svc.example. HTTPS",
        "NOERROR aa
         an alias-svc.example. 3600 HTTPS 0 www.example.
         ad www.example. 3600 A 192.0.2.3",
    );
    // RFC 8482: one set is enough.
    check("ns1.example. ANY", "NOERROR aa\nan ns1.example. 3600 A 192.0.2.1");
}

/// RFC 9460, 4.1: addresses and records of the same type for the targets that
/// the zone holds.
#[test]
fn services() {
    let zone = "$ORIGIN t.\n$TTL 9\n@ SOA a b 1 2 3 4 5\n@ NS ns.x.\n\
        svc SVCB 0 target\ntarget SVCB 1 host\ntarget A 192.0.2.1\nhost A 192.0.2.2\n\
        web HTTPS 0 target\nbare SVCB 0 only\nonly SVCB 1 .\nown HTTPS 1 own\n\
        own A 192.0.2.3\nring SVCB 0 ring\noff HTTPS 0 .\noff A 192.0.2.4\n\
        on HTTPS 1 .\non A 192.0.2.5\non HTTPS 2 on\nout SVCB 1 in.cut\ncut NS ns.x.\nin.cut A 192.0.2.6\n";
    let check = |query: &str, expected: &str| check(&[zone], query, expected);
    check(
        "svc.t. SVCB",
        "NOERROR aa
         an svc.t. 9 SVCB 0 target.t.
         ad target.t. 9 A 192.0.2.1
         ad target.t. 9 SVCB 1 host.t.",
    );
    // Only the type asked for leads on.
    check("web.t. HTTPS", "NOERROR aa\nan web.t. 9 HTTPS 0 target.t.\nad target.t. 9 A 192.0.2.1");
    check("bare.t. SVCB", "NOERROR aa\nan bare.t. 9 SVCB 0 only.t.\nad only.t. 9 SVCB 1 .");
    // What the answer section holds is not sent again.
    check("own.t. HTTPS", "NOERROR aa\nan own.t. 9 HTTPS 1 own.t.\nad own.t. 9 A 192.0.2.3");
    check("ring.t. SVCB", "NOERROR aa\nan ring.t. 9 SVCB 0 ring.t.");
    // RFC 9460, 2.5.1: there is no such service, so nobody needs its address.
    check("off.t. HTTPS", "NOERROR aa\nan off.t. 9 HTTPS 0 .");
    check(
        "on.t. HTTPS",
        "NOERROR aa\nan on.t. 9 HTTPS 1 .\nan on.t. 9 HTTPS 2 on.t.\nad on.t. 9 A 192.0.2.5",
    );
    // Somebody else is the authority below a cut.
    check("out.t. SVCB", "NOERROR aa\nan out.t. 9 SVCB 1 in.cut.t.");
}

/// Addresses from a wildcard would need a proof beside their signature (RFC
/// 9460, 4.3); they are a courtesy, so the asker is left to ask for them.
#[test]
fn signed_addresses_from_a_wildcard_are_left_out() {
    let head = "$ORIGIN t.\n$TTL 9\n@ SOA a b 1 2 3 4 5\n@ NS ns.x.\n@ NSEC t. NS SOA NSEC\n";
    let zone = [
        head,
        "m MX 1 x.w\nm MX 2 h\n*.w A 192.0.2.1\nh A 192.0.2.2\n",
        "*.s HTTPS 1 .\n*.s A 192.0.2.3\n",
        &signature("*.w", "A", 2, 30),
        &signature("*.s", "A", 2, 30),
        &signature("*.s", "HTTPS", 2, 30),
        &signature("h", "A", 2, 30),
    ]
    .concat();
    let plain = "ad h.t. 9 A 192.0.2.2";
    check(
        &[&zone],
        "m.t. MX",
        &format!(
            "NOERROR aa\nan m.t. 9 MX 1 x.w.t.\nan m.t. 9 MX 2 h.t.\nad x.w.t. 9 A 192.0.2.1\n{plain}"
        ),
    );
    check(
        &[&zone],
        "m.t. MX do",
        &format!(
            "NOERROR aa\nan m.t. 9 MX 1 x.w.t.\nan m.t. 9 MX 2 h.t.\n{plain}\nad h.t. 9 RRSIG A"
        ),
    );
    // The proof for the answer is one for its addresses too.
    let shown = show(&ask(&catalog(&[&zone]), "x.s.t. HTTPS do"));
    assert!(shown.contains("au t. 9 NSEC") && shown.contains("ad x.s.t. 9 RRSIG A"), "{shown}");
}

#[test]
fn names_that_do_not() {
    let check = |query: &str, expected: &str| check(&[ZONE], query, expected);
    let soa = "au example. 60 SOA ns1.example. host.example. 1 2 3 4 60";
    check("no.example. A", &format!("NXDOMAIN aa\n{soa}"));
    check("x.www.example. A", &format!("NXDOMAIN aa\n{soa}"));
    // Empty non-terminals exist (RFC 8020).
    check("b.c.example. A", &format!("NOERROR aa\n{soa}"));
    check("c.example. TXT", &format!("NOERROR aa\n{soa}"));
    check("x.c.example. TXT", &format!("NXDOMAIN aa\n{soa}"));
    check("other.test. A", "REFUSED");
    check(". NS", "REFUSED");
}

#[test]
fn wildcards() {
    let check = |query: &str, expected: &str| check(&[ZONE], query, expected);
    let soa = "au example. 60 SOA ns1.example. host.example. 1 2 3 4 60";
    check("x.wild.example. A", "NOERROR aa\nan x.wild.example. 3600 A 192.0.2.4");
    check("x.y.wild.example. A", "NOERROR aa\nan x.y.wild.example. 3600 A 192.0.2.4");
    check("*.wild.example. A", "NOERROR aa\nan *.wild.example. 3600 A 192.0.2.4");
    check("x.wild.example. TXT", &format!("NOERROR aa\n{soa}"));
    // RFC 4592, 2.2.2: what exists, if only as a step, is not covered.
    check("ent.wild.example. A", &format!("NOERROR aa\n{soa}"));
    check("x.ent.wild.example. A", &format!("NXDOMAIN aa\n{soa}"));
    check("wild.example. A", &format!("NOERROR aa\n{soa}"));
    check(
        "x.walias.example. A",
        "NOERROR aa\nan x.walias.example. 3600 CNAME www.example.\nan www.example. 3600 A 192.0.2.3",
    );
    check(
        "x.wild.example. MX",
        "NOERROR aa\nan x.wild.example. 3600 MX 1 mail.example.\nad mail.example. 3600 A 192.0.2.2",
    );
}

#[test]
fn aliases() {
    let check = |query: &str, expected: &str| check(&[ZONE], query, expected);
    check(
        "alias.example. A",
        "NOERROR aa\nan alias.example. 3600 CNAME www.example.\nan www.example. 3600 A 192.0.2.3",
    );
    check("alias.example. CNAME", "NOERROR aa\nan alias.example. 3600 CNAME www.example.");
    check("alias.example. ANY", "NOERROR aa\nan alias.example. 3600 CNAME www.example.");
    check("away.example. A", "NOERROR aa\nan away.example. 3600 CNAME elsewhere.test.");
    // RFC 6604: the code is that of the last name.
    check(
        "dead.example. A",
        "NXDOMAIN aa
         an dead.example. 3600 CNAME nothing.example.
         au example. 60 SOA ns1.example. host.example. 1 2 3 4 60",
    );
    check(
        "chain1.example. A",
        "NOERROR aa
         an chain1.example. 3600 CNAME chain2.example.
         an chain2.example. 3600 CNAME chain3.example.
         an chain3.example. 3600 CNAME www.example.
         an www.example. 3600 A 192.0.2.3",
    );
    check("self.example. A", "NOERROR aa\nan self.example. 3600 CNAME self.example.");
    check(
        "loop1.example. A",
        "NOERROR aa
         an loop1.example. 3600 CNAME loop2.example.
         an loop2.example. 3600 CNAME loop1.example.",
    );
}

#[test]
fn a_loop_is_named_in_the_answer() {
    let catalog = catalog(&[ZONE]);
    let error = |query: &str| extended_error(&ask(&catalog, query));
    for query in ["self.example. A edns", "loop1.example. A edns"] {
        assert_eq!(error(query).as_deref(), Some("the chain of aliases is a loop"), "{query}");
    }
    for query in ["chain1.example. A edns", "dead.example. A edns", "away.example. A edns"] {
        assert_eq!(error(query), None, "{query}");
    }
}

#[test]
fn a_chain_ends_at_its_bound() {
    let mut zone = String::from("$ORIGIN e.\n$TTL 1\n@ SOA a b 1 2 3 4 5\n@ NS ns.test.\n");
    for link in 0..40 {
        let _ = writeln!(zone, "c{link} CNAME c{}", link + 1);
    }
    let answer = ask(&catalog(&[&zone]), "c0.e. A tcp");
    assert_eq!(show(&answer).lines().count(), 1 + authority::respond::CHAIN_LEN_MAX + 1);
}

#[test]
fn redirections() {
    let check = |query: &str, expected: &str| check(&[ZONE], query, expected);
    check(
        "x.y.dn.example. A",
        "NOERROR aa
         an dn.example. 3600 DNAME target.test.
         an x.y.dn.example. 3600 CNAME x.y.target.test.",
    );
    check("dn.example. DNAME", "NOERROR aa\nan dn.example. 3600 DNAME target.test.");
    check("dn.example. A", "NOERROR aa\nau example. 60 SOA ns1.example. host.example. 1 2 3 4 60");
    check(
        "a.b.dlocal.example. TXT",
        "NOERROR aa
         an dlocal.example. 3600 DNAME c.example.
         an a.b.dlocal.example. 3600 CNAME a.b.c.example.
         an a.b.c.example. 3600 TXT \"deep\"",
    );
    // RFC 6672, 2.2: the name grows until it is none.
    let long = format!("aa.{}dn.example. A", "aaaaaaaaa.".repeat(24));
    let shown = show(&ask(&catalog(&[ZONE]), &long));
    assert_eq!(shown, "YXDOMAIN aa\nan dn.example. 3600 DNAME target.test.\n");
    // A DNAME that leads below itself is sent once, however often it applies.
    let shown = show(&ask(&catalog(&[ZONE]), "q.dloop.example. A tcp"));
    assert_eq!(shown.matches(" DNAME ").count(), 1, "{shown}");
    assert_eq!(shown.matches(" CNAME ").count(), authority::respond::CHAIN_LEN_MAX + 1, "{shown}");
}

/// A chain that ends at a DNAME it has passed does not send it again.
#[test]
fn a_redirection_that_leads_to_itself() {
    let back = "$ORIGIN t.\n$TTL 9\n@ SOA a b 1 2 3 4 5\n@ NS ns.x.\nx DNAME t.\n*.w DNAME t.\n";
    for qtype in ["ANY", "DNAME"] {
        check(
            &[back],
            &format!("x.x.t. {qtype}"),
            "NOERROR aa\nan x.t. 9 DNAME t.\nan x.x.t. 9 CNAME x.t.",
        );
        // What a wildcard makes of it has another owner.
        check(
            &[back],
            &format!("y.w.*.w.t. {qtype}"),
            "NOERROR aa
             an *.w.t. 9 DNAME t.
             an y.w.*.w.t. 9 CNAME y.w.t.
             an y.w.t. 9 DNAME t.",
        );
    }
}

#[test]
fn delegations() {
    let check = |query: &str, expected: &str| check(&[ZONE], query, expected);
    let child = "NOERROR
         au child.example. 3600 NS ns.child.example.
         au child.example. 3600 NS ns.sibling.example.
         ad ns.child.example. 3600 A 192.0.2.5
         ad ns.sibling.example. 3600 A 192.0.2.7";
    check("x.y.child.example. A", child);
    check("child.example. A", child);
    check("child.example. NS", child);
    check("child.example. ANY", child);
    // Glue and hidden data are not this zone's to answer.
    check("ns.child.example. A", child);
    check("hidden.child.example. A", child);
    check(
        "child.example. DS",
        "NOERROR aa
         an child.example. 3600 DS 1 8 2 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
    );
    check("lame.example. A", "NOERROR\nau lame.example. 3600 NS ns.nowhere.test.");
    // Below a cut there is nothing to make records from.
    check("wcut.example. A", "NOERROR\nau wcut.example. 3600 NS ns.wcut.example.");
    check(
        "sibling.example. DS",
        "NOERROR aa\nau example. 60 SOA ns1.example. host.example. 1 2 3 4 60",
    );
}

#[test]
fn several_zones() {
    let child = "$ORIGIN child.example.\n$TTL 9\n@ SOA ns host 7 2 3 4 5\n@ NS ns\nns A 192.0.2.50\nx CNAME www.example.\n";
    let zones = [ZONE, child];
    check(&zones, "ns.child.example. A", "NOERROR aa\nan ns.child.example. 9 A 192.0.2.50");
    check(
        &zones,
        "x.child.example. A",
        "NOERROR aa\nan x.child.example. 9 CNAME www.example.\nan www.example. 3600 A 192.0.2.3",
    );
    // The parent's side holds DS, the child's everything else.
    check(
        &zones,
        "child.example. DS",
        "NOERROR aa
         an child.example. 3600 DS 1 8 2 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
    );
    check(
        &[child],
        "child.example. DS",
        "NOERROR aa\nau child.example. 5 SOA ns.child.example. host.child.example. 7 2 3 4 5",
    );
}

/// RFC 4035, 3.1.4.1: who is the authority for the child but not for its parent
/// says that the child has no DS records, whatever else lies above.
#[test]
fn ds_of_a_child_whose_parent_is_elsewhere() {
    let root =
        "$ORIGIN .\n$TTL 9\n@ SOA a b 1 2 3 4 5\n@ NS ns.x.\norg NS ns.org\nns.org A 192.0.2.1\n";
    let child = "$ORIGIN example.org.\n$TTL 9\n@ SOA ns host 7 2 3 4 5\n@ NS ns\nns A 192.0.2.50\n";
    check(
        &[root, child],
        "example.org. DS",
        "NOERROR aa\nau example.org. 5 SOA ns.example.org. host.example.org. 7 2 3 4 5",
    );
    // The parent's side of its own cut stays with the parent.
    check(
        &[root, "$ORIGIN org.\n$TTL 9\n@ SOA a b 8 2 3 4 5\n@ NS ns.x.\n"],
        "org. DS",
        "NOERROR aa\nau . 5 SOA a. b. 1 2 3 4 5",
    );
    check(&[root], "example.org. DS", "NOERROR\nau org. 9 NS ns.org.\nad ns.org. 9 A 192.0.2.1");
}

/// A name in a chain may stand in the message in pieces: labels, then a pointer
/// to the rest. The names of zones further on must be found in it all the same.
#[test]
fn chains_through_zones_whose_names_stand_in_pieces() {
    let zone = |origin: &str, rest: &str| {
        format!("$ORIGIN {origin}\n$TTL 9\n@ SOA a b 1 2 3 4 5\n@ NS ns.x.\n{rest}")
    };
    let zones = [
        zone("f.test.", "a CNAME a.kid\nkid NS ns.x.\nkid DS 1 8 2 00\ntokid CNAME b.kid\n"),
        zone("kid.f.test.", "a CNAME c\nc CNAME z.s.test.\nb CNAME d\nd CNAME kid.f.test.\n"),
        zone("s.test.", "z CNAME no.where\n"),
        zone("test.", "f NS ns.x.\n"),
    ];
    let zones: Vec<&str> = zones.iter().map(String::as_str).collect();
    check(
        &zones,
        "a.f.test. A",
        "NXDOMAIN aa
         an a.f.test. 9 CNAME a.kid.f.test.
         an a.kid.f.test. 9 CNAME c.kid.f.test.
         an c.kid.f.test. 9 CNAME z.s.test.
         an z.s.test. 9 CNAME no.where.s.test.
         au s.test. 5 SOA a.s.test. b.s.test. 1 2 3 4 5",
    );
    check(
        &zones,
        "tokid.f.test. DS",
        "NOERROR aa
         an tokid.f.test. 9 CNAME b.kid.f.test.
         an b.kid.f.test. 9 CNAME d.kid.f.test.
         an d.kid.f.test. 9 CNAME kid.f.test.
         an kid.f.test. 9 DS 1 8 2 00",
    );
}

/// A zone of this name that could not be loaded.
fn broken(origin: &str) -> Change {
    let name = wire::name::from_text(origin).unwrap();
    Change::Put(Image::broken(
        wire::Name::parse(&name).unwrap(),
        &Placement::Everywhere,
        &NameHasher::new(HASHER),
    ))
}

#[test]
fn a_broken_zone_says_so() {
    let catalog = Catalog::default().with(vec![broken("bad.test")]);
    let answer = ask(&catalog, "x.bad.test. A edns");
    assert_eq!(show(&answer), "SERVFAIL\n");
    // Extended error 24, invalid data.
    assert!(answer.windows(4).any(|octets| octets[..2] == [0, 15] && octets[3] > 2));
}

/// An alias into a broken zone is as good as one to somebody else's: its own
/// zone still answers, and the asker will hear of the other one there.
#[test]
fn an_alias_into_a_broken_zone_is_still_an_answer() {
    let zone = "$ORIGIN e.\n$TTL 1\n@ SOA a b 1 2 3 4 5\n@ NS ns.test.\n\
                c CNAME www.bad.test.\nd DNAME bad.test.\n";
    let catalog = catalog(&[zone]).with(vec![broken("bad.test")]);
    assert_eq!(show(&ask(&catalog, "c.e. A")), "NOERROR aa\nan c.e. 1 CNAME www.bad.test.\n");
    assert_eq!(
        show(&ask(&catalog, "x.d.e. A")),
        "NOERROR aa\nan d.e. 1 DNAME bad.test.\nan x.d.e. 1 CNAME x.bad.test.\n"
    );
}

#[test]
fn sets_that_do_not_fit_are_left_out_whole() {
    let mut zone = String::from("$ORIGIN e.\n$TTL 1\n@ SOA a b 1 2 3 4 5\n@ NS ns.test.\n");
    for host in 0..200 {
        let _ =
            writeln!(zone, "big A 10.0.0.{host}\nmany MX 1 host{host}\nhost{host} A 10.1.0.{host}");
        let _ = writeln!(zone, "cut NS n{host}.cut\nn{host}.cut A 10.2.0.{host}");
    }
    let catalog = catalog(&[&zone]);
    assert_eq!(show(&ask(&catalog, "big.e. A")), "NOERROR aa tc\n");
    assert_eq!(show(&ask(&catalog, "big.e. A edns")), "NOERROR aa tc\n");
    assert_eq!(show(&ask(&catalog, "big.e. A tcp")).lines().count(), 201);
    // Helpful addresses may be left out without a word.
    let many = show(&ask(&catalog, "many.e. MX tcp"));
    assert!(many.starts_with("NOERROR aa\n"));
    assert_eq!(many.lines().count(), 401);
    // Glue may not (RFC 9471).
    assert!(show(&ask(&catalog, "x.cut.e. A edns")).starts_with("NOERROR tc\n"));
    assert_eq!(show(&ask(&catalog, "x.cut.e. A tcp")).lines().count(), 401);
}

/// Far into a message no compression pointer reaches; names stand in full.
#[test]
fn large_answers_hold_up_beyond_the_reach_of_pointers() {
    let mut zone = String::from("$ORIGIN e.\n$TTL 1\n@ SOA a b 1 2 3 4 5\n@ NS ns.test.\n");
    for host in 0..1500 {
        let _ = writeln!(zone, "@ MX 1 host{host}.sub\nhost{host}.sub A 10.0.0.1");
    }
    let shown = show(&ask(&catalog(&[&zone]), "e. MX tcp"));
    assert_eq!(shown.matches(" MX ").count(), 1500);
    assert!(
        shown.contains("ad host1499.sub.e. 1 A 10.0.0.1") || shown.contains("ad host9.sub.e. 1 A")
    );
}

/// A signature in the zone `t.` of about this many octets over the records of a
/// name; nobody here checks it.
fn signature(owner: &str, covered: &str, labels: usize, octets: usize) -> String {
    let data = "AAAA".repeat(octets / 3);
    format!("{owner} RRSIG {covered} 13 {labels} 60 20300101000000 20200101000000 1 t. {data}\n")
}

/// Behind large signatures no compression pointer reaches the end of a chain:
/// it ends there, whole records all the way, and the asker goes on by itself.
#[test]
fn a_chain_ends_where_no_pointer_reaches() {
    let head = "$ORIGIN t.\n$TTL 60\n@ SOA a b 1 2 3 4 5\n@ NS ns.x.\n";
    let zone = [
        head,
        "d DNAME big\nw.big A 192.0.2.1\nw.big MX 1 w.big\nc CNAME w.big\n",
        &signature("d", "DNAME", 2, 18_000),
        &signature("c", "CNAME", 2, 9_000),
    ]
    .concat();
    let catalog = catalog(&[&zone]);
    for qtype in ["A", "MX", "TXT", "ANY"] {
        let answer = ask(&catalog, &format!("w.d.t. {qtype} do tcp"));
        assert_eq!(
            show(&answer).replace(".. ", ". "),
            "NOERROR aa
             an d.t. 60 DNAME big.t.
             an d.t. 60 RRSIG DNAME
             an w.d.t. 60 CNAME w.big.t.
             "
            .replace("             ", ""),
            "{qtype}"
        );
        assert_eq!(extended_error(&answer).as_deref(), Some("the chain of aliases is too long"));
    }
    for qtype in ["A", "MX", "TXT"] {
        let shown = show(&ask(&catalog, &format!("c.t. {qtype} do tcp")));
        assert!(shown.starts_with("NOERROR aa\nan c.t. 60 CNAME w.big.t"), "{qtype}: {shown}");
        assert_eq!(shown.lines().count(), 3, "{qtype}: {shown}");
    }
    // Without signatures everything is near.
    assert_eq!(show(&ask(&catalog, "w.d.t. A tcp")).lines().count(), 4);
}

#[test]
fn problems_of_whole_zones() {
    let head = "$ORIGIN e.\n$TTL 1\n@ SOA a b 1 2 3 4 5\n@ NS ns.test.\n";
    let check = |text: &str, is_good: bool, expected: &str| {
        let (image, problems) = compile(text);
        assert_eq!(image.is_some(), is_good, "{problems}");
        assert!(problems.to_string().contains(expected), "{problems}");
    };
    check("$ORIGIN e.\n$TTL 1\n@ NS ns.test.\n", false, "no SOA record; accepted: ");
    check("$ORIGIN e.\n$TTL 1\n@ SOA a b 1 2 3 4 5\n", false, "3:1: error: no NS record at e.");
    check(&format!("{head}@ SOA a b 2 2 3 4 5\n"), false, "a second SOA record; the first is at");
    check(&format!("{head}x CNAME y\nx A 10.0.0.1\n"), false, "other data beside the CNAME");
    check(&format!("{head}x CNAME y\nx CNAME z\n"), false, "a second CNAME record at x.e.");
    check(&format!("{head}@ CNAME z\n"), false, "other data beside the CNAME record at e.");
    check(&format!("{head}x DNAME y\nx DNAME z\n"), false, "a second DNAME");
    check(&format!("{head}x DNAME y\na.b.x A 10.0.0.1\n"), false, "lies below a DNAME record");
    check(&format!("{head}x NS ns.test.\nx DNAME y\n"), false, "an NS record beside the DNAME");
    check(&format!("{head}x.test. A 10.0.0.1\n"), true, "x.test. is outside the zone e.");
    check(&format!("{head}x 5 A 10.0.0.1\nx 9 A 10.0.0.2\n"), true, "TTL 9 differs from the TTL 5");
    check(&format!("{head}*.x NS ns.test.\n"), true, "at the wildcard *.x.e. delegates nothing");
    check(&format!("{head}x NS ns.x\n"), true, "the name server ns.x.e. has no address");
    check(&format!("{head}x NS ns.x\n*.x A 10.0.0.1\n"), true, "the name server ns.x.e. has no");
    check(&format!("{head}@ NS ns\n"), true, "the name server ns.e. has no address");
    check(&format!("{head}@ DNAME y.test.\n"), true, "");
    let (_, problems) = compile(&format!("{head}x A 10.0.0.1\nX A 10.0.0.1\n"));
    assert!(problems.is_empty(), "a record twice is one record: {problems}");
}
