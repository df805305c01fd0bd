//! Which knobs carry the traffic of a service, in every datacenter, and what
//! share of it their values let in. Everything that is said about the fleet,
//! about limits and about capacity is derived from this.

use serde::{Deserialize, Serialize};

use super::Knob;
use crate::value::Value;

/// Less than this share of a knob's range is nothing: drivers round.
const NOTHING: f64 = 1.0 / 250.0;

/// States of HAProxy's servers in which they get no new clients, whichever of them a drain
/// sets.
const SHUT: [&str; 2] = ["maint", "drain"];
/// And the one in which they do.
const OPEN: &str = "ready";

/// The traffic of one service in all datacenters of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceTraffic {
    pub service: String,
    /// One for each datacenter of the plan, in its order.
    pub datacenters: Vec<TrafficAt>,
}

/// The traffic of a service in one datacenter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrafficAt {
    /// What the runbook declares, in the unit of the capacity, while nothing is
    /// drained.
    pub load: f64,
    /// The query for the present load, and its value when the plan was made.
    pub measured_load: Option<String>,
    pub measured: Option<f64>,
    /// What carries it. Empty: no knob does, and what runs recorded decides.
    pub knobs: Vec<TrafficKnob>,
}

/// A knob that carries traffic into a datacenter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrafficKnob {
    pub knob: Knob,
    /// Its value when the datacenter is drained.
    pub goal: Value,
    /// Its value before the drain, if a run recorded it.
    pub original: Option<Value>,
}

/// The value of a knob now, and the one before its drain, if that is recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Position {
    pub value: Value,
    pub original: Option<Value>,
    /// Nothing that it sends traffic to can serve, whatever the value is.
    pub is_out: bool,
}

/// Whether a change of a knob takes out what serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakesOut {
    No,
    /// Nobody knows: it has words that are not known, or brings in one server for another,
    /// and either may be down.
    Maybe,
    Yes,
}

/// What a change does to one server of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Stays,
    ComesIn,
    GoesOut,
    /// What a word means is not known.
    Unknown,
}

/// The states in a text, each with the server that it is of: `a=ready,b=maint`, or one state
/// for all, whose server is empty. A list of names is one state.
fn states(text: &str) -> Vec<(&str, &str)> {
    if !text.contains('=') {
        return vec![("", text)];
    }
    text.split(',').map(|part| part.rsplit_once('=').unwrap_or(("", part))).collect()
}

/// The state of a server; empty if the text does not have it.
fn state_of<'t>(text: &'t str, server: &str) -> &'t str {
    let states = states(text);
    let own = states.iter().find(|(own, _)| own.is_empty() || *own == server);
    own.map_or("", |(_, state)| *state)
}

impl TrafficKnob {
    /// The share of the traffic that a value lets in: 1 at the original, 0 at
    /// the goal of the drain. Without a recorded original the present value is
    /// it, unless that is the goal.
    pub fn multiplier(&self, value: &Value) -> f64 {
        self.multiplier_from(value, self.original.as_ref())
    }

    /// Whether a value says something about the traffic. A driver that reads
    /// nothing, or a text where numbers are set, does not: what it lets in is
    /// unknown.
    pub fn is_legible(&self, value: &Value, original: Option<&Value>) -> bool {
        let original = original.or(self.original.as_ref());
        match (value, &self.goal) {
            (Value::Number(_), Value::Number(_)) => true,
            (Value::Text(text), Value::Text(goal)) => {
                // An original that is the goal says nothing of what lets traffic in.
                let original = original.filter(|original| *original != &self.goal);
                let is_original = original.is_none_or(|original| original == value);
                text == goal || (!self.is_nothing(value) && is_original)
            }
            _ => false,
        }
    }

    /// Whether a driver has read nothing: a command that printed nothing, or the word for it.
    /// What the drain sets is something.
    pub fn is_nothing(&self, value: &Value) -> bool {
        let Value::Text(text) = value else { return false };
        let is_blank = text.trim().is_empty() || text.trim().eq_ignore_ascii_case("null");
        is_blank && !self.goal.is_met_by(value)
    }

    /// Whether a value lets nothing in.
    pub fn is_closed_at(&self, value: &Value, original: Option<&Value>) -> bool {
        let original = original.or(self.original.as_ref());
        self.is_legible(value, original) && self.multiplier_from(value, original) == 0.0
    }

    /// Whether a change of a value takes out what serves: all that a number lets in, or any
    /// server of a group, of which the others may be down. What is at the goal of the drain
    /// lets nothing in, whatever its words mean.
    pub fn takes_out(&self, at: &Value, to: &Value) -> TakesOut {
        if self.goal.is_met_by(at) {
            return TakesOut::No;
        }
        match (at, to) {
            (Value::Text(at), Value::Text(to)) => self.takes_out_any(at, to),
            (Value::Number(at), Value::Number(to)) if self.is_past_goal(*at, *to) => {
                TakesOut::Maybe
            }
            _ if self.multiplier(to) > 0.0 || self.multiplier(at) == 0.0 => TakesOut::No,
            (Value::Number(_), Value::Number(_)) => TakesOut::Yes,
            _ => TakesOut::Maybe,
        }
    }

    /// Whether a number is brought past the goal of the drain from its other side. On one of
    /// them nothing is let in, and only of nothing it is known that it is that one.
    fn is_past_goal(&self, at: f64, to: f64) -> bool {
        let is_other_side = |goal: f64| (at - goal) * (to - goal) < 0.0;
        at > 0.0 && self.goal.number().is_some_and(is_other_side)
    }

    /// The same of texts, by what becomes of each server that they name.
    fn takes_out_any(&self, at: &str, to: &str) -> TakesOut {
        let named = [states(at), states(to)].concat().into_iter().map(|(server, _)| server);
        let named: Vec<&str> = named.filter(|server| !server.is_empty()).collect();
        let servers = if named.is_empty() { vec![""] } else { named };
        let steps = servers.into_iter().map(|server| self.step_of(server, at, to));
        let steps: Vec<Step> = steps.collect();
        let is_shut = |(server, state): &(&str, &str)| self.is_shut(server, state);
        let changes = steps.iter().any(|step| *step != Step::Stays);
        match (steps.contains(&Step::GoesOut), steps.contains(&Step::ComesIn)) {
            // Whatever serves now, nothing does then.
            _ if changes && states(to).iter().all(is_shut) => TakesOut::Yes,
            _ if steps.contains(&Step::Unknown) => TakesOut::Maybe,
            (true, true) => TakesOut::Maybe,
            (true, false) => TakesOut::Yes,
            (false, _) => TakesOut::No,
        }
    }

    fn step_of(&self, server: &str, at: &str, to: &str) -> Step {
        let (at, to) = (state_of(at, server), state_of(to, server));
        match (self.is_shut(server, at), self.is_shut(server, to)) {
            _ if at == to => Step::Stays,
            (true, true) => Step::Stays,
            (true, false) => Step::ComesIn,
            (false, true) if at == OPEN => Step::GoesOut,
            // Of another driver `ready` may be that of a standby.
            (false, _) => Step::Unknown,
        }
    }

    /// Whether a state is known to let nothing in: one of those, or what the drain sets.
    fn is_shut(&self, server: &str, state: &str) -> bool {
        let goal = match &self.goal {
            Value::Text(goal) => state_of(goal, server),
            Value::Number(_) => "",
        };
        SHUT.contains(&state) || (!state.is_empty() && state == goal)
    }

    /// Whether a value lets less in than another one: it is nearer to the goal of the
    /// drain, or past it. `original` is the value before the drain, if it is known here.
    pub fn is_further_out(&self, value: &Value, than: &Value, original: Option<&Value>) -> bool {
        let original = self.original.as_ref().or(original).and_then(Value::number);
        match (value, than, &self.goal) {
            (Value::Number(found), Value::Number(before), Value::Number(goal)) => {
                let is_known = |original: &f64| original != goal;
                let way = goal - original.filter(is_known).unwrap_or(*before);
                !than.is_met_by(value) && (found - before) * way > 0.0
            }
            (_, _, Value::Text(_)) => self.goal.is_met_by(value) && !self.goal.is_met_by(than),
            _ => false,
        }
    }

    fn multiplier_from(&self, value: &Value, original: Option<&Value>) -> f64 {
        let original = original.and_then(Value::number);
        match (value, &self.goal, original) {
            (Value::Number(value), Value::Number(goal), Some(original)) if original != *goal => {
                let share = (value - goal) / (original - goal);
                if share > NOTHING { share.min(1.0) } else { 0.0 }
            }
            _ if self.goal.is_met_by(value) => 0.0,
            // Nothing lets in less than nothing does: some drivers say -1 where they have none.
            (Value::Number(value), Value::Number(goal), _) if *goal == 0.0 && *value < 0.0 => 0.0,
            _ => 1.0,
        }
    }
}

impl ServiceTraffic {
    /// The sum of what is declared for all datacenters.
    pub fn load(&self) -> f64 {
        // Not a sum: that of nothing is -0.
        self.datacenters.iter().fold(0.0, |all, own| all + own.load)
    }

    /// Whether the service is in a datacenter: where its load is declared, or
    /// everywhere if none is.
    pub fn is_in(&self, datacenter: usize) -> bool {
        self.datacenters[datacenter].load > 0.0 || self.load() <= 0.0
    }

    /// The share of its traffic that a datacenter is open to: the least of what
    /// its knobs say. `None` if one that counts is unknown. `recorded` is what
    /// runs say about a service without such knobs, `None` if that is unknown. Originals are those of now:
    /// another run may have recorded one since the plan was made.
    pub fn multiplier(
        &self,
        datacenter: usize,
        position: impl Fn(&Knob) -> Option<Position>,
        recorded: Option<f64>,
    ) -> Option<f64> {
        let own = &self.datacenters[datacenter];
        if own.knobs.is_empty() {
            return if self.is_in(datacenter) { recorded } else { Some(0.0) };
        }
        let mut least: f64 = 1.0;
        for knob in &own.knobs {
            match position(&knob.knob) {
                Some(Position { is_out: true, .. }) => least = 0.0,
                Some(Position { value, original, .. })
                    if knob.is_legible(&value, original.as_ref()) =>
                {
                    least = least.min(knob.multiplier_from(&value, original.as_ref()));
                }
                // Where the service is not expected, its knobs need not exist.
                _ if self.is_in(datacenter) => return None,
                _ => least = 0.0,
            }
        }
        Some(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knob(goal: Value, original: Option<Value>) -> TrafficKnob {
        let knob = Knob { driver: "edge".into(), name: "web/a".into() };
        TrafficKnob { knob, goal, original }
    }

    #[test]
    fn a_number_counts_by_its_distance_from_the_goal() {
        let number = Value::Number;
        let down = knob(number(0.0), Some(number(0.8)));
        for (value, share) in [(0.8, 1.0), (0.4, 0.5), (0.0, 0.0), (0.002, 0.0), (1.0, 1.0)] {
            assert_eq!(down.multiplier(&number(value)), share, "{value}");
        }
        let up = knob(number(100.0), Some(number(0.0)));
        assert_eq!(up.multiplier(&number(75.0)), 0.25);
        // Small numbers are not lost in the rounding of large ones.
        let small = knob(number(0.0), Some(number(0.002)));
        assert_eq!(small.multiplier(&number(0.001)), 0.5);
    }

    #[test]
    fn further_out_is_nearer_to_the_goal_or_past_it() {
        let number = Value::Number;
        let text = |text: &str| Value::Text(text.into());
        let is_out = |own: &TrafficKnob, value: f64, than: f64| {
            own.is_further_out(&number(value), &number(than), None)
        };
        let down = knob(number(0.4), Some(number(1.0)));
        assert!(is_out(&down, 0.5, 0.8) && is_out(&down, 0.0, 0.4) && is_out(&down, 0.0, 0.2));
        assert!(!is_out(&down, 0.8, 0.5) && !is_out(&down, 1.0, 0.0) && !is_out(&down, 0.5, 0.5));
        let up = knob(number(100.0), Some(number(0.0)));
        assert!(is_out(&up, 60.0, 50.0) && !is_out(&up, 40.0, 50.0));
        // Nothing says on which side of the goal the traffic is.
        let unknown = knob(number(0.0), None);
        assert!(is_out(&unknown, 0.2, 0.5) && !is_out(&unknown, 0.5, 0.0));
        assert!(unknown.is_further_out(&number(-1.0), &number(0.0), Some(&number(1.0))));
        let switch = knob(text("maint"), Some(text("ready")));
        assert!(switch.is_further_out(&text("maint"), &text("ready"), None));
        assert!(!switch.is_further_out(&text("ready"), &text("maint"), None));
        assert!(!switch.is_further_out(&text("a=maint,b=ready"), &text("ready"), None));
        assert!(!down.is_further_out(&text("0"), &number(0.8), None), "that is no value of it");
    }

    #[test]
    fn a_change_of_states_takes_out_any_server() {
        use TakesOut::{Maybe, No, Yes};
        let text = |text: &str| Value::Text(text.into());
        for (goal, at, to, takes_out) in [
            ("maint", "ready", "maint", Yes),
            ("maint", "ready", "drain", Yes),
            ("maint", "ready", "a=ready,b=maint", Yes),
            ("maint", "a=ready,b=ready", "a=ready,b=maint", Yes),
            ("maint", "a=maint,b=ready", "a=ready,b=maint", Maybe),
            ("maint", "a=ready,b=maint", "ready", No),
            ("maint", "a=ready,b=maint", "maint", Yes),
            ("maint", "a=drain,b=maint", "maint", No),
            ("maint", "a=drain,b=maint", "a=ready,b=maint", No),
            ("maint", "maint", "ready", No),
            ("maint", "maint", "drain", No),
            ("maint", "ready", "ready", No),
            ("maint", "maint", "standby", No),
            // What words of others mean is not known, whichever way they lead.
            ("maint", "on", "standby", Maybe),
            ("maint", "on", "ready", Maybe),
            ("maint", "ready", "standby", Maybe),
            ("off", "offline", "on", Maybe),
            // Where all are shut nothing is let in, whatever was.
            ("off", "on", "off", Yes),
            ("maint", "active", "maint", Yes),
            ("maint", "a=ready,b=standby", "maint", Yes),
            ("maint", "a=on,b=standby", "a=maint,b=drain", Yes),
            ("maint", "a=ready", "a=ready,b=maint", Maybe),
            ("maint", "a=ready,b=on", "a=maint,b=standby", Maybe),
            // What is at the goal lets nothing in, and neither does a server that is.
            ("off", "off", "on", No),
            ("mode=off", "mode=off", "mode=on", No),
            ("mode=off", "mode=ready", "mode=off", Yes),
            ("a=0,b=0", "a=0,b=0", "a=1,b=2", No),
            ("a=0,b=off", "a=0,b=ready", "a=1,b=ready", No),
            // A list is one word.
            ("ams", "ams", "fra,ams", No),
            ("ams", "ams,lhr", "ams,fra", Maybe),
        ] {
            let own = knob(text(goal), None);
            assert_eq!(own.takes_out(&text(at), &text(to)), takes_out, "{goal}: {at} to {to}");
        }
        let number = Value::Number;
        let weight = knob(number(0.0), Some(number(1.0)));
        assert_eq!(weight.takes_out(&number(1.0), &number(0.0)), Yes);
        // Weights are relative: a small one may be all of the traffic.
        assert_eq!(weight.takes_out(&number(1.0), &number(0.1)), No);
        assert_eq!(weight.takes_out(&number(0.0), &number(0.0)), No);
        assert_eq!(weight.takes_out(&text("on"), &number(0.0)), Maybe);
        // On which side of its goal a number lets traffic in, nobody knows.
        let past = |goal: f64, original: f64| knob(number(goal), Some(number(original)));
        assert_eq!(past(0.05, 0.0).takes_out(&number(1.0), &number(0.0)), Maybe);
        assert_eq!(past(0.0, -1.0).takes_out(&number(100.0), &number(-1.0)), Maybe);
        assert_eq!(past(100.0, 65535.0).takes_out(&number(10.0), &number(65535.0)), Maybe);
        // But of nothing, or less.
        assert_eq!(past(0.05, 1.0).takes_out(&number(0.0), &number(1.0)), No);
        assert_eq!(past(0.0, 100.0).takes_out(&number(-1.0), &number(100.0)), No);
    }

    #[test]
    fn without_an_original_the_present_value_is_all_of_it() {
        let own = knob(Value::Number(0.0), None);
        assert_eq!(own.multiplier(&Value::Number(0.1)), 1.0);
        assert_eq!(own.multiplier(&Value::Number(0.0)), 0.0);
    }

    #[test]
    fn a_number_past_a_goal_of_nothing_lets_nothing_in() {
        let number = Value::Number;
        // A driver that says -1 for what it does not have.
        for original in [None, Some(number(0.0)), Some(number(1.0))] {
            let own = knob(number(0.0), original);
            assert_eq!(own.multiplier(&number(-1.0)), 0.0, "{own:?}");
            assert!(own.is_closed_at(&number(-1.0), None));
        }
        // Where less than nothing was before the drain, it is what lets traffic in.
        let odd = knob(number(0.0), Some(number(-1.0)));
        assert_eq!(odd.multiplier(&number(-1.0)), 1.0);
        let up = knob(number(1.0), None);
        assert_eq!(up.multiplier(&number(-1.0)), 1.0);
    }

    #[test]
    fn a_text_is_at_the_goal_or_not() {
        let text = |text: &str| Value::Text(text.into());
        let own = knob(text("maint"), Some(text("ready")));
        assert_eq!(own.multiplier(&text("maint")), 0.0);
        assert_eq!(own.multiplier(&text("ready")), 1.0);
        assert_eq!(own.multiplier(&Value::Number(1.0)), 1.0);
    }

    #[test]
    fn what_is_no_value_of_a_knob_is_unknown_and_does_not_serve() {
        let text = |text: &str| Value::Text(text.into());
        let service = |goal: Value, original: Value| ServiceTraffic {
            service: "web".into(),
            datacenters: vec![TrafficAt {
                load: 1.0,
                knobs: vec![knob(goal, Some(original))],
                ..TrafficAt::default()
            }],
        };
        let weight = service(Value::Number(0.0), Value::Number(1.0));
        let switch = service(text("maint"), text("ready"));
        let of = |own: &ServiceTraffic, value: Value| {
            let at = Position { value: value.clone(), original: None, is_out: false };
            own.multiplier(0, |_| Some(at.clone()), None)
        };
        assert_eq!(of(&weight, text("")), None);
        assert_eq!(of(&weight, text("weird")), None);
        assert_eq!(of(&switch, text("")), None);
        assert_eq!(of(&switch, text("weird")), None);
        assert_eq!(of(&switch, text("ready")), Some(1.0));
        assert_eq!(of(&switch, text("maint")), Some(0.0));
    }

    #[test]
    fn what_is_out_serves_nothing_whatever_its_value_is() {
        let at = |value: Value, goal: Value, is_out: bool| {
            let knobs = vec![knob(goal, Some(value.clone()))];
            let datacenters = vec![TrafficAt { load: 1.0, knobs, ..TrafficAt::default() }];
            let own = ServiceTraffic { service: "web".into(), datacenters };
            let position = Position { value, original: None, is_out };
            own.multiplier(0, |_| Some(position.clone()), None)
        };
        let text = |text: &str| Value::Text(text.into());
        assert_eq!(at(text("ready"), text("maint"), false), Some(1.0));
        assert_eq!(at(text("ready"), text("maint"), true), Some(0.0));
        // What is open at 0.
        assert_eq!(at(Value::Number(0.0), Value::Number(1.0), true), Some(0.0));
        assert_eq!(at(text(""), text("maint"), true), Some(0.0), "not even a value");
    }

    #[test]
    fn a_knob_is_closed_at_its_goal_alone() {
        let own = knob(Value::Number(0.0), None);
        let original = Some(&Value::Number(1.0));
        assert!(own.is_closed_at(&Value::Number(0.0), original));
        assert!(!own.is_closed_at(&Value::Number(0.1), original));
        assert!(!own.is_closed_at(&Value::Text("0".into()), original), "that is no value of it");
    }

    #[test]
    fn the_least_knob_decides_and_an_unknown_one_makes_it_unknown() {
        let number = Value::Number;
        let two = |load: f64| ServiceTraffic {
            service: "web".into(),
            datacenters: vec![
                TrafficAt {
                    load,
                    knobs: ["x", "y"]
                        .map(|name| TrafficKnob {
                            knob: Knob { driver: "edge".into(), name: name.into() },
                            goal: number(0.0),
                            original: Some(number(1.0)),
                        })
                        .to_vec(),
                    ..TrafficAt::default()
                },
                TrafficAt { load: 1.0, ..TrafficAt::default() },
            ],
        };
        let at = |value| {
            let (value, original) = (number(value), Some(number(1.0)));
            Position { value, original, is_out: false }
        };
        let of = |knob: &Knob| Some(at(if knob.name == "x" { 0.7 } else { 0.3 }));
        assert_eq!(two(1.0).multiplier(0, of, None), Some(0.3));
        let one = |knob: &Knob| (knob.name == "x").then_some(at(0.7));
        assert_eq!(two(1.0).multiplier(0, one, None), None);
        assert_eq!(two(0.0).multiplier(0, one, None), Some(0.0), "it is not expected there");
        assert_eq!(two(1.0).multiplier(1, one, Some(0.0)), Some(0.0), "no knob carries it");
        assert_eq!(two(1.0).multiplier(1, one, Some(1.0)), Some(1.0));
        assert_eq!(two(1.0).multiplier(1, one, None), None, "nobody knows");
    }
}
