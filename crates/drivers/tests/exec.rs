//! Commands as drivers, with real ones.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use drain::Value;
use drivers::exec::{Config, Exec, Values};
use drivers::{Action, Driver, Error, Fence};

fn fence(number: u64) -> Fence {
    Fence::new(1, number).unwrap()
}

fn sh(script: &str) -> Vec<String> {
    ["sh", "-c", script, "sh", "{knob}", "{value}"].map(String::from).to_vec()
}

fn driver(read: &str, write: &str) -> Exec {
    let write = if write.is_empty() { Vec::new() } else { sh(write) };
    let config = Config { read: sh(read), write, timeout_ms: 10_000, ..Config::default() };
    Exec::new(&config, &[])
}

/// A knob is a file in a folder.
fn files(folder: &Path) -> Config {
    let folder = folder.display();
    Config {
        read: sh(&format!("cat '{folder}'/\"$1\" || exit 66")),
        write: sh(&format!("printf %s \"$2\" > '{folder}'/\"$1\"")),
        timeout_ms: 10_000,
        ..Config::default()
    }
}

#[tokio::test]
async fn knobs_are_read_written_and_read_back() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rate"), "100\n").unwrap();
    let driver = Exec::new(&files(folder.path()), &[]);
    assert_eq!(driver.read("rate").await, Ok(Value::Number(100.0)));
    let write = async |value: Value| driver.write("rate", &value, fence(1)).await;
    assert_eq!(write(Value::Number(0.25)).await, Ok(Value::Number(0.25)));
    let tricky = Value::Text("{knob} $(reboot) 'x' \"y\"; exit 1".into());
    assert_eq!(write(tricky.clone()).await, Ok(tricky));
    assert!(driver.check("rate").await.unwrap().is_writable);
    let error = driver.check("speed").await.unwrap_err();
    assert!(matches!(error, Error::Unknown(_)), "{error:?}");
}

/// `1.10` is a version, and no number that could be written back as `1.1`.
#[tokio::test]
async fn a_driver_of_texts_takes_no_text_for_a_number() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("release"), "1.10\n").unwrap();
    let driver = Exec::new(&files(folder.path()), &[]);
    assert_eq!(driver.read("release").await, Ok(Value::Number(1.1)));
    let config = Config { values: Values::Text, ..files(folder.path()) };
    let driver = Exec::new(&config, &[]);
    let text = Value::Text("1.10".into());
    assert_eq!(driver.read("release").await, Ok(text.clone()));
    assert_eq!(driver.write("release", &text, fence(1)).await, Ok(text));
    let refused = driver.write("release", &Value::Number(1.1), fence(1)).await.unwrap_err();
    assert!(matches!(&refused, Error::Refused(why) if why.contains("in quotes")), "{refused:?}");
}

/// `7.10` would be read back as `7.1`, which is another server.
#[tokio::test]
async fn a_name_that_would_be_read_as_a_number_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("primary"), "7.10\n").unwrap();
    let driver = Exec::new(&files(folder.path()), &[]);
    for name in ["7.10", "7.1", "0.50"] {
        let refused = driver.write("primary", &Value::Text(name.into()), fence(1)).await;
        let Err(Error::Refused(why)) = refused else { panic!("{name}: {refused:?}") };
        assert!(why.contains("`values = \"text\"`"), "{why}");
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("primary")).unwrap(), "7.10\n");
    let config = Config { values: Values::Text, ..files(folder.path()) };
    let driver = Exec::new(&config, &[]);
    let name = Value::Text("7.1".into());
    assert_eq!(driver.write("primary", &name, fence(2)).await, Ok(name));
}

#[tokio::test]
async fn what_is_read_back_is_what_is_there() {
    // It cannot go above 10.
    let driver = driver("cat /dev/null; echo 10", "true");
    let found = driver.write("rate", &Value::Number(50.0), fence(1)).await;
    assert_eq!(found, Ok(Value::Number(10.0)));
}

#[tokio::test]
async fn the_environment_says_the_same() {
    let driver = driver("echo \"$PHAROS_KNOB/$1/${PHAROS_VALUE-none}\"", "");
    assert_eq!(driver.read("a b").await, Ok(Value::Text("a b/a b/none".into())));
}

#[tokio::test]
async fn exit_codes_say_what_kind_of_failure_it_is() {
    let failure = async |script: &str| driver(script, "").read("k").await.unwrap_err();
    let error = failure("echo not yet >&2; exit 75").await;
    assert!(matches!(&error, Error::Transient(text) if text.contains("not yet")), "{error:?}");
    assert!(matches!(failure("exit 77").await, Error::Refused(_)));
    assert!(matches!(failure("exit 66").await, Error::Unknown(_)));
    let error = failure("echo no such option >&2; exit 2").await;
    assert!(matches!(&error, Error::Broken(text) if text.contains("no such option")), "{error:?}");
    assert!(matches!(failure("kill -9 $$").await, Error::Broken(_)));
    let missing = Config { read: vec!["/no/such/program".into()], ..Config::default() };
    let error = Exec::new(&missing, &[]).read("k").await.unwrap_err();
    assert!(error.to_string().contains("cannot start `/no/such/program`"), "{error}");
}

#[tokio::test]
async fn time_is_bounded_and_nobody_is_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    // A child of the command that ignores what is asked of it politely.
    let script =
        format!("sh -c 'trap \"\" TERM HUP; echo $$ > \"{}\"; sleep 600' & wait", pid.display());
    let slow = Config { read: sh(&script), timeout_ms: 3000, ..Config::default() };
    let start = Instant::now();
    let error = Exec::new(&slow, &[]).read("k").await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    assert!(start.elapsed() < Duration::from_secs(60));
    let pid: u32 = std::fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    wait_for_end(pid).await;
}

async fn wait_for_end(pid: u32) {
    let deadline = Instant::now() + Duration::from_secs(30);
    // Gone, or only waiting for somebody to ask how it ended.
    let is_running = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
    };
    while is_running() {
        assert!(Instant::now() < deadline, "process {pid} is still there");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_ends_its_command() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let driver = driver(&format!("echo $$ > '{}'; sleep 600", file.display()), "");
    let call = tokio::spawn(async move { driver.read("k").await });
    let deadline = Instant::now() + Duration::from_secs(30);
    let pid = loop {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        if let Ok(pid) = text.trim().parse() {
            break pid;
        }
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    call.abort();
    wait_for_end(pid).await;
}

#[tokio::test]
async fn what_a_command_leaves_behind_does_not_hold_it_up() {
    let driver = driver("echo 7; sleep 5 & exit 0", "");
    let start = Instant::now();
    assert_eq!(driver.read("k").await, Ok(Value::Number(7.0)));
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn output_is_bounded() {
    let error = driver("yes | head -c 1000000", "").read("k").await.unwrap_err();
    assert!(matches!(&error, Error::Broken(text) if text.contains("65536")), "{error:?}");
    let error = driver("yes no | head -c 1000000 >&2; exit 1", "").read("k").await.unwrap_err();
    assert!(error.to_string().len() < 3000);
    let error = driver("printf '\\377'", "").read("k").await.unwrap_err();
    assert!(matches!(error, Error::Broken(_)), "{error:?}");
}

#[tokio::test]
async fn an_older_fence_starts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let driver = Exec::new(&files(folder.path()), &[]);
    let put =
        async |value: f64, number| driver.write("k", &Value::Number(value), fence(number)).await;
    put(2.0, 5).await.unwrap();
    assert!(matches!(put(1.0, 4).await, Err(Error::Refused(_))));
    assert_eq!(driver.read("k").await, Ok(Value::Number(2.0)));
}

#[tokio::test]
async fn a_write_waits_until_it_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    let (tries, knob) = (folder.path().join("tries"), folder.path().join("k"));
    // Takes effect when it was asked about three times.
    let verify = format!(
        "echo x >> '{0}'; test $(wc -l < '{0}') -ge 3 || exit 75; printf %s \"$2\" > '{1}'",
        tries.display(),
        knob.display()
    );
    let config = Config { write: sh("true"), verify: sh(&verify), ..files(folder.path()) };
    let found = Exec::new(&config, &[]).write("k", &Value::Number(3.0), fence(1)).await;
    assert_eq!(found, Ok(Value::Number(3.0)));
    assert_eq!(std::fs::read_to_string(tries).unwrap(), "x\nx\nx\n");
    let never = Config { verify: sh("exit 75"), timeout_ms: 300, ..config };
    assert!(Exec::new(&never, &[]).write("k", &Value::Number(1.0), fence(2)).await.is_err());
}

#[tokio::test]
async fn an_act_is_done_once_for_each_occasion() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let script = "echo \"$1 $PHAROS_ONCE $PHAROS_ARG_JOB_ID\" >> \"$LOG\"; echo did it";
    let act = ["env", &format!("LOG={}", log.display()), "sh", "-c", script, "sh", "{action}"];
    let act = act.map(String::from).to_vec();
    let driver = Exec::new(&Config { act, timeout_ms: 10_000, ..Config::default() }, &[]);
    let arguments = BTreeMap::from([("job-id".to_owned(), "7; rm".to_owned())]);
    let action = Action { name: "stop", arguments: &arguments, once: "run 1 effect 4" };
    for number in [4, 4, 5] {
        assert_eq!(driver.act(action, fence(number)).await, Ok("did it".into()));
    }
    let next = Action { once: "run 1 effect 6", ..action };
    assert!(matches!(driver.act(next, fence(3)).await, Err(Error::Refused(_))));
    driver.act(next, fence(6)).await.unwrap();
    let log = std::fs::read_to_string(log).unwrap();
    assert_eq!(log, "stop run 1 effect 4 7; rm\nstop run 1 effect 6 7; rm\n");

    let both = BTreeMap::from([("a-b".into(), String::new()), ("a_b".into(), String::new())]);
    let error = driver.act(Action { arguments: &both, once: "x", ..action }, fence(9)).await;
    assert!(error.unwrap_err().to_string().contains("PHAROS_ARG_A_B"));
}

#[tokio::test]
async fn names_that_would_be_options_are_refused() {
    let driver = driver("echo 1", "");
    for wrong in ["", "-rf", "a\nb", "a\0b", &"x".repeat(2000)] {
        assert!(matches!(driver.read(wrong).await, Err(Error::Unknown(_))), "{wrong:?}");
    }
    let error = driver.write("k", &Value::Number(1.0), fence(1)).await.unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error:?}");
    let act = ["echo", "{action}"].map(String::from).to_vec();
    let driver = Exec::new(&Config { act, timeout_ms: 10_000, ..Config::default() }, &[]);
    let arguments = BTreeMap::new();
    for name in ["", "--help", "a\nb"] {
        let done = driver.act(Action { name, arguments: &arguments, once: name }, fence(1)).await;
        assert!(matches!(done, Err(Error::Unknown(_))), "{name:?}");
    }
}
