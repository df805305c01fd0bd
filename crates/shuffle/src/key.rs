//! The key that makes placement unpredictable, and a permutation under it.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128, SipHasher24 as SipHasher128};

/// Decides which shards are taken in which order. Two fleets with the same
/// design and the same key place tenants alike; without the key nobody can
/// tell where the next tenant goes. It is never shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key([u8; Key::LEN]);

/// Why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// There is nothing, or more than [`Key::HEX_LEN_MAX`] digits.
    Length(usize),
    /// The character at this place is no hexadecimal digit.
    Digit(usize),
}

impl Key {
    /// Octets of a key.
    pub const LEN: usize = 16;
    /// Digits of the longest text that is taken for a key.
    pub const HEX_LEN_MAX: usize = 128;

    /// A key that everybody knows: for trying things out.
    pub const PUBLIC: Key = Key([0; Key::LEN]);

    /// A key of random octets.
    pub const fn from_bytes(octets: [u8; Key::LEN]) -> Self {
        Key(octets)
    }

    /// Reads hexadecimal digits. 32 of them are the key itself; fewer or more
    /// are condensed to one.
    pub fn from_hex(text: &str) -> Result<Self, KeyError> {
        if text.is_empty() || text.len() > Key::HEX_LEN_MAX {
            return Err(KeyError::Length(text.chars().count()));
        }
        let mut digits = Vec::with_capacity(text.len());
        for (place, digit) in text.chars().enumerate() {
            digits.push(digit.to_digit(16).ok_or(KeyError::Digit(place))? as u8);
        }
        if digits.len() == 2 * Key::LEN {
            let octet = |n: usize| digits[2 * n] << 4 | digits[2 * n + 1];
            return Ok(Key(std::array::from_fn(octet)));
        }
        let mut hasher = SipHasher128::new();
        hasher.write(&digits);
        let condensed = hasher.finish128();
        Ok(Key((u128::from(condensed.h1) << 64 | u128::from(condensed.h2)).to_be_bytes()))
    }

    /// The octets, to be kept where secrets are kept.
    pub fn to_bytes(self) -> [u8; Key::LEN] {
        self.0
    }

    /// Random octets for the `n`th need of `purpose`.
    pub(crate) fn draw(&self, purpose: &str, n: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(purpose.as_bytes());
        hasher.write_u64(n);
        hasher.finish()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(hidden)")
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max = Key::HEX_LEN_MAX;
        match self {
            KeyError::Length(len) => {
                write!(f, "a key of {len} digits; 1 to {max} hexadecimal digits, best 32")
            }
            KeyError::Digit(place) => {
                write!(f, "character {} of the key is no digit of 0-9, a-f", place + 1)
            }
        }
    }
}

impl std::error::Error for KeyError {}

/// Spreads `value` under two keys: the two halves of a product, mixed.
#[inline]
pub(crate) fn mix(value: u64, keys: [u64; 2]) -> u64 {
    let product = u128::from(value ^ keys[0]) * u128::from(keys[1] | 1);
    (product >> 64) as u64 ^ product as u64
}

/// A number below `len` from a random one.
#[inline]
pub(crate) fn scale(random: u64, len: u64) -> u64 {
    ((u128::from(random) * u128::from(len)) >> 64) as u64
}

/// Spreads numbers that count up over 64 bits, without a key: SplitMix64
/// (Steele, Lea and Flood, 2014).
#[inline]
pub(crate) fn spread(number: u64) -> u64 {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// The numbers below `len` in another order, and back, each in constant time.
///
/// A Feistel network over pairs of digits, the lower one of a power of two.
/// There are a few more pairs than numbers; one that is too large is permuted
/// again until it is not, which is rare.
#[derive(Clone, Debug)]
pub(crate) struct Permutation {
    len: u64,
    high_len: u64,
    low_bits: u32,
    keys: [[u64; 2]; Permutation::ROUNDS],
}

impl Permutation {
    const ROUNDS: usize = 4;

    pub fn new(key: &Key, purpose: &str, len: u64) -> Self {
        assert!(len > 0, "there is no order of nothing");
        let bits = u64::BITS - (len - 1).leading_zeros();
        let low_bits = bits.div_ceil(2);
        let keys = std::array::from_fn(|round| {
            [key.draw(purpose, 2 * round as u64), key.draw(purpose, 2 * round as u64 + 1)]
        });
        Permutation { len, high_len: ((len - 1) >> low_bits) + 1, low_bits, keys }
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    pub fn forward(&self, mut number: u64) -> u64 {
        debug_assert!(number < self.len);
        loop {
            number = self.step(number);
            if number < self.len {
                return number;
            }
        }
    }

    #[inline]
    pub fn backward(&self, mut number: u64) -> u64 {
        debug_assert!(number < self.len);
        loop {
            number = self.step_back(number);
            if number < self.len {
                return number;
            }
        }
    }

    #[inline]
    fn step(&self, number: u64) -> u64 {
        let mask = (1 << self.low_bits) - 1;
        let (mut high, mut low) = (number >> self.low_bits, number & mask);
        for pair in self.keys.chunks_exact(2) {
            high += scale(mix(low, pair[0]), self.high_len);
            if high >= self.high_len {
                high -= self.high_len;
            }
            low ^= mix(high, pair[1]) & mask;
        }
        high << self.low_bits | low
    }

    #[inline]
    fn step_back(&self, number: u64) -> u64 {
        let mask = (1 << self.low_bits) - 1;
        let (mut high, mut low) = (number >> self.low_bits, number & mask);
        for pair in self.keys.chunks_exact(2).rev() {
            low ^= mix(high, pair[1]) & mask;
            let shift = scale(mix(low, pair[0]), self.high_len);
            high = if high >= shift { high - shift } else { high + self.high_len - shift };
        }
        high << self.low_bits | low
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_are_read_and_never_shown() {
        let key = Key::from_hex("000102030405060708090a0b0c0d0e0F").unwrap();
        assert_eq!(key.to_bytes(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(format!("{key:?}"), "Key(hidden)");
        assert_ne!(Key::from_hex("1").unwrap(), Key::from_hex("01").unwrap());
        assert_eq!(Key::from_hex(""), Err(KeyError::Length(0)));
        assert_eq!(Key::from_hex("0x12"), Err(KeyError::Digit(1)));
        assert_eq!(Key::from_hex(&"a".repeat(129)), Err(KeyError::Length(129)));
    }

    #[test]
    fn every_small_permutation_is_one() {
        for len in 1..600 {
            let order = Permutation::new(&Key::PUBLIC, "test", len);
            let mut seen = vec![false; len as usize];
            for number in 0..len {
                let image = order.forward(number);
                assert!(!std::mem::replace(&mut seen[image as usize], true));
                assert_eq!(order.backward(image), number);
            }
        }
    }

    #[test]
    fn another_key_is_another_order() {
        let order = |digit: &str| {
            let order = Permutation::new(&Key::from_hex(digit).unwrap(), "test", 1000);
            (0..1000).map(|number| order.forward(number)).collect::<Vec<_>>()
        };
        let same = std::iter::zip(order("1"), order("2")).filter(|(a, b)| a == b).count();
        assert!(same < 20, "{same} of 1000 at the same place");
    }

    proptest! {
        #[test]
        fn large_permutations_come_back(len in 1u64..=1 << 62, number: u64, key: [u8; 16]) {
            let order = Permutation::new(&Key::from_bytes(key), "test", len);
            let number = number % len;
            prop_assert!(order.forward(number) < len);
            prop_assert_eq!(order.backward(order.forward(number)), number);
        }
    }
}
