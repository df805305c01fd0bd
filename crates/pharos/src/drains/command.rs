//! The verbs of drains on the command line.

use std::io::{self, Write};
use std::path::PathBuf;

use drain::Time;
use drain::date::date_in_table;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::control::{Socket, escaped};
use crate::output::{self, Output, tame_value};

use super::watch;

#[derive(Debug, clap::Subcommand)]
pub enum DrainCommand {
    /// Move the traffic of a datacenter elsewhere
    Drain(Begin),
    /// Bring the traffic of a datacenter back
    Restore {
        /// A knob or service that an earlier drain moved, that the runbooks do not
        /// know any more, and that nobody expects back; may be given several times
        #[arg(long, value_name = "NAME")]
        give_up: Vec<String>,
        #[command(flatten)]
        begin: Begin,
    },
    /// Show what a drain or a restore would do now: order, times, weights,
    /// capacity
    Plan {
        #[arg(value_name = "DATACENTER")]
        datacenter: String,
        /// Of the way back
        #[arg(long)]
        restore: bool,
        #[command(flatten)]
        socket: Socket,
    },
    /// Show how a run stands
    Status {
        /// The number of a run; the newest if none is given
        #[arg(value_name = "RUN")]
        run: Option<u64>,
        /// The same, as other verbs take it
        #[arg(long = "run", value_name = "RUN", conflicts_with = "run")]
        of: Option<u64>,
        /// Keep showing it until it is over
        #[arg(long)]
        watch: bool,
        #[command(flatten)]
        socket: Socket,
    },
    /// Take no further step
    Pause(OfAny),
    /// Go on after a pause
    Resume(OfAny),
    /// Take larger steps and shorter waits, as far as health allows
    Accelerate(OfAny),
    /// Go on as if a task were done
    Skip(OfTask),
    /// End a task where it is
    Stop(OfTask),
    /// Try a task again that failed or was stopped
    Retry(OfTask),
    /// Say yes to a task that asks
    Approve(OfTask),
    /// Go on as if a condition held
    Override {
        #[arg(value_name = "CONDITION")]
        condition: String,
        /// For this task alone
        #[arg(long, value_name = "TASK")]
        task: Option<String>,
        #[command(flatten)]
        said: Said,
    },
    /// Switch between a drill, which respects all dependencies, and a
    /// disaster, which does not wait for weak ones
    Mode {
        #[arg(value_name = "MODE", value_parser = ["drill", "disaster"])]
        mode: String,
        #[command(flatten)]
        said: Said,
    },
    /// Set the limits of the evacuation aside; takes two people: two uids
    Waive {
        #[command(flatten)]
        said: Said,
    },
    /// End a run: hold everything where it is, or put it back in steps
    Abort {
        /// Put everything back where it was
        #[arg(long)]
        revert: bool,
        #[command(flatten)]
        said: Said,
    },
    /// List runs, the newest first
    History {
        #[arg(long, default_value_t = 20, value_name = "N",
              value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        #[arg(long, value_name = "NAME")]
        datacenter: Option<String>,
        #[command(flatten)]
        socket: Socket,
    },
    /// Write what there is to say about a run: an HTML page, or JSON
    Report {
        #[arg(value_name = "RUN")]
        run: u64,
        /// Write the page here
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
        #[command(flatten)]
        socket: Socket,
    },
    /// The log of what people did
    #[command(subcommand)]
    Audit(AuditCommand),
}

#[derive(Debug, clap::Subcommand)]
pub enum AuditCommand {
    /// List entries, the oldest first
    List {
        /// Start with this entry
        #[arg(long, default_value_t = 1, value_name = "N")]
        from: u64,
        /// Entries at the most
        #[arg(long, default_value_t = 100, value_name = "N",
              value_parser = clap::value_parser!(u32).range(1..=999))]
        limit: u32,
        #[command(flatten)]
        socket: Socket,
    },
    /// Prove that no entry was changed: chain, signatures, and heads that are
    /// known from elsewhere
    Verify(Verify),
}

#[derive(Debug, clap::Args)]
pub struct Verify {
    /// The head that was printed earlier: prove that the log goes on from
    /// there
    #[arg(long, value_name = "N:DIGEST")]
    pub head: Option<String>,
    /// What `audit_sink` wrote: prove that every head in it is in the log
    #[arg(long, value_name = "FILE")]
    pub sink: Option<PathBuf>,
    /// Read this store, and ask no server
    #[arg(long, value_name = "FILE", requires = "key")]
    pub store: Option<PathBuf>,
    /// The public key of whoever signed the log; may be given several times
    #[arg(long, value_name = "FILE", requires = "store")]
    pub key: Vec<PathBuf>,
    #[command(flatten)]
    pub socket: Socket,
}

#[derive(Debug, clap::Args)]
pub struct Begin {
    #[arg(value_name = "DATACENTER")]
    datacenter: String,
    /// Do not wait for weak dependencies: this is no drill
    #[arg(long)]
    disaster: bool,
    /// Go on although the rest cannot carry the load below its lines
    #[arg(long)]
    overload: bool,
    /// Show how it goes until it is over
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    who: Who,
    #[command(flatten)]
    socket: Socket,
}

#[derive(Debug, clap::Args)]
pub struct Who {
    /// Why, for the audit log
    #[arg(long, default_value = "", value_name = "TEXT")]
    reason: String,
    /// A comment, recorded beside the identity, which is the user that runs
    /// this command; default: sudo's user, if there is one
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// What is said to a run.
#[derive(Debug, clap::Args)]
pub struct Said {
    /// The number of a run; the one that goes on if none is given
    #[arg(long, value_name = "RUN")]
    run: Option<u64>,
    #[command(flatten)]
    who: Who,
    #[command(flatten)]
    socket: Socket,
}

#[derive(Debug, clap::Args)]
pub struct OfTask {
    #[arg(value_name = "TASK")]
    task: String,
    #[command(flatten)]
    said: Said,
}

#[derive(Debug, clap::Args)]
pub struct OfAny {
    /// A task; the whole run if none is given
    #[arg(value_name = "TASK")]
    task: Option<String>,
    #[command(flatten)]
    said: Said,
}

pub fn run(command: DrainCommand) -> Result<u8, String> {
    let is_json = command.socket().is_json();
    obey(command).or_else(|why| output::failed(is_json, why))
}

impl DrainCommand {
    fn socket(&self) -> &Socket {
        match self {
            DrainCommand::Drain(begin) | DrainCommand::Restore { begin, .. } => &begin.socket,
            DrainCommand::Pause(of) | DrainCommand::Resume(of) | DrainCommand::Accelerate(of) => {
                &of.said.socket
            }
            DrainCommand::Skip(of)
            | DrainCommand::Stop(of)
            | DrainCommand::Retry(of)
            | DrainCommand::Approve(of) => &of.said.socket,
            DrainCommand::Override { said, .. }
            | DrainCommand::Mode { said, .. }
            | DrainCommand::Waive { said }
            | DrainCommand::Abort { said, .. } => &said.socket,
            DrainCommand::Plan { socket, .. }
            | DrainCommand::Status { socket, .. }
            | DrainCommand::History { socket, .. }
            | DrainCommand::Report { socket, .. }
            | DrainCommand::Audit(
                AuditCommand::List { socket, .. } | AuditCommand::Verify(Verify { socket, .. }),
            ) => socket,
        }
    }
}

fn obey(command: DrainCommand) -> Result<u8, String> {
    match command {
        DrainCommand::Drain(begin) => begin.begin("drain", &[]),
        DrainCommand::Restore { give_up, begin } => begin.begin("restore", &give_up),
        DrainCommand::Plan { datacenter, restore, socket } => {
            let direction = if restore { "restore" } else { "drain" };
            let planned = socket.get(&format!("/v1/plans/{direction}/{}", escaped(&datacenter)))?;
            let has_problems = planned["problems"].as_array().is_some_and(|own| !own.is_empty());
            let is_good = planned["foresight"]["fits"] == true && !has_problems;
            socket.print(&planned, show_plan)?;
            Ok(if is_good { 0 } else { crate::EXIT_FAILED })
        }
        DrainCommand::Status { run, of, watch, socket } => {
            let run = run.or(of).map_or_else(|| newest(&socket, false), Ok)?;
            if watch { watch::follow(&socket, run, &[]) } else { watch::show(&socket, run) }
        }
        DrainCommand::Pause(of) => of.say("pause"),
        DrainCommand::Resume(of) => of.say("resume"),
        DrainCommand::Accelerate(of) => of.say("accelerate"),
        DrainCommand::Skip(of) => of.say("skip"),
        DrainCommand::Stop(of) => of.say("stop"),
        DrainCommand::Retry(of) => of.say("retry"),
        DrainCommand::Approve(of) => of.say("approve"),
        DrainCommand::Override { condition, task, said } => {
            said.say(json!({ "verb": "override", "condition": condition, "task": task }))
        }
        DrainCommand::Mode { mode, said } => said.say(json!({ "verb": "mode", "mode": mode })),
        DrainCommand::Waive { said } => said.say(json!({ "verb": "waive" })),
        DrainCommand::Abort { revert, said } => {
            let how = if revert { "revert" } else { "hold" };
            said.say(json!({ "verb": "abort", "how": how }))
        }
        DrainCommand::History { limit, datacenter, socket } => {
            let of =
                datacenter.map_or(String::new(), |name| format!("&datacenter={}", escaped(&name)));
            let runs = socket.get(&format!("/v1/drains?limit={limit}{of}"))?;
            socket.print(&runs, show_runs).map(|()| 0)
        }
        DrainCommand::Report { run, html, socket } => write_report(&socket, run, html),
        DrainCommand::Audit(AuditCommand::List { from, limit, socket }) => {
            let entries = socket.get(&format!("/v1/audit?from={from}&limit={limit}"))?;
            socket.print(&entries, show_audit).map(|()| 0)
        }
        DrainCommand::Audit(AuditCommand::Verify(verify)) => verify.verify(),
    }
}

/// The run that a word without a number is about.
fn newest(socket: &Socket, must_be_open: bool) -> Result<u64, String> {
    let which = if must_be_open { "&open=true" } else { "" };
    let runs = socket.get(&format!("/v1/drains?limit=2{which}"))?;
    let runs = runs["runs"].as_array().cloned().unwrap_or_default();
    match &runs[..] {
        [] if must_be_open => Err("no run goes on; `pharos history` lists those before".into()),
        [] => Err("there was no run yet; `pharos drain DATACENTER` begins one".into()),
        [_, _] if must_be_open => {
            Err("several runs go on; say which with --run, `pharos history` lists them".into())
        }
        [run, ..] => run["run"].as_u64().ok_or_else(|| "the server says nothing".into()),
    }
}

impl Who {
    /// What is recorded beside the identity. The server learns who this is from
    /// the kernel.
    fn comment(&self) -> Option<String> {
        let sudo = || std::env::var("SUDO_USER").ok().filter(|name| !name.is_empty());
        self.by.clone().or_else(sudo)
    }
}

impl Begin {
    fn begin(self, direction: &str, give_up: &[String]) -> Result<u8, String> {
        let mode = if self.disaster { "disaster" } else { "drill" };
        let wanted = json!({
            "datacenter": self.datacenter, "direction": direction, "mode": mode,
            "by": self.who.comment(), "reason": self.who.reason, "overload": self.overload,
            "give_up": give_up,
        });
        let begun = self.socket.post("/v1/drains", &wanted.to_string())?;
        if self.watch
            && let Some(run) = begun["run"].as_u64()
        {
            let begun = tame_value(&begun);
            let warnings: Vec<&str> =
                begun["warnings"].as_array().into_iter().flatten().map(text).collect();
            return watch::follow(&self.socket, run, &warnings);
        }
        self.socket.print(&begun, |out, begun| {
            for warning in begun["warnings"].as_array().into_iter().flatten() {
                writeln!(out, "warning: {}", text(warning))?;
            }
            writeln!(out, "run {}; `pharos status --watch` shows how it goes", begun["run"])
        })?;
        Ok(0)
    }
}

impl OfAny {
    fn say(self, verb: &str) -> Result<u8, String> {
        self.said.say(json!({ "verb": verb, "task": self.task }))
    }
}

impl OfTask {
    fn say(self, verb: &str) -> Result<u8, String> {
        self.said.say(json!({ "verb": verb, "task": self.task }))
    }
}

impl Said {
    fn say(self, mut what: Value) -> Result<u8, String> {
        let run = self.run.map_or_else(|| newest(&self.socket, true), Ok)?;
        what["by"] = self.who.comment().into();
        what["reason"] = self.who.reason.clone().into();
        let said = self.socket.post(&format!("/v1/drains/{run}/say"), &what.to_string())?;
        self.socket.print(&said, |out, _| writeln!(out, "said, and on the disk")).map(|()| 0)
    }
}

fn write_report(socket: &Socket, run: u64, html: Option<PathBuf>) -> Result<u8, String> {
    let Some(path) = html else {
        let report = socket.get(&format!("/v1/drains/{run}/report"))?;
        socket.print(&report, |out, report| writeln!(out, "{report:#}"))?;
        return Ok(0);
    };
    let page = socket.get_text(&format!("/v1/drains/{run}/report.html"))?;
    std::fs::write(&path, page)
        .map_err(|error| format!("{}: cannot be written: {error}", path.display()))?;
    let mut out = Output::default();
    writeln!(out, "{}", path.display()).map_err(output::explain)?;
    Ok(0)
}

fn show_plan(out: &mut Output, planned: &Value) -> io::Result<()> {
    let plan = serde_json::from_value(planned["plan"].clone());
    let foresight = serde_json::from_value(planned["foresight"].clone());
    match (plan, foresight) {
        (Ok(plan), Ok(foresight)) => super::write_plan(out, &plan, &foresight)?,
        _ => writeln!(out, "{planned:#}")?,
    }
    for (kind, found) in [("error", &planned["problems"]), ("warning", &planned["warnings"])] {
        for what in found.as_array().into_iter().flatten() {
            writeln!(out, "{kind}: {}", text(what))?;
        }
    }
    Ok(())
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

fn show_runs(out: &mut Output, runs: &Value) -> io::Result<()> {
    let listed = runs["runs"].as_array().map_or(&[][..], |runs| &runs[..]);
    if listed.is_empty() {
        return writeln!(out, "no runs; `pharos drain DATACENTER` begins one");
    }
    let zone = TimeZone::system();
    for run in listed {
        let took = run["ended"].as_u64().zip(run["created"].as_u64());
        let took = took.map(|(ended, created)| {
            drain::Millis(ended.saturating_sub(created) / 1000 * 1000).to_string()
        });
        writeln!(
            out,
            "{:>5}  {}  {:<8} {:<16} {:<22} {:<12} {:<20} {}",
            number(&run["run"]),
            date_in_table(Time(number(&run["created"])), &zone),
            text(&run["direction"]),
            text(&run["datacenter"]),
            run["outcome"].as_str().unwrap_or("goes on").replace('_', " "),
            took.as_deref().unwrap_or("-"),
            text(&run["by"]),
            text(&run["reason"])
        )?;
    }
    Ok(())
}

fn show_audit(out: &mut Output, entries: &Value) -> io::Result<()> {
    let zone = TimeZone::system();
    for entry in entries["entries"].as_array().into_iter().flatten() {
        writeln!(
            out,
            "{:>5}  {}  run {:<5} {:<20} {:<32} {}{}",
            number(&entry["seq"]),
            date_in_table(Time(number(&entry["at"])), &zone),
            number(&entry["run"]),
            text(&entry["by"]),
            text(&entry["action"]),
            text(&entry["reason"]),
            entry["comment"].as_str().map_or(String::new(), |typed| format!("  [by: {typed}]"))
        )?;
    }
    match entries["next"].as_u64() {
        Some(next) => writeln!(out, "… there are more; go on with --from {next}"),
        None => Ok(()),
    }
}
