//! Directories of zone files that change, and what is served after each load.

use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::file::read_whole;
use super::*;
use authority::{Shard, ShardServer};

fn zone(origin: &str, address: &str) -> String {
    format!("$ORIGIN {origin}\n$TTL 60\n@ SOA ns host 1 2 3 4 5\n@ NS ns\nns A {address}\n")
}

/// A zone whose SOA record cannot be read.
fn without_soa(origin: &str) -> String {
    zone(origin, "192.0.2.1").replace("SOA ns host 1", "SOA ns host x")
}

/// A zone with an error beside its SOA record.
fn with_error(origin: &str) -> String {
    zone(origin, "192.0.2.256")
}

/// A directory and what is served from it.
struct Bench {
    home: TempDir,
    directory: ZoneDirectory,
    serving: Catalog,
}

impl Bench {
    /// Serves these files.
    fn new(files: &[(&str, String)]) -> Self {
        Bench::placed(files, None)
    }

    /// Serves these files where `placements` says.
    fn placed(files: &[(&str, String)], placements: Option<Arc<dyn Placements>>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let hasher = NameHasher::new([7; 16]);
        let directory = ZoneDirectory::new(home.path().to_owned(), hasher, placements);
        let mut bench = Bench { home, directory, serving: Catalog::default() };
        files.iter().for_each(|(name, text)| bench.write(name, text));
        bench.load();
        bench
    }

    fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.home.path().join(name.as_ref())
    }

    /// Replaces a file by another, so that its stamp is new however soon.
    fn write(&self, name: &str, text: &str) {
        let draft = self.path(".draft");
        std::fs::write(&draft, text).unwrap();
        std::fs::rename(draft, self.path(name)).unwrap();
    }

    fn remove(&self, name: &str) {
        std::fs::remove_file(self.path(name)).unwrap();
    }

    fn apply(&mut self, mut load: Load) -> Load {
        self.serving = self.serving.with(std::mem::take(&mut load.changes));
        load
    }

    fn load(&mut self) -> Load {
        let load = self.directory.load(&self.serving, &|_, _| {}).unwrap();
        self.apply(load)
    }

    fn load_zones(&mut self, zones: &[&str]) -> Load {
        let zones: Vec<String> = zones.iter().map(|zone| zone.to_string()).collect();
        let load = self.directory.load_zones(&zones, &self.serving).unwrap();
        self.apply(load)
    }

    /// The zones that are served; a `!` stands before the broken ones.
    fn zones(&self) -> Vec<String> {
        let mark = |image: &Image| if image.is_broken() { "!" } else { "" };
        let mut zones: Vec<String> =
            self.serving.iter().map(|image| format!("{}{}", mark(image), image.origin())).collect();
        zones.sort();
        zones
    }

    /// The virtual name servers that a zone is served on.
    fn servers(&self, origin: &str) -> Vec<u16> {
        let image = self.serving.by_hash(self.directory.origin_of(origin)).unwrap();
        image.servers().collect()
    }

    /// True if the zone is served with the data of `text`.
    fn serves(&self, origin: &str, text: &str) -> bool {
        let other = Bench::new(&[("other.zone", text.to_owned())]);
        let hash = self.directory.origin_of(origin);
        let [mine, theirs] = [self, &other].map(|bench| bench.serving.by_hash(hash));
        mine.zip(theirs).is_some_and(|(mine, theirs)| mine.has_same_content(theirs))
    }
}

fn text(load: &Load) -> String {
    load.problems.iter().map(|known| known.problems.to_string()).collect()
}

/// Every way in which a file can become bad, by what it does to the file.
#[test]
fn a_file_that_becomes_bad_leaves_its_zone_as_it_is() {
    type Spoil = fn(&Bench, &str);
    let ways: [(&str, Spoil); 5] = [
        ("the SOA record is broken", |b, name| b.write(name, &without_soa("example.org."))),
        ("another record is broken", |b, name| b.write(name, &with_error("example.org."))),
        ("it is garbage", |b, name| b.write(name, "garbage")),
        ("it is a directory", |b, name| {
            b.remove(name);
            std::fs::create_dir(b.path(name)).unwrap();
        }),
        ("it names another zone", |b, name| b.write(name, &with_error("other.org."))),
    ];
    for name in ["example.org.zone", "tenant1.zone", "tenant 1.zone"] {
        for (way, spoil) in &ways {
            let good = zone("example.org.", "192.0.2.1");
            let mut bench = Bench::new(&[(name, good.clone())]);
            spoil(&bench, name);
            // Twice: what is remembered of a bad file is as good as the rest.
            for load in [bench.load(), bench.load(), bench.load_zones(&["example.org"])] {
                let Summary { removed, bad, kept, .. } = load.summary;
                assert_eq!((removed, bad, kept), (0, 1, 1), "{name}: {way}");
                assert!(text(&load).contains(name), "{name}: {way}");
            }
            assert_eq!(bench.zones(), ["example.org."], "{name}: {way}");
            assert!(bench.serves("example.org", &good));
        }
    }
}

#[test]
fn a_file_that_never_was_good_is_a_broken_zone() {
    let mut bench = Bench::new(&[
        ("a.test.zone", without_soa("a.test.")),
        ("tenant1.zone", with_error("b.test.")),
        ("odd name.zone", "garbage".into()),
        ("good.zone", zone("good.", "192.0.2.1")),
    ]);
    assert_eq!(bench.zones(), ["!a.test.", "!b.test.", "good."]);
    bench.load();
    assert_eq!(bench.zones(), ["!a.test.", "!b.test.", "good."]);
    // A guess by the name goes when the file says which zone it is.
    bench.write("a.test.zone", &with_error("c.test."));
    bench.load();
    assert_eq!(bench.zones(), ["!b.test.", "!c.test.", "good."]);
    bench.write("a.test.zone", &zone("c.test.", "192.0.2.1"));
    bench.write("tenant1.zone", &zone("b.test.", "192.0.2.1"));
    assert_eq!(bench.load().summary.updated, 2);
    assert_eq!(bench.zones(), ["b.test.", "c.test.", "good."]);
}

#[test]
fn a_bad_file_does_not_hold_what_another_file_took_over() {
    let mut bench = Bench::new(&[("a.zone", zone("a.test.", "192.0.2.1"))]);
    bench.write("a.zone", &with_error("b.test."));
    bench.write("z.zone", &zone("a.test.", "192.0.2.2"));
    let load = bench.load();
    assert_eq!((load.summary.bad, load.summary.removed), (1, 0), "{}", text(&load));
    assert_eq!(bench.zones(), ["!b.test.", "a.test."]);
    assert!(bench.serves("a.test", &zone("a.test.", "192.0.2.2")));
}

#[test]
fn a_bad_file_takes_no_zone_from_a_good_one() {
    let good = zone("a.test.", "192.0.2.1");
    let mut bench = Bench::new(&[("good.zone", good.clone())]);
    for bad in ["garbage", &with_error("a.test.")] {
        bench.write("a.test.zone", bad);
        bench.load();
        bench.load();
        assert_eq!(bench.zones(), ["a.test."]);
        let newer = zone("a.test.", "192.0.2.7");
        bench.write("good.zone", &newer);
        assert_eq!(bench.load().summary.updated, 1);
        bench.write("good.zone", &good);
        assert_eq!(bench.load_zones(&["a.test"]).summary.updated, 1);
    }
}

/// A backup beside a zone file must not be served when the file breaks.
#[test]
fn a_copy_does_not_stand_in_for_a_file_that_became_bad() {
    for spoilt in [without_soa("a.test."), with_error("a.test.")] {
        let good = zone("a.test.", "192.0.2.1");
        let mut bench =
            Bench::new(&[("a.zone", good.clone()), ("b.zone", zone("a.test.", "192.0.2.2"))]);
        bench.write("a.zone", &spoilt);
        assert_eq!(bench.load().summary.bad, 2);
        assert!(bench.serves("a.test", &good));
    }
}

#[test]
fn of_two_files_the_first_by_name_is_taken_however_it_is_loaded() {
    let [first, second] = ["192.0.2.1", "192.0.2.2"].map(|address| zone("a.test.", address));
    for order in [["a.zone", "b.zone"], ["b.zone", "a.zone"]] {
        for is_single in [false, true] {
            // The later one is new; the reload is of one zone or of all.
            let content = |name| if name == "a.zone" { &first } else { &second };
            let mut bench = Bench::new(&[(order[0], content(order[0]).clone())]);
            bench.write(order[1], content(order[1]));
            let load = match is_single {
                true => bench.load_zones(&[order[1].strip_suffix(".zone").unwrap()]),
                false => bench.load(),
            };
            assert_eq!(load.summary.bad, 1, "{order:?} {is_single}");
            let refused = "b.zone: error: another file of the directory already holds this zone";
            assert!(text(&load).contains(refused), "{order:?} {is_single}: {}", text(&load));
            assert!(bench.serves("a.test", &first), "{order:?} {is_single}");
            // The second takes over when the first lets go.
            bench.write("a.zone", &zone("c.test.", "192.0.2.3"));
            let load = match is_single {
                true => bench.load_zones(&["a.test"]),
                false => bench.load(),
            };
            assert_eq!(load.summary.bad, 0, "{order:?} {is_single}: {}", text(&load));
            assert_eq!(bench.zones(), ["a.test.", "c.test."]);
            assert!(bench.serves("a.test", &second), "{order:?} {is_single}");
        }
    }
}

#[test]
fn a_file_copied_over_another_removes_no_zone() {
    for is_single in [false, true] {
        let [a, b] = ["a.test.", "b.test."].map(|origin| zone(origin, "192.0.2.1"));
        let mut bench = Bench::new(&[("a.test.zone", a.clone()), ("b.test.zone", b.clone())]);
        bench.write("b.test.zone", &a);
        let load = match is_single {
            true => bench.load_zones(&["b.test"]),
            false => bench.load(),
        };
        assert_eq!((load.summary.bad, load.summary.kept, load.summary.removed), (1, 1, 0));
        assert_eq!(bench.zones(), ["a.test.", "b.test."]);
        bench.write("b.test.zone", &b);
        assert_eq!(bench.load().summary.bad, 0);
    }
}

/// Whatever happened before, what is served in the end is what the files hold,
/// and a load that finds no change makes none.
#[test]
fn any_history_of_changes_and_reloads_ends_in_what_the_files_hold() {
    const FILES: [&str; 4] = ["a.test.zone", "b.test.zone", "m.zone", "z.zone"];
    const ZONES: [&str; 4] = ["a.test.", "b.test.", "c.test.", "z."];
    let mut seed = 1u64;
    let mut draw = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for round in 0..150 {
        let mut bench = Bench::new(&[("keep.zone", zone("keep.", "192.0.2.1"))]);
        for _ in 0..12 {
            let file = FILES[draw(FILES.len())];
            let origin = ZONES[draw(ZONES.len())];
            match draw(6) {
                0 => bench.write(file, &without_soa(origin)),
                1 => bench.write(file, &with_error(origin)),
                2 => drop(std::fs::remove_file(bench.path(file))),
                _ => bench.write(file, &zone(origin, &format!("192.0.2.{}", draw(9)))),
            }
            match draw(3) {
                0 => drop(bench.load()),
                1 => {
                    let zones = [origin.to_owned()];
                    if let Ok(load) = bench.directory.load_zones(&zones, &bench.serving) {
                        bench.apply(load);
                    }
                }
                _ => {}
            }
        }
        bench.load();
        let load = bench.directory.load(&bench.serving, &|_, _| {}).unwrap();
        assert!(load.changes.is_empty(), "{round}: {:?}", load.changes);
        let texts = ZONES.map(|origin| zone(origin, "192.0.2.77"));
        let turn = draw(4);
        for (index, file) in FILES.iter().enumerate() {
            bench.write(file, &texts[(index + turn) % 4]);
        }
        assert_eq!(bench.load().summary.bad, 0, "{round}");
        assert_eq!(bench.zones(), ["a.test.", "b.test.", "c.test.", "keep.", "z."], "{round}");
        assert!(ZONES.iter().zip(&texts).all(|(origin, text)| bench.serves(origin, text)));
    }
}

#[test]
fn a_zone_that_left_its_file_goes_with_the_reload_of_that_file_alone() {
    let mut bench = Bench::new(&[("example.net.zone", zone("example.net.", "192.0.2.1"))]);
    bench.write("example.net.zone", &zone("other.net.", "192.0.2.1"));
    let load = bench.load_zones(&["example.net"]);
    assert_eq!((load.summary.updated, load.summary.removed), (1, 1));
    assert_eq!(bench.zones(), ["other.net."]);
    bench.load();
    assert_eq!(bench.zones(), ["other.net."]);
}

#[test]
fn a_zone_is_reloaded_from_the_file_it_came_from() {
    let root = ". 60 SOA ns. host. 1 2 3 4 5\n. 60 NS ns.\n";
    let mut bench = Bench::new(&[
        ("Upper.zone", zone("upper.", "192.0.2.1")),
        ("tenant1.zone", zone("example.org.", "192.0.2.1")),
        ("top.zone", root.into()),
    ]);
    for zone in ["Upper", "upper.", "EXAMPLE.org", "example.org.", "."] {
        let load = bench.load_zones(&[zone]);
        assert_eq!((load.summary.read, load.summary.files), (0, 3), "{zone}");
    }
    bench.write("Upper.zone", &zone("upper.", "192.0.2.2"));
    bench.write("tenant1.zone", &zone("example.org.", "192.0.2.2"));
    bench.write("top.zone", &root.replace("1 2 3", "2 2 3"));
    let load = bench.load_zones(&["Upper", "example.org", ".", "example.org"]);
    assert_eq!((load.summary.read, load.summary.updated), (3, 3));
    // One that is new is known by its name alone.
    bench.write("new.test.zone", &zone("new.test.", "192.0.2.1"));
    assert_eq!(bench.load_zones(&["NEW.test"]).summary.updated, 1);
    for zone in ["nowhere.test", "../top", "", "a..b"] {
        let error = bench.directory.load_zones(&[zone.to_owned()], &bench.serving).unwrap_err();
        assert!(error.to_string().contains("nothing was changed"), "{zone}: {error}");
    }
}

#[test]
fn a_file_that_would_block_its_reader_is_a_bad_file() {
    let mut bench = Bench::new(&[("a.test.zone", zone("a.test.", "192.0.2.1"))]);
    let make = |name: &str| {
        assert!(Command::new("mkfifo").arg(bench.path(name)).status().unwrap().success());
    };
    make("fifo.test.zone");
    make("part.inc");
    let including = zone("b.test.", "192.0.2.1") + "$INCLUDE part.inc\n";
    bench.write("b.test.zone", &including);
    symlink(bench.path("part.inc"), bench.path("link.test.zone")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(bench.path("sock.test.zone")).unwrap();
    let load = bench.load();
    for part in [
        "fifo.test.zone: error: the file cannot be read: it is not a regular file but a FIFO",
        "link.test.zone: error: the file cannot be read: it is not a regular file but a FIFO",
        "sock.test.zone: error: the file cannot be read: it is not a regular file but a socket",
        "`part.inc` cannot be read: it is not a regular file but a FIFO",
    ] {
        assert!(text(&load).contains(part), "{part} in {}", text(&load));
    }
    assert_eq!(bench.zones(), ["!b.test.", "!fifo.test.", "!link.test.", "!sock.test.", "a.test."]);
    assert_eq!(bench.load_zones(&["fifo.test"]).summary.bad, 4);
}

#[test]
fn a_file_that_is_too_large_is_not_read() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("large.inc");
    std::fs::write(&path, "12345").unwrap();
    let mut text = Vec::new();
    let error = read_whole(&path, 4, &mut text).unwrap_err().to_string();
    assert_eq!(error, "it has 5 octets, and there is room for 4");
    assert_eq!(text.capacity(), 0);
    assert!(read_whole(&path, 5, &mut text).is_ok());
    assert_eq!(text, b"12345");
    // Without a size in advance, as some file systems have it.
    assert!(read_whole(Path::new("/proc/self/status"), 10, &mut text).is_err());
}

#[test]
fn includes_are_forgotten_with_the_line_that_named_them() {
    let plain = zone("a.test.", "192.0.2.1");
    let mut bench = Bench::new(&[]);
    bench.write("part.inc", "www A 192.0.2.7\n");
    bench.write("a.test.zone", &format!("{plain}$INCLUDE part.inc\n"));
    bench.write("b.test.zone", &zone("b.test.", "192.0.2.1"));
    assert_eq!(bench.load().summary.read, 2);
    assert_eq!(bench.load().summary.read, 0);
    bench.write("a.test.zone", &plain);
    bench.remove("part.inc");
    assert_eq!(bench.load().summary.read, 1);
    assert_eq!(bench.load().summary.read, 0, "what it does not include any more is no change");
    // The same if the zone itself is gone.
    bench.write("part.inc", "www A 192.0.2.7\n");
    bench.write("a.test.zone", &format!("{plain}$INCLUDE part.inc\n"));
    bench.load();
    assert_eq!(bench.directory.includes.len(), 1);
    bench.remove("a.test.zone");
    bench.load();
    assert!(bench.directory.includes.is_empty());
}

#[test]
fn problems_stay_known_until_their_file_is_good() {
    // The name server without an address is worth a warning.
    let warned = zone("w.test.", "192.0.2.1").replace("ns A", "nn A");
    let mut bench = Bench::new(&[
        ("a.test.zone", zone("a.test.", "192.0.2.1")),
        ("b.test.zone", with_error("b.test.")),
        ("w.test.zone", warned),
    ]);
    let marks = |load: &Load| -> Vec<(String, bool)> {
        let file = |name: &str| name.rsplit('/').next().unwrap().to_owned();
        load.problems.iter().map(|k| (file(&k.problems.files[0]), k.is_new)).collect()
    };
    let known = |b: bool, w: bool| [("b.test.zone".to_owned(), b), ("w.test.zone".to_owned(), w)];
    let load = bench.load_zones(&["a.test"]);
    assert_eq!(marks(&load), known(false, false));
    assert_eq!((load.found, load.untold, load.summary.bad), (0, 0, 1));
    assert_eq!(marks(&bench.load()), known(true, false), "bad files are read again");
    assert_eq!(marks(&bench.load_zones(&["w.test"])), known(false, false));
    bench.remove("w.test.zone");
    bench.write("b.test.zone", &zone("b.test.", "192.0.2.1"));
    let load = bench.load();
    assert_eq!((marks(&load), load.untold, load.summary.bad), (vec![], 0, 0));
}

#[test]
fn problems_are_bounded_in_all() {
    let garbage = "garbage\n".repeat(1000);
    let files: Vec<(String, String)> =
        (0..15).map(|index| (format!("{index}.test.zone"), garbage.clone())).collect();
    let files: Vec<(&str, String)> =
        files.iter().map(|(name, text)| (name.as_str(), text.clone())).collect();
    let mut bench = Bench::new(&files);
    for load in [bench.load(), bench.load_zones(&["3.test"])] {
        let kept: usize = load.problems.iter().map(|known| known.problems.len()).sum();
        assert!(kept <= 10_000, "{kept}");
        assert_eq!(load.problems.len(), 15, "every bad file is named");
        let all: usize = load.problems.iter().map(|known| known.problems.count()).sum();
        assert!(all + load.untold >= 15_000);
    }
}

#[test]
fn a_check_finds_two_files_for_one_zone() {
    let bench = Bench::new(&[]);
    bench.write("a.zone", &zone("a.test.", "192.0.2.1"));
    bench.write("b.zone", &zone("A.test.", "192.0.2.2"));
    bench.write("c.zone", &with_error("a.test."));
    std::fs::create_dir(bench.path("other")).unwrap();
    bench.write("other/a.zone", &zone("a.test.", "192.0.2.1"));
    let mut checker = Checker::default();
    let mut check = |name: &str| {
        let (image, problems) = checker.check(&bench.path(name));
        (image.is_some(), problems.to_string())
    };
    assert_eq!(check("a.zone"), (true, String::new()));
    let (is_good, text) = check("b.zone");
    assert!(!is_good);
    assert!(text.contains("b.zone: error: ") && text.contains("/a.zone already holds the zone"));
    assert!(check("c.zone").1.contains("already holds the zone a.test."));
    assert_eq!(check("a.zone"), (true, String::new()), "the same file is no other one");
    assert_eq!(check("other/../a.zone"), (true, String::new()));
    assert_eq!(check("other/a.zone"), (true, String::new()), "nor is one for another server");
}

/// Shards that move by hand: every zone that a letter starts has the servers
/// beside it.
#[derive(Debug, Default)]
struct Shards(Mutex<HashMap<u8, Vec<u16>>>);

impl Shards {
    fn set(&self, letter: u8, servers: &[u16]) {
        self.0.lock().unwrap().insert(letter, servers.to_vec());
    }
}

impl Placements for Shards {
    fn placement_of(&self, origin: Name<'_>) -> Result<Placement, String> {
        let shards = self.0.lock().unwrap();
        let Some(numbers) = shards.get(&origin.as_bytes()[1]) else {
            return Ok(Placement::Everywhere);
        };
        let name = Arc::from(&b"\x02ns\0"[..]);
        let server = |number: &u16| ShardServer { number: *number, name: Arc::clone(&name) };
        Ok(Placement::Shard(Shard::new(numbers.iter().map(server).collect()).unwrap()))
    }
}

#[test]
fn zones_are_served_where_they_live_and_move_without_a_change_of_their_files() {
    let shards = Arc::new(Shards::default());
    shards.set(b'a', &[4, 3]);
    shards.set(b'b', &[5]);
    let files = [
        ("a.test.zone", zone("a.test.", "192.0.2.1")),
        ("b.test.zone", with_error("b.test.")),
        ("c.test.zone", zone("c.test.", "192.0.2.1")),
    ];
    let mut bench = Bench::placed(&files, Some(shards.clone()));
    assert_eq!(bench.zones(), ["!b.test.", "a.test.", "c.test."]);
    let servers = |bench: &Bench| ["a.test", "b.test", "c.test"].map(|zone| bench.servers(zone));
    assert_eq!(servers(&bench), [vec![3, 4], vec![5], vec![]]);
    let load = bench.load();
    assert_eq!((load.summary.read, load.summary.updated), (1, 0), "only the bad one");
    shards.set(b'a', &[3, 6]);
    shards.set(b'b', &[7]);
    let load = bench.load_zones(&["c.test"]);
    assert_eq!((load.summary.read, load.summary.updated), (0, 0), "the others are not asked for");
    assert_eq!(bench.load_zones(&["a.test"]).summary.updated, 1);
    assert_eq!(servers(&bench), [vec![3, 6], vec![5], vec![]]);
    bench.load();
    assert_eq!(servers(&bench), [vec![3, 6], vec![7], vec![]]);
    let again = bench.directory.load(&bench.serving, &|_, _| {}).unwrap();
    assert!(again.changes.is_empty(), "{:?}", again.changes);
}
