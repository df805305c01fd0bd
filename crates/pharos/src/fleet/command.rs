//! `pharos fleet`: the virtual name servers of a running server.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Subcommand, value_parser};
use serde_json::{Value, json};

use super::{OFF_SECS_MAX, drill};
use crate::control::{self, Socket};
use crate::output::Output;

#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Show the fleet: its shape, what this host serves, shards in use
    Show {
        #[command(flatten)]
        socket: Socket,
    },
    /// Switch virtual name servers off, until they are switched on, their time
    /// is over, or the server restarts
    Off {
        /// Numbers of servers
        #[arg(value_name = "SERVER", required_unless_present = "zone")]
        servers: Vec<u16>,
        /// Those of this zone
        #[arg(long, value_name = "ZONE")]
        zone: Option<String>,
        /// For this long, 1 to 3600 seconds; one that is off for longer stays
        #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=OFF_SECS_MAX))]
        secs: Option<u64>,
        #[command(flatten)]
        socket: Socket,
    },
    /// Switch virtual name servers on again
    On {
        /// Numbers of servers; all if none is given
        #[arg(value_name = "SERVER")]
        servers: Vec<u16>,
        #[command(flatten)]
        socket: Socket,
    },
    /// Close virtual name servers to new zones; those they have stay
    Close {
        /// Numbers of servers
        #[arg(value_name = "SERVER", required = true)]
        servers: Vec<u16>,
        #[command(flatten)]
        socket: Socket,
    },
    /// Open virtual name servers to new zones again
    Open {
        /// Numbers of servers
        #[arg(value_name = "SERVER", required = true)]
        servers: Vec<u16>,
        #[command(flatten)]
        socket: Socket,
    },
    /// Switch the servers of one zone off, ask for every other zone as a
    /// resolver would, and switch them on again
    Drill {
        /// The zone whose servers are switched off
        #[arg(value_name = "ZONE")]
        zone: String,
        #[command(flatten)]
        socket: Socket,
    },
    /// Write which zone lives on which servers: CSV, a zone and its servers a
    /// line, as `pharos shard verify` reads it
    Export {
        /// The file; standard output if there is none
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        #[command(flatten)]
        socket: Socket,
    },
}

pub fn run(command: FleetCommand) -> Result<u8, String> {
    match command {
        FleetCommand::Show { socket } => {
            let status = socket.get("/v1/fleet")?;
            socket.print(&status, show)?;
        }
        FleetCommand::Off { mut servers, zone, secs, socket } => {
            if let Some(zone) = zone {
                servers.extend(servers_of(&socket.get(&control::zone_path(&zone))?)?);
            }
            let status = switch_off(&socket, &servers, secs)?;
            socket.print(&status, show)?;
        }
        FleetCommand::On { servers, socket } => {
            let status = switch_on(&socket, &servers)?;
            socket.print(&status, show)?;
        }
        FleetCommand::Close { servers, socket } => {
            let status = close(&socket, &servers, &[])?;
            socket.print(&status, show)?;
        }
        FleetCommand::Open { servers, socket } => {
            let status = close(&socket, &[], &servers)?;
            socket.print(&status, show)?;
        }
        FleetCommand::Drill { zone, socket } => return drill::run(&zone, &socket),
        FleetCommand::Export { file, socket } => export(file, &socket)?,
    }
    Ok(0)
}

/// Switches servers off, for `secs` or until they are switched on.
pub fn switch_off(socket: &Socket, servers: &[u16], secs: Option<u64>) -> Result<Value, String> {
    socket.post("/v1/fleet/switch", &json!({ "off": servers, "secs": secs }).to_string())
}

/// Switches servers on; all if none is named.
pub fn switch_on(socket: &Socket, servers: &[u16]) -> Result<Value, String> {
    socket.post("/v1/fleet/switch", &json!({ "on": servers }).to_string())
}

fn close(socket: &Socket, close: &[u16], open: &[u16]) -> Result<Value, String> {
    socket.post("/v1/fleet/close", &json!({ "close": close, "open": open }).to_string())
}

/// The numbers of the servers of a zone.
pub fn servers_of(zone: &Value) -> Result<Vec<u16>, String> {
    let servers = zone["servers"].as_array().into_iter().flatten();
    let numbers: Vec<u16> =
        servers.filter_map(|server| server["number"].as_u64()?.try_into().ok()).collect();
    match numbers.is_empty() {
        true => Err(format!(
            "{} is answered on every server; accepted: a zone that lives on a shard",
            zone["name"].as_str().unwrap_or("the zone")
        )),
        false => Ok(numbers),
    }
}

fn export(file: Option<PathBuf>, socket: &Socket) -> Result<(), String> {
    let text = socket.get_text("/v1/fleet/shards")?;
    match file {
        Some(path) => std::fs::write(&path, text)
            .map_err(|error| format!("{}: cannot be written: {error}", path.display())),
        None => Output::default().write_all(text.as_bytes()).map_err(crate::output::explain),
    }
}

fn show(out: &mut Output, status: &Value) -> io::Result<()> {
    let number = |key: &str| status[key].as_u64().unwrap_or_default();
    writeln!(
        out,
        "fleet    {} servers in {} stripes, {}",
        number("servers"),
        number("stripes"),
        status["pool"].as_str().unwrap_or_default()
    )?;
    writeln!(
        out,
        "shards   {} servers each, any two zones share {} at the most; {} zones have one, {} wait \
         after their zone went, {} are left",
        number("size"),
        number("overlap"),
        number("zones"),
        number("waiting"),
        status["left"]
    )?;
    let generation = match status["generation"].as_u64() {
        Some(generation) => format!("by the map of generation {generation}"),
        None => "there is no map of hosts".to_owned(),
    };
    writeln!(
        out,
        "host     {} answers on {} servers; {generation}",
        status["host"].as_str().unwrap_or_default(),
        number("serving")
    )?;
    for (key, note) in [("off", ""), ("closed", " to new zones")] {
        let servers = status[key].as_array().into_iter().flatten();
        let servers: Vec<String> = servers.map(Value::to_string).collect();
        if !servers.is_empty() {
            writeln!(out, "{key:<8} {}{note}", servers.join(" "))?;
        }
    }
    Ok(())
}
