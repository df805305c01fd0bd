//! The command line's side of the control socket.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use authority::{Image, Problems, Severity};
use serde_json::{Value, json};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

use crate::config::{check_control_directory, default_control};
use crate::output::{self, Output, tame_value};

/// What is written as it is in a name within a URL; the rest could mean
/// something there.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_');

/// Where a server of root listens unless told otherwise; only root can make it.
const HOST_CONTROL: &str = "/run/pharos/control.sock";

/// A name as it stands in a URL.
pub fn escaped(name: &str) -> PercentEncode<'_> {
    utf8_percent_encode(name, PLAIN)
}

/// The page of one zone.
pub fn zone_path(zone: &str) -> String {
    format!("/v1/zones/{}", escaped(zone))
}

/// The page of `limit` zones behind the zone `after`.
pub fn zones_path(limit: usize, after: Option<&str>) -> String {
    let after = after.map_or(String::new(), |zone| format!("&after={}", escaped(zone)));
    format!("/v1/zones?limit={limit}{after}")
}

/// How to reach a running server, and how to show what it says.
#[derive(Clone, Debug, clap::Args)]
pub struct Socket {
    /// The server's control socket
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

impl Socket {
    /// The same, with another path than that of `pharos serve` unless one was
    /// given.
    pub fn or_at(self, path: PathBuf) -> Self {
        Socket { control: self.control.or(Some(path)), ..self }
    }

    pub fn get(&self, path: &str) -> Result<Value, String> {
        self.ask("GET", path, "")
    }

    /// What a page says that is not in JSON.
    pub fn get_text(&self, path: &str) -> Result<String, String> {
        let (is_good, body) = self.exchange("GET", path, "")?;
        if is_good {
            return Ok(body);
        }
        let value: Option<Value> = serde_json::from_str(&body).ok();
        let error = value.as_ref().and_then(|value| value["error"].as_str());
        Err(error.unwrap_or(&body).to_owned())
    }

    pub fn post(&self, path: &str, body: &str) -> Result<Value, String> {
        self.ask("POST", path, body)
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Result<Value, String> {
        let (is_good, body) = self.exchange(method, path, body)?;
        let value: Value = serde_json::from_str(&body)
            .map_err(|_| format!("the server did not understand: {}", body.trim()))?;
        if is_good {
            return Ok(value);
        }
        Err(value["error"].as_str().unwrap_or(&body).to_owned())
    }

    /// One request, one answer, over a connection of its own: whether it went
    /// well, and what was said.
    fn exchange(&self, method: &str, path: &str, body: &str) -> Result<(bool, String), String> {
        let (socket, mut stream) = match &self.control {
            Some(path) => connect(path)?,
            None => connect_to_first(&default_controls())?,
        };
        let failed = |error: io::Error| unreached(&socket, &error);
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: pharos\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).map_err(failed)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(failed)?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| {
            format!("the server at {} ended the connection without an answer", socket.display())
        })?;
        Ok((head.starts_with("HTTP/1.1 200"), body.to_owned()))
    }

    /// True if machines read what is printed.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Prints `value`, for machines or for people.
    pub fn print(&self, value: &Value, show: Show) -> Result<(), String> {
        let mut out = Output::default();
        let written = match self.json {
            true => writeln!(out, "{}", output::json(value)),
            false => show(&mut out, &tame_value(value)),
        };
        written.map_err(output::explain)
    }
}

/// The control socket of the user's own server, and that of the host's.
fn default_controls() -> Vec<PathBuf> {
    let mut sockets = vec![default_control(), PathBuf::from(HOST_CONTROL)];
    sockets.dedup();
    sockets
}

fn connect(socket: &Path) -> Result<(PathBuf, UnixStream), String> {
    check_control_directory(socket)?;
    let stream = UnixStream::connect(socket).map_err(|error| unreached(socket, &error))?;
    Ok((socket.to_owned(), stream))
}

/// Connects to the first of some sockets at which a server listens. A socket that a dead
/// server left, or a directory that another user made, hides none of the others.
fn connect_to_first(sockets: &[PathBuf]) -> Result<(PathBuf, UnixStream), String> {
    let mut refused = Vec::new();
    for socket in sockets {
        match connect(socket) {
            Ok(connected) => return Ok(connected),
            Err(why) => refused.push((socket, why)),
        }
    }
    if refused.iter().any(|(socket, _)| socket.exists()) {
        refused.retain(|(socket, _)| socket.exists());
    }
    Err(refused.into_iter().map(|(_, why)| why).collect::<Vec<_>>().join("\n"))
}

/// Why there is no answer from a control socket.
fn unreached(socket: &Path, error: &io::Error) -> String {
    let socket = socket.display();
    if error.kind() == io::ErrorKind::PermissionDenied {
        return format!(
            "the control socket {socket} may not be used: {error}; accepted: the user that the \
             server runs as, a member of its `admin.control_group`, or root, as with `sudo`"
        );
    }
    format!(
        "no server answers at the control socket {socket}: {error}; is it running, and was it \
         given another --control?"
    )
}

/// How a value is shown to people.
type Show = fn(&mut Output, &Value) -> io::Result<()>;

pub fn show_report(out: &mut Output, report: &Value) -> io::Result<()> {
    for problem in report["problems"].as_array().into_iter().flatten() {
        writeln!(out, "{}", problem.as_str().unwrap_or_default())?;
    }
    writeln!(
        out,
        "{} of {} files read, {} zones updated, {} removed, {} bad ({} of them served with their \
         last good data), {} ms; serving {} zones, {} records",
        report["read"],
        report["files"],
        report["updated"],
        report["removed"],
        report["bad"],
        report["kept"],
        report["millis"],
        report["zones"],
        report["records"]
    )
}

pub fn show_zones(out: &mut Output, page: &Value) -> io::Result<()> {
    for zone in page["zones"].as_array().into_iter().flatten() {
        show_zone(out, zone)?;
    }
    match page["next_after"].as_str() {
        Some(next) => writeln!(out, "… of {} zones; go on with --after {next}", page["total"]),
        None => writeln!(out, "{} zones in all", page["total"]),
    }
}

pub fn show_zone(out: &mut Output, zone: &Value) -> io::Result<()> {
    let number = |key: &str| zone[key].as_u64().unwrap_or_default();
    writeln!(
        out,
        "{:<40} {:<7} serial {:<10} {:>8} records {:>8} names{}",
        zone["name"].as_str().unwrap_or_default(),
        zone["status"].as_str().unwrap_or_default(),
        number("serial"),
        number("records"),
        number("names"),
        if zone["signed"] == true { "  signed" } else { "" }
    )
}

/// A zone with the delegation to paste at a registrar.
pub fn show_zone_whole(out: &mut Output, zone: &Value) -> io::Result<()> {
    show_zone(out, zone)?;
    let Some(servers) = zone["servers"].as_array() else { return Ok(()) };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&zone["name"]);
    writeln!(out, "\n; shard {}; the delegation, for the registrar:", zone["shard"])?;
    for server in servers {
        writeln!(out, "{name} 172800 IN NS {}", text(&server["name"]))?;
    }
    writeln!(out, "; the name servers' own addresses, where the registrar asks for them:")?;
    for server in servers {
        for address in server["addresses"].as_array().into_iter().flatten() {
            let address = text(address);
            let rtype = if address.contains(':') { "AAAA" } else { "A" };
            writeln!(out, "{} 172800 IN {rtype} {address}", text(&server["name"]))?;
        }
    }
    Ok(())
}

/// What `pharos zone check --json` prints of a file.
pub fn check_as_json(file: &Path, image: Option<&Image>, problems: &Problems) -> Value {
    let list: Vec<Value> = problems
        .sorted()
        .iter()
        .map(|problem| {
            json!({
                "file": problems.files.get(problem.at.file as usize),
                "line": problem.at.line,
                "column": problem.at.column,
                "severity": match problem.severity {
                    Severity::Error => "error",
                    Severity::Warning => "warning",
                },
                "what": problem.what,
                "accepted": problem.accepted,
            })
        })
        .collect();
    json!({
        "file": file,
        "good": image.is_some(),
        "zone": image.map(|image| image.origin().to_string()),
        "serial": image.map(Image::serial),
        "records": image.map(Image::records),
        "problems": list,
        "problems_not_listed": problems.dropped(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_of_a_dead_server_does_not_hide_that_of_the_host() {
        use std::os::unix::net::UnixListener;

        let home = tempfile::tempdir().unwrap();
        let (own, host) = (home.path().join("own"), home.path().join("host"));
        let sockets = [own.clone(), host.clone()];
        let refused = connect_to_first(&sockets).unwrap_err();
        assert!(refused.contains("/own") && refused.contains("/host"), "{refused}");
        drop(UnixListener::bind(&own).unwrap());
        let refused = connect_to_first(&sockets).unwrap_err();
        assert!(refused.contains("/own") && !refused.contains("/host"), "{refused}");
        let _host = UnixListener::bind(&host).unwrap();
        assert_eq!(connect_to_first(&sockets).unwrap().0, host);
        std::fs::remove_file(&own).unwrap();
        let _own = UnixListener::bind(&own).unwrap();
        assert_eq!(connect_to_first(&sockets).unwrap().0, own);
    }

    #[test]
    fn who_may_not_is_not_told_that_nobody_is_there() {
        let told = |kind| unreached(Path::new("/run/control.sock"), &io::Error::from(kind));
        let denied = told(io::ErrorKind::PermissionDenied);
        assert!(denied.contains("accepted: the user that the server runs as"), "{denied}");
        assert!(!denied.contains("is it running"), "{denied}");
        assert!(told(io::ErrorKind::NotFound).contains("is it running"));
    }
}
