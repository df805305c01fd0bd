//! `pharos cache`: the operator's tools.

use std::io::{self, Write};
use std::path::PathBuf;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::control::Socket;
use crate::output::{self, Output};
use crate::peers;

/// Look after a cache
#[derive(Debug, clap::Subcommand)]
pub enum CacheCommand {
    /// Make the key that the nodes of a cluster share
    Keygen {
        /// A file that is not there yet
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Show how a node is doing
    Stats {
        /// Another node of the cluster than the one asked
        #[arg(long, value_name = "NAME")]
        node: Option<String>,
        #[command(flatten)]
        socket: Socket,
    },
    /// Show the members of the cluster as a node knows them
    Members {
        #[command(flatten)]
        socket: Socket,
    },
    /// Show which nodes answer for a name
    Owner {
        #[arg(value_name = "NAME")]
        name: String,
        /// The type asked for, as a number or one of A, AAAA, MX, TXT, NS, SOA,
        /// CNAME, PTR, SRV, HTTPS
        #[arg(long = "type", default_value = "A", value_name = "TYPE")]
        qtype: String,
        #[command(flatten)]
        socket: Socket,
    },
    /// List what a node's L2 holds
    Dump {
        #[command(flatten)]
        socket: Socket,
    },
    /// Forget a name on every node of the cluster
    Flush {
        #[arg(value_name = "NAME")]
        name: String,
        /// With all names below it
        #[arg(long)]
        subtree: bool,
        #[command(flatten)]
        socket: Socket,
    },
    /// Take a node's share away from it; it hands over what it has
    Drain {
        #[arg(value_name = "NODE")]
        node: String,
        #[command(flatten)]
        socket: Socket,
    },
    /// Give a drained node its share back
    Undrain {
        #[arg(value_name = "NODE")]
        node: String,
        #[command(flatten)]
        socket: Socket,
    },
}

pub fn run(command: CacheCommand) -> Result<u8, String> {
    match command {
        CacheCommand::Keygen { file } => {
            peers::create_key_file(&file)?;
            crate::say(format_args!(
                "{}: a new cluster key; copy it to every node, readable by the server alone",
                file.display()
            ));
        }
        CacheCommand::Stats { node, socket } => {
            let of = node.map_or(String::new(), |node| {
                format!("?node={}", utf8_percent_encode(&node, NON_ALPHANUMERIC))
            });
            socket.print(&socket.get(&format!("/v1/cache{of}"))?, show_stats)?;
        }
        CacheCommand::Members { socket } => {
            socket.print(&socket.get("/v1/cache/members")?, show_members)?;
        }
        CacheCommand::Owner { name, qtype, socket } => {
            let name = utf8_percent_encode(&name, NON_ALPHANUMERIC);
            let qtype = utf8_percent_encode(&qtype, NON_ALPHANUMERIC);
            let path = format!("/v1/cache/owner/{name}?type={qtype}");
            socket.print(&socket.get(&path)?, show_owner)?;
        }
        CacheCommand::Dump { socket } => return dump(&socket),
        CacheCommand::Flush { name, subtree, socket } => {
            let body = json!({ "name": name, "subtree": subtree }).to_string();
            let told = socket.post("/v1/cache/flush", &body)?;
            socket.print(&told, show_flush)?;
            return Ok(if told["done"] == true { 0 } else { crate::EXIT_FAILED });
        }
        CacheCommand::Drain { node, socket } => drain(&socket, &node, false)?,
        CacheCommand::Undrain { node, socket } => drain(&socket, &node, true)?,
    }
    Ok(0)
}

fn drain(socket: &Socket, node: &str, undo: bool) -> Result<(), String> {
    let body = json!({ "node": node, "undo": undo }).to_string();
    socket.print(&socket.post("/v1/cache/drain", &body)?, show_drain)
}

/// Prints all entries, page by page.
fn dump(socket: &Socket) -> Result<u8, String> {
    let (mut cell, mut cursor) = (0, 0);
    loop {
        let page = socket.get(&format!("/v1/cache/dump?cell={cell}&cursor={cursor}"))?;
        let mut out = Output::default();
        for entry in page["entries"].as_array().into_iter().flatten() {
            let written = match socket.is_json() {
                true => writeln!(out, "{}", output::json(entry)),
                false => show_entry(&mut out, entry),
            };
            written.map_err(output::explain)?;
        }
        let number = |key: &str| page["next"][key].as_u64();
        match (number("cell"), number("cursor")) {
            (Some(next_cell), Some(next)) => (cell, cursor) = (next_cell, next),
            _ => return Ok(0),
        }
    }
}

fn show_entry(out: &mut Output, entry: &Value) -> io::Result<()> {
    let text = |key: &str| entry[key].as_str().unwrap_or_default();
    let flags = match (entry["dnssec"] == true, entry["checking_disabled"] == true) {
        (true, true) => " do cd",
        (true, false) => " do",
        (false, true) => " cd",
        (false, false) => "",
    };
    let age = match entry["stale_secs"].as_u64() {
        Some(0) | None => format!("{} s left", entry["remaining_secs"]),
        Some(stale) => format!("{stale} s past its time"),
    };
    let qtype = entry["qtype"].as_u64().unwrap_or_default();
    let name = crate::counters::QTYPES.iter().find(|(number, _)| u64::from(*number) == qtype);
    let qtype = name.map_or_else(|| format!("TYPE{qtype}"), |(_, name)| (*name).to_owned());
    writeln!(out, "{:<48} {qtype:<6} {:<8} {age}{flags}", text("name"), text("kind"))
}

fn show_stats(out: &mut Output, node: &Value) -> io::Result<()> {
    let text = |key: &str| node[key].as_str().unwrap_or_default();
    writeln!(
        out,
        "{} in view {}, {} members, hash key {}, coordination {}",
        text("node"),
        node["view"],
        node["members"],
        node["key_epoch"],
        if node["coordination_reached"] == true { "reached" } else { "not reached" },
    )?;
    let total = |key: &str| node["totals"][key].as_u64().unwrap_or_default();
    let questions = total("questions").max(1);
    let share =
        |count: u64| format!("{count:>12}  {:>5.1} %", count as f64 * 100.0 / questions as f64);
    for (name, key) in [
        ("answered from L1", "l1_hits"),
        ("answered from own L2", "l2_hits"),
        ("answered from another's L2", "remote_hits"),
        ("answered after asking upstream", "misses"),
        ("of these joined a pending one", "coalesced"),
        ("answered past their time", "stale"),
        ("failed", "failures"),
    ] {
        writeln!(out, "{name:<32}{}", share(total(key)))?;
    }
    writeln!(out, "{:<32}{:>12}", "questions", total("questions"))?;
    let sum = |layer: &str, key: &str| {
        let cells = node["cells"].as_array().into_iter().flatten();
        cells.filter_map(|cell| cell[layer][key].as_u64()).sum::<u64>()
    };
    for layer in ["l1", "l2"] {
        writeln!(
            out,
            "{:<32}{:>12}  {} KiB, {} evicted",
            format!("entries in {}", layer.to_uppercase()),
            sum(layer, "entries"),
            sum(layer, "bytes") >> 10,
            sum(layer, "evicted")
        )?;
    }
    for (key, count) in node["totals"].as_object().into_iter().flatten() {
        if count.as_u64().unwrap_or_default() > 0 {
            writeln!(out, "  {:<30}{:>12}", key, count)?;
        }
    }
    Ok(())
}

fn show_members(out: &mut Output, page: &Value) -> io::Result<()> {
    for member in page["members"].as_array().into_iter().flatten() {
        let text = |key: &str| member[key].as_str().unwrap_or_default();
        let rtt = member["rtt_us"].as_u64().map_or(String::new(), |rtt| format!("  {rtt} µs"));
        writeln!(
            out,
            "{:<20} {:<12} {:<22} {:>6} slots  {}{}{}{rtt}",
            text("name"),
            text("datacenter"),
            text("peer"),
            member["slots"].as_u64().unwrap_or_default(),
            text("standing"),
            if member["self"] == true { ", this node" } else { "" },
            if member["suspect"] == true { ", silent" } else { "" },
        )?;
    }
    writeln!(out, "view {}, digest {}", page["view"], page["digest"].as_str().unwrap_or_default())
}

fn show_owner(out: &mut Output, page: &Value) -> io::Result<()> {
    writeln!(out, "slot {} in view {}", page["slot"], page["view"])?;
    for (rank, owner) in page["owners"].as_array().into_iter().flatten().enumerate() {
        let text = |key: &str| owner[key].as_str().unwrap_or_default();
        writeln!(out, "{}. {} ({}, cell {})", rank + 1, text("name"), text("peer"), owner["cell"])?;
    }
    Ok(())
}

fn show_flush(out: &mut Output, told: &Value) -> io::Result<()> {
    for (node, said) in told["nodes"].as_object().into_iter().flatten() {
        match said["error"].as_str() {
            Some(problem) => writeln!(out, "{node}: NOT flushed: {problem}")?,
            None => writeln!(out, "{node}: flushed, {} entries", said["removed"])?,
        }
    }
    Ok(())
}

fn show_drain(out: &mut Output, told: &Value) -> io::Result<()> {
    let node = told["node"].as_str().unwrap_or_default();
    if told["undo"] == true {
        return writeln!(out, "{node} gets its share back; the others hand it over");
    }
    let entries = &told["entries"];
    writeln!(
        out,
        "{node} owns nothing any more and hands over up to {entries} entries; back with: pharos \
         cache undrain {node}"
    )
}
