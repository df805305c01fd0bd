//! What `pharos shard` says, with the names that JSON readers rely on.

use std::io::{self, Write};

use serde::Serialize;
use shuffle::verify::Report;
use shuffle::{
    Blast, Explanation, HostChange, Plan, ResizePlan, SpectrumRange, Step, Suspects, compare,
};

use super::Told;

/// A plan. `survives_attackers` is null if any number is survived.
#[derive(Debug, Serialize)]
pub struct ToldPlan {
    design: &'static str,
    capacity: u128,
    capacity_is_exact: bool,
    bound: u128,
    column_bound: u128,
    share_of_bound: f64,
    is_largest: bool,
    survives_attackers: Option<usize>,
    workers: usize,
    size: usize,
    overlap: usize,
    is_striped: bool,
    columns: Vec<u32>,
    room: u32,
    spread: Option<u32>,
    tenants: Option<u64>,
    headroom: Option<u128>,
    impact: ToldImpact,
    more: Vec<ToldChange>,
}

/// The share of all tenants that one poisonous tenant takes down.
#[derive(Debug, Serialize)]
struct ToldImpact {
    without_shards: String,
    plain_shards: String,
    shuffle_shards: String,
}

#[derive(Debug, Serialize)]
struct ToldChange {
    change: String,
    capacity: u128,
}

impl ToldPlan {
    pub fn new(plan: &Plan) -> Self {
        let design = &plan.design;
        let guarantee = design.guarantee();
        let change = |change: &shuffle::Change| ToldChange {
            change: change.what.clone(),
            capacity: change.capacity,
        };
        ToldPlan {
            design: design.name(),
            capacity: design.capacity(),
            capacity_is_exact: design.is_capacity_exact(),
            bound: plan.bound,
            column_bound: plan.column_bound,
            share_of_bound: plan.share_of_bound(),
            is_largest: design.is_largest(),
            survives_attackers: guarantee.survives_attackers(),
            workers: design.columns().slot_count(),
            size: guarantee.size,
            overlap: guarantee.overlap,
            is_striped: guarantee.is_striped,
            columns: design.columns().sizes().collect(),
            room: design.room(),
            spread: guarantee.spread,
            tenants: plan.tenants,
            headroom: plan.headroom(),
            impact: ToldImpact::new(&compare::scope(design)),
            more: plan.more.iter().map(change).collect(),
        }
    }
}

impl ToldImpact {
    fn new(scope: &compare::Scope) -> Self {
        ToldImpact {
            without_shards: scope.none.to_string(),
            plain_shards: scope.plain.to_string(),
            shuffle_shards: scope.shuffled.to_string(),
        }
    }
}

impl Told for ToldPlan {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut line = |name: &str, text: String| writeln!(out, "{name:<11} {text}");
        line("design", self.design.to_owned())?;
        line(
            "shards",
            format!(
                "{}{} of {} workers each, out of {}; any two share {} at the most",
                if self.capacity_is_exact { "" } else { "at least " },
                grouped(self.capacity),
                self.size,
                grouped(self.workers as u128),
                self.overlap
            ),
        )?;
        line(
            "bound",
            format!(
                "{} for any shards, {} for these columns; reached: {:.1} % and {:.1} %{}",
                grouped(self.bound),
                grouped(self.column_bound),
                100.0 * self.share_of_bound,
                100.0 * self.capacity as f64 / self.column_bound.max(1) as f64,
                if self.is_largest { "; there cannot be more" } else { "" }
            ),
        )?;
        let columns: Vec<String> = self.columns.iter().map(u32::to_string).collect();
        let kind = if self.is_striped { "one worker of each" } else { "workers of any" };
        line("columns", format!("{} workers; a shard has {kind}", columns.join(" + ")))?;
        line("room", format!("a column can grow to {} without moving anybody", self.room))?;
        line(
            "floods",
            match self.survives_attackers {
                Some(count) => format!(
                    "{count} tenant{} at once can be flooded, and everybody else keeps a worker",
                    if count == 1 { "" } else { "s" }
                ),
                None => {
                    "any number of tenants can be flooded: shards have no worker in common".into()
                }
            },
        )?;
        line(
            "loads",
            match self.spread {
                Some(spread) => {
                    format!("workers of a column differ by {spread} at the most, always")
                }
                None => "workers of a column are near to each other; no bound".into(),
            },
        )?;
        let ToldImpact { without_shards, plain_shards, shuffle_shards } = &self.impact;
        line(
            "impact",
            format!(
                "one poisonous tenant takes {shuffle_shards} of the tenants down; with plain \
                 shards {plain_shards}, without shards {without_shards}"
            ),
        )?;
        if let (Some(tenants), Some(headroom)) = (self.tenants, self.headroom) {
            line(
                "tenants",
                format!("{}; {} shards left", grouped(tenants.into()), grouped(headroom)),
            )?;
        }
        for more in &self.more {
            line("for more", format!("{}: {} shards", more.change, grouped(more.capacity)))?;
        }
        Ok(())
    }
}

/// A shard.
#[derive(Debug, Serialize)]
pub struct ToldShard {
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    workers: Vec<String>,
}

impl ToldShard {
    pub fn of_index(index: u64, workers: Vec<String>) -> Self {
        ToldShard { index: Some(index), tenant: None, workers }
    }

    pub fn of_tenant(tenant: &str, workers: Vec<String>) -> Self {
        ToldShard { index: None, tenant: Some(tenant.to_owned()), workers }
    }
}

impl Told for ToldShard {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let name = match (&self.tenant, self.index) {
            (Some(tenant), _) => tenant.clone(),
            (None, index) => format!("shard {}", index.unwrap_or_default()),
        };
        writeln!(out, "{name}: {}", self.workers.join(" "))
    }
}

/// A blast radius.
#[derive(Debug, Serialize)]
pub struct ToldBlast {
    workers: Vec<String>,
    counted: &'static str,
    tenants: u128,
    /// At `i`, tenants that lose exactly `i` workers.
    by_lost: Vec<u128>,
    lost_half: u128,
    lost_all: u128,
    fraction_lost_half: f64,
    fraction_lost_all: f64,
}

impl ToldBlast {
    pub fn new(blast: Blast, workers: &[String], counted: &'static str) -> Self {
        ToldBlast {
            workers: workers.to_vec(),
            counted,
            tenants: blast.tenants(),
            fraction_lost_half: blast.fraction_lost_half(),
            fraction_lost_all: blast.fraction_lost_all(),
            lost_half: blast.lost_half,
            lost_all: blast.lost_all,
            by_lost: blast.by_lost,
        }
    }
}

impl Told for ToldBlast {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "{} workers fail; counted exactly over {}, {} tenants",
            self.workers.len(),
            self.counted,
            grouped(self.tenants)
        )?;
        let share = |count: u128| 100.0 * count as f64 / self.tenants.max(1) as f64;
        for (lost, &count) in self.by_lost.iter().enumerate() {
            let (number, share) = (grouped(count), share(count));
            writeln!(out, "  lose {lost} of their workers  {number:>15}  {share:>12.7} %")?;
        }
        Ok(())
    }
}

/// An overlap spectrum: at `i`, with how many others a shard shares exactly
/// `i` workers.
#[derive(Debug, Serialize)]
pub struct ToldSpectrum {
    least: Vec<u128>,
    mean: Vec<f64>,
    most: Vec<u128>,
    shards: u128,
    is_exact: bool,
}

impl ToldSpectrum {
    pub fn new(range: SpectrumRange) -> Self {
        let SpectrumRange { least, mean, most, shards, is_exact } = range;
        ToldSpectrum { least, mean, most, shards, is_exact }
    }
}

impl Told for ToldSpectrum {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        match self.is_exact {
            true => writeln!(out, "every one of {} shards shares", grouped(self.shards))?,
            false => writeln!(out, "a SAMPLE of {} shards shares", grouped(self.shards))?,
        }
        for (shared, (&least, &most)) in self.least.iter().zip(&self.most).enumerate() {
            let count = match least == most {
                true => grouped(least),
                false => {
                    let (least, most) = (grouped(least), grouped(most));
                    format!("{least} to {most}, {:.1} on average", self.mean[shared])
                }
            };
            writeln!(out, "  {shared} workers with {count} others")?;
        }
        Ok(())
    }
}

/// A way from some hosts to others.
#[derive(Debug, Serialize)]
pub struct ToldResize {
    steps: Vec<ToldStep>,
    /// Tenants that a step touches, summed up.
    tenants_touched: u64,
    /// Slots that have no host in the end, and the tenants that have them.
    left_dark: Vec<u32>,
    tenants_short: u64,
    #[serde(skip)]
    text: String,
}

#[derive(Debug, Serialize)]
struct ToldStep {
    generation: u64,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    slot: Option<u32>,
    from: Option<String>,
    to: Option<String>,
    tenants: u64,
}

impl ToldStep {
    fn new(step: &Step) -> Self {
        let told = |kind, from, to| ToldStep {
            generation: step.generation,
            kind,
            slot: None,
            from,
            to,
            tenants: 0,
        };
        match &step.change {
            HostChange::Join(host) => told("join", None, Some(host.id.to_string())),
            HostChange::Leave(id) => told("leave", Some(id.to_string()), None),
            HostChange::Move(one) => ToldStep {
                slot: Some(one.slot.0),
                tenants: one.tenants,
                ..told(
                    "move",
                    one.from.as_ref().map(ToString::to_string),
                    one.to.as_ref().map(ToString::to_string),
                )
            },
        }
    }
}

impl ToldResize {
    pub fn new(plan: &ResizePlan) -> Self {
        ToldResize {
            steps: plan.steps().iter().map(ToldStep::new).collect(),
            tenants_touched: plan.moves().map(|one| one.tenants).sum(),
            left_dark: plan.left_dark().iter().map(|slot| slot.0).collect(),
            tenants_short: plan.tenants_short(),
            text: plan.to_string(),
        }
    }
}

impl Told for ToldResize {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        match self.steps.is_empty() {
            true => writeln!(out, "nothing to do")?,
            false => write!(out, "{}", self.text)?,
        }
        let touched = grouped(self.tenants_touched.into());
        writeln!(
            out,
            "checked: after every step no two tenants share more than promised; {touched} tenants touched"
        )
    }
}

/// What holds for an assignment.
#[derive(Debug, Serialize)]
pub struct ToldReport {
    tenants: usize,
    workers: usize,
    size_least: usize,
    size_most: usize,
    overlap: usize,
    overlap_is_complete: bool,
    pairs_with_most_overlap: u128,
    worst_pairs: Vec<(String, String)>,
    wished_overlap: Option<usize>,
    survives_attackers: Option<usize>,
    load_least: u32,
    load_mean: f64,
    load_most: u32,
    least_loaded: Vec<String>,
    most_loaded: Vec<String>,
    tenants_on_one_shard: usize,
    worst_flood: Option<ToldFlood>,
}

#[derive(Debug, Serialize)]
struct ToldFlood {
    tenant: String,
    others_by_lost: Vec<u128>,
    is_worst: bool,
}

impl ToldReport {
    pub fn new(report: Report, wished_overlap: Option<usize>) -> Self {
        let flood = |flood: shuffle::verify::Flood| ToldFlood {
            tenant: flood.tenant,
            others_by_lost: flood.others.by_lost,
            is_worst: flood.is_worst,
        };
        ToldReport {
            tenants: report.tenants,
            workers: report.workers,
            size_least: report.sizes.first().map_or(0, |(size, _)| *size),
            size_most: report.sizes.last().map_or(0, |(size, _)| *size),
            overlap: report.overlap.most,
            overlap_is_complete: report.overlap.is_complete,
            pairs_with_most_overlap: report.overlap.pairs,
            worst_pairs: report.overlap.worst,
            wished_overlap,
            survives_attackers: report.survives_attackers,
            load_least: report.balance.least,
            load_mean: report.balance.mean,
            load_most: report.balance.most,
            least_loaded: report.balance.least_loaded,
            most_loaded: report.balance.most_loaded,
            tenants_on_one_shard: report.identical.tenants,
            worst_flood: report.worst_flood.map(flood),
        }
    }

    /// Two tenants share more than was wished, or it could not be found out.
    pub fn is_broken(&self) -> bool {
        self.wished_overlap.is_some_and(|most| self.overlap > most || !self.overlap_is_complete)
    }
}

impl Told for ToldReport {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut line = |name: &str, text: String| writeln!(out, "{name:<9} {text}");
        let (tenants, workers) = (grouped(self.tenants as u128), grouped(self.workers as u128));
        line("tenants", format!("{tenants} on {workers} workers"))?;
        line(
            "size",
            match self.size_least == self.size_most {
                true => format!("{} workers each", self.size_least),
                false => format!("UNEVEN: {} to {} workers", self.size_least, self.size_most),
            },
        )?;
        let pairs = grouped(self.pairs_with_most_overlap);
        let complete = if self.overlap_is_complete { "" } else { "; NOT ALL were compared" };
        line(
            "overlap",
            format!("{} at the most, {pairs} pairs share as many{complete}", self.overlap),
        )?;
        for (one, other) in self.worst_pairs.iter().take(5) {
            line("", format!("{one} and {other}"))?;
        }
        if let Some(wished) = self.wished_overlap {
            let verdict = if self.is_broken() { "does NOT hold" } else { "holds" };
            line("wished", format!("{wished} at the most: {verdict}"))?;
        }
        if self.tenants_on_one_shard > 1 {
            line(
                "same",
                format!("{} tenants have the very same workers", self.tenants_on_one_shard),
            )?;
        }
        line(
            "loads",
            format!("{} to {}, {:.1} on average", self.load_least, self.load_most, self.load_mean),
        )?;
        line(
            "floods",
            match self.survives_attackers {
                Some(count) => format!("{count} at once, and everybody else keeps a worker"),
                None => "any number: no two tenants share a worker".to_owned(),
            },
        )?;
        if let Some(flood) = &self.worst_flood {
            let lost: Vec<String> = flood.others_by_lost.iter().map(|&n| grouped(n)).collect();
            let kind = if flood.is_worst { "the worst flood" } else { "a bad flood" };
            line(
                "",
                format!(
                    "{kind} is that of {}: others lose 0, 1, … workers: {}",
                    flood.tenant,
                    lost.join(", ")
                ),
            )?;
        }
        Ok(())
    }
}

/// Tenants that sick workers have in common.
#[derive(Debug, Serialize)]
pub struct ToldSuspects {
    sick: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_all: Option<u128>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_some: Option<u64>,
    /// The shard that explains it, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<u64>,
    suspects: Vec<ToldSuspect>,
}

#[derive(Debug, Serialize)]
struct ToldSuspect {
    tenant: String,
    sick: usize,
    size: usize,
}

impl ToldSuspects {
    pub fn ranked<T: ToString>(found: Suspects<T>, sick: usize) -> Self {
        let suspect = |one: &shuffle::Suspect<T>| ToldSuspect {
            tenant: one.tenant.to_string(),
            sick: one.sick,
            size: one.size,
        };
        ToldSuspects {
            sick,
            on_all: Some(found.on_all.into()),
            on_some: Some(found.on_some),
            shard: None,
            suspects: found.ranked.iter().map(suspect).collect(),
        }
    }

    pub fn explained(explanation: Explanation, sick: usize) -> Self {
        let (on_all, shard) = match explanation {
            Explanation::NoShard => (0, None),
            Explanation::OneShard(index, _) => (1, Some(index.get())),
            Explanation::Shards(count) => (count, None),
        };
        ToldSuspects { sick, on_all: Some(on_all), on_some: None, shard, suspects: Vec::new() }
    }
}

impl Told for ToldSuspects {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let on_all = grouped(self.on_all.unwrap_or_default());
        match (self.shard, self.on_some) {
            (Some(shard), _) => {
                return writeln!(
                    out,
                    "shard {shard} alone, of all there are, has these {} workers",
                    self.sick
                );
            }
            (None, None) => {
                return writeln!(out, "{on_all} shards have all {} workers", self.sick);
            }
            (None, Some(on_some)) => {
                let on_some = grouped(on_some.into());
                writeln!(
                    out,
                    "{on_all} tenants are on all {} sick workers, {on_some} on some",
                    self.sick
                )?;
            }
        }
        for ToldSuspect { tenant, sick, size } in &self.suspects {
            writeln!(out, "  {tenant:<40} {sick} of its {size} workers are sick")?;
        }
        Ok(())
    }
}

/// A number with a comma before every three digits.
pub fn grouped(number: u128) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(134_217_728), "134,217,728");
    }
}
