//! What `pharos shard` says, with the names that JSON readers rely on.

use std::io::{self, Write};

use serde::Serialize;
use shuffle::Plan;

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
    more: Vec<ToldChange>,
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
            more: plan.more.iter().map(change).collect(),
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
