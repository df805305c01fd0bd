//! Epochs of the hash key. The key that spreads questions over slots changes
//! from time to time, so that what somebody learnt about it by watching does
//! not stay useful.

use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::slot::HashKey;

/// Keeps what is derived here apart from anything else that is derived from
/// the same secret.
const LABEL: &[u8] = b"pharos slot key 1\0";

/// A hash key and its number. Numbers only go forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    pub number: u64,
    pub key: HashKey,
}

impl HashKey {
    /// The key of an epoch of the cluster that shares `secret`.
    ///
    /// The salt is drawn once by whoever starts the epoch and need not be
    /// secret: without it, a cluster whose epochs began again at zero would
    /// have the keys it had before.
    pub fn derive(secret: &[u8], epoch: u64, salt: &[u8; 16]) -> HashKey {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("any length makes an HMAC key");
        mac.update(LABEL);
        mac.update(salt);
        mac.update(&epoch.to_be_bytes());
        let octets: [u8; 32] = mac.finalize().into_bytes().into();
        HashKey(std::array::from_fn(|at| octets[at]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"correct horse battery staple";

    /// Nodes of different versions must come to the same key, so it is pinned
    /// to what another implementation of HMAC says.
    #[test]
    fn keys_stay_what_they_were() {
        let salt = std::array::from_fn(|at| at as u8);
        assert_eq!(hex(HashKey::derive(SECRET, 7, &salt)), "64cceac7d042738b287c1d1a2e4feef5");
        assert_eq!(hex(HashKey::derive(b"", 0, &[0; 16])), "ffffc0534f67babe37533e856f40cf5c");
    }

    #[test]
    fn secret_number_and_salt_all_count() {
        let key = HashKey::derive(SECRET, 1, &[1; 16]);
        assert_eq!(key, HashKey::derive(SECRET, 1, &[1; 16]));
        assert_ne!(key, HashKey::derive(&SECRET[1..], 1, &[1; 16]));
        assert_ne!(key, HashKey::derive(SECRET, 2, &[1; 16]));
        assert_ne!(key, HashKey::derive(SECRET, 1, &[2; 16]));
        let long = [9; 1000];
        assert_ne!(HashKey::derive(&long, 1, &[1; 16]), HashKey::derive(&long[1..], 1, &[1; 16]));
    }

    #[test]
    fn an_epoch_does_not_show_its_key() {
        let shown = format!("{:?}", Epoch { number: 5, key: HashKey([0xab; 16]) });
        assert_eq!(shown, "Epoch { number: 5, key: HashKey(..) }");
    }

    fn hex(key: HashKey) -> String {
        key.0.iter().map(|octet| format!("{octet:02x}")).collect()
    }
}
