//! DNS cookies (RFC 7873) in the interoperable form of RFC 9018.
//!
//! A server cookie is a hash over the client's cookie, a time and the client's
//! address under a secret, so any server that shares the secret can check it
//! and nothing is stored. Two secrets are known at a time: answers carry
//! cookies of the current one, and those of the previous one are still good,
//! so that a rotation invalidates nobody.

use std::fmt;
use std::hash::Hasher;
use std::net::IpAddr;

use siphasher::sip::SipHasher24;

/// Octets of a client cookie.
pub const CLIENT_LEN: usize = 8;
/// Octets of a client cookie with the server cookie of RFC 9018.
pub const COOKIE_LEN_MAX: usize = 24;
/// A cookie older than this is not good any more (RFC 9018, 4.3).
const AGE_MAX_SECS: i64 = 3600;
/// How far the clock of another server of the same name may be ahead.
const AHEAD_MAX_SECS: i64 = 300;
/// A good cookie older than this is replaced (RFC 9018, 4.3).
const RENEW_AFTER_SECS: i64 = 1800;
const VERSION: u8 = 1;

/// The COOKIE option of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestCookie {
    client: [u8; CLIENT_LEN],
    /// The server part, if it has the length that this server's cookies have.
    server: Option<[u8; COOKIE_LEN_MAX - CLIENT_LEN]>,
}

impl RequestCookie {
    /// Reads the option's value; `None` if its length is not one of RFC 7873.
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let (client, server) = value.split_first_chunk::<CLIENT_LEN>()?;
        match server.len() {
            0 | 8..=32 => Some(RequestCookie { client: *client, server: server.try_into().ok() }),
            _ => None,
        }
    }
}

/// A secret of 128 bits. Never printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 16]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The secrets that cookies are made and checked with.
#[derive(Clone, Copy, Debug)]
pub struct CookieSecrets {
    /// Makes cookies, and checks them.
    pub current: Secret,
    /// Only checks them.
    pub previous: Option<Secret>,
}

/// A cookie for the answer, and whether the question's was good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyCookie {
    /// The value of the answer's COOKIE option.
    pub value: [u8; COOKIE_LEN_MAX],
    /// The asker showed a cookie that this server gave to its address.
    pub verified: bool,
}

impl CookieSecrets {
    /// Checks `cookie` of a question from `from` at `now_secs` (Unix time) and
    /// makes the one for the answer.
    pub fn answer(&self, cookie: &RequestCookie, from: IpAddr, now_secs: u32) -> ReplyCookie {
        let mut value = [0; COOKIE_LEN_MAX];
        value[..CLIENT_LEN].copy_from_slice(&cookie.client);
        let mut verified = false;
        if let Some(server) = cookie.server.filter(|server| server[0] == VERSION) {
            let made_secs = u32::from_be_bytes([server[4], server[5], server[6], server[7]]);
            // Serial number arithmetic, as RFC 9018 asks, so that 2106 passes.
            let age_secs = i64::from(now_secs.wrapping_sub(made_secs) as i32);
            let reserved = [server[1], server[2], server[3]];
            let made_with =
                |secret| hash(secret, &cookie.client, reserved, made_secs, from) == server[8..16];
            if (-AHEAD_MAX_SECS..=AGE_MAX_SECS).contains(&age_secs) {
                let current = made_with(self.current);
                verified = current || self.previous.is_some_and(made_with);
                if current && age_secs < RENEW_AFTER_SECS {
                    value[CLIENT_LEN..].copy_from_slice(&server);
                    return ReplyCookie { value, verified };
                }
            }
        }
        value[8] = VERSION;
        value[12..16].copy_from_slice(&now_secs.to_be_bytes());
        value[16..].copy_from_slice(&hash(self.current, &cookie.client, [0; 3], now_secs, from));
        ReplyCookie { value, verified }
    }
}

/// The hash of RFC 9018, 4.4.
fn hash(
    secret: Secret,
    client: &[u8; CLIENT_LEN],
    reserved: [u8; 3],
    made_secs: u32,
    from: IpAddr,
) -> [u8; 8] {
    let mut hasher = SipHasher24::new_with_key(&secret.0);
    hasher.write(client);
    hasher.write(&[VERSION, reserved[0], reserved[1], reserved[2]]);
    hasher.write(&made_secs.to_be_bytes());
    match from {
        IpAddr::V4(v4) => hasher.write(&v4.octets()),
        IpAddr::V6(v6) => hasher.write(&v6.octets()),
    }
    // The RFC's vectors print the hash as SipHash's reference code does.
    hasher.finish().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
            .collect()
    }

    fn secret(text: &str) -> Secret {
        Secret(hex(text).try_into().unwrap())
    }

    fn secrets(current: &str) -> CookieSecrets {
        CookieSecrets { current: secret(current), previous: None }
    }

    /// RFC 9018, appendix A.
    #[test]
    fn the_vectors_of_rfc_9018_come_out() {
        let first = "e5e973e5a6b2a43f48e7dc849e37bfcf";
        let v4: IpAddr = "198.51.100.100".parse().unwrap();
        let learn = RequestCookie::read(&hex("2464c4abcf10c957")).unwrap();
        let made = secrets(first).answer(&learn, v4, 1559731985);
        assert_eq!(made.value[..], hex("2464c4abcf10c957010000005cf79f111f8130c3eee29480"));
        assert!(!made.verified);

        // A.3: reserved bits are hashed as they came; this cookie was good an
        // hour ago and is replaced.
        let v4: IpAddr = "203.0.113.203".parse().unwrap();
        let old = RequestCookie::read(&hex("fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5"));
        assert!(secrets(first).answer(&old.unwrap(), v4, 1559728000).verified);
        let made = secrets(first).answer(&old.unwrap(), v4, 1559734700);
        assert!(!made.verified);
        assert_eq!(made.value[..], hex("fc93fc62807ddb86010000005cf7a9acf73a7810aca2381e"));

        // A.4: the secret was rotated, the address is IPv6.
        let v6: IpAddr = "2001:db8:220:1:59de:d0f4:8769:82b8".parse().unwrap();
        let old = RequestCookie::read(&hex("22681ab97d52c298010000005cf7c57926556bd0934c72f8"));
        let rotated = CookieSecrets {
            current: secret("445536bcd2513298075a5d379663c962"),
            previous: Some(secret("dd3bdf9344b678b185a6f5cb60fca715")),
        };
        let made = rotated.answer(&old.unwrap(), v6, 1559741961);
        assert!(made.verified);
        assert_eq!(made.value[..], hex("22681ab97d52c298010000005cf7c609a6bb79d16625507a"));
    }

    #[test]
    fn old_foreign_and_future_cookies_are_not_verified() {
        let secrets = secrets("e5e973e5a6b2a43f48e7dc849e37bfcf");
        let from: IpAddr = "192.0.2.1".parse().unwrap();
        let bare = RequestCookie::read(&[7; 8]).unwrap();
        let made = secrets.answer(&bare, from, 10_000).value;
        let shown = RequestCookie::read(&made).unwrap();
        assert!(secrets.answer(&shown, from, 10_000).verified);
        assert!(secrets.answer(&shown, from, 13_600).verified);
        assert!(!secrets.answer(&shown, from, 13_601).verified);
        assert!(secrets.answer(&shown, from, 9_700).verified);
        assert!(!secrets.answer(&shown, from, 9_699).verified);
        assert!(!secrets.answer(&shown, "192.0.2.2".parse().unwrap(), 10_000).verified);
        // Young cookies are returned as they are, older ones made anew.
        assert_eq!(secrets.answer(&shown, from, 11_799).value, made);
        assert_ne!(secrets.answer(&shown, from, 11_800).value, made);
    }

    #[test]
    fn lengths_outside_rfc_7873_are_refused() {
        for (len, ok) in [(0, false), (7, false), (8, true), (9, false), (15, false), (16, true)] {
            assert_eq!(RequestCookie::read(&vec![0; len]).is_some(), ok, "{len}");
        }
        assert!(RequestCookie::read(&[0; 40]).is_some());
        assert!(RequestCookie::read(&[0; 41]).is_none());
        assert!(!format!("{:?}", Secret([1; 16])).contains('1'));
    }
}
