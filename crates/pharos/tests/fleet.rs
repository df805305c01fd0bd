//! Virtual name servers of the binary: its configuration, its ports, and who
//! else is on them.

mod common;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use common::{
    PATIENCE, Server, eventually, exchange_udp, frame, question, read_frame, write_zones, zone,
};

/// How long a test waits for what must not come.
const SILENCE: Duration = Duration::from_millis(300);
const REFUSED: u8 = 5;
const ANSWER: Option<&[u8; 4]> = Some(&[192, 0, 2, 9]);

/// A port that nobody has now.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// The configuration of a fleet with its state in `home`.
fn fleet_config(home: &Path, port: u16, servers: u32, pool: &str) -> String {
    format!(
        "[fleet]\npool = \"{pool}\"\nservers = {servers}\nport = {port}\nstate = {:?}\n\
         grace_hours = 0\ndomains = [\"a.ns.test\", \"b.ns.test\", \"c.ns.test\", \"d.ns.test\"]\n",
        home.join("fleet")
    )
}

/// A server with 16 virtual name servers from 127.53.9.0 on.
fn start(port: u16, flags: &[&str]) -> Result<Server, Output> {
    let home = write_zones(&[("a.test.zone", &zone("a.test.", 1, "192.0.2.9"))]);
    let config = home.path().join("pharos.toml");
    let fleet = fleet_config(home.path(), port, 16, "127.53.9.0/24");
    std::fs::write(&config, fleet).unwrap();
    let flags = [&["--config", config.to_str().unwrap()], flags].concat();
    Server::start_in(home, &flags)
}

fn ask_tcp(address: SocketAddr) -> Vec<u8> {
    use std::io::Write as _;
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&frame(&question("www.a.test"))).unwrap();
    read_frame(&mut stream)
}

fn check_answers(address: SocketAddr) {
    let udp = exchange_udp(address, &question("www.a.test"));
    assert_eq!(udp.last_chunk(), ANSWER, "{address}");
    assert_eq!(ask_tcp(address).last_chunk(), ANSWER, "{address}");
}

fn check_silent_udp(address: SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(&question("www.a.test"), address).unwrap();
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    assert!(socket.recv(&mut [0; 512]).is_err(), "{address}");
}

fn check_silent(address: SocketAddr) {
    check_silent_udp(address);
    assert!(TcpStream::connect_timeout(&address, SILENCE).is_err(), "{address}");
}

fn json(server: &Server, args: &[&str]) -> serde_json::Value {
    let output = server.pharos(&[args, &["--json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The port of the fleet.
fn fleet_port(server: &Server) -> u16 {
    json(server, &["fleet", "show"])["port"].as_u64().unwrap() as u16
}

/// The virtual name servers of a zone.
fn shard(server: &Server, zone: &str) -> Vec<u8> {
    let zone = json(server, &["zone", "show", zone]);
    zone["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["number"].as_u64().unwrap() as u8)
        .collect()
}

/// Asks the virtual name server `number`: the code of its answer.
fn rcode_at(number: u8, port: u16, name: &str) -> u8 {
    exchange_udp(SocketAddr::from(([127, 53, 9, number], port)), &question(name))[3] & 0xf
}

#[test]
fn a_zone_answers_on_its_servers_and_the_rest_of_the_host_does_not() {
    let server = start(0, &["--listen", "127.0.0.1:0"]).ok().unwrap();
    let log = server.log();
    assert!(log.contains("16 virtual name servers on 127.53.9.0 to 127.53.9.15, port "), "{log}");
    let port = fleet_port(&server);
    let own = shard(&server, "a.test");
    assert_eq!(own.len(), 4);
    let at = |ip: [u8; 4]| SocketAddr::from((ip, port));
    for number in 0..16 {
        match own.contains(&number) {
            true => check_answers(at([127, 53, 9, number])),
            false => assert_eq!(rcode_at(number, port, "www.a.test"), REFUSED),
        }
    }
    // The NS records are the shard, and the names lead to the addresses.
    let show = server.pharos(&["zone", "show", "a.test"]);
    let show = String::from_utf8_lossy(&show.stdout);
    let stripe = |number: u8| ["a", "b", "c", "d"][usize::from(number / 4)];
    for number in &own {
        let name = format!("ns-{number}.{}.ns.test", stripe(*number));
        assert!(show.contains(&format!("a.test. 172800 IN NS {name}.\n")), "{show}");
        assert!(show.contains(&format!("{name}. 172800 IN A 127.53.9.{number}\n")), "{show}");
        let answer = exchange_udp(at([127, 53, 9, 0]), &question(&name));
        assert_eq!(answer.last_chunk(), Some(&[127, 53, 9, *number]));
    }
    // Nobody takes the names of the servers away.
    let file = server.zones().join("evil.zone");
    let names = zone("a.ns.test.", 9, "192.0.2.9");
    for text in [&names, "garbage", &zone("ns-1.a.ns.test.", 9, "192.0.2.9")] {
        std::fs::write(&file, text).unwrap();
        let output = server.pharos(&["zone", "reload"]);
        assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stdout));
        let answer = exchange_udp(at([127, 53, 9, 9]), &question("ns-1.a.ns.test"));
        assert_eq!(answer.last_chunk(), Some(&[127, 53, 9, 1]));
    }
    std::fs::remove_file(&file).unwrap();
    assert!(server.pharos(&["zone", "reload"]).status.success());
    assert_eq!(rcode_at(0, port, "ns-1.a.ns.test"), 0);
    check_silent(at([127, 53, 9, 16]));
    check_silent(at([127, 53, 8, 255]));
    check_silent(at([127, 0, 0, 1]));
    // Where it listens besides, it answers as ever.
    check_answers(server.dns);
    let (_, metrics) = server.http("/metrics");
    assert!(metrics.contains("pharos_virtual_servers 16\n"), "{metrics}");
}

/// A server whose fleet shares its port with 127.0.0.1. Other tests open ports
/// too, so a free one may be taken before the server has it.
fn start_beside() -> (u16, String, Server) {
    for _ in 0..20 {
        let port = free_port();
        let own = format!("127.0.0.1:{port}");
        match start(port, &["--listen", &own]) {
            Ok(server) => return (port, own, server),
            Err(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(said.contains("another process listens there"), "{said}");
            }
        }
    }
    panic!("no free port");
}

#[test]
fn a_fleet_and_single_addresses_share_a_port() {
    let (port, own, server) = start_beside();
    check_answers(own.parse().unwrap());
    let number = shard(&server, "a.test")[0];
    check_answers(SocketAddr::from(([127, 53, 9, number], port)));
    check_silent(SocketAddr::from(([127, 0, 0, 2], port)));
    // A second one is noticed, with a fleet and without.
    let other = format!("127.0.0.3:{port}");
    for output in [start(port, &[]), start(0, &["--listen", &own]), start(0, &["--listen", &other])]
    {
        let output = output.err().expect("no second server");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("another process listens there"), "{said}");
    }
    drop(server);
    eventually("a start on the port that is free again", || {
        start(port, &["--listen", &own]).is_ok()
    });
}

#[test]
fn zones_keep_their_shards_through_kills_and_free_them_when_they_go() {
    let mut server = start(0, &["--listen", "127.0.0.1:0"]).ok().unwrap();
    let files = |name: &str| server.zones().join(name);
    let (b, c) = (files("b.test.zone"), files("c.test.zone"));
    std::fs::write(&b, zone("b.test.", 1, "192.0.2.9")).unwrap();
    assert!(server.pharos(&["zone", "reload", "b.test"]).status.success());
    let before = (shard(&server, "a.test"), shard(&server, "b.test"));
    let shared = before.0.iter().filter(|number| before.1.contains(number)).count();
    assert!(shared <= 2, "{before:?}");
    server.signal("KILL");
    server.child.wait().unwrap();
    let home = std::mem::replace(&mut server.home, tempfile::tempdir().unwrap());
    let config = home.path().join("pharos.toml");
    let flags = ["--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let server = Server::start_in(home, &flags).unwrap_or_else(|output| panic!("{output:?}"));
    assert_eq!((shard(&server, "a.test"), shard(&server, "b.test")), before);
    // Without a grace period the next zone gets the shard of one that went.
    std::fs::remove_file(&b).unwrap();
    assert!(server.pharos(&["zone", "reload"]).status.success());
    assert_eq!(json(&server, &["fleet", "show"])["zones"], 1);
    std::fs::write(&c, zone("c.test.", 1, "192.0.2.9")).unwrap();
    assert!(server.pharos(&["zone", "reload"]).status.success());
    assert_eq!(shard(&server, "c.test"), before.1);
    assert_eq!(shard(&server, "a.test"), before.0);
}

#[test]
fn servers_move_between_hosts_without_touching_zones() {
    let home = write_zones(&[("a.test.zone", &zone("a.test.", 1, "192.0.2.9"))]);
    let (config, map) = (home.path().join("pharos.toml"), home.path().join("map.toml"));
    let text = fleet_config(home.path(), 0, 16, "127.53.9.0/24");
    let node = "[node]\nname = 'here'\n";
    std::fs::write(&config, format!("{text}map = {map:?}\n{node}")).unwrap();
    let write_map = |generation: u32, here: &str, there: &str| {
        let hosts = format!("here = [{here}]\nthere = [{there}]\n");
        std::fs::write(&map, format!("generation = {generation}\n[hosts]\n{hosts}")).unwrap();
    };
    write_map(1, "'0-15'", "");
    let flags = ["--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let server = Server::start_in(home, &flags).unwrap_or_else(|output| panic!("{output:?}"));
    let (port, own) = (fleet_port(&server), shard(&server, "a.test"));
    let at = |number: u8| SocketAddr::from(([127, 53, 9, number], port));
    check_answers(at(own[0]));
    write_map(2, "", "'0-15'");
    assert!(server.pharos(&["zone", "reload"]).status.success());
    own.iter().for_each(|number| check_silent_udp(at(*number)));
    write_map(3, "'0-15'", "");
    assert!(server.pharos(&["zone", "reload"]).status.success());
    own.iter().for_each(|number| check_answers(at(*number)));
    assert_eq!(shard(&server, "a.test"), own);
    // An older map changes nothing, and is told.
    write_map(2, "", "'0-15'");
    let output = server.pharos(&["zone", "reload"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("an older map of generation 2"), "{said}");
    check_answers(at(own[0]));
}

#[test]
fn a_drill_shows_that_only_one_zone_is_gone() {
    let names: Vec<String> = (0..16).map(|number| format!("z{number}.test")).collect();
    let home = write_zones(&[]);
    for name in &names {
        let file = home.path().join("zones").join(format!("{name}.zone"));
        std::fs::write(file, zone(&format!("{name}."), 1, "192.0.2.9")).unwrap();
    }
    let config = home.path().join("pharos.toml");
    std::fs::write(&config, fleet_config(home.path(), 0, 32, "127.53.10.0/24")).unwrap();
    let flags = ["--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let server = Server::start_in(home, &flags).unwrap_or_else(|output| panic!("{output:?}"));
    let found = json(&server, &["fleet", "drill", "z7.test"]);
    assert_eq!((&found["zone_is_silent"], &found["answered"]), (&true.into(), &15.into()));
    let shared: Vec<u64> =
        serde_json::from_value(found["others_by_servers_shared"].clone()).unwrap();
    assert!(shared[1] + shared[2] > 0 && shared[3] + shared[4] == 0, "{found}");
    assert_eq!(json(&server, &["fleet", "show"])["off"], serde_json::json!([]));
    assert!(server.log().contains("secs=Some(30)"), "a killed drill would leave them off");
    // A closed server keeps its zones, and is told.
    let closed = json(&server, &["fleet", "close", "3", "17"])["closed"].clone();
    assert_eq!(closed, serde_json::json!([3, 17]));
    assert_eq!(json(&server, &["fleet", "open", "3"])["closed"], serde_json::json!([17]));
    let refused = server.pharos(&["fleet", "close", "32"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("no server 32 in a fleet of 32"), "{said}");
    // It fails when it should: with all servers of another zone off as well.
    assert!(server.pharos(&["fleet", "off", "--zone", "z8.test"]).status.success());
    let output = server.pharos(&["fleet", "drill", "z7.test"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && said.contains("LOST     z8.test."), "{said}");
    // What was off before is off afterwards, and nothing else.
    assert!(said.contains("on       all servers are as before; still off: "), "{said}");
    let off = json(&server, &["fleet", "show"])["off"].clone();
    assert_eq!(off, serde_json::json!(shard(&server, "z8.test")));
    let found = json(&server, &["fleet", "on"]);
    assert_eq!(found["off"], serde_json::json!([]));
    let refused = server.pharos(&["fleet", "drill", "a.ns.test"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("is answered on every server"), "{said}");
}

#[test]
fn servers_come_back_when_whoever_switched_them_off_is_gone() {
    let server = start(0, &["--listen", "127.0.0.1:0"]).ok().unwrap();
    let (port, own) = (fleet_port(&server), shard(&server, "a.test"));
    let at = |number: u8| SocketAddr::from(([127, 53, 9, number], port));
    let off = || json(&server, &["fleet", "show"])["off"].clone();
    // One that was off before stays off.
    let first = own[0].to_string();
    assert!(server.pharos(&["fleet", "off", &first]).status.success());
    assert!(server.pharos(&["fleet", "off", "--zone", "a.test", "--secs", "2"]).status.success());
    assert_eq!(off(), serde_json::json!(own));
    check_silent_udp(at(own[1]));
    eventually("the return of servers", || off() == serde_json::json!([own[0]]));
    own[1..].iter().for_each(|number| check_answers(at(*number)));
    check_silent_udp(at(own[0]));
    for secs in ["0", "3601"] {
        let refused = server.pharos(&["fleet", "off", "1", "--secs", secs]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains("3600"), "{said}");
    }
}

#[test]
fn whoever_has_the_port_is_found_before_anything_is_taken() {
    let taken = UdpSocket::bind("127.0.0.9:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let output = start(port, &[]).err().expect("no server beside another");
    let said = String::from_utf8_lossy(&output.stderr);
    // TCP comes first, and another test may have the port there.
    let is_told = said.contains(&format!("cannot listen on 0.0.0.0:{port} ("));
    assert!(is_told && said.contains(" of the fleet)"), "{said}");
}
