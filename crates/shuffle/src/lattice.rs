//! Endpoints in a lattice of what can fail: zones, software versions, racks.
//!
//! A cell of the lattice is one value of each dimension, and has endpoints.
//! A shard takes a few endpoints of cells on a *diagonal*: no two of them have
//! a value of any dimension in common, so whatever value fails, one cell of
//! the shard is lost at the most.
//!
//! Shards are drawn here, as in [`Signature`](crate::Signature): there is NO
//! bound on what two tenants share. [`Lattice::to_fleet`] is the way to a
//! design, which has one. What a lattice never does is to return a shard with
//! fewer endpoints than were asked for: it refuses, and says what is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::fleet::{Fleet, FleetError, Worker};
use crate::key::Key;

/// Cells that are looked at for one shard at the most.
const STEPS_MAX: usize = 1 << 16;
/// Cells that an error names at the most.
const LACKS_SHOWN_MAX: usize = 8;

/// Endpoints by their values in each dimension.
///
/// ```
/// use shuffle::{Key, Lattice};
/// let mut lattice = Lattice::new(["zone", "version"])?;
/// for (zone, version) in [("a", "1"), ("a", "2"), ("b", "1"), ("b", "2")] {
///     let endpoint = |n| format!("{zone}{version}-{n}");
///     lattice.add(&[zone, version], (0..10).map(endpoint))?;
/// }
/// assert_eq!(lattice.without("zone", "a")?.endpoints().count(), 20);
///
/// let shard = lattice.shard(&Key::PUBLIC, b"example.com", 2, 3)?;
/// assert_eq!(shard.endpoints().len(), 6);
/// // Whatever fails takes half of them.
/// assert_eq!(shard.without("zone", "b").count(), 3);
/// assert_eq!(shard.without("version", "1").count(), 3);
/// # Ok::<(), shuffle::LatticeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lattice<E> {
    dimensions: Vec<String>,
    cells: BTreeMap<Vec<String>, Vec<E>>,
}

/// An endpoint and the cell that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed<E> {
    /// A value for each dimension.
    pub coordinates: Vec<String>,
    pub endpoint: E,
}

/// The endpoints that serve one tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatticeShard<E> {
    dimensions: Vec<String>,
    endpoints: Vec<Placed<E>>,
}

/// A cell with fewer endpoints than a shard takes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    pub coordinates: Vec<String>,
    pub has: usize,
    pub lacks: usize,
}

/// Why there is no such lattice, or no such shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LatticeError {
    /// There are no dimensions.
    NoDimensions,
    /// Two dimensions have this name.
    Duplicate(String),
    /// A cell is given by more or fewer values than there are dimensions.
    Coordinates { has: usize, dimensions: usize },
    /// There is no such dimension.
    UnknownDimension { name: String, known: Vec<String> },
    /// No cell of the dimension has this value.
    UnknownValue { dimension: String, value: String, known: Vec<String> },
    /// A shard of no cells, or of no endpoints of each.
    Nothing,
    /// More cells than a dimension has values: one would be there twice.
    TooFewValues { dimension: String, values: usize, cells: usize },
    /// No diagonal of so many cells has endpoints enough in each. Some of the
    /// cells that lack any are named.
    Short { cells: usize, lacks: Vec<Lack> },
    /// It was not found out whether there is such a shard.
    GaveUp { steps: usize },
}

impl<E> Lattice<E> {
    /// A lattice without endpoints.
    pub fn new<S: Into<String>>(
        dimensions: impl IntoIterator<Item = S>,
    ) -> Result<Self, LatticeError> {
        let dimensions: Vec<String> = dimensions.into_iter().map(Into::into).collect();
        let mut seen = BTreeSet::new();
        if let Some(twice) = dimensions.iter().find(|name| !seen.insert(*name)) {
            return Err(LatticeError::Duplicate(twice.clone()));
        }
        match dimensions.is_empty() {
            true => Err(LatticeError::NoDimensions),
            false => Ok(Lattice { dimensions, cells: BTreeMap::new() }),
        }
    }

    /// Adds endpoints to a cell, after those that it has.
    pub fn add(
        &mut self,
        coordinates: &[&str],
        endpoints: impl IntoIterator<Item = E>,
    ) -> Result<(), LatticeError> {
        let (has, dimensions) = (coordinates.len(), self.dimensions.len());
        if has != dimensions {
            return Err(LatticeError::Coordinates { has, dimensions });
        }
        let cell = coordinates.iter().map(|value| value.to_string()).collect();
        self.cells.entry(cell).or_default().extend(endpoints);
        Ok(())
    }

    /// The names of the dimensions.
    pub fn dimensions(&self) -> &[String] {
        &self.dimensions
    }

    /// The values of a dimension, in their order.
    pub fn values(&self, dimension: &str) -> Result<BTreeSet<&str>, LatticeError> {
        Ok(self.values_at(self.place(dimension)?))
    }

    fn values_at(&self, place: usize) -> BTreeSet<&str> {
        self.cells.keys().map(|cell| cell[place].as_str()).collect()
    }

    fn place(&self, dimension: &str) -> Result<usize, LatticeError> {
        let place = self.dimensions.iter().position(|name| name == dimension);
        place.ok_or_else(|| LatticeError::UnknownDimension {
            name: dimension.to_owned(),
            known: self.dimensions.clone(),
        })
    }

    /// The endpoints of a cell; none if there is no such cell.
    pub fn cell(&self, coordinates: &[&str]) -> &[E] {
        let cell: Vec<String> = coordinates.iter().map(|value| value.to_string()).collect();
        self.cells.get(&cell).map_or(&[], Vec::as_slice)
    }

    /// All endpoints with the values of their cells.
    pub fn endpoints(&self) -> impl Iterator<Item = (&[String], &E)> {
        self.cells.iter().flat_map(|(cell, endpoints)| {
            endpoints.iter().map(move |endpoint| (cell.as_slice(), endpoint))
        })
    }

    /// Cells that a shard can have at the most: so many as the dimension with
    /// the fewest values has.
    pub fn diagonal_max(&self) -> usize {
        let counts = (0..self.dimensions.len()).map(|place| self.values_at(place).len());
        counts.min().unwrap_or(0)
    }

    /// The endpoints as workers of a fleet with the same dimensions, from
    /// which shards with a bound can be made. `id` names an endpoint.
    pub fn to_fleet(&self, id: impl Fn(&E) -> String) -> Result<Fleet, FleetError> {
        let worker = |(cell, endpoint): (&[String], &E)| Worker {
            id: id(endpoint),
            domains: cell.to_vec(),
            weight: 1.0,
        };
        Fleet::new(self.dimensions.clone(), self.endpoints().map(worker).collect())
    }
}

impl<E: Clone> Lattice<E> {
    /// What is left when a value of a dimension fails.
    pub fn without(&self, dimension: &str, value: &str) -> Result<Self, LatticeError> {
        let place = self.place(dimension)?;
        let known = self.values_at(place);
        if !known.contains(value) {
            let known = known.into_iter().map(str::to_owned).collect();
            let (dimension, value) = (dimension.to_owned(), value.to_owned());
            return Err(LatticeError::UnknownValue { dimension, value, known });
        }
        let mut left = self.clone();
        left.cells.retain(|cell, _| cell[place] != value);
        Ok(left)
    }

    /// The shard of a tenant: `endpoints_per_cell` endpoints of each of `cells`
    /// cells on a diagonal. The same key, tenant and lattice give the same.
    pub fn shard(
        &self,
        key: &Key,
        tenant: &[u8],
        cells: usize,
        endpoints_per_cell: usize,
    ) -> Result<LatticeShard<E>, LatticeError> {
        if cells == 0 || endpoints_per_cell == 0 {
            return Err(LatticeError::Nothing);
        }
        for (place, name) in self.dimensions.iter().enumerate() {
            let (dimension, values) = (name.clone(), self.values_at(place).len());
            if values < cells {
                return Err(LatticeError::TooFewValues { dimension, values, cells });
            }
        }
        let mut endpoints = Vec::with_capacity(cells * endpoints_per_cell);
        for cell in self.diagonal(key, tenant, cells, endpoints_per_cell)? {
            let all = &self.cells[cell];
            let mut order: Vec<usize> = (0..all.len()).collect();
            order.sort_by_cached_key(|&at| (draw(key, tenant, cell, at as u64 + 1), at));
            let chosen = order[..endpoints_per_cell].iter().map(|&at| all[at].clone());
            let placed = |endpoint| Placed { coordinates: cell.clone(), endpoint };
            endpoints.extend(chosen.map(placed));
        }
        Ok(LatticeShard { dimensions: self.dimensions.clone(), endpoints })
    }

    /// Cells of which no two have a value in common, each with enough
    /// endpoints, in an order that the key and the tenant decide.
    fn diagonal(
        &self,
        key: &Key,
        tenant: &[u8],
        cells: usize,
        endpoints_per_cell: usize,
    ) -> Result<Vec<&Vec<String>>, LatticeError> {
        let enough = self.cells.iter().filter(|(_, all)| all.len() >= endpoints_per_cell);
        let mut candidates: Vec<&Vec<String>> = enough.map(|(cell, _)| cell).collect();
        candidates.sort_by_cached_key(|cell| (draw(key, tenant, cell, 0), *cell));
        let (mut chosen, mut steps) = (Vec::new(), 0);
        if extend(&candidates, cells, &mut chosen, &mut steps) {
            chosen.sort_unstable();
            return Ok(chosen);
        }
        match steps < STEPS_MAX {
            true => Err(LatticeError::Short { cells, lacks: self.lacks(endpoints_per_cell) }),
            false => Err(LatticeError::GaveUp { steps }),
        }
    }

    /// The first cells that have fewer endpoints than are needed, those that
    /// were never added among them.
    fn lacks(&self, needed: usize) -> Vec<Lack> {
        let values: Vec<Vec<&str>> = (0..self.dimensions.len())
            .map(|place| self.values_at(place).into_iter().collect())
            .collect();
        let mut lacks = Vec::new();
        let mut at = vec![0; values.len()];
        while lacks.len() < LACKS_SHOWN_MAX {
            let cell: Vec<&str> = at.iter().zip(&values).map(|(&at, values)| values[at]).collect();
            let has = self.cell(&cell).len();
            if has < needed {
                let coordinates = cell.into_iter().map(str::to_owned).collect();
                lacks.push(Lack { coordinates, has, lacks: needed - has });
            }
            // The last dimension turns fastest.
            let Some(turn) = (0..at.len()).rev().find(|&n| at[n] + 1 < values[n].len()) else {
                break;
            };
            at[turn] += 1;
            at[turn + 1..].fill(0);
        }
        lacks
    }
}

/// Adds cells to a diagonal until it has `wanted`, and goes back where that
/// does not work out. False if it cannot, or if the steps are used up.
fn extend<'l>(
    candidates: &[&'l Vec<String>],
    wanted: usize,
    chosen: &mut Vec<&'l Vec<String>>,
    steps: &mut usize,
) -> bool {
    if chosen.len() == wanted {
        return true;
    }
    for (at, cell) in candidates.iter().enumerate() {
        *steps += 1;
        if *steps >= STEPS_MAX || candidates.len() - at < wanted - chosen.len() {
            return false;
        }
        let is_apart = |other: &&Vec<String>| std::iter::zip(*cell, *other).all(|(a, b)| a != b);
        if !chosen.iter().all(is_apart) {
            continue;
        }
        chosen.push(cell);
        if extend(&candidates[at + 1..], wanted, chosen, steps) {
            return true;
        }
        chosen.pop();
    }
    false
}

/// A random number for a tenant and a place in a cell; place 0 is the cell.
fn draw(key: &Key, tenant: &[u8], cell: &[String], place: u64) -> u64 {
    let mut hasher = SipHasher24::new_with_key(&key.to_bytes());
    for part in [b"lattice", tenant].into_iter().chain(cell.iter().map(String::as_bytes)) {
        hasher.write(&(part.len() as u64).to_le_bytes());
        hasher.write(part);
    }
    hasher.write(&place.to_le_bytes());
    hasher.finish()
}

impl<E> LatticeShard<E> {
    /// A shard that was made elsewhere.
    pub fn new<S: Into<String>>(
        dimensions: impl IntoIterator<Item = S>,
        endpoints: Vec<Placed<E>>,
    ) -> Result<Self, LatticeError> {
        let dimensions = Lattice::<E>::new(dimensions)?.dimensions;
        let fits = |placed: &&Placed<E>| placed.coordinates.len() == dimensions.len();
        match endpoints.iter().find(|placed| !fits(placed)) {
            None => Ok(LatticeShard { dimensions, endpoints }),
            Some(placed) => Err(LatticeError::Coordinates {
                has: placed.coordinates.len(),
                dimensions: dimensions.len(),
            }),
        }
    }

    /// The names of the dimensions.
    pub fn dimensions(&self) -> &[String] {
        &self.dimensions
    }

    /// The endpoints, cell by cell.
    pub fn endpoints(&self) -> &[Placed<E>] {
        &self.endpoints
    }

    /// The endpoints that are left when a value of a dimension fails.
    pub fn without(&self, dimension: &str, value: &str) -> impl Iterator<Item = &E> {
        let place = self.dimensions.iter().position(|name| name == dimension);
        let is_lost =
            move |placed: &Placed<E>| place.is_some_and(|place| placed.coordinates[place] == value);
        let left: Vec<&E> =
            self.endpoints.iter().filter(|p| !is_lost(p)).map(|p| &p.endpoint).collect();
        left.into_iter()
    }

    pub(crate) fn into_parts(self) -> (Vec<String>, Vec<Placed<E>>) {
        (self.dimensions, self.endpoints)
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lack { coordinates, has, lacks } = self;
        write!(f, "cell {} has {has} and lacks {lacks}", coordinates.join("/"))
    }
}

impl fmt::Display for LatticeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LatticeError::NoDimensions => {
                f.write_str("a lattice without dimensions; at least one is needed")
            }
            LatticeError::Duplicate(name) => write!(f, "two dimensions are called `{name}`"),
            LatticeError::Coordinates { has, dimensions } => write!(
                f,
                "a cell given by {has} values in a lattice of {dimensions} dimensions; one for \
                 each is needed"
            ),
            LatticeError::UnknownDimension { name, known } => {
                write!(f, "the lattice has no dimension `{name}`; it has {}", known.join(", "))
            }
            LatticeError::UnknownValue { dimension, value, known } => {
                write!(f, "no {dimension} is called `{value}`; there are {}", known.join(", "))
            }
            LatticeError::Nothing => {
                f.write_str("a shard of nothing; at least one cell and one endpoint are needed")
            }
            LatticeError::TooFewValues { dimension, values, cells } => write!(
                f,
                "shards of {cells} cells that have no {dimension} in common, and it has {values} \
                 values; shards of {values} cells are possible"
            ),
            LatticeError::Short { cells, lacks } => {
                let lacks: Vec<String> = lacks.iter().map(Lack::to_string).collect();
                write!(
                    f,
                    "no {cells} cells without a value in common have endpoints enough: {}",
                    lacks.join("; ")
                )
            }
            LatticeError::GaveUp { steps } => write!(
                f,
                "no shard found in {steps} steps, and none proved impossible; fill the cells that \
                 lack endpoints or ask for fewer"
            ),
        }
    }
}

impl std::error::Error for LatticeError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// A lattice with as many endpoints in each cell as `count` says.
    fn lattice(sizes: &[usize], count: impl Fn(&[usize]) -> usize) -> Lattice<u32> {
        let names = ["zone", "version", "rack"];
        let mut lattice = Lattice::new(names[..sizes.len()].to_vec()).unwrap();
        let mut next = 0;
        for number in 0..sizes.iter().product::<usize>() {
            let mut rest = number;
            let mut cell = Vec::new();
            for size in sizes {
                cell.push(rest % size);
                rest /= size;
            }
            let values: Vec<String> = cell.iter().map(usize::to_string).collect();
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            let end = next + count(&cell) as u32;
            lattice.add(&values, next..end).unwrap();
            next = end;
        }
        lattice
    }

    fn check(lattice: &Lattice<u32>, tenant: &[u8], cells: usize, each: usize) {
        let shard = lattice.shard(&Key::PUBLIC, tenant, cells, each).unwrap();
        let all: HashSet<u32> = shard.endpoints().iter().map(|placed| placed.endpoint).collect();
        assert_eq!(all.len(), cells * each);
        for placed in shard.endpoints() {
            let cell: Vec<&str> = placed.coordinates.iter().map(String::as_str).collect();
            assert!(lattice.cell(&cell).contains(&placed.endpoint));
        }
        for dimension in lattice.dimensions() {
            for value in lattice.values(dimension).unwrap() {
                let left = shard.without(dimension, value).count();
                assert!(left + each >= cells * each, "at most one cell is lost");
            }
        }
        assert_eq!(lattice.shard(&Key::PUBLIC, tenant, cells, each), Ok(shard));
    }

    #[test]
    fn shards_are_whole_and_on_a_diagonal() {
        for sizes in [&[3][..], &[4, 3], &[3, 3, 5]] {
            let lattice = lattice(sizes, |_| 7);
            assert_eq!(lattice.diagonal_max(), 3);
            for tenant in 0..50u32 {
                check(&lattice, &tenant.to_le_bytes(), 3, 4);
                check(&lattice, &tenant.to_le_bytes(), 2, 1);
            }
        }
    }

    #[test]
    fn tenants_are_spread_over_cells_and_endpoints() {
        let lattice = lattice(&[4, 4], |_| 5);
        let mut loads = vec![0; 80];
        for tenant in 0..4000u32 {
            let shard = lattice.shard(&Key::PUBLIC, &tenant.to_le_bytes(), 4, 1).unwrap();
            shard.endpoints().iter().for_each(|placed| loads[placed.endpoint as usize] += 1);
        }
        assert!(loads.iter().all(|load| (140..260).contains(load)), "{loads:?}");
    }

    #[test]
    fn what_is_missing_is_named() {
        let uneven = lattice(&[3], |cell| if cell[0] == 1 { 2 } else { 4 });
        let refused = uneven.shard(&Key::PUBLIC, b"t", 3, 4).unwrap_err();
        let said = "have endpoints enough: cell 1 has 2 and lacks 2";
        assert!(refused.to_string().ends_with(said), "{refused}");
        check(&uneven, b"t", 2, 4);
        check(&uneven, b"t", 3, 2);
        // Only one diagonal is whole, and it is found.
        let sparse = lattice(&[4, 4], |cell| usize::from(cell[0] == (cell[1] + 1) % 4));
        (0..20u32).for_each(|tenant| check(&sparse, &tenant.to_le_bytes(), 4, 1));
        let refused = sparse.shard(&Key::PUBLIC, b"t", 4, 2).unwrap_err();
        assert!(matches!(&refused, LatticeError::Short { lacks, .. } if lacks.len() == 8));
        let line = lattice(&[4, 4], |cell| usize::from(cell[0] == 0));
        assert!(matches!(
            line.shard(&Key::PUBLIC, b"t", 2, 1),
            Err(LatticeError::Short { cells: 2, .. })
        ));
        // Cells that are not there at all.
        let mut two = Lattice::new(["zone", "version"]).unwrap();
        two.add(&["a", "1"], [1]).unwrap();
        two.add(&["b", "1"], [2]).unwrap();
        two.add(&["b", "2"], []).unwrap();
        let refused = two.shard(&Key::PUBLIC, b"t", 2, 1).unwrap_err().to_string();
        assert!(refused.ends_with("cell a/2 has 0 and lacks 1; cell b/2 has 0 and lacks 1"));
    }

    #[test]
    fn a_search_that_takes_too_long_says_so() {
        // Nine zones share eight versions, beside one zone for all others.
        let knot = lattice(&[12, 12], |cell| {
            usize::from(if cell[0] < 9 { cell[1] < 8 } else { cell[1] >= 8 })
        });
        let refused = knot.shard(&Key::PUBLIC, b"t", 12, 1).unwrap_err();
        assert!(matches!(refused, LatticeError::GaveUp { .. }), "{refused}");
    }

    #[test]
    fn failures_leave_the_rest_and_typos_are_named() {
        let lattice = lattice(&[3, 2], |_| 5);
        let left = lattice.without("zone", "1").unwrap();
        assert_eq!((lattice.endpoints().count(), left.endpoints().count()), (30, 20));
        assert_eq!(left.values("zone").unwrap(), BTreeSet::from(["0", "2"]));
        let check = |error: LatticeError, said: &str| {
            assert!(error.to_string().contains(said), "{error}");
        };
        check(lattice.without("zone", "7").unwrap_err(), "there are 0, 1, 2");
        check(lattice.without("shelf", "7").unwrap_err(), "it has zone, version");
        check(lattice.shard(&Key::PUBLIC, b"", 3, 1).unwrap_err(), "shards of 2 cells");
        check(lattice.shard(&Key::PUBLIC, b"", 0, 1).unwrap_err(), "nothing");
        check(lattice.clone().add(&["0"], []).unwrap_err(), "1 values in a lattice of 2");
        check(Lattice::<u8>::new(["a", "a"]).unwrap_err(), "two dimensions are called `a`");
        check(Lattice::<u8>::new([""; 0]).unwrap_err(), "at least one");
        assert!(LatticeShard::<u8>::new(["zone"], Vec::new()).is_ok());
        let placed = Placed { coordinates: Vec::new(), endpoint: 1u8 };
        assert!(LatticeShard::new(["zone"], vec![placed]).is_err());
    }

    #[test]
    fn a_lattice_becomes_a_fleet_with_a_design() {
        let fleet = lattice(&[4, 4], |_| 3).to_fleet(u32::to_string).unwrap();
        let columns = fleet.columns(4, &["zone"]).unwrap();
        assert_eq!(columns.sizes().collect::<Vec<_>>(), [12; 4]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_shard_is_whole_or_refused(
            counts in proptest::collection::vec(0usize..4, 16), tenant: u64,
            cells in 1usize..5, each in 1usize..4,
        ) {
            let lattice = lattice(&[4, 4], |cell| counts[cell[0] * 4 + cell[1]]);
            // Whether some permutation of versions has endpoints enough.
            let mut best = 0;
            for number in 0..256usize {
                let versions = [number & 3, number >> 2 & 3, number >> 4 & 3, number >> 6];
                if versions.iter().collect::<HashSet<_>>().len() == 4 {
                    let is_full = |zone: &usize| counts[zone * 4 + versions[*zone]] >= each;
                    best = best.max((0..4).filter(is_full).count());
                }
            }
            let shard = lattice.shard(&Key::PUBLIC, &tenant.to_le_bytes(), cells, each);
            prop_assert_eq!(shard.is_ok(), best >= cells, "{:?}", shard);
            if shard.is_ok() {
                check(&lattice, &tenant.to_le_bytes(), cells, each);
            }
        }
    }
}
