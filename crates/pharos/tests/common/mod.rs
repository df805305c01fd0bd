//! A server as its users run it, for the tests that start one.

// Each test binary uses its own part of this.
#![allow(dead_code)]

pub mod node;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub const PHAROS: &str = env!("CARGO_BIN_EXE_pharos");
/// How long anything may take before a test gives up. A node of the tests that
/// a busy machine cuts off from its ZooKeeper for half a second keeps members
/// that are gone for eleven more, each time anew: this is some of those.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn zone(origin: &str, serial: u32, address: &str) -> String {
    format!(
        "$ORIGIN {origin}\n$TTL 60\n@ SOA ns host {serial} 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n\
         www A {address}\n"
    )
}

/// A running server and its directory of zones.
pub struct Server {
    pub child: Child,
    pub home: TempDir,
    pub dns: SocketAddr,
    pub admin: SocketAddr,
    pub ready: String,
}

impl Server {
    pub fn start(files: &[(&str, &str)], flags: &[&str]) -> Server {
        Server::start_in(write_zones(files), flags).unwrap_or_else(|output| {
            panic!("not started: {}", String::from_utf8_lossy(&output.stderr))
        })
    }

    /// Starts with the zones of `home`; the output if it did not.
    pub fn start_in(home: TempDir, flags: &[&str]) -> Result<Server, Output> {
        Server::wait_for(command(Command::new(PHAROS), &home, flags), home)
    }

    /// The same with limits that the shell's `ulimit` sets.
    pub fn start_limited(home: TempDir, ulimit: &str) -> Result<Server, Output> {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit {ulimit} && exec \"$0\" \"$@\""), PHAROS]);
        Server::wait_for(command(shell, &home, &[]), home)
    }

    /// Starts what `command` says and waits until it is ready; the output if
    /// it did not get there. Its log is `log` in `home`.
    pub fn wait_for(mut command: Command, home: TempDir) -> Result<Server, Output> {
        let mut child = command.spawn().expect("the binary starts");
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        let log = std::fs::read_to_string(home.path().join("log")).unwrap();
        if !ready.starts_with("ready:") {
            let status = child.wait().unwrap();
            return Err(Output { status, stdout: ready.into(), stderr: log.into() });
        }
        let (dns, admin) = (address_in(&log, "DNS on "), address_in(&log, ADMIN_MARK));
        let (dns, admin) = (dns.unwrap(), admin.unwrap());
        Ok(Server { child, home, dns, admin, ready })
    }

    pub fn zones(&self) -> PathBuf {
        self.home.path().join("zones")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap()
    }

    pub fn pharos(&self, args: &[&str]) -> Output {
        Command::new(PHAROS)
            .args(args)
            .arg("--control")
            .arg(self.home.path().join("control.sock"))
            .output()
            .unwrap()
    }

    /// Response code and the last four octets of the answer to an A question.
    pub fn ask(&self, name: &str) -> (u8, [u8; 4]) {
        let answer = exchange_udp(self.dns, &question(name));
        (answer[3] & 0xf, *answer.last_chunk().unwrap())
    }

    pub fn http(&self, path: &str) -> (u16, String) {
        http(self.admin, "GET", path)
    }

    pub fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Stops the server; returns its exit code.
    pub fn stop(mut self) -> Option<i32> {
        self.signal("TERM");
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Stands before the address of the admin HTTP server in the log.
pub const ADMIN_MARK: &str = "admin HTTP on http://";

/// The address behind `mark` in a log, once it is there as a whole.
pub fn address_in(log: &str, mark: &str) -> Option<SocketAddr> {
    let rest = log.split_once(mark)?.1;
    let end = rest.find(|c: char| c == ',' || c.is_whitespace())?;
    rest[..end].parse().ok()
}

/// A server with the zones of `home`, on free ports.
pub fn command(mut command: Command, home: &TempDir, flags: &[&str]) -> Command {
    let admin: &[&str] = match flags.contains(&"--admin") {
        true => &[],
        false => &["--admin", "127.0.0.1:0"],
    };
    command
        .args(["serve", "--listen", "127.0.0.1:0"])
        .args(admin)
        .arg("--zones")
        .arg(home.path().join("zones"))
        .arg("--control")
        .arg(home.path().join("control.sock"))
        .args(flags)
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(home.path().join("log")).unwrap());
    command
}

pub fn http(admin: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(admin).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

pub fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
}

pub fn write_zones(files: &[(&str, &str)]) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("zones")).unwrap();
    for (name, text) in files {
        std::fs::write(home.path().join("zones").join(name), text).unwrap();
    }
    home
}

pub fn question(name: &str) -> Vec<u8> {
    let mut message = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.trim_end_matches('.').split('.') {
        message.push(label.len() as u8);
        message.extend(label.bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    message
}

pub fn exchange_udp(server: SocketAddr, request: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind((server.ip(), 0)).unwrap();
    socket.connect(server).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send(request).unwrap();
    let mut answer = vec![0; 65_535];
    let len = socket.recv(&mut answer).expect("an answer");
    answer.truncate(len);
    answer
}

pub fn read_frame(stream: &mut TcpStream) -> Vec<u8> {
    let mut len = [0; 2];
    stream.read_exact(&mut len).expect("a length");
    let mut answer = vec![0; u16::from_be_bytes(len) as usize];
    stream.read_exact(&mut answer).expect("a message");
    answer
}

pub fn frame(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes()[..], message].concat()
}

/// Waits until `is_so`, which a test expects to happen soon.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What Prometheus's own tool has against a page of metrics.
pub fn complaints_of_promtool(page: &str) -> String {
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = match promtool {
        Ok(child) => child,
        Err(error) => {
            eprintln!("SKIPPED: promtool: {error}; scripts/need test installs it");
            assert!(std::env::var_os("CI").is_none_or(|ci| ci.is_empty()), "CI must have promtool");
            return String::new();
        }
    };
    promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    if output.status.success() { said } else { format!("{}: {said}", output.status) }
}
