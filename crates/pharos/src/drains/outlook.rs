//! What a plan will do, for people to read before it is begun.

use std::io::{self, Write};

use drain::{Direction, Foresight, Millis, Plan, TaskId};

/// Writes order, times, weights and capacity.
pub fn write_plan(out: &mut impl Write, plan: &Plan, foresight: &Foresight) -> io::Result<()> {
    let verb = match plan.direction {
        Direction::Drain => "drain",
        Direction::Restore => "restore",
    };
    let edges: usize = plan.tasks.iter().map(|task| task.parents().count()).sum();
    writeln!(
        out,
        "{verb} {}: {} tasks, {edges} dependencies, {} waves, about {}",
        plan.datacenter,
        plan.tasks.len(),
        foresight.waves.len(),
        rounded(foresight.total)
    )?;
    for (number, wave) in foresight.waves.iter().enumerate() {
        writeln!(out, "\nwave {}", number + 1)?;
        for id in wave {
            write_task(out, plan, foresight, *id)?;
        }
    }
    let path: Vec<&str> =
        foresight.critical_path.iter().map(|id| plan.task(*id).name.as_str()).collect();
    writeln!(out, "\ncritical path: {}", path.join(" → "))?;
    if !foresight.moves.is_empty() {
        writeln!(out, "\nwhat moves")?;
    }
    for own in &foresight.moves {
        let from = own.from.as_ref().map_or("?".to_owned(), ToString::to_string);
        let task = &plan.task(own.task).name;
        writeln!(out, "  {:<36} {from} → {}  ({task})", plan.knob(own.knob).to_string(), own.to)?;
    }
    write_capacity(out, foresight)
}

fn write_task(
    out: &mut impl Write,
    plan: &Plan,
    foresight: &Foresight,
    id: TaskId,
) -> io::Result<()> {
    let (task, own) = (plan.task(id), &foresight.tasks[id.index()]);
    let parents: Vec<&str> = task.parents().map(|id| plan.task(id).name.as_str()).collect();
    let after = match parents.is_empty() {
        true => String::new(),
        false => format!("  after {}", parents.join(", ")),
    };
    let mark = if foresight.critical_path.contains(&id) { "*" } else { " " };
    writeln!(
        out,
        " {mark} {:<28} {:<18} {:>8}{after}",
        task.name,
        task.template,
        rounded(own.lasts).to_string()
    )
}

fn write_capacity(out: &mut impl Write, foresight: &Foresight) -> io::Result<()> {
    if foresight.capacity.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nload before and after")?;
    for own in &foresight.capacity {
        let verdict = if own.fits { "" } else { "  too much" };
        let limit = own.usable / own.capacity.max(f64::MIN_POSITIVE) * 100.0;
        writeln!(
            out,
            "  {:<16} {:>7} → {:>7} of {} ({} %, utilization limit {} %){verdict}",
            own.datacenter,
            amount(own.before),
            amount(own.after),
            amount(own.capacity),
            amount(own.utilisation * 100.0),
            amount(limit)
        )?;
    }
    for own in &foresight.unserved {
        let (before, after) = (amount(own.before), amount(own.after));
        writeln!(out, "  {:<16} {before:>7} → {after:>7} of {}", "unserved", own.service)?;
    }
    if !foresight.fits {
        writeln!(out, "it does not fit: {}", misfit(foresight))?;
    }
    Ok(())
}

/// What of a drain does not fit.
pub(super) fn misfit(foresight: &Foresight) -> String {
    if foresight.too_much > 0.0 {
        let load = amount(foresight.too_much);
        return format!(
            "{load} of the load has no place below the utilization limits of the others"
        );
    }
    let lost = foresight.unserved.iter().filter(|own| own.after > own.before);
    let lost: Vec<&str> = lost.map(|own| own.service.as_str()).collect();
    format!("no datacenter would serve {}", lost.join(", "))
}

/// A number for people: whole, never `-0`, and not 0 if it is more than that.
pub(super) fn amount(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size < 0.5 => "<1".into(),
        _ => format!("{value:.0}"),
    }
}

/// Whole seconds: nobody predicts better.
fn rounded(span: Millis) -> Millis {
    Millis(span.0.div_ceil(1000) * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_shown_as_nothing_and_a_little_as_a_little() {
        let shown = [0.0, -0.0, 0.2, 0.6, 1.4, 75.0].map(amount);
        assert_eq!(shown, ["0", "0", "<1", "1", "1", "75"]);
    }
}
