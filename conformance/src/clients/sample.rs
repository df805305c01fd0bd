//! The zones that clients ask: one signed with NSEC, one with NSEC3, with a bit of everything.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::name::Name;
use crate::peers::ZoneFile;
use crate::sign;
use crate::zones::Denial;

/// Timers as Zonemaster wants them (refresh ≥ 4 h, retry ≥ 1 h, expire ≥ 1 week).
const SOA_TIMERS: &str = "2026111501 14400 3600 1209600 3600";

/// `servers` are (name below the origin, address).
pub fn zone_text(origin: &str, servers: &[(&str, &str)]) -> String {
    let mut text = format!(
        "{origin} 3600 IN SOA {}.{origin} hostmaster.{origin} {SOA_TIMERS}\n",
        servers[0].0
    );
    for (server, address) in servers {
        let _ = writeln!(text, "{origin} 3600 IN NS {server}.{origin}");
        let _ = writeln!(text, "{server}.{origin} 3600 IN A {address}");
    }
    let _ = write!(
        text,
        "{origin} 3600 IN MX 10 mail.{origin}
mail.{origin} 3600 IN A 192.0.2.25
{origin} 3600 IN TXT \"v=spf1 mx -all\"
www.{origin} 3600 IN A 192.0.2.10
www.{origin} 3600 IN AAAA 2001:db8::10
alias.{origin} 3600 IN CNAME www.{origin}
*.wild.{origin} 3600 IN TXT \"wild\"
host.ent.{origin} 3600 IN A 192.0.2.11
old.{origin} 3600 IN DNAME wild.{origin}
cut.{origin} 3600 IN NS ns.cut.{origin}
ns.cut.{origin} 3600 IN A 192.0.2.53
https.{origin} 3600 IN HTTPS 1 . alpn=h2
"
    );
    for index in 0..20 {
        let filling = "b".repeat(100);
        let _ = writeln!(text, "big.{origin} 3600 IN TXT \"{index:02}{filling}\"");
    }
    text
}

pub const ORIGINS: [&str; 2] = ["zone.example.", "nsec3.example."];

pub fn write(dir: &Path) -> Result<Vec<ZoneFile>> {
    let (zone_dir, keys) = (dir.join("sample"), dir.join("sample-keys"));
    fs::create_dir_all(&zone_dir)?;
    fs::create_dir_all(&keys)?;
    let nsec3 = Denial::Nsec3 { opt_out: false, salt: "-", iterations: 0 };
    let mut files = Vec::new();
    for (origin, denial) in ORIGINS.iter().zip([Denial::Nsec, nsec3]) {
        let name = Name::plain(origin);
        let path = zone_dir.join(format!("{origin}zone"));
        let text = zone_text(origin, &[("ns1", "192.0.2.1"), ("ns2", "192.0.2.2")]);
        sign::write(&name, &text, &denial, &keys, &path)?;
        files.push(ZoneFile { origin: name, path });
    }
    Ok(files)
}

/// Trust anchors in BIND's form, made of each zone's own key.
pub fn write_anchors(dir: &Path, zones: &[ZoneFile]) -> Result<PathBuf> {
    let (flags, key) = sign::anchor();
    let mut text = String::from("trust-anchors {\n");
    for zone in zones {
        let _ = writeln!(text, "  \"{}\" static-key {flags} 3 13 \"{key}\";", zone.origin);
    }
    text.push_str("};\n");
    let path = dir.join("anchors.conf");
    fs::write(&path, text)?;
    Ok(path)
}
