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
    writeln!(out, "\ncapacity after it")?;
    for own in &foresight.capacity {
        let verdict = if own.fits { "" } else { "  too much" };
        writeln!(
            out,
            "  {:<16} {:>7.0} → {:>7.0} of {:.0} ({:.0} %, line {:.0} %){verdict}",
            own.datacenter,
            own.before,
            own.after,
            own.capacity,
            own.utilisation * 100.0,
            own.usable / own.capacity.max(f64::MIN_POSITIVE) * 100.0
        )?;
    }
    if !foresight.fits {
        writeln!(
            out,
            "it does not fit: {:.0} of the load has no place below the lines of the others",
            foresight.too_much
        )?;
    }
    Ok(())
}

/// Whole seconds: nobody predicts better.
fn rounded(span: Millis) -> Millis {
    Millis(span.0.div_ceil(1000) * 1000)
}
