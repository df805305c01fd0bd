//! Designs whose allocators the fuzzer restores, and states with a right sum.

use std::hash::Hasher;
use std::sync::Arc;

use shuffle::{Design, Fleet, Key, STRIPE};
use siphasher::sip::SipHasher24;

/// One of a few small designs: full, with room to grow, without stripes.
pub fn design(which: u8) -> Arc<Design> {
    let striped = |workers, room| {
        let fleet = Fleet::numbered(workers, Some(4)).expect("a fleet");
        let columns = fleet.columns(4, &[STRIPE]).expect("four stripes");
        Design::striped(columns, 2, room, &Key::PUBLIC)
    };
    let whole = || Fleet::numbered(13, None).and_then(|fleet| fleet.columns(1, &[]));
    Arc::new(match which % 3 {
        0 => striped(16, None),
        1 => striped(18, Some(7)),
        _ => Design::quadruples(whole().expect("one column"), &Key::PUBLIC),
    })
}

/// The head of a state of this design, `body`, and the sum over both.
pub fn with_sum(design: &Design, body: &[u8]) -> Vec<u8> {
    let mut octets = b"psa1".to_vec();
    octets.extend(design.fingerprint().to_le_bytes());
    octets.extend(body);
    let mut hasher = SipHasher24::new();
    hasher.write(&octets);
    octets.extend(hasher.finish().to_le_bytes());
    octets
}
