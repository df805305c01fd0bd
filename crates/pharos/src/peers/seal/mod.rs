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
//! counter, so no pair of them is ever used twice. What of the header is in
//! neither is authenticated beside the payload, and so is the node that the
//! datagram is for, which both sides know: one block together, because the
//! time it takes to seal goes by blocks.
//!
//! A receiver remembers the last counters of every sender, so a datagram opens
//! once. It forgets them when it restarts; the time bounds for how long an old
//! datagram could be new to it. It is the sender's clock against the
//! receiver's, so the bound is generous.

#[cfg(test)]
mod tests;
mod window;

use std::collections::HashMap;
use std::fmt;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::Prk;

use super::key::ClusterKey;
use super::{GOSSIP, NodeTag};
use window::ReplayWindow;

/// Octets in front of the payload.
pub(super) const HEADER_LEN: usize = 23;
/// Octets behind it.
const TAG_LEN: usize = 16;
/// Octets that sealing adds to a payload.
pub const OVERHEAD_LEN: usize = HEADER_LEN + TAG_LEN;
/// How far the clocks of two nodes may be apart, transport included, and for
/// how long a datagram could be sent again to a node that restarted.
pub const AGE_SECS_MAX: u32 = 120;
/// Senders that a cell knows at once; those silent for longest are forgotten.
pub const STREAMS_MAX: usize = 4096;

/// The version of all this.
const FORM: u8 = 1;
/// Octets that are authenticated beside the payload, within one block.
const ASSOCIATED_LEN: usize = 2 + size_of::<u32>() + size_of::<NodeTag>();
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
        datagram.clear();
        datagram.extend_from_slice(&header.write());
        write(datagram);
        let payload = datagram.get_mut(HEADER_LEN..).expect("a payload is only appended");
        let associated = Aad::from(header.associate(to.node));
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
        let id = header.stream();
        let payload = match self.streams.get_mut(&id) {
            Some(stream) => {
                if !stream.window.is_new(header.counter) {
                    return Err(Refusal::Replayed);
                }
                let payload = header.open(&stream.key, self.own.node, sealed)?;
                stream.note(header.counter, self.opened);
                payload
            }
            None => {
                // Only who holds the cluster's key gets a place in the table.
                let key = id.key(&self.root);
                let payload = header.open(&key, self.own.node, sealed)?;
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
        node: NodeTag,
        sealed: &'d mut [u8],
    ) -> Result<&'d [u8], Refusal> {
        let associated = Aad::from(self.associate(node));
        let payload = key.open_in_place(self.nonce(), associated, sealed);
        payload.map(|payload| &*payload).map_err(|_| Refusal::BadSeal)
    }

    /// What neither key nor nonce holds of it, and the node it is for.
    fn associate(&self, node: NodeTag) -> [u8; ASSOCIATED_LEN] {
        let mut octets = [0; ASSOCIATED_LEN];
        octets[..2].copy_from_slice(&[self.to, FORM]);
        octets[2..6].copy_from_slice(&self.time_secs.to_be_bytes());
        octets[6..].copy_from_slice(&node.0);
        octets
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
