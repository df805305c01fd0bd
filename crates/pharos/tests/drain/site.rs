//! Two datacenters, `east` and `west`, each with its own proxy before servers
//! of two services, and the edge before both.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::prometheus::nobody;
use crate::proxy::Proxy;

pub const DATACENTERS: [&str; 2] = ["east", "west"];

pub struct Shop {
    pub edge: Proxy,
    _datacenters: Vec<Proxy>,
    /// Where the edge shows its metrics.
    pub metrics: SocketAddr,
    pub folder: TempDir,
}

impl Shop {
    pub fn start() -> Shop {
        let folder = tempfile::tempdir().unwrap();
        let datacenters =
            DATACENTERS.map(|name| Proxy::start(folder.path(), name, &datacenter(&folder, name)));
        let metrics = nobody();
        let edge = Proxy::start(folder.path(), "edge", &edge(folder.path(), metrics));
        Shop { edge, _datacenters: datacenters.into(), metrics, folder }
    }

    /// Where people reach a service.
    pub fn door(&self, service: &str) -> PathBuf {
        self.folder.path().join(format!("{service}.sock"))
    }
}

fn edge(folder: &Path, metrics: SocketAddr) -> String {
    let folder = folder.display();
    let service = |name: &str, mode: &str| {
        format!(
            "listen {name}\n  mode {mode}\n  bind unix@{folder}/{name}.sock\n  balance roundrobin\n  \
             server east unix@{folder}/east-{name}.sock weight 100\n  \
             server west unix@{folder}/west-{name}.sock weight 100\n"
        )
    };
    format!(
        "{}{}frontend metrics\n  mode http\n  bind {metrics}\n  \
         http-request use-service prometheus-exporter\n",
        service("web", "http"),
        service("chat", "tcp")
    )
}

fn datacenter(folder: &TempDir, name: &str) -> String {
    let folder = folder.path().display();
    let service = |service: &str, mode: &str| {
        let (a, b) = (serve(name), serve(name));
        format!(
            "listen {service}\n  mode {mode}\n  bind unix@{folder}/{name}-{service}.sock\n  \
             balance roundrobin\n  server a {a}\n  server b {b}\n"
        )
    };
    service("web", "http") + &service("chat", "tcp")
}

/// A server that answers every request with the name of its datacenter, for as
/// long as the test runs.
fn serve(datacenter: &str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, name) = (listener.local_addr().unwrap(), datacenter.to_owned());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let name = name.clone();
            // Whoever hangs up is gone.
            std::thread::spawn(move || _ = answer(stream, &name));
        }
    });
    address
}

fn answer(mut stream: TcpStream, name: &str) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        // In one piece: what is cut off in the middle of an answer cannot be asked again.
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
        stream.write_all(answer.as_bytes())?;
    }
}
