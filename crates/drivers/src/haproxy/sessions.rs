//! Sessions that are ended in steps: the second half of draining sticky
//! traffic.
//!
//! The position of such a knob is an allowance: the share of the sessions that
//! there were at the first write that may remain. It stands where it was put as
//! long as no more than that remain, and shows the share that is there when
//! there are more. Fewer is no drift: sessions end by themselves. At 1 all may
//! remain, and the next write below counts anew. Where nobody has put it, it
//! stands at 1, and at 0 if there is no session: then nothing has to be ended,
//! step by step.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Haproxy;
use super::answer::{self, Session};
use super::knob::{KnobName, Servers};
use crate::error::{Error, Result};

/// What may remain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    /// Sessions at the first write.
    base: u64,
    share: f64,
}

impl Allowance {
    const ALL: Allowance = Allowance { base: u64::MAX, share: 1.0 };

    fn sessions(&self) -> u64 {
        // Upwards: what is allowed is not ended. But 0.07 of 100 is 7, whatever floating point
        // makes of it.
        (self.base as f64 * self.share - 1e-6).ceil() as u64
    }

    /// Where the knob stands, with so many sessions: never past 1.
    fn position(&self, count: u64) -> f64 {
        if count <= self.sessions() {
            return self.share;
        }
        (count as f64 / self.base.max(1) as f64).min(1.0)
    }
}

/// Sessions that one line ends: it must fit into HAProxy's buffer, with 33
/// octets for each of 16,384.
const ENDED_PER_LINE: usize = 200;
/// How long sessions may take to be gone after they were ended. HAProxy answers
/// before.
const PARTING_MAX: Duration = Duration::from_secs(2);
const PARTING_POLL: Duration = Duration::from_millis(10);

impl Haproxy {
    pub(super) async fn read_sessions(&self, text: &str, knob: &KnobName) -> Result<f64> {
        let allowance = self.memory().sessions.get(text).copied();
        let Some(allowance) = allowance else {
            let is_empty = self.sessions(knob).await?.is_empty();
            return Ok(if is_empty { 0.0 } else { 1.0 });
        };
        let count = self.sessions(knob).await?.len() as u64;
        let position = allowance.position(count);
        if position == 1.0 {
            // As many as ever, or more: what was ended has come back, and the next write counts
            // anew. Otherwise a second drain would measure itself against the first.
            self.memory().sessions.insert(text.to_owned(), Allowance::ALL);
        }
        Ok(position)
    }

    pub(super) async fn write_sessions(
        &self,
        text: &str,
        knob: &KnobName,
        share: f64,
    ) -> Result<()> {
        if share > 1.0 {
            return Err(Error::Refused(format!("{text}: {share} is no share; accepted: 0 to 1")));
        }
        let sessions = self.sessions(knob).await?;
        let allowance = {
            let mut memory = self.memory();
            let kept = memory.sessions.entry(text.to_owned()).or_insert(Allowance::ALL);
            *kept = match (share == 1.0, *kept == Allowance::ALL) {
                (true, _) => Allowance::ALL,
                (false, true) => Allowance { base: sessions.len() as u64, share },
                (false, false) => Allowance { base: kept.base, share },
            };
            *kept
        };
        let surplus = sessions.len().saturating_sub(allowance.sessions() as usize);
        if surplus == 0 {
            return Ok(());
        }
        self.end(knob, &sessions[..surplus], share == 0.0).await?;
        let deadline = Instant::now() + PARTING_MAX;
        while self.sessions(knob).await?.len() as u64 > allowance.sessions()
            && Instant::now() < deadline
        {
            sleep(PARTING_POLL).await;
        }
        Ok(())
    }

    /// Ends sessions. One that has ended by itself meanwhile is no error.
    ///
    /// HAProxy names a session by its place in memory, which another may get
    /// when it ends; so there is as little time as possible between the list
    /// and this, and where all must go, no list is needed.
    async fn end(&self, knob: &KnobName, sessions: &[Session], is_all: bool) -> Result<()> {
        if let (true, Servers::One(server)) = (is_all, &knob.servers) {
            return self
                .command(&format!("shutdown sessions server {}/{server}", knob.backend))
                .await;
        }
        for some in sessions.chunks(ENDED_PER_LINE) {
            let line: Vec<_> =
                some.iter().map(|session| format!("shutdown session {}", session.id)).collect();
            crate::permit::ask_permit().await?;
            let said = self.socket.ask(&line.join(";")).await?;
            let said = said.lines().find(|line| !line.is_empty() && !line.starts_with("No such"));
            if let Some(said) = said {
                let said = answer::start(said);
                return Err(Error::Broken(format!("`shutdown session`: {said}")));
            }
        }
        Ok(())
    }

    /// The sessions that the knob is about, the oldest first.
    async fn sessions(&self, knob: &KnobName) -> Result<Vec<Session>> {
        // A server without sessions and none look the same in the list.
        self.servers(knob).await?;
        let text = self.socket.ask("show sess").await?;
        let mut sessions =
            answer::sessions(&text, &knob.backend).map_err(|why| self.broken(why))?;
        sessions.retain(|session| knob.covers(&session.server));
        Ok(sessions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_stands_where_it_was_put_until_there_are_more() {
        let allowance = Allowance { base: 10, share: 0.45 };
        assert_eq!(allowance.sessions(), 5);
        assert_eq!(allowance.position(5), 0.45);
        assert_eq!(allowance.position(0), 0.45);
        assert_eq!(allowance.position(7), 0.7);
        assert_eq!(Allowance { base: 100, share: 0.07 }.sessions(), 7);
        let none = Allowance { base: 0, share: 0.0 };
        assert_eq!((none.position(0), none.position(2)), (0.0, 1.0));
        assert_eq!((Allowance::ALL.position(0), Allowance::ALL.position(9)), (1.0, 1.0));
    }
}
