//! Drivers from a configuration, and the way from a knob to its driver.

use std::collections::BTreeMap;

use async_trait::async_trait;
use drain::{Act, Knob, Value};
use drivers::{Action, CALL_MAX, Config, Description, Driver, Drivers, Error, Fence, Shape};

fn configs(json: &str) -> BTreeMap<String, Config> {
    serde_json::from_str(json).unwrap()
}

fn knob(driver: &str, name: &str) -> Knob {
    Knob { driver: driver.into(), name: name.into() }
}

#[tokio::test]
async fn a_knob_finds_its_driver() {
    let configs = configs(
        r#"{
            "edge": {"kind": "haproxy", "socket": "/no/such.sock"},
            "jobs": {"kind": "exec", "read": ["echo", "{knob}"], "act": ["echo", "{action}"]}
        }"#,
    );
    let drivers = Drivers::from_config(&configs, &[]).unwrap();
    assert_eq!(drivers.read(&knob("jobs", "x")).await, Ok(Value::Text("x".into())));
    let error = drivers.read(&knob("edge", "weight/web/a")).await.unwrap_err();
    assert!(error.is_transient());
    assert!(error.to_string().starts_with("edge: HAProxy at /no/such.sock: "), "{error}");
    let error = drivers.read(&knob("egde", "x")).await.unwrap_err();
    assert_eq!(error, Error::Unknown("there is no driver \"egde\"; configured: edge, jobs".into()));

    let fence = Fence::new(1, 1).unwrap();
    let nan = Value::Number(f64::NAN);
    assert!(matches!(drivers.write(&knob("jobs", "x"), &nan, fence).await, Err(Error::Refused(_))));
    let act = |driver: &str| Act {
        driver: driver.into(),
        action: "stop".into(),
        arguments: BTreeMap::new(),
    };
    assert_eq!(drivers.act(&act("jobs"), "1.1", fence).await, Ok("stop".into()));
    assert!(matches!(drivers.act(&act("edge"), "1.1", fence).await, Err(Error::Unknown(_))));
    let kinds: Vec<_> = drivers.describe().map(|(name, what)| (name, what.kind)).collect();
    assert_eq!(kinds, [("edge", "haproxy"), ("jobs", "exec")]);
}

#[test]
fn all_problems_are_found() {
    let configs = configs(
        r#"{
            "a b": {"kind": "haproxy", "socket": "192.0.2.1:9999", "timeout_ms": 0},
            "c": {"kind": "haproxy", "socket": "relative.sock"},
            "d": {"kind": "exec", "write": ["x"], "read": []},
            "e": {"kind": "exec", "read": [""], "verify": ["x"]}
        }"#,
    );
    let problems = Drivers::from_config(&configs, &[]).unwrap_err();
    let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
    let expected = [
        "drivers.a b: \"a b\" is no name",
        "drivers.a b.socket: 192.0.2.1:9999 can be reached by others",
        "drivers.a b.timeout_ms: it is 0; accepted: 1 to 3600000",
        "drivers.c.socket: \"relative.sock\" is neither",
        "drivers.d: it has neither `read` nor `act`",
        "drivers.d.read: it is missing",
        "drivers.e.read: the program has no name",
        "drivers.e.verify: there is no `write`",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, start) in lines.iter().zip(expected) {
        assert!(line.starts_with(start), "{line}");
    }
}

#[test]
fn one_target_has_one_driver() {
    let configs = configs(
        r#"{
            "a": {"kind": "haproxy", "socket": "/run/edge.sock"},
            "b": {"kind": "haproxy", "socket": "/run/edge.sock", "timeout_ms": 5},
            "c": {"kind": "exec", "read": ["x"], "write": ["w", "{value}"]},
            "d": {"kind": "exec", "read": ["y"], "write": ["w", "{value}"]},
            "e": {"kind": "exec", "read": ["x"]},
            "f": {"kind": "exec", "read": ["x"]}
        }"#,
    );
    let problems = Drivers::from_config(&configs, &[]).unwrap_err();
    let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
    let that = |other: &str| format!("it is that of `{other}`, and one target has one name");
    let expected = [
        format!("drivers.b.socket: {}; accepted: `a` in runbooks, instead of `b`", that("a")),
        format!("drivers.d.write: {}; accepted: `c` in runbooks, instead of `d`", that("c")),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn what_is_not_understood_is_refused() {
    for wrong in [
        r#"{"a": {"kind": "haproxy", "socket": "/s", "timeout": 5}}"#,
        r#"{"a": {"kind": "exec", "reed": ["x"]}}"#,
        r#"{"a": {"kind": "nginx"}}"#,
        r#"{"a": {"socket": "/s"}}"#,
    ] {
        assert!(serde_json::from_str::<BTreeMap<String, Config>>(wrong).is_err(), "{wrong}");
    }
}

/// A driver that breaks its promise.
#[derive(Debug)]
struct Mute;

#[async_trait]
impl Driver for Mute {
    async fn read(&self, _knob: &str) -> drivers::Result<Value> {
        std::future::pending().await
    }

    async fn write(&self, _: &str, _: &Value, _: Fence) -> drivers::Result<Value> {
        std::future::pending().await
    }

    async fn act(&self, _: Action<'_>, _: Fence) -> drivers::Result<String> {
        std::future::pending().await
    }

    async fn check(&self, _: &str) -> drivers::Result<Shape> {
        std::future::pending().await
    }

    fn describe(&self) -> Description {
        Description { kind: "mute", target: "nothing".into(), knobs: Vec::new() }
    }
}

/// A run waits for the end of everything that it began.
#[tokio::test(start_paused = true)]
async fn every_call_ends_even_if_its_driver_does_not_end_it() {
    let mut drivers = Drivers::default();
    drivers.insert("mute", Box::new(Mute));
    let began = tokio::time::Instant::now();
    let (knob, fence) = (knob("mute", "x"), Fence::new(1, 1).unwrap());
    let error = drivers.write(&knob, &Value::Number(0.0), fence).await.unwrap_err();
    assert!(error.is_transient(), "it may have arrived: {error}");
    assert_eq!(error.to_string(), "mute: the driver has not answered for 3660 s");
    assert!(began.elapsed() >= CALL_MAX);
    assert!(drivers.read(&knob).await.is_err() && drivers.check(&knob).await.is_err());
}
