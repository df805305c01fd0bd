//! A real ZooKeeper, from Debian's package.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::common::signal;
use crate::upstream::bind_both;

const JAR: &str = "/usr/share/java/zookeeper.jar";
/// How long a server may take to answer; only a broken one takes it.
const START_MAX: Duration = Duration::from_secs(60);
/// A session of the tests: as short as a node may be told.
pub const SESSION_MS: u64 = 1000;
pub const SESSION: Duration = Duration::from_millis(SESSION_MS);

/// One ZooKeeper on a free port, with a folder of its own.
pub struct ZooKeeper {
    folder: TempDir,
    address: SocketAddr,
    process: Child,
}

impl ZooKeeper {
    /// Starts one; `None` where there is none to start, which CI must have.
    pub fn start() -> Option<ZooKeeper> {
        if !Path::new(JAR).exists() {
            assert!(
                std::env::var_os("CI").is_none_or(|ci| ci.is_empty()),
                "CI must have ZooKeeper"
            );
            eprintln!("SKIPPED: no ZooKeeper here; `scripts/need test` installs it");
            return None;
        }
        for _ in 0..3 {
            let folder = tempfile::tempdir().unwrap();
            let address = bind_both().1.local_addr().unwrap();
            let process = launch(folder.path(), address);
            let mut service = ZooKeeper { folder, address, process };
            if service.is_up() {
                return Some(service);
            }
        }
        panic!("ZooKeeper does not start");
    }

    /// As HOST:PORT.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Stops it in the middle of whatever it does.
    pub fn freeze(&self) {
        signal(&self.process, "STOP");
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        signal(&self.process, "CONT");
    }

    /// Kills it, and everything it knew with it.
    pub fn destroy(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        std::fs::remove_dir_all(self.folder.path().join("data")).unwrap();
    }

    /// Starts it again where it was.
    pub fn revive(&mut self) {
        self.process = launch(self.folder.path(), self.address);
        assert!(self.is_up(), "ZooKeeper does not start again");
    }

    /// Waits until it answers; false if it ended instead.
    fn is_up(&mut self) -> bool {
        let deadline = Instant::now() + START_MAX;
        while self.process.try_wait().unwrap().is_none() {
            if says_it_serves(self.address).unwrap_or(false) {
                return true;
            }
            assert!(Instant::now() < deadline, "ZooKeeper does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }
}

impl Drop for ZooKeeper {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn says_it_serves(address: SocketAddr) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(address)?;
    // Somebody else may have got the port, and may say nothing.
    stream.set_read_timeout(Some(SESSION))?;
    stream.write_all(b"srvr")?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said.contains("Mode: "))
}

fn launch(folder: &Path, address: SocketAddr) -> Child {
    let data = folder.join("data");
    std::fs::create_dir_all(&data).unwrap();
    let config = folder.join("zoo.cfg");
    // Sessions last 2 to 20 ticks.
    let text = format!(
        "tickTime=200\ndataDir={}\nclientPortAddress={}\nclientPort={}\n\
         admin.enableServer=false\nmaxClientCnxns=0\n",
        data.display(),
        address.ip(),
        address.port()
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
