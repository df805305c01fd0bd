//! `pharos dev`: everything that exists so far, on loopback, with sample
//! zones, to try things out. Nothing is kept.

use std::path::PathBuf;

use crate::config::{self, Config, Flags};
use crate::sockets::Sockets;
use crate::{say, serve};

/// The sample zones: file name and content.
const SAMPLES: [(&str, &str); 4] = [
    ("example.org.zone", include_str!("../samples/example.org.zone")),
    ("sub.example.org.zone", include_str!("../samples/sub.example.org.zone")),
    ("signed.example.zone", include_str!("../samples/signed.example.zone")),
    ("2.0.192.in-addr.arpa.zone", include_str!("../samples/2.0.192.in-addr.arpa.zone")),
];

/// Serves the sample zones, or the directory that was named.
pub fn run(mut flags: Flags) -> Result<u8, String> {
    let own = flags.zones.is_none();
    let directory = flags.zones.take().map_or_else(write_samples, Ok)?;
    flags.zones = Some(directory.clone());
    flags.identity.get_or_insert_with(|| "pharos-dev".to_owned());
    let mut config = config::read(None, &flags)?;
    config.version = Some(format!("Pharos {}", env!("CARGO_PKG_VERSION")));
    let result = serve::run(&config, |sockets| announce(&config, sockets));
    if own {
        let _ = std::fs::remove_dir_all(&directory);
    }
    result
}

fn write_samples() -> Result<PathBuf, String> {
    let directory = std::env::temp_dir().join(format!("pharos-dev-{}", std::process::id()));
    let failed = |error| format!("cannot write sample zones to {}: {error}", directory.display());
    std::fs::create_dir_all(&directory).map_err(failed)?;
    for (name, text) in SAMPLES {
        std::fs::write(directory.join(name), text).map_err(failed)?;
    }
    Ok(directory)
}

fn announce(config: &Config, sockets: &Sockets) {
    for address in &sockets.addresses {
        say(format_args!("DNS      {address} (UDP and TCP)"));
    }
    say(format_args!("admin    http://{} (/healthz, /metrics, /v1/zones)", sockets.admin_address));
    say(format_args!("control  {}", config.control.display()));
    say(format_args!("zones    {}", config.zones.display()));
    if let Some(address) = sockets.addresses.first() {
        let (ip, port) = (address.ip(), address.port());
        say(format_args!("try      dig @{ip} -p {port} www.example.org A"));
        say(format_args!("         kdig @{ip} -p {port} +tcp mail.example.org MX"));
    }
}
