//! Which host serves which virtual name servers: a file that all hosts of a
//! fleet have, with a generation that only goes forward.
//!
//! ```toml
//! generation = 7
//! [hosts]
//! dns-1 = ["0-1023"]
//! dns-2 = ["1024-2046", "2047"]
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::Deserialize;

/// Octets of a map at the most.
const FILE_LEN_MAX: u64 = 16 << 20;

/// Which host serves which virtual name servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMap {
    pub generation: u64,
    /// The servers of each host, in order.
    hosts: BTreeMap<String, Vec<u16>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileMap {
    generation: u64,
    hosts: BTreeMap<String, Vec<String>>,
}

impl HostMap {
    /// Reads a map of a fleet of so many servers: all problems at once.
    pub fn read(path: &Path, servers: u32) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let metadata = std::fs::metadata(path).map_err(|error| failed(&error))?;
        if !metadata.is_file() {
            return Err(failed(&"it is no regular file"));
        }
        let len = metadata.len();
        if len > FILE_LEN_MAX {
            return Err(failed(&format!("{len} octets; at most {FILE_LEN_MAX} are read")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
        HostMap::parse(&text, servers).map_err(|problems| {
            problems.iter().map(|problem| failed(problem)).collect::<Vec<_>>().join("\n")
        })
    }

    fn parse(text: &str, servers: u32) -> Result<Self, Vec<String>> {
        let file: FileMap =
            toml::from_str(text).map_err(|error| vec![error.to_string().trim_end().to_owned()])?;
        let mut problems = Vec::new();
        let mut owner: BTreeMap<u16, &str> = BTreeMap::new();
        let mut hosts = BTreeMap::new();
        for (host, ranges) in &file.hosts {
            let mut own = Vec::new();
            for text in ranges {
                match parse_range(text, servers) {
                    Ok(range) => own.extend(range),
                    Err(problem) => problems.push(format!("host `{host}`: {problem}")),
                }
            }
            own.sort_unstable();
            for &server in &own {
                if let Some(other) = owner.insert(server, host) {
                    problems.push(format!(
                        "server {server} is given to `{other}` and to `{host}`; one host has it"
                    ));
                }
            }
            hosts.insert(host.clone(), own);
        }
        if file.generation == 0 {
            problems.push("generation 0; the first one is 1".to_owned());
        }
        match problems.is_empty() {
            true => Ok(HostMap { generation: file.generation, hosts }),
            false => Err(problems),
        }
    }

    /// The servers of a host; `None` if the map does not know it.
    pub fn servers_of(&self, host: &str) -> Option<&[u16]> {
        self.hosts.get(host).map(Vec::as_slice)
    }
}

/// All hosts and all their servers, one host a line: equal texts are equal
/// maps.
impl fmt::Display for HostMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.generation)?;
        for (host, servers) in &self.hosts {
            writeln!(f, "{host:?} {servers:?}")?;
        }
        Ok(())
    }
}

fn parse_range(text: &str, servers: u32) -> Result<std::ops::RangeInclusive<u16>, String> {
    let refused = || {
        format!(
            "`{text}` is no server of a fleet of {servers}; accepted: a number below that, or two \
             as in `0-1023`"
        )
    };
    let number = |text: &str| text.trim().parse::<u16>().map_err(|_| refused());
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(text)?, number(text)?),
    };
    match first <= last && u32::from(last) < servers {
        true => Ok(first..=last),
        false => Err(refused()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_their_servers() {
        let text = "generation = 7\n[hosts]\na = ['0-3']\nb = ['6', '4-5']\nc = []\n";
        let map = HostMap::parse(text, 8).unwrap();
        assert_eq!(map.generation, 7);
        assert_eq!(map.servers_of("a"), Some(&[0, 1, 2, 3][..]));
        assert_eq!(map.servers_of("b"), Some(&[4, 5, 6][..]));
        assert_eq!(map.servers_of("c"), Some(&[][..]));
        assert_eq!(map.servers_of("d"), None);
        assert_eq!(map, HostMap::parse(&text.replace("'0-3'", "'2-3', '0-1'"), 8).unwrap());
    }

    #[test]
    fn all_problems_of_a_map_are_told() {
        let text = "generation = 0\n[hosts]\na = ['0-8', '5-4', 'x']\nb = ['1']\nc = ['1']\n";
        let problems = HostMap::parse(text, 8).unwrap_err();
        assert_eq!(problems.len(), 5, "{problems:?}");
        assert!(problems[0].contains("host `a`: `0-8` is no server of a fleet of 8"));
        assert!(problems[3].contains("server 1 is given to `b` and to `c`"));
        assert!(HostMap::parse("generation = 1", 8).unwrap_err()[0].contains("hosts"));
    }
}
