//! Redis servers, from Debian's package, and as much of their protocol as the
//! tests need.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::eventually;
use crate::prometheus::nobody;

/// How long a client waits for a response. A write without one counts as not
/// acknowledged.
const TIMEOUT: Duration = Duration::from_secs(5);

pub struct Redis {
    pub address: SocketAddr,
    process: Child,
}

impl Redis {
    /// Starts one; a replica if `source` is the address of a primary.
    pub fn start(folder: &Path, name: &str, source: Option<SocketAddr>) -> Redis {
        let address = nobody();
        let home = folder.join(format!("redis-{name}"));
        std::fs::create_dir(&home).unwrap();
        let log = std::fs::File::create(home.join("log")).unwrap();
        let mut command = Command::new(find().expect("Redis is installed"));
        command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
        command.arg("--dir").arg(&home).args(["--save", "", "--appendonly", "no"]);
        command.args(["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]);
        if let Some(source) = source {
            let (host, port) = (source.ip().to_string(), source.port().to_string());
            command.args(["--replicaof", &host, &port]);
        }
        let process = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("redis-server starts");
        let redis = Redis { address, process };
        eventually("Redis responds", || {
            Connection::open(address).and_then(|mut to| to.command("PING")).is_ok()
        });
        redis
    }

    /// What `INFO replication` says under a key.
    pub fn replication(&self, key: &str) -> Option<String> {
        replication(self.address)?.remove(key)
    }

    pub fn is_primary(&self) -> bool {
        self.replication("role").is_some_and(|role| role == "master")
    }

    /// Whether it is a replica that follows its primary.
    pub fn follows(&self) -> bool {
        self.replication("master_link_status").is_some_and(|status| status == "up")
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `INFO replication` of a server; nothing if it does not respond.
pub fn replication(address: SocketAddr) -> Option<std::collections::BTreeMap<String, String>> {
    let text = Connection::open(address).ok()?.command("INFO replication").ok()?.ok()?;
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    Some(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}

/// A connection of a client.
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    pub fn open(address: SocketAddr) -> std::io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Connection(BufReader::new(stream)))
    }

    /// The response to an inline command: its text, or the text of an error.
    pub fn command(&mut self, line: &str) -> std::io::Result<Result<String, String>> {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes())?;
        let mut head = String::new();
        if self.0.read_line(&mut head)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let (kind, rest) = head.trim_end().split_at(1);
        match kind {
            "+" | ":" => Ok(Ok(rest.to_owned())),
            "-" => Ok(Err(rest.to_owned())),
            "$" => {
                let len: usize = rest.parse().map_err(std::io::Error::other)?;
                let mut body = vec![0; len + 2];
                self.0.read_exact(&mut body)?;
                body.truncate(len);
                Ok(Ok(String::from_utf8_lossy(&body).into_owned()))
            }
            _ => Err(std::io::Error::other(format!("not understood: {head}"))),
        }
    }
}

pub fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&path).map(|folder| folder.join("redis-server"));
    programs.find(|program| program.is_file())
}
