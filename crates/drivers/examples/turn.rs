//! Turns one knob by hand, to try a driver or its configuration.
//!
//!     turn CONFIG describe
//!     turn CONFIG check|read DRIVER:KNOB
//!     turn CONFIG write DRIVER:KNOB VALUE
//!     turn CONFIG act DRIVER:ACTION [NAME=VALUE]…
//!
//! CONFIG is a JSON file: `{"edge": {"kind": "haproxy", "socket": "/run/…"}}`.

use std::collections::BTreeMap;

use drain::{Act, Knob, Value};
use drivers::{Config, Drivers, Fence};

const USAGE: &str = "turn CONFIG describe | check|read DRIVER:KNOB | write DRIVER:KNOB VALUE | \
                     act DRIVER:ACTION [NAME=VALUE]…";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [path, verb, rest @ ..] = &arguments[..] else { return Err(USAGE.into()) };
    let drivers = load(path)?;
    // By hand nobody competes.
    let fence = Fence::new(0, 0).ok_or(USAGE)?;
    match (*verb, rest) {
        ("describe", []) => {
            for (name, what) in drivers.describe() {
                println!("{name}: {} at {}", what.kind, what.target);
                for knob in what.knobs {
                    println!("    {}: {}", knob.form, knob.meaning);
                }
            }
        }
        ("check", [knob]) => println!("{:?}", drivers.check(&split(knob)?).await.map_err(text)?),
        ("read", [knob]) => println!("{}", drivers.read(&split(knob)?).await.map_err(text)?),
        ("write", [knob, value]) => {
            let value = match value.parse() {
                Ok(number) => Value::Number(number),
                Err(_) => Value::Text((*value).to_owned()),
            };
            println!("{}", drivers.write(&split(knob)?, &value, fence).await.map_err(text)?);
        }
        ("act", [action, given @ ..]) => {
            let Knob { driver, name: action } = split(action)?;
            let pairs = given.iter().filter_map(|pair| pair.split_once('='));
            let arguments: BTreeMap<_, _> =
                pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            let act = Act { driver, action, arguments };
            println!("{}", drivers.act(&act, "by hand", fence).await.map_err(text)?);
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

fn load(path: &str) -> Result<Drivers, String> {
    let json = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let configs: BTreeMap<String, Config> =
        serde_json::from_str(&json).map_err(|error| format!("{path}: {error}"))?;
    Drivers::from_config(&configs, &[]).map_err(|problems| {
        let lines: Vec<_> = problems.iter().map(|problem| format!("{path}: {problem}")).collect();
        lines.join("\n")
    })
}

fn split(text: &str) -> Result<Knob, String> {
    let (driver, name) = text.split_once(':').ok_or(USAGE)?;
    Ok(Knob { driver: driver.to_owned(), name: name.to_owned() })
}

fn text(error: drivers::Error) -> String {
    error.to_string()
}
