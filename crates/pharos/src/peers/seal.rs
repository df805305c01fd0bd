//! Datagrams between cells: each sealed by itself, to be opened once, by the
//! cell it is for, soon.
//!
//! ```text
//!  0       to        cell it is for, or 255 for gossip; the kernel reads it
//!  1       form      1
//!  2       from      cell it is from, or 255
//!  3 ..7   time      when it was sealed, in seconds since 1970
//!  7 ..15  session   drawn at every start of a node
//! 15 ..23  counter   of this session and cell: 0, 1, 2 …
//! 23 ..    payload   encrypted
//!          tag       16 octets
//! ```
//!
//! Payload and tag are AES-128-GCM (RFC 5116). Its key is derived from the
//! cluster's key, the session and the sending cell, and its nonce is the
//! counter, so no pair of them is ever used twice. The header, and the node the
//! datagram is for, which both sides know, are authenticated with it.
//!
//! A receiver remembers the last counters of every sender, so a datagram opens
//! once. It forgets them when it restarts; the time bounds for how long an old
//! datagram could be new to it. It is the sender's clock against the
//! receiver's, so the bound is generous.

use std::collections::HashMap;
use std::fmt;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::Prk;

use super::key::ClusterKey;
use super::window::ReplayWindow;
use super::{GOSSIP, NodeTag};

/// Octets in front of the payload.
pub(super) const HEADER_LEN: usize = 23;
/// Octets behind it.
const TAG_LEN: usize = 16;
/// Octets that sealing adds to a payload.
pub const OVERHEAD_LEN: usize = HEADER_LEN + TAG_LEN;
/// Octets of a datagram between cells at the most: no fragments on Ethernet,
/// with IPv6 and a tunnel around it.
pub const DATAGRAM_LEN_MAX: usize = 1400;
/// Octets of a payload between cells at the most; longer ones go over
/// connections.
pub const PAYLOAD_LEN_MAX: usize = DATAGRAM_LEN_MAX - OVERHEAD_LEN;
/// How far the clocks of two nodes may be apart, transport included, and for
/// how long a datagram could be sent again to a node that restarted.
pub const AGE_SECS_MAX: u32 = 120;
/// Senders that a cell knows at once; those silent for longest are forgotten.
pub const STREAMS_MAX: usize = 4096;

/// The version of all this.
const FORM: u8 = 1;
/// Octets that are authenticated beside the payload: header and node.
const ASSOCIATED_LEN: usize = HEADER_LEN + size_of::<NodeTag>();
/// Datagrams under one key, as a power of two. At their longest, 88 blocks each
/// between cells, they stay below 2^39 blocks: an attacker's chance to tell
/// those from noise is below 2^-50.
const RENEWAL_SHIFT: u32 = 32;
/// The label that keys of datagrams are derived under.
const LABEL: &str = "datagrams";

/// Whom a datagram is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipient {
    node: NodeTag,
    cell: u8,
}

impl Recipient {
    /// A cell of a node.
    pub fn cell(node: NodeTag, cell: u8) -> Self {
        Recipient { node, cell }
    }

    /// The gossip of whichever node it reaches.
    pub fn gossip() -> Self {
        Recipient { node: NodeTag::ANYBODY, cell: GOSSIP }
    }
}

/// Seals what one cell sends.
pub struct Sealer {
    root: Prk,
    stream: StreamId,
    key: LessSafeKey,
    counter: u64,
}

impl Sealer {
    /// A sealer for `cell` of a node whose `session` was drawn at its start.
    /// There is no second one for the same session and cell.
    pub fn new(key: &ClusterKey, session: u64, cell: u8) -> Self {
        let root = key.derive_root(LABEL);
        let stream = StreamId { session, cell, renewal: 0 };
        Sealer { key: stream.key(&root), root, stream, counter: 0 }
    }

    /// Makes a datagram in `datagram`, whose old content goes. `write` appends
    /// the payload.
    pub fn seal(
        &mut self,
        to: Recipient,
        now_secs: u32,
        datagram: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let header = Header {
            to: to.cell,
            from: self.stream.cell,
            time_secs: now_secs,
            session: self.stream.session,
            counter: self.next_counter(),
        };
        let octets = header.write();
        datagram.clear();
        datagram.extend_from_slice(&octets);
        write(datagram);
        let payload = datagram.get_mut(HEADER_LEN..).expect("a payload is only appended");
        let associated = Aad::from(associate(&octets, to.node));
        let tag = self.key.seal_in_place_separate_tag(header.nonce(), associated, payload);
        // It would fail at 64 GiB.
        datagram.extend_from_slice(tag.expect("a datagram can be sealed").as_ref());
    }

    /// The number of the next datagram, under a key that may still be used.
    fn next_counter(&mut self) -> u64 {
        let counter = self.counter;
        self.counter += 1;
        let renewal = renewal_of(counter);
        if renewal != self.stream.renewal {
            self.stream.renewal = renewal;
            self.key = self.stream.key(&self.root);
        }
        counter
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("stream", &self.stream).finish_non_exhaustive()
    }
}

/// Opens what one cell receives.
pub struct Opener {
    root: Prk,
    /// Whom datagrams must be for.
    own: Recipient,
    session: u64,
    streams: HashMap<StreamId, Stream>,
    /// Counts datagrams that were opened, to know which streams are silent.
    opened: u64,
}

/// A datagram that was opened.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened<'d> {
    /// The cell that sent it, or [`GOSSIP`].
    pub from_cell: u8,
    /// What its node drew at its start.
    pub session: u64,
    pub payload: &'d [u8],
}

/// Why a datagram was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Shorter than any datagram.
    Short,
    /// Of a form that this version does not know.
    Form,
    /// For another cell.
    Astray,
    /// Sealed too long ago, or in the future: it was sent again, or a clock is
    /// wrong.
    Old,
    /// Sent by the cell that received it.
    Reflected,
    /// It was opened before, or comes so late that nobody can tell.
    Replayed,
    /// Altered, for another node, or sealed with the key of another cluster.
    BadSeal,
}

impl Refusal {
    /// Every reason, for counters.
    pub const ALL: [Refusal; 7] = [
        Refusal::Short,
        Refusal::Form,
        Refusal::Astray,
        Refusal::Old,
        Refusal::Reflected,
        Refusal::Replayed,
        Refusal::BadSeal,
    ];

    /// The name used in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Short => "short",
            Refusal::Form => "form",
            Refusal::Astray => "astray",
            Refusal::Old => "old",
            Refusal::Reflected => "reflected",
            Refusal::Replayed => "replayed",
            Refusal::BadSeal => "bad_seal",
        }
    }
}

impl Opener {
    /// An opener for datagrams to `own`, of a node whose `session` was drawn
    /// at its start.
    pub fn new(key: &ClusterKey, own: Recipient, session: u64) -> Self {
        let root = key.derive_root(LABEL);
        Opener { root, own, session, streams: HashMap::new(), opened: 0 }
    }

    /// Opens a datagram in place. After an error its octets mean nothing.
    pub fn open<'d>(
        &mut self,
        now_secs: u32,
        datagram: &'d mut [u8],
    ) -> Result<Opened<'d>, Refusal> {
        let (octets, sealed) = datagram.split_first_chunk_mut().ok_or(Refusal::Short)?;
        if sealed.len() < TAG_LEN {
            return Err(Refusal::Short);
        }
        let header = Header::read(octets).ok_or(Refusal::Form)?;
        self.check(&header, now_secs)?;
        let associated = associate(octets, self.own.node);
        let id = header.stream();
        let payload = match self.streams.get_mut(&id) {
            Some(stream) => {
                if !stream.window.is_new(header.counter) {
                    return Err(Refusal::Replayed);
                }
                let payload = header.open(&stream.key, &associated, sealed)?;
                stream.note(header.counter, self.opened);
                payload
            }
            None => {
                // Only who holds the cluster's key gets a place in the table.
                let key = id.key(&self.root);
                let payload = header.open(&key, &associated, sealed)?;
                let mut stream = Stream { key, window: ReplayWindow::default(), used: 0 };
                stream.note(header.counter, self.opened);
                self.keep(id, stream);
                payload
            }
        };
        self.opened += 1;
        Ok(Opened { from_cell: header.from, session: header.session, payload })
    }

    /// Everything that can be said of a datagram by what it says of itself.
    fn check(&self, header: &Header, now_secs: u32) -> Result<(), Refusal> {
        if header.to != self.own.cell {
            return Err(Refusal::Astray);
        }
        if header.time_secs.abs_diff(now_secs) > AGE_SECS_MAX {
            return Err(Refusal::Old);
        }
        // Other cells of this node may send datagrams here; what they sent to
        // other nodes does not open.
        if header.session == self.session && header.from == self.own.cell {
            return Err(Refusal::Reflected);
        }
        Ok(())
    }

    /// Adds a stream, in the place of the one silent for longest if there is
    /// none free. Rare enough to look at all of them: it takes a sender that
    /// started, and more senders than a cluster should have cells.
    fn keep(&mut self, id: StreamId, stream: Stream) {
        if self.streams.len() >= STREAMS_MAX {
            let silent = self.streams.iter().min_by_key(|(_, stream)| stream.used);
            if let Some(silent) = silent.map(|(id, _)| *id) {
                self.streams.remove(&silent);
            }
        }
        self.streams.insert(id, stream);
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Opener");
        debug.field("own", &self.own).field("streams", &self.streams.len()).finish_non_exhaustive()
    }
}

/// What has a key and counters of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StreamId {
    session: u64,
    cell: u8,
    /// How often its key was renewed.
    renewal: u32,
}

impl StreamId {
    fn key(self, root: &Prk) -> LessSafeKey {
        let (session, renewal) = (self.session.to_be_bytes(), self.renewal.to_be_bytes());
        let info = [&session[..], &[self.cell], &renewal];
        let key = root.expand(&info, &AES_128_GCM).map(UnboundKey::from);
        LessSafeKey::new(key.expect("HKDF makes a key of 16 octets"))
    }
}

/// A sender as a receiver knows it.
struct Stream {
    key: LessSafeKey,
    window: ReplayWindow,
    /// When it was last heard, in datagrams that were opened.
    used: u64,
}

impl Stream {
    fn note(&mut self, counter: u64, opened: u64) {
        self.window.insert(counter);
        self.used = opened;
    }
}

/// What is in front of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    to: u8,
    from: u8,
    time_secs: u32,
    session: u64,
    counter: u64,
}

impl Header {
    /// Reads a header; `None` if it has another form.
    fn read(octets: &[u8; HEADER_LEN]) -> Option<Self> {
        let [to, form, from, rest @ ..] = octets;
        let (time, rest) = rest.split_first_chunk()?;
        let (session, rest) = rest.split_first_chunk()?;
        let (counter, []) = rest.split_first_chunk()? else { return None };
        (*form == FORM).then_some(Header {
            to: *to,
            from: *from,
            time_secs: u32::from_be_bytes(*time),
            session: u64::from_be_bytes(*session),
            counter: u64::from_be_bytes(*counter),
        })
    }

    fn write(&self) -> [u8; HEADER_LEN] {
        let mut octets = [0; HEADER_LEN];
        octets[..3].copy_from_slice(&[self.to, FORM, self.from]);
        octets[3..7].copy_from_slice(&self.time_secs.to_be_bytes());
        octets[7..15].copy_from_slice(&self.session.to_be_bytes());
        octets[15..].copy_from_slice(&self.counter.to_be_bytes());
        octets
    }

    fn stream(&self) -> StreamId {
        let renewal = renewal_of(self.counter);
        StreamId { session: self.session, cell: self.from, renewal }
    }

    /// Opens what is behind it, in place.
    fn open<'d>(
        &self,
        key: &LessSafeKey,
        associated: &[u8; ASSOCIATED_LEN],
        sealed: &'d mut [u8],
    ) -> Result<&'d [u8], Refusal> {
        let payload = key.open_in_place(self.nonce(), Aad::from(associated), sealed);
        payload.map(|payload| &*payload).map_err(|_| Refusal::BadSeal)
    }

    fn nonce(&self) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[NONCE_LEN - 8..].copy_from_slice(&self.counter.to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }
}

fn renewal_of(counter: u64) -> u32 {
    (counter >> RENEWAL_SHIFT) as u32
}

/// What is authenticated beside the payload.
fn associate(header: &[u8; HEADER_LEN], node: NodeTag) -> [u8; ASSOCIATED_LEN] {
    let mut octets = [0; ASSOCIATED_LEN];
    octets[..HEADER_LEN].copy_from_slice(header);
    octets[HEADER_LEN..].copy_from_slice(&node.0);
    octets
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::window::WINDOW_LEN;
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
}
