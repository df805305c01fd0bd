//! What can only be read: sessions now, new ones per second, failures per
//! second.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Haproxy;
use super::answer::{self, Stat};
use super::knob::{Kind, KnobName};
use crate::error::Result;

/// Failures up to some moment, and how many there were per second before it.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    at: Instant,
    errors: u64,
    per_sec: f64,
}

/// The shortest time that a rate is made from.
const SAMPLE_MIN: Duration = Duration::from_secs(1);

impl Haproxy {
    pub(super) async fn read_gauge(&self, text: &str, knob: &KnobName) -> Result<f64> {
        let stats = self.stats(knob).await?;
        let sum = |of: fn(&Stat) -> u64| stats.iter().fold(0.0, |all, stat| all + of(stat) as f64);
        match knob.kind {
            Kind::Count => Ok(sum(|stat| stat.sessions)),
            Kind::Rate => Ok(sum(|stat| stat.rate)),
            _ => self.read_errors(text, knob, &stats).await,
        }
    }

    /// HAProxy counts failures from its start; what matters is how many there
    /// are now. The first read takes a second, to have two counts.
    async fn read_errors(&self, text: &str, knob: &KnobName, stats: &[Stat]) -> Result<f64> {
        let known = self.memory().errors.get(text).copied();
        let (before, now) = match known {
            Some(known) => (known, total(stats)),
            None => {
                let first = Sample { at: Instant::now(), errors: total(stats), per_sec: 0.0 };
                sleep(SAMPLE_MIN).await;
                (first, total(&self.stats(knob).await?))
            }
        };
        let sample = before.followed_by(Instant::now(), now);
        self.memory().errors.insert(text.to_owned(), sample);
        Ok(sample.per_sec)
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
        Sample { at, errors, per_sec: more as f64 / span.as_secs_f64() }
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
        let sample = Sample { at: start, errors: 10, per_sec: 7.0 };
        assert_eq!(sample.followed_by(after(0.5), 99).per_sec, 7.0);
        let sample = sample.followed_by(after(2.0), 30);
        assert_eq!(sample.per_sec, 10.0);
        // HAProxy was started again.
        assert_eq!(sample.followed_by(after(4.0), 4).per_sec, 2.0);
    }
}
