//! `pharos shard`: shuffle shards on the command line.
//!
//! Nothing here needs a server: a fleet is given by a few numbers or a file,
//! the design follows from it, and every command says the same in words for
//! people and, with `--json`, in JSON for machines.

mod fleet_file;
mod told;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;
use shuffle::{Design, Fleet, Key, KeyError, Plan, Shard, Slot, Wish};

use crate::output::{self, Output};

#[derive(Debug, Subcommand)]
pub enum ShardCommand {
    /// Find the design for a fleet: how many shards, how near to the bound
    Plan {
        #[command(flatten)]
        design: DesignArgs,
        /// Tenants that there must be shards for
        #[arg(long, value_name = "N")]
        tenants: Option<u64>,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// List shards by number
    List {
        #[command(flatten)]
        design: DesignArgs,
        /// The first number
        #[arg(long, default_value_t = 0, value_name = "N")]
        from: u64,
        /// Shards at the most
        #[arg(long, default_value_t = 10, value_name = "N")]
        count: u64,
        /// One JSON array of worker ids a line
        #[arg(long)]
        json: bool,
    },
}

/// A fleet and what is wished of it.
#[derive(Clone, Debug, Args)]
pub struct DesignArgs {
    /// Number of workers, called 0, 1, 2 and so on
    #[arg(long, value_name = "N", required_unless_present = "fleet")]
    workers: Option<usize>,
    /// File of workers with their failure domains and weights: CSV with a
    /// header (id, weight, then one column for each dimension), or JSON
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workers", "stripes"])]
    fleet: Option<PathBuf>,
    /// Stripes that numbered workers are divided into; a shard never has two
    /// workers of one stripe
    #[arg(long, value_name = "N")]
    stripes: Option<usize>,
    /// Dimensions of the fleet file in which the workers of a shard must differ
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "fleet")]
    apart: Vec<String>,
    /// Workers of a shard
    #[arg(long, default_value_t = 4, value_name = "K")]
    size: usize,
    /// Workers that two shards may share; by default what --attackers allows,
    /// or half of a shard
    #[arg(long, value_name = "T")]
    overlap: Option<usize>,
    /// Tenants that may be flooded at once while all others keep a worker
    #[arg(long, value_name = "N")]
    attackers: Option<usize>,
    /// Workers that a stripe may grow to without moving any tenant
    #[arg(long, value_name = "N")]
    room: Option<u32>,
    /// Key that decides the order of the shards, in hexadecimal digits; others
    /// on this host can see it (see --key-file)
    #[arg(long, value_name = "HEX", conflicts_with = "key_file")]
    key: Option<String>,
    /// File that holds the key
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

impl DesignArgs {
    fn fleet(&self) -> Result<Fleet, String> {
        match (&self.fleet, self.workers) {
            (Some(path), _) => fleet_file::read_fleet(path),
            (None, Some(workers)) => {
                Fleet::numbered(workers, self.stripes).map_err(|error| error.to_string())
            }
            (None, None) => Err("no fleet: give --workers N or --fleet FILE".into()),
        }
    }

    fn wish(&self, tenants: Option<u64>) -> Wish {
        let stripes = self.stripes.iter().map(|_| shuffle::STRIPE.to_owned());
        Wish {
            size: self.size,
            overlap: self.overlap,
            attackers: self.attackers,
            tenants,
            apart: self.apart.iter().cloned().chain(stripes).collect(),
            room: self.room,
        }
    }

    fn key(&self) -> Result<Key, String> {
        let explain = |name: &str, error: KeyError| format!("{name}: {error}");
        match (&self.key, &self.key_file) {
            (Some(text), _) => Key::from_hex(text).map_err(|error| explain("--key", error)),
            (None, Some(path)) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| format!("{}: cannot be read: {error}", path.display()))?;
                let name = path.display().to_string();
                Key::from_hex(text.trim()).map_err(|error| explain(&name, error))
            }
            (None, None) => Ok(Key::PUBLIC),
        }
    }

    fn plan(&self, tenants: Option<u64>) -> Result<(Fleet, Plan), String> {
        let (fleet, key) = (self.fleet()?, self.key()?);
        let plan = Plan::new(&fleet, &self.wish(tenants), &key).map_err(|e| e.to_string())?;
        Ok((fleet, plan))
    }

    fn design(&self) -> Result<(Workers, Design), String> {
        let (fleet, plan) = self.plan(None)?;
        Ok((Workers { fleet, are_numbered: self.fleet.is_none() }, plan.design))
    }
}

/// The workers of a fleet, and how they are written.
struct Workers {
    fleet: Fleet,
    are_numbered: bool,
}

/// The id of a worker in JSON: a number if it is one.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum WorkerId<'f> {
    Number(u32),
    Name(&'f str),
}

impl Workers {
    fn id(&self, slot: Slot) -> WorkerId<'_> {
        match self.are_numbered {
            true => WorkerId::Number(slot.0),
            false => WorkerId::Name(self.fleet.worker(slot).map_or("", |worker| &worker.id)),
        }
    }

    fn ids(&self, shard: &Shard) -> Vec<WorkerId<'_>> {
        shard.iter().map(|slot| self.id(*slot)).collect()
    }

    fn names(&self, shard: &Shard) -> String {
        let name = |slot: &Slot| self.fleet.worker(*slot).map_or("", |worker| &worker.id);
        shard.iter().map(name).collect::<Vec<_>>().join(" ")
    }
}

pub fn run(command: ShardCommand) -> Result<u8, String> {
    let mut out = BufWriter::new(Output::default());
    match command {
        ShardCommand::Plan { design, tenants, json } => {
            let (_, plan) = design.plan(tenants)?;
            print(&mut out, json, &told::ToldPlan::new(&plan))
        }
        ShardCommand::List { design, from, count, json } => {
            let (workers, design) = design.design()?;
            list(&mut out, &workers, &design, from, count, json)
        }
    }
    .and_then(|()| out.flush())
    .map_err(output::explain)?;
    Ok(0)
}

/// What a command has to say, for machines and for people.
trait Told: Serialize {
    fn write(&self, out: &mut dyn Write) -> io::Result<()>;
}

fn print(out: &mut dyn Write, json: bool, told: &impl Told) -> io::Result<()> {
    match json {
        true => {
            serde_json::to_writer(&mut *out, told)?;
            writeln!(out)
        }
        false => told.write(out),
    }
}

fn list(
    out: &mut dyn Write,
    workers: &Workers,
    design: &Design,
    from: u64,
    count: u64,
    json: bool,
) -> io::Result<()> {
    for (index, shard) in design.shards(from).take(usize::try_from(count).unwrap_or(usize::MAX)) {
        match json {
            true => {
                serde_json::to_writer(&mut *out, &workers.ids(&shard))?;
                writeln!(out)?;
            }
            false => writeln!(out, "{index:>12}  {}", workers.names(&shard))?,
        }
    }
    Ok(())
}
