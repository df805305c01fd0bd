//! What a node routes questions by: one view, one hash key, and the owners that
//! follow from them.

use std::hash::Hasher;
use std::sync::Arc;

use siphasher::sip::SipHasher24;

use crate::epoch::Epoch;
use crate::placement::Placement;
use crate::slot::Slot;
use crate::table::SlotTable;
use crate::view::View;

/// First octet of what tags are hashed from. No encoded question begins with
/// it, so that a tag says nothing about the slot of any.
const TAG_MARK: u8 = 0xff;

/// Who owns which question. Never changes: another view or another key makes
/// another routing.
#[derive(Clone, Debug)]
pub struct Routing {
    view: Arc<View>,
    epoch: Epoch,
    table: SlotTable,
    tag: u64,
}

impl Routing {
    /// The routing under `view` and the key of `epoch`, with up to `width`
    /// owners for each slot.
    pub fn new(view: Arc<View>, placement: Placement, width: usize, epoch: Epoch) -> Routing {
        let table = SlotTable::new(&view, placement, width);
        let tag = tag(&view, placement, &epoch);
        Routing { view, epoch, table, tag }
    }

    /// The members.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// The hash key and its number.
    pub fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// The owners of all slots.
    pub fn table(&self) -> &SlotTable {
        &self.table
    }

    /// The slot of a question in its encoded form.
    #[inline]
    pub fn slot(&self, encoded_question: &[u8]) -> Slot {
        self.epoch.key.slot(encoded_question)
    }

    /// The owners of `slot`, first the one to ask first, as places in the
    /// view's members.
    #[inline]
    pub fn owners(&self, slot: Slot) -> &[u16] {
        self.table.owners(slot)
    }

    /// Equal on nodes that agree on who owns what: the same members, the same
    /// placement, the same epoch. The width is no part of it, because nodes of
    /// different widths agree as far as the narrower one goes.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// The place of the member called `name`.
    pub fn index_of(&self, name: &str) -> Option<u16> {
        self.view.find(name).map(|index| index as u16)
    }
}

/// Hashed under the epoch's key, which it does not give away: nodes that
/// numbered different keys alike notice it too.
fn tag(view: &View, placement: Placement, epoch: &Epoch) -> u64 {
    let mut hasher = SipHasher24::new_with_key(&epoch.key.0);
    hasher.write(&[TAG_MARK]);
    hasher.write(&epoch.number.to_le_bytes());
    hasher.write(&view.digest().to_le_bytes());
    hasher.write(placement.name().as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::Member;
    use crate::slot::HashKey;
    use crate::testing::{count, view};

    const EPOCH: Epoch = Epoch { number: 3, key: HashKey([7; 16]) };

    fn routing(members: &[Member], placement: Placement, epoch: Epoch) -> Routing {
        Routing::new(Arc::new(view(members)), placement, 2, epoch)
    }

    #[test]
    fn a_routing_holds_what_it_was_made_of() {
        let members = count(4);
        let routing = routing(&members, Placement::BoundedRing, EPOCH);
        let table = SlotTable::new(&view(&members), Placement::BoundedRing, 2);
        assert_eq!(**routing.view(), view(&members));
        assert_eq!(*routing.epoch(), EPOCH);
        assert_eq!(*routing.table(), table);
        let slot = routing.slot(b"\0\0\x01\0\x01\x07example\0");
        assert_eq!(slot, EPOCH.key.slot(b"\0\0\x01\0\x01\x07example\0"));
        assert_eq!(routing.owners(slot), table.owners(slot));
        assert_eq!(routing.index_of("node-03"), Some(2));
        assert_eq!(routing.index_of("node-05"), None);
    }

    #[test]
    fn tags_are_equal_where_owners_are() {
        let mut members = count(4);
        let tag = routing(&members, Placement::Rendezvous, EPOCH).tag();
        members.reverse();
        assert_eq!(routing(&members, Placement::Rendezvous, EPOCH).tag(), tag);
        let renumbered = Arc::new(View::new(99, members.clone()).unwrap());
        assert_eq!(Routing::new(renumbered, Placement::Rendezvous, 3, EPOCH).tag(), tag);

        let later = Epoch { number: 4, ..EPOCH };
        assert_ne!(routing(&members, Placement::Rendezvous, later).tag(), tag);
        let other_key = Epoch { key: HashKey([8; 16]), ..EPOCH };
        assert_ne!(routing(&members, Placement::Rendezvous, other_key).tag(), tag);
        assert_ne!(routing(&members, Placement::BoundedRing, EPOCH).tag(), tag);
        members.pop();
        assert_ne!(routing(&members, Placement::Rendezvous, EPOCH).tag(), tag);
    }
}
