//! Drains of many seeds, with everything that can go wrong: in none may a
//! property fail.
//!
//! `LAB_SEEDS=5000` runs more of them, `LAB_SEED=7` one, with its log.

use std::collections::BTreeSet;

use drain::Plan;
use drain::engine::{Ended, Fact, Hold, Record, RunOutcome};
use lab::drains::faults::{Crashes, Moment, Outage};
use lab::drains::{Coverage, OUTAGE, Outcome, Sabotage, Trial, run};

/// Seeds that are run unless told otherwise.
const SEEDS: u64 = 60;
const PARTS: u64 = 2;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={text} is no number; accepted: 0, 1, 2 …")))
}

fn told(outcome: &Outcome) -> String {
    let log = if outcome.restore.is_empty() { &outcome.drain } else { &outcome.restore };
    let shown = if std::env::var("LAB_SEED").is_ok() { log.len() } else { 40 };
    let tail = &log[log.len().saturating_sub(shown)..];
    let lines: String = tail
        .iter()
        .map(|record| {
            let since = record.at.0 as i64 - 1_000_000_000_000;
            format!("{:>5} {:>9.3} {:?}\n", record.seq, since as f64 / 1000.0, record.fact)
        })
        .collect();
    format!("{lines}{:?}\n", outcome.tally)
}

fn check(trial: &Trial) -> Outcome {
    let outcome = run(trial);
    if let Some(violation) = &outcome.violation {
        panic!(
            "{}seed {}: {violation}\nagain: LAB_SEED={0}\n{trial:?}",
            told(&outcome),
            trial.seed
        );
    }
    outcome
}

fn run_part(part: u64) {
    if let Some(seed) = number("LAB_SEED") {
        if seed % PARTS == part {
            let outcome = run(&Trial { seed, ..Trial::default() });
            println!("{}{:?}", told(&outcome), outcome.violation);
            assert_eq!(outcome.violation, None);
        }
        return;
    }
    let mut failed = Vec::new();
    for seed in (0..number("LAB_SEEDS").unwrap_or(SEEDS)).filter(|seed| seed % PARTS == part) {
        let outcome = run(&Trial { seed, ..Trial::default() });
        if let Some(violation) = &outcome.violation {
            eprintln!("{}seed {seed}: {violation}\nagain: LAB_SEED={seed}\n", told(&outcome));
            failed.push((seed, violation.checker));
        }
    }
    assert!(failed.is_empty(), "{} drains failed: {failed:?}", failed.len());
}

#[test]
fn drains_of_even_seeds() {
    run_part(0);
}

#[test]
fn drains_of_odd_seeds() {
    run_part(1);
}

#[test]
fn in_calm_worlds_everything_is_drained_and_restored() {
    for seed in 0..20 {
        let outcome = check(&Trial { seed, is_calm: true, ..Trial::default() });
        assert_eq!(outcome.drained(), Some(RunOutcome::Completed), "{}", told(&outcome));
        assert_eq!(outcome.restored(), Some(RunOutcome::Completed), "{}", told(&outcome));
    }
}

/// A restore that waits for health in an outage waits for what only it can cure.
/// 0/0 holds none but those whose plan says that it blocks.
#[test]
fn a_restore_begins_in_an_outage_and_is_complete_after_it() {
    for how in Outage::ALL {
        let (mut begun, mut done, mut blocked) = (0, 0, 0);
        for seed in 0..number("LAB_SEEDS").map_or(20, |seeds| (seeds / 10).max(20)) {
            let trial = Trial { seed, is_calm: true, outage: Some(how), ..Trial::default() };
            let outcome = check(&trial);
            let log = told(&outcome);
            assert_eq!(outcome.restored(), Some(RunOutcome::Completed), "{how:?} {log}");
            let opened = outcome.restore.first().expect("a record").at;
            let is_early = |record: &&Record| record.at < opened + OUTAGE;
            let early: Vec<&Fact> =
                outcome.restore.iter().take_while(is_early).map(|record| &record.fact).collect();
            let blocks =
                |fact: &&&Fact| matches!(fact, Fact::Held { why: Hold::NoData { .. }, .. });
            let has_begun = |fact: &&Fact| {
                matches!(fact, Fact::Ended { result: Ended::Done { found: Some(_) }, .. })
            };
            begun += usize::from(early.iter().any(has_begun));
            done += usize::from(early.len() == outcome.restore.len());
            blocked += early.iter().filter(blocks).count();
        }
        println!("{how:?}: {begun} restores began in it, {done} ended, 0/0 held {blocked} tasks");
        assert!(begun > 10, "{how:?}: only {begun} restores began in the outage");
        // What follows the first effect waits for health that is bad.
        let is_empty = how == Outage::NoTraffic;
        assert_eq!((done > 0, blocked > 0), (is_empty, is_empty), "{how:?}");
    }
}

/// For each record of a run: dies before it is on disk, before what it asks for
/// is done, and before anybody hears that it was.
#[test]
fn a_crash_at_every_record_changes_nothing_but_time() {
    // Each is died at some thousand times.
    for seed in 0..number("LAB_SEEDS").map_or(3, |seeds| (seeds / 500).max(3)) {
        let calm = Trial { seed, is_calm: true, ..Trial::default() };
        let undisturbed = check(&calm);
        for at in 0..undisturbed.drain.len() as u64 {
            for moment in Moment::ALL {
                let crashes = Crashes::At(at, moment);
                let outcome = check(&Trial { crashes, ..calm.clone() });
                assert_eq!(outcome.tally.crashes, 1, "at record {at}, {moment:?}");
                assert_eq!(outcome.drained(), Some(RunOutcome::Completed), "{}", told(&outcome));
            }
        }
        for at in 0..undisturbed.restore.len() as u64 {
            for moment in Moment::ALL {
                let restore_crashes = Crashes::At(at, moment);
                let outcome = check(&Trial { restore_crashes, ..calm.clone() });
                assert_eq!(outcome.tally.crashes, 1, "at record {at}, {moment:?}");
                assert_eq!(outcome.restored(), Some(RunOutcome::Completed), "{}", told(&outcome));
            }
        }
    }
}

/// The same where everything else goes wrong too: what is written only then, as
/// of drift, aborts and the way back, is died at as well.
///
/// All would take long. Of the first few seeds, all records are died at; of the
/// others those that are of a kind, or of a kind of stage, that was in none before.
#[test]
fn a_crash_at_every_record_of_a_troubled_run_breaks_nothing() {
    let mut died_at: BTreeSet<String> = BTreeSet::new();
    let all = number("LAB_SEEDS").map_or(0, |seeds| seeds / 1000);
    for seed in 0..all.max(200) {
        let undisturbed = check(&Trial { seed, ..Trial::default() });
        for part in [DRAIN, RESTORE] {
            let (plan, log) = (part.of)(&undisturbed);
            let labels = Coverage::labels(plan, log);
            for (at, label) in labels.into_iter().enumerate() {
                let is_new = died_at.insert(format!("{} {label}", part.name));
                if is_new || seed < all {
                    die_at(&undisturbed, &part, at);
                }
            }
        }
    }
    let missed: Vec<&&str> = KINDS
        .iter()
        .filter(|kind| !died_at.iter().any(|own| format!("{own} ").contains(&format!(" {kind} "))))
        .collect();
    assert!(missed.is_empty(), "nobody died at {missed:?}; {died_at:#?}");
    println!("{} kinds of moments", died_at.len());
}

/// One of the two runs of a seed.
struct Part {
    name: &'static str,
    of: fn(&Outcome) -> (&Plan, &[Record]),
    dies: fn(&mut Trial, Crashes),
}

const DRAIN: Part = Part {
    name: "drain:",
    of: |outcome| (&outcome.drain_plan, &outcome.drain),
    dies: |trial, crashes| trial.crashes = crashes,
};

const RESTORE: Part = Part {
    name: "restore:",
    of: |outcome| (&outcome.restore_plan, &outcome.restore),
    dies: |trial, crashes| trial.restore_crashes = crashes,
};

fn die_at(undisturbed: &Outcome, part: &Part, at: usize) {
    for moment in Moment::ALL {
        let mut trial = Trial { seed: undisturbed.seed, ..Trial::default() };
        (part.dies)(&mut trial, Crashes::At(at as u64, moment));
        let died = check(&trial);
        assert!(died.tally.crashes > 0, "at record {at}, {moment:?}");
        let ((_, log), (_, before)) = ((part.of)(&died), (part.of)(undisturbed));
        let same = at.min(log.len());
        assert_eq!(log[..same], before[..same], "till then");
    }
}

/// What runbooks can be made of, by the schema: kinds of `stage`s, or the
/// `template`s that everybody has.
fn built_in(of: &str) -> Vec<String> {
    let schema = drain::runbook::Library::schema();
    let shape = if of == "stage" { "stage" } else { "task" };
    let rules = schema["$defs"][shape]["allOf"].as_array().expect("a rule for each");
    let name = |rule: &serde_json::Value| {
        rule["if"]["properties"][of]["const"].as_str().map(str::to_owned)
    };
    rules.iter().map(|rule| name(rule).unwrap_or_else(|| panic!("{rule}"))).collect()
}

/// Everything that is written in some drain of some seed.
const KINDS: &[&str] = &[
    "opened",
    "start",
    "stages_done",
    "stages_failed",
    "settle",
    "skip",
    "stop",
    "retry",
    "abandon",
    "revert",
    "revert_done",
    "revert_failed",
    "entered",
    "left done",
    "left failed",
    "left late",
    "found",
    "issued",
    "ended done",
    "ended failed",
    "ended refused",
    "drifted",
    "moved_out",
    "astray",
    "held",
    "released",
    "close",
    "stuck",
    "approve",
    "override",
    "pause",
    "fleet",
    "closed",
];

#[test]
fn a_run_that_dies_all_the_time_still_ends() {
    for seed in 0..6 {
        for moment in Moment::ALL {
            let crashes = Crashes::Often(moment);
            let outcome = check(&Trial { seed, is_calm: true, crashes, ..Trial::default() });
            let log = told(&outcome);
            assert_eq!(outcome.drained(), Some(RunOutcome::Completed), "{moment:?} {log}");
            assert!(outcome.tally.crashes > 5, "{log}");
        }
    }
}

#[test]
fn the_same_seed_is_the_same_drain() {
    for seed in 0..3 {
        let trial = Trial { seed, ..Trial::default() };
        assert_eq!(run(&trial), run(&trial));
    }
}

/// What no run comes to is tested by none: every kind of stage, every way out of
/// one that leads elsewhere, every template.
#[test]
fn every_stage_and_every_template_is_in_some_drain() {
    let mut coverage = Coverage::default();
    for seed in 0..400 {
        let outcome = check(&Trial { seed, ..Trial::default() });
        coverage.add(&Coverage::of(&outcome.drain_plan, &outcome.drain));
        coverage.add(&Coverage::of(&outcome.restore_plan, &outcome.restore));
    }
    println!("{coverage:#?}");
    let mut stages: Vec<String> =
        built_in("stage").into_iter().map(|kind| format!("{kind} done")).collect();
    stages.extend(STRAYS.map(str::to_owned));
    let mut templates = built_in("template");
    assert_eq!((stages.len(), templates.len()), (13 + STRAYS.len(), 13));
    templates.extend(["Handover".into(), "Cutover".into()]);
    let missed: Vec<String> = stages
        .into_iter()
        .filter(|stage| !coverage.stages.contains_key(stage))
        .chain(templates.into_iter().filter(|name| !coverage.templates.contains_key(name)))
        .collect();
    assert!(missed.is_empty(), "no run comes to {missed:?}; {coverage:#?}");
}

/// How stages end that do not end well.
const STRAYS: [&str; 7] = [
    "Act late",
    "Approve late",
    "Await late",
    "Barrier late",
    "Check failed",
    "Set failed",
    "Shift failed",
];

/// Checkers that have nothing to see prove nothing.
#[test]
fn everything_happens_in_some_drain() {
    let outcomes: Vec<Outcome> =
        (0..60).map(|seed| run(&Trial { seed, ..Trial::default() })).collect();
    let sum = |of: fn(&Outcome) -> u32| outcomes.iter().map(of).sum::<u32>();
    let tallies = [
        sum(|outcome| outcome.tally.crashes),
        sum(|outcome| outcome.tally.repeated),
        sum(|outcome| outcome.tally.lost),
        sum(|outcome| outcome.tally.drifts),
        sum(|outcome| outcome.tally.lies),
        sum(|outcome| outcome.tally.obeyed),
        sum(|outcome| outcome.tally.refused),
        sum(|outcome| outcome.tally.jumps),
        sum(|outcome| outcome.tally.broken),
        sum(|outcome| outcome.tally.undone),
        sum(|outcome| outcome.tally.outages),
        sum(|outcome| outcome.tally.without_traffic),
    ];
    assert!(tallies.iter().all(|tally| *tally > 3), "{tallies:?}");
    for ended in [
        RunOutcome::Completed,
        RunOutcome::CompletedWithSkips,
        RunOutcome::Held,
        RunOutcome::Reverted,
    ] {
        assert!(outcomes.iter().any(|outcome| outcome.drained() == Some(ended)), "{ended:?}");
    }
}

/// A checker is trusted after something wrong made it fail.
#[test]
fn every_sabotage_is_found_by_the_checker_that_is_there_for_it() {
    let mut wrong = Vec::new();
    for (sabotage, checker) in Sabotage::ALL {
        // Most are found in the first few; an act whose answer is lost is rare, and so is
        // somebody who pauses a task in the seconds that it is fenced.
        let found = (0..3000).find_map(|seed| {
            let crashes = match sabotage {
                Sabotage::EffectFirst => Crashes::Often(Moment::BeforeItIsDurable),
                Sabotage::TakenAsSaid => Crashes::Often(Moment::BeforeItsEffect),
                _ => Crashes::Never,
            };
            let trial = Trial { seed, crashes, sabotage: Some(sabotage), ..Trial::default() };
            let found = run(&trial).violation?;
            // Whoever compares records sees every one that was changed, now and then first.
            // So does who looks at how a run ended, at one that left a fence closed.
            let is_other = match sabotage {
                Sabotage::EmptyReasons => found.checker == "replay",
                Sabotage::ForgottenFences => ["stated", "primaries"].contains(&found.checker),
                // Whose undo is not known, that task does not look for its primary.
                Sabotage::NoUndo => found.checker == "primaries",
                // What may be held is not guarded: its primary is not read once more either.
                Sabotage::HeldFences => found.checker == "primaries",
                _ => false,
            };
            (!is_other).then_some((seed, found))
        });
        println!("{sabotage:?}: {found:?}");
        if found.as_ref().is_none_or(|(_, found)| found.checker != checker) {
            wrong.push((sabotage, checker, found));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
