//! The names of virtual name servers: one domain for each stripe, so that the
//! loss of a domain, or of the registry above it, costs a zone one of its
//! name servers at the most.

use std::sync::Arc;

use wire::Name;

/// Every server's name in wire form, by its number.
#[derive(Clone, Debug)]
pub struct ServerNames {
    names: Vec<Arc<[u8]>>,
    /// The domain of each stripe, as text.
    domains: Vec<String>,
    stripe_of: Vec<u8>,
}

impl ServerNames {
    /// Server `n` of stripe `s` is called `ns-n` in the domain number `s`.
    pub fn new(domains: &[String], stripe_of: Vec<u8>) -> Result<Self, String> {
        for domain in domains {
            // Room for the longest number.
            server_name(u16::MAX, domain)
                .map_err(|error| format!("`{domain}` is no domain for name servers: {error}"))?;
        }
        let name = |(number, stripe): (usize, &u8)| {
            let domain = &domains[usize::from(*stripe)];
            server_name(number as u16, domain).map(Arc::from)
        };
        let names = stripe_of.iter().enumerate().map(name).collect::<Result<_, _>>()?;
        Ok(ServerNames { names, domains: domains.to_vec(), stripe_of })
    }

    /// The name of a server in wire form.
    pub fn wire(&self, server: u16) -> &Arc<[u8]> {
        &self.names[usize::from(server)]
    }

    /// The domain of each stripe.
    pub fn domains(&self) -> &[String] {
        &self.domains
    }

    /// The domain that a name in wire form, lowered, is or lies in.
    pub fn domain_above(&self, name: &[u8]) -> Option<&str> {
        let is_above = |domain: &&String| {
            let Ok(domain) = wire::name::from_text(domain) else { return false };
            let domain = domain.to_ascii_lowercase();
            let mut rest = name;
            while rest.len() > domain.len() {
                rest = &rest[usize::from(rest[0]) + 1..];
            }
            rest == domain
        };
        self.domains.iter().find(is_above).map(String::as_str)
    }

    /// The servers of a stripe.
    pub fn servers_of(&self, stripe: usize) -> impl Iterator<Item = u16> {
        let is_own = move |own: &&u8| usize::from(**own) == stripe;
        (0..=u16::MAX).zip(&self.stripe_of).filter(move |(_, own)| is_own(own)).map(|(n, _)| n)
    }

    /// The name of a server as text.
    pub fn text(&self, server: u16) -> String {
        Name::from_trusted(self.wire(server)).to_string()
    }
}

fn server_name(number: u16, domain: &str) -> Result<Vec<u8>, String> {
    let text = format!("ns-{number}.{}.", domain.trim_end_matches('.'));
    wire::name::from_text(&text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stripe_has_its_domain() {
        let domains = ["pharos-a.example".to_owned(), "pharos-b.example.".to_owned()];
        let names = ServerNames::new(&domains, vec![0, 0, 1]).unwrap();
        assert_eq!(names.text(1), "ns-1.pharos-a.example.");
        assert_eq!(names.text(2), "ns-2.pharos-b.example.");
        assert_eq!(names.servers_of(0).collect::<Vec<_>>(), [0, 1]);
        let above = |name: &str| {
            let name = wire::name::from_text(name).unwrap();
            names.domain_above(&name).map(str::to_owned)
        };
        assert_eq!(above("pharos-a.example."), Some("pharos-a.example".into()));
        assert_eq!(above("ns-1.pharos-b.example."), Some("pharos-b.example.".into()));
        assert_eq!(above("xpharos-a.example."), None);
        assert_eq!(above("example."), None);
        let long = "a".repeat(64);
        let error = ServerNames::new(&[long], vec![0]).unwrap_err();
        assert!(error.contains("is no domain for name servers"), "{error}");
    }
}
