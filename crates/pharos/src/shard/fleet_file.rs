//! Fleets and assignments in files that others write: CSV or JSON.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use shuffle::{Fleet, Worker};

/// Octets of such a file at the most.
const FILE_LEN_MAX: u64 = 1 << 30;

/// A worker in JSON: its id, its weight, and a domain for each dimension.
#[derive(Debug, Deserialize)]
struct FileWorker {
    id: String,
    #[serde(default = "full_weight")]
    weight: f64,
    #[serde(flatten)]
    domains: BTreeMap<String, String>,
}

fn full_weight() -> f64 {
    1.0
}

/// Reads a fleet: a JSON array of objects, or CSV with a header.
pub fn read_fleet(path: &Path) -> Result<Fleet, String> {
    let text = read(path)?;
    let workers = match text.trim_start().starts_with('[') {
        true => serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display())),
        false => workers_from_csv(&text).map_err(|error| format!("{}: {error}", path.display())),
    }?;
    fleet_of(workers).map_err(|error| format!("{}: {error}", path.display()))
}

pub fn read(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{}: cannot be read: {error}", path.display());
    let len = std::fs::metadata(path).map_err(failed)?.len();
    if len > FILE_LEN_MAX {
        return Err(format!("{}: {len} octets; at most {FILE_LEN_MAX} are read", path.display()));
    }
    std::fs::read_to_string(path).map_err(failed)
}

fn fleet_of(workers: Vec<FileWorker>) -> Result<Fleet, String> {
    let dimensions: Vec<String> =
        workers.first().map(|worker| worker.domains.keys().cloned().collect()).unwrap_or_default();
    let mut known = Vec::with_capacity(workers.len());
    for worker in workers {
        if !worker.domains.keys().eq(&dimensions) {
            return Err(format!(
                "worker `{}` has the dimensions {}, and the first one has {}; all need the same",
                worker.id,
                worker.domains.keys().cloned().collect::<Vec<_>>().join(", "),
                dimensions.join(", ")
            ));
        }
        let domains = worker.domains.into_values().collect();
        known.push(Worker { id: worker.id, domains, weight: worker.weight });
    }
    Fleet::new(dimensions, known).map_err(|error| error.to_string())
}

fn workers_from_csv(text: &str) -> Result<Vec<FileWorker>, String> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|error| error.to_string())?.clone();
    let id_at = header.iter().position(|name| name == "id").ok_or_else(|| {
        let names: Vec<&str> = header.iter().collect();
        format!("line 1: no column `id` in the header `{}`", names.join(","))
    })?;
    let mut workers = Vec::new();
    for row in reader.records() {
        let row = row.map_err(|error| error.to_string())?;
        let line = row.position().map_or(0, csv::Position::line);
        let mut worker =
            FileWorker { id: row[id_at].to_owned(), weight: 1.0, domains: BTreeMap::new() };
        for (name, value) in header.iter().zip(&row) {
            match name {
                "id" => {}
                "weight" => {
                    worker.weight = value
                        .parse()
                        .map_err(|_| format!("line {line}: the weight `{value}` is no number"))?;
                }
                _ => drop(worker.domains.insert(name.to_owned(), value.to_owned())),
            }
        }
        workers.push(worker);
    }
    Ok(workers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet(text: &str) -> Result<Fleet, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let name = file.path().display().to_string();
        read_fleet(file.path()).map_err(|error| error.replace(&name, "FILE"))
    }

    #[test]
    fn csv_and_json_say_the_same() {
        let csv = "id, zone, weight\na, eu, 1\nb, us, 0.5\n";
        let json = r#"[{"id": "a", "zone": "eu"}, {"id": "b", "zone": "us", "weight": 0.5}]"#;
        assert_eq!(fleet(csv).unwrap(), fleet(json).unwrap());
        assert_eq!(fleet(csv).unwrap().dimensions(), ["zone"]);
    }

    #[test]
    fn malformed_files_are_refused_with_the_place() {
        for (text, said) in [
            ("", "FILE: line 1: no column `id`"),
            ("name,zone\na,eu\n", "FILE: line 1: no column `id` in the header `name,zone`"),
            ("id,weight\na,heavy\n", "FILE: line 2: the weight `heavy` is no number"),
            ("id,zone\na\n", "FILE: CSV error: record 1 (line: 2"),
            ("id\n", "FILE: a fleet without workers"),
            ("id\na\na\n", "FILE: two workers are called `a`"),
            ("[{\"id\": 1}]", "FILE: invalid type: integer `1`, expected a string at line 1"),
            ("[{\"id\": \"a\", \"zone\": \"x\"}, {\"id\": \"b\"}]", "all need the same"),
            ("[", "FILE: EOF while parsing"),
        ] {
            let error = fleet(text).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
