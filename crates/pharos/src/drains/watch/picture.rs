//! The picture of a run: a pure function of its status and the size of the
//! terminal. What needs a person comes first, then what is held, drifts or is
//! breached, then what runs; the rest is counted, and named as far as there is
//! room.

use drain::date::{date, time_near};
use drain::engine::{Abort, Mode, Phase, RunOutcome};
use drain::{Direction, Eta, Millis, Time, Value, Verdict, number, percent};
use jiff::tz::TimeZone;

use super::screen::{Line, Style, width, wrap, wrap_after};
use crate::drains::status::{
    ConditionStatus, DriftStatus, HoldKind, HoldStatus, NeedKind, NeedsPerson, Status, TaskStatus,
};
use crate::drains::vigil::Strayed;

/// Where it is shown.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub columns: usize,
    /// `None`: as many as there are.
    pub rows: Option<usize>,
    pub has_colours: bool,
    pub zone: &'a TimeZone,
    /// What was said when the run began.
    pub warnings: &'a [String],
}

/// Columns of a text that nobody reads in a terminal.
pub const UNLIMITED: usize = 1 << 20;
/// Tasks that wait or are done, named where there is no limit to rows.
const QUIET_MAX: usize = 12;
const BAR: usize = 20;
/// How far what belongs to the line above is moved in.
const INDENT: usize = 4;
/// How wide names of tasks are shown at most.
const NAME_MAX: usize = 36;

/// How much is said about each thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Detail {
    /// Whole reasons, and what to do.
    Full,
    /// A line of the reason, and what to do.
    Short,
    /// A line each.
    Least,
}

/// Lines that belong together.
struct Section {
    title: Line,
    items: Vec<Vec<Line>>,
    /// Names that stand for the items where there is room for nothing else.
    names: Vec<String>,
    /// Nothing is wrong with it.
    is_calm: bool,
    /// What is said of items that have no place: `… 3 more {this}`.
    more: &'static str,
}

/// The picture: at most so many lines, none wider than the terminal.
pub fn render(status: &Status, view: &View<'_>) -> String {
    let lines = picture(status, view);
    let painted = lines.iter().map(|line| line.paint(view.columns, view.has_colours));
    painted.collect::<Vec<String>>().join("\n")
}

fn picture(status: &Status, view: &View<'_>) -> Vec<Line> {
    let mut lines = header(status, view);
    let counts = counts(status);
    let Some(rows) = view.rows else {
        for section in sections(status, view, Detail::Full) {
            lines.push(Line::default());
            lines.extend(section.take(usize::MAX));
        }
        for quiet in [waiting(status), done(status)] {
            if !quiet.items.is_empty() {
                lines.push(Line::default());
                lines.extend(quiet.take(QUIET_MAX + 2));
            }
        }
        return lines;
    };
    let room = rows.saturating_sub(lines.len() + 1);
    let mut blocks = fill(as_full_as_fits(status, view, room), room);
    for quiet in [waiting(status), done(status)] {
        let left = room.saturating_sub(blocks.iter().map(Vec::len).sum());
        blocks.push(quiet.quietly(left.saturating_sub(1), view.columns));
    }
    blocks.retain(|block| !block.is_empty());
    // Blank lines between them, or at least one above, where there is room.
    let left = room.saturating_sub(blocks.iter().map(Vec::len).sum());
    let gaps = if left >= blocks.len() { blocks.len() } else { usize::from(left > 0) };
    for (at, block) in blocks.into_iter().enumerate() {
        lines.extend((at < gaps).then(Line::default));
        lines.extend(block);
    }
    lines.truncate(rows.saturating_sub(1));
    lines.push(counts);
    lines.truncate(rows);
    lines
}

/// Says as much as there is room for: a line about everything first, then more,
/// of the most urgent first.
fn as_full_as_fits(status: &Status, view: &View<'_>, room: usize) -> Vec<Section> {
    // What goes well is cut short before what does not.
    let wanted = |section: &Section| match section.is_calm {
        true => section.height().min((room / 3).max(3)),
        false => section.height(),
    };
    let mut chosen = sections(status, view, Detail::Least);
    for detail in [Detail::Short, Detail::Full] {
        for (at, richer) in sections(status, view, detail).into_iter().enumerate() {
            let all: usize = chosen.iter().map(wanted).sum();
            if all - wanted(&chosen[at]) + wanted(&richer) <= room {
                chosen[at] = richer;
            }
        }
    }
    chosen
}

/// Sections in so many lines: first each gets its title and one thing, then as
/// much as there is room for, the first ones first.
fn fill(sections: Vec<Section>, room: usize) -> Vec<Vec<Line>> {
    let mut heights: Vec<usize> = Vec::new();
    let mut left = room;
    for section in &sections {
        let least = section.least().min(left);
        // A title alone says nothing.
        heights.push(if least >= 2 { least } else { 0 });
        left -= heights.last().copied().unwrap_or(0);
    }
    for (section, height) in sections.iter().zip(&mut heights) {
        let more = section.height().saturating_sub(*height).min(left);
        if *height > 0 {
            *height += more;
            left -= more;
        }
    }
    let shown = sections.into_iter().zip(heights);
    shown.map(|(section, height)| section.take(height)).collect()
}

impl Section {
    fn new(style: Style, title: String, more: &'static str) -> Section {
        Section {
            title: Line::new(style, title),
            items: Vec::new(),
            names: Vec::new(),
            is_calm: false,
            more,
        }
    }

    fn height(&self) -> usize {
        1 + self.items.iter().map(Vec::len).sum::<usize>()
    }

    /// The title, the first thing, and how many more there are.
    fn least(&self) -> usize {
        1 + self.items.first().map_or(0, Vec::len) + usize::from(self.items.len() > 1)
    }

    /// As many whole items as fit, and how many do not.
    fn take(self, rows: usize) -> Vec<Line> {
        if rows < 2 || self.items.is_empty() {
            return Vec::new();
        }
        let Section { title, items, more, .. } = self;
        let whole = 1 + items.iter().map(Vec::len).sum::<usize>();
        let mut lines = vec![title];
        let mut left = items.len();
        for item in items {
            let note = usize::from(left > 1 && whole > rows);
            if lines.len() + item.len() + note > rows {
                // At least the beginning of the first one.
                if lines.len() == 1 {
                    lines.extend(item.into_iter().take(rows - 1 - note));
                    left -= 1;
                }
                break;
            }
            lines.extend(item);
            left -= 1;
        }
        if left > 0 && lines.len() < rows {
            lines.push(Line::new(Style::Dim, format!("{:INDENT$}… {left} more {more}", "")));
        }
        lines
    }

    /// A line each if all fit, or names in a row, or nothing.
    fn quietly(self, rows: usize, columns: usize) -> Vec<Line> {
        if self.items.is_empty() || rows < 2 {
            return Vec::new();
        }
        if self.height() <= rows {
            return self.take(rows);
        }
        let texts = wrap(&self.names.join(", "), columns.saturating_sub(INDENT), rows - 1);
        let texts =
            texts.into_iter().map(|text| Line::new(Style::Dim, format!("{:INDENT$}{text}", "")));
        std::iter::once(self.title).chain(texts).collect()
    }
}

fn header(status: &Status, view: &View<'_>) -> Vec<Line> {
    let verb = match status.direction {
        Direction::Drain => "drain",
        Direction::Restore => "restore",
    };
    let mode = match status.mode {
        Mode::Drill => "drill",
        Mode::Disaster => "disaster",
    };
    let is = |phase: Phase| status.tasks.iter().filter(|task| task.phase == phase).count();
    let complete = is(Phase::Done) + is(Phase::Skipped);
    let is_idle = |task: &&TaskStatus| task.phase == Phase::Done && task.reason.is_some();
    let idle = match status.tasks.iter().filter(is_idle).count() {
        0 => String::new(),
        idle => format!(", {idle} with nothing to bring back"),
    };
    let calm =
        if status.outcome == Some(RunOutcome::Completed) { Style::Good } else { Style::Bold };
    let style = if status.needs_person.is_empty() { calm } else { Style::Alarm };
    let mut lines = vec![
        Line::new(Style::Plain, format!("run {}: {verb} ", status.run))
            .and(Style::Bold, &status.datacenter)
            .and(Style::Plain, format!(", {mode}, "))
            .and(style, state(status))
            .and(
                Style::Plain,
                format!(" · {complete} of {} tasks complete{idle}", status.tasks.len()),
            ),
    ];
    let elapsed = brief(status.eta_end().unwrap_or(status.now) - status.opened);
    let started = match status.outcome {
        None => format!("started {}, {elapsed} ago", date(status.opened, view.zone)),
        Some(_) => format!("started {}", date(status.opened, view.zone)),
    };
    let why = if status.reason.is_empty() { "" } else { ": " };
    let why = format!("{}{why}{}", status.by, status.reason);
    // Who and why have a line of their own where they would be cut off.
    let started = Line::new(Style::Dim, started);
    if started.width() + " by ".len() + width(&why) <= view.columns {
        lines.push(started.and(Style::Dim, " by ").and(Style::Plain, why));
    } else {
        lines.extend([started, Line::new(Style::Dim, "by ").and(Style::Plain, why)]);
    }
    lines.push(ends(status, view));
    if let Some(driver) = &status.elsewhere {
        lines.push(Line::new(Style::Warn, format!("as of its last record: {driver}")));
    }
    let is_open = |name: &&String| {
        let task = status.tasks.iter().find(|task| task.name == **name);
        task.is_some_and(|task| !task.phase.has_ended())
    };
    let path: Vec<&str> = status.critical_path.iter().filter(is_open).map(String::as_str).collect();
    if path.len() > 1 && status.outcome.is_none() {
        lines.push(
            Line::new(Style::Dim, "critical path *  ")
                .and(Style::Plain, shortened(&path, view.columns)),
        );
    }
    lines
}

impl Status {
    /// When it ended, if it has.
    fn eta_end(&self) -> Option<Time> {
        match self.eta {
            Eta::Ended { at } => Some(at),
            _ => None,
        }
    }
}

fn ends(status: &Status, view: &View<'_>) -> Line {
    let near = |at: Time| time_near(at, status.now, view.zone);
    match &status.eta {
        Eta::Ended { at } => Line::new(Style::Dim, "ended ")
            .and(Style::Plain, date(*at, view.zone))
            .and(Style::Dim, format!(", took {}", brief(*at - status.opened))),
        Eta::Expected { at } => Line::new(Style::Dim, "ends about ")
            .and(Style::Bold, near(*at))
            .and(Style::Plain, format!(", in {}", brief(*at - status.now))),
        Eta::AtLeast { at, why } => Line::new(Style::Dim, "ends at the earliest ")
            .and(Style::Bold, near(*at))
            .and(Style::Plain, format!(", in {} or more: ", brief(*at - status.now)))
            .and(Style::Warn, why),
        Eta::Unknown { why } => Line::new(Style::Dim, "end unknown: ").and(Style::Warn, why),
    }
}

/// The state of a run in a word or two.
pub fn state(status: &Status) -> String {
    let outcome = status.outcome.map(|outcome| match outcome {
        RunOutcome::Completed => "completed",
        RunOutcome::CompletedWithSkips => "completed with skips",
        RunOutcome::Held => "held",
        RunOutcome::Reverted => "reverted",
        RunOutcome::PartlyReverted => "partly reverted",
    });
    let aborting = status.abort.map(|how| match how {
        Abort::Hold => "aborting (hold)",
        Abort::Revert => "aborting (revert)",
    });
    match (outcome, aborting) {
        (Some(outcome), _) => outcome.into(),
        _ if status.stands_still.is_some() => "standing still".into(),
        // It stays paused until somebody says otherwise.
        (_, Some(how)) if status.paused => format!("{how}, paused"),
        (_, Some(how)) => how.into(),
        _ if status.paused => "paused".into(),
        _ => "running".into(),
    }
}

/// Names in a row, without the middle if there are many.
fn shortened(path: &[&str], columns: usize) -> String {
    let ends = match columns {
        0..100 => 1,
        100..140 => 2,
        _ => 4,
    };
    if path.len() <= 2 * ends {
        return path.join(" → ");
    }
    let (first, last) = (&path[..ends], &path[path.len() - ends..]);
    format!("{} → … {} more … → {}", first.join(" → "), path.len() - 2 * ends, last.join(" → "))
}

/// How many tasks are in each state.
fn counts(status: &Status) -> Line {
    let mut line = Line::default();
    let mut gap = "";
    for (name, phases) in [
        ("running", &[Phase::Running, Phase::Settling][..]),
        ("reverting", &[Phase::Reverting]),
        ("waiting", &[Phase::Waiting]),
        ("failed", &[Phase::Failed, Phase::Unreverted]),
        ("stopped", &[Phase::Stopped]),
        ("done", &[Phase::Done]),
        ("skipped", &[Phase::Skipped]),
        ("reverted", &[Phase::Reverted]),
        ("abandoned", &[Phase::Abandoned]),
    ] {
        let count = status.tasks.iter().filter(|task| phases.contains(&task.phase)).count();
        if count > 0 {
            let style = if name == "failed" { Style::Bad } else { Style::Plain };
            line = line
                .and(Style::Dim, gap)
                .and(style, count.to_string())
                .and(Style::Dim, format!(" {name}"));
            gap = " · ";
        }
    }
    let health = || status.conditions.iter().filter(|own| own.is_health);
    let hold = health().filter(|own| own.verdict == Verdict::Holds).count();
    let all = health().count();
    match status.outcome.is_none() && all > 0 {
        true => line.and(Style::Dim, format!(" · {hold} of {all} conditions of health hold")),
        false => line,
    }
}

/// Everything that matters now, the most urgent first.
fn sections(status: &Status, view: &View<'_>, detail: Detail) -> Vec<Section> {
    let writer = Writer { status, view, detail };
    let mut sections = vec![
        writer.needs(),
        writer.warnings(),
        writer.held(),
        writer.drifts(),
        writer.conditions(),
        writer.running(),
        writer.strayed(),
        writer.left_behind(),
    ];
    sections.retain(|section| !section.items.is_empty());
    sections
}

struct Writer<'a> {
    status: &'a Status,
    view: &'a View<'a>,
    detail: Detail,
}

impl Writer<'_> {
    /// A mark, a name, and a text that goes on in the lines below; then what to
    /// do.
    fn item(&self, mark: Line, text: &str, style: Style, todo: &str) -> Vec<Line> {
        let rows = match self.detail {
            Detail::Full => 3,
            Detail::Short | Detail::Least => 1,
        };
        let columns = self.view.columns;
        let first = columns.saturating_sub(mark.width());
        let mut texts = wrap_after(text, first, columns.saturating_sub(INDENT), rows).into_iter();
        let mut lines = vec![mark.and(style, texts.next().unwrap_or_default())];
        lines.extend(texts.map(|text| Line::new(style, format!("{:INDENT$}{text}", ""))));
        lines.extend(self.todo(todo));
        lines
    }

    fn todo(&self, todo: &str) -> Option<Line> {
        let is_shown = self.detail < Detail::Least && !todo.is_empty();
        is_shown.then(|| Line::new(Style::Dim, format!("{:INDENT$}→ ", "")).and(Style::Plain, todo))
    }

    fn needs(&self) -> Section {
        let needs = &self.status.needs_person;
        let mut section = Section::new(
            Style::Alarm,
            format!("needs a person: {}", needs.len()),
            "that need a person",
        );
        let groups = groups(needs.iter(), |need| (need.kind, need.why.as_str()));
        section.items = groups.iter().map(|group| self.need(group)).collect();
        section
    }

    /// What needs a person, with all tasks that need one for the same.
    fn need(&self, group: &[&NeedsPerson]) -> Vec<Line> {
        let need = group[0];
        let (mark, word, style) = match need.kind {
            NeedKind::StandsStill => ("✗", "stands still", Style::Bad),
            NeedKind::Failed => ("✗", "failed", Style::Bad),
            NeedKind::Unreverted => ("✗", "not reverted", Style::Bad),
            NeedKind::Reverted => ("✗", "put back", Style::Bad),
            NeedKind::LeftBehind => ("✗", "not brought back", Style::Bad),
            NeedKind::NotBack => ("✗", "not at its value", Style::Bad),
            NeedKind::Contested => ("✗", "contested", Style::Bad),
            NeedKind::Unreadable => ("‖", "unreadable knob", Style::Bad),
            NeedKind::Fenced => ("✗", "fence closed", Style::Bad),
            NeedKind::InUse => ("‖", "knob in use", Style::Warn),
            NeedKind::Unanswered => ("‖", "no answer", Style::Bad),
            NeedKind::Limit => ("‖", "limit", Style::Warn),
            NeedKind::Breach => ("‖", "breach", Style::Bad),
            NeedKind::NoData => ("‖", "no data", Style::Warn),
            NeedKind::Stuck => ("!", "stuck", Style::Warn),
            NeedKind::Approval => ("?", "asks", Style::Warn),
            NeedKind::Stopped => ("■", "stopped", Style::Warn),
            NeedKind::Paused => ("‖", "paused", Style::Warn),
        };
        let names: Vec<&str> = group.iter().filter_map(|need| need.task.as_deref()).collect();
        let about = need.task.as_deref().or(need.knob.as_deref()).unwrap_or("the run");
        let first = group.iter().map(|need| need.since).min().unwrap_or(need.since);
        let since = secs(self.status.now - first);
        let head = self.mark_all(mark, style, about, &names);
        let since = match need.kind {
            NeedKind::Failed | NeedKind::Stopped | NeedKind::Unreverted | NeedKind::Reverted => {
                format!("{since} ago")
            }
            _ => format!("for {since}"),
        };
        let head = head.and(style, format!("{word} {since}")).and(Style::Plain, ": ");
        let task = self.status.tasks.iter().find(|task| Some(&task.name) == need.task.as_ref());
        let series = task.and_then(|task| self.series(task.hold.as_ref()));
        let why = format!("{}{}", need.why, series.unwrap_or_default());
        // What helps one of them helps each.
        let todo = match names.len() {
            0 | 1 => need.todo.clone(),
            _ => need.todo.replace(about, "TASK"),
        };
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut lines = self.item(head, &why, Style::Plain, "");
        lines.extend(self.names(&names));
        lines.extend(self.todo(&todo));
        lines
    }

    /// The names of several tasks that one thing is said of.
    fn names(&self, names: &[String]) -> Vec<Line> {
        let rows = match self.detail {
            _ if names.len() < 2 => return Vec::new(),
            Detail::Full => 2,
            Detail::Short => 1,
            Detail::Least => return Vec::new(),
        };
        let columns = self.view.columns.saturating_sub(INDENT);
        let texts = wrap(&names.join(", "), columns, rows).into_iter();
        texts.map(|text| Line::new(Style::Dim, format!("{:INDENT$}{text}", ""))).collect()
    }

    /// A mark before one task, or before how many there are.
    fn mark_all(&self, mark: &str, style: Style, name: &str, names: &[&str]) -> Line {
        match names.len() {
            0 | 1 => self.mark(mark, style, name),
            count => {
                let is_critical =
                    |name: &&str| self.status.critical_path.iter().any(|own| own == name);
                let star = if names.iter().any(is_critical) { "*" } else { " " };
                Line::new(style, format!(" {mark}"))
                    .and(Style::Dim, star)
                    .and(Style::Bold, format!(" {count} tasks"))
                    .and(Style::Plain, "  ")
            }
        }
    }

    fn mark(&self, mark: &str, style: Style, name: &str) -> Line {
        let star = if self.status.critical_path.iter().any(|own| own == name) { "*" } else { " " };
        Line::new(style, format!(" {mark}"))
            .and(Style::Dim, star)
            .and(Style::Plain, " ")
            .and(Style::Bold, name)
            .and(Style::Plain, "  ")
    }

    /// The labels of the series that holds a task.
    fn series(&self, hold: Option<&HoldStatus>) -> Option<String> {
        let name = hold?.condition.as_ref()?;
        let own = self.status.conditions.iter().find(|own| own.name == *name)?;
        own.series.as_ref().map(|series| format!(" {series}"))
    }

    fn warnings(&self) -> Section {
        let mut section = Section::new(Style::Warn, "warnings at the start".into(), "warnings");
        let item =
            |text: &String| self.item(Line::new(Style::Warn, " !  "), text, Style::Plain, "");
        section.items = self.view.warnings.iter().map(item).collect();
        section
    }

    fn needs_person(&self, task: &TaskStatus) -> bool {
        self.status.needs_person.iter().any(|need| need.task.as_ref() == Some(&task.name))
    }

    fn is_held(&self, task: &TaskStatus) -> bool {
        let is_open = task.phase.is_active() || task.phase == Phase::Waiting;
        // That the run is paused is said once.
        let is_bad = |hold: &HoldStatus| match hold.kind {
            HoldKind::Paused => !self.status.paused,
            kind => !kind.is_routine(),
        };
        is_open && task.hold.as_ref().is_some_and(is_bad)
    }

    fn held(&self) -> Section {
        let held = self.status.tasks.iter();
        let held: Vec<&TaskStatus> =
            held.filter(|task| self.is_held(task) && !self.needs_person(task)).collect();
        let mut section =
            Section::new(Style::Warn, format!("held: {}", held.len()), "that are held");
        let groups = groups(held.into_iter(), |task| task.reason.as_deref());
        section.items = groups.iter().map(|group| self.held_tasks(group)).collect();
        section
    }

    /// Tasks that one reason holds.
    fn held_tasks(&self, group: &[&TaskStatus]) -> Vec<Line> {
        let task = group[0];
        let progress = |task: &TaskStatus| task.progress.map(percent);
        let since = group.iter().filter_map(|task| task.hold.as_ref()).map(|hold| hold.since).min();
        let since = secs(self.status.now - since.unwrap_or(self.status.now));
        let far = progress(task).filter(|_| group.len() == 1);
        let held =
            format!("{}held for {since}", far.map_or(String::new(), |far| format!("{far} · ")));
        let names: Vec<&str> = group.iter().map(|task| task.name.as_str()).collect();
        let head = self.mark_all("‖", Style::Warn, &task.name, &names);
        let head = head.and(Style::Warn, held).and(Style::Plain, ": ");
        let series = self.series(task.hold.as_ref()).unwrap_or_default();
        let why = task.reason.clone().unwrap_or_default() + &series;
        let mut lines = self.item(head, &why, Style::Plain, "");
        let named = |task: &&TaskStatus| match progress(task) {
            Some(far) => format!("{} {far}", task.name),
            None => task.name.clone(),
        };
        lines.extend(self.names(&group.iter().map(named).collect::<Vec<String>>()));
        let todo = task.hold.as_ref().and_then(|hold| hold.todo.as_deref()).unwrap_or_default();
        let todo = match names.len() {
            0 | 1 => todo.to_owned(),
            _ => todo.replace(&task.name, "TASK"),
        };
        lines.extend(self.todo(&todo));
        lines
    }

    fn drifts(&self) -> Section {
        let drifts = &self.status.drifts;
        let mut section =
            Section::new(Style::Warn, format!("drift: {}", drifts.len()), "that drifted");
        // What conditions and knobs did in a run that is over is in its report.
        if self.status.outcome.is_none() {
            section.items = drifts.iter().map(|drift| self.drift(drift)).collect();
        }
        section
    }

    fn drift(&self, drift: &DriftStatus) -> Vec<Line> {
        let style = if drift.contested { Style::Bad } else { Style::Warn };
        let found = drift.found.as_ref().map_or("another value".into(), position);
        let ago = secs(self.status.now - drift.last);
        let times = if drift.times == 1 { "once".into() } else { format!("{} times", drift.times) };
        let then = match (drift.is_promoted, drift.contested) {
            _ if drift.stays_out => {
                "stays there; set it by hand, or begin the run again".to_owned()
            }
            (_, false) if drift.steps_follow => {
                format!("{times}, last {ago} ago; stays, and steps begin there")
            }
            _ if drift.waits_for_resume => "set back when it is resumed".to_owned(),
            (true, _) => format!("{ago} ago; to promote again takes a person"),
            (_, true) => format!("{times}, last {ago} ago; not set back any more"),
            (_, false) => format!("{times}, last {ago} ago; set back"),
        };
        let text = format!(
            "found {found}, must be {}; {then} ({})",
            position(&drift.expected),
            drift.task
        );
        self.item(self.mark("~", style, &drift.knob), &text, Style::Plain, "")
    }

    /// Conditions that do not hold. Those that do are counted.
    fn conditions(&self) -> Section {
        // What is waited for stands at the task that does.
        let is_shown = |own: &&ConditionStatus| own.is_health || self.view.rows.is_none();
        let of = |verdict: Verdict| {
            let shown = self.status.conditions.iter().filter(is_shown);
            shown.filter(move |own| own.verdict == verdict)
        };
        let mut title = Vec::new();
        let waited_for = of(Verdict::Breached).filter(|own| !own.is_health).count();
        let breached = of(Verdict::Breached).count() - waited_for;
        title.extend((breached > 0).then(|| format!("{breached} breached")));
        title.extend((waited_for > 0).then(|| format!("{waited_for} waited for")));
        for (verdict, word) in [
            (Verdict::Unknown, "without data"),
            (Verdict::Rising, "not for long enough"),
            (Verdict::Outdated, "to be measured again"),
            (Verdict::Holds, "hold"),
        ] {
            let count = of(verdict).count();
            if count > 0 {
                title.push(format!("{count} {word}"));
            }
        }
        let bad = of(Verdict::Breached).any(|own| own.is_health);
        let title = format!("conditions: {}", title.join(", "));
        let mut section =
            Section::new(if bad { Style::Bad } else { Style::Plain }, title, "that do not hold");
        if self.status.outcome.is_some() {
            return section;
        }
        let has_rows = self.view.rows.is_some();
        // What was not looked at yet is no news in a terminal.
        let is_news = |own: &&ConditionStatus| !has_rows || own.silence.is_some();
        let unknown = of(Verdict::Unknown).filter(is_news);
        let mut shown: Vec<&ConditionStatus> = of(Verdict::Breached).chain(unknown).collect();
        if !has_rows {
            shown.extend(of(Verdict::Rising).chain(of(Verdict::Outdated)));
            shown.extend(of(Verdict::Holds).take(QUIET_MAX));
        }
        section.items = shown.iter().map(|own| self.condition(own)).collect();
        section
    }

    fn condition(&self, own: &ConditionStatus) -> Vec<Line> {
        let is_unseen = own.value.is_none() && own.silence.is_none();
        let (mark, style) = match own.verdict {
            Verdict::Holds => ("✓", Style::Good),
            Verdict::Rising | Verdict::Outdated => ("…", Style::Warn),
            Verdict::Unknown if is_unseen => ("…", Style::Warn),
            Verdict::Unknown => ("?", Style::Warn),
            // It is waited for.
            Verdict::Breached if !own.is_health => ("·", Style::Dim),
            Verdict::Breached => ("✗", Style::Bad),
        };
        let wanted = format!("{} {}", own.comparison, number(own.bound));
        let mut text = match own.value {
            Some(value) => format!("{}, must be {wanted}", number(value)),
            None if is_unseen => format!("no value yet, must be {wanted}"),
            None => format!("no data, must be {wanted}"),
        };
        if let Some(series) = &own.series {
            text += &format!(" · {series}");
        }
        if let Some(age) = own.age_ms {
            text += &format!(" · data {} old", secs(Millis(age)));
        }
        if own.overridden {
            text += " · overridden";
        }
        if let Some(silence) = &own.silence {
            text += &format!(": {silence}");
        }
        self.item(self.mark(mark, style, &own.name), &text, Style::Plain, "")
    }

    fn running(&self) -> Section {
        let is_shown = |task: &&TaskStatus| {
            let waits = task.phase == Phase::Waiting && task.hold.is_some();
            (task.phase.is_active() || waits) && !self.needs_person(task) && !self.is_held(task)
        };
        let mut running: Vec<&TaskStatus> = self.status.tasks.iter().filter(is_shown).collect();
        // Those that decide when it ends come first.
        let is_critical = |task: &TaskStatus| self.status.critical_path.contains(&task.name);
        running.sort_by_key(|task| !is_critical(task));
        let wide = running.iter().map(|task| width(&task.name)).max().unwrap_or(0);
        let mut section =
            Section::new(Style::Good, format!("running: {}", running.len()), "that run");
        section.is_calm = true;
        section.items =
            running.iter().map(|task| self.running_task(task, wide.clamp(12, NAME_MAX))).collect();
        section
    }

    fn running_task(&self, task: &TaskStatus, name_width: usize) -> Vec<Line> {
        let is_critical = self.status.critical_path.contains(&task.name);
        let mut line = Line::new(Style::Good, " ▶")
            .and(Style::Dim, if is_critical { "*" } else { " " })
            .and(Style::Plain, " ")
            .and(Style::Plain, &task.name)
            .to(4 + name_width + 1);
        let stage = match task.phase {
            Phase::Running => task.stage.clone(),
            phase => format!("{phase:?}").to_lowercase(),
        };
        let column = line.width() + 12;
        line = line.and(Style::Dim, stage).to(column).and(Style::Plain, " ");
        if let Some(progress) = task.progress {
            // A narrow terminal has room for the number and what comes after it.
            let bar = if self.view.columns < 100 { BAR / 2 } else { BAR };
            let full = ((progress * bar as f64).round() as usize).min(bar);
            line = line
                .and(Style::Good, "█".repeat(full))
                .and(Style::Dim, "░".repeat(bar - full))
                .and(Style::Plain, format!(" {:>5}", percent(progress)));
        }
        let mut notes = Vec::new();
        if let Some(next) = task.next_step_at {
            let secs = (next - self.status.now).0.div_ceil(1000);
            notes.push(format!("next step in {secs} s"));
        }
        if let Some(reason) = &task.reason {
            notes.push(reason.clone());
        }
        if notes.is_empty()
            && task.progress.is_none()
            && let Some(started) = task.started
        {
            notes.push(format!("for {}", secs(self.status.now - started)));
        }
        let gap = if task.progress.is_some() { "  " } else { "" };
        vec![line.and(Style::Plain, gap).and(Style::Plain, notes.join(" · "))]
    }

    /// Of a run that is over: tasks that did not end well.
    fn left_behind(&self) -> Section {
        let ended_badly = |task: &&TaskStatus| {
            matches!(
                task.phase,
                Phase::Failed | Phase::Stopped | Phase::Unreverted | Phase::Abandoned
            )
        };
        let tasks: Vec<&TaskStatus> = match self.status.outcome {
            Some(_) => self.status.tasks.iter().filter(ended_badly).collect(),
            None => Vec::new(),
        };
        let mut section =
            Section::new(Style::Warn, format!("not done: {}", tasks.len()), "that are not done");
        section.items = tasks
            .iter()
            .map(|task| {
                let phase = format!("{:?}", task.phase).to_lowercase();
                let text = match &task.failure {
                    Some(why) => format!("{phase}: {why}"),
                    None => phase,
                };
                self.item(self.mark("■", Style::Warn, &task.name), &text, Style::Plain, "")
            })
            .collect();
        section
    }

    fn strayed(&self) -> Section {
        let strayed = &self.status.strayed;
        let title = format!("not at the value that a drain left: {}", strayed.len());
        let mut section = Section::new(Style::Alarm, title, "that are not");
        let line = |own: &Strayed| {
            let text = format!("{}, was left at {}", position(&own.found), position(&own.left));
            let todo = match self.status.outcome {
                Some(_) => format!("`drain {}` sets them again", self.status.datacenter),
                None => own.why.clone(),
            };
            self.item(self.mark("✗", Style::Bad, &own.knob), &text, Style::Plain, &todo)
        };
        section.items = strayed.iter().map(line).collect();
        // It is said once, below the last one.
        let last = section.items.len().saturating_sub(1);
        for item in section.items.iter_mut().take(last) {
            if item.len() > 1 {
                item.pop();
            }
        }
        section
    }
}

/// Things of which one and the same is to be said, in the order of the first.
fn groups<'t, T, K: PartialEq>(
    things: impl Iterator<Item = &'t T>,
    key: impl Fn(&'t T) -> K,
) -> Vec<Vec<&'t T>> {
    let mut groups: Vec<(K, Vec<&T>)> = Vec::new();
    for thing in things {
        let own = key(thing);
        match groups.iter_mut().find(|(known, _)| *known == own) {
            Some((_, group)) => group.push(thing),
            None => groups.push((own, vec![thing])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

fn waiting(status: &Status) -> Section {
    let is_quiet = |task: &&TaskStatus| task.phase == Phase::Waiting && task.hold.is_none();
    let tasks: Vec<&TaskStatus> = status.tasks.iter().filter(is_quiet).collect();
    let mut section = Section::new(Style::Dim, format!("waiting: {}", tasks.len()), "that wait");
    section.names = tasks.iter().map(|task| task.name.clone()).collect();
    section.items = tasks
        .iter()
        .map(|task| {
            let after = match task.waits_for.is_empty() {
                true => String::new(),
                false => format!("after {}", task.waits_for.join(", ")),
            };
            vec![quiet(status, task, "·", &after)]
        })
        .collect();
    section
}

fn done(status: &Status) -> Section {
    let has_ended =
        |task: &&TaskStatus| matches!(task.phase, Phase::Done | Phase::Skipped | Phase::Reverted);
    let mut tasks: Vec<&TaskStatus> = status.tasks.iter().filter(has_ended).collect();
    tasks.sort_by_key(|task| std::cmp::Reverse(task.ended));
    let mut section = Section::new(
        Style::Dim,
        format!("done, the latest first: {}", tasks.len()),
        "that are done",
    );
    section.names = tasks.iter().map(|task| task.name.clone()).collect();
    section.items = tasks
        .iter()
        .map(|task| {
            let span = task.started.zip(task.ended).map(|(from, to)| brief(to - from).to_string());
            let phase = match task.phase {
                Phase::Done => String::new(),
                phase => format!("{phase:?} ").to_lowercase(),
            };
            match &task.reason {
                // It had nothing to do.
                Some(reason) if task.phase == Phase::Done => vec![quiet(status, task, "–", reason)],
                _ => {
                    let text = format!("{phase}{}", span.unwrap_or_default());
                    vec![quiet(status, task, "✓", &text)]
                }
            }
        })
        .collect();
    section
}

fn quiet(status: &Status, task: &TaskStatus, mark: &str, text: &str) -> Line {
    let star = if status.critical_path.contains(&task.name) { "*" } else { " " };
    Line::new(Style::Dim, format!(" {mark}{star} "))
        .and(Style::Plain, &task.name)
        .to(4 + 29)
        .and(Style::Dim, text)
}

/// Seconds up to ten minutes, then minutes; tenths of what is quick.
fn brief(span: Millis) -> Millis {
    let unit = match span.0 {
        0..10_000 => 100,
        10_000..600_000 => 1000,
        _ => 60_000,
    };
    Millis(span.0 / unit * unit)
}

/// How long ago something was.
fn secs(span: Millis) -> Millis {
    brief(Millis(span.0 / 1000 * 1000))
}

/// The value of a knob.
fn position(value: &Value) -> String {
    value.number().map_or_else(|| value.to_string(), number)
}
