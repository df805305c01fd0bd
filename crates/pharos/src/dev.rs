//! `pharos dev`: everything that exists so far, on loopback, with sample
//! zones, to try things out. Nothing is kept.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::config::{self, Config, Flags};
use crate::sockets::Sockets;
use crate::{random, say, serve};

/// The sample zones: file name and content.
const SAMPLES: [(&str, &str); 4] = [
    ("example.org.zone", include_str!("../samples/example.org.zone")),
    ("sub.example.org.zone", include_str!("../samples/sub.example.org.zone")),
    ("signed.example.zone", include_str!("../samples/signed.example.zone")),
    ("2.0.192.in-addr.arpa.zone", include_str!("../samples/2.0.192.in-addr.arpa.zone")),
];

/// Serves the sample zones, or the directory that was named.
pub fn run(flags: Flags) -> Result<u8, String> {
    if flags.zones.is_some() {
        return serve_zones(flags);
    }
    let samples = Samples::write(&std::env::temp_dir())?;
    serve_zones(Flags { zones: Some(samples.directory.clone()), ..flags })
}

fn serve_zones(mut flags: Flags) -> Result<u8, String> {
    flags.identity.get_or_insert_with(|| "pharos-dev".to_owned());
    let mut config = config::read(None, &flags)?;
    config.version = Some(format!("Pharos {}", env!("CARGO_PKG_VERSION")));
    serve::run(&config, |sockets| announce(&config, sockets))
}

/// A directory with the sample zones; gone when dropped.
struct Samples {
    directory: PathBuf,
}

impl Samples {
    /// Writes the samples to a new directory in `base`, where everybody may
    /// write: nobody can guess its name, and what is already there is not used.
    fn write(base: &Path) -> Result<Self, String> {
        let suffix = u64::from_le_bytes(random::octets());
        let directory = base.join(format!("pharos-dev-{suffix:016x}"));
        let failed = |error: io::Error| {
            format!("cannot write sample zones to {}: {error}", directory.display())
        };
        DirBuilder::new().mode(0o700).create(&directory).map_err(failed)?;
        let samples = Samples { directory: directory.clone() };
        for (name, text) in SAMPLES {
            let file = OpenOptions::new().write(true).create_new(true).open(directory.join(name));
            file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)?;
        }
        Ok(samples)
    }
}

impl Drop for Samples {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn samples_have_a_new_directory_of_their_own_each_time() {
        let base = tempfile::tempdir().unwrap();
        let one = Samples::write(base.path()).unwrap();
        let other = Samples::write(base.path()).unwrap();
        assert_ne!(one.directory, other.directory);
        let mode = fs::metadata(&one.directory).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        drop((one, other));
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }
}
