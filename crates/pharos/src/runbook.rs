//! `pharos runbook`: what runbooks say, without a server.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use drain::runbook::{Library, Problem, Severity};
use drain::{Direction, Plan, StageKind, Value};
use serde_json::json;

use crate::drains::read_files;
use crate::output::{self, Output};

#[derive(Debug, clap::Subcommand)]
pub enum RunbookCommand {
    /// Check runbooks: all problems of all files
    Check {
        /// Files, or folders of them
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of runbooks, for editors
    Schema,
    /// Show what a drain or a restore would do, in which order, and how long
    /// it would take
    Plan {
        #[command(flatten)]
        of: Of,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Draw the tasks of a drain or a restore and what they wait for
    Graph {
        #[command(flatten)]
        of: Of,
        /// Print DOT instead of SVG
        #[arg(long)]
        dot: bool,
    },
}

/// Which plan.
#[derive(Debug, clap::Args)]
pub struct Of {
    #[arg(value_name = "DATACENTER")]
    datacenter: String,
    /// Files, or folders of them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Of the way back, as if every share had stood at all of it before the
    /// drain; a server knows where it did
    #[arg(long)]
    restore: bool,
}

pub fn run(command: RunbookCommand) -> Result<u8, String> {
    match command {
        RunbookCommand::Check { files, json } => {
            check(&files, json).or_else(|why| output::failed(json, why))
        }
        RunbookCommand::Schema => {
            let schema = Library::schema();
            let mut out = Output::default();
            writeln!(out, "{schema:#}").map_err(output::explain)?;
            Ok(0)
        }
        RunbookCommand::Plan { of, json } => {
            show_plan(&of, json).or_else(|why| output::failed(json, why))
        }
        RunbookCommand::Graph { of, dot } => draw(&of, dot),
    }
}

fn check(files: &[PathBuf], json: bool) -> Result<u8, String> {
    let files = read_files(files)?;
    let count = files.len();
    let library = Library::new(files);
    let problems = library.problems();
    let errors = problems.iter().filter(|own| own.severity == Severity::Error).count();
    let mut out = Output::default();
    let written = if json {
        let evacuations: Vec<&str> = library.evacuations().collect();
        let said = json!({
            "files": count, "errors": errors, "problems": problems, "evacuations": evacuations,
        });
        writeln!(out, "{}", output::json(&said))
    } else {
        write_check(&mut out, &library, count, errors)
    };
    written.map_err(output::explain)?;
    Ok(if errors > 0 { crate::EXIT_FAILED } else { 0 })
}

fn write_check(
    out: &mut Output,
    library: &Library,
    files: usize,
    errors: usize,
) -> std::io::Result<()> {
    write!(out, "{}", lines(library.problems()))?;
    if errors > 0 {
        return writeln!(out, "{files} files, {errors} errors");
    }
    let evacuations: Vec<&str> = library.evacuations().collect();
    let evacuations = match &evacuations[..] {
        [] => "no evacuation among them".to_owned(),
        names => format!("evacuations of {}", names.join(", ")),
    };
    writeln!(out, "{files} files are good; {evacuations}")
}

/// One line for each problem.
pub fn lines(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

impl Of {
    fn plan(&self) -> Result<Plan, String> {
        let library = Library::new(read_files(&self.files)?);
        // Without a server nothing is known of earlier runs.
        let plan = |direction, originals: &BTreeMap<String, Value>| {
            let plan = library.plan(&self.datacenter, direction, &BTreeMap::new(), originals);
            plan.map_err(|problems| lines(&problems))
        };
        let drain = plan(Direction::Drain, &BTreeMap::new())?;
        if self.restore { plan(Direction::Restore, &assumed(&drain)) } else { Ok(drain) }
    }
}

/// Where knobs may have stood before a drain that nobody has seen: shares at
/// all they have, and what is a word at whatever it was.
fn assumed(drain: &Plan) -> BTreeMap<String, Value> {
    let mut positions: BTreeMap<String, Value> =
        drain.knobs.iter().map(|knob| (knob.to_string(), Value::Number(1.0))).collect();
    for stage in drain.tasks.iter().flat_map(|task| &task.stages) {
        if let StageKind::Set { knob, to, .. } = &stage.kind
            && to.value().number().is_none()
        {
            positions.insert(drain.knob(*knob).to_string(), Value::Text("as it was".into()));
        }
    }
    positions
}

fn show_plan(of: &Of, json: bool) -> Result<u8, String> {
    let plan = of.plan()?;
    let foresight = plan.foresee(&BTreeMap::new());
    let mut out = Output::default();
    let written = match json {
        true => {
            let planned = json!({ "plan": plan, "foresight": foresight });
            writeln!(out, "{}", output::json(&planned))
        }
        false => crate::drains::write_plan(&mut out, &plan, &foresight),
    };
    written.map_err(output::explain)?;
    Ok(if foresight.fits { 0 } else { crate::EXIT_FAILED })
}

fn draw(of: &Of, dot: bool) -> Result<u8, String> {
    let plan = of.plan()?;
    let foresight = plan.foresee(&BTreeMap::new());
    let drawn = if dot { plan.to_dot(&foresight) } else { plan.to_svg(&foresight) };
    let mut out = Output::default();
    write!(out, "{drawn}").map_err(output::explain)?;
    Ok(0)
}
