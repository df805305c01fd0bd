//! The machine and the versions that a result belongs to.

use std::fs;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::measure::parse_kib;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub kernel: String,
    pub memory_bytes: u64,
}

impl Machine {
    pub fn describe() -> Machine {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            cpu: cpu_model(&cpus).unwrap_or("unknown").to_owned(),
            // Not available_parallelism: this process is bound to one core.
            cores: cpus.lines().filter(|line| line.starts_with("processor")).count(),
            kernel: kernel.trim().to_owned(),
            memory_bytes: parse_kib(&memory, "MemTotal:").unwrap_or(0),
        }
    }
}

fn cpu_model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

/// The first line that `program` prints about its version.
pub fn version_of(program: &str, argument: &str) -> String {
    let Ok(output) = Command::new(program).arg(argument).output() else {
        return "unknown".to_owned();
    };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().next().unwrap_or("unknown").trim().to_owned()
}

/// Now, in UTC, by the second.
pub fn date() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_model_is_found() {
        let text = "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t: a b\n";
        assert_eq!(cpu_model(text), Some("AMD EPYC"));
        assert_eq!(cpu_model(""), None);
    }
}
