//! What an answer must remember on its way.

use super::CHAIN_LEN_MAX;
use crate::denial::{Absence, PROOF_LEN_MAX, proof_type, prove};
use crate::image::{Image, Set};

/// Records of proofs that one answer carries: one for each wildcard on the
/// way, and those of the end.
const PROOFS_MAX: usize = CHAIN_LEN_MAX + PROOF_LEN_MAX;

/// Proofs to send, and what must not be sent twice.
pub(super) struct Trail<'z> {
    /// Proofs, kept until the answer section is complete.
    proofs: [Option<ProofRecord<'z>>; PROOFS_MAX],
    /// DNAME sets sent already; only made for answers that send one.
    redirects: Option<[Option<Set<'z>>; CHAIN_LEN_MAX + 1]>,
}

/// The owner of an NSEC or NSEC3 set, and where the name of its zone stands in
/// the message. Small, because every answer with a proof has a row of them.
#[derive(Clone, Copy)]
pub(super) struct ProofRecord<'z> {
    image: &'z Image,
    node: u32,
    apex_at: u16,
    /// In the message already; kept so that it is not sent again.
    is_sent: bool,
}

impl<'z> ProofRecord<'z> {
    /// The NSEC or NSEC3 set and the labels of its owner.
    #[inline]
    pub fn set(self) -> Option<(Set<'z>, &'z [u8])> {
        let node = self.image.node(self.node);
        Some((node.set(proof_type(self.image))?, node.relative()))
    }

    /// Where the zone's own name stands in the message.
    #[inline]
    pub fn apex_at(self) -> usize {
        self.apex_at as usize
    }
}

impl<'z> Trail<'z> {
    /// Nothing to remember yet.
    pub const NEW: Self = Trail { proofs: [None; PROOFS_MAX], redirects: None };

    /// The proofs that are not in the message yet; they are from now on.
    #[inline]
    pub fn unsent_proofs(&mut self) -> impl Iterator<Item = ProofRecord<'z>> {
        self.proofs.iter_mut().map_while(Option::as_mut).filter(|proof| !proof.is_sent).map(
            |proof| {
                proof.is_sent = true;
                *proof
            },
        )
    }

    /// Notes the records that prove `absence`, none twice.
    pub fn add_proof(&mut self, image: &'z Image, apex_at: usize, absence: Absence<'_>) {
        for node in prove(image, absence).nodes() {
            let node = node.offset() as u32;
            let proof = ProofRecord { image, node, apex_at: apex_at as u16, is_sent: false };
            for place in &mut self.proofs {
                match place {
                    Some(known) if known.node == node && known.image.is_same(image) => break,
                    Some(_) => {}
                    None => {
                        *place = Some(proof);
                        break;
                    }
                }
            }
        }
    }

    /// True if `set` is a DNAME set sent already.
    pub fn is_redirect(&self, set: Set<'_>) -> bool {
        self.redirects.iter().flatten().flatten().any(|known| known.is_same(set))
    }

    /// Notes that a DNAME set is sent; false if it was already.
    pub fn note_redirect(&mut self, set: Set<'z>) -> bool {
        for place in self.redirects.get_or_insert([None; CHAIN_LEN_MAX + 1]) {
            match place {
                Some(known) if known.is_same(set) => return false,
                Some(_) => {}
                None => {
                    *place = Some(set);
                    return true;
                }
            }
        }
        true
    }
}
