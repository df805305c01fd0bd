//! How a run stands, in a terminal: once, or for as long as it goes on.

use std::fmt::{self, Write as _};
use std::io::{IsTerminal, Write as _};
use std::time::{Duration, Instant};

use drain::Millis;
use serde_json::Value;

use crate::control::Socket;
use crate::output::{self, Output, tame_value};

/// How often the picture is drawn.
const EVERY: Duration = Duration::from_millis(500);
/// How long a server may be away: one that is started again goes on with its
/// runs, and whoever watches need not.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Tasks shown of each kind that says little; the rest is counted.
const QUIET_MAX: usize = 12;
/// Conditions shown that do not hold.
const CONDITIONS_MAX: usize = 24;
const BAR: usize = 20;

/// Shows a run once.
pub fn show(socket: &Socket, run: u64) -> Result<u8, String> {
    let status = socket.get(&format!("/v1/drains/{run}"))?;
    let mut out = Output::painted();
    let shown = match socket.is_json() {
        true => writeln!(out, "{status}"),
        false => write!(out, "{}", picture(&status, Paint::of_terminal())),
    };
    shown.map_err(output::explain)?;
    Ok(0)
}

/// Shows a run until it is over, with what was said when it began; a line of
/// JSON for each change, if machines read it.
pub fn follow(socket: &Socket, run: u64, warnings: &[&str]) -> Result<u8, String> {
    let paint = Paint::of_terminal();
    // In a terminal they would be gone with the first picture.
    if !paint.is_on || socket.is_json() {
        warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    }
    let (mut last, mut silent_since) = (None, None);
    loop {
        let status = match socket.get(&format!("/v1/drains/{run}")) {
            Ok(status) => status,
            Err(why) => {
                let since: Instant = *silent_since.get_or_insert_with(Instant::now);
                if last.is_none() || since.elapsed() > SILENCE_MAX {
                    return Err(why);
                }
                std::thread::sleep(EVERY);
                continue;
            }
        };
        silent_since = None;
        let mut out = Output::painted();
        let news = ["next_seq", "stands_still", "elsewhere"].map(|key| status[key].clone());
        let is_news = last.as_ref() != Some(&news);
        last = Some(news);
        let shown = match (socket.is_json(), paint.is_on) {
            (true, _) if is_news => writeln!(out, "{status}"),
            // From the upper left corner, without what was there.
            (false, true) => {
                let picture = picture(&status, paint);
                write!(out, "\x1b[H\x1b[2J{picture}{}", footnotes(warnings, paint))
            }
            (false, false) if is_news => writeln!(out, "{}", picture(&status, paint)),
            _ => Ok(()),
        };
        shown.and_then(|()| out.flush()).map_err(output::explain)?;
        if !status["outcome"].is_null() {
            let is_whole = status["outcome"] == "completed";
            return Ok(if is_whole { 0 } else { crate::EXIT_FAILED });
        }
        std::thread::sleep(EVERY);
    }
}

/// Whether there are colours.
#[derive(Clone, Copy, Debug)]
struct Paint {
    is_on: bool,
}

impl Paint {
    fn of_terminal() -> Paint {
        let is_on = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Paint { is_on }
    }

    fn in_colour(self, code: &str, text: &str) -> String {
        if self.is_on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// The whole picture.
fn picture(status: &Value, paint: Paint) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = draw(&mut text, &tame_value(status), paint);
    text
}

fn footnotes(warnings: &[&str], paint: Paint) -> String {
    let line = |warning| paint.in_colour("33", &format!("  warning: {warning}")) + "\n";
    let lines: String = warnings.iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

fn draw(out: &mut String, status: &Value, paint: Paint) -> fmt::Result {
    let millis = |value: &Value| value.as_u64().unwrap_or_default();
    let now = millis(&status["now"]);
    let elapsed = Millis(now.saturating_sub(millis(&status["opened"])) / 1000 * 1000);
    let tasks: Vec<&Value> = status["tasks"].as_array().into_iter().flatten().collect();
    let is = |phases: &'static [&'static str]| {
        let of = tasks
            .iter()
            .filter(move |task| phases.contains(&task["phase"].as_str().unwrap_or_default()));
        of.copied().collect::<Vec<&Value>>()
    };
    let done = is(&["done", "skipped"]).len();
    let state = state(status);
    writeln!(
        out,
        "run {}: {} {}, {}, {} · {elapsed} · {done} of {} tasks complete\n",
        status["run"],
        word(&status["direction"]),
        paint.in_colour("1", word(&status["datacenter"])),
        word(&status["mode"]),
        paint.in_colour("1", &state),
        tasks.len()
    )?;
    for (what, why) in [
        ("nothing is done until it can be written", &status["stands_still"]),
        ("as of its last record", &status["elsewhere"]),
    ] {
        if let Value::String(why) = why {
            writeln!(out, "  {}\n", paint.in_colour("31", &format!("{what}: {why}")))?;
        }
    }
    draw_done(out, &is(&["done", "skipped", "reverted"]), status, paint)?;
    let open =
        is(&["running", "settling", "reverting", "failed", "stopped", "unreverted", "abandoned"]);
    for task in open {
        draw_task(out, task, status, paint)?;
    }
    draw_waiting(out, &is(&["waiting"]), status, paint)?;
    let path: Vec<&str> =
        status["critical_path"].as_array().into_iter().flatten().map(word).collect();
    if path.len() > 1 {
        writeln!(out, "\n  critical path *  {}", shortened(&path))?;
    }
    // What conditions say of a run that is over, nobody asks any more.
    match &status["outcome"] {
        Value::Null => draw_conditions(out, status, paint),
        _ => draw_strayed(out, status, paint),
    }
}

fn draw_strayed(out: &mut String, status: &Value, paint: Paint) -> fmt::Result {
    let strayed: Vec<&Value> = status["strayed"].as_array().into_iter().flatten().collect();
    if strayed.is_empty() {
        return Ok(());
    }
    out.push('\n');
    let mark = paint.in_colour("31", "✗");
    for own in strayed.iter().take(QUIET_MAX) {
        let (knob, found, left) =
            (word(&own["knob"]), position(&own["found"]), position(&own["left"]));
        writeln!(out, "  {mark}  {knob:<36} {found}, was left at {left}")?;
    }
    if strayed.len() > QUIET_MAX {
        writeln!(
            out,
            "  {mark}  {} more that are not where they were left",
            strayed.len() - QUIET_MAX
        )?;
    }
    let way_out = format!("`drain {}` turns them again", word(&status["datacenter"]));
    writeln!(out, "      {}", paint.in_colour("90", &way_out))
}

/// How it stands in a word or two.
fn state(status: &Value) -> String {
    let is_paused = status["paused"] == true;
    match (&status["outcome"], &status["abort"]) {
        (Value::String(outcome), _) => outcome.replace('_', " "),
        _ if !status["stands_still"].is_null() => "standing still".into(),
        // It stays paused until somebody says otherwise.
        (_, Value::String(how)) if is_paused => format!("aborting ({how}), paused"),
        (_, Value::String(how)) => format!("aborting ({how})"),
        _ if is_paused => "paused".into(),
        _ => "running".into(),
    }
}

/// Names in a row, without the middle if there are many.
fn shortened(path: &[&str]) -> String {
    const ENDS: usize = 3;
    if path.len() <= 2 * ENDS {
        return path.join(" → ");
    }
    let (first, last) = (&path[..ENDS], &path[path.len() - ENDS..]);
    format!("{} → … {} more … → {}", first.join(" → "), path.len() - 2 * ENDS, last.join(" → "))
}

/// Whether a task decides how long the run takes.
fn star(task: &Value, status: &Value) -> &'static str {
    let path = status["critical_path"].as_array();
    let is_on = path.is_some_and(|path| path.contains(&task["name"]));
    if is_on { "*" } else { " " }
}

fn draw_done(out: &mut String, done: &[&Value], status: &Value, paint: Paint) -> fmt::Result {
    if done.len() > QUIET_MAX {
        writeln!(
            out,
            "  {}  {} more that are done",
            paint.in_colour("90", "✓"),
            done.len() - QUIET_MAX
        )?;
    }
    for task in done.iter().skip(done.len().saturating_sub(QUIET_MAX)) {
        let span = task["started"].as_u64().zip(task["ended"].as_u64());
        let took = span.map(|(from, to)| took(to.saturating_sub(from)).to_string());
        let phase = word(&task["phase"]);
        let line = format!("{:<28} {phase:<11} {}", word(&task["name"]), took.unwrap_or_default());
        let (mark, line) = (paint.in_colour("32", "✓"), paint.in_colour("90", line.trim_end()));
        writeln!(out, "  {mark}{} {line}", star(task, status))?;
    }
    Ok(())
}

fn draw_waiting(out: &mut String, waiting: &[&Value], status: &Value, paint: Paint) -> fmt::Result {
    for task in waiting.iter().take(QUIET_MAX) {
        let names = task["waits_for"].as_array().map_or(&[][..], |names| &names[..]);
        let why = match &task["hold"]["why"] {
            Value::String(why) => paint.in_colour("33", why),
            _ if names.is_empty() => String::new(),
            _ => format!("after {}", names.iter().map(word).collect::<Vec<_>>().join(", ")),
        };
        let (mark, star) = (paint.in_colour("90", "·"), star(task, status));
        writeln!(out, "  {mark}{star} {:<28} {why}", word(&task["name"]))?;
    }
    if waiting.len() > QUIET_MAX {
        writeln!(out, "  ·  {} more that wait", waiting.len() - QUIET_MAX)?;
    }
    Ok(())
}

/// Tenths are enough for a task that was quick, seconds for others.
fn took(millis: u64) -> Millis {
    let unit = if millis < 10_000 { 100 } else { 1000 };
    Millis(millis / unit * unit)
}

fn draw_task(out: &mut String, task: &Value, status: &Value, paint: Paint) -> fmt::Result {
    let now = status["now"].as_u64().unwrap_or_default();
    let phase = word(&task["phase"]);
    let (mark, colour) = match phase {
        "failed" | "unreverted" => ("✗", "31"),
        "stopped" | "abandoned" => ("■", "33"),
        _ if !task["hold"].is_null() => ("‖", "33"),
        _ => ("▶", "32"),
    };
    let bar = task["progress"].as_f64().map(|progress| {
        let full = (progress * BAR as f64).round() as usize;
        format!(
            "{}{} {:>3.0} %",
            "█".repeat(full),
            "░".repeat(BAR - full.min(BAR)),
            progress * 100.0
        )
    });
    write!(
        out,
        "  {}{} {:<28} {:<11} {}",
        paint.in_colour(colour, mark),
        star(task, status),
        word(&task["name"]),
        if phase == "running" { word(&task["stage"]) } else { phase },
        bar.unwrap_or_default()
    )?;
    if let Some(next) = task["next_step_at"].as_u64() {
        write!(out, "  next step in {:.0} s", next.saturating_sub(now) as f64 / 1000.0)?;
    }
    if task["is_stuck"] == true {
        write!(out, "  {}", paint.in_colour("31", "stuck"))?;
    }
    out.push('\n');
    for why in [&task["asks"], &task["hold"]["why"], &task["failure"]] {
        if let Value::String(why) = why {
            writeln!(out, "      {}", paint.in_colour("33", why))?;
        }
    }
    if status["outcome"].is_null() && matches!(phase, "failed" | "stopped" | "unreverted") {
        let name = word(&task["name"]);
        let way_out = format!("go on with `retry {name}` or `skip {name}`, or `abort`");
        writeln!(out, "      {}", paint.in_colour("90", &way_out))?;
    }
    Ok(())
}

fn draw_conditions(out: &mut String, status: &Value, paint: Paint) -> fmt::Result {
    let conditions: Vec<&Value> = status["conditions"].as_array().into_iter().flatten().collect();
    if !conditions.is_empty() {
        out.push('\n');
    }
    let (calm, decisive): (Vec<&Value>, Vec<&Value>) =
        conditions.into_iter().partition(|condition| condition["verdict"] == "holds");
    let left_over = QUIET_MAX.saturating_sub(decisive.len());
    for condition in decisive.iter().take(CONDITIONS_MAX).chain(calm.iter().take(left_over)) {
        draw_condition(out, condition, paint)?;
    }
    if decisive.len() > CONDITIONS_MAX {
        writeln!(out, "  ?  {} more that do not hold", decisive.len() - CONDITIONS_MAX)?;
    }
    if calm.len() > left_over {
        let mark = paint.in_colour("32", "✓");
        writeln!(out, "  {mark}  {} more that hold", calm.len() - left_over)?;
    }
    Ok(())
}

fn draw_condition(out: &mut String, condition: &Value, paint: Paint) -> fmt::Result {
    let is_unseen = condition["value"].is_null() && condition["silence"].is_null();
    let (mark, colour) = match word(&condition["verdict"]) {
        "holds" => ("✓", "32"),
        "rising" => ("…", "33"),
        "unknown" if is_unseen => ("…", "33"),
        "unknown" => ("?", "33"),
        _ => ("✗", "31"),
    };
    let bound = condition["bound"].as_f64().map_or(String::new(), number);
    let wanted = format!("{} {bound}", word(&condition["comparison"]));
    let value = match condition["value"].as_f64() {
        Some(value) => format!("{} {wanted}", number(value)),
        None if is_unseen => format!("no value yet, wants {wanted}"),
        None => format!("no data, wants {wanted}"),
    };
    let aside = if condition["overridden"] == true { " (overridden)" } else { "" };
    writeln!(
        out,
        "  {}  {:<28} {value}{aside}",
        paint.in_colour(colour, mark),
        word(&condition["name"]),
    )?;
    if let Some(silence) = condition["silence"].as_str() {
        writeln!(out, "      {}", paint.in_colour("90", silence))?;
    }
    Ok(())
}

/// With as many digits as say something.
fn number(value: f64) -> String {
    let text = format!("{value:.4}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Where a knob stands.
fn position(value: &Value) -> String {
    value.as_f64().map_or_else(|| value.to_string(), number)
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_line_says_what_keeps_a_run() {
        let told = |status: Value| state(&status);
        assert_eq!(told(json!({ "paused": false })), "running");
        assert_eq!(told(json!({ "paused": true })), "paused");
        assert_eq!(told(json!({ "abort": "revert" })), "aborting (revert)");
        // It does not go back until somebody says that it may.
        assert_eq!(told(json!({ "abort": "revert", "paused": true })), "aborting (revert), paused");
        assert_eq!(told(json!({ "stands_still": "the disk is full" })), "standing still");
        assert_eq!(told(json!({ "outcome": "partly_reverted" })), "partly reverted");
    }

    #[test]
    fn warnings_stay_below_a_picture_that_is_drawn_again() {
        let plain = Paint { is_on: false };
        assert_eq!(footnotes(&[], plain), "");
        assert_eq!(footnotes(&["a", "b"], plain), "\n  warning: a\n  warning: b\n");
    }
}
