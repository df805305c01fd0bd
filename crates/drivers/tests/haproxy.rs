//! The HAProxy driver on a real HAProxy, from Debian's package.

mod proxy;

use std::time::Duration;

use drain::Value;
use drivers::haproxy::{Config, Haproxy};
use drivers::{Accepts, Driver, Error, Fence};
use proxy::{Backends, Proxy, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};

fn fence(number: u64) -> Fence {
    Fence::new(1, number).unwrap()
}

fn number(value: Value) -> f64 {
    value.number().unwrap_or_else(|| panic!("{value} is no number"))
}

async fn read(driver: &Haproxy, knob: &str) -> f64 {
    number(driver.read(knob).await.unwrap())
}

async fn write(driver: &Haproxy, knob: &str, value: f64) -> f64 {
    number(driver.write(knob, &Value::Number(value), fence(1)).await.unwrap())
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

/// Weights say nothing of servers that take no traffic.
#[tokio::test]
async fn servers_that_are_all_down_or_in_maintenance_are_out() {
    let Some(proxy) = Proxy::start(&Backends::bind()).await else { return };
    let driver = proxy.driver();
    let is_out = async |knob: &str| driver.is_out(knob).await.unwrap();
    assert!(!is_out("weight/web/@dc1-*").await);
    proxy.ask("set server web/dc1-a state maint").await;
    assert!(is_out("weight/web/dc1-a").await && !is_out("weight/web/@dc1-*").await);
    proxy.ask("set server web/dc1-b state drain").await;
    assert!(is_out("weight/web/@dc1-*").await);
    assert_eq!(read(&driver, "weight/web/@dc1-*").await, 1.0, "as if all were well");
    proxy.ask("set server web/dc1-b state ready").await;
    assert!(!is_out("weight/web/@dc1-*").await);
    // As `http-check disable-on-404` does: it keeps its weight and gets no new request.
    proxy.ask("set server web/dc1-b health stopping").await;
    assert!(is_out("weight/web/@dc1-*").await);
    proxy.ask("set server web/dc1-b health up").await;
    assert!(!is_out("weight/web/@dc1-*").await);
}

/// A service that is switched by states is drained by them as one with weights is.
#[tokio::test]
async fn knobs_of_every_kind_are_out_with_their_servers() {
    let Some(proxy) = Proxy::start(&Backends::bind()).await else { return };
    let driver = proxy.driver();
    for server in ["dc1-a", "dc1-b"] {
        proxy.ask(&format!("set server web/{server} health down")).await;
    }
    for kind in ["weight", "state", "sessions"] {
        assert!(driver.is_out(&format!("{kind}/web/@dc1-*")).await.unwrap(), "{kind}");
        assert!(!driver.is_out(&format!("{kind}/web/dc2-a")).await.unwrap(), "{kind}");
    }
    assert_eq!(
        driver.read("state/web/@dc1-*").await.unwrap(),
        text("ready"),
        "as if all were well"
    );
}

#[tokio::test]
async fn a_group_is_out_if_the_server_that_is_up_has_no_weight() {
    let Some(proxy) = Proxy::start(&Backends::bind()).await else { return };
    let driver = proxy.driver();
    proxy.ask("set server web/dc1-a health down").await;
    assert!(!driver.is_out("weight/web/@dc1-*").await.unwrap());
    proxy.ask("set weight web/dc1-b 0").await;
    for kind in ["weight", "state"] {
        assert!(driver.is_out(&format!("{kind}/web/@dc1-*")).await.unwrap(), "{kind}");
    }
    assert!(read(&driver, "weight/web/@dc1-*").await > 0.9, "as if the other were up");
}

#[tokio::test]
async fn weights_are_read_written_and_read_back() {
    let Some(proxy) = Proxy::start(&Backends::bind()).await else { return };
    let driver = proxy.driver();
    assert_eq!(read(&driver, "weight/web/dc1-a").await, 1.0);
    assert_eq!(write(&driver, "weight/web/dc1-a", 0.33).await, 0.33);
    assert_eq!(proxy.ask("get weight web/dc1-a").await, "33 (initial 100)\n\n");
    // Another one, which has not written it, reads what is there.
    assert_eq!(read(&proxy.driver(), "weight/web/dc1-a").await, 0.33);

    // Servers of different weights, all to the same share of it.
    assert_eq!(write(&driver, "weight/web/@dc1-*", 0.5).await, 0.5);
    assert_eq!(proxy.ask("get weight web/dc1-a").await, "50 (initial 100)\n\n");
    assert_eq!(proxy.ask("get weight web/dc1-b").await, "4 (initial 7)\n\n");
    assert_eq!(proxy.ask("get weight web/dc2-a").await, "100 (initial 100)\n\n");
    // Somebody turns one of them: seen, and put back.
    proxy.ask("set weight web/dc1-b 7").await;
    assert_eq!(read(&driver, "weight/web/@dc1-*").await, 1.0);
    assert_eq!(write(&driver, "weight/web/@dc1-*", 0.5).await, 0.5);
    assert_eq!(proxy.ask("get weight web/dc1-b").await, "4 (initial 7)\n\n");
    // All the way, and back.
    assert_eq!(write(&driver, "weight/web/@dc1-*", 0.0).await, 0.0);
    assert_eq!(proxy.ask("get weight web/dc1-b").await, "0 (initial 7)\n\n");
    assert_eq!(write(&driver, "weight/web/@dc1-*", 1.0).await, 1.0);
    assert_eq!(proxy.ask("get weight web/dc1-b").await, "7 (initial 7)\n\n");
}

#[tokio::test]
async fn what_is_not_there_is_told_what_is() {
    let Some(proxy) = Proxy::start(&Backends::bind()).await else { return };
    let driver = proxy.driver();
    let unknown = async |knob: &str, there: &str| {
        let check = driver.check(knob).await.unwrap_err();
        let read = driver.read(knob).await.unwrap_err();
        let write = driver.write(knob, &Value::Number(0.0), fence(1)).await;
        for error in [check, read, write.unwrap_err()] {
            assert!(matches!(error, Error::Unknown(_)), "{error:?}");
            assert!(error.to_string().contains(there), "{error}");
        }
    };
    unknown("weight/web/dc9-a", "it has: dc1-a, dc1-b, dc2-a").await;
    unknown("weight/web/@dc9-*", "it has: dc1-a, dc1-b, dc2-a").await;
    unknown("sessions/web/dc9-a", "it has: dc1-a, dc1-b, dc2-a").await;
    unknown("state/nowhere/dc1-a", "it has: hash, web").await;

    let shape = driver.check("weight/web/dc1-a").await.unwrap();
    assert_eq!(shape.accepts, Accepts::Number { min: 0.0, max: 2.56, step: 0.01 });
    assert!(shape.is_writable);
    let shape = driver.check("count/web/@*").await.unwrap();
    assert!(!shape.is_writable);
    let error = driver.write("count/web/dc1-a", &Value::Number(0.0), fence(1)).await.unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error:?}");
    for wrong in [Value::Number(-0.1), Value::Number(2.6), Value::Number(f64::NAN), text("half")] {
        let error = driver.write("weight/web/dc1-a", &wrong, fence(1)).await.unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{wrong}: {error:?}");
    }
    assert_eq!(read(&driver, "weight/web/dc1-a").await, 1.0);
}

#[tokio::test]
async fn states_are_words() {
    let Some(proxy) = Proxy::start(&Backends::bind()).await else { return };
    let driver = proxy.driver();
    let write = async |knob: &str, state: &str| {
        driver.write(knob, &text(state), fence(1)).await.map_err(|error| error.to_string())
    };
    assert_eq!(driver.read("state/web/dc1-a").await, Ok(text("ready")));
    assert_eq!(write("state/web/dc1-a", "drain").await, Ok(text("drain")));
    // A server that was set aside is set aside again by whoever puts the group back.
    let before = driver.read("state/web/@dc1-*").await.unwrap();
    assert_eq!(before, text("dc1-a=drain,dc1-b=ready"));
    assert_eq!(write("state/web/@dc1-*", "maint").await, Ok(text("maint")));
    assert_eq!(driver.write("state/web/@dc1-*", &before, fence(1)).await, Ok(before.clone()));
    assert_eq!(driver.read("state/web/@dc1-*").await, Ok(before));
    // One that is gone is passed over.
    let gone = text("dc1-a=ready,dc1-b=maint,dc1-z=maint");
    assert_eq!(driver.write("state/web/@dc1-*", &gone, fence(1)).await, Ok(gone));
    assert!(write("state/web/@dc1-*", "dc1-a=off").await.unwrap_err().contains("a=ready,b=maint"));
    assert_eq!(write("state/web/@dc1-*", "ready").await, Ok(text("ready")));
    assert!(write("state/web/dc1-a", "off").await.unwrap_err().contains("ready, drain, maint"));
}

#[tokio::test]
async fn static_algorithms_take_all_or_nothing() {
    let Some(proxy) = Proxy::start(&Backends::bind()).await else { return };
    let driver = proxy.driver();
    let half = driver.write("weight/hash/dc1-a", &Value::Number(0.5), fence(1)).await;
    let half = half.unwrap_err();
    assert!(matches!(half, Error::Refused(_)), "{half:?}");
    assert!(half.to_string().contains("static") && half.to_string().contains("0 or 1"), "{half}");
    assert_eq!(read(&driver, "weight/hash/dc1-a").await, 1.0);
    assert_eq!(write(&driver, "weight/hash/dc1-a", 0.0).await, 0.0);
    assert_eq!(write(&driver, "weight/hash/dc1-a", 1.0).await, 1.0);
    // The weight that HAProxy gives when none is written: there is no half of it.
    let half = driver.write("weight/hash/dc2-a", &Value::Number(0.5), fence(1)).await;
    assert!(half.unwrap_err().to_string().contains("such as 100"));
    assert_eq!(write(&driver, "weight/hash/dc2-a", 0.0).await, 0.0);
}

#[tokio::test]
async fn an_older_fence_changes_nothing() {
    let Some(proxy) = Proxy::start(&Backends::bind()).await else { return };
    let driver = proxy.driver();
    let put = async |value, fence| {
        driver.write("weight/web/dc1-a", &Value::Number(value), fence).await.map(number)
    };
    assert_eq!(put(0.5, Fence::new(2, 7).unwrap()).await, Ok(0.5));
    assert_eq!(put(0.5, Fence::new(2, 7).unwrap()).await, Ok(0.5));
    for late in [Fence::new(2, 6), Fence::new(1, 9)] {
        let error = put(1.0, late.unwrap()).await.unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{error:?}");
        assert!(error.to_string().contains("fenced off"), "{error}");
    }
    assert_eq!(read(&driver, "weight/web/dc1-a").await, 0.5);
    assert_eq!(put(0.25, Fence::new(3, 0).unwrap()).await, Ok(0.25));
}

#[tokio::test]
async fn a_reload_is_drift_and_leaves_sessions_out_of_reach() {
    let backends = Backends::bind();
    let Some(proxy) = Proxy::start(&backends).await else { return };
    let driver = proxy.driver();
    assert_eq!(write(&driver, "weight/web/@dc1-*", 0.25).await, 0.25);
    let mut client = proxy.connect("web").await;
    client.write_all(b"x").await.unwrap();
    eventually("a session", async || read(&driver, "count/web/@*").await == 1.0).await;

    proxy.reload().await;
    // The configured weights are back: not where they were put, so somebody turned them.
    let drifted = async || match driver.read("weight/web/@dc1-*").await {
        Ok(value) => !Value::Number(0.25).is_met_by(&value),
        // While the new process takes over.
        Err(error) => {
            assert!(error.is_transient(), "{error:?}");
            false
        }
    };
    eventually("drift", drifted).await;
    assert_eq!(read(&driver, "weight/web/@dc1-*").await, 1.0);
    assert_eq!(write(&driver, "weight/web/@dc1-*", 0.25).await, 0.25);
    // The session goes on, in a process that the socket does not lead to any more.
    assert_eq!(read(&driver, "count/web/@*").await, 0.0);
    client.write_all(b"x").await.unwrap();
    let mut octet = [0];
    client.read_exact(&mut octet).await.unwrap();
}

#[tokio::test]
async fn sessions_are_ended_by_share() {
    let backends = Backends::bind();
    let Some(proxy) = Proxy::start(&backends).await else { return };
    let driver = proxy.driver();
    let sessions = "sessions/web/dc1-b";
    assert_eq!(read(&driver, sessions).await, 0.0, "nothing has to be ended");
    // All go to one server.
    driver.write("state/web/@dc?-a", &text("maint"), fence(1)).await.unwrap();
    let mut clients = Vec::new();
    for _ in 0..10 {
        let mut client = proxy.connect("web").await;
        client.write_all(b"x").await.unwrap();
        let mut echoed = [0];
        client.read_exact(&mut echoed).await.unwrap();
        clients.push(client);
    }
    eventually("ten", async || read(&driver, "count/web/dc1-b").await == 10.0).await;
    assert_eq!(read(&driver, sessions).await, 1.0);

    assert_eq!(write(&driver, sessions, 0.7).await, 0.7);
    eventually("seven", async || read(&driver, "count/web/dc1-b").await == 7.0).await;
    assert_eq!(write(&driver, sessions, 0.4).await, 0.4);
    eventually("four", async || read(&driver, "count/web/dc1-b").await == 4.0).await;
    // The clients see it, and the others are not touched.
    let mut left = Vec::new();
    for mut client in clients {
        let mut octet = [0];
        let _ = client.write_all(b"y").await;
        if matches!(client.read(&mut octet).await, Ok(1)) {
            left.push(client);
        }
    }
    assert_eq!(left.len(), 4);

    // One that comes back is one too many.
    let mut again = proxy.connect("web").await;
    again.write_all(b"x").await.unwrap();
    eventually("too many", async || read(&driver, sessions).await == 0.5).await;
    assert_eq!(write(&driver, sessions, 0.4).await, 0.4);
    // One that leaves by itself is not one too few.
    drop(left);
    eventually("few", async || read(&driver, "count/web/dc1-b").await <= 1.0).await;
    assert_eq!(read(&driver, sessions).await, 0.4);

    assert_eq!(write(&driver, sessions, 0.0).await, 0.0);
    eventually("none", async || read(&driver, "count/web/dc1-b").await == 0.0).await;
    // Restored: all may remain, however many come.
    assert_eq!(write(&driver, sessions, 1.0).await, 1.0);
    assert_eq!(read(&driver, sessions).await, 1.0);
    let mut client = proxy.connect("web").await;
    client.write_all(b"x").await.unwrap();
    eventually("one", async || read(&driver, "count/web/dc1-b").await == 1.0).await;
    assert_eq!(read(&driver, sessions).await, 1.0);
    // The same for a group, in which sessions are named one by one.
    assert_eq!(write(&driver, "sessions/web/@dc1-*", 0.0).await, 0.0);
    eventually("none", async || read(&driver, "count/web/dc1-b").await == 0.0).await;
}

#[tokio::test]
async fn failures_are_counted_per_second() {
    let mut backends = Backends::bind();
    backends.stop("dc2-a");
    let Some(proxy) = Proxy::start(&backends).await else { return };
    let driver = proxy.driver();
    driver.write("state/web/@dc1-*", &text("maint"), fence(1)).await.unwrap();
    assert_eq!(read(&driver, "errors/web/@*").await, 0.0);
    let failing = async || {
        let mut client = proxy.connect("web").await;
        let _ = client.write_all(b"x").await;
        let _ = client.read(&mut [0]).await;
        read(&driver, "errors/web/dc2-a").await > 0.0
    };
    eventually("failures", failing).await;
}

/// A rate that was counted from before a step says little about the step.
#[tokio::test]
async fn gauges_say_from_when_on_they_were_counted() {
    let Some(proxy) = Proxy::start(&Backends::bind()).await else { return };
    let driver = proxy.driver();
    let span = async |knob: &str| driver.gauge(knob).await.unwrap().span;
    let start = tokio::time::Instant::now();
    let (from, first) = span("errors/web/@*").await.unwrap();
    assert!(from >= start && first - from >= Duration::from_secs(1));
    // Too soon for another rate.
    assert_eq!(span("errors/web/@*").await, Some((from, first)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (from, to) = span("errors/web/@*").await.unwrap();
    assert_eq!(from, first, "nothing is left out");
    assert!(to > first + Duration::from_secs(1));
    let (from, to) = span("rate/web/@*").await.unwrap();
    assert_eq!(to - from, Duration::from_secs(2));
    assert_eq!(span("count/web/@*").await, None, "that of the moment");
    assert_eq!(span("weight/web/@dc1-*").await, None);
}

/// By default HAProxy takes ten connections to its socket, `stats maxconn`.
#[tokio::test]
async fn many_questions_at_once_do_not_overrun_the_socket() {
    let Some(proxy) = Proxy::start(&Backends::bind()).await else { return };
    // As many as there may be: servers that share one HAProxy, exporters.
    let drivers: Vec<_> = (0..20).map(|_| std::sync::Arc::new(proxy.driver())).collect();
    let mut under_way = tokio::task::JoinSet::new();
    for at in 0..400 {
        let driver = drivers[at % drivers.len()].clone();
        under_way.spawn(async move { driver.read("weight/web/dc1-a").await });
    }
    for read in under_way.join_all().await {
        assert_eq!(read, Ok(Value::Number(1.0)));
    }
}

#[tokio::test]
async fn a_socket_that_may_not_is_told_what_it_needs() {
    let Some(proxy) = Proxy::start(&Backends::bind()).await else { return };
    let driver = proxy.operator();
    assert_eq!(read(&driver, "weight/web/dc1-a").await, 1.0);
    let error = driver.write("weight/web/dc1-a", &Value::Number(0.5), fence(1)).await.unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error:?}");
    assert!(error.to_string().contains("level admin"), "{error}");
    // A plan learns it before anything is begun; what only looks may.
    let error = driver.check("weight/web/dc1-a").await.unwrap_err();
    assert!(matches!(&error, Error::Refused(why) if why.contains("level admin")), "{error:?}");
    assert!(!driver.check("count/web/dc1-a").await.unwrap().is_writable);
}

#[tokio::test]
async fn a_server_of_weight_1_is_not_given_everything_as_a_twentieth() {
    let Some(proxy) = Proxy::start(&Backends::bind()).await else { return };
    let driver = proxy.driver();
    let knob = "weight/hash/dc2-a";
    assert_eq!(write(&driver, knob, 0.0).await, 0.0);
    let error = driver.write(knob, &Value::Number(0.05), fence(2)).await.unwrap_err();
    assert!(matches!(&error, Error::Refused(why) if why.contains("such as 100")), "{error:?}");
    assert_eq!(proxy.ask("get weight hash/dc2-a").await, "0 (initial 1)\n\n");
}

#[tokio::test]
async fn nobody_there_is_transient() {
    let Some(mut proxy) = Proxy::start(&Backends::bind()).await else { return };
    let driver = proxy.driver();
    assert_eq!(read(&driver, "weight/web/dc1-a").await, 1.0);
    proxy.stop();
    // Its workers follow the master, and may cut an answer off while they do.
    let nobody = async || {
        let Err(error) = driver.read("weight/web/dc1-a").await else { return false };
        assert!(error.is_transient(), "{error:?}");
        error.to_string().contains("is HAProxy running")
    };
    eventually("nobody answers", nobody).await;
    let write = driver.write("weight/web/dc1-a", &Value::Number(0.5), fence(1)).await;
    assert!(write.unwrap_err().is_transient());
    assert!(driver.check("weight/web/dc1-a").await.unwrap_err().is_transient());
}

/// A driver of something that says `answer` and then goes, or stays silent.
async fn driver_of(answer: &'static str, is_closed: bool) -> (tempfile::TempDir, Haproxy) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sock");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 100]).await;
            let _ = stream.write_all(answer.as_bytes()).await;
            if !is_closed {
                kept.push(stream);
            }
        }
    });
    let socket = path.to_str().unwrap().to_owned();
    (folder, Haproxy::new(&Config { socket, timeout_ms: 200 }).unwrap())
}

#[tokio::test]
async fn whatever_answers_every_call_ends() {
    let knob = "weight/web/dc1-a";
    let cases = [
        ("", false),
        ("1\n", false),
        ("", true),
        ("1\n# be_na", true),
        // At the end of a line: dc1-a may be on the next.
        (
            "1\n# be_name srv_name srv_op_state srv_admin_state srv_uweight srv_iweight\nweb dc1-b 2 0 5 10\n",
            true,
        ),
    ];
    for (answer, is_closed) in cases {
        let (_folder, driver) = driver_of(answer, is_closed).await;
        let error = driver.read(knob).await.unwrap_err();
        assert!(error.is_transient(), "{answer:?}: {error:?}");
    }
    for answer in ["HTTP/1.1 400 Bad request\n\n", "1\n\n", "2\n# be_id\n\n"] {
        let (_folder, driver) = driver_of(answer, true).await;
        let error = driver.read(knob).await.unwrap_err();
        assert!(matches!(error, Error::Broken(_)), "{answer:?}: {error:?}");
    }
}

#[tokio::test]
async fn what_haproxy_says_is_told_in_short() {
    let complaint = "No such server.".to_owned() + &"x".repeat(1 << 20) + "\n\n";
    let state = "1\n# be_name srv_name srv_op_state srv_admin_state srv_uweight srv_iweight\nweb dc1-a 2 0 5 10\n\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sock");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut line = [0; 100];
            let len = stream.read(&mut line).await.unwrap_or(0);
            let said = if line[..len].starts_with(b"show") { state } else { &complaint };
            let _ = stream.write_all(said.as_bytes()).await;
        }
    });
    let socket = path.to_str().unwrap().to_owned();
    let driver = Haproxy::new(&Config { socket, timeout_ms: 5000 }).unwrap();
    let error = driver.write("weight/web/dc1-a", &Value::Number(0.9), fence(1)).await.unwrap_err();
    assert!(matches!(&error, Error::Unknown(why) if why.len() < 1000), "{error:?}");
}

#[tokio::test]
async fn an_address_serves_as_well_as_a_path() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let socket = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 100]).await;
            let text = "1\n# be_name srv_name srv_op_state srv_admin_state srv_uweight srv_iweight\n\
                        web dc1-a 2 0 5 10\n\n";
            let _ = stream.write_all(text.as_bytes()).await;
        }
    });
    let config = Config { socket, timeout_ms: Duration::from_secs(5).as_millis() as u64 };
    assert_eq!(read(&Haproxy::new(&config).unwrap(), "weight/web/dc1-a").await, 0.5);
}

/// A plan that moves knobs to 0 in steps of which the first is a twentieth.
fn plan_of(knobs: &[&str]) -> drain::Plan {
    let task = |at: usize| {
        serde_json::json!({
            "name": format!("task-{at}"), "service": "web", "template": "TrafficShift",
            "priority": 0, "after": [], "after_weak": [], "pre": [], "health": [], "post": [],
            "stages": [{
                "name": "shift", "timeout": null,
                "kind": {"shift": {"knob": at, "to": {"value": 0.0}}},
                "done": {"exit": "done"}, "failed": {"exit": "failed"}, "late": {"exit": "failed"},
                "retry": 0, "is_interruptible": true,
            }],
            "undo": null,
            "pace": {
                "first": 0.05, "step_max": 0.25, "wait": 1000, "wait_max": 2000,
                "adaptive": true, "on_breach": "hold", "patience": 1000,
            },
            "timeout": 1000, "budgets": [],
            "expected": {"usual": null, "stuck_after": null, "step": null},
        })
    };
    let knob = |name: &&str| serde_json::json!({"driver": "edge", "name": name});
    let plan = serde_json::json!({
        "datacenter": "dc1", "direction": "drain",
        "tasks": (0..knobs.len()).map(task).collect::<Vec<_>>(),
        "knobs": knobs.iter().map(knob).collect::<Vec<_>>(),
        "conditions": [], "health": [], "budgets": [], "datacenters": [],
        "limits": {"serving_min": 0, "drained_max": 1.0},
    });
    serde_json::from_value(plan).expect("a plan")
}

#[tokio::test]
async fn a_plan_is_doubted_before_anything_is_turned() {
    let Some(proxy) = Proxy::start(&Backends::bind()).await else { return };
    let mut drivers = drivers::Drivers::default();
    drivers.insert("edge", Box::new(proxy.driver()));
    let plan = plan_of(&[
        "weight/web/dc1-a",
        // The weight that HAProxy gives when none is written.
        "weight/hash/dc2-a",
        "state/web/dc1-a",
        "count/web/dc1-a",
        "weight/nowhere/dc1-a",
    ]);
    let doubts = drivers.survey(&plan).await;
    let bearable: Vec<bool> = doubts.iter().map(|doubt| doubt.is_bearable).collect();
    assert_eq!(bearable, [true, false, false, false]);
    let doubts: Vec<String> = doubts.iter().map(ToString::to_string).collect();
    let expected = [
        "task-1: edge:weight/hash/dc2-a: it moves by 100.0 % at the least, and the first step is",
        "task-2: edge:state/web/dc1-a: it takes words, not numbers; accepted: ready, drain, maint",
        "task-3: edge:count/web/dc1-a: it can be read alone",
        "task-4: edge:weight/nowhere/dc1-a: edge: HAProxy has no backend \"nowhere\"",
    ];
    assert_eq!(doubts.len(), expected.len(), "{doubts:#?}");
    for (doubt, start) in doubts.iter().zip(expected) {
        assert!(doubt.starts_with(start), "{doubt}");
    }
    assert_eq!(proxy.ask("get weight web/dc1-a").await, "100 (initial 100)\n\n");
}
