//! The result of `bench drain` as text.

use std::fmt::Write as _;

use super::report::{
    AblationRow, AlarmRate, DrainReport, EngineCost, Makespan, PacePoint, Phase, Resume,
    ServiceTime, Target, direction_name,
};
use crate::draw::{short, thousands};
use crate::stats::Spread;

pub fn render(report: &DrainReport) -> String {
    let mut text = String::new();
    makespans(&mut text, &report.makespans);
    let _ = writeln!(text, "{}\n", report.caveat);
    services(&mut text, &report.services);
    runbooks(&mut text, &report.makespans);
    phases(&mut text, &report.phases);
    ablations(&mut text, &report.ablations);
    paces(&mut text, &report.paces);
    engine(&mut text, &report.engine);
    resumes(&mut text, &report.resumes);
    alarms(&mut text, &report.alarms);
    targets(&mut text, &report.targets);
    text
}

fn makespans(text: &mut String, rows: &[Makespan]) {
    let seeds = rows.first().map_or(0, |row| row.runs.len());
    let _ = writeln!(
        text,
        "{:<10}{:>22}{:>22}{:>25}{:>22}{:>21}{:>19}",
        format!("{seeds} seeds"),
        "makespan min",
        "lower bound min",
        "makespan/bound",
        "one by one min",
        "one by one/makespan",
        "sum/makespan"
    );
    for row in rows {
        let _ = writeln!(
            text,
            "{:<10}{:>22}{:>22}{:>25}{:>22}{:>21}{:>19}",
            direction_name(row.direction),
            minutes(row.makespan_secs),
            minutes(row.bound_secs),
            spread(row.to_bound, 4),
            minutes(row.sequential_secs),
            spread(row.against_sequential, 2),
            spread(row.against_sum, 2)
        );
    }
    text.push_str(
        "`one by one` was carried out; `sum` adds up all tasks alone, as the paper does\n\n",
    );
}

fn services(text: &mut String, rows: &[ServiceTime]) {
    let _ = writeln!(
        text,
        "{:<34}{:>16}{:>22}{:>26}",
        "Table 3: paper | ours", "tasks", "steps", "minutes"
    );
    for row in rows {
        let [tasks, steps, minutes] = &row.paper;
        let join = |values: &[f64], digits: usize| {
            values.iter().map(|value| format!("{value:.digits$}")).collect::<Vec<_>>().join(" → ")
        };
        let _ = writeln!(
            text,
            "{:<34}{:>16}{:>22}{:>26}",
            row.name,
            format!("{tasks} | {}", row.tasks),
            format!("{steps} | {}", join(&row.steps, 0)),
            format!("{minutes} | {}", join(&row.minutes, 1))
        );
    }
    text.push('\n');
}

/// The paper's Table 4: tasks, dependencies, and tasks on the critical path.
pub const PAPER_RUNBOOKS: [[usize; 3]; 2] = [[79, 109, 8], [68, 93, 5]];

fn runbooks(text: &mut String, rows: &[Makespan]) {
    let _ = writeln!(
        text,
        "{:<34}{:>16}{:>22}{:>26}",
        "Table 4: paper | ours", "tasks", "dependencies", "on the critical path"
    );
    for (row, [tasks, dependencies, critical]) in rows.iter().zip(PAPER_RUNBOOKS) {
        let _ = writeln!(
            text,
            "{:<34}{:>16}{:>22}{:>26}",
            direction_name(row.direction),
            format!("{tasks} | {}", row.tasks),
            format!("{dependencies} | {}", row.dependencies),
            format!("{critical} | {}", row.critical_path.len())
        );
    }
    for row in rows {
        let path = row.critical_path.join(" → ");
        let _ = writeln!(text, "  {}: {path}", direction_name(row.direction));
    }
    text.push('\n');
}

fn phases(text: &mut String, rows: &[Phase]) {
    let _ = writeln!(
        text,
        "{:<34}{:>26}{:>28}{:>22}",
        "Table 5: paper | ours", "minutes", "sequential / it", "sequential min"
    );
    for row in rows {
        let _ = writeln!(
            text,
            "{:<34}{:>26}{:>28}{:>22}",
            row.name,
            format!("{:.0} | {}", row.paper_minutes, spread(row.minutes, 1)),
            format!("×{} | ×{}", row.paper_times, spread(row.times, 2)),
            spread(row.sequential_minutes, 0)
        );
    }
    text.push_str("the paper adds up the durations of tasks; ours were carried out one by one\n\n");
}

fn ablations(text: &mut String, rows: &[AblationRow]) {
    let _ = writeln!(
        text,
        "{:<9}{:<15}{:>6}{:>26}{:>22}{:>16}{:>16}{:>7}{:>10}",
        "",
        "without",
        "ended",
        "makespan min",
        "failed requests",
        "peak of a site",
        "peak of a link",
        "steps",
        "breaches"
    );
    for row in rows {
        let _ = writeln!(
            text,
            "{:<9}{:<15}{:>6}{:>26}{:>22}{:>16}{:>16}{:>7.0}{:>10.0}",
            direction_name(row.direction),
            row.without.as_deref().unwrap_or("nothing"),
            format!("{}/{}", row.ended, row.seeds),
            minutes(row.makespan_secs),
            format!("{} ({})", short(row.failed_requests.median), percent(row.failed_share.median)),
            percent(row.peak_utilisation.median),
            percent(row.peak_link.median),
            row.steps.median,
            row.breaches.median
        );
    }
    text.push_str("what did not end was given up after 48 hours of the world\n\n");
}

fn paces(text: &mut String, rows: &[PacePoint]) {
    let _ = writeln!(
        text,
        "{:<9}{:<15}{:>6}{:>26}{:>22}{:>16}{:>10}",
        "pace", "step", "ended", "makespan min", "failed requests", "peak of a site", "breaches"
    );
    for row in rows {
        let _ = writeln!(
            text,
            "{:<9}{:<15}{:>6}{:>26.1}{:>22}{:>16}{:>10.0}",
            row.world,
            row.step.map_or("adaptive".to_owned(), |step| format!("fixed, {}", percent(step))),
            if row.has_ended { "yes" } else { "no" },
            row.makespan_secs / 60.0,
            format!("{} ({})", short(row.failed_requests), percent(row.failed_share)),
            percent(row.peak_utilisation),
            row.breaches
        );
    }
    text.push('\n');
}

fn engine(text: &mut String, rows: &[EngineCost]) {
    let _ = writeln!(
        text,
        "{:<9}{:>14}{:>12}{:>14}{:>26}{:>14}{:>14}",
        "engine", "tasks", "records", "events", "CPU s", "observing", "looking"
    );
    for row in rows {
        let _ = writeln!(
            text,
            "{:<9}{:>14}{:>12}{:>14}{:>26}{:>14.3}{:>14.3}",
            "",
            thousands(row.tasks),
            thousands(row.records),
            thousands(row.events),
            spread(row.cpu_secs, 3),
            row.observing_secs.median,
            row.looking_secs.median
        );
    }
    text.push('\n');
}

fn resumes(text: &mut String, rows: &[Resume]) {
    let _ = writeln!(
        text,
        "{:<9}{:>14}{:>12}{:>14}{:>26}{:>14}{:>14}{:>14}",
        "resume", "tasks", "records", "octets", "s", "open", "read", "replay"
    );
    for row in rows {
        let _ = writeln!(
            text,
            "{:<9}{:>14}{:>12}{:>14}{:>26}{:>14.3}{:>14.3}{:>14.3}",
            "",
            thousands(row.tasks),
            thousands(row.records),
            thousands(row.octets as usize),
            spread(row.secs, 3),
            row.open_secs.median,
            row.read_secs.median,
            row.replay_secs.median
        );
    }
    text.push('\n');
}

fn alarms(text: &mut String, rows: &[AlarmRate]) {
    let _ = writeln!(
        text,
        "{:<14}{:>9}{:>16}{:>12}{:>20}",
        "false alarms", "spread", "earlier runs", "p75", "p75 with margin"
    );
    for row in rows {
        let (bare, with_margin) = (percent(row.bare), percent(row.with_margin));
        let _ = writeln!(
            text,
            "{:<14}{:>9}{:>16}{bare:>12}{with_margin:>20}",
            "", row.spread, row.earlier_runs
        );
    }
    text.push('\n');
}

fn targets(text: &mut String, targets: &[Target]) {
    for Target { name, value, bound, is_least, held } in targets {
        let verdict = if *held { "held  " } else { "MISSED" };
        let side = if *is_least { "at least" } else { "at most" };
        let _ = writeln!(text, "{verdict}  {name:<46} {value:>8.3}  ({side} {bound})");
    }
}

fn minutes(secs: Spread) -> String {
    let Spread { median, min, max } = secs;
    spread(Spread { median: median / 60.0, min: min / 60.0, max: max / 60.0 }, 1)
}

fn spread(value: Spread, digits: usize) -> String {
    let Spread { median, min, max } = value;
    format!("{median:.digits$} ({min:.digits$}–{max:.digits$})")
}

pub fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent == 0.0 || percent >= 10.0 => format!("{percent:.0} %"),
        percent if percent >= 0.1 => format!("{percent:.1} %"),
        percent => format!("{percent:.3} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::report::tests::sample;

    #[test]
    fn tables_say_what_was_measured() {
        let text = render(&sample());
        for expected in [
            "MISSED  restore: sequential / makespan",
            "held    drain: makespan / bound",
            "79 | 79",
            "10 | 9.9 (9.9–9.9)",
            "that they are alike proves nothing",
            "30 %                12 %",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
    }

    #[test]
    fn shares_are_for_people() {
        let shares = [0.0, 0.00002, 0.003, 0.25, 1.35].map(percent);
        assert_eq!(shares, ["0 %", "0.002 %", "0.3 %", "25 %", "135 %"]);
    }
}
