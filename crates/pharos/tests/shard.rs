//! `pharos shard` as others call it: what it prints, and what it refuses.

mod common;

use std::collections::{HashMap, HashSet};
use std::process::{Command, Output};

use common::PHAROS;
use serde_json::{Value, json};

/// The fleet of the contract.
const FLEET: [&str; 8] = ["--workers", "2048", "--stripes", "4", "--size", "4", "--overlap", "2"];

fn pharos(args: &[&str]) -> Output {
    Command::new(PHAROS).arg("shard").args(args).output().unwrap()
}

fn text(args: &[&str]) -> String {
    let output = pharos(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json_of(args: &[&str]) -> Value {
    serde_json::from_str(&text(&[args, &["--json"]].concat())).unwrap()
}

/// `args` for the fleet of the contract.
fn of_fleet<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [args, &FLEET[..]].concat()
}

#[track_caller]
fn refused(args: &str, said: &str) {
    let output = pharos(&args.split(' ').collect::<Vec<_>>());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains(said), "{args}: {error}");
    assert!(output.stdout.is_empty());
}

#[test]
fn plans_have_the_promised_fields() {
    let plan = json_of(&of_fleet(&["plan"]));
    assert_eq!(plan["design"], "striped-sum");
    assert_eq!(plan["capacity"], 134_217_728);
    assert_eq!(plan["bound"], 357_389_824);
    assert_eq!(plan["survives_attackers"], 1);
    let unstriped = json_of(&["plan", "--workers", "2048", "--size", "4", "--overlap", "2"]);
    assert_eq!(unstriped["capacity"], 357_389_824);
    assert_eq!(unstriped["is_largest"], true);
    let pairs = json_of(&["plan", "--workers", "8", "--size", "2", "--overlap", "1"]);
    let impact =
        json!({ "without_shards": "1/1", "plain_shards": "1/4", "shuffle_shards": "1/28" });
    assert_eq!(pairs["impact"], impact);
}

#[test]
fn lists_are_in_stripe_order_and_follow_the_key() {
    let list = |key: &str, from: &str, count: &str| {
        text(&of_fleet(&["list", "--key", key, "--from", from, "--count", count, "--json"]))
    };
    let all = list("00ff", "0", "5000");
    let mut loads: HashMap<usize, u32> = HashMap::new();
    let mut triples = HashSet::new();
    for line in all.lines() {
        let shard: Vec<usize> = serde_json::from_str(line).unwrap();
        let stripes: Vec<usize> = shard.iter().map(|worker| worker / 512).collect();
        assert_eq!(stripes, [0, 1, 2, 3]);
        shard.iter().for_each(|worker| *loads.entry(*worker).or_default() += 1);
        for left_out in 0..4 {
            let mut triple = shard.clone();
            triple.remove(left_out);
            assert!(triples.insert(triple), "two shards share three workers: {shard:?}");
        }
    }
    assert_eq!((all.lines().count(), loads.len()), (5000, 2048));
    assert!(loads.values().all(|load| (9..=10).contains(load)));
    let end: Vec<&str> = all.lines().skip(4990).collect();
    assert_eq!(list("00ff", "4990", "10").lines().collect::<Vec<_>>(), end);
    assert_ne!(list("00ff", "0", "10"), list("00fe", "0", "10"));
}

#[test]
fn lists_pass_closed_workers_over_and_go_into_shards() {
    let list = |args: &str| -> Vec<Vec<u32>> {
        let args: Vec<&str> = args.split(' ').chain(["--json"]).collect();
        text(&args).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let open = list("list --workers 16 --stripes 4 --count 64 --closed 0,5");
    assert_eq!(open.len(), 36);
    assert!(open.iter().flatten().all(|worker| ![0, 5].contains(worker)));
    let outer = "--workers 256 --stripes 8 --size 8";
    let tenant = &list(&format!("list {outer} --from 5 --count 1"))[0];
    let within = "--within 5 --inner-size 4 --inner-overlap 2 --count 99";
    let customers = list(&format!("list {outer} {within}"));
    assert_eq!(customers.len(), 14);
    for (at, one) in customers.iter().enumerate() {
        assert!(one.len() == 4 && one.iter().all(|worker| tenant.contains(worker)));
        let shared = |other: &Vec<u32>| one.iter().filter(|worker| other.contains(worker)).count();
        assert!(customers[..at].iter().all(|other| shared(other) <= 2));
    }
    refused("list --workers 16 --closed 16", "--closed: there is no worker `16`");
    refused(&format!("list {outer} --within 5 --inner-size 9"), "1 to 8 slots");
}

#[test]
fn shards_are_found_by_number_and_by_workers() {
    let by_number = json_of(&of_fleet(&["show", "4711"]));
    let workers: Vec<String> = serde_json::from_value(by_number["workers"].clone()).unwrap();
    let by_workers = json_of(&of_fleet(&["show", &workers.join(",")]));
    assert_eq!(by_number, by_workers);
    assert_eq!(by_number["index"], 4711);
}

#[test]
fn blast_radius_and_suspects_agree() {
    let spectrum = json_of(&of_fleet(&["spectrum"]));
    assert_eq!(spectrum["least"], json!([133_172_221, 1_042_440, 3066, 0, 0]));
    let all = json_of(&["blast", "--workers", "3,517"]);
    assert_eq!((&all["by_lost"][2], &all["tenants"]), (&json!(512), &json!(134_217_728)));
    let some = json_of(&["blast", "--workers", "3,517", "--tenants", "100000"]);
    let suspects = json_of(&["suspects", "--workers", "3,517", "--tenants", "100000"]);
    assert_eq!(some["by_lost"][2], suspects["on_all"]);
    let one = json_of(&["suspects", "--workers", "3,517,1030"]);
    let shard = one["shard"].as_u64().unwrap().to_string();
    let shown = text(&of_fleet(&["show", &shard]));
    assert!(shown.contains(": 3 517 1030 "), "{shown}");
}

#[test]
fn foreign_assignments_are_verified() {
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = home.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = write("good.csv", "a,1,2,3\nb,3,4,5\nc,5,6,1\n");
    let report = json_of(&["verify", &good, "--overlap", "1"]);
    assert_eq!((&report["overlap"], &report["survives_attackers"]), (&json!(1), &json!(2)));
    let bad = write("bad.json", r#"{"a": [1, 2, 3], "b": [3, 2, 5], "c": ["x", "y", "z"]}"#);
    let output = pharos(&["verify", &bad, "--overlap", "1"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && said.contains("does NOT hold"), "{said}");
    assert!(said.contains("a and b"), "{said}");
    let shown = json_of(&["show", "b", "--assignment", &bad]);
    assert_eq!(shown["workers"], json!(["2", "3", "5"]));
    let blast = json_of(&["blast", "--workers", "1,2,3", "--assignment", &bad]);
    assert_eq!(blast["by_lost"], json!([1, 0, 1, 1]));
    let fleet = write("fleet.csv", "id,zone,weight\na,eu,1\nb,us,1\nc,eu,2\nd,us,1\n");
    let plan = ["plan", "--fleet", &fleet, "--apart", "zone", "--size", "2", "--overlap", "1"];
    let plan = json_of(&plan);
    assert_eq!((&plan["capacity"], &plan["is_striped"]), (&json!(4), &json!(true)));
    refused(&format!("plan --fleet {fleet} --apart rack --size 2"), "no dimension `rack`");
    refused(&format!("verify {}", write("none.csv", "")), "none.csv: no tenants in it");
    let headed = write("headed.csv", "tenant,workers\na,1,2,3\nb,3,4,5\nc,5,6,1\n");
    assert_eq!(json_of(&["verify", &headed, "--overlap", "1"]), report);
    refused(&format!("verify {}", write("twice.csv", "a,1,2\na,3,4\n")), "twice.csv: ");
}

#[test]
fn plots_are_pictures() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("blast.svg");
    text(&of_fleet(&["plot", path.to_str().unwrap()]));
    let svg = std::fs::read_to_string(&path).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("shuffle shards"), "{svg}");
}

#[test]
fn resizes_are_planned_step_by_step() {
    let plan = json_of(&of_fleet(&["resize", "--replace", "17=new", "--tenants", "10000"]));
    let steps = plan["steps"].as_array().unwrap();
    let kinds: Vec<&str> = steps.iter().map(|step| step["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["join", "move", "leave"]);
    assert!(plan["tenants_touched"].as_u64().is_some_and(|touched| (19..=20).contains(&touched)));
    let dark = json_of(&of_fleet(&["resize", "--remove", "17", "--tenants", "10000"]));
    assert_eq!(dark["left_dark"], json!([17]));
}

#[test]
fn impossible_wishes_are_refused() {
    refused("plan --workers 0", "a fleet without workers");
    refused("plan --workers 2048 --stripes 4 --size 5", "nearest possible: shards of 4 workers");
    refused("plan --workers 2048 --size 4 --overlap 4", "nearest possible: an overlap of 3");
    refused("plan --workers 64 --size 4 --overlap 2 --attackers 2", "nearest possible: an overlap");
    refused("plan --workers 8 --size 2 --tenants 29", "nearest possible:");
    refused("plan --workers 2000000", "at most 1048576");
    refused("plan --workers many", "invalid value 'many'");
    refused("list --workers 16 --key 0x1", "character 2 of the key");
    refused("show 64 --workers 16 --stripes 4", "accepted: 0 to 63");
    refused("show a --workers 16", "needs --assignment FILE");
    refused("blast --workers 1,2,1", "named twice");
    refused("blast --workers 2048", "there is no worker `2048`");
    refused("resize --workers 16 --stripes 4 --remove 99", "there is no host `99`");
    refused("resize --workers 16 --stripes 4 --replace 9", "accepted: OLD=NEW");
    refused("verify /nonexistent", "cannot be read");
    refused("verify /dev/zero", "/dev/zero: no regular file");
}

#[test]
fn numbers_out_of_range_are_refused() {
    let most = "18446744073709551615";
    let attackers = format!("plan --workers 10 --attackers {most} --overlap 2");
    refused(&attackers, "nearest possible: an overlap of 0");
    refused("plan --workers 64 --room 2000000", "nearest possible: a room of 1048576");
    refused("plan --workers 64 --room 4294967295", "nearest possible: a room of 1048576");
    refused("plan --workers 64 --room 1000000", "nearest possible: a smaller room, such as ");
    for floods in ["0", "1025", "4294967295"] {
        refused(&format!("plot --workers 64 --floods {floods}"), "1..=1024");
    }
    for tenants in ["16777217", most] {
        let resize = format!("resize --workers 64 --stripes 4 --remove 1 --tenants {tenants}");
        refused(&resize, "0..=16777216");
        refused(&format!("blast --workers 1 --tenants {tenants}"), "0..=16777216");
        refused(&format!("suspects --workers 1 --tenants {tenants}"), "0..=16777216");
    }
}

#[test]
fn numbers_without_a_shard_are_found_out_at_once() {
    let roomy = "--workers 64 --stripes 4 --room 150";
    refused(&format!("show 3374999 {roomy}"), "it is never handed out");
    refused(&format!("list {roomy} --within 3374999 --inner-size 2"), "there is no shard 3374999");
}

#[test]
fn empty_ids_are_refused() {
    refused("resize --workers 16 --stripes 4 --add ", "--add : an empty id; accepted: ID, or");
    refused("resize --workers 16 --stripes 4 --add =1", "--add =1: an empty id");
    refused("resize --workers 16 --stripes 4 --replace 9=", "an empty id; accepted: OLD=NEW");
}
