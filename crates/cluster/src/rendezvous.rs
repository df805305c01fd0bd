//! Rendezvous hashing: every member scores every slot, whoever else there is,
//! and a slot belongs to those that score it highest.
//!
//! A member's scores are not independent draws: it puts the slots in an order
//! of its own, shuffled under a seed made from its name, and the score of a
//! slot is its place there. So every member has every score exactly once, which
//! halves the variance of the shares. Members still know nothing of each other,
//! so the laws of rendezvous hashing hold: without a member its slots go to the
//! next in rank, and nothing else moves.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::slot::SLOTS;

/// For each slot the places in `names` of the `ranks` members that own it, best
/// first. At equal scores the earlier name wins.
///
/// There must be at least `ranks` names, in order, and `ranks` must not be 0.
pub(crate) fn rank(names: &[&str], ranks: usize) -> Vec<u16> {
    let mut best = vec![Claim::default(); SLOTS * ranks];
    let mut scores = Vec::with_capacity(SLOTS);
    for (place, name) in names.iter().enumerate() {
        shuffle(seed(name), &mut scores);
        for (score, claims) in scores.iter().zip(best.chunks_exact_mut(ranks)) {
            Claim::new(*score, place as u16).enter(claims);
        }
    }
    best.into_iter().map(Claim::place).collect()
}

/// A score and who has it, in one word, so that the larger is the better claim:
/// the score above, and below it what makes an earlier place larger. No claim
/// is as small as the default one, because places stay below `u16::MAX`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Claim(u32);

impl Claim {
    fn new(score: u16, place: u16) -> Self {
        Claim(u32::from(score) << 16 | u32::from(!place))
    }

    fn place(self) -> u16 {
        !(self.0 as u16)
    }

    /// Takes its rank among `claims`, the best of which is first; the last one
    /// leaves.
    #[inline]
    fn enter(self, claims: &mut [Claim]) {
        // Most claims are too weak, and the last one to beat says so at once.
        if claims.last().is_some_and(|last| self > *last) {
            let mut weaker = self;
            for claim in claims {
                (*claim, weaker) = (weaker.max(*claim), weaker.min(*claim));
            }
        }
    }
}

/// What a member's order of slots is made from. Its name alone: a node that
/// was restarted gets back the slots it had.
fn seed(name: &str) -> u64 {
    // Fixed keys: all nodes must come to the same seed.
    let mut hasher = SipHasher24::new_with_keys(1, 0);
    hasher.write(name.as_bytes());
    hasher.finish()
}

/// Makes `scores` the numbers below [`SLOTS`] in an order that `seed` decides.
fn shuffle(seed: u64, scores: &mut Vec<u16>) {
    scores.clear();
    scores.extend(0..SLOTS as u16);
    let mut draws = Draws(seed);
    for last in (1..SLOTS).rev() {
        scores.swap(last, draws.below(last as u32 + 1) as usize);
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014): passes the usual tests and costs
/// three multiplications a draw, which matters for a million of them.
struct Draws(u64);

impl Draws {
    /// A number below `bound`, every one as likely as any other up to one part
    /// in 2^18.
    #[inline]
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        (((word >> 32) * u64::from(bound)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_member_has_every_score_once() {
        let mut scores = Vec::new();
        let mut first = Vec::new();
        for name in ["a", "b", "node-1"] {
            shuffle(seed(name), &mut scores);
            assert_ne!(first, scores, "each has its own order");
            first = scores.clone();
            scores.sort_unstable();
            assert!(scores.iter().map(|score| *score as usize).eq(0..SLOTS));
        }
    }

    /// Nodes of different versions must come to the same owners.
    #[test]
    fn ranks_stay_what_they_were() {
        let ranked = rank(&["a", "b", "c", "d", "e"], 3);
        assert_eq!(ranked[..9], [2, 3, 4, 4, 2, 0, 4, 3, 2]);
        assert_eq!(ranked[3 * 9_999..3 * 10_002], [2, 1, 0, 0, 2, 1, 4, 1, 2]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn claims_end_up_as_if_they_were_sorted(
            scores in prop::collection::vec(0..40u16, 1..30),
            ranks in 1..10usize,
        ) {
            let ranks = ranks.min(scores.len());
            let mut kept = vec![Claim::default(); ranks];
            for (place, score) in scores.iter().enumerate() {
                Claim::new(*score, place as u16).enter(&mut kept);
            }
            let mut sorted: Vec<usize> = (0..scores.len()).collect();
            sorted.sort_by_key(|place| (std::cmp::Reverse(scores[*place]), *place));
            let kept: Vec<usize> = kept.into_iter().map(|claim| claim.place().into()).collect();
            prop_assert_eq!(&kept[..], &sorted[..ranks]);
        }
    }
}
