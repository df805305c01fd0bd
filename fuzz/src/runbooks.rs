//! Runbooks that anybody wrote: every problem has its place and a remedy, and
//! what has none becomes plans that a run can carry out.

use std::collections::BTreeMap;
use std::sync::Arc;

use drain::engine::{Actor, Mode, Run, State};
use drain::runbook::{Library, PROBLEMS_PER_FILE_MAX, Problem};
use drain::{Direction, Next, Plan, Time};

/// Longest of all files together: larger ones find nothing that small ones do
/// not.
const LEN_MAX: usize = 32 * 1024;
const FILES_MAX: usize = 6;

/// Reads files with an octet 0 between them.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if text.len() > LEN_MAX {
        return;
    }
    let texts: Vec<&str> = text.split('\0').take(FILES_MAX).collect();
    let named = |(at, text): (usize, &&str)| (format!("{at}.yaml"), (*text).to_owned());
    let library = Library::new(texts.iter().enumerate().map(named).collect());
    let problems = library.problems();
    problems.iter().for_each(|problem| check_problem(problem, &texts));
    for at in 0..texts.len() {
        let of = problems.iter().filter(|problem| problem.file == format!("{at}.yaml")).count();
        assert!(of <= PROBLEMS_PER_FILE_MAX + 1, "{of} problems of one file");
    }
    let datacenters: Vec<String> = library.evacuations().map(str::to_owned).collect();
    for datacenter in datacenters {
        for direction in [Direction::Drain, Direction::Restore] {
            match library.plan(&datacenter, direction, &BTreeMap::new(), &BTreeMap::new()) {
                Ok(plan) => check_plan(&plan),
                Err(problems) => {
                    assert!(!problems.is_empty(), "no plan, and nobody knows why");
                    problems.iter().for_each(|problem| check_problem(problem, &texts));
                }
            }
        }
    }
}

fn check_problem(problem: &Problem, texts: &[&str]) {
    assert!(!problem.what.is_empty() && !problem.remedy.is_empty(), "{problem:?}");
    let at = problem.file.strip_suffix(".yaml").and_then(|at| at.parse::<usize>().ok());
    let text = at.and_then(|at| texts.get(at)).unwrap_or_else(|| panic!("{problem:?}"));
    // YAML ends lines with a carriage return alone, too.
    let lines = text.split(['\n', '\r']).count() as u32 + 1;
    assert!(problem.line <= lines, "{problem:?} of {lines} lines");
}

fn check_plan(plan: &Plan) {
    for (at, task) in plan.tasks.iter().enumerate() {
        assert!(task.parents().all(|parent| parent.index() < at), "{} waits", task.name);
        assert!(task.conditions().all(|condition| condition.index() < plan.conditions.len()));
        let leads = |next: Next| match next {
            Next::Stage(stage) => stage.index() < task.stages.len(),
            Next::Exit(_) => true,
        };
        let mut nexts = task.stages.iter().flat_map(|own| [own.done, own.failed, own.late]);
        assert!(!task.stages.is_empty() && nexts.all(leads), "{} leads nowhere", task.name);
    }
    let json = serde_json::to_string(plan).expect("plans are JSON");
    assert_eq!(&serde_json::from_str::<Plan>(&json).expect("a plan"), plan);
    let foresight = plan.foresee(&BTreeMap::new());
    let _ = (plan.to_dot(&foresight), plan.to_svg(&foresight));
    let plan = Arc::new(plan.clone());
    let (run, records) =
        Run::open(plan.clone(), Actor::automatic("a fuzzer"), "", Mode::Drill, Time(0));
    let mut replayed = State::new(&plan);
    for record in &records {
        replayed.apply(&plan, record).expect("records follow from each other");
    }
    assert_eq!(&replayed, run.state());
}
