//! The workers that shards are made of, and what fails together.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use crate::shard::{SIZE_MAX, Slot};

/// Workers of the largest fleet.
pub const WORKERS_MAX: usize = 1 << 20;
/// The dimension that [`Fleet::numbered`] divides a fleet by.
pub const STRIPE: &str = "stripe";

/// A worker: a server, a queue, a name server, whatever serves tenants.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    /// Its name, which no other worker has.
    pub id: String,
    /// Its failure domain in each dimension of the fleet.
    pub domains: Vec<String>,
    /// Its share of the tenants, compared with others.
    pub weight: f64,
}

/// Workers and their failure domains. The place of a worker in the fleet is
/// its [`Slot`].
#[derive(Clone, Debug, PartialEq)]
pub struct Fleet {
    dimensions: Vec<String>,
    workers: Vec<Worker>,
}

/// Why there is no such fleet, or why it cannot be divided as wished.
#[derive(Clone, Debug, PartialEq)]
pub enum FleetError {
    /// No workers.
    Empty,
    /// More workers than [`WORKERS_MAX`].
    TooLarge(usize),
    /// The worker in this slot has an empty id.
    Unnamed(Slot),
    /// Two workers have this id.
    Duplicate(String),
    /// A worker names more or fewer domains than the fleet has dimensions.
    Domains { worker: String, has: usize, dimensions: usize },
    /// A weight that is no positive, finite number.
    Weight { worker: String, weight: f64 },
    /// The fleet has no such dimension.
    UnknownDimension { name: String, known: Vec<String> },
    /// More stripes than workers, or none.
    Stripes { stripes: usize, workers: usize },
    /// Fewer groups that fail apart than the workers of a shard.
    TooFewGroups { dimensions: Vec<String>, groups: usize, size: usize },
    /// Shards of no worker, or of more than there are or than [`SIZE_MAX`].
    Size { size: usize, workers: usize },
}

impl Fleet {
    /// A fleet of these workers, whose domains are in the order of `dimensions`.
    pub fn new(dimensions: Vec<String>, workers: Vec<Worker>) -> Result<Self, FleetError> {
        if workers.is_empty() {
            return Err(FleetError::Empty);
        }
        if workers.len() > WORKERS_MAX {
            return Err(FleetError::TooLarge(workers.len()));
        }
        let mut ids = HashSet::new();
        for (slot, worker) in (0..).map(Slot).zip(&workers) {
            if worker.id.is_empty() {
                return Err(FleetError::Unnamed(slot));
            }
            if !ids.insert(worker.id.as_str()) {
                return Err(FleetError::Duplicate(worker.id.clone()));
            }
            if worker.domains.len() != dimensions.len() {
                let (worker, has) = (worker.id.clone(), worker.domains.len());
                return Err(FleetError::Domains { worker, has, dimensions: dimensions.len() });
            }
            if !(worker.weight.is_finite() && worker.weight > 0.0) {
                let (worker, weight) = (worker.id.clone(), worker.weight);
                return Err(FleetError::Weight { worker, weight });
            }
        }
        Ok(Fleet { dimensions, workers })
    }

    /// Workers called 0, 1, 2 and so on. With `stripes` they are divided into
    /// as many runs of the same length, as far as that goes: the first ones
    /// are longer by one.
    pub fn numbered(workers: usize, stripes: Option<usize>) -> Result<Self, FleetError> {
        if workers > WORKERS_MAX {
            return Err(FleetError::TooLarge(workers));
        }
        if let Some(stripes) = stripes
            && (stripes == 0 || stripes > workers)
        {
            return Err(FleetError::Stripes { stripes, workers });
        }
        let sizes = even_sizes(workers, stripes.unwrap_or(1));
        let runs = sizes.iter().enumerate().flat_map(|(run, &size)| std::iter::repeat_n(run, size));
        let worker = |(number, run): (usize, usize)| Worker {
            id: number.to_string(),
            domains: stripes.iter().map(|_| run.to_string()).collect(),
            weight: 1.0,
        };
        let dimensions = stripes.iter().map(|_| STRIPE.to_owned()).collect();
        Fleet::new(dimensions, runs.enumerate().map(worker).collect())
    }

    /// The names of the dimensions of failure.
    pub fn dimensions(&self) -> &[String] {
        &self.dimensions
    }

    /// The workers, in the order of their slots.
    pub fn workers(&self) -> &[Worker] {
        &self.workers
    }

    /// The worker in a slot.
    pub fn worker(&self, slot: Slot) -> Option<&Worker> {
        self.workers.get(slot.0 as usize)
    }

    /// The slot of the worker with this id; looks at all of them.
    pub fn slot(&self, id: &str) -> Option<Slot> {
        self.workers.iter().position(|worker| worker.id == id).map(|at| Slot(at as u32))
    }

    /// Divides the fleet into `size` columns, each of which gives every shard
    /// one worker, so that workers of different columns have no domain of the
    /// dimensions `apart` in common. Without such dimensions the columns are
    /// runs of the same length.
    pub fn columns(&self, size: usize, apart: &[&str]) -> Result<Columns, FleetError> {
        let workers = self.workers.len();
        if size == 0 || size > SIZE_MAX || size > workers {
            return Err(FleetError::Size { size, workers });
        }
        let groups = match apart {
            [] => {
                let mut slots = (0..workers as u32).map(Slot);
                let sizes = even_sizes(workers, size);
                sizes.iter().map(|&len| slots.by_ref().take(len).collect()).collect()
            }
            _ => merge(self.groups(apart)?, size),
        };
        if groups.len() < size {
            let dimensions = apart.iter().map(|name| name.to_string()).collect();
            return Err(FleetError::TooFewGroups { dimensions, groups: groups.len(), size });
        }
        Ok(Columns::new(groups))
    }

    /// Workers that share a domain of the dimensions `apart`, directly or
    /// through others, in the order of their first slots.
    pub fn groups(&self, apart: &[&str]) -> Result<Vec<Vec<Slot>>, FleetError> {
        let mut places = Vec::new();
        for &name in apart {
            let place = self.dimensions.iter().position(|dimension| dimension == name);
            places.push(place.ok_or_else(|| FleetError::UnknownDimension {
                name: name.to_owned(),
                known: self.dimensions.clone(),
            })?);
        }
        // Each slot points to an earlier one of its group; a first one to itself.
        let mut before: Vec<usize> = (0..self.workers.len()).collect();
        for place in places {
            let mut first_of: HashMap<&str, usize> = HashMap::new();
            for (slot, worker) in self.workers.iter().enumerate() {
                let first = *first_of.entry(&worker.domains[place]).or_insert(slot);
                let (one, other) = (root(&mut before, first), root(&mut before, slot));
                before[one.max(other)] = one.min(other);
            }
        }
        let mut groups: BTreeMap<usize, Vec<Slot>> = BTreeMap::new();
        for slot in 0..self.workers.len() {
            groups.entry(root(&mut before, slot)).or_default().push(Slot(slot as u32));
        }
        Ok(groups.into_values().collect())
    }
}

fn root(before: &mut [usize], mut slot: usize) -> usize {
    while before[slot] != slot {
        before[slot] = before[before[slot]];
        slot = before[slot];
    }
    slot
}

/// `count` as a sum of `parts` numbers that differ by one at the most.
fn even_sizes(count: usize, parts: usize) -> Vec<usize> {
    (0..parts).map(|part| count / parts + usize::from(part < count % parts)).collect()
}

/// Joins groups until there are `count`, the largest first to whom has least.
fn merge(mut groups: Vec<Vec<Slot>>, count: usize) -> Vec<Vec<Slot>> {
    if groups.len() <= count {
        return groups;
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    let mut columns: Vec<Vec<Slot>> = vec![Vec::new(); count];
    for group in groups {
        if let Some(least) = columns.iter_mut().min_by_key(|column| column.len()) {
            least.extend(group);
        }
    }
    columns.iter_mut().for_each(|column| column.sort_unstable());
    columns.sort_by_key(|column| column.first().copied());
    columns
}

/// Slots in columns: the letters that the words of a design are written with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Columns {
    slots: Vec<Slot>,
    /// Where each column starts, and where the last one ends.
    starts: Vec<u32>,
    /// The column and the letter of each slot; slots are dense.
    places: Vec<(u32, u32)>,
}

impl Columns {
    /// Columns of these slots, which are the numbers below their count.
    pub fn new(columns: Vec<Vec<Slot>>) -> Self {
        let count = columns.iter().map(Vec::len).sum();
        let mut places = vec![(u32::MAX, 0); count];
        let mut starts = vec![0];
        for (number, column) in columns.iter().enumerate() {
            for (letter, slot) in column.iter().enumerate() {
                let place = &mut places[slot.0 as usize];
                assert_eq!(place.0, u32::MAX, "a slot is in one column");
                *place = (number as u32, letter as u32);
            }
            starts.push(starts[number] + column.len() as u32);
        }
        Columns { slots: columns.concat(), starts, places }
    }

    /// Columns of these sizes, with the slots in order.
    #[cfg(test)]
    pub(crate) fn of_sizes(sizes: &[u32]) -> Self {
        let mut slots = (0..).map(Slot);
        Columns::new(
            sizes.iter().map(|&size| slots.by_ref().take(size as usize).collect()).collect(),
        )
    }

    /// How many columns there are.
    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// How many slots there are.
    pub fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// The slots of a column.
    pub fn column(&self, number: usize) -> &[Slot] {
        &self.slots[self.starts[number] as usize..self.starts[number + 1] as usize]
    }

    /// How many slots each column has.
    pub fn sizes(&self) -> impl Iterator<Item = u32> {
        self.starts.windows(2).map(|pair| pair[1] - pair[0])
    }

    /// The slot at a letter of a column, if the column is that long.
    #[inline]
    pub fn slot(&self, column: usize, letter: u32) -> Option<Slot> {
        let at = self.starts[column] + letter;
        (at < self.starts[column + 1]).then(|| self.slots[at as usize])
    }

    /// The column and the letter of a slot.
    #[inline]
    pub fn place(&self, slot: Slot) -> Option<(usize, u32)> {
        self.places.get(slot.0 as usize).map(|&(column, letter)| (column as usize, letter))
    }
}

impl fmt::Display for FleetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FleetError::Empty => f.write_str("a fleet without workers; at least one is needed"),
            FleetError::TooLarge(count) => {
                write!(f, "a fleet of {count} workers; at most {WORKERS_MAX} are possible")
            }
            FleetError::Unnamed(slot) => {
                write!(f, "worker number {} has an empty id; each needs one", slot.0 + 1)
            }
            FleetError::Duplicate(id) => {
                write!(f, "two workers are called `{id}`; each needs an id of its own")
            }
            FleetError::Domains { worker, has, dimensions } => write!(
                f,
                "worker `{worker}` has {has} failure domains in a fleet of {dimensions} \
                 dimensions; one for each is needed"
            ),
            FleetError::Weight { worker, weight } => write!(
                f,
                "worker `{worker}` has the weight {weight}; a positive number is needed (to take \
                 a worker out, drain it)"
            ),
            FleetError::UnknownDimension { name, known } => {
                write!(f, "the fleet has no dimension `{name}`; it has ")?;
                if known.is_empty() { f.write_str("none") } else { f.write_str(&known.join(", ")) }
            }
            FleetError::Stripes { stripes, workers } => write!(
                f,
                "{stripes} stripes of {workers} workers; 1 to {workers} stripes are possible"
            ),
            FleetError::TooFewGroups { dimensions, groups, size } => write!(
                f,
                "shards of {size} workers that have no {} in common need {size} groups that fail \
                 apart, and there are {groups}; shards of {groups} are possible",
                dimensions.join(" or ")
            ),
            FleetError::Size { size, workers } => write!(
                f,
                "shards of {size} workers out of {workers}; 1 to {} are possible",
                SIZE_MAX.min(*workers)
            ),
        }
    }
}

impl std::error::Error for FleetError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(id: &str, domains: &[&str]) -> Worker {
        let domains = domains.iter().map(|domain| domain.to_string()).collect();
        Worker { id: id.to_owned(), domains, weight: 1.0 }
    }

    fn sizes(fleet: &Fleet, size: usize, apart: &[&str]) -> Vec<u32> {
        fleet.columns(size, apart).unwrap().sizes().collect()
    }

    #[test]
    fn numbered_fleets_are_divided_evenly() {
        let fleet = Fleet::numbered(2048, Some(4)).unwrap();
        let columns = fleet.columns(4, &[STRIPE]).unwrap();
        assert_eq!(columns.sizes().collect::<Vec<_>>(), [512; 4]);
        assert_eq!(columns.slot(1, 3), Some(Slot(515)));
        assert_eq!(columns.slot(1, 512), None);
        assert_eq!(columns.place(Slot(515)), Some((1, 3)));
        assert_eq!(columns.place(Slot(2048)), None);
        assert_eq!(sizes(&Fleet::numbered(30, Some(4)).unwrap(), 4, &[STRIPE]), [8, 8, 7, 7]);
        assert_eq!(sizes(&Fleet::numbered(30, None).unwrap(), 4, &[]), [8, 8, 7, 7]);
        assert_eq!(sizes(&Fleet::numbered(24, Some(6)).unwrap(), 4, &[STRIPE]), [8, 8, 4, 4]);
    }

    #[test]
    fn what_fails_together_is_in_one_column() {
        let workers = vec![
            worker("a", &["eu-1", "v1"]),
            worker("b", &["eu-2", "v2"]),
            worker("c", &["eu-3", "v2"]),
            worker("d", &["eu-1", "v3"]),
        ];
        let fleet = Fleet::new(vec!["zone".into(), "version".into()], workers).unwrap();
        assert_eq!(sizes(&fleet, 3, &["zone"]), [2, 1, 1]);
        assert_eq!(sizes(&fleet, 2, &["zone", "version"]), [2, 2]);
        let columns = fleet.columns(2, &["zone", "version"]).unwrap();
        assert_eq!(columns.column(0), [Slot(0), Slot(3)]);
        let refused = fleet.columns(3, &["zone", "version"]).unwrap_err();
        assert!(refused.to_string().ends_with("and there are 2; shards of 2 are possible"));
        let refused = fleet.columns(2, &["rack"]).unwrap_err();
        assert_eq!(refused.to_string(), "the fleet has no dimension `rack`; it has zone, version");
    }

    #[test]
    fn impossible_fleets_are_refused() {
        let check = |workers: Vec<Worker>, said: &str| {
            let refused = Fleet::new(vec!["zone".into()], workers).unwrap_err();
            assert!(refused.to_string().contains(said), "{refused}");
        };
        check(vec![], "at least one is needed");
        check(vec![worker("a", &["x"]), worker("a", &["y"])], "two workers are called `a`");
        check(vec![worker("a", &["x"]), worker("", &["y"])], "worker number 2 has an empty id");
        check(vec![worker("a", &[])], "0 failure domains in a fleet of 1");
        let weightless = Worker { weight: 0.0, ..worker("a", &["x"]) };
        check(vec![weightless], "has the weight 0");
        assert!(Fleet::numbered(WORKERS_MAX + 1, None).is_err());
        assert!(Fleet::numbered(4, Some(5)).is_err());
        assert!(Fleet::numbered(4, Some(0)).is_err());
        assert_eq!(Fleet::numbered(0, None), Err(FleetError::Empty));
        assert!(Fleet::numbered(4, None).unwrap().columns(5, &[]).is_err());
    }
}
