//! Who may ask, and how often.

use std::fmt;
use std::hash::Hasher;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use siphasher::sip::SipHasher13;

/// Networks that may ask unless told otherwise: this host, and private ones
/// (RFC 1918, RFC 4193, link-local).
pub const ALLOWED: [&str; 8] = [
    "127.0.0.0/8",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "169.254.0.0/16",
    "::1/128",
    "fc00::/7",
    "fe80::/10",
];
/// Sources whose rates are known at the same time; a power of two. Sources
/// that share a place share its rate.
const PLACES: usize = 1 << 14;

/// A network: an address and how many of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                (own.to_bits() ^ other.to_bits()) & mask == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                (own.to_bits() ^ other.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let failed = || {
            format!("`{text}` is no network; accepted: 192.0.2.0/24, 2001:db8::/32, or one address")
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| failed())?;
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= all).ok_or_else(failed)?,
            None => all,
        };
        let network = Network { address, bits };
        let rest = match address {
            IpAddr::V4(own) => own.to_bits().checked_shl(bits.into()).unwrap_or(0) != 0,
            IpAddr::V6(own) => own.to_bits().checked_shl(bits.into()).unwrap_or(0) != 0,
        };
        if rest {
            return Err(format!(
                "`{text}` has bits beyond its first {bits}; accepted: zeroes there"
            ));
        }
        Ok(network)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Says who may ask, how often.
#[derive(Debug)]
pub struct Doorkeeper {
    allowed: Vec<Network>,
    rate: Option<Rate>,
}

/// Why somebody may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Not from there.
    Network,
    /// Not so often.
    Rate,
}

/// Questions per second of each source.
#[derive(Debug)]
struct Rate {
    per_sec: u32,
    key: [u8; 16],
    /// What each may still ask, in thousandths, and when that was reckoned.
    places: Box<[(u32, u32)]>,
}

impl Doorkeeper {
    pub fn new(allowed: Vec<Network>, per_sec: Option<u32>, key: [u8; 16]) -> Self {
        let rate = per_sec.map(|per_sec| Rate {
            per_sec,
            key,
            places: vec![(per_sec.saturating_mul(1000), 0); PLACES].into(),
        });
        Doorkeeper { allowed, rate }
    }

    /// Lets a question of `from` in, or says why not. `now_ms` only goes
    /// forward.
    #[inline]
    pub fn admit(&mut self, from: IpAddr, now_ms: u32) -> Result<(), Refused> {
        if !self.allowed.iter().any(|network| network.contains(from)) {
            return Err(Refused::Network);
        }
        match self.rate.as_mut().is_none_or(|rate| rate.take(from, now_ms)) {
            true => Ok(()),
            false => Err(Refused::Rate),
        }
    }
}

impl Rate {
    fn take(&mut self, from: IpAddr, now_ms: u32) -> bool {
        // Of an IPv6 address the half that a network gives out.
        let octets = match from.to_canonical() {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => {
                Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).octets()
            }
        };
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write(&octets);
        let (left, reckoned) = &mut self.places[hasher.finish() as usize % PLACES];
        // Thousandths per millisecond are questions per second. One second's
        // worth may be saved up.
        let gained = u64::from(now_ms.wrapping_sub(*reckoned)) * u64::from(self.per_sec);
        let most = u64::from(self.per_sec) * 1000;
        *left = (u64::from(*left) + gained).min(most).min(u64::from(u32::MAX)) as u32;
        *reckoned = now_ms;
        if *left < 1000 {
            return false;
        }
        *left -= 1000;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(list: &[&str]) -> Vec<Network> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn private_networks_may_ask_and_others_may_not() {
        let mut doorkeeper = Doorkeeper::new(networks(&ALLOWED), None, [0; 16]);
        let mut check = |address: &str, expected| {
            assert_eq!(
                doorkeeper.admit(address.parse().unwrap(), 0).is_ok(),
                expected,
                "{address}"
            );
        };
        for address in ["127.0.0.1", "10.255.0.1", "172.31.9.9", "192.168.1.1", "::1", "fd00::1"] {
            check(address, true);
        }
        check("::ffff:10.0.0.1", true);
        for address in ["8.8.8.8", "172.32.0.1", "192.169.0.1", "2001:db8::1", "::2"] {
            check(address, false);
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in ["", "10.0.0.0/33", "10.0.0.1/8", "::/129", "fe80::1/64", "net/8", "1.2.3.4/"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
        assert_eq!("0.0.0.0/0".parse::<Network>().unwrap().to_string(), "0.0.0.0/0");
        assert!("::/0".parse::<Network>().unwrap().contains("2001:db8::1".parse().unwrap()));
        assert_eq!("192.0.2.1".parse::<Network>().unwrap().to_string(), "192.0.2.1/32");
    }

    #[test]
    fn a_source_gets_its_rate_and_no_other_pays_for_it() {
        let mut doorkeeper = Doorkeeper::new(networks(&["0.0.0.0/0"]), Some(100), [7; 16]);
        let (loud, calm) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let taken = (0..10_000).filter(|ms| doorkeeper.admit(loud, *ms).is_ok()).count();
        assert!((1000..=1101).contains(&taken), "{taken}");
        assert_eq!(doorkeeper.admit(calm, 10_000), Ok(()));
        let left = (0..100).filter(|_| doorkeeper.admit(loud, 10_000).is_ok()).count();
        assert!(left <= 1, "{left}");
        assert_eq!(doorkeeper.admit(loud, 10_000), Err(Refused::Rate));
        assert_eq!(doorkeeper.admit(loud, 20_000), Ok(()));
    }
}
