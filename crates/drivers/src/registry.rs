//! All drivers of a node: which one a knob belongs to.

use std::collections::BTreeMap;
use std::time::Duration;

use drain::{Act, Knob, Value};

use crate::config::{self, Config, ConfigProblem};
use crate::driver::{Action, Description, Driver, Gauged, Shape};
use crate::error::{Error, Result, listed};
use crate::exec::Exec;
use crate::fence::Fence;
use crate::haproxy::Haproxy;

/// The longest that any call may take: longer than the longest timeout that can
/// be configured. A run waits for every effect that it began, since it may still
/// be done; so what ends no call of its own is ended here.
pub const CALL_MAX: Duration = Duration::from_millis(config::TIMEOUT_MAX_MS + 60_000);

/// All drivers, by name.
#[derive(Debug, Default)]
pub struct Drivers {
    drivers: BTreeMap<String, Box<dyn Driver>>,
}

impl Drivers {
    /// Makes them, or says everything that is wrong. Nothing is reached yet: a
    /// load balancer that is down must not keep a drain from being resumed.
    /// `supervisor` starts commands, see [`Exec::new`].
    pub fn from_config(
        configs: &BTreeMap<String, Config>,
        supervisor: &[String],
    ) -> std::result::Result<Drivers, Vec<ConfigProblem>> {
        let mut problems = config::check(configs);
        let mut drivers = Drivers::default();
        for (name, config) in configs {
            let driver: Result<Box<dyn Driver>> = match config {
                Config::Haproxy(config) => Haproxy::new(config).map(|one| Box::new(one) as _),
                Config::Exec(config) => Ok(Box::new(Exec::new(config, supervisor))),
            };
            match driver {
                Ok(driver) => drivers.insert(name, driver),
                // Noted above, with what would be accepted.
                Err(_) if !problems.is_empty() => {}
                Err(error) => problems.push(ConfigProblem {
                    place: name.clone(),
                    what: error.to_string(),
                    accepted: "what docs/drivers.md says of its kind".into(),
                }),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(drivers)
    }

    /// Adds one, or puts it in the place of the one with that name.
    pub fn insert(&mut self, name: impl Into<String>, driver: Box<dyn Driver>) {
        self.drivers.insert(name.into(), driver);
    }

    pub async fn read(&self, knob: &Knob) -> Result<Value> {
        let driver = self.find(&knob.driver)?;
        bounded(&knob.driver, driver.read(&knob.name)).await
    }

    /// See [`Driver::gauge`].
    pub async fn gauge(&self, knob: &Knob) -> Result<Gauged> {
        let driver = self.find(&knob.driver)?;
        bounded(&knob.driver, driver.gauge(&knob.name)).await
    }

    /// See [`Driver::is_out`].
    pub async fn is_out(&self, knob: &Knob) -> Result<bool> {
        let driver = self.find(&knob.driver)?;
        bounded(&knob.driver, driver.is_out(&knob.name)).await
    }

    /// See [`Driver::targets`].
    pub async fn targets(&self, knob: &Knob) -> Result<Vec<String>> {
        let driver = self.find(&knob.driver)?;
        bounded(&knob.driver, driver.targets(&knob.name)).await
    }

    pub async fn write(&self, knob: &Knob, value: &Value, fence: Fence) -> Result<Value> {
        if value.number().is_some_and(|number| !number.is_finite()) {
            return Err(Error::Refused(format!("{knob}: {value} is no number to turn it to")));
        }
        let driver = self.find(&knob.driver)?;
        bounded(&knob.driver, driver.write(&knob.name, value, fence)).await
    }

    /// Has a driver do something; `once` names the occasion, see
    /// [`Action::once`].
    pub async fn act(&self, act: &Act, once: &str, fence: Fence) -> Result<String> {
        let driver = self.find(&act.driver)?;
        let action = Action { name: &act.action, arguments: &act.arguments, once };
        bounded(&act.driver, driver.act(action, fence)).await
    }

    pub async fn check(&self, knob: &Knob) -> Result<Shape> {
        let driver = self.find(&knob.driver)?;
        bounded(&knob.driver, driver.check(&knob.name)).await
    }

    /// What there is, for people.
    pub fn describe(&self) -> impl Iterator<Item = (&str, Description)> {
        self.drivers.iter().map(|(name, driver)| (name.as_str(), driver.describe()))
    }

    fn find(&self, name: &str) -> Result<&dyn Driver> {
        let driver = self.drivers.get(name).map(|driver| &**driver);
        driver.ok_or_else(|| {
            let known = listed(self.drivers.keys().map(String::as_str));
            Error::Unknown(format!("there is no driver {name:?}; configured: {known}"))
        })
    }
}

/// What a driver answers, in a bounded time and with its name.
async fn bounded<T>(driver: &str, call: impl Future<Output = Result<T>>) -> Result<T> {
    let answer = tokio::time::timeout(CALL_MAX, call).await.unwrap_or_else(|_| {
        let secs = CALL_MAX.as_secs();
        Err(Error::Transient(format!("the driver has not answered for {secs} s")))
    });
    // Whatever a driver quotes: one message is one line.
    answer.map_err(|error| error.within(driver).in_one_line())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_any_driver_complains_about_is_one_line() {
        let call = async { Err::<(), _>(Error::Refused("no\n2026 INFO\u{202e} forged".into())) };
        let error = bounded("lb", call).await.unwrap_err();
        assert_eq!(error, Error::Refused("lb: no 2026 INFO? forged".into()));
    }
}
