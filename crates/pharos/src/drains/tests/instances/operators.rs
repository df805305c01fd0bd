//! What operators and others do in a scenario.

use super::super::*;
use super::checkers::audit::{Answer, Said};
use super::checkers::{Violation, kept, violation, writes};
use super::scenario::{Place, Scenario};
use super::site::put;
use super::{PATIENCE, POLL};

impl Scenario {
    pub async fn begin(&mut self, direction: Direction) {
        let Some(at) = self.draw_place(Place::is_up) else { return };
        let (uid, reason) = self.someone();
        let wanted = Wanted {
            datacenter: "east".into(),
            direction,
            mode: Mode::Disaster,
            by: user(uid),
            reason: reason.clone(),
            overload: false,
            give_up: Vec::new(),
        };
        let begun = self.server(at).call(async move |drains| {
            drains.begin(wanted).await.map(|(run, _)| run).map_err(|refused| refused.to_string())
        });
        let begun = begun.await;
        self.note(format!("{at} begins: {begun:?}"));
        let answer = match begun {
            Some(Ok(run)) => Answer::Acknowledged(run),
            Some(Err(_)) => Answer::Refused,
            None => Answer::None,
        };
        if answer != Answer::Refused {
            self.drifts = 0;
        }
        let action = format!("{} east", ledger::direction_name(direction));
        self.said.push(Said { uid, reason, action, answer });
    }

    /// Who says something, and a reason that nobody else gives.
    fn someone(&mut self) -> (u32, String) {
        let uid = self.chance.pick(&[1000, 1001, 1002]);
        (uid, format!("reason {}", self.said.len()))
    }

    pub async fn say(&mut self, at: usize, run: RunId, verb: &Verb, action: &str) -> Answer {
        let (uid, reason) = self.someone();
        let (why, verb) = (reason.clone(), verb.clone());
        let said =
            self.server(at).call(async move |drains| drains.say(run, user(uid), why, &verb).await);
        let answer = match said.await {
            Some(Ok(())) => Answer::Acknowledged(run),
            Some(Err(Refused::Failed(why))) if why.contains("counts when it goes on") => {
                Answer::None
            }
            Some(Err(_)) => Answer::Refused,
            None => Answer::None,
        };
        self.said.push(Said { uid, reason, action: action.to_owned(), answer });
        answer
    }

    pub async fn say_something(&mut self) {
        let Some(run) = self.open_run().await else { return };
        let Some(at) = self.draw_place(Place::is_up) else { return };
        let ask = || "web.ask".to_owned();
        let words = [
            (3, 0, Verb::Pause { task: None }, "pause all"),
            (3, 1, Verb::Resume { task: None }, "resume all"),
            (4, 2, Verb::Approve { task: ask() }, "approve web.ask"),
            (1, 3, Verb::Skip { task: ask() }, "skip web.ask"),
            (1, 4, Verb::Waive {}, "set the limits aside"),
            (1, 5, Verb::Abort { how: Abort::Hold }, "abort, hold"),
            (1, 6, Verb::Abort { how: Abort::Revert }, "abort, revert"),
        ];
        let weights: Vec<(u64, usize)> = words.iter().map(|own| (own.0, own.1)).collect();
        let (_, _, verb, action) = &words[self.chance.weigh(&weights)];
        let answer = self.say(at, run.id, verb, action).await;
        self.note(format!("{at} is told `{action}`: {answer:?}"));
    }

    /// Lets the open run go on for a while.
    pub async fn wait(&mut self) {
        let Some(run) = self.open_run().await else { return };
        let until = Instant::now() + Duration::from_millis(self.chance.among(50..600));
        while self.run_of(run.id).await.outcome.is_none() && Instant::now() < until {
            sleep(POLL).await;
        }
        let outcome = self.run_of(run.id).await.outcome;
        self.note(format!("run {}: {outcome:?}", run.id));
    }

    /// Somebody changes knobs of a drained datacenter, or a load balancer is
    /// reloaded.
    pub async fn drift(&mut self) -> Result<(), Violation> {
        self.places.iter().filter_map(|own| own.server.as_ref()).for_each(|server| {
            if server.is_to_stop() {
                server.go_on();
            }
        });
        if self.drifts >= drain::engine::DRIFTS_MAX || !self.is_drained().await {
            return Ok(());
        }
        let Some(at) = self.draw_place(Place::is_up) else { return Ok(()) };
        let home = self.home.path().to_owned();
        let changed: Vec<kept::Left> =
            kept::LEFT.into_iter().filter(|_| self.chance.happens(500)).collect();
        self.drifts += 1;
        self.note(format!("{changed:?} change, and {at} looks"));
        let before = writes(&home).len();
        changed.iter().for_each(|own| put(&home, own.knob, "1"));
        self.stays_drained(at, &changed, before).await?;
        // Whoever changed a primary puts it right.
        changed.iter().for_each(|own| put(&home, own.knob, own.value));
        Ok(())
    }

    async fn stays_drained(
        &mut self,
        at: usize,
        changed: &[kept::Left],
        before: usize,
    ) -> Result<(), Violation> {
        let home = self.home.path().to_owned();
        let deadline = Instant::now() + PATIENCE;
        let mut looked = false;
        while !looked || self.open_run().await.is_some() || !kept::is_back(&home, changed) {
            if Instant::now() > deadline {
                let values = changed.iter().map(|own| kept::value(&home, own.knob));
                let values: Vec<String> = values.collect();
                return violation(kept::NAME, format!("not put back: {changed:?}: {values:?}"));
            }
            let look = self.server(at).call(async |drains| {
                drains.look_between_runs().await.map_err(|refused| refused.to_string())
            });
            looked |= look.await.is_some_and(|look| look.is_ok());
            sleep(POLL).await;
        }
        kept::left_alone(&writes(&home)[before..])
    }
}
