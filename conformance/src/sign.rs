//! Zones signed in advance with `dnssec-signzone`, so that every server serves the same records.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::name::Name;
use crate::zones::Denial;

/// Keys for tests, fixed so that key tags and DNSKEYs repeat from run to run. (Signatures do not:
/// the signer draws nonces. Nothing compares signatures across runs.)
struct Key {
    flags: u16,
    tag: u16,
    public: &'static str,
    private: &'static str,
}

const KEYS: [Key; 2] = [
    Key {
        flags: 257,
        tag: 50381,
        public: "hKetmQfj+IDUe81lefFZxnW6+VJefbUCVc+ydV2ddpY4erk7v+ZGysRASy6TSHhWv8K+6xb2EbWB1siqB2GsyQ==",
        private: "r/yTFVFv/Mhh5cqMT4CqsM/SwS1FBQvWjQH4EX64cfE=",
    },
    Key {
        flags: 256,
        tag: 48906,
        public: "9p3qSX1m8QcEW7TXHav2rbCV9qLvSMRiz6nr+OwEuLJ5YtFol//iQDo1DKbpjMmw8rhE2Ujf5qHIMuQ7ugFWNA==",
        private: "6VCzYhsBUyEIHbNd0oJca05GUyeRwlUsA7qngcw4pBg=",
    },
];

/// The public half of the key that signs the keys, for trust anchors.
pub fn anchor() -> (u16, &'static str) {
    (KEYS[0].flags, KEYS[0].public)
}

/// Writes the zone to `output`, signed as `denial` says. `scratch` receives keys and input.
pub fn write(
    origin: &Name,
    text: &str,
    denial: &Denial,
    scratch: &Path,
    output: &Path,
) -> Result<()> {
    if *denial == Denial::Unsigned {
        return fs::write(output, text).with_context(|| format!("write {}", output.display()));
    }
    let mut input = text.to_owned();
    let mut files = Vec::new();
    for key in &KEYS {
        let record = format!("{origin} 3600 IN DNSKEY {} 3 13 {}\n", key.flags, key.public);
        input.push_str(&record);
        let file = scratch.join(format!("K{origin}+013+{:05}", key.tag));
        fs::write(file.with_added_extension("key"), record)?;
        let private = format!(
            "Private-key-format: v1.3\nAlgorithm: 13 (ECDSAP256SHA256)\nPrivateKey: {}\n",
            key.private
        );
        fs::write(file.with_added_extension("private"), private)?;
        files.push(file);
    }
    let unsigned = scratch.join(format!("{origin}unsigned"));
    fs::write(&unsigned, input)?;
    let mut command = Command::new("dnssec-signzone");
    // -P: what is signed is deliberately odd, and the peers are the ones to judge it.
    command.args(["-P", "-q", "-O", "full", "-s", "20250101000000", "-e", "20370101000000"]);
    command.arg("-d").arg(scratch).arg("-o").arg(origin.to_string()).arg("-f").arg(output);
    if let Denial::Nsec3 { opt_out, salt, iterations } = denial {
        command.args(["-3", salt, "-H", &iterations.to_string()]);
        if *opt_out {
            command.arg("-A");
        }
    }
    let done = command.arg("-k").arg(&files[0]).arg(&unsigned).arg(&files[1]).output();
    let done = done.context("run dnssec-signzone (apt install bind9-utils)")?;
    if !done.status.success() {
        let shown = String::from_utf8_lossy(&done.stderr);
        bail!("dnssec-signzone refused {}: {shown}", unsigned.display());
    }
    Ok(())
}
