//! The binary: reads what it is told and starts the part that does it.

mod admin;
mod config;
mod control;
mod counters;
mod descriptors;
mod dev;
mod large_pages;
mod load;
mod metrics;
mod publish;
mod random;
mod reload;
mod serve;
mod sockets;
mod tcp;
mod udp;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

/// Something was wrong: with the input, or with the way.
const EXIT_FAILED: u8 = 1;
/// The server ran, but some zone files had errors when it stopped.
pub const EXIT_BAD_ZONES: u8 = 3;

/// DNS that keeps answering through floods, dead nodes and lost datacenters
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    /// How much to log: error, warn, info, debug; or a filter for tracing
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
    /// Serve zones from a directory
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
}

#[derive(Debug, Subcommand)]
enum ZoneCommand {
    /// Check zone files without serving them: all problems of all files
    Check {
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
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
    start_log(&cli.log, cli.log_format);
    let result = match cli.command {
        Command::Serve { config, flags } => {
            large_pages::ask();
            config::read(config.as_deref(), &flags).and_then(|config| {
                serve::run(&config, |sockets| {
                    for address in &sockets.addresses {
                        tracing::info!("DNS on {address}, UDP and TCP");
                    }
                    tracing::info!("admin HTTP on http://{}", sockets.admin_address);
                })
            })
        }
        Command::Dev { flags } => dev::run(flags),
        Command::Zone(command) => run_zone(command),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(text) => {
            eprintln!("pharos: {}", text.trim_end());
            ExitCode::from(EXIT_FAILED)
        }
    }
}

fn start_log(level: &str, format: LogFormat) {
    let filter = tracing_subscriber::EnvFilter::try_new(level)
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // It would complain about a full disk by writing to it, and panic.
        .log_internal_errors(false);
    match format {
        LogFormat::Text => log.with_target(false).init(),
        LogFormat::Json => log.json().init(),
    }
}

fn run_zone(command: ZoneCommand) -> Result<u8, String> {
    match command {
        ZoneCommand::Check { files, json } => Ok(check_files(&files, json)),
        ZoneCommand::Reload { zones, socket } => {
            let body = serde_json::json!({ "zones": zones }).to_string();
            let report = socket.post("/v1/reload", &body)?;
            socket.print(&report, control::show_report);
            Ok(if report["bad"].as_u64() == Some(0) { 0 } else { EXIT_BAD_ZONES })
        }
        ZoneCommand::List { limit, after, socket } => {
            let after = after.map_or(String::new(), |zone| format!("&after={zone}"));
            let page = socket.get(&format!("/v1/zones?limit={limit}{after}"))?;
            socket.print(&page, control::show_zones);
            Ok(0)
        }
        ZoneCommand::Show { zone, socket } => {
            let zone = socket.get(&format!("/v1/zones/{zone}"))?;
            socket.print(&zone, control::show_zone);
            Ok(0)
        }
    }
}

/// Writes a line for people to standard output. A full disk or a closed pipe
/// there is no reason to stop answering DNS.
pub fn say(line: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Checks files one by one; the exit code says whether all are good.
fn check_files(files: &[PathBuf], json: bool) -> u8 {
    let mut bad = 0;
    let mut checker = load::Checker::default();
    for file in files {
        let (image, problems) = checker.check(file);
        if json {
            println!("{}", control::check_as_json(file, image.as_ref(), &problems));
        } else {
            print!("{problems}");
            if let Some(image) = &image {
                println!(
                    "{}: {} is good: serial {}, {} records at {} names",
                    file.display(),
                    image.origin(),
                    image.serial(),
                    image.records(),
                    image.names()
                );
            }
        }
        bad += usize::from(image.is_none());
    }
    if bad > 0 && !json {
        println!("{bad} of {} files have errors", files.len());
    }
    if bad > 0 { EXIT_FAILED } else { 0 }
}
