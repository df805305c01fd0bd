//! CPU time and memory: of this thread, and from /proc of a server and all its children.

use std::collections::HashMap;
use std::fs;
use std::ops::Sub;

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// CPU time of the calling thread, which stands still while others have the core.
pub fn thread_nanos() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// CPU seconds of some processes since they started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    pub user_secs: f64,
    pub kernel_secs: f64,
}

impl Cpu {
    pub fn total_secs(self) -> f64 {
        self.user_secs + self.kernel_secs
    }
}

/// Bytes in memory of some processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Pages shared by several processes count once, in parts: right for servers that fork.
    pub pss_bytes: u64,
    pub rss_bytes: u64,
}

/// A reading of the CPU clocks; the difference of two is a [`Cpu`].
///
/// The scheduler's clock is exact but does not know user from kernel. The ticks do, so they
/// divide the exact sum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuReading {
    exact_ns: u64,
    user_ticks: u64,
    kernel_ticks: u64,
}

impl CpuReading {
    /// Since the process started, in ticks: the exact clocks of threads that have ended went
    /// with them.
    pub fn since_start_secs(&self) -> f64 {
        let ticks = self.user_ticks + self.kernel_ticks;
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64
    }
}

impl Sub for CpuReading {
    type Output = Cpu;

    fn sub(self, earlier: CpuReading) -> Cpu {
        let total_secs = self.exact_ns.saturating_sub(earlier.exact_ns) as f64 / 1e9;
        let user = self.user_ticks.saturating_sub(earlier.user_ticks) as f64;
        let kernel = self.kernel_ticks.saturating_sub(earlier.kernel_ticks) as f64;
        let user_share = if user + kernel > 0.0 { user / (user + kernel) } else { 0.0 };
        let user_secs = total_secs * user_share;
        Cpu { user_secs, kernel_secs: total_secs - user_secs }
    }
}

/// The process and all below it.
pub fn family(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for pid in numbers_in("/proc") {
        if let Some(stat) = read_stat(pid) {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        found.extend(children.remove(&found[next]).unwrap_or_default());
        next += 1;
    }
    found
}

/// Sums the clocks of all threads of `pids`.
pub fn read_cpu(pids: &[u32]) -> Result<CpuReading> {
    let mut sum = CpuReading::default();
    for &pid in pids {
        let stat = read_stat(pid).with_context(|| format!("process {pid} has gone"))?;
        sum.user_ticks += stat.user_ticks;
        sum.kernel_ticks += stat.kernel_ticks;
        let tasks = format!("/proc/{pid}/task");
        for task in numbers_in(&tasks) {
            let text = fs::read_to_string(format!("{tasks}/{task}/schedstat")).unwrap_or_default();
            sum.exact_ns += parse_schedstat(&text).unwrap_or(0);
        }
    }
    Ok(sum)
}

/// Sums the memory of `pids`.
pub fn read_memory(pids: &[u32]) -> Result<Memory> {
    let mut sum = Memory::default();
    for pid in pids {
        let file = format!("/proc/{pid}/smaps_rollup");
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
        let field =
            |name| parse_kib(&text, name).with_context(|| format!("{file} has no field {name}"));
        sum.pss_bytes += field("Pss:")?;
        sum.rss_bytes += field("Rss:")?;
    }
    Ok(sum)
}

/// CPU seconds that anything used on `cores` since boot, stolen time included.
pub fn read_busy_secs(cores: &[usize]) -> Result<f64> {
    let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let ticks = cores.iter().map(|&core| parse_ticks(&text, core).map(|ticks| ticks.busy));
    let ticks = ticks.sum::<Option<u64>>().context("/proc/stat lacks a core")?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Ticks that the hypervisor took from `cores` since boot.
pub fn read_stolen_ticks(cores: &[usize]) -> Result<u64> {
    let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let ticks = cores.iter().map(|&core| parse_ticks(&text, core).map(|ticks| ticks.steal));
    ticks.sum::<Option<u64>>().context("/proc/stat lacks a core")
}

/// Datagrams that the UDP sockets of 127.0.0.1 at `port` had no room for: proc_net_udp in
/// the kernel's networking documentation; the last column.
pub fn dropped_at(port: u16) -> Result<u64> {
    let text = fs::read_to_string("/proc/net/udp").context("cannot read /proc/net/udp")?;
    Ok(parse_dropped(&text, port))
}

fn parse_dropped(text: &str, port: u16) -> u64 {
    let address = format!("0100007F:{port:04X}");
    let own = text.lines().filter(|line| line.split_whitespace().nth(1) == Some(&address));
    own.filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok()).sum()
}

/// When the process started, in ticks after boot; tells it from a later one with its number.
pub fn start_ticks(pid: u32) -> Option<u64> {
    read_stat(pid).map(|stat| stat.start_ticks)
}

fn numbers_in(dir: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn read_stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

#[derive(Debug, PartialEq)]
struct Stat {
    parent: u32,
    user_ticks: u64,
    kernel_ticks: u64,
    start_ticks: u64,
}

/// proc_pid_stat(5). The command, in parentheses, may hold spaces and parentheses itself.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, after_command) = text.rsplit_once(')')?;
    // The first of these is field 3, the state.
    let fields: Vec<&str> = after_command.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3);
    Some(Stat {
        parent: field(4)?.parse().ok()?,
        user_ticks: field(14)?.parse().ok()?,
        kernel_ticks: field(15)?.parse().ok()?,
        start_ticks: field(22)?.parse().ok()?,
    })
}

/// Nanoseconds on a CPU.
fn parse_schedstat(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// What a core did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    /// Neither idle nor waiting, stolen ones included.
    busy: u64,
    steal: u64,
}

/// Ticks of `core`: proc_stat(5).
fn parse_ticks(text: &str, core: usize) -> Option<Ticks> {
    let label = format!("cpu{core} ");
    let fields = text.lines().find_map(|line| line.strip_prefix(&label))?;
    let ticks: Vec<u64> = fields.split(' ').map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, _idle, _waiting, irq, softirq, steal, ..] = ticks[..] else {
        return None;
    };
    Some(Ticks { busy: user + nice + system + irq + softirq + steal, steal })
}

/// `Name:   123 kB` as bytes.
pub fn parse_kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_with_a_difficult_command() {
        let text = "77 (a) b (c) S 12 77 77 0 -1 4194560 1 2 3 4 501 1502 7 8 20 0 3 0 998877 1 2";
        let stat = Stat { parent: 12, user_ticks: 501, kernel_ticks: 1502, start_ticks: 998_877 };
        assert_eq!(parse_stat(text), Some(stat));
        assert_eq!(parse_stat("77 (a) S 12"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn schedstat_and_kib_fields() {
        assert_eq!(parse_schedstat("684194 0 3\n"), Some(684_194));
        assert_eq!(parse_schedstat(""), None);
        let text = "Rss:                 100 kB\nPss_Dirty:  7 kB\nPss:   12 kB\n";
        assert_eq!(parse_kib(text, "Pss:"), Some(12 * 1024));
        assert_eq!(parse_kib(text, "Swap:"), None);
    }

    #[test]
    fn dropped_datagrams_of_a_port() {
        let text = "  sl  local_address rem_address   st ... drops\n\
            1: 0100007F:1234 00000000:0000 07 00000000:00000000 00:0 00000000 0 0 9 2 0 17\n\
            2: 0100007F:1234 00000000:0000 07 00000000:00000000 00:0 00000000 0 0 9 2 0 3\n\
            3: 0100007F:1235 00000000:0000 07 00000000:00000000 00:0 00000000 0 0 9 2 0 5\n";
        assert_eq!(parse_dropped(text, 0x1234), 20);
        assert_eq!(parse_dropped(text, 0x1236), 0);
    }

    #[test]
    fn busy_ticks_of_a_core() {
        let text =
            "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 500 600 4 5 6 7 8\ncpu1 1 0 0 9 9 0 0 0 0 0\n";
        assert_eq!(parse_ticks(text, 0), Some(Ticks { busy: 21, steal: 6 }));
        assert_eq!(parse_ticks(text, 1), Some(Ticks { busy: 1, steal: 0 }));
        assert_eq!(parse_ticks(text, 2), None);
        assert!(read_busy_secs(&[0]).unwrap() > 0.0);
    }

    #[test]
    fn ticks_divide_the_exact_time() {
        let earlier = CpuReading { exact_ns: 1_000_000_000, user_ticks: 10, kernel_ticks: 90 };
        let later = CpuReading { exact_ns: 5_000_000_000, user_ticks: 110, kernel_ticks: 390 };
        let cpu = later - earlier;
        assert_eq!(cpu, Cpu { user_secs: 1.0, kernel_secs: 3.0 });
        assert_eq!(cpu.total_secs(), 4.0);
        assert_eq!((earlier - earlier).total_secs(), 0.0);
    }

    #[test]
    fn this_process_is_its_own_family() {
        let own = std::process::id();
        assert!(family(own).contains(&own));
        assert!(read_cpu(&[own]).unwrap().exact_ns > 0);
        assert!(read_memory(&[own]).unwrap().rss_bytes > 0);
        assert!(start_ticks(own).is_some());
    }
}
