//! A real HAProxy and servers behind it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use drivers::haproxy::{Config, Haproxy};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// How long anything may take; only what is broken takes it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until something is so.
pub async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "still not so: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Servers that say back what they are told.
pub struct Backends {
    servers: Vec<(&'static str, SocketAddr)>,
}

impl Backends {
    pub fn bind() -> Backends {
        let servers = ["dc1-a", "dc1-b", "dc2-a"].map(|name| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            std::thread::spawn(move || echo(&listener));
            (name, address)
        });
        Backends { servers: servers.to_vec() }
    }

    /// Puts a server where nobody listens: to port 1.
    pub fn stop(&mut self, name: &str) {
        for server in self.servers.iter_mut().filter(|server| server.0 == name) {
            server.1.set_port(1);
        }
    }

    fn address(&self, name: &str) -> SocketAddr {
        self.servers.iter().find(|server| server.0 == name).unwrap().1
    }
}

fn echo(listener: &TcpListener) {
    while let Ok((mut stream, _)) = listener.accept() {
        std::thread::spawn(move || {
            let mut buffer = [0; 100];
            while let Ok(len) = stream.read(&mut buffer) {
                if len == 0 || stream.write_all(&buffer[..len]).is_err() {
                    break;
                }
            }
        });
    }
}

/// One HAProxy: `web` is balanced dynamically, `hash` statically. It listens on
/// sockets in a folder of its own, so that no port is taken.
pub struct Proxy {
    folder: TempDir,
    process: Child,
}

impl Proxy {
    /// Starts one; `None` where there is none to start, which CI must have.
    pub async fn start(backends: &Backends) -> Option<Proxy> {
        let Some(program) = find() else {
            let is_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
            assert!(!is_ci, "CI must have HAProxy");
            eprintln!("SKIPPED: no HAProxy here; `scripts/need test` installs it");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("haproxy.cfg");
        std::fs::write(&config, configuration(folder.path(), backends)).unwrap();
        let process = Command::new(program)
            .args(["-W", "-q", "-f"])
            .arg(config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let proxy = Proxy { folder, process };
        eventually("HAProxy answers", async || proxy.is_up().await).await;
        Some(proxy)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A new driver, that remembers nothing.
    pub fn driver(&self) -> Haproxy {
        self.driver_at("admin.sock")
    }

    /// A driver whose socket may only look.
    pub fn operator(&self) -> Haproxy {
        self.driver_at("operator.sock")
    }

    fn driver_at(&self, name: &str) -> Haproxy {
        let socket = self.path(name).to_str().unwrap().to_owned();
        Haproxy::new(&Config { socket, timeout_ms: 10_000 }).unwrap()
    }

    /// A client of a backend.
    pub async fn connect(&self, backend: &str) -> UnixStream {
        UnixStream::connect(self.path(&format!("{backend}.sock"))).await.unwrap()
    }

    /// What HAProxy itself says to a command.
    pub async fn ask(&self, line: &str) -> String {
        self.try_ask(line).await.unwrap()
    }

    async fn try_ask(&self, line: &str) -> std::io::Result<String> {
        let mut stream = UnixStream::connect(self.path("admin.sock")).await?;
        stream.write_all(format!("{line}\n").as_bytes()).await?;
        let mut said = String::new();
        stream.read_to_string(&mut said).await?;
        Ok(said)
    }

    async fn is_up(&self) -> bool {
        UnixStream::connect(self.path("admin.sock")).await.is_ok()
            && UnixStream::connect(self.path("web.sock")).await.is_ok()
    }

    /// Has it read its configuration again, in a new process; waits until that
    /// one answers.
    pub async fn reload(&self) {
        let before = self.worker().await;
        let mut sent: Option<Instant> = None;
        let is_new = async || {
            // A master that has only just begun lets the signal pass by.
            if sent.is_none_or(|sent| sent.elapsed() > Duration::from_secs(2)) {
                kill_process(Pid::from_child(&self.process), Signal::USR2).unwrap();
                sent = Some(Instant::now());
            }
            self.worker().await.is_some_and(|worker| Some(worker) != before)
        };
        eventually("a new process answers", is_new).await;
    }

    async fn worker(&self) -> Option<String> {
        let info = self.try_ask("show info").await.ok()?;
        info.lines().find_map(|line| line.strip_prefix("Pid: ")).map(str::to_owned)
    }

    pub fn stop(&mut self) {
        // The master ends its workers with it.
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let _ = self.process.wait();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            self.stop();
        }
    }
}

fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join("haproxy")).find(|program| program.is_file())
}

fn configuration(folder: &Path, backends: &Backends) -> String {
    let folder = folder.display();
    let [a, b, c] = ["dc1-a", "dc1-b", "dc2-a"].map(|name| backends.address(name));
    format!(
        "global
  stats socket {folder}/admin.sock mode 600 level admin expose-fd listeners
  stats socket {folder}/operator.sock mode 600 level operator
defaults
  mode tcp
  timeout connect 5s
  timeout client 5m
  timeout server 5m
listen web
  bind unix@{folder}/web.sock
  balance roundrobin
  server dc1-a {a} weight 100
  server dc1-b {b} weight 7
  server dc2-a {c} weight 100
listen hash
  bind unix@{folder}/hash.sock
  balance source
  server dc1-a {a} weight 100
  server dc2-a {c}
"
    )
}
