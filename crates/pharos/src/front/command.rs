//! `pharos front`: starts a front, or looks after a running one.

use std::io::{self, Write};

use clap::Subcommand;
use serde_json::{Value, json};

use super::config;
use crate::control::Socket;
use crate::output::Output;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct FrontArgs {
    #[command(subcommand)]
    command: Option<FrontCommand>,
    #[command(flatten)]
    flags: config::Flags,
}

#[derive(Debug, Subcommand)]
enum FrontCommand {
    /// Let no new questions go to a node; what it has been asked may end
    Drain {
        #[arg(value_name = "NODE")]
        node: String,
        #[command(flatten)]
        socket: Socket,
    },
    /// Let questions go to a node again
    Undrain {
        #[arg(value_name = "NODE")]
        node: String,
        #[command(flatten)]
        socket: Socket,
    },
    /// Show the nodes: how they stand, what they owe, how quick they are
    Status {
        #[command(flatten)]
        socket: Socket,
    },
}

pub fn run(args: FrontArgs) -> Result<u8, String> {
    let Some(command) = args.command else { return super::run(&args.flags) };
    match command {
        FrontCommand::Drain { node, socket } => drain(&node, true, socket),
        FrontCommand::Undrain { node, socket } => drain(&node, false, socket),
        FrontCommand::Status { socket } => {
            let socket = socket.or_at(config::default_control());
            let status = socket.get("/v1/front")?;
            socket.print(&status, show)
        }
    }?;
    Ok(0)
}

fn drain(node: &str, draining: bool, socket: Socket) -> Result<(), String> {
    let socket = socket.or_at(config::default_control());
    let body = json!({ "node": node, "draining": draining }).to_string();
    let status = socket.post("/v1/front/drain", &body)?;
    socket.print(&status, show)
}

fn show(out: &mut Output, status: &Value) -> io::Result<()> {
    writeln!(
        out,
        "{:<20} {:<24} {:<8} {:>8} {:>6} {:>12} {:>12} {:>8} {:>9} {:>9}",
        "node",
        "address",
        "standing",
        "waiting",
        "tcp",
        "questions",
        "answers",
        "retries",
        "p50",
        "p99"
    )?;
    for node in status["nodes"].as_array().into_iter().flatten() {
        let text = |key: &str| node[key].as_str().unwrap_or_default();
        let number = |key: &str| node[key].as_u64().unwrap_or_default();
        let time = |key: &str| match node[key].as_u64() {
            Some(us) if us >= 1000 => format!("{} ms", us / 1000),
            Some(us) => format!("{us} µs"),
            None => "-".to_owned(),
        };
        let standing = match node["draining"].as_bool() {
            Some(true) => "draining",
            _ => text("standing"),
        };
        writeln!(
            out,
            "{:<20} {:<24} {standing:<8} {:>8} {:>6} {:>12} {:>12} {:>8} {:>9} {:>9}",
            text("name"),
            text("address"),
            number("outstanding"),
            number("connections"),
            number("questions"),
            number("answers"),
            number("retries"),
            time("p50_us"),
            time("p99_us"),
        )?;
    }
    if let Some(is_reached) = status["coordination_reached"].as_bool() {
        let reached = if is_reached { "reached" } else { "not reached" };
        writeln!(out, "the coordination lists the nodes; it is {reached}")?;
    }
    if let Some(shard) = status["shard"].as_u64() {
        writeln!(out, "each client network has a shard of {shard} nodes")?;
    }
    Ok(())
}
