//! The binary as its users run it: started, asked, reloaded, killed.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{
    PATIENCE, PHAROS, Server, eventually, exchange_udp, frame, question, read_frame, write_zones,
    zone,
};

#[test]
fn it_says_when_it_is_ready_and_answers() {
    let server = Server::start(&[("a.test.zone", &zone("a.test.", 1, "192.0.2.9"))], &[]);
    assert!(server.ready.starts_with("ready: 1 zones, 4 records, "), "{}", server.ready);
    assert_eq!(server.ask("www.a.test"), (0, [192, 0, 2, 9]));
    assert_eq!(server.ask("no.a.test").0, 3);
    assert_eq!(server.ask("www.b.test").0, 5);
    let (status, body) = server.http("/healthz");
    assert_eq!(status, 200);
    assert!(body.contains("\"status\":\"ready\""), "{body}");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn connections_carry_many_questions() {
    let server = Server::start(&[("a.test.zone", &zone("a.test.", 1, "192.0.2.9"))], &[]);
    let mut stream = TcpStream::connect(server.dns).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // Three at once, the third in two pieces.
    let request = frame(&question("www.a.test"));
    stream.write_all(&[&request[..], &request, &request[..7]].concat()).unwrap();
    read_frame(&mut stream);
    read_frame(&mut stream);
    stream.write_all(&request[7..]).unwrap();
    assert_eq!(read_frame(&mut stream).last_chunk(), Some(&[192, 0, 2, 9]));
    // An answer instead of a question ends the connection.
    let mut answer = question("www.a.test");
    answer[2] |= 0x80;
    stream.write_all(&frame(&answer)).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn connections_are_bounded() {
    let home = write_zones(&[("a.test.zone", &zone("a.test.", 1, "192.0.2.9"))]);
    let config = home.path().join("pharos.toml");
    std::fs::write(&config, "[tcp]\nper_source_max = 2\nidle_secs = 1\n").unwrap();
    let server = Server::start_in(home, &["--config", config.to_str().unwrap()]).ok().unwrap();
    let open = || TcpStream::connect(server.dns).unwrap();
    let mut first = open();
    let mut second = open();
    let ask = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&frame(&question("www.a.test"))).unwrap();
        read_frame(stream)
    };
    ask(&mut first);
    ask(&mut second);
    let mut third = open();
    assert_eq!(third.read(&mut [0]).unwrap_or(0), 0, "one too many is closed");
    // An idle one is closed too, and leaves its place to another.
    assert_eq!(first.read(&mut [0]).unwrap(), 0);
    eventually("a free place", || {
        let mut fourth = open();
        fourth.set_read_timeout(Some(PATIENCE)).unwrap();
        fourth.write_all(&frame(&question("www.a.test"))).is_ok()
            && fourth.read(&mut [0; 2]).is_ok_and(|len| len > 0)
    });
    assert!(!server.http("/metrics").1.contains("pharos_tcp_refused_total 0\n"));
}

#[test]
fn answers_leave_from_the_address_that_was_asked() {
    let home = write_zones(&[("a.test.zone", &zone("a.test.", 1, "192.0.2.9"))]);
    let server = Server::start_in(home, &["--listen", "0.0.0.0:0"]).ok().unwrap();
    let log = server.log();
    let port: u16 =
        log.split_once("DNS on 0.0.0.0:").unwrap().1.split(',').next().unwrap().parse().unwrap();
    // A connected socket takes answers from this address alone.
    let address = SocketAddr::from(([127, 0, 0, 53], port));
    assert_eq!(exchange_udp(address, &question("www.a.test")).last_chunk(), Some(&[192, 0, 2, 9]));
}

#[test]
fn ipv6_works_too() {
    if UdpSocket::bind("[::1]:0").is_err() {
        eprintln!("SKIPPED: this machine has no IPv6 loopback");
        assert!(std::env::var_os("CI").is_none_or(|ci| ci.is_empty()), "CI must have IPv6");
        return;
    }
    let home = write_zones(&[("a.test.zone", &zone("a.test.", 1, "192.0.2.9"))]);
    let server = Server::start_in(home, &["--listen", "[::]:0"]).ok().unwrap();
    let log = server.log();
    let port: u16 =
        log.split_once("DNS on [::]:").unwrap().1.split(',').next().unwrap().parse().unwrap();
    let address: SocketAddr = format!("[::1]:{port}").parse().unwrap();
    assert_eq!(exchange_udp(address, &question("www.a.test")).last_chunk(), Some(&[192, 0, 2, 9]));
}

#[test]
fn bad_zones_are_reported_whole_and_answered_with_servfail() {
    let files = [
        ("good.test.zone", &zone("good.test.", 1, "192.0.2.9")[..]),
        (
            "bad.test.zone",
            "$ORIGIN bad.test.\n@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns\nx 60 AAA 1\ny 60 A 1.2.3\n",
        ),
        ("worse.test.zone", "garbage here\n"),
    ];
    // Not readable, whoever asks: a directory.
    let home = write_zones(&files);
    std::fs::create_dir(home.path().join("zones/unread.test.zone")).unwrap();
    let server = Server::start_in(home, &[]).ok().unwrap();
    assert!(server.ready.contains("3 bad zone files"), "{}", server.ready);
    assert_eq!(server.ask("www.unread.test").0, 2);
    assert_eq!(server.ask("www.good.test").0, 0);
    assert_eq!(server.ask("www.bad.test").0, 2);
    assert_eq!(server.ask("www.worse.test").0, 2);
    let log = server.log();
    for part in [
        "bad.test.zone:4:6: ",
        "bad.test.zone:5:8: ",
        "worse.test.zone:1:",
        "unread.test.zone: error: the file cannot be read: it is not a regular file",
        "accepted: ",
    ] {
        assert!(log.contains(part), "{part} in {log}");
    }
    assert!(server.http("/metrics").1.contains("pharos_zones_broken 3\n"));
    assert_eq!(server.stop(), Some(3), "the exit code says that zones were bad");
    let output = Server::start_in(write_zones(&files), &["--strict"]).err().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_reload_takes_what_changed_and_keeps_what_became_bad() {
    let files = [
        ("a.test.zone", &zone("a.test.", 1, "192.0.2.1")[..]),
        ("b.test.zone", &zone("b.test.", 1, "192.0.2.2")),
        ("c.test.zone", &zone("c.test.", 1, "192.0.2.3")),
    ];
    let server = Server::start(&files, &[]);
    let write = |name: &str, text: &str| std::fs::write(server.zones().join(name), text).unwrap();
    write("a.test.zone", &zone("a.test.", 2, "192.0.2.11"));
    write("b.test.zone", "$ORIGIN b.test.\n$TTL 1\nwww A nonsense\n");
    std::fs::remove_file(server.zones().join("c.test.zone")).unwrap();
    write("d.test.zone", &zone("d.test.", 1, "192.0.2.4"));
    let output = server.pharos(&["zone", "reload"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("2 zones updated, 1 removed, 1 bad (1 of them"), "{text}");
    assert!(text.contains("b.test.zone:3:7: error: "), "{text}");
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(server.ask("www.a.test"), (0, [192, 0, 2, 11]));
    assert_eq!(server.ask("www.b.test"), (0, [192, 0, 2, 2]), "the last good version");
    assert_eq!(server.ask("www.c.test").0, 5);
    assert_eq!(server.ask("www.d.test"), (0, [192, 0, 2, 4]));
    // One zone alone; a file that is not there is refused.
    write("a.test.zone", &zone("a.test.", 3, "192.0.2.12"));
    let output = server.pharos(&["zone", "reload", "a.test."]);
    assert_eq!(output.status.code(), Some(3), "b.test is still bad");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("b.test.zone:3:7: error: "), "{text}");
    assert!(server.http("/v1/problems").1.contains("b.test.zone:3:7: error: "));
    assert_eq!(server.ask("www.a.test"), (0, [192, 0, 2, 12]));
    let output = server.pharos(&["zone", "reload", "nowhere.test"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no file nowhere.test.zone"));
    // The same by signal.
    write("b.test.zone", &zone("b.test.", 2, "192.0.2.22"));
    server.signal("HUP");
    eventually("the reload", || server.ask("www.b.test") == (0, [192, 0, 2, 22]));
    let shown = server.pharos(&["zone", "list"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("3 zones in all"));
}

/// Code and output of a reload.
fn reload(server: &Server, zones: &[&str]) -> (Option<i32>, String) {
    let output = server.pharos(&[&["zone", "reload"], zones].concat());
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_bad_file_of_any_name_keeps_its_zone() {
    let good = zone("example.org.", 1, "192.0.2.1");
    let server = Server::start(&[("tenant1.zone", &good)], &[]);
    let path = server.zones().join("tenant1.zone");
    std::fs::write(&path, good.replace("host 1 2", "host one 2")).unwrap();
    for zones in [&[][..], &["example.org"]] {
        let (code, text) = reload(&server, zones);
        assert_eq!(code, Some(3));
        assert!(text.contains("0 removed, 1 bad (1 of them"), "{text}");
    }
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert_eq!(reload(&server, &[]).0, Some(3));
    assert_eq!(server.ask("www.example.org"), (0, [192, 0, 2, 1]));
    assert_eq!(server.ask("www.tenant1").0, 5, "no zone is made up from the name");
    std::fs::remove_dir(&path).unwrap();
    std::fs::write(&path, zone("example.org.", 2, "192.0.2.22")).unwrap();
    assert_eq!(reload(&server, &["example.org"]).0, Some(0), "by its zone, not its file");
    assert_eq!(server.ask("www.example.org"), (0, [192, 0, 2, 22]));
}

#[test]
fn a_zone_that_left_its_file_is_gone_after_a_reload_of_it_alone() {
    let files = [("example.net.zone", &zone("example.net.", 1, "192.0.2.1")[..])];
    let server = Server::start(&files, &[]);
    let other = zone("other.net.", 1, "192.0.2.2") + "; another length\n";
    std::fs::write(server.zones().join("example.net.zone"), other).unwrap();
    let (code, text) = reload(&server, &["example.net"]);
    assert_eq!(code, Some(0));
    assert!(text.contains("1 zones updated, 1 removed"), "{text}");
    assert_eq!(server.ask("www.example.net").0, 5);
    assert_eq!(server.ask("www.other.net"), (0, [192, 0, 2, 2]));
}

#[test]
fn a_fifo_among_the_zones_stops_nothing() {
    let home = write_zones(&[("a.test.zone", &zone("a.test.", 1, "192.0.2.1"))]);
    let fifo = home.path().join("zones/fifo.test.zone");
    assert!(Command::new("mkfifo").arg(fifo).status().unwrap().success());
    let server = Server::start_in(home, &[]).ok().unwrap();
    assert_eq!(server.ask("www.a.test"), (0, [192, 0, 2, 1]));
    assert_eq!(server.ask("www.fifo.test").0, 2);
    let (code, text) = reload(&server, &[]);
    assert_eq!(code, Some(3));
    assert!(text.contains("fifo.test.zone: error: the file cannot be read: "), "{text}");
    assert!(text.contains("it is not a regular file but a FIFO"), "{text}");
}

#[test]
fn a_directory_that_vanishes_changes_nothing() {
    let server = Server::start(&[("a.test.zone", &zone("a.test.", 1, "192.0.2.1"))], &[]);
    let away = server.home.path().join("away");
    std::fs::rename(server.zones(), &away).unwrap();
    let output = server.pharos(&["zone", "reload"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(server.ask("www.a.test"), (0, [192, 0, 2, 1]));
    // An empty one, as after a failed mount, is no order to forget everything.
    std::fs::create_dir(server.zones()).unwrap();
    let output = server.pharos(&["zone", "reload"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("nothing was changed"));
    assert_eq!(server.ask("www.a.test"), (0, [192, 0, 2, 1]));
    std::fs::remove_dir(server.zones()).unwrap();
    std::fs::rename(&away, server.zones()).unwrap();
    assert_eq!(server.pharos(&["zone", "reload"]).status.code(), Some(0));
}

#[test]
fn a_killed_server_starts_again_with_the_same_socket() {
    let mut server = Server::start(&[("a.test.zone", &zone("a.test.", 1, "192.0.2.1"))], &[]);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let listen = server.dns.to_string();
    let home = std::mem::replace(&mut server.home, tempfile::tempdir().unwrap());
    let again = Server::start_in(home, &["--listen", &listen]).ok().unwrap();
    assert_eq!(
        exchange_udp(server.dns, &question("www.a.test")).last_chunk(),
        Some(&[192, 0, 2, 1])
    );
    assert!(again.pharos(&["zone", "reload"]).status.success());
}

/// A disk that is full where the log and the output go stops nobody's answers.
#[test]
fn a_full_disk_does_not_stop_answers() {
    let home = write_zones(&[("a.test.zone", &zone("a.test.", 1, "192.0.2.1"))]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    // A free port, for there will be no output to read one from.
    let dns = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_ne!(dns.port(), socket.local_addr().unwrap().port());
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut child = Command::new(PHAROS)
        .args(["serve", "--listen", &dns.to_string(), "--admin", "127.0.0.1:0", "--zones"])
        .arg(home.path().join("zones"))
        .arg("--control")
        .arg(home.path().join("control.sock"))
        .stdout(full())
        .stderr(full())
        .spawn()
        .unwrap();
    let ask = || {
        socket.send_to(&question("www.a.test"), dns).unwrap();
        socket.recv(&mut [0; 512]).is_ok()
    };
    eventually("an answer", ask);
    // A reload that has much to complain about goes by as well.
    std::fs::write(home.path().join("zones/a.test.zone"), "nonsense\n".repeat(50)).unwrap();
    let reload = Command::new(PHAROS)
        .args(["zone", "reload", "--control"])
        .arg(home.path().join("control.sock"))
        .output()
        .unwrap();
    assert_eq!(reload.status.code(), Some(3));
    assert!(ask());
    assert!(child.try_wait().unwrap().is_none(), "it still runs");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn what_cannot_start_says_why() {
    let server = Server::start(&[("a.test.zone", &zone("a.test.", 1, "192.0.2.1"))], &[]);
    let run = |args: &[&str]| {
        let output = Command::new(PHAROS).arg("serve").args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let zones = server.zones();
    let zones = zones.to_str().unwrap();
    let busy =
        run(&["--listen", &server.dns.to_string(), "--zones", zones, "--admin", "127.0.0.1:0"]);
    assert!(busy.contains("another process listens there"), "{busy}");
    let gone =
        run(&["--listen", "127.0.0.1:0", "--zones", "/nowhere/at/all", "--admin", "127.0.0.1:0"]);
    assert!(gone.contains("the zone directory /nowhere/at/all cannot be read"), "{gone}");
    let none = run(&[]);
    assert!(none.contains("no zone directory; accepted: --zones DIR"), "{none}");
    let wrong = run(&["--listen", "localhost", "--zones", zones]);
    assert!(wrong.contains("`localhost` is no address; accepted: "), "{wrong}");
}

#[test]
fn includes_stay_inside_the_directory() {
    let text = |path: &str| format!("{}$INCLUDE {path}\n", zone("a.test.", 1, "192.0.2.1"));
    let server = Server::start(
        &[
            ("a.test.zone", &text("parts/more.inc")),
            ("out.test.zone", &text("../secret").replace("a.test", "out.test")),
        ],
        &[],
    );
    assert_eq!(server.ask("www.out.test").0, 2);
    assert!(server.log().contains("leads out of the zone directory"), "{}", server.log());
    assert_eq!(server.ask("www.a.test").0, 2, "its include is missing");
    std::fs::create_dir(server.zones().join("parts")).unwrap();
    std::fs::write(server.zones().join("parts/more.inc"), "more A 192.0.2.7\n").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", server.zones().join("link.inc")).unwrap();
    server.pharos(&["zone", "reload", "a.test"]);
    assert_eq!(server.ask("more.a.test"), (0, [192, 0, 2, 7]));
    // A change of the included file alone is noticed.
    std::fs::write(server.zones().join("parts/more.inc"), "more A 192.0.2.70\n").unwrap();
    server.pharos(&["zone", "reload"]);
    assert_eq!(server.ask("more.a.test"), (0, [192, 0, 2, 70]));
    std::fs::write(server.zones().join("out.test.zone"), text("link.inc")).unwrap();
    let output = server.pharos(&["zone", "reload"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("is a link out of the zone directory"), "{text}");
}

fn check_zone_files(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(PHAROS).args(["zone", "check"]).args(args).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn zone_check_is_for_editors_and_ci() {
    let home = write_zones(&[
        ("a.test.zone", &zone("a.test.", 1, "192.0.2.1")),
        ("b.test.zone", &zone("b.test.", 1, "192.0.2.999")),
    ]);
    let path = |name: &str| -> String {
        Path::new(&home.path().join("zones").join(name)).display().to_string()
    };
    let (code, text) = check_zone_files(&[&path("a.test.zone")]);
    assert_eq!(code, Some(0));
    assert!(text.contains("a.test. is good: serial 1, 4 records at 3 names"), "{text}");
    let (code, text) = check_zone_files(&[&path("a.test.zone"), &path("b.test.zone")]);
    assert_eq!(code, Some(1));
    assert!(text.contains("b.test.zone:6:7: error: "), "{text}");
    assert!(text.contains("1 of 2 files have errors"), "{text}");
    let without = zone("d.test.", 1, "192.0.2.1").replace("@ NS ns\n", "");
    std::fs::write(path("d.test.zone"), without).unwrap();
    let (code, text) = check_zone_files(&[&path("d.test.zone")]);
    assert!(code == Some(1) && text.contains("NS"), "{text}");
    assert_eq!(check_zone_files(&["--fleet", &path("d.test.zone")]).0, Some(0));
    std::fs::copy(path("a.test.zone"), path("copy.zone")).unwrap();
    let (code, text) = check_zone_files(&[&path("a.test.zone"), &path("copy.zone")]);
    assert_eq!(code, Some(1));
    assert!(text.contains("a.test.zone already holds the zone a.test.; accepted: "), "{text}");
    let large = std::fs::File::create(path("large.inc")).unwrap();
    large.set_len(2 << 30).unwrap();
    let text = zone("c.test.", 1, "192.0.2.1") + "$INCLUDE large.inc\n";
    std::fs::write(path("c.test.zone"), text).unwrap();
    let (code, text) = check_zone_files(&[&path("c.test.zone")]);
    assert_eq!(code, Some(1));
    assert!(text.contains("it has 2147483648 octets, and there is room for"), "{text}");
    let (code, text) = check_zone_files(&["--json", &path("b.test.zone"), "/nowhere.zone"]);
    assert_eq!(code, Some(1));
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["problems"][0]["line"], 6);
    assert_eq!(lines[1]["good"], false);
}
