//! What must be so of several servers on one store. Each checker sees only what
//! can be seen from outside: what reached the targets, the store, the sink, and
//! what servers say.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use drain::Value;
use drain::engine::{Effect, Fact};
use store::{AuditEntry, Filter, PublicKey, RunId, Store, Trust, Verdict, verify_audit_file};
use tokio::time::Instant;

use super::super::super::{custody::meaning_of, fleet, sink};
use super::PATIENCE;

/// Something that must never be so, and which checker found it.
#[derive(Debug)]
pub struct Violation {
    pub checker: &'static str,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.checker, self.what)
    }
}

pub fn violation<T>(checker: &'static str, what: impl Into<String>) -> Result<T, Violation> {
    Err(Violation { checker, what: what.into() })
}

/// A write as it reached its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub epoch: u64,
    pub effect: u64,
    pub knob: String,
    pub value: String,
}

/// All writes that reached targets, in their order.
pub fn writes(home: &Path) -> Vec<Write> {
    let log = std::fs::read_to_string(home.join("log")).unwrap_or_default();
    let write = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let fence: u64 = words.next()?.parse().ok()?;
        let (knob, value) = (words.next()?.to_owned(), words.next()?.to_owned());
        Some(Write { epoch: fence >> 32, effect: fence & u64::from(u32::MAX), knob, value })
    };
    log.lines().map(|line| write(line).expect("a fence, a knob and a value")).collect()
}

/// After a process was taken over from, nothing of it reaches a target; and what
/// reaches one is what a run has on disk under that number, tried once or twice.
pub mod takeover {
    use super::*;

    const NAME: &str = "takeover";
    /// What a run has on disk: the knob and the value of each effect.
    type Issued = BTreeMap<u64, (String, String)>;

    pub async fn check(
        home: &Path,
        store: &Store,
        taken_over: &[(usize, u64)],
    ) -> Result<(), Violation> {
        let writes = writes(home);
        forward(&writes)?;
        silent(&writes, taken_over)?;
        let mut runs = store.runs(Filter::default(), 1000).await.unwrap();
        runs.reverse();
        let mut issued = Vec::new();
        for run in runs {
            issued.push(issued_by(store, run.id).await);
        }
        recorded(&writes, &issued)
    }

    /// A task that claims its knobs writes them under an epoch of its own, and all else
    /// is written under that of the lease.
    fn is_claimed(knob: &str) -> bool {
        knob == "primary" || knob.starts_with("fence-")
    }

    /// Nothing is written any more under an epoch that was taken over from.
    fn silent(writes: &[Write], taken_over: &[(usize, u64)]) -> Result<(), Violation> {
        for (count, epoch) in taken_over {
            let mut later = writes[*count..].iter().filter(|own| !is_claimed(&own.knob));
            if let Some(write) = later.find(|own| own.epoch <= *epoch) {
                return violation(NAME, format!("{write:?} after epoch {epoch} was taken over"));
            }
        }
        Ok(())
    }

    /// No epoch follows a newer one.
    fn forward(writes: &[Write]) -> Result<(), Violation> {
        let mut newest = BTreeMap::<bool, &Write>::new();
        for write in writes {
            if let Some(before) = newest.insert(is_claimed(&write.knob), write)
                && write.epoch < before.epoch
            {
                return violation(NAME, format!("{write:?} came after {before:?}"));
            }
        }
        Ok(())
    }

    /// Every write is one that a run has on disk. Runs follow each other, and an
    /// epoch is of one run.
    fn recorded(writes: &[Write], issued: &[Issued]) -> Result<(), Violation> {
        let mut runs = issued;
        for own in writes.chunk_by(|a, b| a.epoch == b.epoch) {
            let is_of = |run: &Issued| {
                let is_on_disk = |write: &Write| {
                    let found = run.get(&write.effect);
                    found.is_some_and(|(knob, value)| (knob, value) == (&write.knob, &write.value))
                };
                own.iter().all(is_on_disk)
            };
            match runs.iter().position(is_of) {
                Some(at) => runs = &runs[at..],
                None => return violation(NAME, format!("no run has this on disk: {own:?}")),
            }
        }
        Ok(())
    }

    async fn issued_by(store: &Store, run: RunId) -> Issued {
        let (plan, records) = fleet::records(store, run).await.unwrap();
        let issued = records.into_iter().filter_map(|record| match record.fact {
            Fact::Issued { effect, what: Effect::Write { knob, value }, .. } => {
                let value = match value {
                    Value::Number(number) => number.to_string(),
                    Value::Text(text) => text,
                };
                Some((effect.0, (plan.knob(knob).name.clone(), value)))
            }
            _ => None,
        });
        issued.collect()
    }
}

/// A run is driven by one server, and one whose task panicked says so until it
/// is driven again.
pub mod driven {
    use super::*;

    pub const NAME: &str = "driven";
    /// A run stands still for at least a second; looks that are further apart may
    /// miss that.
    const GAP_MAX: Duration = Duration::from_millis(700);

    /// So often in a row a driver is seen before it is taken to stay.
    const SEEN_MIN: u32 = 3;

    /// The only server that drives a run.
    #[derive(Default)]
    pub struct Sole {
        began: Option<Instant>,
        driver: Option<usize>,
        seen: u32,
    }

    impl Sole {
        /// Takes the servers that drive it now.
        pub fn take(&mut self, drivers: Vec<usize>, run: &store::Run) -> Result<(), Violation> {
            let began = *self.began.get_or_insert_with(Instant::now);
            let is_late = drivers.is_empty() && began.elapsed() > PATIENCE;
            let is_lost = self.driver.is_some() && drivers.first() != self.driver.as_ref();
            if drivers.len() > 1 || is_late || is_lost {
                let before = self.driver;
                let why = format!("driven by {drivers:?}, by {before:?} before: {run:?}");
                return violation(NAME, why);
            }
            self.driver = drivers.first().copied();
            self.seen += u32::from(self.driver.is_some());
            Ok(())
        }

        pub fn is_over(&self) -> bool {
            self.seen >= SEEN_MIN
        }
    }

    /// What a server shows of a panic.
    pub struct Shown {
        /// How often tasks panicked in it.
        panics: u32,
        is_counted: bool,
        is_explained: bool,
        began: Instant,
        last: Instant,
        gap: Duration,
    }

    impl Shown {
        pub fn new(panics: u32) -> Shown {
            let (began, gap) = (Instant::now(), Duration::ZERO);
            Shown { panics, is_counted: false, is_explained: false, began, last: began, gap }
        }

        /// Takes what its status and its metrics say.
        pub fn take(&mut self, reason: Option<&str>, metrics: &str) {
            self.gap = self.gap.max(self.last.elapsed());
            self.last = Instant::now();
            let count = format!("pharos_drain_panics_total {}", self.panics);
            self.is_counted |= metrics.lines().any(|line| line == count);
            self.is_explained |= reason.is_some_and(|reason| {
                reason.contains(" in a row): an injected panic; it is taken up again in ")
            });
        }

        pub fn is_over(&self) -> bool {
            (self.is_counted && self.is_explained)
                || self.gap > GAP_MAX
                || self.began.elapsed() > PATIENCE
        }

        pub fn check(&self) -> Result<(), Violation> {
            if self.gap > GAP_MAX || (self.is_counted && self.is_explained) {
                return Ok(());
            }
            let (counted, explained) = (self.is_counted, self.is_explained);
            violation(NAME, format!("a panic: counted {counted}, explained {explained}"))
        }
    }
}

/// What is acknowledged is in the audit log once and in its order, what is
/// refused is not, and the log is verified with keys and sink.
pub mod audit {
    use super::*;

    const NAME: &str = "audit";

    /// What came of something that somebody said.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Answer {
        Acknowledged(RunId),
        Refused,
        /// The server was stopped or killed before it answered.
        None,
    }

    /// Something that somebody said to a server. Each has a reason of its own.
    #[derive(Clone, Debug)]
    pub struct Said {
        pub uid: u32,
        pub reason: String,
        /// As the audit log shows it.
        pub action: String,
        pub answer: Answer,
    }

    pub async fn check(
        home: &Path,
        store: &Store,
        keys: &[PublicKey],
        said: &[Said],
    ) -> Result<(), Violation> {
        let entries = store.audit(1, 1000).await.unwrap();
        assert!(entries.len() < 1000, "a scenario has one page of entries");
        complete(&entries, said)?;
        verified(home, keys, entries.len() as u64).await
    }

    fn complete(entries: &[AuditEntry], said: &[Said]) -> Result<(), Violation> {
        let mut last = 0;
        for own in said {
            let of: Vec<_> = entries.iter().filter(|entry| entry.reason == own.reason).collect();
            let is_own = |entry: &&AuditEntry| {
                entry.actor.ends_with(&format!("(uid {})", own.uid)) && entry.action == own.action
            };
            if !of.iter().all(is_own) {
                return violation(NAME, format!("{own:?} became {of:?}"));
            }
            match (own.answer, &of[..]) {
                (Answer::Refused, []) | (Answer::None, [] | [_]) => {}
                (Answer::Acknowledged(run), [entry])
                    if entry.run == Some(run) && entry.seq > last =>
                {
                    last = entry.seq;
                }
                _ => return violation(NAME, format!("{own:?}, after entry {last}, is {of:?}")),
            }
        }
        let is_known = |entry: &&AuditEntry| {
            entry.actor.ends_with("(automatic)")
                || said.iter().any(|own| own.reason == entry.reason)
        };
        match entries.iter().find(|entry| !is_known(entry)) {
            Some(entry) => violation(NAME, format!("nobody said {entry:?}")),
            None => Ok(()),
        }
    }

    /// Whether all is signed, and the last head is in the sink.
    async fn verified(home: &Path, keys: &[PublicKey], entries: u64) -> Result<(), Violation> {
        let heads = match sink::read_heads(&home.join("heads")) {
            Ok(heads) => heads,
            Err(why) => return violation(NAME, why),
        };
        let trust = Trust { keys: keys.to_vec(), heads };
        match verify_audit_file(&home.join("drain.db"), &trust, meaning_of).await.unwrap() {
            Verdict::Broken { at, why } => violation(NAME, format!("entry {at}: {why}")),
            Verdict::Mismatched { why, .. } => violation(NAME, why.join("; ")),
            Verdict::Verified(proof) if proof.unsigned > 0 || proof.known < entries => {
                violation(NAME, format!("{entries} entries, of which is proven: {proof:?}"))
            }
            Verdict::Verified(_) => Ok(()),
        }
    }
}

/// What a disaster drain left stays, and a primary is left alone.
pub mod kept {
    use super::*;

    pub const NAME: &str = "kept";

    /// A knob of the scenario and the value that a drain leaves.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Left {
        pub knob: &'static str,
        pub value: &'static str,
        /// Or a primary or its fence.
        pub is_traffic: bool,
    }

    pub const LEFT: [Left; 4] = [
        Left { knob: "web-east", value: "0", is_traffic: true },
        Left { knob: "switch-east", value: "off", is_traffic: true },
        Left { knob: "primary", value: "west", is_traffic: false },
        Left { knob: "fence-east", value: "fenced", is_traffic: false },
    ];

    /// Whether traffic knobs that were changed are back.
    pub fn is_back(home: &Path, changed: &[Left]) -> bool {
        let is_back = |own: &Left| value(home, own.knob) == own.value;
        changed.iter().filter(|own| own.is_traffic).all(is_back)
    }

    /// Whether nobody wrote a primary or its fence, in what was written since.
    pub fn left_alone(since: &[Write]) -> Result<(), Violation> {
        let is_other =
            |write: &&Write| LEFT.iter().any(|own| own.knob == write.knob && !own.is_traffic);
        match since.iter().find(is_other) {
            Some(write) => violation(NAME, format!("put back without a procedure: {write:?}")),
            None => Ok(()),
        }
    }

    pub fn value(home: &Path, knob: &str) -> String {
        std::fs::read_to_string(home.join(knob)).unwrap_or_default()
    }
}
