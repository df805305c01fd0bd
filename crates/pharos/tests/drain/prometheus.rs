//! A real Prometheus, from Debian's package, that can be stopped and started.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::common::{PATIENCE, eventually, http};

pub const PROGRAM: &str = "/usr/bin/prometheus";

pub struct Prometheus {
    pub address: SocketAddr,
    folder: PathBuf,
    process: Child,
}

impl Prometheus {
    /// One that reads a page of metrics four times a second.
    pub fn start(folder: &Path, target: SocketAddr) -> Prometheus {
        Prometheus::start_with(folder, "250ms", &[("edge", target)])
    }

    /// One that scrapes each job at an interval.
    pub fn start_with(folder: &Path, interval: &str, jobs: &[(&str, SocketAddr)]) -> Prometheus {
        let job = |(name, target): &(&str, SocketAddr)| {
            format!("  - {{job_name: {name}, static_configs: [{{targets: ['{target}']}}]}}\n")
        };
        let jobs: String = jobs.iter().map(job).collect();
        let config = format!(
            "global: {{scrape_interval: {interval}, scrape_timeout: {interval}}}\n\
             scrape_configs:\n{jobs}"
        );
        std::fs::write(folder.join("prometheus.yml"), config).unwrap();
        let address = nobody();
        let process = launch(folder, address);
        let started = Prometheus { address, folder: folder.to_owned(), process };
        started.wait();
        started
    }

    /// Ends it in the middle of whatever it does.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts it again where it was.
    pub fn revive(&mut self) {
        self.process = launch(&self.folder, self.address);
        self.wait();
    }

    /// The present values of a query, as Prometheus writes them.
    pub fn query(&self, query: &str) -> Vec<String> {
        let query = utf8_percent_encode(query, NON_ALPHANUMERIC);
        let (_, body) = http(self.address, "GET", &format!("/api/v1/query?query={query}"));
        let found: Value = serde_json::from_str(&body).unwrap();
        let series = found["data"]["result"].as_array().unwrap_or_else(|| panic!("{found}"));
        series.iter().map(|own| own["value"][1].as_str().unwrap().to_owned()).collect()
    }

    fn wait(&self) {
        eventually("Prometheus is ready", || {
            let is_there = std::net::TcpStream::connect_timeout(&self.address, PATIENCE).is_ok();
            is_there && http(self.address, "GET", "/-/ready").0 == 200
        });
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn launch(folder: &Path, address: SocketAddr) -> Child {
    let log = folder.join("prometheus.log");
    let log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
    Command::new(PROGRAM)
        .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()))
        .arg(format!("--web.listen-address={address}"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .expect("prometheus starts")
}

/// An address where nobody listens.
pub fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
