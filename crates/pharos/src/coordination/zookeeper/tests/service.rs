//! A real ZooKeeper, from Debian's package, and a way to it that can be cut.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::Client;

const JAR: &str = "/usr/share/java/zookeeper.jar";
/// How long a server may take to answer; only a broken one takes it.
const START_MAX: Duration = Duration::from_secs(60);
/// A session of the tests: as short as the server's ticks allow with a margin.
pub const SESSION: Duration = Duration::from_secs(1);

/// One ZooKeeper on a free port, with a folder of its own.
pub struct Service {
    folder: TempDir,
    port: u16,
    process: Child,
}

impl Service {
    /// Starts one; `None` where there is none to start, which CI must have.
    pub async fn start() -> Option<Self> {
        if !Path::new(JAR).exists() {
            assert!(
                std::env::var_os("CI").is_none_or(|ci| ci.is_empty()),
                "CI must have ZooKeeper"
            );
            eprintln!("skipped: no ZooKeeper here; `scripts/need test` installs it");
            return None;
        }
        for _ in 0..3 {
            let folder = tempfile::tempdir().unwrap();
            let port = free_port();
            let process = launch(folder.path(), port);
            let mut service = Service { folder, port, process };
            if service.is_up().await {
                return Some(service);
            }
        }
        panic!("ZooKeeper does not start");
    }

    /// As HOST:PORT.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A client beside those of the nodes.
    pub async fn client(&self) -> Client {
        let connector = Client::connector().with_session_timeout(SESSION * 4);
        connector.connect(&self.address()).await.expect("the server answers")
    }

    /// Stops it in the middle of whatever it does.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it, and everything it knew with it.
    pub fn destroy(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        std::fs::remove_dir_all(self.folder.path().join("data")).unwrap();
    }

    /// Starts it again where it was.
    pub async fn revive(&mut self) {
        self.process = launch(self.folder.path(), self.port);
        assert!(self.is_up().await, "ZooKeeper does not start again");
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, signal).unwrap();
    }

    /// Waits until it answers; false if it ended instead.
    async fn is_up(&mut self) -> bool {
        let deadline = Instant::now() + START_MAX;
        while self.process.try_wait().unwrap().is_none() {
            let connector = Client::connector().with_session_timeout(SESSION).with_fail_eagerly();
            if connector.connect(&self.address()).await.is_ok() {
                return true;
            }
            assert!(Instant::now() < deadline, "ZooKeeper does not answer");
            sleep(Duration::from_millis(50)).await;
        }
        false
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn launch(folder: &Path, port: u16) -> Child {
    let data = folder.join("data");
    std::fs::create_dir_all(&data).unwrap();
    let config = folder.join("zoo.cfg");
    // Sessions last 2 to 20 ticks.
    let text = format!(
        "tickTime=200\ndataDir={}\nclientPortAddress=127.0.0.1\nclientPort={port}\n\
         admin.enableServer=false\nmaxClientCnxns=0\n",
        data.display()
    );
    std::fs::write(&config, text).unwrap();
    let log = std::fs::File::create(folder.join("log")).unwrap();
    Command::new("java")
        // To start soon matters more than to run fast.
        .args([
            "-Xmx64m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Xshare:auto",
            "-cp",
            JAR,
        ])
        .arg("org.apache.zookeeper.server.ZooKeeperServerMain")
        .arg(&config)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .expect("java starts")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// A way to a server for one node.
pub struct Way {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    _connections: JoinSet<()>,
}

/// What gets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Everything.
    Open,
    /// Nothing, and nobody notices.
    Frozen,
    /// Questions; the first answer breaks the connection instead.
    Severed,
}

impl Way {
    pub async fn to(service: &Service) -> Self {
        let target = SocketAddr::from((Ipv4Addr::LOCALHOST, service.port));
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mode, watched) = watch::channel(Mode::Open);
        let mut connections = JoinSet::new();
        connections.spawn(async move {
            let mut pumps = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(target).await else { continue };
                pumps.spawn(connect(near, far, watched.clone()));
            }
        });
        Way { address, mode, _connections: connections }
    }

    /// As HOST:PORT.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

/// Carries octets both ways until either way ends.
async fn connect(near: TcpStream, far: TcpStream, mode: watch::Receiver<Mode>) {
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    tokio::select! {
        () = carry(near_read, far_write, mode.clone(), false) => {}
        () = carry(far_read, near_write, mode, true) => {}
    }
}

async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut mode: watch::Receiver<Mode>,
    are_answers: bool,
) {
    let mut octets = vec![0; 16384];
    while let Ok(len @ 1..) = from.read(&mut octets).await {
        let Ok(mode) = mode.wait_for(|mode| *mode != Mode::Frozen).await.map(|mode| *mode) else {
            return;
        };
        if mode == Mode::Severed && are_answers || to.write_all(&octets[..len]).await.is_err() {
            return;
        }
    }
}

/// Waits for `future`, for much longer than it takes.
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(START_MAX, future).await.unwrap_or_else(|_| panic!("{what}: not within a minute"))
}
