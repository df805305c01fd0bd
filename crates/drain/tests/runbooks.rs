//! Runbooks as files: in `broken` every problem that each has is written at its
//! top, as `# expect: LINE:COLUMN text`, and there must be no other; in `good`
//! and in the examples there is none.

use std::fs;
use std::path::{Path, PathBuf};

use drain::runbook::{Library, Problem};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of runbooks");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

/// A file by itself, or the files of a folder together.
fn files_of(case: &Path) -> Vec<(String, String)> {
    let paths = if case.is_dir() { sorted(case) } else { vec![case.to_owned()] };
    let read = |path: PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, fs::read_to_string(&path).expect("a text"))
    };
    paths.into_iter().map(read).collect()
}

/// `(file, line, column, text)` of every problem that the files announce.
fn expected(files: &[(String, String)]) -> Vec<(String, u32, u32, String)> {
    let mut expected = Vec::new();
    for (name, text) in files {
        for line in text.lines().filter_map(|line| line.strip_prefix("# expect: ")) {
            let (place, what) = line.split_once(' ').expect("a place and a text");
            let (line, column) = place.split_once(':').expect("a line and a column");
            let number = |text: &str| text.parse().expect("a number");
            expected.push((name.clone(), number(line), number(column), what.to_owned()));
        }
    }
    expected
}

fn said(problem: &Problem) -> String {
    format!("{}: {}; {}", problem.severity, problem.what, problem.remedy)
}

#[test]
fn broken_runbooks_have_the_problems_they_announce_and_no_others() {
    let cases = sorted(&folder("tests/broken"));
    assert!(cases.len() >= 45, "only {} broken runbooks", cases.len());
    let mut wrong = String::new();
    for case in &cases {
        let files = files_of(case);
        let mut missing = expected(&files);
        let library = Library::new(files);
        assert!(!library.problems().is_empty(), "{}: nothing is wrong", case.display());
        let mut others = Vec::new();
        for problem in library.problems() {
            let at = missing.iter().position(|(file, line, column, text)| {
                (file, *line, *column) == (&problem.file, problem.line, problem.column)
                    && said(problem).contains(text.as_str())
            });
            match at {
                Some(at) => drop(missing.remove(at)),
                None => others.push(problem),
            }
            assert!(problem.line > 0 && problem.column > 0, "{problem}: no place");
            assert!(!problem.remedy.is_empty(), "{problem}: no remedy");
        }
        for problem in others {
            wrong += &format!("{}: not announced: {problem}\n", case.display());
        }
        for (file, line, column, text) in missing {
            wrong += &format!("{}: not found: {file}:{line}:{column} {text}\n", case.display());
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// Every folder of runbooks in `samples`.
fn samples() -> Vec<PathBuf> {
    let samples = sorted(&folder("../../samples")).into_iter().map(|path| path.join("runbooks"));
    let samples: Vec<PathBuf> = samples.filter(|path| path.is_dir()).collect();
    assert!(!samples.is_empty(), "no samples");
    samples
}

fn good() -> Vec<PathBuf> {
    let mut cases = sorted(&folder("tests/good"));
    cases.extend(sorted(&folder("../../runbooks")).into_iter().filter(|path| path.is_dir()));
    cases.extend(samples());
    cases.extend(sorted(&folder("tests/beside")));
    cases
}

#[test]
fn good_runbooks_have_no_problem_at_all() {
    for case in good() {
        let library = Library::new(files_of(&case));
        let problems: String =
            library.problems().iter().map(|problem| format!("{problem}\n")).collect();
        assert!(problems.is_empty(), "{}:\n{problems}", case.display());
    }
}

/// A sound library that has nothing to do with any broken one.
struct Neighbour {
    name: String,
    files: Vec<(String, String)>,
    /// Whether it is read after the broken one.
    is_later: bool,
}

/// Each has something that is hard to decide: `$dc` in the name of a driver,
/// templates of users, waits that may be left out, loads that are measured,
/// several evacuations. Then all of them together.
fn neighbours() -> Vec<Neighbour> {
    let mut all = Vec::new();
    let mut neighbours = Vec::new();
    for case in sorted(&folder("tests/beside")) {
        let name = case.file_name().expect("a name").to_string_lossy().into_owned();
        let named = |(file, text): (String, String)| (format!("beside/{name}/{file}"), text);
        let files: Vec<_> = files_of(&case).into_iter().map(named).collect();
        all.extend(files.clone());
        neighbours.push(Neighbour { name, files, is_later: false });
    }
    assert!(neighbours.len() >= 5, "only {} neighbours", neighbours.len());
    for is_later in [false, true] {
        neighbours.push(Neighbour { name: "all".into(), files: all.clone(), is_later });
    }
    neighbours
}

/// Everything about a problem but its remedy, which may name what is near.
fn noted(problem: &Problem) -> (String, u32, u32, String) {
    let what = format!("{}: {}", problem.severity, problem.what);
    (problem.file.clone(), problem.line, problem.column, what)
}

/// No rule may be left out for all files because of what one of them has: the
/// problems of a broken runbook are found beside whatever else is sound.
///
/// Seen to find each of these, most of which no other test does: `check_undone`
/// left out where a driver has `$dc` in its name (`driver-per-datacenter` hides
/// `undone-to-the-same`), `graph` where a wait is weak, `conditions` where a load
/// is measured, `templates` where a user has one, and `evacuations` where there
/// are several.
#[test]
fn a_rule_is_not_left_out_because_of_what_other_files_have() {
    let neighbours = neighbours();
    let mut missed = String::new();
    for case in sorted(&folder("tests/broken")) {
        let files = files_of(&case);
        let alone: Vec<_> = Library::new(files.clone()).problems().iter().map(noted).collect();
        for Neighbour { name, files: others, is_later } in &neighbours {
            let together = match is_later {
                true => [files.clone(), others.clone()].concat(),
                false => [others.clone(), files.clone()].concat(),
            };
            let library = Library::new(together);
            let found: Vec<_> = library.problems().iter().map(noted).collect();
            for problem in alone.iter().filter(|problem| !found.contains(problem)) {
                missed += &format!("{} beside {name}: {problem:?}\n", case.display());
            }
        }
    }
    assert!(missed.is_empty(), "\n{missed}");
}

#[test]
fn the_built_in_templates_have_no_problem() {
    assert_eq!(Library::new(Vec::new()).problems(), []);
}

#[test]
fn what_the_check_accepts_the_schema_accepts() {
    let schema = Library::schema();
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    for case in good() {
        for (name, text) in files_of(&case) {
            let file: serde_json::Value = serde_saphyr::from_str(&text).expect("YAML");
            let faults: String =
                validator.iter_errors(&file).map(|fault| format!("{fault}\n")).collect();
            assert!(faults.is_empty(), "{}/{name}: {faults}", case.display());
        }
    }
}

/// The other way round: what the schema can see is wrong in one file by itself,
/// it says as the check does.
#[test]
fn what_the_schema_refuses_the_check_refuses() {
    let validator = jsonschema::validator_for(&Library::schema()).expect("a schema");
    let mut refused = 0;
    for case in sorted(&folder("tests/broken")) {
        for (name, text) in files_of(&case) {
            let Ok(file) = serde_saphyr::from_str::<serde_json::Value>(&text) else { continue };
            let sound = Library::new(vec![(name.clone(), text)]).is_sound();
            let valid = validator.is_valid(&file);
            assert!(valid || !sound, "{}/{name}: only the schema refuses it", case.display());
            refused += usize::from(!valid);
        }
    }
    assert!(refused >= 20, "the schema refuses only {refused} of the broken files");
}

/// The reference names every key, every template and every stage.
#[test]
fn the_reference_is_complete() {
    let reference = fs::read_to_string(folder("../../docs/runbooks.md")).expect("the reference");
    let mut names = Vec::new();
    keys(&Library::schema(), &mut names);
    assert!(names.len() > 80, "{names:?}");
    for name in names {
        assert!(reference.contains(&format!("`{name}`")), "docs/runbooks.md lacks `{name}`");
    }
}

/// Names of properties, and constants: formats, templates, stages.
fn keys(schema: &serde_json::Value, names: &mut Vec<String>) {
    match schema {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                match (key.as_str(), value) {
                    ("properties", serde_json::Value::Object(properties)) => {
                        names.extend(properties.keys().filter(|key| *key != "pharos").cloned());
                    }
                    ("const", serde_json::Value::String(name)) if !name.ends_with("/v1") => {
                        names.push(name.clone());
                    }
                    _ => {}
                }
                keys(value, names);
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| keys(item, names)),
        _ => {}
    }
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    fn texts() -> Vec<String> {
        good().iter().flat_map(|case| files_of(case)).map(|(_, text)| text).collect()
    }

    /// Reads it, and does with it whatever can be done.
    fn exercise(texts: Vec<String>) {
        let files = texts.into_iter().enumerate().map(|(at, text)| (format!("{at}.yaml"), text));
        let library = Library::new(files.collect());
        assert!(library.problems().iter().all(|problem| !problem.remedy.is_empty()));
        let names: Vec<String> = library.evacuations().map(str::to_owned).collect();
        for name in names {
            for direction in [drain::Direction::Drain, drain::Direction::Restore] {
                let plan = library.plan(&name, direction, &Default::default(), &Default::default());
                match plan {
                    Ok(plan) => drop(plan.to_svg(&plan.foresee(&Default::default()))),
                    Err(problems) => assert!(!problems.is_empty()),
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC*", kind in 0..3usize) {
            let format = ["service", "evacuation", "template"][kind];
            exercise(vec![text.clone()]);
            exercise(vec![format!("pharos: {format}/v1\n{text}")]);
        }

        /// A good file with a piece cut out, doubled, or replaced.
        #[test]
        fn a_good_file_that_was_changed_is_read_without_a_panic(
            which in any::<prop::sample::Index>(),
            from in any::<prop::sample::Index>(),
            length in 0..40usize,
            put in prop::sample::select(vec![
                "", "$", "{", "]", ":", "- ", "\n", "~", "0", "*a", "&a ", "exit done", "original",
                "after: [shift]", "\u{1F6A2}", "'", "\"", "%", "1h", "no_data",
            ]),
            doubled in any::<bool>(),
        ) {
            let mut texts = texts();
            let text = which.get(&texts).clone();
            let at = texts.iter().position(|other| *other == text).unwrap_or(0);
            let letters: Vec<char> = text.chars().collect();
            let from = from.index(letters.len());
            let to = (from + length).min(letters.len());
            let mut changed: String = letters[..from].iter().collect();
            changed += put;
            let rest = if doubled { from } else { to };
            changed.extend(&letters[rest..]);
            texts[at] = changed;
            exercise(texts);
        }
    }
}
