//! `pharos shard`: shuffle shards on the command line.
//!
//! Nothing here needs a server: a fleet is given by a few numbers or a file,
//! the design follows from it, and every command says the same in words for
//! people and, with `--json`, in JSON for machines.

mod files;
mod plot;
mod told;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand, value_parser};
use serde::Serialize;
use shuffle::verify::verify;
use shuffle::{
    Admission, Design, DesignIndex, Fleet, Host, Key, KeyError, Nested, NestedIndex, Plan, Resize,
    Shard, Slot, SlotMap, Wish, blast, plan_resize, spectrum, suspects,
};

use crate::output::{self, Output};

/// Tenants that are counted one by one at the most.
const TENANTS_MAX: u64 = shuffle::TENANTS_MAX as u64;
/// Floods of the longest plot.
const FLOODS_MAX: i64 = 1024;

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
    /// Show one shard: by its number, by its workers, or by its tenant
    Show {
        /// A number; workers with commas between them; or the name of a tenant
        /// of --assignment
        #[arg(value_name = "INDEX|WORKERS|TENANT")]
        what: String,
        #[command(flatten)]
        design: DesignArgs,
        /// File of tenants and their workers, CSV or JSON
        #[arg(long, value_name = "FILE")]
        assignment: Option<PathBuf>,
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
        /// Pass shards of these workers over: they are drained, or in quarantine
        #[arg(long, value_name = "ID,…", value_delimiter = ',')]
        closed: Vec<String>,
        /// List the shards of the customers of the tenant with this shard
        #[arg(long, value_name = "INDEX", requires = "inner_size", conflicts_with = "closed")]
        within: Option<u64>,
        /// Workers of a customer's shard
        #[arg(long, value_name = "K", requires = "within")]
        inner_size: Option<usize>,
        /// Workers that two customers of a tenant may share; by default half
        #[arg(long, value_name = "T", requires = "within")]
        inner_overlap: Option<usize>,
        /// One JSON array of worker ids a line
        #[arg(long)]
        json: bool,
    },
    /// Count who loses how many workers when some fail or are flooded
    Blast {
        #[command(flatten)]
        sick: SickArgs,
        #[arg(long)]
        json: bool,
    },
    /// Count with how many others a shard shares how many workers
    Spectrum {
        #[command(flatten)]
        design: DesignArgs,
        #[arg(long)]
        json: bool,
    },
    /// Plan how workers are added, removed or replaced, step by step
    Resize {
        #[command(flatten)]
        design: DesignArgs,
        /// A worker that joins; with =COLUMN, for this column alone
        #[arg(long, value_name = "ID[=COLUMN]")]
        add: Vec<String>,
        /// A worker that leaves
        #[arg(long, value_name = "ID")]
        remove: Vec<String>,
        /// A worker that takes the place of another
        #[arg(long, value_name = "OLD=NEW")]
        replace: Vec<String>,
        /// Tenants that have the first shards, to count whom each step touches
        #[arg(
            long,
            default_value_t = 0,
            value_name = "N",
            value_parser = value_parser!(u64).range(..=TENANTS_MAX)
        )]
        tenants: u64,
        #[arg(long)]
        json: bool,
    },
    /// Find out what holds for any assignment of tenants to workers
    Verify {
        /// CSV (tenant,worker,worker,… a line) or JSON ({"tenant": [worker, …], …});
        /// a first line of CSV whose first field is `tenant` is a header, and
        /// passed over
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Fail if two tenants share more workers than this
        #[arg(long, value_name = "T")]
        overlap: Option<usize>,
        #[arg(long)]
        json: bool,
    },
    /// Find the tenants that sick workers have in common
    Suspects {
        #[command(flatten)]
        sick: SickArgs,
        /// Tenants that are listed at the most
        #[arg(long, default_value_t = 10, value_name = "N")]
        most: usize,
        #[arg(long)]
        json: bool,
    },
    /// Plot what floods take without shards, with plain and with shuffle shards
    Plot {
        #[command(flatten)]
        design: DesignArgs,
        /// Tenants that are flooded at once, at the most
        #[arg(
            long,
            default_value_t = 64,
            value_name = "N",
            value_parser = value_parser!(u32).range(1..=FLOODS_MAX)
        )]
        floods: u32,
        /// The SVG file; standard output if there is none
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

/// A fleet and what is wished of it.
#[derive(Clone, Debug, Args)]
pub struct DesignArgs {
    /// Number of workers, called 0, 1, 2 and so on
    #[arg(long, value_name = "N", conflicts_with = "fleet")]
    workers: Option<usize>,
    #[command(flatten)]
    wish: WishArgs,
}

/// What is wished of a fleet.
#[derive(Clone, Debug, Args)]
pub struct WishArgs {
    /// File of workers with their failure domains and weights: CSV with a
    /// header (id, weight, then one column for each dimension), or JSON
    #[arg(long, value_name = "FILE", conflicts_with = "stripes")]
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

/// Workers that are sick, and whom they may have as tenants: those of an
/// assignment, the first ones of a design, or all shards of a design.
#[derive(Clone, Debug, Args)]
pub struct SickArgs {
    /// The workers that failed, or are flooded
    #[arg(long, value_name = "ID,…", value_delimiter = ',', required = true)]
    workers: Vec<String>,
    /// Number of all workers; without it and --fleet there are 2048 in 4 stripes
    #[arg(long, value_name = "N", conflicts_with = "fleet")]
    total: Option<usize>,
    #[command(flatten)]
    wish: WishArgs,
    /// Count the first tenants of the design alone, so many
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(..=TENANTS_MAX))]
    tenants: Option<u64>,
    /// File of tenants and their workers, CSV or JSON, instead of a design
    #[arg(long, value_name = "FILE", conflicts_with_all = ["total", "fleet", "stripes", "tenants"])]
    assignment: Option<PathBuf>,
}

impl WishArgs {
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
                let text = files::read(path)?;
                let name = path.display().to_string();
                Key::from_hex(text.trim()).map_err(|error| explain(&name, error))
            }
            (None, None) => Ok(Key::PUBLIC),
        }
    }

    /// The plan for a fleet of so many workers, or of the file.
    fn plan(
        &self,
        workers: Option<usize>,
        tenants: Option<u64>,
    ) -> Result<(Workers, Plan), String> {
        let fleet = match (&self.fleet, workers) {
            (Some(path), _) => files::read_fleet(path)?,
            (None, Some(workers)) => {
                Fleet::numbered(workers, self.stripes).map_err(|error| error.to_string())?
            }
            (None, None) => return Err("no fleet; accepted: --workers N, or --fleet FILE".into()),
        };
        let plan = Plan::new(&fleet, &self.wish(tenants), &self.key()?)
            .map_err(|refusal| refusal.to_string())?;
        Ok((Workers { fleet, are_numbered: self.fleet.is_none() }, plan))
    }
}

impl DesignArgs {
    fn plan(&self, tenants: Option<u64>) -> Result<(Workers, Plan), String> {
        self.wish.plan(self.workers, tenants)
    }

    fn design(&self) -> Result<(Workers, Design), String> {
        self.plan(None).map(|(workers, plan)| (workers, plan.design))
    }
}

impl SickArgs {
    fn design(&self) -> Result<(Workers, Design), String> {
        let mut wish = self.wish.clone();
        let total = match (self.total, &wish.fleet, wish.stripes) {
            (None, None, stripes) => {
                wish.stripes = Some(stripes.unwrap_or(4));
                Some(2048)
            }
            (total, ..) => total,
        };
        wish.plan(total, None).map(|(workers, plan)| (workers, plan.design))
    }

    /// The slots of the sick workers; an error names the first unknown one.
    fn slots(&self, slot_of: impl Fn(&str) -> Option<Slot>) -> Result<Vec<Slot>, String> {
        let slot = |id: &String| {
            slot_of(id.trim())
                .ok_or_else(|| format!("--workers: there is no worker `{}`", id.trim()))
        };
        let mut slots = self.workers.iter().map(slot).collect::<Result<Vec<Slot>, _>>()?;
        slots.sort_unstable();
        match slots.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(_) => Err("--workers: a worker is named twice".into()),
            None => Ok(slots),
        }
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

    fn name(&self, slot: Slot) -> String {
        self.fleet.worker(slot).map_or_else(String::new, |worker| worker.id.clone())
    }

    fn names(&self, shard: &Shard) -> String {
        shard.iter().map(|slot| self.name(*slot)).collect::<Vec<_>>().join(" ")
    }

    fn slot(&self, id: &str) -> Option<Slot> {
        match self.are_numbered {
            true => id.parse().ok().map(Slot).filter(|slot| self.fleet.worker(*slot).is_some()),
            false => self.fleet.slot(id),
        }
    }
}

pub fn run(command: ShardCommand) -> Result<u8, String> {
    let mut out = BufWriter::new(Output::default());
    let mut code = 0;
    match command {
        ShardCommand::Plan { design, tenants, json } => {
            let (_, plan) = design.plan(tenants)?;
            print(&mut out, json, &told::ToldPlan::new(&plan))
        }
        ShardCommand::Show { what, design, assignment, json } => {
            print(&mut out, json, &show(&what, &design, assignment.as_deref())?)
        }
        ShardCommand::List {
            design,
            from,
            count,
            closed,
            within,
            inner_size,
            inner_overlap,
            json,
        } => {
            let key = design.wish.key()?;
            let (workers, design) = design.design()?;
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            match (within, inner_size) {
                (Some(tenant), Some(size)) => {
                    let overlap = inner_overlap.unwrap_or(size / 2);
                    let nested = Nested::within(Arc::new(design), size, overlap, &key)
                        .map_err(|error| error.to_string())?;
                    let customers = customers(&nested, tenant)?;
                    let shards = customers.skip_while(|(index, _)| index.get() < from).take(count);
                    list(&mut out, &workers, shards, json)
                }
                _ => {
                    let admission = admission(&workers, &design, &closed, &key)?;
                    let is_admitted =
                        |(index, shard): &(DesignIndex, Shard)| admission.admits(*index, shard);
                    let shards = design.shards(from).filter(is_admitted).take(count);
                    list(&mut out, &workers, shards, json)
                }
            }
        }
        ShardCommand::Blast { sick, json } => print(&mut out, json, &blast(&sick)?),
        ShardCommand::Spectrum { design, json } => {
            let (_, design) = design.design()?;
            let range = spectrum::across(&design).map_err(|error| error.to_string())?;
            print(&mut out, json, &told::ToldSpectrum::new(range))
        }
        ShardCommand::Resize { design, add, remove, replace, tenants, json } => {
            let (workers, design) = design.design()?;
            let wish = resize_wish(&workers, &add, &remove, &replace)?;
            print(&mut out, json, &resize(&workers, &design, &wish, tenants)?)
        }
        ShardCommand::Verify { file, overlap, json } => {
            let report = verify(&files::read_assignment(&file)?);
            let told = told::ToldReport::new(report, overlap);
            code = if told.is_broken() { crate::EXIT_FAILED } else { 0 };
            print(&mut out, json, &told)
        }
        ShardCommand::Suspects { sick, most, json } => {
            print(&mut out, json, &suspects(&sick, most)?)
        }
        ShardCommand::Plot { design, floods, file } => {
            let (_, design) = design.design()?;
            let svg = plot::blast_radius(&design, floods);
            match file {
                Some(path) => {
                    return std::fs::write(&path, svg).map(|()| 0).map_err(|error| {
                        format!("{}: cannot be written: {error}", path.display())
                    });
                }
                None => out.write_all(svg.as_bytes()),
            }
        }
    }
    .and_then(|()| out.flush())
    .map_err(output::explain)?;
    Ok(code)
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

/// Passes shards over by the weights of the workers, and those of closed ones.
fn admission(
    workers: &Workers,
    design: &Design,
    closed: &[String],
    key: &Key,
) -> Result<Admission, String> {
    let mut admission = Admission::by_weight(&workers.fleet, design, key);
    for id in closed {
        let slot = workers.slot(id.trim());
        admission
            .close(slot.ok_or_else(|| format!("--closed: there is no worker `{}`", id.trim()))?);
    }
    Ok(admission)
}

/// The shards of the customers of the tenant with the shard `tenant`.
fn customers(
    nested: &Nested,
    tenant: u64,
) -> Result<impl Iterator<Item = (DesignIndex, Shard)>, String> {
    let (tenant, _) =
        nested.outer().at(tenant).ok_or_else(|| format!("--within: there is no shard {tenant}"))?;
    let customer = move |(customer, _): (DesignIndex, Shard)| {
        Some((customer, nested.shard(NestedIndex { tenant, customer })?))
    };
    Ok(nested.inner().shards(0).filter_map(customer))
}

fn list(
    out: &mut dyn Write,
    workers: &Workers,
    shards: impl Iterator<Item = (DesignIndex, Shard)>,
    json: bool,
) -> io::Result<()> {
    for (index, shard) in shards {
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

fn show(
    what: &str,
    design: &DesignArgs,
    assignment: Option<&Path>,
) -> Result<told::ToldShard, String> {
    if let Some(path) = assignment {
        let assignment = files::read_assignment(path)?;
        let slots = assignment.shard(what).ok_or_else(|| {
            format!("no tenant `{what}` among the {} of the file", assignment.tenant_count())
        })?;
        let name = |slot: &Slot| assignment.worker(*slot).unwrap_or_default().to_owned();
        return Ok(told::ToldShard::of_tenant(what, slots.iter().map(name).collect()));
    }
    let (workers, design) = design.design()?;
    let (index, shard) = match what.contains(',') {
        true => {
            let slot = |id: &str| {
                workers.slot(id.trim()).ok_or_else(|| format!("there is no worker `{}`", id.trim()))
            };
            let slots: Vec<Slot> = what.split(',').map(slot).collect::<Result<_, _>>()?;
            let is_short = slots.len() <= shuffle::SIZE_MAX;
            let shard = is_short.then(|| Shard::new(slots));
            let index = shard.and_then(|shard| design.index(&shard));
            let index = index.ok_or("the design does not hold this shard")?;
            (index.get(), design.shard(index))
        }
        false => {
            let number: u64 = what.parse().map_err(|_| {
                format!("`{what}` is no number; the name of a tenant needs --assignment FILE")
            })?;
            if number >= design.index_end() {
                let end = design.index_end();
                return Err(format!("shard {number} of {end}; accepted: 0 to {}", end - 1));
            }
            (number, design.at(number).map(|(_, shard)| shard))
        }
    };
    let shard = shard.ok_or_else(|| {
        format!("shard {index} needs a worker that the fleet does not have; it is never handed out")
    })?;
    Ok(told::ToldShard::of_index(index, shard.iter().map(|slot| workers.name(*slot)).collect()))
}

fn blast(sick: &SickArgs) -> Result<told::ToldBlast, String> {
    if let Some(path) = &sick.assignment {
        let assignment = files::read_assignment(path)?;
        let failed = sick.slots(|id| assignment.slot(id))?;
        let blast = blast::of_shards(assignment.shards().map(|(_, slots)| slots), &failed);
        return Ok(told::ToldBlast::new(blast, &sick.workers, "the assignment"));
    }
    let (workers, design) = sick.design()?;
    let failed = sick.slots(|id| workers.slot(id))?;
    Ok(match sick.tenants {
        Some(tenants) => {
            let first = design.shards(0).map(|(_, shard)| shard).take(tenants as usize);
            let blast = blast::of_shards(first, &failed);
            told::ToldBlast::new(blast, &sick.workers, "the first tenants of the design")
        }
        None => {
            let blast = blast::of_design(&design, &failed).map_err(|error| {
                format!("{error}; --tenants N counts the first N tenants instead")
            })?;
            told::ToldBlast::new(blast, &sick.workers, "all shards of the design")
        }
    })
}

fn suspects(sick: &SickArgs, most: usize) -> Result<told::ToldSuspects, String> {
    if let Some(path) = &sick.assignment {
        let assignment = files::read_assignment(path)?;
        let slots = sick.slots(|id| assignment.slot(id))?;
        let found = suspects::rank(assignment.shards(), &slots, most);
        return Ok(told::ToldSuspects::ranked(found, slots.len()));
    }
    let (workers, design) = sick.design()?;
    let slots = sick.slots(|id| workers.slot(id))?;
    if let Some(tenants) = sick.tenants {
        let first = design.shards(0).take(tenants as usize);
        let named = first.map(|(index, shard)| (index.to_string(), shard));
        return Ok(told::ToldSuspects::ranked(suspects::rank(named, &slots, most), slots.len()));
    }
    let explanation = suspects::explain(&design, &slots).map_err(|error| error.to_string())?;
    Ok(told::ToldSuspects::explained(explanation, slots.len()))
}

fn resize_wish(
    workers: &Workers,
    add: &[String],
    remove: &[String],
    replace: &[String],
) -> Result<Resize, String> {
    let mut wish = Resize::new();
    for text in add {
        if text.split('=').next() == Some("") {
            return Err(format!("--add {text}: an empty id; accepted: ID, or ID=COLUMN"));
        }
        wish = wish.join(match text.split_once('=') {
            None => Host::anywhere(text.as_str()),
            Some((id, column)) => {
                let column = column.parse().map_err(|_| {
                    format!("--add {text}: `{column}` is no column; accepted: ID, or ID=COLUMN")
                })?;
                Host::in_column(id, column)
            }
        });
    }
    for id in remove {
        wish = wish.remove(id.as_str());
    }
    for text in replace {
        let (old, new) =
            text.split_once('=').ok_or_else(|| format!("--replace {text}: accepted: OLD=NEW"))?;
        if old.is_empty() || new.is_empty() {
            return Err(format!("--replace {text}: an empty id; accepted: OLD=NEW"));
        }
        // One that is not there yet joins to take the place.
        if workers.slot(new).is_none() {
            wish = wish.spare(Host::anywhere(new));
        }
        wish = wish.replace(old, new);
    }
    Ok(wish)
}

fn resize(
    workers: &Workers,
    design: &Design,
    wish: &Resize,
    tenants: u64,
) -> Result<told::ToldResize, String> {
    let map = SlotMap::of_fleet(design, &workers.fleet);
    let shards = design.shards(0).map(|(_, shard)| shard).take(tenants as usize);
    let shards: Vec<Shard> = shards.collect();
    let plan = plan_resize(&map, wish, shards.iter().copied()).map_err(|e| e.to_string())?;
    // Every plan is gone through step by step before it is shown.
    plan.check(design, &shards).map_err(|error| format!("the plan breaks the promise: {error}"))?;
    Ok(told::ToldResize::new(&plan))
}
