//! What can only be read: sessions now, new ones per second, failures per
//! second.

use std::time::Duration;

use drain::Value;
use tokio::time::{Instant, sleep};

use super::Haproxy;
use super::answer::{self, Stat};
use super::knob::{Kind, KnobName};
use crate::driver::Gauged;
use crate::error::Result;

/// Failures up to some moment, and how many there were per second before it.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    at: Instant,
    errors: u64,
    per_sec: f64,
    /// When those per second began to be counted.
    from: Instant,
}

/// The shortest time that a rate is made from.
const SAMPLE_MIN: Duration = Duration::from_secs(1);
/// How far back HAProxy's own rates reach: into the second before the present one.
const RATE_SPAN: Duration = Duration::from_secs(2);

impl Haproxy {
    pub(super) async fn read_gauge(&self, text: &str, knob: &KnobName) -> Result<Gauged> {
        // What is counted is not older than this.
        let asked = Instant::now();
        let stats = self.stats(knob).await?;
        let sum = |of: fn(&Stat) -> u64| stats.iter().fold(0.0, |all, stat| all + of(stat) as f64);
        match knob.kind {
            Kind::Count => Ok(Gauged::now(Value::Number(sum(|stat| stat.sessions)))),
            Kind::Rate => {
                let (value, to) = (Value::Number(sum(|stat| stat.rate)), Instant::now());
                // A host that is up for less has counted nothing before either.
                let from = to.checked_sub(RATE_SPAN).unwrap_or(to);
                Ok(Gauged { value, span: Some((from, to)) })
            }
            _ => self.read_errors(text, knob, asked, &stats).await,
        }
    }

    /// HAProxy counts failures from its start; what matters is how many there
    /// are now. The first read takes a second, to have two counts.
    ///
    /// What was counted since before a step says little about it, so the time
    /// that the rate is about is part of the answer.
    async fn read_errors(
        &self,
        text: &str,
        knob: &KnobName,
        asked: Instant,
        stats: &[Stat],
    ) -> Result<Gauged> {
        let known = self.memory().errors.get(text).copied();
        let sample = match known {
            Some(known) => known.followed_by(asked, total(stats)),
            None => {
                let first = Sample { at: asked, errors: total(stats), per_sec: 0.0, from: asked };
                sleep(SAMPLE_MIN).await;
                let again = Instant::now();
                first.followed_by(again, total(&self.stats(knob).await?))
            }
        };
        self.memory().errors.insert(text.to_owned(), sample);
        Ok(Gauged { value: Value::Number(sample.per_sec), span: Some((sample.from, sample.at)) })
    }

    async fn stats(&self, knob: &KnobName) -> Result<Vec<Stat>> {
        // Says what is there if the knob is not.
        self.servers(knob).await?;
        // 4: servers; -1: all of them.
        let text = self.socket.ask(&format!("show stat {} 4 -1", knob.backend)).await?;
        let mut stats = answer::stats(&text, &knob.backend).map_err(|why| self.broken(why))?;
        stats.retain(|stat| knob.covers(&stat.name));
        Ok(stats)
    }
}

impl Sample {
    fn followed_by(self, at: Instant, errors: u64) -> Sample {
        let span = at.saturating_duration_since(self.at);
        if span < SAMPLE_MIN {
            return self;
        }
        // A smaller count is that of a new process, since its start.
        let more = errors.checked_sub(self.errors).unwrap_or(errors);
        Sample { at, errors, per_sec: more as f64 / span.as_secs_f64(), from: self.at }
    }
}

fn total(stats: &[Stat]) -> u64 {
    stats.iter().fold(0, |sum, stat| sum.saturating_add(stat.errors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_made_from_two_counts() {
        let start = Instant::now();
        let after = |secs| start + Duration::from_secs_f64(secs);
        let sample = Sample { at: start, errors: 10, per_sec: 7.0, from: start };
        assert_eq!(sample.followed_by(after(0.5), 99).per_sec, 7.0);
        let sample = sample.followed_by(after(2.0), 30);
        assert_eq!((sample.per_sec, sample.from, sample.at), (10.0, start, after(2.0)));
        // Too soon for another rate: it is about the same time as before.
        let same = sample.followed_by(after(2.5), 99);
        assert_eq!((same.per_sec, same.from, same.at), (10.0, start, after(2.0)));
        // HAProxy was started again.
        assert_eq!(sample.followed_by(after(4.0), 4).per_sec, 2.0);
    }
}
