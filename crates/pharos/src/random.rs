//! Randomness from the system.

/// `N` octets that nobody can guess.
///
/// A server without randomness would be open to chosen collisions and forged
/// cookies; it does not start.
pub fn octets<const N: usize>() -> [u8; N] {
    let mut octets = [0; N];
    getrandom::fill(&mut octets).expect("the system gives randomness");
    octets
}
