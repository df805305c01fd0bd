//! The zones that hold the names of the virtual name servers themselves: one
//! for each stripe, answered on every server, made anew at each start.

use std::fmt::Write;

use authority::zonefile::{self, NoIncludes};
use authority::{Compiler, Image, NameHasher, Placement, Problems, RecordSet};

use super::Pool;
use super::names::ServerNames;

/// One zone for each domain of the fleet, delegated to `servers`.
pub fn compile(
    names: &ServerNames,
    servers: &[u16],
    pool: &Pool,
    hasher: NameHasher,
) -> Result<Vec<Image>, String> {
    let mut compiler = Compiler::new(hasher);
    let mut images = Vec::new();
    for (stripe, domain) in names.domains().iter().enumerate() {
        let text = zone_text(names, servers, pool, stripe);
        let mut records = RecordSet::default();
        let mut problems = Problems::new(format!("the fleet's zone {domain}"));
        zonefile::read(text.as_bytes(), None, &mut NoIncludes, &mut records, &mut problems);
        let image = compiler.compile(&mut records, &Placement::Everywhere, &mut problems);
        images.push(image.ok_or_else(|| problems.to_string())?);
    }
    Ok(images)
}

fn zone_text(names: &ServerNames, servers: &[u16], pool: &Pool, stripe: usize) -> String {
    let domain = names.domains()[stripe].trim_end_matches('.');
    let mut text = format!("$ORIGIN {domain}.\n$TTL 172800\n");
    let first = servers.first().map_or_else(String::new, |server| names.text(*server));
    let _ = writeln!(text, "@ SOA {first} hostmaster 1 7200 900 1209600 300");
    for server in servers {
        let _ = writeln!(text, "@ NS {}", names.text(*server));
    }
    for server in names.servers_of(stripe) {
        for address in pool.addresses_of(server) {
            let rtype = if address.is_ipv4() { "A" } else { "AAAA" };
            let _ = writeln!(text, "{} {rtype} {address}", names.text(server));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Family;

    #[test]
    fn every_server_has_its_addresses() {
        let domains = ["pharos-a.example".to_owned(), "pharos-b.example".to_owned()];
        let names = ServerNames::new(&domains, vec![0, 0, 1, 1]).unwrap();
        let pool = Pool::new(4).with_network(Family::V4, "127.53.0.0/30").unwrap();
        let pool = pool.with_network(Family::V6, "fd53::/126").unwrap();
        let images = compile(&names, &[1, 2], &pool, NameHasher::new([7; 16])).unwrap();
        let zones: Vec<String> = images.iter().map(|image| image.origin().to_string()).collect();
        assert_eq!(zones, ["pharos-a.example.", "pharos-b.example."]);
        // SOA, two NS, and two addresses for each of two servers.
        assert!(images.iter().all(|image| image.records() == 7 && image.servers().count() == 0));
        assert!(
            zone_text(&names, &[1, 2], &pool, 1).contains("ns-3.pharos-b.example. AAAA fd53::3\n")
        );
    }
}
