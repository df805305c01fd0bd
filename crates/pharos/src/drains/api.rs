//! Drains over HTTP: reading for everybody who may ask, writing through the
//! control socket alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_SECURITY_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use drain::Direction;
use drain::engine::{Fact, Mode, Record};
use futures_util::stream;
use jiff::tz::TimeZone;
use serde::Deserialize;
use serde_json::json;
use store::{Filter, KnownHead, RunId, Trust};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use super::custody::{actor_of, meaning_of};
use super::instance::node_of;
use super::planning::Turn;
use super::verbs::Verb;
use super::{Drains, Refused, Survey, Wanted};
use crate::admin::connections::REQUEST_TIME_MAX;
use crate::admin::error;
use crate::admin::peer::Peer;

/// Runs on one page.
const RUNS: u32 = 20;
/// Entries of the audit log on one page, unless told and at the most.
const ENTRIES: u32 = 100;
const ENTRIES_MAX: u32 = store::AUDIT_LIMIT_MAX - 1;
/// Pages that are made from the store at once, of one account and of all, by each
/// of the two listeners.
const PAGES_OF_ACCOUNT_MAX: usize = 2;
const PAGES_MAX: usize = 4;
/// Plans that are made at once, in the same way: each reads all knobs, which may be a
/// process for each.
const PLANS_OF_ACCOUNT_MAX: usize = 1;
const PLANS_MAX: usize = 2;
/// Runs that one account begins at once; the others wait. Their plans are made one
/// after the other, and nobody else should wait for all of them.
const BEGINS_OF_ACCOUNT_MAX: usize = 4;
const _: () = assert!(
    PAGES_OF_ACCOUNT_MAX + PAGES_MAX + 4 <= store::READERS_MAX as usize,
    "there are connections to the store that no page takes"
);
/// How often the disk is looked at for what another server does.
const FOLLOW_EVERY: Duration = Duration::from_millis(500);
/// What the page of a report may do: its styles stand in it, and it has nothing
/// to load and nothing to run, whatever somebody manages to write into it.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; \
                           base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

type Shared = State<Arc<Drains>>;
type Numbered = Result<Path<u64>, PathRejection>;

/// The pages that only read.
pub fn reading(drains: Arc<Drains>) -> Router {
    // A plan waits for runbooks and drivers most of the time, and not for the store: it has turns
    // of its own, so that pages from the store do not wait for it.
    let plans = Router::new()
        .route("/v1/plans/{direction}/{datacenter}", get(plan))
        .layer(middleware::from_fn_with_state(Turns::of_plans(), take_turn));
    Router::new()
        .route("/v1/drains", get(list))
        .route("/v1/drains/{run}", get(show))
        .route("/v1/drains/{run}/events", get(events))
        .route("/v1/drains/{run}/report", get(report))
        .route("/v1/drains/{run}/report.html", get(report_page))
        .route("/v1/audit", get(audit))
        .route("/v1/audit/verify", get(verify_audit))
        .layer(middleware::from_fn_with_state(Turns::of_pages(), take_turn))
        .merge(plans)
        .method_not_allowed_fallback(crate::admin::not_that_way)
        .with_state(drains)
}

/// The pages that change something.
pub fn writing(drains: Arc<Drains>) -> Router {
    Router::new()
        .route("/v1/drains", post(begin))
        .layer(middleware::from_fn_with_state(Begins::default(), take_begin))
        .route("/v1/drains/{run}/say", post(say))
        .with_state(drains)
}

/// Turns of accounts, by uid; over TCP there is none.
#[derive(Clone, Debug, Default)]
struct Accounts(Arc<Mutex<BTreeMap<Option<u32>, Arc<Semaphore>>>>);

impl Accounts {
    /// The turns of an account, of which there are `max`.
    fn of(&self, uid: Option<u32>, max: usize) -> Arc<Semaphore> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever has a turn, or waits for one, keeps it here.
        all.retain(|_, own| Arc::strong_count(own) > 1);
        all.entry(uid).or_insert_with(|| Arc::new(Semaphore::new(max))).clone()
    }
}

/// Turns to begin runs.
#[derive(Clone, Debug, Default)]
struct Begins(Accounts);

impl Begins {
    /// Waits for a turn of an account, for as long as its client does.
    async fn take(&self, uid: Option<u32>) -> Option<OwnedSemaphorePermit> {
        self.0.of(uid, BEGINS_OF_ACCOUNT_MAX).acquire_owned().await.ok()
    }
}

async fn take_begin(State(begins): State<Begins>, request: Request, next: Next) -> Response {
    let uid = request.extensions().get::<Peer>().map(|peer| peer.uid);
    let _turn = begins.take(uid).await;
    next.run(request).await
}

/// Turns to make pages from the store, or plans: runs need both, too, and must not
/// wait for whoever asks for pages, nor one account for another.
#[derive(Clone, Debug)]
struct Turns {
    all: Arc<Semaphore>,
    of_accounts: Accounts,
    of_account_max: usize,
}

impl Turns {
    fn of_pages() -> Turns {
        Turns::new(PAGES_MAX, PAGES_OF_ACCOUNT_MAX)
    }

    fn of_plans() -> Turns {
        Turns::new(PLANS_MAX, PLANS_OF_ACCOUNT_MAX)
    }

    fn new(max: usize, of_account_max: usize) -> Turns {
        let all = Arc::new(Semaphore::new(max));
        Turns { all, of_accounts: Accounts::default(), of_account_max }
    }

    /// Waits for a turn of an account.
    async fn take(&self, uid: Option<u32>) -> Option<[OwnedSemaphorePermit; 2]> {
        let own = self.of_accounts.of(uid, self.of_account_max);
        let taken = async {
            let own = own.acquire_owned().await.ok()?;
            Some([own, self.all.clone().acquire_owned().await.ok()?])
        };
        timeout(REQUEST_TIME_MAX, taken).await.ok()?
    }
}

async fn take_turn(State(turns): State<Turns>, request: Request, next: Next) -> Response {
    let uid = request.extensions().get::<Peer>().map(|peer| peer.uid);
    match turns.take(uid).await {
        Some(_turn) => next.run(request).await,
        None => {
            let text = "other such pages are being made; try again";
            error(StatusCode::SERVICE_UNAVAILABLE, text)
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = match &self {
            Refused::Unknown(_) => StatusCode::NOT_FOUND,
            Refused::Conflict(_) => StatusCode::CONFLICT,
            Refused::Failed(_) | Refused::Unreadable(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        error(status, self.to_string())
    }
}

/// Why a request was not understood.
fn misread(what: String, accepted: &str) -> Response {
    error(StatusCode::BAD_REQUEST, format!("{what}; accepted: {accepted}"))
}

fn run_of(run: Numbered) -> Result<RunId, Box<Response>> {
    let accepted = "the number of a run, as /v1/drains lists them";
    match run {
        Ok(Path(run)) if run <= NUMBER_MAX => Ok(RunId(run)),
        Ok(Path(run)) => Err(Box::new(misread(format!("{run} is no run"), accepted))),
        Err(rejection) => Err(Box::new(misread(rejection.body_text(), accepted))),
    }
}

/// The store counts in 63 bits.
const NUMBER_MAX: u64 = i64::MAX as u64;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    limit: Option<u32>,
    datacenter: Option<String>,
    open: Option<bool>,
    before: Option<u64>,
}

async fn list(State(drains): Shared, which: Result<Query<Which>, QueryRejection>) -> Response {
    let Query(which) = match which {
        Ok(which) => which,
        Err(rejection) => {
            let accepted = "limit=N, datacenter=NAME, open=true or false, before=RUN";
            return misread(rejection.body_text(), accepted);
        }
    };
    let filter = Filter {
        datacenter: which.datacenter.as_deref(),
        ended: which.open.map(|open| !open),
        before: which.before.map(|run| RunId(run.min(NUMBER_MAX))),
        ..Filter::default()
    };
    match drains.runs(filter, which.limit.unwrap_or(RUNS)).await {
        Ok(runs) => {
            let runs: Vec<_> = runs.iter().map(view).collect();
            Json(json!({ "runs": runs })).into_response()
        }
        Err(refused) => refused.into_response(),
    }
}

fn view(run: &store::Run) -> serde_json::Value {
    json!({
        "run": run.id.0,
        "datacenter": run.datacenter,
        "direction": run.direction,
        "by": run.actor,
        "reason": run.reason,
        "created": run.created_at,
        "ended": run.ended_at,
        "outcome": run.outcome,
        "records": run.records,
        "driven_by": run.holder.as_deref().map(node_of),
        "instance": run.holder,
    })
}

async fn show(State(drains): Shared, run: Numbered) -> Response {
    let run = match run_of(run) {
        Ok(run) => run,
        Err(response) => return *response,
    };
    match drains.status(run).await {
        Ok(status) => Json(&*status).into_response(),
        Err(refused) => refused.into_response(),
    }
}

async fn report(State(drains): Shared, run: Numbered) -> Response {
    let run = match run_of(run) {
        Ok(run) => run,
        Err(response) => return *response,
    };
    match drains.report(run).await {
        Ok(report) => Json(report).into_response(),
        Err(refused) => refused.into_response(),
    }
}

async fn report_page(State(drains): Shared, run: Numbered) -> Response {
    let run = match run_of(run) {
        Ok(run) => run,
        Err(response) => return *response,
    };
    match drains.report(run).await {
        Ok(report) => {
            let page = Html(drain::report::render(&report, &TimeZone::system()));
            ([(CONTENT_SECURITY_POLICY, PAGE_POLICY), (X_CONTENT_TYPE_OPTIONS, "nosniff")], page)
                .into_response()
        }
        Err(refused) => refused.into_response(),
    }
}

async fn plan(
    State(drains): Shared,
    of: Result<Path<(Direction, String)>, PathRejection>,
) -> Response {
    let Path((direction, datacenter)) = match of {
        Ok(of) => of,
        Err(rejection) => {
            let accepted = "/v1/plans/drain/DATACENTER or /v1/plans/restore/DATACENTER";
            return misread(rejection.body_text(), accepted);
        }
    };
    match drains.plan(&datacenter, direction, Turn::Page).await {
        Ok(plan) => {
            let Survey { foresight, problems, warnings, .. } =
                drains.survey(&plan, Turn::Page).await;
            let found = json!({
                "plan": plan, "foresight": foresight, "problems": problems, "warnings": warnings,
            });
            Json(found).into_response()
        }
        Err(refused) => refused.into_response(),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct From {
    #[serde(default)]
    from: u64,
}

/// All records of a run from a number on, then each as it comes, a line of
/// JSON each. Ends with the run.
async fn events(
    State(drains): Shared,
    run: Numbered,
    from: Result<Query<From>, QueryRejection>,
) -> Response {
    let (run, from) = match (run_of(run), from) {
        (Ok(run), Ok(Query(from))) => (run, from.from.min(NUMBER_MAX)),
        (Err(response), _) => return *response,
        (_, Err(rejection)) => return misread(rejection.body_text(), "from=SEQ"),
    };
    if let Err(refused) = drains.find(run).await {
        return refused.into_response();
    }
    let follower = Follower::new(drains, run, from).await;
    let events = stream::unfold(Some(follower), async |follower| {
        let mut follower = follower?;
        match follower.more().await {
            Ok(more) => more.map(|more| (Ok(more), Some(follower))),
            // Cut off, not ended: whoever follows asks again.
            Err(failed) => Some((Err(failed), None)),
        }
    });
    ([("content-type", "application/x-ndjson")], Body::from_stream(events)).into_response()
}

/// Whoever follows a run: first from the disk, then as it goes on.
pub(super) struct Follower {
    drains: Arc<Drains>,
    run: RunId,
    next: u64,
    live: Option<broadcast::Receiver<Arc<Record>>>,
    is_caught_up: bool,
    /// The run is over: what is on the disk is all there will be.
    is_over: bool,
}

impl Follower {
    pub(super) async fn new(drains: Arc<Drains>, run: RunId, next: u64) -> Follower {
        // Before what is there is read: nothing may fall between.
        let mut follower =
            Follower { drains, run, next, live: None, is_caught_up: false, is_over: false };
        follower.subscribe().await;
        follower
    }

    async fn subscribe(&mut self) {
        let handle = self.drains.handle(self.run).await.ok();
        self.live = handle.map(|handle| handle.events.subscribe());
    }

    /// The next lines, at most a few megabytes of them: who reads slowly waits
    /// for the disk, and nothing waits for who reads slowly.
    pub(super) async fn more(&mut self) -> store::Result<Option<Bytes>> {
        loop {
            if !self.is_caught_up {
                let page = self.drains.store().records(self.run, self.next).next_page().await?;
                if let Some(page) = page {
                    self.next = page.last().map_or(self.next, |entry| entry.seq + 1);
                    let lines: String = page.into_iter().map(|entry| entry.json + "\n").collect();
                    return Ok(Some(lines.into()));
                }
                self.is_caught_up = true;
            }
            let Some(live) = &mut self.live else {
                if self.is_over || self.drains.is_stopping() {
                    return Ok(None);
                }
                // Another server drives it, or none yet: the disk tells what it does.
                self.is_over = self.drains.store().run(self.run).await?.outcome.is_some();
                if !self.is_over {
                    sleep(FOLLOW_EVERY).await;
                    self.subscribe().await;
                }
                self.is_caught_up = false;
                continue;
            };
            match live.recv().await {
                Ok(record) if record.seq < self.next => {}
                Ok(record) => {
                    self.next = record.seq + 1;
                    if matches!(record.fact, Fact::Closed { .. }) {
                        self.live = None;
                    }
                    return Ok(Some(line(&record)));
                }
                Err(RecvError::Lagged(_)) => self.is_caught_up = false,
                Err(RecvError::Closed) => self.live = None,
            }
        }
    }
}

fn line(record: &Record) -> Bytes {
    let mut line = serde_json::to_vec(record).expect("records are JSON");
    line.push(b'\n');
    line.into()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Begin {
    datacenter: String,
    direction: Direction,
    mode: Option<Mode>,
    /// A comment; who it is says the kernel.
    by: Option<String>,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    overload: bool,
    #[serde(default)]
    give_up: Vec<String>,
}

async fn begin(
    State(drains): Shared,
    peer: Peer,
    wanted: Result<Json<Begin>, JsonRejection>,
) -> Response {
    let Json(wanted) = match wanted {
        Ok(wanted) => wanted,
        Err(rejection) => {
            let accepted = "{\"datacenter\": NAME, \"direction\": \"drain\" or \"restore\", \
                            \"mode\": \"drill\" or \"disaster\", \"by\": COMMENT, \"reason\": WHY, \
                            \"overload\": true or false, \"give_up\": [NAME, …]}";
            return misread(rejection.body_text(), accepted);
        }
    };
    let wanted = Wanted {
        datacenter: wanted.datacenter,
        direction: wanted.direction,
        mode: wanted.mode.unwrap_or(Mode::Drill),
        by: peer.actor().await.commented(wanted.by.as_deref()),
        reason: wanted.reason,
        overload: wanted.overload,
        give_up: wanted.give_up,
    };
    match drains.begin(wanted).await {
        Ok((run, warnings)) => Json(json!({ "run": run.0, "warnings": warnings })).into_response(),
        Err(refused) => refused.into_response(),
    }
}

#[derive(Debug, Deserialize)]
struct Say {
    /// A comment; who it is says the kernel.
    by: Option<String>,
    #[serde(default)]
    reason: String,
    #[serde(flatten)]
    verb: Verb,
}

async fn say(
    State(drains): Shared,
    peer: Peer,
    run: Numbered,
    said: Result<Json<Say>, JsonRejection>,
) -> Response {
    let (run, said) = match (run_of(run), said) {
        (Ok(run), Ok(Json(said))) => (run, said),
        (Err(response), _) => return *response,
        (_, Err(rejection)) => {
            let accepted = "{\"verb\": VERB, \"by\": COMMENT, \"reason\": WHY, …} with the verbs \
                            pause, resume, skip, stop, retry, override, accelerate, approve, \
                            mode, waive and abort";
            return misread(rejection.body_text(), accepted);
        }
    };
    let by = peer.actor().await.commented(said.by.as_deref());
    match drains.say(run, by, said.reason, &said.verb).await {
        Ok(()) => Json(json!({ "said": true })).into_response(),
        Err(refused) => refused.into_response(),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    #[serde(default)]
    from: u64,
    limit: Option<u32>,
}

async fn audit(State(drains): Shared, part: Result<Query<Part>, QueryRejection>) -> Response {
    let Query(part) = match part {
        Ok(part) => part,
        Err(rejection) => return misread(rejection.body_text(), "from=N and limit=N"),
    };
    let limit = part.limit.unwrap_or(ENTRIES).min(ENTRIES_MAX);
    // One more than is shown says whether there are more.
    match drains.store().audit(part.from.min(NUMBER_MAX), limit + 1).await {
        Ok(mut entries) => {
            let next = entries.get(limit as usize).map(|entry| entry.seq);
            entries.truncate(limit as usize);
            let entries: Vec<_> = entries.iter().map(audit_view).collect();
            Json(json!({ "entries": entries, "next": next })).into_response()
        }
        Err(failed) => Refused::from(failed).into_response(),
    }
}

fn audit_view(entry: &store::AuditEntry) -> serde_json::Value {
    // Older entries than identities have none; they are shown all the same.
    let actor = actor_of(&entry.json);
    let actor = actor.as_ref();
    json!({
        "seq": entry.seq, "at": entry.at, "by": entry.actor,
        "identity": actor.map(|actor| &actor.identity),
        "comment": actor.and_then(|actor| actor.comment.as_deref()),
        "action": entry.action, "reason": entry.reason,
        "run": entry.run.map(|run| run.0), "digest": entry.digest.to_string(),
        "key": entry.signature.map(|own| own.key_id().to_string()),
    })
}

/// How the log ended when somebody looked: `head=N:DIGEST`. A log whose end was
/// cut off, or that was made anew, is whole in itself.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Remembered {
    head: Option<String>,
}

impl Remembered {
    fn head(&self) -> Result<Option<store::Head>, String> {
        let Some(text) = &self.head else { return Ok(None) };
        store::Head::parse(text).map(Some).ok_or_else(|| format!("`{text}` is no head of the log"))
    }
}

/// What was proven, as the API says it.
pub(super) fn verdict_view(verdict: &store::Verdict) -> serde_json::Value {
    match verdict {
        store::Verdict::Verified(proof) => {
            let signed: Vec<_> = proof
                .signed
                .iter()
                .map(
                    |part| json!({ "key": part.key.to_string(), "from": part.from, "to": part.to }),
                )
                .collect();
            json!({
                "verified": true, "entries": proof.head.entries, "head": proof.head.to_string(),
                "unsigned": proof.unsigned, "signed": signed, "known": proof.known,
                "runs_without_plan": proof.runs_without_plan,
            })
        }
        store::Verdict::Mismatched { proof, why } => json!({
            "verified": false, "entries": proof.head.entries, "head": proof.head.to_string(),
            "why": why.join("; "), "mismatches": why,
        }),
        store::Verdict::Broken { at, why } => json!({ "verified": false, "at": at, "why": why }),
    }
}

async fn verify_audit(
    State(drains): Shared,
    remembered: Result<Query<Remembered>, QueryRejection>,
) -> Response {
    let remembered = remembered.map_err(|rejection| rejection.body_text());
    let remembered = match remembered.and_then(|Query(remembered)| remembered.head()) {
        Ok(remembered) => remembered,
        Err(what) => return misread(what, "head=N:DIGEST, as an earlier verification printed it"),
    };
    let known = |head| KnownHead { head, from: "the head that was given".into() };
    let trust = Trust {
        keys: vec![drains.audit_key().clone()],
        heads: remembered.into_iter().map(known).collect(),
    };
    match drains.store().verify_audit(&trust, meaning_of).await {
        Ok(verdict) => Json(verdict_view(&verdict)).into_response(),
        Err(failed) => Refused::from(failed).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn plans_are_made_one_at_a_time_for_an_account() {
        let turns = Turns::of_plans();
        let held = turns.take(None).await.unwrap();
        assert!(turns.take(None).await.is_none(), "not in time");
        assert!(turns.take(Some(1000)).await.is_some());
        drop(held);
        assert!(turns.take(None).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn runs_that_one_account_begins_do_not_keep_another_account_waiting() {
        let begins = Begins::default();
        let mut held = Vec::new();
        for _ in 0..BEGINS_OF_ACCOUNT_MAX {
            held.push(begins.take(Some(1000)).await.unwrap());
        }
        let next = timeout(REQUEST_TIME_MAX, begins.take(Some(1000)));
        assert!(next.await.is_err(), "it waits for its own");
        assert!(begins.take(Some(1001)).await.is_some());
        held.pop();
        assert!(begins.take(Some(1000)).await.is_some());
    }

    #[test]
    fn a_field_that_a_verb_does_not_have_is_refused() {
        for verb in [
            json!({ "verb": "pause" }),
            json!({ "verb": "resume" }),
            json!({ "verb": "skip", "task": "web.ask" }),
            json!({ "verb": "stop", "task": "web.ask" }),
            json!({ "verb": "retry", "task": "web.ask" }),
            json!({ "verb": "override", "condition": "errors" }),
            json!({ "verb": "accelerate" }),
            json!({ "verb": "approve", "task": "web.ask" }),
            json!({ "verb": "mode", "mode": "drill" }),
            json!({ "verb": "waive" }),
            json!({ "verb": "abort", "how": "hold" }),
        ] {
            let said = |field: &str| {
                let mut said = verb.clone();
                said["reason"] = "works".into();
                said[field] = "x".into();
                serde_json::from_value::<Say>(said)
            };
            assert!(said("by").is_ok(), "{verb}");
            let refused = said("datacenter").unwrap_err().to_string();
            assert!(refused.starts_with("unknown field `datacenter`"), "{verb}: {refused}");
        }
        let waive = json!({ "verb": "waive", "task": "web.ask" });
        let refused = serde_json::from_value::<Say>(waive).unwrap_err().to_string();
        assert!(refused.starts_with("unknown field `task`, there are no fields"), "{refused}");
    }

    /// 60 verifications of the audit log at once stopped a restore for as long as
    /// they were repeated.
    #[tokio::test(start_paused = true)]
    async fn pages_leave_connections_of_the_store_to_runs_and_to_other_accounts() {
        let turns = Turns::of_pages();
        let mut held = Vec::new();
        for uid in [Some(1000), Some(1001)] {
            for _ in 0..PAGES_OF_ACCOUNT_MAX {
                held.push(turns.take(uid).await.unwrap());
            }
            assert!(turns.take(uid).await.is_none(), "not in time");
        }
        assert!(turns.take(Some(1002)).await.is_none(), "not in time");
        held.pop();
        held.push(turns.take(Some(1002)).await.unwrap());
        held.clear();
        assert!(turns.take(Some(1000)).await.is_some());
        assert_eq!(turns.of_accounts.0.lock().unwrap().len(), 1);
    }
}
