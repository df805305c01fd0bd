//! A Pharos that drains, as a server and through its command line.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::common::{ADMIN_MARK, PHAROS, address_in, eventually, signal};

pub struct Pharos {
    folder: PathBuf,
    process: Child,
    pub admin: std::net::SocketAddr,
}

/// What a server drains with: runbooks by name, drivers and health as TOML.
pub fn configure(folder: &Path, name: &str, drain: &str) -> PathBuf {
    let config = folder.join("pharos.toml");
    let folder = folder.display();
    let text = format!(
        "[node]\nname = \"{name}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         control = \"{folder}/control.sock\"\n[drain]\nstore = \"{folder}/drain.db\"\n\
         runbooks = \"{folder}/runbooks\"\n{drain}"
    );
    std::fs::write(&config, text).unwrap();
    config
}

pub fn write_runbooks(folder: &Path, files: &[(&str, &str)]) {
    let runbooks = folder.join("runbooks");
    std::fs::create_dir_all(&runbooks).unwrap();
    for (name, text) in files {
        std::fs::write(runbooks.join(name), text).unwrap();
    }
}

/// The group whose members may use the control socket of [`open_to_operators`].
const OPERATORS: (&str, u32) = ("daemon", 1);

/// Lets other users of the host reach the server of a folder. False, and said
/// loudly, where the tests do not run as root and cannot be others.
pub fn open_to_operators(folder: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can be two users; run this test as root");
        assert!(std::env::var_os("CI").is_none_or(|ci| ci.is_empty()), "CI must run as root");
        return false;
    }
    let config = folder.join("pharos.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let group = format!("[admin]\ncontrol_group = \"{}\"\n", OPERATORS.0);
    std::fs::write(&config, text.replacen("[admin]\n", &group, 1)).unwrap();
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o711)).unwrap();
    // Where others can execute it.
    let binary = folder.join("pharos");
    std::fs::hard_link(PHAROS, &binary)
        .or_else(|_| std::fs::copy(PHAROS, &binary).map(drop))
        .unwrap();
    true
}

impl Pharos {
    /// What a command of another user says, in a group that may use the control
    /// socket or in none that may.
    pub fn run_as(&self, uid: u32, is_operator: bool, args: &[&str]) -> Output {
        use std::os::unix::process::CommandExt;
        Command::new(self.folder.join("pharos"))
            .args(args)
            .arg("--control")
            .arg(self.folder.join("control.sock"))
            .env_remove("SUDO_USER")
            .uid(uid)
            .gid(if is_operator { OPERATORS.1 } else { uid })
            .output()
            .unwrap()
    }

    pub fn signal(&self, name: &str) {
        signal(&self.process, name);
    }

    /// The log of a server that does not start.
    pub fn refuse_start(folder: &Path) -> String {
        let (mut process, log) = launch(folder);
        let status = process.wait().unwrap();
        let log = std::fs::read_to_string(log).unwrap();
        assert_eq!(status.code(), Some(1), "{log}");
        log
    }

    /// Starts it with the configuration in `folder`.
    pub fn start(folder: &Path) -> Pharos {
        let (process, log) = launch(folder);
        let mut admin = None;
        eventually("Pharos listens", || {
            let text = std::fs::read_to_string(&log).unwrap();
            admin = address_in(&text, ADMIN_MARK);
            admin.is_some() && text.contains("ready:")
        });
        Pharos { folder: folder.to_owned(), process, admin: admin.unwrap() }
    }

    /// The same where something else has its admin port.
    pub fn start_beside(folder: &Path, admin: std::net::SocketAddr) -> Pharos {
        let (process, log) = launch(folder);
        eventually("Pharos is ready", || std::fs::read_to_string(&log).unwrap().contains("ready:"));
        Pharos { folder: folder.to_owned(), process, admin }
    }

    /// Kills it, as a power cut would.
    pub fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub fn stop(mut self) {
        signal(&self.process, "TERM");
        self.process.wait().unwrap();
    }

    /// Has no file of it grow, as if the disk were full, or lets them again.
    pub fn fill_disk(&self, is_full: bool) {
        let pid = rustix::process::Pid::from_child(&self.process);
        let limit = rustix::process::Rlimit { current: is_full.then_some(0), maximum: None };
        rustix::process::prlimit(Some(pid), rustix::process::Resource::Fsize, limit).unwrap();
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("pharos.log")).unwrap()
    }

    pub fn run(&self, args: &[&str]) -> Output {
        Command::new(PHAROS)
            .args(args)
            .arg("--control")
            .arg(self.folder.join("control.sock"))
            .env_remove("SUDO_USER")
            .output()
            .unwrap()
    }

    /// What a command prints; it must succeed.
    pub fn say(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {complaint}\n{}", self.log());
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a command complains about; it must fail.
    pub fn refuse(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(!output.status.success(), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// The same as JSON.
    pub fn json(&self, args: &[&str]) -> Value {
        let said = self.say(&[args, &["--json"]].concat());
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{args:?}: {error}: {said}"))
    }

    /// How the newest run stands.
    pub fn status(&self) -> Status {
        Status(self.json(&["status"]))
    }

    /// Waits until the newest run stands as it should.
    pub fn until(&self, what: &str, mut is_so: impl FnMut(&Status) -> bool) -> Status {
        let mut last = None;
        eventually(what, || {
            let status = self.status();
            let is_there = is_so(&status);
            last = Some(status);
            is_there
        });
        last.unwrap()
    }
}

impl Drop for Pharos {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn launch(folder: &Path) -> (Child, PathBuf) {
    let log = folder.join("pharos.log");
    let file = std::fs::File::create(&log).unwrap();
    // Without the trap a file that may not grow would end it, where a disk that is full does not.
    let process = Command::new("sh")
        .args(["-c", r#"trap '' XFSZ; exec "$0" "$@""#, PHAROS])
        .args(["serve", "--config"])
        .arg(folder.join("pharos.toml"))
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .spawn()
        .unwrap();
    (process, log)
}

/// How a run stands.
pub struct Status(pub Value);

impl Status {
    pub fn task(&self, name: &str) -> &Value {
        let tasks = self.0["tasks"].as_array().unwrap();
        tasks.iter().find(|task| task["name"] == name).unwrap_or_else(|| panic!("no {name}"))
    }

    pub fn steps(&self, task: &str) -> u64 {
        self.task(task)["steps"].as_u64().unwrap()
    }

    pub fn phase(&self, task: &str) -> &str {
        self.task(task)["phase"].as_str().unwrap()
    }

    pub fn outcome(&self) -> Option<&str> {
        self.0["outcome"].as_str()
    }

    pub fn next_seq(&self) -> u64 {
        self.0["next_seq"].as_u64().unwrap()
    }
}
