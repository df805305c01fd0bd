//! `pharos dev`: everything that exists so far, on loopback, with sample
//! zones, to try things out. Nothing is kept.

use std::fs::{self, DirBuilder};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::{self, Config, Flags};
use crate::fleet::assignments::Shape;
use crate::fleet::{Family, Fleet, Placing, Pool};
use crate::sockets::Sockets;
use crate::{random, say, serve};

/// What the server is called.
const NAME: &str = "pharos-dev";

/// The sample zones: file name and content.
const SAMPLES: [(&str, &str); 4] = [
    ("example.org.zone", include_str!("../samples/example.org.zone")),
    ("sub.example.org.zone", include_str!("../samples/sub.example.org.zone")),
    ("signed.example.zone", include_str!("../samples/signed.example.zone")),
    ("2.0.192.in-addr.arpa.zone", include_str!("../samples/2.0.192.in-addr.arpa.zone")),
];

/// Sample tenants besides those above. The first 512 zones share no server at
/// all, so there are more: some share one.
const TENANTS: usize = 2000;
/// The addresses of the virtual name servers.
const POOL: &str = "127.53.0.0/21";

/// Serves the sample zones, or the directory that was named.
pub fn run(flags: Flags) -> Result<u8, String> {
    let home = Home::new(&std::env::temp_dir())?;
    let zones = match &flags.zones {
        Some(zones) => zones.clone(),
        None => home.write_samples()?,
    };
    serve_zones(Flags { zones: Some(zones), ..flags }, &home)
}

fn serve_zones(mut flags: Flags, home: &Home) -> Result<u8, String> {
    flags.identity.get_or_insert_with(|| NAME.to_owned());
    let authority = config::read(None, &flags)?;
    let mut config = config::read(Some(&home.write_cache(&authority.listen)?), &flags)?;
    config.version = Some(format!("Pharos {}", env!("CARGO_PKG_VERSION")));
    let shape = Shape { servers: 2048, stripes: 4, size: 4, overlap: 2 };
    let port = config.listen.first().map_or(config::FLEET_PORT, SocketAddr::port);
    let pool = Pool::new(shape.servers).with_network(Family::V4, POOL)?;
    config.fleet = Some(Fleet { pool, port });
    config.placing = Some(Placing {
        shape,
        domains: ["a", "b", "c", "d"].map(|letter| format!("pharos-{letter}.example")).to_vec(),
        state: home.directory.join("fleet"),
        map: None,
        host: NAME.to_owned(),
        grace: Duration::ZERO,
    });
    serve::run(&config, |sockets| announce(&config, sockets))
}

/// A directory for samples and state; gone when dropped.
struct Home {
    directory: PathBuf,
}

impl Home {
    /// Makes a new directory in `base`, where everybody may write: nobody can
    /// guess its name, and what is already there is not used.
    fn new(base: &Path) -> Result<Self, String> {
        let suffix = u64::from_le_bytes(random::octets());
        let directory = base.join(format!("pharos-dev-{suffix:016x}"));
        DirBuilder::new()
            .mode(0o700)
            .create(&directory)
            .map_err(|error| explain(&directory, &error))?;
        Ok(Home { directory })
    }

    /// Writes the sample zones and returns where they are.
    fn write_samples(&self) -> Result<PathBuf, String> {
        let zones = self.directory.join("zones");
        let write = |name: &str, text: &str| fs::write(zones.join(name), text);
        fs::create_dir(&zones)
            .and_then(|()| SAMPLES.iter().try_for_each(|(name, text)| write(name, text)))
            .and_then(|()| {
                (0..TENANTS).try_for_each(|number| {
                    write(&format!("tenant-{number:04}.example.zone"), &tenant_text(number))
                })
            })
            .map_err(|error| explain(&zones, &error))?;
        Ok(zones)
    }

    /// Writes what a cache before the zones is told, as anybody would, and
    /// returns where it is. It listens beside the zones.
    fn write_cache(&self, zones: &[SocketAddr]) -> Result<PathBuf, String> {
        let file = self.directory.join("cache.toml");
        let text = cache_text(zones);
        fs::write(&file, text).map_err(|error| explain(&file, &error))?;
        Ok(file)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn explain(directory: &Path, error: &io::Error) -> String {
    format!("cannot write samples to {}: {error}", directory.display())
}

/// A cache that asks the zones of its own process, on the first port after all
/// of theirs; on any port if theirs is any.
fn cache_text(zones: &[SocketAddr]) -> String {
    let ports = zones.iter().map(SocketAddr::port);
    let port = match ports.clone().min() {
        Some(0) => Some(0),
        _ => ports.max().and_then(|last| last.checked_add(1)),
    };
    let listen = zones.first().zip(port).map_or(String::new(), |(first, port)| {
        format!("listen = [\"{}\"]\n", SocketAddr::new(first.ip(), port))
    });
    format!("[node]\nname = \"{NAME}\"\n[cache]\n{listen}upstreams = [\"local\"]\n")
}

/// A small zone. Its name servers come from the fleet.
fn tenant_text(number: usize) -> String {
    let host = 1 + number % 254;
    format!(
        "$ORIGIN tenant-{number:04}.example.\n\
         $TTL 300\n\
         @ SOA ns.pharos-a.example. hostmaster 1 7200 900 1209600 300\n\
         @ A 198.51.100.{host}\n\
         www A 198.51.100.{host}\n"
    )
}

fn announce(config: &Config, sockets: &Sockets) {
    for address in &sockets.addresses {
        say(format_args!("DNS      {address} (UDP and TCP), every zone"));
    }
    if let Some(Fleet { pool, port }) = &sockets.fleet {
        let servers = pool.servers();
        say(format_args!("fleet    {servers} virtual name servers, {pool}, port {port};"));
        say(format_args!(
            "         each zone is answered on 4 of them, and any two share 2 at most"
        ));
    }
    let caches = sockets.cache.iter().flat_map(|cache| &cache.addresses);
    for address in caches.clone() {
        say(format_args!("cache    {address} (UDP and TCP), before the zones of this server"));
    }
    say(format_args!("admin    http://{} (/healthz, /metrics, /v1/zones)", sockets.admin_address));
    say(format_args!("control  {}", config.control.display()));
    if let Some(zones) = &config.zones {
        say(format_args!("zones    {}", zones.display()));
    }
    if let Some(address) = sockets.addresses.first() {
        let (ip, port) = (address.ip(), address.port());
        say(format_args!("try      dig @{ip} -p {port} www.example.org A"));
        say(format_args!("         kdig @{ip} -p {port} +tcp mail.example.org MX"));
    }
    for address in caches.take(1) {
        let (ip, port) = (address.ip(), address.port());
        say(format_args!("         dig @{ip} -p {port} docs.example.org A"));
    }
    let control = config.control.display();
    let program = std::env::args().next().unwrap_or_else(|| "pharos".to_owned());
    say(format_args!("         {program} zone show example.org --control {control}"));
    say(format_args!("         {program} cache stats --control {control}"));
    say(format_args!("drill    {program} fleet drill example.org --control {control}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn samples_have_a_new_directory_of_their_own_each_time() {
        let base = tempfile::tempdir().unwrap();
        let one = Home::new(base.path()).unwrap();
        let other = Home::new(base.path()).unwrap();
        assert_eq!(fs::read_dir(one.write_samples().unwrap()).unwrap().count(), TENANTS + 4);
        assert_ne!(one.directory, other.directory);
        let mode = fs::metadata(&one.directory).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        drop((one, other));
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_cache_listens_beside_the_zones() {
        let base = tempfile::tempdir().unwrap();
        let home = Home::new(base.path()).unwrap();
        let flags = Flags { zones: Some(base.path().to_owned()), ..Flags::default() };
        for (zones, listen) in [
            (&["127.0.0.1:5300"][..], "127.0.0.1:5301"),
            (&["127.0.0.1:5301", "127.0.0.1:5300"], "127.0.0.1:5302"),
            (&["[::1]:5400"], "[::1]:5401"),
            (&["127.0.0.1:0"], "127.0.0.1:0"),
            (&["127.0.0.1:65535"], "127.0.0.1:5301"),
        ] {
            let zones: Vec<SocketAddr> = zones.iter().map(|text| text.parse().unwrap()).collect();
            let file = home.write_cache(&zones).unwrap();
            let cache = config::read(Some(&file), &flags).unwrap().cache.unwrap();
            assert_eq!(cache.listen, [listen.parse().unwrap()], "{zones:?}");
        }
    }
}
