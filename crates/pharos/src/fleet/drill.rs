//! `pharos fleet drill`: what everybody else notices when all name servers of
//! one zone are gone.
//!
//! The servers of the zone are switched off; then every other zone is asked
//! for over UDP as an unlucky resolver does it: first those of its servers that
//! are off, and after each silence the next. At the end the servers are on
//! again, but for those that were off before. They are switched off for a short
//! time that the drill renews, so that they come back even if it is killed.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::command::{servers_of, switch_off, switch_on};
use super::pool::Family;
use crate::control::{self, Socket};
use crate::output::Output;
use crate::random;

/// How long one server is waited for.
const PATIENCE: Duration = Duration::from_millis(400);
/// How long the servers stay off if the drill dies.
const OFF: Duration = Duration::from_secs(30);
/// How often that is renewed. The silence of all servers of a zone, which is
/// not interrupted for it, takes a few seconds more.
const RENEWAL: Duration = Duration::from_secs(5);
/// Zones of one page of the list.
const PAGE_LEN: usize = 1000;
/// Names that are told of zones that did not answer.
const LOST_MAX: usize = 20;

/// A zone and where it is asked for.
#[derive(Debug)]
struct Zone {
    name: String,
    servers: Vec<u16>,
    addresses: Vec<SocketAddr>,
}

/// Drills; the exit code says whether everybody else was answered.
pub fn run(name: &str, socket: &Socket) -> Result<u8, String> {
    let fleet = socket.get("/v1/fleet")?;
    let port = fleet["port"].as_u64().and_then(|port| port.try_into().ok());
    let port = port.ok_or("the server does not say at which port its fleet answers")?;
    let target = read_zone(&socket.get(&control::zone_path(name))?, port)?;
    let zones = all_zones(socket, port)?;
    let mut lease = Lease::take(socket, &target.servers)?;
    let found = look(&target, &zones, &mut || lease.renew(Instant::now()));
    let still_off = lease.end();
    if let Err(error) = &still_off {
        let secs = OFF.as_secs();
        tracing::error!("the servers come back by themselves within {secs} s, not now: {error}");
    }
    let mut findings = found?;
    findings["on_again"] = still_off.is_ok().into();
    findings["still_off"] = still_off.unwrap_or_default().into();
    socket.print(&findings, show)?;
    Ok(if is_good(&findings) { 0 } else { crate::EXIT_FAILED })
}

fn is_good(findings: &Value) -> bool {
    findings["zone_is_silent"] == true
        && findings["answered"] == findings["others"]
        && findings["on_again"] == true
}

/// Servers that are off as long as this is renewed.
struct Lease<'s> {
    socket: &'s Socket,
    servers: &'s [u16],
    /// Those that were on before, and shall be on again.
    own: Vec<u16>,
    renewed: Instant,
}

impl<'s> Lease<'s> {
    /// Switches `servers` off.
    fn take(socket: &'s Socket, servers: &'s [u16]) -> Result<Self, String> {
        let before = off_in(&socket.get("/v1/fleet")?);
        let own = servers.iter().copied().filter(|server| !before.contains(server)).collect();
        let lease = Lease { socket, servers, own, renewed: Instant::now() };
        switch_off(socket, servers, Some(OFF.as_secs()))?;
        Ok(lease)
    }

    /// Keeps the servers off, if it is time to.
    fn renew(&mut self, now: Instant) -> Result<(), String> {
        let age = now.saturating_duration_since(self.renewed);
        if is_due(age)? {
            switch_off(self.socket, self.servers, Some(OFF.as_secs()))?;
            self.renewed = now;
        }
        Ok(())
    }

    /// Switches those on that were on before; says which servers of the fleet
    /// are off then.
    fn end(self) -> Result<Vec<u16>, String> {
        let status = match &self.own[..] {
            // To name none would switch all on.
            [] => self.socket.get("/v1/fleet"),
            own => switch_on(self.socket, own),
        };
        status.map(|status| off_in(&status))
    }
}

/// Whether a lease of this age is to be renewed; an error if it ran out.
fn is_due(age: Duration) -> Result<bool, String> {
    match age < OFF {
        true => Ok(age >= RENEWAL),
        false => Err(format!(
            "the drill was held up for {} s, and the servers are switched on after {} s: what it \
             found does not count; start it again",
            age.as_secs(),
            OFF.as_secs()
        )),
    }
}

/// The servers that are off, as the server tells.
fn off_in(status: &Value) -> Vec<u16> {
    let off = status["off"].as_array().into_iter().flatten();
    off.filter_map(|server| server.as_u64()?.try_into().ok()).collect()
}

/// All zones that live on shards.
fn all_zones(socket: &Socket, port: u16) -> Result<Vec<Zone>, String> {
    let (mut zones, mut after) = (Vec::new(), None);
    loop {
        let page = socket.get(&control::zones_path(PAGE_LEN, after.as_deref()))?;
        for zone in page["zones"].as_array().into_iter().flatten() {
            // Those without a shard are the fleet's own, on every server.
            if let Ok(zone) = read_zone(zone, port) {
                zones.push(zone);
            }
        }
        after = page["next_after"].as_str().map(str::to_owned);
        if after.is_none() {
            return Ok(zones);
        }
    }
}

fn read_zone(zone: &Value, port: u16) -> Result<Zone, String> {
    let servers = servers_of(zone)?;
    let first_address = |server: &Value| -> Option<IpAddr> {
        server["addresses"].as_array()?.first()?.as_str()?.parse().ok()
    };
    let addresses = zone["servers"].as_array().into_iter().flatten().filter_map(first_address);
    let addresses = addresses.map(|address| SocketAddr::new(address, port)).collect();
    Ok(Zone { name: zone["name"].as_str().unwrap_or_default().to_owned(), servers, addresses })
}

/// Sockets to ask from, one for each kind of addresses that is asked.
#[derive(Debug, Default)]
struct Sockets {
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
}

impl Sockets {
    /// The socket for this address.
    fn to(&mut self, address: SocketAddr) -> io::Result<&UdpSocket> {
        let (socket, family) = match address {
            SocketAddr::V4(_) => (&mut self.v4, Family::V4),
            SocketAddr::V6(_) => (&mut self.v6, Family::V6),
        };
        if socket.is_none() {
            let new = UdpSocket::bind(family.any(0))?;
            new.set_read_timeout(Some(PATIENCE))?;
            *socket = Some(new);
        }
        socket.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Asks for every zone while the servers of `target` are off, which `renew`
/// keeps them.
fn look(
    target: &Zone,
    zones: &[Zone],
    renew: &mut dyn FnMut() -> Result<(), String>,
) -> Result<Value, String> {
    let mut sockets = Sockets::default();
    let size = target.servers.len();
    let (mut sharing, mut retries, mut lost) = (vec![0; size + 1], vec![0; size], Vec::new());
    let mut answered = 0;
    for zone in zones.iter().filter(|zone| zone.name != target.name) {
        let shared = zone.servers.iter().filter(|server| target.servers.contains(server)).count();
        sharing[shared] += 1;
        renew()?;
        match first_answer(&mut sockets, zone, &target.servers)? {
            Some(tries) => {
                answered += 1;
                retries[tries.min(size - 1)] += 1;
            }
            None => lost.push(zone.name.clone()),
        }
    }
    renew()?;
    let zone_is_silent = first_answer(&mut sockets, target, &[])?.is_none();
    let others = answered + lost.len();
    lost.truncate(LOST_MAX);
    Ok(json!({
        "zone": target.name,
        "off": target.servers,
        "zone_is_silent": zone_is_silent,
        "others": others,
        "answered": answered,
        "others_by_servers_shared": sharing,
        "others_by_retries": retries,
        "lost": lost,
    }))
}

/// How many servers of a zone were silent before one answered; `None` if all
/// were. Those in `off` are asked first.
fn first_answer(sockets: &mut Sockets, zone: &Zone, off: &[u16]) -> Result<Option<usize>, String> {
    let mut order: Vec<(&u16, &SocketAddr)> = zone.servers.iter().zip(&zone.addresses).collect();
    order.sort_by_key(|(server, _)| !off.contains(server));
    for (tries, (server, address)) in order.into_iter().enumerate() {
        let answers = sockets.to(*address).and_then(|socket| answers(socket, *address, &zone.name));
        let answers = answers.map_err(|error| {
            format!("cannot ask server {server} at {address} for {}: {error}", zone.name)
        })?;
        if answers {
            return Ok(Some(tries));
        }
    }
    Ok(None)
}

/// Whether the server at this address answers for the zone. What cannot be
/// sent is an error: nobody was silent then.
fn answers(socket: &UdpSocket, address: SocketAddr, zone: &str) -> io::Result<bool> {
    let question = question(zone);
    socket.send_to(&question, address)?;
    let mut answer = [0; 512];
    loop {
        match socket.recv_from(&mut answer) {
            Ok((len, from)) if from == address && is_answer(&question, &answer[..len]) => {
                return Ok(true);
            }
            Ok(_) => {}
            // With a timeout the kernel does not go on by itself after a signal.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}

/// A question for the SOA record of a zone.
fn question(zone: &str) -> Vec<u8> {
    let id: [u8; 2] = random::octets();
    let mut message = vec![id[0], id[1], 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    message.extend(wire::name::from_text(zone).unwrap_or_else(|_| vec![0]));
    message.extend([0, 6, 0, 1]);
    message
}

/// Whether this is an authoritative answer without error.
fn is_answer(question: &[u8], answer: &[u8]) -> bool {
    answer.len() > question.len()
        && answer[..2] == question[..2]
        && answer[2] & 0x84 == 0x84
        && answer[3] & 0x0f == 0
        && answer[7] > 0
}

fn show(out: &mut Output, findings: &Value) -> io::Result<()> {
    let list = |key: &str| -> Vec<String> {
        findings[key].as_array().into_iter().flatten().map(Value::to_string).collect()
    };
    let name = findings["zone"].as_str().unwrap_or_default();
    writeln!(out, "off      servers {}, all of {name}", list("off").join(" "))?;
    let silence = if findings["zone_is_silent"] == true { "silent" } else { "STILL ANSWERED" };
    writeln!(out, "{name:<8} {silence}")?;
    writeln!(out, "others   {} of {} zones answered", findings["answered"], findings["others"])?;
    for (shared, zones) in list("others_by_servers_shared").iter().enumerate() {
        if zones != "0" {
            writeln!(out, "         {zones} share {shared} of these servers")?;
        }
    }
    for (retries, zones) in list("others_by_retries").iter().enumerate() {
        if zones != "0" {
            writeln!(out, "         {zones} answered after {retries} silent servers")?;
        }
    }
    for lost in findings["lost"].as_array().into_iter().flatten() {
        writeln!(out, "LOST     {}", lost.as_str().unwrap_or_default())?;
    }
    let still_off = list("still_off").join(" ");
    match (findings["on_again"] == true, &still_off[..]) {
        (true, "") => writeln!(out, "on       all servers are on again"),
        (true, off) => writeln!(out, "on       all servers are as before; still off: {off}"),
        (false, _) => {
            writeln!(out, "NOT ON   the servers come back within {} s", OFF.as_secs())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_right_answers_count() {
        let question = question("a.test.");
        let mut answer = question.clone();
        answer[2] = 0x84;
        answer[7] = 1;
        answer.extend([0; 20]);
        assert!(is_answer(&question, &answer));
        for (at, octet) in [(0, answer[0] ^ 1), (2, 0x80), (2, 0x04), (3, 5), (7, 0)] {
            let mut wrong = answer.clone();
            wrong[at] = octet;
            assert!(!is_answer(&question, &wrong), "{at}");
        }
        assert!(!is_answer(&question, &question));
    }

    fn zone(address: SocketAddr) -> Zone {
        Zone { name: "a.test.".into(), servers: vec![7], addresses: vec![address] }
    }

    /// Answers one question.
    fn answer_once(server: &UdpSocket) {
        let mut message = [0; 512];
        let (len, from) = server.recv_from(&mut message).unwrap();
        (message[2], message[7]) = (0x84, 1);
        server.send_to(&message[..len + 20], from).unwrap();
    }

    #[test]
    fn servers_of_both_kinds_are_asked() {
        let mut sockets = Sockets::default();
        for own in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(server) = UdpSocket::bind(own) else {
                eprintln!("SKIPPED: this machine has no IPv6 loopback");
                assert!(std::env::var_os("CI").is_none_or(|ci| ci.is_empty()), "CI must have it");
                continue;
            };
            let zone = zone(server.local_addr().unwrap());
            let found = std::thread::scope(|scope| {
                scope.spawn(|| answer_once(&server));
                first_answer(&mut sockets, &zone, &[])
            });
            assert_eq!(found, Ok(Some(0)), "{own}");
            assert_eq!(first_answer(&mut sockets, &zone, &[]), Ok(None), "{own} is silent now");
        }
    }

    #[test]
    fn what_cannot_be_sent_is_no_silence() {
        // To broadcast, a socket needs a permission that these do not have.
        let zone = zone("255.255.255.255:53".parse().unwrap());
        let error = first_answer(&mut Sockets::default(), &zone, &[]).unwrap_err();
        let said = "cannot ask server 7 at 255.255.255.255:53 for a.test.: ";
        assert!(error.starts_with(said), "{error}");
    }

    #[test]
    fn leases_are_renewed_in_time_or_count_for_nothing() {
        let due = |secs| is_due(Duration::from_secs(secs));
        assert_eq!((due(0), due(4), due(5), due(29)), (Ok(false), Ok(false), Ok(true), Ok(true)));
        assert!(due(30).unwrap_err().contains("held up for 30 s"));
    }

    #[test]
    fn a_drill_whose_servers_are_not_on_again_is_not_good() {
        let mut findings =
            json!({ "zone_is_silent": true, "others": 3, "answered": 3, "on_again": true });
        assert!(is_good(&findings));
        findings["on_again"] = false.into();
        assert!(!is_good(&findings));
    }
}
