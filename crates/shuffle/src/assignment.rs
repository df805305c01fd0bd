//! Who is on which workers, as somebody else assigned it.
//!
//! Names become numbers here, and what is wrong is told all at once. What
//! follows need not look again: no shard is empty, none has a worker twice,
//! no tenant comes twice.

use std::collections::HashMap;
use std::fmt;

use crate::fleet::WORKERS_MAX;
use crate::shard::Slot;

/// Workers of the largest shard that somebody else may have made.
pub const FOREIGN_SIZE_MAX: usize = 64;
/// Tenants of the largest assignment.
pub const TENANTS_MAX: usize = 1 << 24;
/// Problems that are told one by one.
const PROBLEMS_MAX: usize = 100;

/// Tenants and their workers. Workers are slots, in the order in which they
/// were named first.
#[derive(Clone, Debug, Default)]
pub struct Assignment {
    tenants: Vec<Box<str>>,
    workers: Vec<Box<str>>,
    /// The slots of all tenants, one after the other, each tenant's ascending.
    slots: Vec<Slot>,
    /// Where the slots of each tenant end.
    ends: Vec<u32>,
}

/// What is wrong with an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The tenant has no worker.
    Empty { tenant: String },
    /// The tenant has more workers than [`FOREIGN_SIZE_MAX`].
    TooLarge { tenant: String, size: usize },
    /// The tenant has this worker more than once.
    WorkerTwice { tenant: String, worker: String },
    /// The tenant is there more than once.
    TenantTwice { tenant: String },
    /// More tenants than [`TENANTS_MAX`]; the rest was not read.
    TooManyTenants,
    /// More workers than [`WORKERS_MAX`]; the rest was not read.
    TooManyWorkers,
}

/// All that is wrong with an assignment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    /// The first hundred.
    pub first: Vec<Problem>,
    /// How many there are.
    pub count: usize,
}

impl Assignment {
    /// Takes tenants and their workers, or tells everything that is wrong.
    pub fn new(tenants: impl IntoIterator<Item = (String, Vec<String>)>) -> Result<Self, Problems> {
        Assignment::with_workers([], tenants)
    }

    /// The same for a fleet of which some workers may have no tenant.
    pub fn with_workers(
        workers: impl IntoIterator<Item = String>,
        tenants: impl IntoIterator<Item = (String, Vec<String>)>,
    ) -> Result<Self, Problems> {
        let mut assignment = Assignment::default();
        let mut problems = Problems::default();
        let mut numbers = Numbers::new();
        for worker in workers.into_iter().take(WORKERS_MAX + 1) {
            number(&mut numbers, &worker);
        }
        for (tenant, workers) in tenants {
            if numbers.len() > WORKERS_MAX {
                break;
            }
            if assignment.tenants.len() == TENANTS_MAX {
                problems.add(Problem::TooManyTenants);
                break;
            }
            assignment.add(tenant, workers, &mut numbers, &mut problems);
        }
        if numbers.len() > WORKERS_MAX {
            problems.add(Problem::TooManyWorkers);
        }
        assignment.find_tenants_twice(&mut problems);
        assignment.workers = vec![Box::default(); numbers.len()];
        for (name, slot) in numbers {
            assignment.workers[slot.0 as usize] = name;
        }
        if problems.count > 0 { Err(problems) } else { Ok(assignment) }
    }

    fn add(
        &mut self,
        tenant: String,
        workers: Vec<String>,
        numbers: &mut Numbers,
        problems: &mut Problems,
    ) {
        let start = self.slots.len();
        match workers.len() {
            0 => problems.add(Problem::Empty { tenant: tenant.clone() }),
            size if size > FOREIGN_SIZE_MAX => {
                problems.add(Problem::TooLarge { tenant: tenant.clone(), size });
            }
            _ => {}
        }
        for worker in workers.into_iter().take(FOREIGN_SIZE_MAX) {
            let slot = number(numbers, &worker);
            if self.slots[start..].contains(&slot) {
                problems.add(Problem::WorkerTwice { tenant: tenant.clone(), worker });
            } else {
                self.slots.push(slot);
            }
        }
        self.slots[start..].sort_unstable();
        self.ends.push(self.slots.len() as u32);
        self.tenants.push(tenant.into());
    }

    /// Sorts instead of keeping every name twice.
    fn find_tenants_twice(&self, problems: &mut Problems) {
        let mut order: Vec<u32> = (0..self.tenants.len() as u32).collect();
        order.sort_unstable_by_key(|&tenant| self.tenant(tenant));
        let same = order.chunk_by(|one, other| self.tenant(*one) == self.tenant(*other));
        for tenants in same.filter(|tenants| tenants.len() > 1) {
            let tenant = self.tenant(tenants[0]).to_owned();
            problems.add(Problem::TenantTwice { tenant });
        }
    }

    /// How many tenants there are.
    pub fn tenant_count(&self) -> usize {
        self.tenants.len()
    }

    /// How many workers there are.
    pub fn worker_count(&self) -> usize {
        self.workers.len()
    }

    /// The name of the worker in a slot.
    pub fn worker(&self, slot: Slot) -> Option<&str> {
        self.workers.get(slot.0 as usize).map(|name| &**name)
    }

    /// The slot of a worker; looks at all of them.
    pub fn slot(&self, worker: &str) -> Option<Slot> {
        self.workers.iter().position(|name| **name == *worker).map(|at| Slot(at as u32))
    }

    /// The slots of a tenant; looks at all of them.
    pub fn shard(&self, tenant: &str) -> Option<&[Slot]> {
        let at = self.tenants.iter().position(|name| **name == *tenant)?;
        Some(self.slots_of(at as u32))
    }

    /// All tenants and their slots, in the order in which they came.
    pub fn shards(&self) -> impl Iterator<Item = (&str, &[Slot])> {
        (0..self.tenants.len() as u32).map(|tenant| (self.tenant(tenant), self.slots_of(tenant)))
    }

    /// The name of the tenant with a number.
    pub(crate) fn tenant(&self, tenant: u32) -> &str {
        &self.tenants[tenant as usize]
    }

    /// The slots of the tenant with a number.
    #[inline]
    pub(crate) fn slots_of(&self, tenant: u32) -> &[Slot] {
        let start = if tenant == 0 { 0 } else { self.ends[tenant as usize - 1] };
        &self.slots[start as usize..self.ends[tenant as usize] as usize]
    }
}

/// The slots of the workers named so far.
type Numbers = HashMap<Box<str>, Slot>;

fn number(numbers: &mut Numbers, worker: &str) -> Slot {
    let next = Slot(numbers.len() as u32);
    match numbers.get(worker) {
        Some(slot) => *slot,
        None => *numbers.entry(worker.into()).or_insert(next),
    }
}

impl Problems {
    fn add(&mut self, problem: Problem) {
        self.count += 1;
        if self.first.len() < PROBLEMS_MAX {
            self.first.push(problem);
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Empty { tenant } => {
                write!(f, "tenant `{tenant}` has no worker; each needs one at least")
            }
            Problem::TooLarge { tenant, size } => write!(
                f,
                "tenant `{tenant}` has {size} workers; at most {FOREIGN_SIZE_MAX} are possible"
            ),
            Problem::WorkerTwice { tenant, worker } => {
                write!(f, "tenant `{tenant}` has worker `{worker}` more than once")
            }
            Problem::TenantTwice { tenant } => {
                write!(f, "tenant `{tenant}` is there more than once; each needs a name of its own")
            }
            Problem::TooManyTenants => {
                write!(f, "more than {TENANTS_MAX} tenants; the rest was not read")
            }
            Problem::TooManyWorkers => {
                write!(f, "more than {WORKERS_MAX} workers; the rest was not read")
            }
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.first.iter().enumerate() {
            let line = if at > 0 { "\n" } else { "" };
            write!(f, "{line}{problem}")?;
        }
        match self.count - self.first.len() {
            0 => Ok(()),
            more => write!(f, "\nand {more} problems more"),
        }
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str, workers: &[&str]) -> (String, Vec<String>) {
        (name.to_owned(), workers.iter().map(|worker| worker.to_string()).collect())
    }

    #[test]
    fn names_become_slots() {
        let tenants = [tenant("x", &["b", "a"]), tenant("y", &["c", "b"])];
        let assignment = Assignment::with_workers(["idle".to_owned()], tenants).unwrap();
        assert_eq!((assignment.tenant_count(), assignment.worker_count()), (2, 4));
        assert_eq!(assignment.slot("a"), Some(Slot(2)));
        assert_eq!(assignment.worker(Slot(0)), Some("idle"));
        assert_eq!(assignment.shard("y"), Some(&[Slot(1), Slot(3)][..]));
        assert_eq!(assignment.shards().map(|(name, _)| name).collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!((assignment.worker(Slot(4)), assignment.shard("z")), (None, None));
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let many: Vec<String> = (0..65).map(|n| n.to_string()).collect();
        let problems = Assignment::new([
            tenant("none", &[]),
            tenant("twice", &["a", "b", "a"]),
            tenant("there", &["a"]),
            ("large".to_owned(), many),
            tenant("there", &["b"]),
            tenant("there", &["c"]),
        ])
        .unwrap_err();
        let told = [
            "tenant `none` has no worker; each needs one at least",
            "tenant `twice` has worker `a` more than once",
            "tenant `large` has 65 workers; at most 64 are possible",
            "tenant `there` is there more than once; each needs a name of its own",
        ];
        assert_eq!(problems.to_string(), told.join("\n"));
        let problems = Assignment::new((0..150).map(|n| (n.to_string(), vec![]))).unwrap_err();
        assert_eq!((problems.first.len(), problems.count), (100, 150));
        assert!(problems.to_string().ends_with("\nand 50 problems more"));
    }
}
