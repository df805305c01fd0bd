//! The binary in the hands of the hasty, the hostile and the mistaken.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Output, Stdio};

use common::{
    ADMIN_MARK, PATIENCE, PHAROS, Server, address_in, command, complaints_of_promtool, eventually,
    frame, http, question, read_frame, signal, write_zones, zone,
};
use tempfile::TempDir;

const BAD_ZONE: &str = "$ORIGIN b.test.\n$TTL 1\nwww A nonsense\n";

fn good_zones() -> TempDir {
    write_zones(&[("a.test.zone", &zone("a.test.", 1, "192.0.2.9"))])
}

/// Zones that take a moment to load, in a file that is quickly written.
fn slow_zones() -> TempDir {
    let mut text = zone("slow.test.", 1, "192.0.2.9");
    for part in 0..24 {
        text += &format!("$GENERATE 0-65535 h{part}-$ A 192.0.2.1\n");
    }
    write_zones(&[("slow.test.zone", &text)])
}

/// A process that is killed when dropped.
struct Process(Child);

impl Process {
    fn start(mut command: Command) -> Process {
        Process(command.spawn().expect("the binary starts"))
    }

    /// Its exit code, once it has ended by itself.
    fn exit_code(&mut self) -> Option<i32> {
        eventually("the end of the process", || self.0.try_wait().unwrap().is_some());
        self.0.wait().unwrap().code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server that still loads.
struct Loading {
    process: Process,
    home: TempDir,
    admin: SocketAddr,
}

impl Loading {
    fn start() -> Loading {
        let home = slow_zones();
        let process = Process::start(command(Command::new(PHAROS), &home, &[]));
        let mut admin = None;
        eventually("the start of admin HTTP", || {
            let log = std::fs::read_to_string(home.path().join("log")).unwrap();
            admin = address_in(&log, ADMIN_MARK);
            admin.is_some()
        });
        let loading = Loading { process, home, admin: admin.unwrap() };
        loading.check();
        loading
    }

    /// That the load is not over: whatever was done before, was done in time.
    fn check(&self) {
        let (status, body) = http(self.admin, "GET", "/healthz");
        assert_eq!(status, 503, "{body}");
        assert!(body.contains("loading"), "{body}");
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap()
    }
}

#[test]
fn a_hangup_during_the_first_load_is_a_reload_behind_it() {
    let loading = Loading::start();
    signal(&loading.process.0, "HUP");
    loading.check();
    eventually("the first load", || http(loading.admin, "GET", "/healthz").0 == 200);
    eventually("the reload", || loading.log().contains("reloaded"));
}

#[test]
fn a_stop_during_the_first_load_leaves_nothing_behind() {
    let mut loading = Loading::start();
    assert!(loading.home.path().join("control.sock").exists());
    signal(&loading.process.0, "TERM");
    assert_eq!(loading.process.exit_code(), Some(0));
    let mut said = String::new();
    loading.process.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "", "it did not wait for the load");
    assert!(!loading.home.path().join("control.sock").exists());
}

#[test]
fn what_does_not_start_leaves_no_control_socket() {
    let fails = |home: TempDir, flags: &[&str], why: &str| {
        let path = home.path().to_owned();
        let mut process = Process::start(command(Command::new(PHAROS), &home, flags));
        assert_eq!(process.exit_code(), Some(1));
        let log = std::fs::read_to_string(path.join("log")).unwrap();
        assert!(log.contains(why), "{log}");
        assert!(!path.join("control.sock").exists());
    };
    fails(write_zones(&[("b.test.zone", BAD_ZONE)]), &["--strict"], "--strict was given");
    let home = good_zones();
    std::fs::remove_dir_all(home.path().join("zones")).unwrap();
    fails(home, &[], "cannot be read");
}

#[test]
fn only_sockets_make_way_for_the_control_socket() {
    let home = good_zones();
    let path = home.path().join("control.sock");
    std::fs::write(&path, "precious").unwrap();
    let mut process = Process::start(command(Command::new(PHAROS), &home, &[]));
    assert_eq!(process.exit_code(), Some(1));
    let log = std::fs::read_to_string(home.path().join("log")).unwrap();
    assert!(log.contains("what is there is no socket; accepted: "), "{log}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn slow_http_clients_leave_dns_its_descriptors() {
    let server = Server::start_limited(good_zones(), "-n 200").ok().unwrap();
    assert!(server.log().contains("but the system allows 200; raise it"), "{}", server.log());
    let slow: Vec<TcpStream> = (0..195)
        .map(|_| {
            let mut stream = TcpStream::connect(server.admin).unwrap();
            stream.write_all(b"GET /healthz HTTP/1.1\r\n").unwrap();
            stream
        })
        .collect();
    let mut stream = TcpStream::connect(server.dns).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&frame(&question("www.a.test"))).unwrap();
    assert_eq!(read_frame(&mut stream).last_chunk(), Some(&[192, 0, 2, 9]));
    assert_eq!(server.http("/healthz").0, 200, "who asks is answered");
    drop(slow);
    assert_eq!(server.http("/healthz").0, 200, "others have their turn again");
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap().count();
    assert!(open < 150, "{open} descriptors are open");
}

#[test]
fn the_limit_of_open_files_is_raised_to_what_is_needed() {
    let server = Server::start_limited(good_zones(), "-S -n 200").ok().unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.child.id())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(numbers[0] > 2000 || numbers[0] == numbers[1], "{line}");
}

#[test]
fn admin_http_for_everybody_is_said_to_be_so() {
    let server = Server::start_in(good_zones(), &["--admin", "0.0.0.0:0"]).ok().unwrap();
    assert!(server.log().contains("can be reached from other hosts"), "{}", server.log());
    let server = Server::start_in(good_zones(), &[]).ok().unwrap();
    assert!(!server.log().contains("other hosts"), "{}", server.log());
}

fn text_of(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

#[test]
fn any_name_can_be_asked_for() {
    let classless = "0/26.2.0.192.in-addr.arpa.";
    let server = Server::start(&[("classless.zone", &zone(classless, 7, "192.0.2.9"))], &[]);
    let shown = server.pharos(&["zone", "show", classless]);
    assert!(text_of(&shown).contains("serial 7"), "{shown:?}");
    let none = server.pharos(&["zone", "show", "a b"]);
    assert_eq!(text_of(&none), "pharos: no zone a b here\n");
    let none = server.pharos(&["zone", "show", "x\r\nhost: y?z#%41"]);
    let told = text_of(&none);
    assert!(
        told.contains("no zone x?\nhost: y?z#%41 here"),
        "control characters are tamed: {told:?}"
    );
    let list = server.pharos(&["zone", "list", "--after", "e&limit=zz"]);
    assert_eq!(text_of(&list), "1 zones in all\n");
}

#[test]
fn wrong_requests_are_told_what_is_accepted_in_json() {
    let server = Server::start(&[("a.test.zone", &zone("a.test.", 1, "192.0.2.9"))], &[]);
    let check = |method: &str, path: &str, expected: (u16, &str)| {
        let (status, body) = http(server.admin, method, path);
        assert_eq!(status, expected.0, "{path}: {body}");
        let body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        let text = body["error"].as_str().unwrap();
        assert!(text.contains(expected.1), "{text}");
    };
    check("GET", "/v1/zones?limit=abc", (400, "accepted: limit=N, 1 to 1000, and after=NAME"));
    check("GET", "/v1/zones?limt=1", (400, "limt"));
    check("GET", "/v1/zones/%ff", (400, "UTF-8"));
    check("GET", "/v1/zones/a..b", (400, "is no domain name"));
    check("POST", "/healthz", (405, "accepted: GET"));
    check("POST", "/v1/reload", (404, "no such page"));
    check("GET", "/v1/drains", (404, "its configuration has no [drain]"));
}

#[test]
fn a_reader_that_leaves_early_gets_no_panic() {
    let home = write_zones(&[("b.test.zone", &BAD_ZONE.repeat(2000))]);
    let mut child = Command::new(PHAROS)
        .args(["zone", "check"])
        .arg(home.path().join("zones/b.test.zone"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(text_of(&output), "");
    assert_eq!(output.status.code(), Some(1), "the verdict is still told");
}

#[test]
fn a_level_that_does_not_exist_is_refused() {
    let command = ["--log", "pharos=loud", "zone", "check", "/dev/null"];
    let output = Command::new(PHAROS).args(command).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text_of(&output).contains("accepted: off, error, warn, info"), "{output:?}");
}

#[test]
fn prometheus_has_nothing_to_say_against_the_metrics() {
    let server = Server::start(&[("a.test.zone", &zone("a.test.", 1, "192.0.2.9"))], &[]);
    // So that the zones asked most are on the page, too.
    for _ in 0..200 {
        server.ask("www.a.test");
    }
    let (status, page) = server.http("/metrics");
    assert_eq!(status, 200);
    assert_eq!(complaints_of_promtool(&page), "");
}
