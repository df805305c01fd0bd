//! Virtual name servers of the binary: its configuration, its ports, and who
//! else is on them.

mod common;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Output;
use std::time::Duration;

use common::{PATIENCE, Server, exchange_udp, frame, question, read_frame, write_zones, zone};

/// How long a test waits for what must not come.
const SILENCE: Duration = Duration::from_millis(300);
const ANSWER: Option<&[u8; 4]> = Some(&[192, 0, 2, 9]);

/// A port that nobody has now.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// A server with 16 virtual name servers from 127.53.9.0 on.
fn start(port: u16, flags: &[&str]) -> Result<Server, Output> {
    let home = write_zones(&[("a.test.zone", &zone("a.test.", 1, "192.0.2.9"))]);
    let config = home.path().join("pharos.toml");
    let fleet = format!("[fleet]\npool = \"127.53.9.0/24\"\nservers = 16\nport = {port}\n");
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

fn check_silent(address: SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(&question("www.a.test"), address).unwrap();
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    assert!(socket.recv(&mut [0; 512]).is_err(), "{address}");
    assert!(TcpStream::connect_timeout(&address, SILENCE).is_err(), "{address}");
}

#[test]
fn virtual_servers_answer_and_the_rest_of_the_host_does_not() {
    let server = start(0, &[]).ok().unwrap();
    let log = server.log();
    let said = "16 virtual name servers on 127.53.9.0 to 127.53.9.15, port ";
    let rest = log.split_once(said).unwrap_or_else(|| panic!("{log}")).1;
    let port = rest.split(',').next().unwrap().parse().unwrap();
    let at = |ip: [u8; 4]| SocketAddr::from((ip, port));
    for last in [0, 7, 15] {
        check_answers(at([127, 53, 9, last]));
    }
    check_silent(at([127, 53, 9, 16]));
    check_silent(at([127, 53, 8, 255]));
    check_silent(at([127, 0, 0, 1]));
    // Where it listens besides, it answers as ever.
    check_answers(server.dns);
    let (_, metrics) = server.http("/metrics");
    assert!(metrics.contains("pharos_virtual_servers 16\n"), "{metrics}");
}

#[test]
fn a_fleet_and_single_addresses_share_a_port() {
    let port = free_port();
    let own = format!("127.0.0.1:{port}");
    let server = start(port, &["--listen", &own]).unwrap_or_else(|output| panic!("{output:?}"));
    check_answers(own.parse().unwrap());
    check_answers(SocketAddr::from(([127, 53, 9, 3], port)));
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
    start(port, &["--listen", &own]).unwrap_or_else(|output| panic!("{output:?}"));
}

#[test]
fn whoever_has_the_port_is_found_before_anything_is_taken() {
    let taken = UdpSocket::bind("127.0.0.9:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let output = start(port, &[]).err().expect("no server beside another");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains(&format!("cannot listen on 0.0.0.0:{port} (UDP of the fleet)")),
        "{said}"
    );
}
