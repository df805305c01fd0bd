//! Zonemaster in a network namespace of its own: a fake root, `example.` and `zone.example.`,
//! each on its own addresses at port 53, all served by Pharos.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::Outcome;
use super::sample::zone_text;
use crate::name::Name;
use crate::peers::{Program, ZoneFile};
use crate::sign;
use crate::zones::Denial;

/// Addresses that look public, because Zonemaster objects to private ones; they exist only on
/// the loopback interface of the namespace.
const ROOT: [&str; 1] = ["41.1.1.1"];
const PARENT: [&str; 2] = ["42.2.2.2", "43.3.3.3"];
const CHILD: [&str; 2] = ["44.4.4.4", "45.5.5.5"];

/// Messages that stem from the sandbox, by tag, and why.
const SANDBOX: &[(&str, &str)] = &[
    ("NAMESERVER_IP_WITHOUT_REVERSE", "no reverse zones here"),
    ("NO_IPV6_NS_CHILD", "the sample has IPv4 servers only"),
    ("NO_IPV6_NS_DEL", "the sample has IPv4 servers only"),
    ("REMAINING_LONG", "signatures end in 2037 so that zone files repeat"),
    ("DURATION_LONG", "signatures end in 2037 so that zone files repeat"),
];

pub fn run(subject: &Program, dir: &Path) -> Result<Outcome> {
    let dir = dir.join("zonemaster");
    let script = write_script(subject, &dir)?;
    // A user namespace as well when we are not root, which `ip` and port 53 need.
    let flags = if is_root() { "-n" } else { "-rn" };
    let done = Command::new("unshare")
        .args([flags, "sh"])
        .arg(&script)
        .output()
        .context("run unshare (apt-get install util-linux)")?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&done.stderr).into_owned();
    let name = "zonemaster-cli on zone.example".to_owned();
    if !said.contains("SERVERS READY") {
        bail!("servers for Zonemaster did not start:\n{said}\n{complaints}");
    }
    Ok(judge(name, &said, &complaints))
}

fn judge(name: String, said: &str, complaints: &str) -> Outcome {
    let mut notes = Vec::new();
    let mut failures = Vec::new();
    let mut counts = std::collections::BTreeMap::new();
    for line in said.lines() {
        let Some((level, message)) = level_of(line) else { continue };
        *counts.entry(level).or_insert(0) += 1;
        if !matches!(level, "CRITICAL" | "ERROR" | "WARNING" | "NOTICE") {
            continue;
        }
        let excuse = SANDBOX.iter().find(|(tag, _)| message.contains(tag));
        match (excuse, level) {
            (Some((_, why)), _) => notes.push(format!("{level}: {message} [sandbox: {why}]")),
            (None, "NOTICE") => notes.push(format!("{level}: {message}")),
            (None, _) => failures.push(format!("{level}: {message}")),
        }
    }
    let levels: Vec<_> = counts.iter().map(|(level, count)| format!("{level} {count}")).collect();
    notes.insert(0, format!("levels: {}", levels.join(", ")));
    if counts.is_empty() {
        failures.push("no output".to_owned());
    }
    let failure =
        (!failures.is_empty()).then(|| format!("{}\n{said}{complaints}", failures.join("\n")));
    Outcome { name, failure, notes }
}

/// Lines are: seconds, level, test case, tag, arguments.
fn level_of(line: &str) -> Option<(&'static str, &str)> {
    let levels = ["CRITICAL", "ERROR", "WARNING", "NOTICE", "INFO"];
    let line = line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let line = line.trim_start();
    levels.iter().find_map(|level| {
        let rest = line.strip_prefix(level)?;
        Some((*level, rest.trim_start()))
    })
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout.starts_with(b"0\n"))
}

fn write_script(subject: &Program, dir: &Path) -> Result<PathBuf> {
    fs::create_dir_all(dir)?;
    let keys = dir.join("keys");
    fs::create_dir_all(&keys)?;
    let child_servers = [("ns1", CHILD[0]), ("ns2", CHILD[1])];
    let child =
        write_zone(dir, &keys, "zone.example.", zone_text("zone.example.", &child_servers))?;
    let parent = write_zone(dir, &keys, "example.", parent_text(&keys)?)?;
    let root = write_zone(dir, &keys, ".", root_text())?;
    let mut script = String::from("set -e\nip link set lo up\n");
    for address in ROOT.iter().chain(&PARENT).chain(&CHILD) {
        let _ = writeln!(script, "ip addr add {address}/32 dev lo");
    }
    let groups = [(&ROOT[..], &root), (&PARENT[..], &parent), (&CHILD[..], &child)];
    script.push_str("pids=\n");
    for (addresses, zone) in groups {
        for address in addresses {
            let own = dir.join(address);
            let socket: SocketAddr = format!("{address}:53").parse()?;
            let line = subject.command_line(&own, socket, std::slice::from_ref(zone))?.join(" ");
            let log = own.join("log");
            let _ = writeln!(
                script,
                "setpriv --pdeathsig TERM {line} > {} 2>&1 &\npids=\"$pids $!\"",
                log.display()
            );
            let _ = writeln!(
                script,
                "for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do\n  \
                 dig +short +time=1 +tries=1 @{address} {} SOA 2>/dev/null | grep -q hostmaster && break\n  \
                 sleep 0.2\ndone",
                zone.origin
            );
        }
    }
    let hints = dir.join("hints");
    fs::write(&hints, format!(". 3600 IN NS a.root.\na.root. 3600 IN A {}\n", ROOT[0]))?;
    let _ = write!(
        script,
        "dig +short @{} zone.example SOA | grep -q hostmaster && echo SERVERS READY\nset +e\n\
         zonemaster-cli --hints {} --no-ipv6 --level INFO --raw --show-level \
         --show-testcase --no-progress zone.example\nkill $pids\nwait\nexit 0\n",
        CHILD[1],
        hints.display()
    );
    let path = dir.join("run.sh");
    fs::write(&path, script)?;
    Ok(path)
}

/// Each zone in a directory of its own: the servers of a parent do not know the child.
fn write_zone(dir: &Path, keys: &Path, origin: &str, text: String) -> Result<ZoneFile> {
    let label = if origin == "." { "root." } else { origin };
    let zone_dir = dir.join(format!("zones-{label}"));
    fs::create_dir_all(&zone_dir)?;
    let path = zone_dir.join(format!("{label}zone"));
    let name = Name::plain(origin);
    let denial = if origin == "." { Denial::Unsigned } else { Denial::Nsec };
    sign::write(&name, &text, &denial, keys, &path)?;
    Ok(ZoneFile { origin: name, path })
}

fn parent_text(keys: &Path) -> Result<String> {
    let mut text = zone_text("example.", &[("ns1", PARENT[0]), ("ns2", PARENT[1])]);
    for (server, address) in ["ns1", "ns2"].iter().zip(CHILD) {
        let _ = writeln!(text, "zone.example. 3600 IN NS {server}.zone.example.");
        let _ = writeln!(text, "{server}.zone.example. 3600 IN A {address}");
    }
    let key = keys.join("Kzone.example.+013+50381.key");
    let ds = Command::new("dnssec-dsfromkey").arg("-2").arg(&key).output()?;
    let ds = String::from_utf8(ds.stdout)?;
    if !ds.contains("DS") {
        bail!("dnssec-dsfromkey made no DS of {}", key.display());
    }
    text.push_str(&ds);
    Ok(text)
}

fn root_text() -> String {
    let mut text = format!(
        ". 3600 IN SOA a.root. hostmaster.root. 2026111501 14400 3600 1209600 3600\n\
         . 3600 IN NS a.root.\na.root. 3600 IN A {}\n",
        ROOT[0]
    );
    for (server, address) in ["ns1", "ns2"].iter().zip(PARENT) {
        let _ = writeln!(text, "example. 3600 IN NS {server}.example.");
        let _ = writeln!(text, "{server}.example. 3600 IN A {address}");
    }
    text
}
