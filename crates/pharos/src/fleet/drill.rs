//! `pharos fleet drill`: what everybody else notices when all name servers of
//! one zone are gone.
//!
//! The servers of the zone are switched off; then every other zone is asked
//! for over UDP as an unlucky resolver does it: first those of its servers that
//! are off, and after each silence the next. At the end the servers are on again, whatever happened.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use serde_json::{Value, json};

use super::command::{servers_of, switch};
use crate::control::{self, Socket};
use crate::output::Output;
use crate::random;

/// How long one server is waited for.
const PATIENCE: Duration = Duration::from_millis(400);
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
    let findings = {
        let _on_again = Switched { socket, servers: &target.servers };
        switch(socket, &target.servers, &[])?;
        look(&target, &zones)?
    };
    socket.print(&findings, show)?;
    let is_good = findings["zone_is_silent"] == true && findings["answered"] == findings["others"];
    Ok(if is_good { 0 } else { crate::EXIT_FAILED })
}

/// Switches servers on when dropped.
struct Switched<'s> {
    socket: &'s Socket,
    servers: &'s [u16],
}

impl Drop for Switched<'_> {
    fn drop(&mut self) {
        if let Err(error) = switch(self.socket, &[], self.servers) {
            tracing::error!("the servers stay off: {error}; `pharos fleet on` switches them on");
        }
    }
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

/// Asks for every zone while the servers of `target` are off.
fn look(target: &Zone, zones: &[Zone]) -> Result<Value, String> {
    let failed = |error: io::Error| format!("cannot ask: {error}");
    let socket = UdpSocket::bind("0.0.0.0:0").map_err(failed)?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let size = target.servers.len();
    let (mut sharing, mut retries, mut lost) = (vec![0; size + 1], vec![0; size], Vec::new());
    let mut answered = 0;
    for zone in zones.iter().filter(|zone| zone.name != target.name) {
        let shared = zone.servers.iter().filter(|server| target.servers.contains(server)).count();
        sharing[shared] += 1;
        match first_answer(&socket, zone, &target.servers).map_err(failed)? {
            Some(tries) => {
                answered += 1;
                retries[tries.min(size - 1)] += 1;
            }
            None => lost.push(zone.name.clone()),
        }
    }
    let zone_is_silent = first_answer(&socket, target, &[]).map_err(failed)?.is_none();
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
fn first_answer(socket: &UdpSocket, zone: &Zone, off: &[u16]) -> io::Result<Option<usize>> {
    let mut order: Vec<(&u16, &SocketAddr)> = zone.servers.iter().zip(&zone.addresses).collect();
    order.sort_by_key(|(server, _)| !off.contains(server));
    for (tries, (_, address)) in order.into_iter().enumerate() {
        let question = question(&zone.name);
        // A port that nobody has is silence too.
        if socket.send_to(&question, address).is_err() {
            continue;
        }
        let mut answer = [0; 512];
        loop {
            match socket.recv_from(&mut answer) {
                Ok((len, from)) if from == *address && is_answer(&question, &answer[..len]) => {
                    return Ok(Some(tries));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => break,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(None)
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
    writeln!(out, "on       all servers are on again")
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
}
