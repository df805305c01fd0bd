//! The blast radius: who loses what when slots fail or are flooded.
//!
//! Counts are exact, over all shards of a design or over the tenants that are
//! given. The one function that draws lots says so in its name.

use crate::bound::choose;
use crate::design::Design;
use crate::key::{scale, spread};
use crate::shard::{Shard, Slot};
use crate::tally::{CountError, STEPS_MAX, SlotSet, tally};

/// How many tenants lose how many of their slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blast {
    /// At `i`, how many tenants lose exactly `i` slots.
    pub by_lost: Vec<u128>,
    /// Tenants that lose all of their slots.
    pub lost_all: u128,
    /// Tenants that lose half of their slots or more; those that lose all too.
    pub lost_half: u128,
}

impl Blast {
    /// Tenants with `by_lost.len() - 1` slots each.
    fn of_equal_sizes(by_lost: Vec<u128>) -> Self {
        let size = by_lost.len() - 1;
        let lost_half = by_lost[size.div_ceil(2).max(1).min(size)..].iter().sum();
        Blast { lost_all: by_lost[size], lost_half, by_lost }
    }

    /// All tenants, those that lose nothing too.
    pub fn tenants(&self) -> u128 {
        self.by_lost.iter().sum()
    }

    /// Tenants that lose nothing.
    pub fn untouched(&self) -> u128 {
        self.by_lost.first().copied().unwrap_or(0)
    }

    /// Tenants that lose `count` slots or more.
    pub fn lost_at_least(&self, count: usize) -> u128 {
        self.by_lost.iter().skip(count).sum()
    }

    /// The share of the tenants that loses all of its slots.
    pub fn fraction_lost_all(&self) -> f64 {
        fraction(self.lost_all, self.tenants())
    }

    /// The share of the tenants that loses half of its slots or more.
    pub fn fraction_lost_half(&self) -> f64 {
        fraction(self.lost_half, self.tenants())
    }

    /// Counts one tenant of `size` slots that loses `lost` of them.
    #[inline]
    fn add(&mut self, size: usize, lost: usize) {
        if self.by_lost.len() <= size {
            self.by_lost.resize(size + 1, 0);
        }
        self.by_lost[lost] += 1;
        self.lost_all += u128::from(lost == size && size > 0);
        self.lost_half += u128::from(2 * lost >= size && size > 0);
    }

    /// Without one tenant that loses all of its `size` slots.
    fn without_one(mut self, size: usize) -> Self {
        for count in [&mut self.by_lost[size], &mut self.lost_all, &mut self.lost_half] {
            *count -= 1;
        }
        self
    }
}

pub(crate) fn fraction(part: u128, whole: u128) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// What the failure of some slots takes from all shards of a design, if each
/// had a tenant.
pub fn of_design(design: &Design, failed: &[Slot]) -> Result<Blast, CountError> {
    of_design_within(design, failed, STEPS_MAX)
}

/// The same in `steps_max` steps at the most; a step is some tens of
/// nanoseconds.
pub fn of_design_within(
    design: &Design,
    failed: &[Slot],
    steps_max: u128,
) -> Result<Blast, CountError> {
    tally(design, failed, steps_max).map(Blast::of_equal_sizes)
}

/// What the failure of some slots takes from these shards.
pub fn of_shards<S: AsRef<[Slot]>>(shards: impl IntoIterator<Item = S>, failed: &[Slot]) -> Blast {
    let failed = SlotSet::new(failed);
    let mut blast = Blast::default();
    for shard in shards {
        let slots = shard.as_ref();
        blast.add(slots.len(), failed.count(slots));
    }
    blast
}

/// What all other tenants of a full house lose when one tenant's shard is
/// flooded.
pub fn of_tenant(design: &Design, flooded: &Shard) -> Result<Blast, CountError> {
    let all = of_design(design, flooded)?;
    Ok(match design.index(flooded) {
        Some(_) => all.without_one(flooded.len()),
        None => all,
    })
}

/// What the others of these tenants lose when the shard of one of them is
/// flooded. It is one of `shards`; others that have the very same are counted.
pub fn of_tenant_among<S: AsRef<[Slot]>>(
    shards: impl IntoIterator<Item = S>,
    flooded: &[Slot],
) -> Blast {
    let all = of_shards(shards, flooded);
    if all.lost_all > 0 { all.without_one(flooded.len()) } else { all }
}

/// What `failed` random slots of `workers` take from a tenant with `size` of
/// them: at `i`, the chance to lose exactly `i`. That is also the expected
/// share of the tenants, whatever shards they have: sharding decides who loses
/// together, not how much is lost.
pub fn expected_of_random_failures(workers: u32, size: usize, failed: u32) -> Vec<f64> {
    assert!(size as u64 <= u64::from(workers) && failed <= workers);
    // The chance that workers, drawn one after the other, are all of a kind.
    let all_of = |kind: u32, of: u32, count: usize| -> f64 {
        (0..count as u32)
            .map(|at| f64::from(kind.saturating_sub(at)) / f64::from(of - at))
            .product()
    };
    let chance = |lost: usize| {
        let orders = choose(size as u64, lost as u64).map_or(f64::INFINITY, |n| n as f64);
        let kept = all_of(workers - failed, workers - lost as u32, size - lost);
        orders * all_of(failed, workers, lost) * kept
    };
    (0..=size).map(chance).collect()
}

/// A mean of random draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean of what was drawn.
    pub value: f64,
    /// Its standard error: two thirds of the time the truth is nearer.
    pub error: f64,
}

/// What random failures do, by drawing lots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// How often failed slots were drawn.
    pub draws: u32,
    /// The share of the tenants that loses all slots.
    pub lost_all: Mean,
    /// The share of the tenants that loses half of its slots or more.
    pub lost_half: Mean,
    /// The chance that there is a tenant that loses all slots.
    pub someone_lost_all: Mean,
    /// The most tenants that lost all slots in one draw.
    pub lost_all_most: u128,
}

/// Draws `failed` of `workers` slots at random, `draws` times, and looks at
/// what these shards lose. The same seed draws the same slots.
pub fn estimate_of_random_failures<S: AsRef<[Slot]>>(
    shards: &[S],
    workers: u32,
    failed: u32,
    draws: u32,
    seed: u64,
) -> Estimate {
    assert!(failed <= workers && draws > 0);
    let mut lots = Lots(spread(seed));
    let mut slots: Vec<Slot> = (0..workers).map(Slot).collect();
    let (mut all, mut half, mut someone) =
        (Moments::default(), Moments::default(), Moments::default());
    let mut lost_all_most = 0;
    for _ in 0..draws {
        for at in 0..failed {
            slots.swap(at as usize, lots.between(at, workers) as usize);
        }
        let blast = of_shards(shards, &slots[..failed as usize]);
        all.add(blast.fraction_lost_all());
        half.add(blast.fraction_lost_half());
        someone.add(if blast.lost_all > 0 { 1.0 } else { 0.0 });
        lost_all_most = lost_all_most.max(blast.lost_all);
    }
    let [lost_all, lost_half, someone_lost_all] = [all, half, someone].map(Moments::mean);
    Estimate { draws, lost_all, lost_half, someone_lost_all, lost_all_most }
}

/// Sums of what was drawn.
#[derive(Clone, Copy, Default)]
struct Moments {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.count += 1.0;
        self.sum += value;
        self.squares += value * value;
    }

    fn mean(self) -> Mean {
        let value = self.sum / self.count;
        let variance = (self.squares / self.count - value * value).max(0.0);
        Mean { value, error: (variance / (self.count - 1.0).max(1.0)).sqrt() }
    }
}

/// Random numbers, counted up from a seed.
struct Lots(u64);

impl Lots {
    /// A number from `start` on, below `end`.
    fn between(&mut self, start: u32, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(1);
        start + scale(spread(self.0), u64::from(end - start)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Columns;
    use crate::key::Key;
    use crate::tally::tests::{small_designs, striped, whole};

    #[test]
    fn designs_and_their_shards_lose_the_same() {
        for design in small_designs() {
            let count = design.columns().slot_count() as u32;
            let failed: Vec<Slot> = (0..count).filter(|slot| slot % 3 > 0).map(Slot).collect();
            let shards = || design.shards(0).map(|(_, shard)| shard);
            assert_eq!(of_design(&design, &failed), Ok(of_shards(shards(), &failed)));
            for flooded in shards().step_by(7) {
                let among = of_tenant_among(shards(), &flooded);
                assert_eq!(of_tenant(&design, &flooded), Ok(among.clone()));
                assert_eq!(among.tenants(), design.capacity() - 1);
                assert_eq!(among.lost_at_least(design.guarantee().overlap + 1), 0);
            }
        }
    }

    #[test]
    fn a_flood_in_the_full_design_takes_two_slots_of_3066() {
        let design = striped(&[512; 4], 2, None);
        let (_, flooded) = design.shards(77_777).next().unwrap();
        let blast = of_tenant(&design, &flooded).unwrap();
        assert_eq!(blast.by_lost, [133_172_221, 1_042_440, 3_066, 0, 0]);
        assert_eq!((blast.lost_all, blast.lost_half), (0, 3_066));
        assert_eq!(blast.tenants(), design.capacity() - 1);
    }

    #[test]
    fn large_failures_of_large_designs_are_counted() {
        let design = striped(&[512; 4], 2, None);
        // Three of four stripes: everybody loses three slots.
        let failed: Vec<Slot> = (0..1536).map(Slot).collect();
        assert_eq!(of_design(&design, &failed).unwrap().by_lost, [0, 0, 0, design.capacity(), 0]);
        let design = Design::quadruples(whole(2048), &Key::PUBLIC);
        // Half of the points, a subspace: a plane has 0, 2 or 4 points of it.
        let failed: Vec<Slot> = (0..1024).map(Slot).collect();
        let blast = of_design(&design, &failed).unwrap();
        let inside = u128::from(1024u64 * 1023 * 1022 / 24);
        assert_eq!(blast.by_lost, [inside, 0, design.capacity() - 2 * inside, 0, inside]);
    }

    #[test]
    fn what_is_lost_does_not_depend_on_order_or_repetition() {
        let design = Design::striped(Columns::of_sizes(&[5; 4]), 2, None, &Key::PUBLIC);
        let once = of_design(&design, &[Slot(3), Slot(9)]);
        assert_eq!(of_design(&design, &[Slot(9), Slot(3), Slot(9)]), once);
        let nothing = of_design(&design, &[]).unwrap();
        assert_eq!((nothing.untouched(), nothing.lost_half), (125, 0));
        assert_eq!(of_shards::<Shard>([], &[Slot(1)]).fraction_lost_all(), 0.0);
    }

    #[test]
    fn random_failures_are_as_expected() {
        let design = striped(&[5; 4], 2, None);
        let shards: Vec<Shard> = design.shards(0).map(|(_, shard)| shard).collect();
        let expected = expected_of_random_failures(20, 4, 8);
        assert!((expected.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        // 8 · 7 · 6 · 5 of 20 · 19 · 18 · 17.
        assert!((expected[4] - 1680.0 / 116_280.0).abs() < 1e-12);
        let estimate = estimate_of_random_failures(&shards, 20, 8, 2_000, 42);
        let Mean { value, error } = estimate.lost_all;
        assert!((value - expected[4]).abs() < 4.0 * error, "{value} ± {error}");
        let half: f64 = expected[2..].iter().sum();
        assert!((estimate.lost_half.value - half).abs() < 4.0 * estimate.lost_half.error);
        assert!(estimate.lost_all_most >= 1 && estimate.someone_lost_all.value > 0.5);
        assert_eq!(estimate_of_random_failures(&shards, 20, 8, 2_000, 42), estimate);
    }
}
