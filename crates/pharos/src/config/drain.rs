//! What a server that drains is told: `[drain]`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use health::{Credentials, Endpoint, Target};
use serde::Deserialize;

use super::Checks;
use crate::drains::{Channel, DrainConfig, HealthConfig, Sink};

/// Where drains are kept unless told otherwise.
const STORE: &str = "/var/lib/pharos/drain.db";
/// How often services are read unless told otherwise.
const SCRAPE_SECS: u64 = 5;

/// The form of `[drain]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FileDrain {
    store: Option<PathBuf>,
    runbooks: Option<PathBuf>,
    drivers: BTreeMap<String, drivers::Config>,
    prometheus: Option<String>,
    /// Proves to Prometheus who asks.
    token_file: Option<PathBuf>,
    /// Pages of metrics, if there is no Prometheus.
    scrape: Vec<String>,
    scrape_secs: Option<u64>,
    /// Signs the audit log.
    audit_key: Option<PathBuf>,
    audit_sink: Option<String>,
    /// Commands that tell people.
    notify: BTreeMap<String, Channel>,
    /// The channel that is told what waits for a person.
    alert: Option<String>,
}

impl Checks {
    pub(super) fn drain(&mut self, spec: FileDrain, name: Option<&str>) -> DrainConfig {
        let health = self.health(&spec);
        let place = self.place("drain.runbooks");
        let runbooks = spec.runbooks.unwrap_or_else(|| {
            self.problems.push(format!("{place} is missing; accepted: a folder of runbooks"));
            PathBuf::new()
        });
        // Nothing is reached by making them; with all other problems, so are theirs told.
        for problem in drivers::Drivers::from_config(&spec.drivers, &[]).err().into_iter().flatten()
        {
            let place = self.place(&format!("drain.drivers.{}", problem.place));
            let (what, accepted) = (problem.what, problem.accepted);
            self.problems.push(format!("{place}: {what}; accepted: {accepted}"));
        }
        let audit_sink = match Sink::parse(spec.audit_sink.as_deref().unwrap_or("log")) {
            Ok(sink) => sink,
            Err(what) => {
                let place = self.place("drain.audit_sink");
                self.problems.push(format!("{place}: {what}"));
                Sink::Log
            }
        };
        for (name, channel) in &spec.notify {
            if channel.command.first().is_none_or(String::is_empty) {
                let place = self.place(&format!("drain.notify.{name}.command"));
                self.problems.push(format!("{place} is empty; accepted: a program and arguments"));
            }
        }
        if let Some(alert) = spec.alert.as_ref().filter(|own| !spec.notify.contains_key(*own)) {
            let known: Vec<&str> = spec.notify.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            let place = self.place("drain.alert");
            self.problems.push(format!(
                "{place} is {alert:?}, and there is no [drain.notify.{alert}]; channels: {known}"
            ));
        }
        let store = spec.store.unwrap_or_else(|| STORE.into());
        let audit_key = spec.audit_key.unwrap_or_else(|| {
            let mut beside = store.clone().into_os_string();
            beside.push(".audit-key");
            beside.into()
        });
        DrainConfig {
            name: name.unwrap_or("pharos").to_owned(),
            store,
            audit_key,
            audit_sink,
            runbooks,
            drivers: spec.drivers,
            health,
            notify: spec.notify,
            alert: spec.alert,
        }
    }

    fn health(&mut self, spec: &FileDrain) -> HealthConfig {
        if spec.prometheus.is_some() && !spec.scrape.is_empty() {
            self.problems.push(format!(
                "{} and scrape are both given; accepted: one of them",
                self.place("drain.prometheus")
            ));
        }
        if spec.token_file.is_some() && spec.prometheus.is_none() {
            self.problems.push(format!(
                "{} is given and nobody to show it to; accepted: with prometheus",
                self.place("drain.token_file")
            ));
        }
        let secs = spec.scrape_secs.unwrap_or(SCRAPE_SECS);
        let secs = self.within("drain.scrape_secs", secs, 1..=300);
        let credentials =
            spec.token_file.clone().map(|token_file| Credentials::Bearer { token_file });
        if let Some(url) = &spec.prometheus
            && let Some(endpoint) = self.endpoint("drain.prometheus", url)
        {
            return HealthConfig::Prometheus { endpoint, credentials };
        }
        let targets = spec.scrape.iter().filter_map(|url| {
            let endpoint = self.endpoint("drain.scrape", url)?;
            Some(Target { endpoint, job: String::new(), credentials: None })
        });
        let targets = targets.collect();
        HealthConfig::Scrape { targets, interval: Duration::from_secs(secs) }
    }

    fn endpoint(&mut self, key: &str, url: &str) -> Option<Endpoint> {
        let parsed = url.parse();
        let place = self.place(key);
        parsed.map_err(|error: String| self.problems.push(format!("{place}: {error}"))).ok()
    }
}
