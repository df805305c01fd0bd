//! The binary: reads what it is told and starts the part that does it.

mod admin;
mod config;
mod control;
mod coordination;
mod counters;
mod descriptors;
mod dev;
mod drains;
mod fleet;
mod front;
mod lab;
mod large_pages;
mod load;
mod metrics;
mod node;
mod output;
mod peers;
mod publish;
mod random;
mod reload;
mod runbook;
mod serve;
mod shard;
mod sockets;
mod tcp;
mod udp;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use base::text::many_lines;
use clap::{Parser, Subcommand, ValueEnum};
use fleet::Fleet;
use output::Output;
use tracing_subscriber::EnvFilter;

/// Something was wrong: with the input, or with the way.
pub const EXIT_FAILED: u8 = 1;
/// The server ran, but some zone files had errors when it stopped.
pub const EXIT_BAD_ZONES: u8 = 3;

/// DNS that keeps answering through floods, dead nodes and lost datacenters
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    /// How much to log: off, error, warn, info, debug, trace; or a filter, as
    /// in info,pharos::tcp=debug
    #[arg(long, global = true, default_value = "info", value_name = "LEVEL")]
    log: String,
    /// Form of the log
    #[arg(long, global = true, default_value = "text")]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve zones, a cache, drains, or several of them
    Serve {
        /// Configuration file (TOML); flags win over it
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        #[command(flatten)]
        flags: config::Flags,
    },
    /// Serve sample zones on loopback, to try things out
    Dev {
        #[command(flatten)]
        flags: config::Flags,
    },
    /// Look after zones
    #[command(subcommand)]
    Zone(ZoneCommand),
    /// Look after the virtual name servers of a running server
    #[command(subcommand)]
    Fleet(fleet::command::FleetCommand),
    /// Spread questions over nodes, or look after a front that does
    Front(front::command::FrontArgs),
    /// Look after a cache and its cluster
    #[command(subcommand)]
    Cache(node::CacheCommand),
    #[command(flatten)]
    Drains(drains::command::DrainCommand),
    /// Check, plan and draw runbooks; needs no server
    #[command(subcommand)]
    Runbook(runbook::RunbookCommand),
    /// Plan and examine shuffle shards; needs no server
    #[command(subcommand)]
    Shard(shard::ShardCommand),
    /// Try drains in a simulated world; needs no server
    #[command(subcommand)]
    Lab(lab::LabCommand),
    /// Run a command of an `exec` driver, and end it with the server that starts this
    #[command(hide = true)]
    Supervise {
        /// Run it in place of this process, to be killed with its parent, process PID
        #[arg(long, value_name = "PID")]
        tied_to: Option<u32>,
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
}

#[derive(Debug, Subcommand)]
enum ZoneCommand {
    /// Check zone files without serving them: all problems of all files
    Check {
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// The zones will live on a fleet, which gives them their NS records
        #[arg(long)]
        fleet: bool,
        /// One JSON object a file
        #[arg(long)]
        json: bool,
    },
    /// Make a running server read its zone files again
    Reload {
        /// Only these zones; all if none is given
        #[arg(value_name = "ZONE")]
        zones: Vec<String>,
        #[command(flatten)]
        socket: control::Socket,
    },
    /// List the zones of a running server
    List {
        /// Zones at the most
        #[arg(long, default_value_t = 100)]
        limit: usize,
        /// Start behind this zone
        #[arg(long, value_name = "ZONE")]
        after: Option<String>,
        #[command(flatten)]
        socket: control::Socket,
    },
    /// Show one zone of a running server
    Show {
        #[arg(value_name = "ZONE")]
        zone: String,
        #[command(flatten)]
        socket: control::Socket,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = start_log(&cli.log, cli.log_format).and_then(|()| run(cli.command));
    match result {
        Ok(code) => ExitCode::from(code),
        Err(text) => {
            // A full disk under it must not turn an error into a panic.
            let _ = writeln!(io::stderr(), "pharos: {}", many_lines(text.trim_end()));
            ExitCode::from(EXIT_FAILED)
        }
    }
}

fn run(command: Command) -> Result<u8, String> {
    match command {
        Command::Serve { config, flags } => {
            large_pages::ask();
            config::read(config.as_deref(), &flags).and_then(|config| {
                serve::run(&config, |sockets| {
                    for address in &sockets.addresses {
                        tracing::info!("DNS on {address}, UDP and TCP");
                    }
                    if let Some(Fleet { pool, port }) = &sockets.fleet {
                        let servers = pool.servers();
                        tracing::info!(
                            "{servers} virtual name servers on {pool}, port {port}, UDP and TCP"
                        );
                    }
                    if let Some(cache) = &sockets.cache {
                        for address in &cache.addresses {
                            tracing::info!("cache on {address}, UDP and TCP");
                        }
                        if cache.grpc.is_some() {
                            tracing::info!("peers on {}, UDP and TCP", cache.peer_address);
                        }
                    }
                    if sockets.admin.is_some() {
                        tracing::info!("admin HTTP on http://{}", sockets.admin_address);
                    }
                })
            })
        }
        Command::Dev { flags } => dev::run(flags),
        Command::Zone(command) => run_zone(command),
        Command::Fleet(command) => fleet::command::run(command),
        Command::Front(args) => front::command::run(args),
        Command::Cache(command) => node::run_command(command),
        Command::Drains(command) => drains::command::run(command),
        Command::Runbook(command) => runbook::run(command),
        Command::Shard(command) => shard::run(command),
        Command::Lab(command) => lab::run(command),
        Command::Supervise { tied_to: Some(parent), command } => {
            drivers::exec::run_tied(parent, &command)
        }
        Command::Supervise { tied_to: None, command } => {
            drivers::exec::supervise(&["/proc/self/exe", "supervise", "--tied-to"], &command)
        }
    }
}

/// Reads what `--log` says. A word alone must be a level: tracing would take
/// it for the name of a module, and log nothing.
fn log_filter(text: &str) -> Result<EnvFilter, String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let failed = |what: String| {
        format!(
            "--log {text}: {what}; accepted: {}, or a filter as in info,pharos::tcp=debug",
            LEVELS.join(", ")
        )
    };
    let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
    let is_filter = |word: &str| word.contains(['=', '[']);
    match text.split(',').map(str::trim).find(|word| !is_level(word) && !is_filter(word)) {
        Some(word) => Err(failed(format!("`{word}` is no level"))),
        None => EnvFilter::try_new(text).map_err(|error| failed(error.to_string())),
    }
}

fn start_log(level: &str, format: LogFormat) -> Result<(), String> {
    // What these say about every retry is said once by the coordination.
    let level = format!("zookeeper_client=off,chitchat=error,{level}");
    let filter = log_filter(&level)?;
    let is_painted = io::stderr().is_terminal();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || output::Log { is_painted })
        .with_ansi(is_painted)
        // It would complain about a full disk by writing to it, and panic.
        .log_internal_errors(false);
    match format {
        LogFormat::Text => log.with_target(false).init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

fn run_zone(command: ZoneCommand) -> Result<u8, String> {
    match command {
        ZoneCommand::Check { files, fleet, json } => {
            check_files(&files, fleet, json).map_err(output::explain)
        }
        ZoneCommand::Reload { zones, socket } => {
            let body = serde_json::json!({ "zones": zones }).to_string();
            let report = socket.post("/v1/reload", &body)?;
            socket.print(&report, control::show_report)?;
            Ok(if report["bad"].as_u64() == Some(0) { 0 } else { EXIT_BAD_ZONES })
        }
        ZoneCommand::List { limit, after, socket } => {
            let page = socket.get(&control::zones_path(limit, after.as_deref()))?;
            socket.print(&page, control::show_zones)?;
            Ok(0)
        }
        ZoneCommand::Show { zone, socket } => {
            let zone = socket.get(&control::zone_path(&zone))?;
            socket.print(&zone, control::show_zone_whole)?;
            Ok(0)
        }
    }
}

/// Writes a line for people to standard output. A full disk or a closed pipe
/// there is no reason to stop answering DNS.
pub fn say(line: std::fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Checks files one by one; the exit code says whether all are good.
fn check_files(files: &[PathBuf], fleet: bool, json: bool) -> io::Result<u8> {
    let mut out = Output::default();
    let mut bad = 0;
    let mut checker = load::Checker::new(fleet);
    for file in files {
        let (image, problems) = checker.check(file);
        if json {
            writeln!(out, "{}", control::check_as_json(file, image.as_ref(), &problems))?;
        } else {
            write!(out, "{problems}")?;
            if let Some(image) = &image {
                writeln!(
                    out,
                    "{}: {} is good: serial {}, {} records at {} names",
                    file.display(),
                    image.origin(),
                    image.serial(),
                    image.records(),
                    image.names()
                )?;
            }
        }
        bad += usize::from(image.is_none());
    }
    if bad > 0 && !json {
        writeln!(out, "{bad} of {} files have errors", files.len())?;
    }
    Ok(if bad > 0 { EXIT_FAILED } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_level_is_refused() {
        for text in ["info", "WARN", "off", "info,pharos::tcp=debug", "pharos=trace"] {
            assert!(log_filter(text).is_ok(), "{text}");
        }
        for text in ["loud", "pharos=loud", "info,loud", "", "warn,"] {
            let error = log_filter(text).unwrap_err();
            assert!(error.contains("accepted: off, error, warn"), "{error}");
        }
    }
}
