//! A real HAProxy, from Debian's package. It listens on sockets in a folder, so
//! that no port is taken.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{eventually, signal};

pub struct Proxy {
    /// The socket that commands go to.
    pub admin: PathBuf,
    process: Child,
}

impl Proxy {
    /// Starts one with `configuration`, which a `global` section is put before.
    pub fn start(folder: &Path, name: &str, configuration: &str) -> Proxy {
        let admin = folder.join(format!("{name}.admin"));
        let config = folder.join(format!("{name}.cfg"));
        // Sessions that a reload leaves behind must end within the test.
        let text = format!(
            "global\n  stats socket {} mode 600 level admin expose-fd listeners\n  \
             hard-stop-after 2s\ndefaults\n  timeout connect 2s\n  timeout client 1m\n  \
             timeout server 1m\n{configuration}",
            admin.display()
        );
        std::fs::write(&config, text).unwrap();
        let log = std::fs::File::create(folder.join(format!("{name}.log"))).unwrap();
        let process = Command::new(find().expect("HAProxy is here"))
            .args(["-W", "-f"])
            .arg(config)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let proxy = Proxy { admin, process };
        eventually("HAProxy answers", || proxy.ask("show info").is_ok());
        proxy
    }

    /// What HAProxy itself says to a command.
    pub fn ask(&self, line: &str) -> std::io::Result<String> {
        let mut stream = UnixStream::connect(&self.admin)?;
        stream.write_all(format!("{line}\n").as_bytes())?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        Ok(said)
    }

    /// The weight of a server now, as `80 (initial 100)` says it.
    pub fn weight(&self, server: &str) -> u32 {
        let said = self.ask(&format!("get weight {server}")).unwrap();
        said.split(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{said}"))
    }

    /// Has it read its configuration again, in a new process; waits until that
    /// one answers.
    pub fn reload(&self) {
        let before = self.worker();
        let mut sent: Option<Instant> = None;
        eventually("a new process answers", || {
            // A master that has only just begun lets the signal pass by.
            if sent.is_none_or(|sent| sent.elapsed() > Duration::from_secs(2)) {
                signal(&self.process, "USR2");
                sent = Some(Instant::now());
            }
            let worker = self.worker();
            worker.is_some() && worker != before
        });
    }

    fn worker(&self) -> Option<String> {
        let info = self.ask("show info").ok()?;
        info.lines().find_map(|line| line.strip_prefix("Pid: ")).map(str::to_owned)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The master ends its workers with it.
        signal(&self.process, "TERM");
        let _ = self.process.wait();
    }
}

pub fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join("haproxy")).find(|program| program.is_file())
}

/// Whether what the tests need is here; CI must have it.
pub fn is_here() -> bool {
    let is_here = find().is_some() && Path::new(crate::prometheus::PROGRAM).exists();
    if !is_here {
        let is_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
        assert!(!is_ci, "CI must have HAProxy and Prometheus");
        eprintln!("SKIPPED: no HAProxy or no Prometheus here; `scripts/need test` installs them");
    }
    is_here
}
