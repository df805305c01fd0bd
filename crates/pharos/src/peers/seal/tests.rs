//! Two cells that seal and open, and everybody in between.

use proptest::prelude::*;

use super::window::WINDOW_LEN;
use super::*;

const NOW: u32 = 1_800_000_000;

/// One cell of a node.
struct Cell {
    own: Recipient,
    sealer: Sealer,
    opener: Opener,
}

impl Cell {
    fn new(key: &ClusterKey, name: &str, session: u64, cell: u8) -> Self {
        let own = Recipient::cell(NodeTag::of(name), cell);
        let opener = Opener::new(key, own, session);
        Cell { own, sealer: Sealer::new(key, session, cell), opener }
    }

    fn seal(&mut self, to: Recipient, payload: &[u8]) -> Vec<u8> {
        let mut datagram = b"what was there before".to_vec();
        self.sealer.seal(to, NOW, &mut datagram, |out| out.extend_from_slice(payload));
        datagram
    }

    fn open(&mut self, datagram: &[u8]) -> Result<Vec<u8>, Refusal> {
        self.open_at(NOW, datagram)
    }

    fn open_at(&mut self, now_secs: u32, datagram: &[u8]) -> Result<Vec<u8>, Refusal> {
        let mut datagram = datagram.to_vec();
        self.opener.open(now_secs, &mut datagram).map(|opened| opened.payload.to_vec())
    }
}

fn key() -> ClusterKey {
    ClusterKey::draw()
}

/// A cell of node a and one of node b.
fn pair(key: &ClusterKey) -> (Cell, Cell) {
    (Cell::new(key, "a", 1, 0), Cell::new(key, "b", 2, 3))
}

proptest! {
    #[test]
    fn what_is_sealed_opens_once(
        payload in prop::collection::vec(any::<u8>(), 0..2000),
        session: u64, from_cell: u8, to_cell: u8,
    ) {
        let key = key();
        let mut sender = Cell::new(&key, "a", session, from_cell);
        let mut receiver = Cell::new(&key, "b", !session, to_cell);
        let datagram = sender.seal(receiver.own, &payload);
        prop_assert_eq!(datagram.len(), payload.len() + OVERHEAD_LEN);
        let mut copy = datagram.clone();
        let opened = receiver.opener.open(NOW, &mut copy);
        prop_assert_eq!(opened, Ok(Opened { from_cell, session, payload: &payload }));
        prop_assert_eq!(receiver.open(&datagram), Err(Refusal::Replayed));
    }

    #[test]
    fn what_was_altered_does_not_open(
        payload in prop::collection::vec(any::<u8>(), 0..100),
        at: prop::sample::Index, change in 1u8..,
    ) {
        let (mut a, mut b) = pair(&key());
        let datagram = a.seal(b.own, &payload);
        let mut altered = datagram.clone();
        altered[at.index(datagram.len())] ^= change;
        prop_assert!(b.open(&altered).is_err());
        // And does no harm to the one it was made of.
        prop_assert_eq!(b.open(&datagram), Ok(payload));
    }

    #[test]
    fn what_was_cut_off_or_extended_does_not_open(
        payload in prop::collection::vec(any::<u8>(), 0..100),
        at: prop::sample::Index, more in prop::collection::vec(any::<u8>(), 1..20),
    ) {
        let (mut a, mut b) = pair(&key());
        let datagram = a.seal(b.own, &payload);
        prop_assert!(b.open(&datagram[..at.index(datagram.len())]).is_err());
        prop_assert!(b.open(&[&datagram[..], &more].concat()).is_err());
    }

    #[test]
    fn noise_does_not_open(
        mut noise in prop::collection::vec(any::<u8>(), 0..200),
        is_plausible: bool,
    ) {
        let (_, mut b) = pair(&key());
        if is_plausible && noise.len() >= HEADER_LEN {
            noise[..7].copy_from_slice(&[3, FORM, 0, 0, 0, 0, 0]);
            noise[3..7].copy_from_slice(&NOW.to_be_bytes());
        }
        prop_assert!(b.open(&noise).is_err());
        prop_assert!(b.opener.streams.is_empty(), "strangers take no place");
    }
}

#[test]
fn every_way_to_be_wrong_has_its_name() {
    let key = key();
    let (mut a, mut b) = pair(&key);
    let good = a.seal(b.own, b"payload");
    assert_eq!(b.open(&good[..OVERHEAD_LEN - 1]), Err(Refusal::Short));
    assert_eq!(b.open(&[]), Err(Refusal::Short));
    let mut form = good.clone();
    form[1] = FORM + 1;
    assert_eq!(b.open(&form), Err(Refusal::Form));
    let mut sibling = Cell::new(&key, "b", 2, 4);
    assert_eq!(sibling.open(&good), Err(Refusal::Astray));
    let mut redirected = good.clone();
    redirected[0] = 4;
    assert_eq!(sibling.open(&redirected), Err(Refusal::BadSeal));
    let mut elsewhere = Cell::new(&key, "c", 3, 3);
    assert_eq!(elsewhere.open(&good), Err(Refusal::BadSeal));
    let mut stranger = Cell::new(&ClusterKey::draw(), "b", 2, 3);
    assert_eq!(stranger.open(&good), Err(Refusal::BadSeal));
    let names: std::collections::HashSet<_> = Refusal::ALL.map(Refusal::name).into();
    assert_eq!(names.len(), Refusal::ALL.len());
}

#[test]
fn a_node_does_not_open_what_it_sent_elsewhere() {
    let key = key();
    let mut cell = Cell::new(&key, "a", 1, 3);
    let mut sibling = Cell::new(&key, "a", 1, 4);
    let to = Recipient::cell(NodeTag::of("b"), 3);
    let own = cell.seal(to, b"payload");
    assert_eq!(cell.open(&own), Err(Refusal::Reflected));
    let of_sibling = sibling.seal(to, b"payload");
    assert_eq!(cell.open(&of_sibling), Err(Refusal::BadSeal));
    let meant = sibling.seal(cell.own, b"payload");
    assert_eq!(cell.open(&meant), Ok(b"payload".to_vec()));
}

#[test]
fn gossip_is_for_anybody_but_its_sender() {
    let key = key();
    let mut sealer = Sealer::new(&key, 1, GOSSIP);
    let mut datagram = Vec::new();
    sealer.seal(Recipient::gossip(), NOW, &mut datagram, |out| out.push(7));
    for session in 2..4 {
        let mut opener = Opener::new(&key, Recipient::gossip(), session);
        let mut copy = datagram.clone();
        assert_eq!(opener.open(NOW, &mut copy).unwrap().payload, [7]);
    }
    let mut opener = Opener::new(&key, Recipient::gossip(), 1);
    assert_eq!(opener.open(NOW, &mut datagram), Err(Refusal::Reflected));
}

#[test]
fn old_datagrams_do_not_open_after_a_restart() {
    let key = key();
    let (mut a, mut b) = pair(&key);
    let datagram = a.seal(b.own, b"payload");
    assert!(b.open(&datagram).is_ok());
    let restarted = || Cell::new(&key, "b", 99, 3);
    for (now_secs, expected) in [
        (NOW + AGE_SECS_MAX + 1, Err(Refusal::Old)),
        (NOW - AGE_SECS_MAX - 1, Err(Refusal::Old)),
        (NOW + AGE_SECS_MAX, Ok(b"payload".to_vec())),
        (NOW - AGE_SECS_MAX, Ok(b"payload".to_vec())),
    ] {
        assert_eq!(restarted().open_at(now_secs, &datagram), expected);
    }
}

#[test]
fn datagrams_may_overtake_each_other_within_the_window() {
    let (mut a, mut b) = pair(&key());
    let datagrams: Vec<_> = (0..=WINDOW_LEN).map(|_| a.seal(b.own, b"payload")).collect();
    for datagram in datagrams[1..].iter().rev() {
        assert_eq!(b.open(datagram), Ok(b"payload".to_vec()));
    }
    for datagram in &datagrams {
        assert_eq!(b.open(datagram), Err(Refusal::Replayed));
    }
}

#[test]
fn a_key_is_renewed_before_it_wears_out() {
    let key = key();
    let (mut a, mut b) = pair(&key);
    a.sealer.counter = (1 << RENEWAL_SHIFT) - 2;
    let datagrams: Vec<_> = (0..4).map(|_| a.seal(b.own, b"payload")).collect();
    assert_eq!(a.sealer.stream.renewal, 1);
    // The last of the old key may come after the first of the new one.
    for index in [0, 2, 1, 3] {
        assert_eq!(b.open(&datagrams[index]), Ok(b"payload".to_vec()));
        assert_eq!(b.open(&datagrams[index]), Err(Refusal::Replayed));
    }
    assert_eq!(b.opener.streams.len(), 2);
}

#[test]
fn senders_known_at_once_are_bounded() {
    let key = key();
    let mut b = Cell::new(&key, "b", 0, 3);
    let mut first = Cell::new(&key, "a", 1, 0);
    let kept = first.seal(b.own, b"payload");
    assert!(b.open(&kept).is_ok());
    for session in 2..=STREAMS_MAX as u64 + 1 {
        let datagram = Cell::new(&key, "a", session, 0).seal(b.own, b"payload");
        assert!(b.open(&datagram).is_ok());
        // The first speaks again before it is silent for longest.
        if session == STREAMS_MAX as u64 {
            let again = first.seal(b.own, b"payload");
            assert!(b.open(&again).is_ok());
        }
    }
    assert_eq!(b.opener.streams.len(), STREAMS_MAX);
    assert_eq!(b.open(&kept), Err(Refusal::Replayed), "the first is still known");
    let silent = StreamId { session: 2, cell: 0, renewal: 0 };
    assert!(!b.opener.streams.contains_key(&silent), "the second is forgotten");
}

#[test]
fn nothing_secret_prints() {
    let (a, b) = pair(&key());
    let text = format!("{:?} {:?}", a.sealer, b.opener);
    assert!(text.starts_with("Sealer { stream: StreamId"), "{text}");
    assert!(!text.contains("key") && !text.contains("root"), "{text}");
}

/// `cargo test --release -p pharos seal_and_open -- --ignored --nocapture`
#[test]
#[ignore = "measures"]
fn time_to_seal_and_open() {
    const ROUNDS: u32 = 2_000_000;
    let (mut a, mut b) = pair(&key());
    let payload = [7; 100];
    let (mut datagram, mut opened) = (Vec::new(), 0);
    let started = std::time::Instant::now();
    for _ in 0..ROUNDS {
        a.sealer.seal(b.own, NOW, &mut datagram, |out| out.extend_from_slice(&payload));
    }
    let seal = started.elapsed() / ROUNDS;
    let started = std::time::Instant::now();
    for _ in 0..ROUNDS {
        a.sealer.seal(b.own, NOW, &mut datagram, |out| out.extend_from_slice(&payload));
        opened += b.opener.open(NOW, &mut datagram).unwrap().payload.len();
    }
    let both = started.elapsed() / ROUNDS;
    assert_eq!(opened, ROUNDS as usize * payload.len());
    println!("sealing 100 octets takes {seal:?}, sealing and opening {both:?}");
}
