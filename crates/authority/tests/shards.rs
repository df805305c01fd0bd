//! Zones on shards of virtual name servers: answered there, and elsewhere as
//! if this server did not have them.

mod common;

use std::sync::Arc;

use authority::{Catalog, Change, Image, NameHasher, Placement, Shard, ShardServer};
use common::{HASHER, ask_at, compile_for, extended_error, show};

/// The shard of these servers, called `n` and their number.
fn shard(numbers: &[u16]) -> Placement {
    let server = |number: &u16| ShardServer {
        number: *number,
        name: Arc::from(wire::name::from_text(&format!("n{number}.test.")).unwrap()),
    };
    Placement::Shard(Shard::new(numbers.iter().map(server).collect()).unwrap())
}

fn zone(origin: &str, rest: &str) -> String {
    format!("$ORIGIN {origin}\n$TTL 9\n@ SOA a b 1 2 3 4 5\n{rest}")
}

fn catalog(zones: &[(&[u16], String)]) -> Catalog {
    let put = |(numbers, text): &(&[u16], String)| {
        let (image, problems) = compile_for(&shard(numbers), text);
        Change::Put(image.unwrap_or_else(|| panic!("{problems}")))
    };
    Catalog::default().with(zones.iter().map(put).collect())
}

/// Asks `server` and compares the answer as text; and the extended error, if
/// the answer has one.
fn check(catalog: &Catalog, server: u16, query: &str, expected: &str) {
    let answer = ask_at(Some(server), catalog, &format!("{query} edns"));
    let error = extended_error(&answer).map_or(String::new(), |text| format!("{text}\n"));
    let shown = show(&answer).replace(".. ", ". ") + &error;
    let expected: String = expected.lines().map(|line| format!("{}\n", line.trim())).collect();
    assert_eq!(shown, expected, "{query} at {server}");
}

const NOT_HERE: &str = "REFUSED\nnot a name server of this name's zone";

#[test]
fn a_zone_is_answered_on_its_servers_alone() {
    let catalog = catalog(&[(&[3, 4], zone("e.", "www A 192.0.2.1\n@ NS old.\n"))]);
    let address = "NOERROR aa\nan www.e. 9 A 192.0.2.1";
    check(&catalog, 3, "www.e. A", address);
    check(&catalog, 4, "www.e. A", address);
    check(&catalog, 4, "e. NS", "NOERROR aa\nan e. 9 NS n3.test.\nan e. 9 NS n4.test.");
    for (server, query) in [(2, "www.e. A"), (0, "e. SOA"), (5, "e. DS"), (5, "no.e. A")] {
        check(&catalog, server, query, NOT_HERE);
    }
    check(&catalog, 3, "www.f. A", "REFUSED\nno zone here holds this name");
    check(&catalog, 2, "www.f. A", "REFUSED\nno zone here holds this name");
    // An address that is no virtual name server knows every zone.
    assert!(show(&ask_at(None, &catalog, "www.e. A")).starts_with("NOERROR aa"));
}

#[test]
fn the_next_zone_above_that_is_served_there_answers() {
    let catalog = catalog(&[
        (&[1, 2], zone("e.", "kid NS n3.test.\nkid DS 1 8 2 00\n")),
        (&[2, 3], zone("kid.e.", "www A 192.0.2.1\n")),
        (&[4], zone("sub.kid.e.", "www A 192.0.2.2\n")),
    ]);
    check(&catalog, 1, "www.kid.e. A", "NOERROR\nau kid.e. 9 NS n3.test.");
    check(&catalog, 1, "www.sub.kid.e. A", "NOERROR\nau kid.e. 9 NS n3.test.");
    check(&catalog, 2, "www.kid.e. A", "NOERROR aa\nan www.kid.e. 9 A 192.0.2.1");
    let no_name = "NXDOMAIN aa\nau kid.e. 5 SOA a.kid.e. b.kid.e. 1 2 3 4 5";
    check(&catalog, 3, "www.sub.kid.e. A", no_name);
    check(&catalog, 4, "www.sub.kid.e. A", "NOERROR aa\nan www.sub.kid.e. 9 A 192.0.2.2");
    check(&catalog, 4, "www.kid.e. A", NOT_HERE);
    // DS records are the parent's, where that is served.
    check(&catalog, 2, "kid.e. DS", "NOERROR aa\nan kid.e. 9 DS 1 8 2 00");
    check(&catalog, 3, "kid.e. DS", "NOERROR aa\nau kid.e. 5 SOA a.kid.e. b.kid.e. 1 2 3 4 5");
}

#[test]
fn aliases_do_not_enter_zones_that_others_serve() {
    let catalog = catalog(&[
        (&[1, 2], zone("e.", "c CNAME www.f.\nd DNAME f.\n")),
        (&[2, 3], zone("f.", "www A 192.0.2.1\n")),
    ]);
    check(&catalog, 1, "c.e. A", "NOERROR aa\nan c.e. 9 CNAME www.f.");
    check(
        &catalog,
        2,
        "c.e. A",
        "NOERROR aa
         an c.e. 9 CNAME www.f.
         an www.f. 9 A 192.0.2.1",
    );
    check(
        &catalog,
        1,
        "www.d.e. A",
        "NOERROR aa
         an d.e. 9 DNAME f.
         an www.d.e. 9 CNAME www.f.",
    );
}

#[test]
fn a_broken_zone_is_broken_on_its_servers() {
    let name = wire::name::from_text("bad.test").unwrap();
    let hasher = NameHasher::new(HASHER);
    let image = Image::broken(wire::Name::parse(&name).unwrap(), &shard(&[7]), &hasher);
    let catalog = Catalog::default().with(vec![Change::Put(image)]);
    check(&catalog, 7, "x.bad.test. A", "SERVFAIL\nthe zone's data is not valid");
    check(&catalog, 8, "x.bad.test. A", NOT_HERE);
}
