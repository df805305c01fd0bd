//! The other members as this cell sees them: how much they owe it, how fast
//! they are, and whether they are there.
//!
//! A member that leaves several questions without a word is suspected: it is
//! asked last, and probed until it says something. Anything it says clears it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cluster::View;

use crate::peer::CellAddress;
use crate::time::Moment;

/// Questions without a word, one after the other, until a member is suspected.
const SILENT_MAX: u32 = 3;
/// How long a member that is suspected has said nothing at all: longer than a
/// busy machine keeps a thread from its core. What is asked of another owner
/// before that is asked upstream twice.
const QUIET_MIN: Duration = Duration::from_millis(50);
/// How often a suspected member is probed.
pub(super) const PROBE_EVERY: Duration = Duration::from_millis(100);
/// Bounds of the time that a member has for its first word.
const PATIENCE_MIN: Duration = Duration::from_millis(5);
const PATIENCE_MAX: Duration = Duration::from_millis(60);

/// A member as this cell sees it.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub name: Arc<str>,
    pub hash: u64,
    pub incarnation: u64,
    pub address: SocketAddr,
    pub cells: u8,
    /// Questions of this cell that it has not answered yet.
    pub outstanding: u32,
    pub is_suspect: bool,
    silent: u32,
    /// When it last said something.
    heard: Moment,
    /// Smoothed time to its first word, and its spread.
    rtt_us: Option<(f32, f32)>,
}

/// How another member does, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerReport {
    pub name: Arc<str>,
    pub outstanding: u32,
    pub is_suspect: bool,
    pub rtt: Option<Duration>,
}

impl Peer {
    /// Where its `cell`th cell is.
    pub fn cell(&self, cell: u8) -> CellAddress {
        CellAddress { node: self.hash, address: self.address, cell }
    }

    /// How long it may take for its first word.
    pub fn patience(&self) -> Duration {
        // Of whom nothing is known yet, nothing can be expected.
        let Some((rtt, spread)) = self.rtt_us else { return PATIENCE_MAX };
        let expected = Duration::from_micros((2.0 * rtt + 8.0 * spread) as u64);
        expected.clamp(PATIENCE_MIN, PATIENCE_MAX)
    }

    /// It said something about a question that it was asked `took` ago.
    pub fn note_word(&mut self, took: Duration) {
        let took = took.as_micros() as f32;
        self.rtt_us = Some(match self.rtt_us {
            None => (took, took / 2.0),
            Some((rtt, spread)) => {
                (rtt + (took - rtt) / 8.0, spread + ((took - rtt).abs() - spread) / 4.0)
            }
        });
    }

    /// It said something, whatever.
    pub fn note_life(&mut self, now: Moment) {
        self.silent = 0;
        self.is_suspect = false;
        self.heard = now;
    }

    /// It said nothing in time; true if it is suspected from now on. One that
    /// has just spoken is slow: all questions of a frame are late together.
    pub fn note_silence(&mut self, now: Moment) -> bool {
        self.silent += 1;
        let is_quiet = now.since(self.heard) >= QUIET_MIN;
        let is_new = !self.is_suspect && self.silent >= SILENT_MAX && is_quiet;
        self.is_suspect |= is_new;
        is_new
    }
}

/// All members, in the order of the view.
#[derive(Debug, Default)]
pub(super) struct Peers {
    peers: Vec<Peer>,
    /// Sorted by the hashes of their names.
    by_hash: Vec<(u64, u16)>,
    /// Questions that all of them have not answered yet.
    outstanding: u64,
}

impl Peers {
    /// Takes the members of a new view; what is known of a member stays.
    pub fn take(&mut self, view: &View) {
        let mut before = std::mem::take(&mut self.peers);
        self.peers = view
            .members()
            .iter()
            .map(|member| {
                let was = before.iter().position(|peer| peer.name == member.name);
                let was = was.map(|at| before.swap_remove(at));
                let is_same = was.as_ref().is_some_and(|was| was.incarnation == member.incarnation);
                Peer {
                    name: member.name.clone(),
                    hash: cluster::name_tag(&member.name),
                    incarnation: member.incarnation,
                    address: member.peer,
                    cells: member.cells,
                    outstanding: was.as_ref().map_or(0, |was| was.outstanding),
                    // Its former self may have been silent because it was dead.
                    is_suspect: is_same && was.as_ref().is_some_and(|was| was.is_suspect),
                    silent: 0,
                    heard: was.as_ref().map_or(Moment(0), |was| was.heard),
                    rtt_us: was.filter(|_| is_same).and_then(|was| was.rtt_us),
                }
            })
            .collect();
        let hashes = self.peers.iter().enumerate().map(|(at, peer)| (peer.hash, at as u16));
        self.by_hash = hashes.collect();
        self.by_hash.sort_unstable();
        self.outstanding = self.peers.iter().map(|peer| u64::from(peer.outstanding)).sum();
    }

    pub fn get(&self, member: u16) -> &Peer {
        &self.peers[member as usize]
    }

    pub fn by_hash(&mut self, hash: u64) -> Option<&mut Peer> {
        let at = self.by_hash.binary_search_by_key(&hash, |(hash, _)| *hash).ok()?;
        self.peers.get_mut(self.by_hash[at].1 as usize)
    }

    /// Counts a question to or an answer from a member.
    pub fn owe(&mut self, hash: u64, is_more: bool) {
        let Some(peer) = self.by_hash(hash) else { return };
        if is_more {
            peer.outstanding += 1;
            self.outstanding += 1;
        } else if peer.outstanding > 0 {
            peer.outstanding -= 1;
            self.outstanding -= 1;
        }
    }

    pub fn outstanding(&self) -> u64 {
        self.outstanding
    }

    pub fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter()
    }

    pub fn reports(&self) -> Vec<PeerReport> {
        let report = |peer: &Peer| PeerReport {
            name: peer.name.clone(),
            outstanding: peer.outstanding,
            is_suspect: peer.is_suspect,
            rtt: peer.rtt_us.map(|(rtt, _)| Duration::from_micros(rtt as u64)),
        };
        self.peers.iter().map(report).collect()
    }
}
