use super::*;

const SMALL: &str = "
pharos: world/v1
world: small
datacenters:
  a: {capacity: 100}
  b: {capacity: 100, line: 80%}
services:
  web: {user_facing: true, demand: 60, weights: {a: 1, b: 1}, calls: [api]}
  api: {demand: 30, weights: {a: 1, b: 1}, propagation: 5s}
";

#[test]
fn a_world_is_read() {
    let site = Site::read("small.yaml", SMALL).unwrap();
    assert_eq!(site.datacenters[1].line, 0.8);
    assert_eq!(site.services[1].calls, [0], "in the order of their names");
    assert_eq!(site.services[0].propagation, Millis::from_secs(5));
}

#[test]
fn all_unknown_names_are_reported() {
    let bad = SMALL.replace("calls: [api]", "calls: [ap, db]").replace("{a: 1, b: 1}", "{c: 1}");
    let error = Site::read("bad.yaml", &bad).unwrap_err().to_string();
    let expected = [
        "bad.yaml:9:34: services.api.weights names `c`, which there is not; accepted: a, b",
        "bad.yaml:8:53: services.web.weights names `c`, which there is not; accepted: a, b",
        "bad.yaml:8:65: services.web.calls names `ap`, which there is not; accepted: api, web",
        "bad.yaml:8:69: services.web.calls names `db`, which there is not; accepted: api, web",
    ];
    assert_eq!(error.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn everything_that_is_wrong_has_its_place_and_what_is_accepted() {
    let mut wrong = Vec::new();
    for (from, to, expected) in [
        (
            "capacity: 100}",
            "capacty: 100}",
            "bad.yaml:5:7: there is no key `capacty`; accepted: capacity, line",
        ),
        (
            "5s",
            "5 parsecs",
            "bad.yaml:9:57: `5 parsecs` is no span of time; accepted: 250ms, 30s, 5m, 2h, up to 8760h",
        ),
        ("80%", "180%", "bad.yaml:6:28: `180%` is no share; accepted: 0.25, 25%"),
        (
            "demand: 60",
            "demand: -60",
            "bad.yaml:8:36: `-60` is no amount; accepted: numbers from 0 to 1e12",
        ),
        (
            "capacity: 100}",
            "capacity: 0}",
            "bad.yaml:5:17: `0` is no capacity; accepted: from 1e-6 to 1e12",
        ),
        (
            "world: small",
            "world: small\nscrape: 0s",
            "bad.yaml:4:9: it cannot happen all the time; accepted: spans above 0s",
        ),
        ("world/v1", "world/v2", "bad.yaml:2:9: `world/v2` is not known; accepted: world/v1"),
        (
            "world: small\n",
            "",
            "bad.yaml:6:1: the key `world` is missing; accepted: `world` with a value",
        ),
        (
            "world: small",
            "world: small\nworld: again",
            "bad.yaml:4:1: the key `world` is there twice; accepted: each key once",
        ),
        (
            "demand: 30, ",
            "",
            "bad.yaml:9:8: services.api needs `demand` or `sessions`; accepted: one of them",
        ),
    ] {
        let error = Site::read("bad.yaml", &SMALL.replacen(from, to, 1)).unwrap_err().to_string();
        if error != expected {
            wrong.push(format!("{error}, not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
