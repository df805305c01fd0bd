//! Shards of shards: a tenant that shuffle-shards its own customers.
//!
//! A tenant has the `k` slots of its shard. A small inner design over the
//! numbers below `k` picks some of them for each of its customers. Customers
//! of one tenant share what the inner design allows; customers of two tenants
//! cannot share more than the shards of these tenants do, nor more than they
//! have. So a customer that is flooded hurts neither the tenant's others nor,
//! where the outer overlap is smaller than an inner shard, anybody else's.

use std::fmt;
use std::sync::Arc;

use crate::design::{Design, Family};
use crate::fleet::Columns;
use crate::key::Key;
use crate::shard::{DesignIndex, SIZE_MAX, Shard, Slot};

/// A design within the shards of another.
///
/// ```
/// use std::sync::Arc;
/// use shuffle::{Admission, Allocator, Design, Fleet, Key, Nested, NestedIndex, STRIPE};
/// let columns = Fleet::numbered(2048, Some(8))?.columns(8, &[STRIPE])?;
/// let outer = Arc::new(Design::striped(columns, 2, None, &Key::PUBLIC));
/// let nested = Nested::within(outer.clone(), 4, 2, &Key::PUBLIC)?;
/// assert_eq!(nested.customers_max(), 14);
///
/// let everyone = Admission::everyone();
/// let (tenant, tenant_shard) = Allocator::new(outer).allocate(&everyone).unwrap();
/// let (customer, _) = Allocator::new(nested.inner().clone()).allocate(&everyone).unwrap();
/// let index = NestedIndex { tenant, customer };
/// let shard = nested.shard(index).unwrap();
/// assert!(shard.iter().all(|slot| tenant_shard.contains(slot)));
/// assert_eq!(nested.index(&shard), Some(index));
///
/// let guarantee = nested.guarantee();
/// assert_eq!((guarantee.size, guarantee.within, guarantee.across), (4, 2, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Nested {
    outer: Arc<Design>,
    inner: Arc<Design>,
}

/// The number of a tenant in the outer design and that of its customer in the
/// inner one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NestedIndex {
    pub tenant: DesignIndex,
    pub customer: DesignIndex,
}

/// What holds for the shards of customers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NestedGuarantee {
    /// Slots of every customer.
    pub size: usize,
    /// Slots that two customers of one tenant share at the most.
    pub within: usize,
    /// Slots that customers of two tenants share at the most.
    pub across: usize,
}

/// Why a design does not go into another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NestedError {
    /// The inner design is one over more or fewer slots than a shard has.
    Slots { inner: usize, size: usize },
    /// No design has customers of that size and overlap within a shard.
    Size { size: usize, overlap: usize, of: usize },
}

impl Nested {
    /// `inner` is a design over as many slots as a shard of `outer` has.
    pub fn new(outer: Arc<Design>, inner: Arc<Design>) -> Result<Self, NestedError> {
        let (inner_slots, size) = (inner.columns().slot_count(), outer.guarantee().size);
        match inner_slots == size {
            true => Ok(Nested { outer, inner }),
            false => Err(NestedError::Slots { inner: inner_slots, size }),
        }
    }

    /// Customers with `size` slots of their tenant's shard, of which two share
    /// no more than `overlap`: the inner design that has most of them.
    pub fn within(
        outer: Arc<Design>,
        size: usize,
        overlap: usize,
        key: &Key,
    ) -> Result<Self, NestedError> {
        let of = outer.guarantee().size;
        let refused = NestedError::Size { size, overlap, of };
        if size == 0 || size > of || overlap >= size {
            return Err(refused);
        }
        let columns = Columns::new(vec![(0..of as u32).map(Slot).collect()]);
        let inner = match (size, overlap) {
            (2, 1) => Design::pairs(columns, key),
            (4, 2) if of.is_power_of_two() => Design::quadruples(columns, key),
            _ => Design::searched(columns, size, overlap, key).ok_or(refused)?,
        };
        Nested::new(outer, Arc::new(inner))
    }

    /// The design of the tenants.
    pub fn outer(&self) -> &Arc<Design> {
        &self.outer
    }

    /// The design of the customers of each tenant. Each tenant has an
    /// allocator of its own for it.
    pub fn inner(&self) -> &Arc<Design> {
        &self.inner
    }

    /// What holds for the shards of customers.
    pub fn guarantee(&self) -> NestedGuarantee {
        let (outer, inner) = (self.outer.guarantee(), self.inner.guarantee());
        let across = outer.overlap.min(inner.size);
        NestedGuarantee { size: inner.size, within: inner.overlap, across }
    }

    /// Customers that each tenant can have.
    pub fn customers_max(&self) -> u128 {
        self.inner.capacity()
    }

    /// Customers that all tenants can have together.
    pub fn capacity(&self) -> u128 {
        self.outer.capacity().saturating_mul(self.inner.capacity())
    }

    /// The shard of a customer.
    pub fn shard(&self, index: NestedIndex) -> Option<Shard> {
        let tenant = self.outer.shard(index.tenant)?;
        let customer = self.inner.shard(index.customer)?;
        Some(Shard::new(customer.iter().map(|place| tenant[place.0 as usize])))
    }

    /// The number of a customer of a known tenant.
    pub fn customer(&self, tenant: DesignIndex, shard: &Shard) -> Option<DesignIndex> {
        let outer = self.outer.shard(tenant)?;
        let place = |slot: &Slot| outer.iter().position(|own| own == slot);
        let places: Option<Vec<usize>> = shard.iter().map(place).collect();
        self.inner.index(&Shard::new(places?.into_iter().map(|place| Slot(place as u32))))
    }

    /// The tenant and the customer that have this shard. `None` also if it
    /// does not tell the tenant: a shard with no more slots than the shards of
    /// two tenants share may be that of a customer of either.
    pub fn index(&self, shard: &Shard) -> Option<NestedIndex> {
        let tenant = self.outer.index(&self.outer_shard(shard)?)?;
        let customer = self.customer(tenant, shard)?;
        Some(NestedIndex { tenant, customer })
    }

    /// The only shard of the outer design that holds these slots.
    fn outer_shard(&self, part: &Shard) -> Option<Shard> {
        let overlap = self.outer.guarantee().overlap;
        if part.len() != self.inner.guarantee().size || part.len() <= overlap {
            return None;
        }
        let columns = self.outer.columns();
        let mut places = Vec::new();
        for slot in part.iter() {
            places.push(columns.place(*slot)?);
        }
        match self.outer.family() {
            Family::Words(code) => {
                let (at, letters): (Vec<usize>, Vec<u32>) =
                    places.into_iter().take(overlap + 1).unzip();
                if at.iter().enumerate().any(|(n, column)| at[..n].contains(column)) {
                    return None;
                }
                let mut word = [0; SIZE_MAX];
                let size = self.outer.guarantee().size;
                code.completion(&at).word(&letters, &mut word[..size]);
                slots(columns, word[..size].iter().copied().enumerate())
            }
            Family::Quadruples(_) => {
                let [a, b, c] = [places[0].1, places[1].1, places[2].1];
                slots(columns, [a, b, c, a ^ b ^ c].map(|letter| (0, letter)).into_iter())
            }
            Family::Pairs(_) => Some(*part),
            // Found by search, so there are few.
            Family::Found(_) => {
                let holds = |shard: &Shard| part.iter().all(|slot| shard.contains(slot));
                self.outer.shards(0).map(|(_, shard)| shard).find(holds)
            }
        }
    }
}

fn slots(columns: &Columns, places: impl Iterator<Item = (usize, u32)>) -> Option<Shard> {
    let slots: Option<Vec<Slot>> =
        places.map(|(column, letter)| columns.slot(column, letter)).collect();
    Some(Shard::new(slots?))
}

impl NestedGuarantee {
    /// Slots that any two customers share at the most.
    pub fn overlap(&self) -> usize {
        self.within.max(self.across)
    }

    /// How many customers, of whatever tenants, can be flooded at the same
    /// time so that every other customer keeps a slot; `None` if any number.
    pub fn survives_attackers(&self) -> Option<usize> {
        (self.size - 1).checked_div(self.overlap())
    }

    /// The same for attackers among the customers of one tenant.
    pub fn survives_attackers_within(&self) -> Option<usize> {
        (self.size - 1).checked_div(self.within)
    }
}

impl fmt::Display for NestedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NestedError::Slots { inner, size } => write!(
                f,
                "the inner design is one over {inner} slots; the shards of the outer one have \
                 {size}"
            ),
            NestedError::Size { size, overlap, of } => write!(
                f,
                "customers with {size} of {of} slots that share {overlap} at the most; 1 to {of} \
                 slots and a smaller overlap are possible"
            ),
        }
    }
}

impl std::error::Error for NestedError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{Fleet, STRIPE};

    fn striped(workers: usize, size: usize, overlap: usize) -> Design {
        let fleet = Fleet::numbered(workers, Some(size)).unwrap();
        Design::striped(fleet.columns(size, &[STRIPE]).unwrap(), overlap, None, &Key::PUBLIC)
    }

    fn whole(workers: usize) -> Columns {
        Fleet::numbered(workers, None).unwrap().columns(1, &[]).unwrap()
    }

    /// Every pair of customers of every pair of tenants.
    fn check(outer: Design, size: usize, overlap: usize) {
        let nested = Nested::within(Arc::new(outer), size, overlap, &Key::PUBLIC).unwrap();
        let guarantee = nested.guarantee();
        let mut all: Vec<(NestedIndex, Shard)> = Vec::new();
        for (tenant, _) in nested.outer().shards(0) {
            for (customer, _) in nested.inner().shards(0) {
                let index = NestedIndex { tenant, customer };
                all.push((index, nested.shard(index).unwrap()));
            }
        }
        assert_eq!(all.len() as u128, nested.capacity());
        let tells = size > nested.outer().guarantee().overlap;
        let mut seen = [0; 2];
        for (at, (index, shard)) in all.iter().enumerate() {
            assert_eq!(shard.len(), size);
            assert_eq!(nested.customer(index.tenant, shard), Some(index.customer));
            assert_eq!(nested.index(shard), tells.then_some(*index));
            for (other, other_shard) in &all[..at] {
                let shared = shard.overlap(other_shard);
                let is_across = index.tenant != other.tenant;
                let bound = if is_across { guarantee.across } else { guarantee.within };
                assert!(shared <= bound && shared <= guarantee.overlap());
                let most = &mut seen[usize::from(is_across)];
                *most = shared.max(*most);
            }
        }
        assert_eq!(
            seen[1],
            guarantee.across,
            "{} of {}",
            nested.inner().name(),
            nested.outer().name()
        );
    }

    #[test]
    fn customers_share_what_is_composed_and_no_more() {
        check(striped(16, 4, 2), 2, 1);
        check(striped(16, 4, 2), 3, 2);
        check(striped(16, 4, 1), 2, 1);
        check(striped(25, 5, 1), 3, 1);
        check(striped(49, 7, 1), 3, 1);
        check(striped(12, 3, 0), 2, 1);
        check(Design::quadruples(whole(8), &Key::PUBLIC), 3, 2);
        check(Design::quadruples(whole(8), &Key::PUBLIC), 2, 1);
        check(Design::quadruples(whole(11), &Key::PUBLIC), 4, 2);
        check(Design::pairs(whole(6), &Key::PUBLIC), 2, 1);
        check(Design::pairs(whole(6), &Key::PUBLIC), 1, 0);
        check(Design::searched(whole(7), 3, 1, &Key::PUBLIC).unwrap(), 2, 1);
    }

    #[test]
    fn attackers_are_survived_as_composed() {
        let nested = |outer: Design, size, overlap| {
            Nested::within(Arc::new(outer), size, overlap, &Key::PUBLIC).unwrap().guarantee()
        };
        let guarantee = nested(striped(2048, 8, 2), 4, 2);
        assert_eq!(guarantee.survives_attackers(), Some(1));
        // Other tenants' customers may share all of so small a shard.
        let guarantee = nested(striped(2048, 4, 2), 2, 1);
        assert_eq!((guarantee.across, guarantee.survives_attackers()), (2, Some(0)));
        assert_eq!(guarantee.survives_attackers_within(), Some(1));
        let guarantee = nested(striped(12, 3, 0), 1, 0);
        assert_eq!(guarantee.survives_attackers(), None);
    }

    #[test]
    fn designs_that_do_not_fit_are_refused() {
        let outer = Arc::new(striped(16, 4, 2));
        let inner = Arc::new(Design::pairs(whole(5), &Key::PUBLIC));
        let refused = Nested::new(outer.clone(), inner).unwrap_err();
        assert_eq!(refused, NestedError::Slots { inner: 5, size: 4 });
        for (size, overlap) in [(0, 0), (5, 1), (2, 2)] {
            assert!(Nested::within(outer.clone(), size, overlap, &Key::PUBLIC).is_err());
        }
        let nested = Nested::within(outer, 3, 2, &Key::PUBLIC).unwrap();
        assert_eq!(nested.index(&Shard::new([Slot(0), Slot(1), Slot(2)])), None);
        assert_eq!(nested.index(&Shard::new([Slot(0), Slot(4), Slot(99)])), None);
        assert_eq!(nested.index(&Shard::new([Slot(0)])), None);
    }
}
