//! The calls of dig, kdig, delv, drill and ldns-verify-zone.

use std::path::Path;

use super::Check;
use super::sample::ORIGINS;
use crate::peers::ZoneFile;

pub fn all(port: u16, anchors: &Path, zones: &[ZoneFile]) -> Vec<Check> {
    let mut checks = dig(port);
    checks.extend(kdig(port));
    for origin in ORIGINS {
        checks.extend(delv(port, anchors, origin));
    }
    checks.push(check(
        "drill with DNSSEC",
        &format!("drill -D -p {port} @127.0.0.1 www.zone.example A"),
        &["rcode: NOERROR", "192.0.2.10", "RRSIG"],
        &[],
    ));
    for zone in zones {
        // Not of the server: that what the validators judge is sound to begin with.
        let line = format!("ldns-verify-zone {}", zone.path.display());
        let name = format!("ldns-verify-zone finds {} sound", zone.origin);
        checks.push(check(&name, &line, &["Zone is verified and complete"], &[]));
    }
    checks
}

fn check(name: &str, line: &str, has: &[&'static str], lacks: &[&'static str]) -> Check {
    let line = line.split_whitespace().map(str::to_owned).collect();
    Check { name: name.to_owned(), line, has: has.to_vec(), lacks: lacks.to_vec() }
}

/// What dig prints when something is off with a message it could read.
const DIG_COMPLAINTS: [&str; 5] =
    ["WARNING", "malformed", "Question section mismatch", "extra bytes", "communications error"];

fn dig(port: u16) -> Vec<Check> {
    let dig = |name: &str, rest: &str, has: &[&'static str]| {
        let line = format!("dig @127.0.0.1 -p {port} +norecurse {rest}");
        check(name, &line, has, &DIG_COMPLAINTS)
    };
    vec![
        dig("dig plain", "www.zone.example A", &["status: NOERROR", "qr aa", "192.0.2.10"]),
        dig("dig +noedns", "+noedns www.zone.example A", &["status: NOERROR", "192.0.2.10"]),
        dig("dig +tcp", "+tcp www.zone.example AAAA", &["2001:db8::10", "(TCP)"]),
        dig("dig +dnssec", "+dnssec www.zone.example A", &["flags: do", "RRSIG"]),
        dig("dig +nsid", "+nsid www.zone.example A", &["status: NOERROR", "192.0.2.10"]),
        dig("dig +cookie", "+cookie www.zone.example A", &["status: NOERROR", "192.0.2.10"]),
        dig(
            "dig +bufsize truncates",
            "+bufsize=512 +ignore big.zone.example TXT",
            &["status: NOERROR", "aa tc"],
        ),
        dig(
            "dig returns by TCP after TC",
            "+bufsize=512 big.zone.example TXT",
            &["Truncated, retrying in TCP mode", "ANSWER: 20"],
        ),
        dig("dig in odd case", "wWw.ZoNe.eXaMple A", &[";wWw.ZoNe.eXaMple.", "192.0.2.10"]),
        dig("dig NXDOMAIN", "nope.zone.example A", &["status: NXDOMAIN", "SOA"]),
        dig("dig no data", "www.zone.example MX", &["status: NOERROR", "ANSWER: 0", "SOA"]),
        dig("dig empty name", "ent.zone.example A", &["status: NOERROR", "ANSWER: 0", "SOA"]),
        dig("dig wildcard", "x.wild.zone.example TXT", &["x.wild.zone.example.", "\"wild\""]),
        dig("dig CNAME", "alias.zone.example A", &["CNAME", "192.0.2.10"]),
        dig("dig DNAME", "x.old.zone.example TXT", &["DNAME", "CNAME", "\"wild\""]),
        dig(
            "dig referral",
            "www.cut.zone.example A",
            &["ANSWER: 0", "ns.cut.zone.example.", "192.0.2.53"],
        ),
        dig("dig refused", "www.elsewhere.test A", &["status: REFUSED"]),
        dig("dig HTTPS", "https.zone.example HTTPS", &["1 . alpn=\"h2\""]),
        dig("dig ANY", "www.zone.example ANY", &["status: NOERROR", "qr aa"]),
    ]
}

fn kdig(port: u16) -> Vec<Check> {
    let kdig = format!("kdig @127.0.0.1 -p {port}");
    let lacks = [";; WARNING", ";; ERROR"];
    vec![
        check(
            "kdig +tcp",
            &format!("{kdig} +tcp www.zone.example A"),
            &["status: NOERROR", "192.0.2.10", "(TCP)"],
            &lacks,
        ),
        check(
            "kdig, three queries on one connection",
            &format!(
                "{kdig} +tcp +keepopen www.zone.example A zone.example SOA nope.zone.example A"
            ),
            &["192.0.2.10", "hostmaster.zone.example.", "status: NXDOMAIN"],
            &lacks,
        ),
        check(
            "kdig +dnssec +bufsize",
            &format!("{kdig} +dnssec +bufsize=4096 big.zone.example TXT"),
            &["status: NOERROR", "ANSWER: 21"],
            &[";; ERROR"],
        ),
        check(
            "kdig +padding, +nsid",
            &format!("{kdig} +padding +nsid www.zone.example A"),
            &["status: NOERROR", "192.0.2.10"],
            &lacks,
        ),
    ]
}

/// delv validates like a resolver: signatures, and proofs for everything that is denied.
fn delv(port: u16, anchors: &Path, origin: &str) -> Vec<Check> {
    let anchors = anchors.display();
    let delv = |what: &str, question: &str, has: &[&'static str]| {
        let root = origin.trim_end_matches('.');
        // `@` is the apex, as in zone files.
        let question = format!("{question}.{origin}").replace("@.", "");
        let line = format!("delv @127.0.0.1 -p {port} -a {anchors} +root={root} {question}");
        let name = format!("delv {what} in {origin}");
        check(&name, &line, has, &["unsigned answer", "no valid", "broken trust chain"])
    };
    let valid = "; fully validated";
    let denied = "; negative response, fully validated";
    vec![
        delv("an address", "-t A www", &[valid, "192.0.2.10"]),
        delv("a large set", "-t TXT big", &[valid]),
        delv("an alias", "-t A alias", &[valid, "192.0.2.10"]),
        delv("a wildcard", "-t TXT x.y.wild", &[valid, "\"wild\""]),
        delv("a DNAME", "-t TXT x.old", &[valid, "\"wild\""]),
        delv("no name", "-t A nope", &[denied]),
        delv("no name below a name", "-t A a.b.c.www", &[denied]),
        delv("no data", "-t MX www", &[denied]),
        delv("no data at an empty name", "-t A ent", &[denied]),
        delv("no data at a wildcard", "-t A x.wild", &[denied]),
        delv("no DS at a cut", "-t DS cut", &[denied]),
        delv("the keys", "-t DNSKEY @", &[valid]),
    ]
}
