//! Fleets and assignments in files that others write: CSV or JSON.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::Read;
use std::marker::PhantomData;
use std::path::Path;

use serde::Deserialize;
use shuffle::{Assignment, Fleet, Worker};

/// Octets of such a file at the most.
const FILE_LEN_MAX: u64 = 1 << 30;

/// A worker in JSON: its id, its weight, and a domain for each dimension.
#[derive(Debug, Deserialize)]
struct FileWorker {
    id: String,
    #[serde(default = "full_weight")]
    weight: f64,
    #[serde(flatten, deserialize_with = "distinct")]
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

/// Reads a regular file, as long as it may be at the most.
pub fn read(path: &Path) -> Result<String, String> {
    read_most(path, FILE_LEN_MAX)
}

fn read_most(path: &Path, limit: u64) -> Result<String, String> {
    let name = path.display();
    let failed = |error: std::io::Error| format!("{name}: cannot be read: {error}");
    // Before it is opened: that can wait forever for what is no file.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(format!("{name}: no regular file; accepted: a file of text"));
    }
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(limit + 1).read_to_string(&mut text).map_err(failed)?;
    match text.len() as u64 > limit {
        true => Err(format!("{name}: too long; at most {limit} octets are read")),
        false => Ok(text),
    }
}

/// Reads which tenant has which workers: CSV with a tenant and its workers a
/// line, or JSON, an object of arrays or an array of objects. A first line of
/// CSV that starts with the field `tenant` is a header.
pub fn read_assignment(path: &Path) -> Result<Assignment, String> {
    let text = read(path)?;
    let failed = |error: String| format!("{}: {error}", path.display());
    let tenants = match text.trim_start().starts_with(['{', '[']) {
        true => tenants_from_json(&text),
        false => tenants_from_csv(&text),
    };
    let tenants = tenants.map_err(failed)?;
    if tenants.is_empty() {
        return Err(failed(
            "no tenants in it; accepted: one at least, as CSV (tenant,worker,worker,…) or JSON"
                .into(),
        ));
    }
    Assignment::new(tenants).map_err(|problems| failed(problems.to_string()))
}

/// A worker's id in JSON, which may be a number.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum FileId {
    Number(u64),
    Text(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTenant {
    tenant: String,
    workers: Vec<FileId>,
}

type Tenants = Vec<(String, Vec<String>)>;

fn tenants_from_json(text: &str) -> Result<Tenants, String> {
    let explain = |error: serde_json::Error| {
        format!(
            "{error}; accepted: {{\"tenant\": [worker, …], …}} or [{{\"tenant\": name, \
             \"workers\": [worker, …]}}, …]"
        )
    };
    let name = |id: FileId| match id {
        FileId::Number(number) => number.to_string(),
        FileId::Text(text) => text,
    };
    if text.trim_start().starts_with('[') {
        let tenants: Vec<FileTenant> = serde_json::from_str(text).map_err(explain)?;
        let tenant = |one: FileTenant| (one.tenant, one.workers.into_iter().map(name).collect());
        return check_json_names(tenants.into_iter().map(tenant).collect());
    }
    // Not a map: a tenant that is there twice must be noticed.
    let tenants: Pairs<Vec<FileId>> = serde_json::from_str(text).map_err(explain)?;
    let tenant = |(tenant, workers): (String, Vec<FileId>)| {
        (tenant, workers.into_iter().map(name).collect())
    };
    check_json_names(tenants.0.into_iter().map(tenant).collect())
}

fn check_json_names(tenants: Tenants) -> Result<Tenants, String> {
    for (number, (tenant, workers)) in tenants.iter().enumerate() {
        check_names(tenant, workers)
            .map_err(|error| format!("tenant number {}: {error}", number + 1))?;
    }
    Ok(tenants)
}

fn check_names(tenant: &str, workers: &[String]) -> Result<(), String> {
    if tenant.is_empty() {
        return Err("an empty tenant name; each tenant needs one".into());
    }
    match workers.iter().any(String::is_empty) {
        true => Err(format!("an empty worker id of tenant `{tenant}`; each worker needs one")),
        false => Ok(()),
    }
}

/// The domains of a worker; none may be there twice.
fn distinct<'de, D>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    let mut domains = BTreeMap::new();
    for (name, domain) in Pairs::deserialize(deserializer)?.0 {
        if domains.insert(name.clone(), domain).is_some() {
            return Err(serde::de::Error::custom(format!("`{name}` is there twice")));
        }
    }
    Ok(domains)
}

/// The members of an object, in their order.
struct Pairs<V>(Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Pairs<V> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> serde::de::Visitor<'de> for Visitor<V> {
            type Value = Pairs<V>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Pairs<V>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Visitor(PhantomData))
    }
}

fn tenants_from_csv(text: &str) -> Result<Tenants, String> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let mut tenants = Vec::new();
    for (number, row) in reader.records().enumerate() {
        let row = row.map_err(|error| error.to_string())?;
        let line = row.position().map_or(0, csv::Position::line);
        let mut fields = row.iter().map(str::to_owned);
        let tenant = fields.next().unwrap_or_default();
        if number == 0 && tenant.eq_ignore_ascii_case("tenant") {
            continue;
        }
        let workers: Vec<String> = fields.collect();
        check_names(&tenant, &workers).map_err(|error| format!("line {line}: {error}"))?;
        tenants.push((tenant, workers));
    }
    Ok(tenants)
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
    let mut names = HashSet::new();
    if let Some(name) = header.iter().find(|name| !names.insert(*name)) {
        return Err(format!("line 1: two columns are called `{name}`; each needs its own name"));
    }
    let mut workers = Vec::new();
    for row in reader.records() {
        let row = row.map_err(|error| error.to_string())?;
        let line = row.position().map_or(0, csv::Position::line);
        if row[id_at].is_empty() {
            return Err(format!("line {line}: an empty id; each worker needs one"));
        }
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
    fn assignments_come_in_three_forms() {
        let read = |text: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            let name = file.path().display().to_string();
            read_assignment(file.path())
                .map(|read| {
                    let names = |slots: &[shuffle::Slot]| {
                        slots.iter().map(|slot| read.worker(*slot).unwrap().to_owned()).collect()
                    };
                    read.shards()
                        .map(|(t, slots)| (t.to_owned(), names(slots)))
                        .collect::<Tenants>()
                })
                .map_err(|error| error.replace(&name, "FILE"))
        };
        let csv = read("a, 1, 2\nb, 2, 3\n").unwrap();
        assert_eq!(read(r#"{"a": [1, 2], "b": ["2", 3]}"#).unwrap(), csv);
        let list = r#"[{"tenant": "a", "workers": [1, 2]}, {"tenant": "b", "workers": [2, 3]}]"#;
        assert_eq!(read(list).unwrap(), csv);
        assert_eq!(read("tenant,workers\na, 1, 2\nb, 2, 3\n").unwrap(), csv);
        assert_eq!(read("Tenant, worker 1, worker 2\na,1,2\nb,2,3\n").unwrap(), csv);
        for (text, said) in [
            ("", "FILE: no tenants in it"),
            ("\n\n", "FILE: no tenants in it"),
            ("tenant,workers\n", "FILE: no tenants in it"),
            ("[]", "FILE: no tenants in it"),
            ("{}", "FILE: no tenants in it"),
            ("a,1\n,2\n", "FILE: line 2: an empty tenant name"),
            ("tenant,workers\na,1\nb,1,,2\n", "FILE: line 3: an empty worker id of tenant `b`"),
            (r#"{"a": [1], "": [2]}"#, "FILE: tenant number 2: an empty tenant name"),
            (r#"{"a": [1, ""]}"#, "FILE: tenant number 1: an empty worker id of tenant `a`"),
            (r#"[{"tenant": "a", "workers": [""]}]"#, "an empty worker id of tenant `a`"),
            (r#"{"a": [1], "a": [2]}"#, "FILE: "),
            ("a,1,1\n", "FILE: "),
            ("a\n", "FILE: "),
            (r#"{"a": 1}"#, "accepted: {\"tenant\": [worker, …], …}"),
            ("[1]", "accepted: "),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn what_is_no_file_is_not_read() {
        for path in ["/dev/zero", "/dev/null", "/tmp"] {
            let error = read(Path::new(path)).unwrap_err();
            assert_eq!(error, format!("{path}: no regular file; accepted: a file of text"));
        }
    }

    #[test]
    fn files_are_read_up_to_the_limit() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "12345").unwrap();
        assert_eq!(read_most(file.path(), 5).unwrap(), "12345");
        let error = read_most(file.path(), 4).unwrap_err();
        assert!(error.ends_with(": too long; at most 4 octets are read"), "{error}");
    }

    #[test]
    fn malformed_files_are_refused_with_the_place() {
        for (text, said) in [
            ("", "FILE: line 1: no column `id`"),
            ("name,zone\na,eu\n", "FILE: line 1: no column `id` in the header `name,zone`"),
            ("id,weight\na,heavy\n", "FILE: line 2: the weight `heavy` is no number"),
            ("id,zone\na\n", "FILE: CSV error: record 1 (line: 2"),
            ("id,zone\na,eu\n,us\n", "FILE: line 3: an empty id"),
            ("id,zone,id\na,eu,b\n", "FILE: line 1: two columns are called `id`"),
            ("id,zone,zone\na,eu,us\n", "FILE: line 1: two columns are called `zone`"),
            ("[{\"id\": \"\"}]", "FILE: worker number 1 has an empty id"),
            ("[{\"id\": \"a\", \"id\": \"b\"}]", "FILE: duplicate field `id`"),
            ("[{\"id\": \"a\", \"z\": \"x\", \"z\": \"y\"}]", "FILE: `z` is there twice"),
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
