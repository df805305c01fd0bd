//! The addresses of virtual name servers.
//!
//! Server `n` has the `n`th address of the pool's network, in IPv4, IPv6 or
//! both. So neither way needs a table: an address is a number and the other
//! way round.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Virtual name servers of a fleet at the most: their numbers have 16 bits.
pub const SERVERS_MAX: u32 = 65_536;
/// Virtual name servers of a fleet unless told otherwise.
pub const SERVERS: u32 = 2048;

/// A kind of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    /// Bits of an address.
    fn bits(self) -> u32 {
        match self {
            Family::V4 => Ipv4Addr::BITS,
            Family::V6 => Ipv6Addr::BITS,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    fn address(self, bits: u128) -> IpAddr {
        match self {
            Family::V4 => Ipv4Addr::from_bits(bits as u32).into(),
            Family::V6 => Ipv6Addr::from_bits(bits).into(),
        }
    }

    /// All addresses of the host.
    pub fn any(self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address(0), port)
    }
}

/// The addresses of virtual name servers. See the module's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    servers: u32,
    /// Address of server 0.
    v4: Option<u32>,
    /// Address of server 0.
    v6: Option<u128>,
}

impl Pool {
    /// A pool of `servers`, 1 to [`SERVERS_MAX`], that has no addresses yet.
    pub fn new(servers: u32) -> Self {
        assert!((1..=SERVERS_MAX).contains(&servers), "{servers} virtual name servers");
        Pool { servers, v4: None, v6: None }
    }

    /// The pool with the addresses of a network such as `127.53.0.0/21`.
    pub fn with_network(mut self, family: Family, text: &str) -> Result<Self, String> {
        let base = read_network(family, text, self.servers)?;
        match family {
            Family::V4 => self.v4 = Some(base as u32),
            Family::V6 => self.v6 = Some(base),
        }
        Ok(self)
    }

    /// Number of virtual name servers.
    pub fn servers(&self) -> u32 {
        self.servers
    }

    /// The kinds of addresses that the servers have.
    pub fn families(&self) -> impl Iterator<Item = Family> {
        let v4 = self.v4.map(|_| Family::V4);
        let v6 = self.v6.map(|_| Family::V6);
        v4.into_iter().chain(v6)
    }

    /// All addresses of a server.
    pub fn addresses_of(&self, server: u16) -> impl Iterator<Item = IpAddr> {
        self.families().filter_map(move |family| self.address_of(server, family))
    }

    /// The server that has this address.
    #[inline]
    pub fn server_of(&self, address: IpAddr) -> Option<u16> {
        let number = match address {
            IpAddr::V4(address) => address.to_bits().checked_sub(self.v4?)?,
            IpAddr::V6(address) => address.to_bits().checked_sub(self.v6?)?.try_into().ok()?,
        };
        (number < self.servers).then_some(number as u16)
    }

    /// The address that this server has.
    pub fn address_of(&self, server: u16, family: Family) -> Option<IpAddr> {
        let base = match family {
            Family::V4 => u128::from(self.v4?),
            Family::V6 => self.v6?,
        };
        (u32::from(server) < self.servers).then(|| family.address(base + u128::from(server)))
    }

    /// The first and the last address.
    pub fn range(&self, family: Family) -> Option<(IpAddr, IpAddr)> {
        let last = (self.servers - 1) as u16;
        Some((self.address_of(0, family)?, self.address_of(last, family)?))
    }
}

/// As in `127.53.0.0 to 127.53.7.255 and 2001:db8:: to 2001:db8::7ff`.
impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = self.families().filter_map(|family| self.range(family));
        for (index, (first, last)) in ranges.enumerate() {
            let and = if index == 0 { "" } else { " and " };
            write!(f, "{and}{first} to {last}")?;
        }
        Ok(())
    }
}

/// The first address of the network `text`, which has room for `servers`.
fn read_network(family: Family, text: &str, servers: u32) -> Result<u128, String> {
    let (address, prefix_len) = split_network(family, text).ok_or_else(|| {
        let longest = family.bits();
        let example = match family {
            Family::V4 => "127.53.0.0/21",
            Family::V6 => "2001:db8:53::/64",
        };
        format!(
            "`{text}` is no {} network; accepted: an address, a slash, and how many of its bits \
             name the network, 0 to {longest}, as in {example}",
            family.name()
        )
    })?;
    let host_bits = family.bits() - prefix_len;
    let bits = match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    let base = bits.checked_shr(host_bits).unwrap_or(0).checked_shl(host_bits).unwrap_or(0);
    if base != bits {
        let network = family.address(base);
        return Err(format!(
            "`{text}` is an address inside of a network; accepted: the network's first address, \
             {network}/{prefix_len}"
        ));
    }
    let needed_bits = servers.next_power_of_two().trailing_zeros();
    if host_bits < needed_bits {
        return Err(format!(
            "`{text}` has {} addresses for {servers} virtual name servers; accepted: /{} or a \
             larger network, or fewer servers",
            1u32 << host_bits,
            family.bits() - needed_bits
        ));
    }
    if address.is_unspecified() || address.is_multicast() {
        return Err(format!(
            "`{text}` holds addresses that no host can have; accepted: a network of unicast \
             addresses"
        ));
    }
    Ok(base)
}

fn split_network(family: Family, text: &str) -> Option<(IpAddr, u32)> {
    let (address, prefix_len) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let prefix_len = prefix_len.parse().ok()?;
    let is_right = address.is_ipv4() == (family == Family::V4) && prefix_len <= family.bits();
    is_right.then_some((address, prefix_len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pool(servers: u32, v4: &str, v6: &str) -> Pool {
        let pool = Pool::new(servers).with_network(Family::V4, v4).unwrap();
        pool.with_network(Family::V6, v6).unwrap()
    }

    #[test]
    fn servers_have_the_addresses_of_their_numbers() {
        let pool = pool(2048, "127.53.0.0/21", "2001:db8:53::/64");
        let check = |address: &str, expected: Option<u16>| {
            assert_eq!(pool.server_of(address.parse().unwrap()), expected, "{address}");
        };
        check("127.53.0.0", Some(0));
        check("127.53.1.3", Some(259));
        check("127.53.7.255", Some(2047));
        check("127.53.8.0", None);
        check("127.52.255.255", None);
        check("255.255.255.255", None);
        check("0.0.0.0", None);
        check("2001:db8:53::", Some(0));
        check("2001:db8:53::7ff", Some(2047));
        check("2001:db8:53::800", None);
        check("2001:db8:53:0:1::", None);
        check("2001:db8:52:ffff:ffff:ffff:ffff:ffff", None);
        check("::ffff:127.53.0.0", None);
        assert_eq!(
            pool.to_string(),
            "127.53.0.0 to 127.53.7.255 and 2001:db8:53:: to 2001:db8:53::7ff"
        );
        let v4 = Pool::new(1).with_network(Family::V4, "127.0.0.9/32").unwrap();
        assert_eq!(v4.server_of("::1".parse().unwrap()), None);
        assert_eq!(v4.address_of(0, Family::V6), None);
        assert_eq!(v4.families().collect::<Vec<_>>(), [Family::V4]);
    }

    #[test]
    fn networks_that_do_not_fit_are_refused_with_what_would() {
        let check = |servers: u32, family: Family, text: &str, expected: &str| {
            let problem = Pool::new(servers).with_network(family, text).unwrap_err();
            assert!(problem.contains(expected), "{expected} in {problem}");
        };
        for text in ["127.53.0.0", "127.53.0.0/33", "127.53.0.0/x", "::1/128", "/8", ""] {
            check(1, Family::V4, text, "is no IPv4 network; accepted: an address, a slash");
        }
        check(1, Family::V6, "127.0.0.0/8", "is no IPv6 network");
        check(1, Family::V6, "::1/129", "0 to 128, as in 2001:db8:53::/64");
        check(
            4,
            Family::V4,
            "127.53.1.7/21",
            "accepted: the network's first address, 127.53.0.0/21",
        );
        check(4, Family::V4, "127.53.1.7/0", "first address, 0.0.0.0/0");
        check(2048, Family::V4, "127.53.0.0/24", "256 addresses for 2048 virtual name servers");
        check(2048, Family::V4, "127.53.0.0/24", "accepted: /21 or a larger network");
        check(3, Family::V6, "2001:db8::/127", "accepted: /126 or a larger network");
        check(1, Family::V4, "0.0.0.0/0", "addresses that no host can have");
        check(1, Family::V6, "ff00::/8", "addresses that no host can have");
    }

    proptest! {
        #[test]
        fn an_address_is_a_number_and_back(
            servers in 1..=SERVERS_MAX,
            spare_bits in 0u32..8,
            bits: u128,
            number: u16,
            other: u128,
        ) {
            let host_bits = servers.next_power_of_two().trailing_zeros() + spare_bits;
            for family in [Family::V4, Family::V6] {
                // Somewhere among the unicast addresses.
                let base = (bits >> 2 | 1 << 126) >> (128 - family.bits());
                let base = base >> host_bits << host_bits;
                let text = format!("{}/{}", family.address(base), family.bits() - host_bits);
                let pool = Pool::new(servers).with_network(family, &text).unwrap();
                match pool.address_of(number, family) {
                    Some(address) => prop_assert_eq!(pool.server_of(address), Some(number)),
                    None => prop_assert!(u32::from(number) >= servers),
                }
                // Any address, and some that are near.
                for address in [other, base.wrapping_add(other % 100_000), base.wrapping_sub(1)] {
                    let address = family.address(address);
                    if let Some(server) = pool.server_of(address) {
                        prop_assert_eq!(pool.address_of(server, family), Some(address));
                    }
                }
            }
        }
    }
}
