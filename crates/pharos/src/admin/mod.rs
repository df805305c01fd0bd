//! The admin HTTP server: reading over TCP, by those who name it as it is called
//! (`host`), writing only through a
//! socket in the file system that only the server's own user can open, and the
//! members of `admin.control_group`; who they are is what the kernel says.

mod cache;
pub mod connections;
mod fleet;
pub mod host;
pub mod peer;
pub mod socket;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use authority::Image;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, Path as UrlPath, Query, Request, State};
use axum::http::{StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::drains::{Drains, api};
use crate::reload::{Failure, reload};
use crate::serve::Server;
use connections::{CONTROL_TIME_MAX, READING_TIME_MAX, REQUEST_TIME_MAX};
use host::Hosts;

pub use connections::CONNECTIONS_MAX;
pub use fleet::body;

/// Pages below /v1 that are made at once for those who ask over TCP: they may wait
/// for the disk and for drivers, and /healthz and /metrics must not wait with them.
const PAGES_MAX: usize = CONNECTIONS_MAX / 2;
/// How often a port is tried that something else has.
pub const BIND_EVERY: Duration = Duration::from_secs(5);
/// Zones on one page at the most.
const PAGE_LEN_MAX: usize = 1000;
const PAGE_LEN: usize = 100;

/// What requests work with.
#[derive(Clone, Debug)]
struct Desk {
    server: Arc<Server>,
    drains: Option<Arc<Drains>>,
    /// One list at a time: each goes through all zones.
    listing: Arc<Semaphore>,
}

type Shared = State<Desk>;

/// Serves the admin HTTP pages and the control socket, whose place in the file
/// system is returned.
pub async fn start(
    server: &Arc<Server>,
    drains: Option<Arc<Drains>>,
    listener: Option<std::net::TcpListener>,
    address: SocketAddr,
    hosts: Hosts,
    control: Option<socket::Bound>,
) -> Result<Option<socket::Place>, String> {
    let failed = |error| format!("the admin HTTP server cannot start: {error}");
    let listener = listener.map(TcpListener::from_std).transpose().map_err(failed)?;
    let listing = Arc::new(Semaphore::new(1));
    let desk = Desk { server: server.clone(), drains: drains.clone(), listing };
    let of_drains = |pages: fn(Arc<Drains>) -> Router| drains.clone().map_or(Router::new(), pages);
    let routes = reading().with_state(desk.clone()).merge(of_drains(api::reading));
    let routes = hosts.guard(with_bounded_pages(routes));
    tokio::spawn(async move {
        let listener = match listener {
            Some(listener) => listener,
            None => bind_later(address).await,
        };
        connections::serve(listener, routes, READING_TIME_MAX).await;
    });
    Ok(control.map(|(listener, place)| {
        let routes = reading()
            .route("/v1/reload", post(reload_zones))
            .route("/v1/fleet/switch", post(fleet::switch))
            .route("/v1/fleet/close", post(fleet::close))
            .route("/v1/cache/flush", post(cache::flush))
            .route("/v1/cache/drain", post(cache::drain))
            .with_state(desk)
            .merge(of_drains(api::reading))
            .merge(of_drains(api::writing))
            .layer(axum::middleware::from_fn(peer::require_account));
        tokio::spawn(connections::serve(listener, routes, CONTROL_TIME_MAX));
        place
    }))
}

/// Binds the admin address once it is free.
async fn bind_later(address: SocketAddr) -> TcpListener {
    loop {
        tokio::time::sleep(BIND_EVERY).await;
        match crate::tcp::bind(address).and_then(TcpListener::from_std) {
            Ok(listener) => {
                tracing::info!("admin HTTP answers on {address} now");
                return listener;
            }
            Err(error) => tracing::debug!("admin HTTP cannot have {address}: {error}"),
        }
    }
}

/// The same routes; of pages below /v1 only so many are made at once.
fn with_bounded_pages(routes: Router) -> Router {
    let turns = Arc::new(Semaphore::new(PAGES_MAX));
    routes.layer(middleware::from_fn(move |request: Request, next: Next| {
        let turns = turns.clone();
        async move {
            if !request.uri().path().starts_with("/v1/") {
                return next.run(request).await;
            }
            match turns.try_acquire() {
                Ok(_turn) => next.run(request).await,
                Err(_) => {
                    let text = format!("{PAGES_MAX} other pages are being made; try again");
                    error(StatusCode::SERVICE_UNAVAILABLE, text)
                }
            }
        }
    }))
}

fn reading() -> Router<Desk> {
    Router::new()
        .route("/healthz", get(health))
        .route("/metrics", get(metrics))
        .route("/v1/zones", get(list_zones))
        // Names of zones may have slashes (RFC 2317).
        .route("/v1/zones/{*zone}", get(show_zone))
        .route("/v1/problems", get(list_problems))
        .route("/v1/fleet", get(fleet::show))
        .route("/v1/fleet/shards", get(fleet::export))
        .merge(cache::reading())
        .fallback(async |State(desk): Shared, uri: Uri| {
            let of_drains = ["/v1/drains", "/v1/plans", "/v1/audit"];
            if desk.drains.is_none() && of_drains.iter().any(|own| uri.path().starts_with(own)) {
                let text = "this server drains nothing: its configuration has no [drain]; \
                            accepted: one that has, see docs/drain.md";
                return error(StatusCode::NOT_FOUND, text);
            }
            let text = "no such page; there are /healthz, /metrics, /v1/zones, /v1/zones/NAME, \
                        /v1/problems, /v1/fleet, /v1/fleet/shards, /v1/cache, \
                        /v1/cache/members, /v1/cache/owner/NAME and /v1/cache/dump; with [drain] \
                        also /v1/drains, /v1/drains/RUN, its /events, /report and /report.html, \
                        /v1/plans/DIRECTION/DATACENTER, /v1/audit and /v1/audit/verify";
            error(StatusCode::NOT_FOUND, text)
        })
        .method_not_allowed_fallback(not_that_way)
}

/// The answer to a method that a page is not for.
pub async fn not_that_way() -> Response {
    let text = "this page is not for that method; accepted: GET, and POST for /v1/reload, \
                /v1/fleet/switch, /v1/fleet/close, /v1/cache/flush, /v1/cache/drain, /v1/drains \
                and /v1/drains/RUN/say on the control socket";
    error(StatusCode::METHOD_NOT_ALLOWED, text)
}

/// An answer that says what is wrong.
pub fn error(status: StatusCode, message: impl Into<String>) -> Response {
    (status, Json(json!({ "error": message.into() }))).into_response()
}

async fn health(State(Desk { server, drains, .. }): Shared) -> Response {
    let totals = server.publisher.current().catalog.totals();
    let is_draining = server.node().is_some_and(|node| node.is_draining());
    // What is not on the disk is not done: a drain would stand still.
    let unwritable = drains.and_then(|drains| drains.unwritable());
    let is_ready = server.is_ready() && !is_draining && unwritable.is_none();
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = json!({
        "status": match (server.is_ready(), is_draining, &unwritable) {
            (true, false, None) => "ready",
            (true, false, Some(_)) => "store not writable",
            (_, true, _) => "draining",
            (false, false, _) => "loading",
        },
        "reason": unwritable,
        "zones": totals.zones,
        "records": totals.records,
        "broken_zones": totals.broken,
    });
    (status, Json(body)).into_response()
}

async fn metrics(State(Desk { server, drains, .. }): Shared) -> Response {
    let text = crate::metrics::render(&server, drains.as_deref()).await;
    ([("content-type", "text/plain; version=0.0.4")], text).into_response()
}

/// A zone as `/v1/zones` shows it.
#[derive(Debug, Serialize)]
struct ZoneView {
    name: String,
    status: &'static str,
    serial: u32,
    names: usize,
    records: usize,
    memory_bytes: usize,
    signed: bool,
    /// The number of its shard, if it lives on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    servers: Vec<fleet::ServerView>,
}

impl ZoneView {
    fn new(image: &Image, server: &Server) -> Self {
        let is_broken = image.is_broken();
        ZoneView {
            name: image.origin().to_string(),
            status: if is_broken { "broken" } else { "served" },
            serial: image.serial(),
            names: image.names(),
            records: image.records(),
            memory_bytes: image.memory_len(),
            signed: image.is_signed(),
            shard: server.fleet.as_ref().and_then(|f| f.assignments.index_of(image.origin())),
            servers: fleet::servers_of(server, image),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    limit: Option<usize>,
    after: Option<String>,
}

/// Zones in canonical order, a page at a time: `?limit=N&after=NAME`.
async fn list_zones(State(desk): Shared, page: Result<Query<Page>, QueryRejection>) -> Response {
    let (limit, after) = match page_of(page) {
        Ok(page) => page,
        Err(text) => return error(StatusCode::BAD_REQUEST, text),
    };
    let Ok(Ok(turn)) = timeout(REQUEST_TIME_MAX, desk.listing.acquire_owned()).await else {
        let text = "other lists are being made; try again";
        return error(StatusCode::SERVICE_UNAVAILABLE, text);
    };
    // A million names take a while to go through. The work keeps its turn even
    // if nobody waits for it any more.
    let work = move || {
        let body = list(&desk.server, limit, after.as_deref());
        drop(turn);
        body
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(body) => Json(body).into_response(),
        Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "the list could not be made"),
    }
}

/// How many zones are asked for, and behind which name.
fn page_of(page: Result<Query<Page>, QueryRejection>) -> Result<(usize, Option<Vec<u8>>), String> {
    let Query(page) = page.map_err(|rejection| {
        let what = rejection.body_text();
        format!("{what}; accepted: limit=N, 1 to {PAGE_LEN_MAX}, and after=NAME")
    })?;
    let limit = page.limit.unwrap_or(PAGE_LEN);
    if limit == 0 || limit > PAGE_LEN_MAX {
        return Err(format!("limit {limit} is out of range; accepted: 1 to {PAGE_LEN_MAX}"));
    }
    let after = page.after.as_deref().map(parse_name).transpose()?;
    Ok((limit, after))
}

/// A page of `limit` zones behind the name `after`.
fn list(server: &Server, limit: usize, after: Option<&[u8]>) -> Value {
    let snapshot = server.publisher.current();
    let is_behind = |image: &&Image| {
        after.is_none_or(|after| {
            image.origin().canonical_cmp(wire::Name::from_trusted(after)).is_gt()
        })
    };
    let mut rest: Vec<&Image> = snapshot.catalog.iter().filter(is_behind).collect();
    let is_last = rest.len() <= limit;
    let order = |a: &&Image, b: &&Image| a.origin().canonical_cmp(b.origin());
    if !is_last {
        rest.select_nth_unstable_by(limit - 1, order);
        rest.truncate(limit);
    }
    rest.sort_unstable_by(order);
    let next = rest.last().filter(|_| !is_last).map(|image| image.origin().to_string());
    let view = |image| ZoneView::new(image, server);
    let zones: Vec<ZoneView> = rest.into_iter().map(view).collect();
    json!({ "zones": zones, "total": snapshot.catalog.totals().zones, "next_after": next })
}

async fn show_zone(
    State(Desk { server, .. }): Shared,
    zone: Result<UrlPath<String>, PathRejection>,
) -> Response {
    let zone = zone.map(|UrlPath(zone)| zone).map_err(|rejection| rejection.body_text());
    let (zone, name) = match zone.and_then(|zone| Ok((parse_name(&zone)?, zone))) {
        Ok((name, zone)) => (zone, name),
        Err(text) => return error(StatusCode::BAD_REQUEST, text),
    };
    // Its shard may wait for somebody who waits for the disk.
    let work = move || {
        let hash = server.publisher.hasher().name(wire::Name::from_trusted(&name));
        let snapshot = server.publisher.current();
        snapshot.catalog.get(&name, hash).map(|image| ZoneView::new(image, &server))
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(Some(view)) => Json(view).into_response(),
        Ok(None) => error(StatusCode::NOT_FOUND, format!("no zone {zone} here")),
        Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "the zone could not be shown"),
    }
}

/// What was wrong in the last load.
async fn list_problems(State(Desk { server, .. }): Shared) -> Response {
    Json(json!({ "problems": server.loads().problems })).into_response()
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ReloadRequest {
    zones: Vec<String>,
}

async fn reload_zones(State(Desk { server, .. }): Shared, request: Request) -> Response {
    let wanted: Result<Json<ReloadRequest>, JsonRejection> = Json::from_request(request, &()).await;
    let zones = match wanted {
        Ok(Json(ReloadRequest { zones })) => zones,
        Err(rejection) => {
            let what = rejection.body_text();
            let text = format!("{what}; accepted: {{\"zones\": [NAME, …]}}, empty for all zones");
            return error(StatusCode::BAD_REQUEST, text);
        }
    };
    match reload(&server, zones).await {
        Ok(report) => Json(report).into_response(),
        Err(Failure::NotReloaded(text)) => error(StatusCode::CONFLICT, text),
        Err(Failure::Busy(text)) => error(StatusCode::SERVICE_UNAVAILABLE, text),
    }
}

/// A name in presentation form to lowered wire form.
fn parse_name(text: &str) -> Result<Vec<u8>, String> {
    wire::name::from_text(text)
        .map(|name| name.to_ascii_lowercase())
        .map_err(|error| format!("`{text}` is no domain name: {error}"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::config::{self, Flags};

    #[tokio::test(start_paused = true)]
    async fn lists_wait_for_each_other_but_not_forever() {
        let home = tempfile::tempdir().unwrap();
        let flags = Flags { zones: Some(home.path().into()), ..Flags::default() };
        let server = Server::new(&config::read(None, &flags).unwrap(), None).unwrap();
        let desk = Desk { server, drains: None, listing: Arc::new(Semaphore::new(1)) };
        let list = async || {
            let page = Page { limit: None, after: None };
            list_zones(State(desk.clone()), Ok(Query(page))).await.status()
        };
        let turn = desk.listing.clone().acquire_owned().await;
        assert_eq!(list().await, StatusCode::SERVICE_UNAVAILABLE);
        drop(turn);
        assert_eq!(list().await, StatusCode::OK);
    }

    #[tokio::test]
    async fn pages_that_hang_keep_nobody_from_health_and_metrics() {
        use tower::ServiceExt;

        let routes = Router::new()
            .route("/v1/plans", get(std::future::pending::<()>))
            .route("/healthz", get(async || "ready"));
        let routes = with_bounded_pages(routes);
        let ask = |path: &str| {
            let request = Request::get(path).body(axum::body::Body::empty()).unwrap();
            routes.clone().oneshot(request)
        };
        let hanging: Vec<_> = (0..PAGES_MAX).map(|_| tokio::spawn(ask("/v1/plans"))).collect();
        // Each has its turn before another is asked for.
        tokio::task::yield_now().await;
        let answer = timeout(Duration::from_secs(5), ask("/v1/plans")).await.unwrap();
        assert_eq!(answer.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(ask("/healthz").await.unwrap().status(), StatusCode::OK);
        hanging.iter().for_each(|own| own.abort());
    }

    /// A server with the zone `a.test` on a fleet.
    fn fleet_server(home: &Path) -> Arc<Server> {
        let file = home.join("pharos.toml");
        let text = format!(
            "[fleet]\npool = '127.53.0.0/28'\nservers = 16\nport = 5300\nstate = {:?}\n\
             domains = ['a.ns.test', 'b.ns.test', 'c.ns.test', 'd.ns.test']\n",
            home.join("state")
        );
        std::fs::write(&file, text).unwrap();
        std::fs::write(home.join("a.test.zone"), "@ 60 SOA ns h 1 2 3 4 5\n").unwrap();
        let flags = Flags { zones: Some(home.into()), ..Flags::default() };
        let server = Server::new(&config::read(Some(&file), &flags).unwrap(), None).unwrap();
        assert_eq!(server.load(&[]).unwrap().summary.bad, 0);
        server
    }

    /// DNS over TCP is answered by the threads that answer here.
    #[tokio::test]
    async fn pages_that_wait_for_shards_keep_no_thread_from_answering() {
        let home = tempfile::tempdir().unwrap();
        let server = fleet_server(home.path());
        let listing = Arc::new(Semaphore::new(1));
        let desk = Desk { server: server.clone(), drains: None, listing };
        let (held, is_held) = std::sync::mpsc::channel();
        let (release, is_released) = std::sync::mpsc::channel::<()>();
        // Whoever settles has the shards meanwhile.
        let holder = std::thread::spawn(move || {
            let wait = |_| {
                held.send(()).unwrap();
                let _ = is_released.recv_timeout(Duration::from_secs(20));
                true
            };
            server.fleet.as_ref().unwrap().assignments.settle(None, wait, 0)
        });
        is_held.recv().unwrap();
        let zone = || Ok(UrlPath("a.test".to_owned()));
        let mut pages = [
            tokio::spawn(fleet::show(State(desk.clone()))),
            tokio::spawn(show_zone(State(desk), zone())),
        ];
        for page in &mut pages {
            let early = timeout(Duration::from_millis(50), page).await;
            assert!(early.is_err() && !holder.is_finished(), "nothing waited");
        }
        drop(release);
        for page in pages {
            assert_eq!(page.await.unwrap().status(), StatusCode::OK);
        }
        holder.join().unwrap().unwrap();
    }
}
