//! Real clients against a running Pharos: what they accept, users' clients accept.

mod checks;
mod sample;
mod zonemaster;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::peers::{Program, Server};
use crate::scratch::Scratch;

/// One client run: what is called, and what its output must and must not hold.
#[derive(Debug)]
pub struct Check {
    pub name: String,
    pub line: Vec<String>,
    pub has: Vec<&'static str>,
    pub lacks: Vec<&'static str>,
}

#[derive(Debug)]
pub struct Outcome {
    pub name: String,
    /// Why it failed, with what the client said.
    pub failure: Option<String>,
    /// Worth showing although it passed.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct Options {
    pub subject: Program,
    pub keep: Option<PathBuf>,
    /// Zonemaster needs a network namespace and takes half a minute.
    pub zonemaster: bool,
}

/// Programs the checks call, with the Debian package of each.
const CLIENTS: [(&str, &str); 6] = [
    ("dig", "bind9-dnsutils"),
    ("delv", "bind9-dnsutils"),
    ("kdig", "knot-dnsutils"),
    ("drill", "ldnsutils"),
    ("ldns-verify-zone", "ldnsutils"),
    ("zonemaster-cli", "zonemaster-cli"),
];

/// What to type for each client that is not installed.
pub fn missing() -> Vec<String> {
    let is_missing = |program: &str| {
        let found = Command::new("which").arg(program).stdout(Stdio::null()).status();
        !found.is_ok_and(|status| status.success())
    };
    CLIENTS
        .iter()
        .filter(|(program, _)| is_missing(program))
        .map(|(program, package)| format!("{program} is missing: apt-get install {package}"))
        .collect()
}

pub fn run(options: &Options) -> Result<Vec<Outcome>> {
    let scratch = Scratch::new(options.keep.as_deref())?;
    let mut outcomes = simple_clients(&options.subject, &scratch.dir)?;
    if options.zonemaster {
        outcomes.push(zonemaster::run(&options.subject, &scratch.dir)?);
    }
    Ok(outcomes)
}

fn simple_clients(subject: &Program, dir: &Path) -> Result<Vec<Outcome>> {
    let zones = sample::write(dir)?;
    let server = Server::start(subject, &dir.join("clients"), &zones)?;
    let anchors = sample::write_anchors(dir, &zones)?;
    let port = server.address.port();
    let mut outcomes = Vec::new();
    for check in checks::all(port, &anchors, &zones) {
        outcomes.push(check.run()?);
    }
    Ok(outcomes)
}

impl Check {
    fn run(self) -> Result<Outcome> {
        let done = Command::new(&self.line[0])
            .args(&self.line[1..])
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("run {}", self.line[0]))?;
        let mut said = String::from_utf8_lossy(&done.stdout).into_owned();
        said.push_str(&String::from_utf8_lossy(&done.stderr));
        let absent = self.has.iter().filter(|text| !said.contains(**text));
        let present = self.lacks.iter().filter(|text| said.contains(**text));
        let mut problems: Vec<String> = absent.map(|text| format!("lacks `{text}`")).collect();
        problems.extend(present.map(|text| format!("has `{text}`")));
        if !done.status.success() {
            problems.push(format!("ended with {}", done.status));
        }
        let failure = (!problems.is_empty())
            .then(|| format!("{}\n$ {}\n{said}", problems.join(", "), self.line.join(" ")));
        Ok(Outcome { name: self.name, failure, notes: Vec::new() })
    }
}
