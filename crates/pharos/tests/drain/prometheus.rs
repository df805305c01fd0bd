//! A real Prometheus, from Debian's package, that can be stopped and started.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

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
        let config = format!(
            "global: {{scrape_interval: 250ms, scrape_timeout: 250ms}}\n\
             scrape_configs: [{{job_name: edge, static_configs: [{{targets: ['{target}']}}]}}]\n"
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
