//! The admin HTTP server: reading over loopback TCP, writing only through a
//! socket in the file system that only the server's own user can open.

use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use authority::Image;
use axum::extract::{Path as UrlPath, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::{TcpListener, UnixListener};

use crate::serve::{Server, reload};

/// Zones on one page at the most.
const PAGE_LEN_MAX: usize = 1000;
const PAGE_LEN: usize = 100;

type Shared = State<Arc<Server>>;

fn reading() -> Router<Arc<Server>> {
    Router::new()
        .route("/healthz", get(health))
        .route("/metrics", get(metrics))
        .route("/v1/zones", get(list_zones))
        .route("/v1/zones/{zone}", get(show_zone))
        .route("/v1/problems", get(list_problems))
        .fallback(async || {
            let text = "no such page; there are /healthz, /metrics, /v1/zones, /v1/zones/NAME and \
                        /v1/problems";
            error(StatusCode::NOT_FOUND, text)
        })
}

/// Serves everything that reads.
pub async fn serve_http(server: Arc<Server>, listener: std::net::TcpListener) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the admin HTTP server did not start"),
    };
    if let Err(error) = axum::serve(listener, reading().with_state(server)).await {
        tracing::error!(%error, "the admin HTTP server ended");
    }
}

/// Serves reading and writing on the control socket.
pub async fn serve_control(server: Arc<Server>, listener: UnixListener) {
    let routes = reading().route("/v1/reload", post(reload_zones)).with_state(server);
    if let Err(error) = axum::serve(listener, routes).await {
        tracing::error!(%error, "the control socket ended");
    }
}

/// Opens the control socket. A server without one works; it says so.
pub fn open_control(path: &Path) -> Option<UnixListener> {
    match bind_control(path) {
        Ok(listener) => Some(listener),
        Err(error) => {
            tracing::warn!(
                "no control socket at {}: {error}; reload with SIGHUP, or pass --control PATH",
                path.display()
            );
            None
        }
    }
}

fn bind_control(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent()
        && !directory.as_os_str().is_empty()
        && !directory.exists()
    {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    if path.exists() {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::other("another server uses it"));
        }
        // Left over from a server that was killed.
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn error(status: StatusCode, message: impl Into<String>) -> Response {
    (status, Json(json!({ "error": message.into() }))).into_response()
}

async fn health(State(server): Shared) -> Response {
    let totals = server.publisher.current().catalog.totals();
    let is_ready = server.is_ready();
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = json!({
        "status": if is_ready { "ready" } else { "loading" },
        "zones": totals.zones,
        "records": totals.records,
        "broken_zones": totals.broken,
    });
    (status, Json(body)).into_response()
}

async fn metrics(State(server): Shared) -> Response {
    let text = crate::metrics::render(&server);
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
}

impl ZoneView {
    fn new(image: &Image) -> Self {
        let is_broken = image.is_broken();
        ZoneView {
            name: image.origin().to_string(),
            status: if is_broken { "broken" } else { "served" },
            serial: image.serial(),
            names: image.names(),
            records: image.records(),
            memory_bytes: image.memory_len(),
            signed: image.is_signed(),
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
async fn list_zones(State(server): Shared, page: Query<Page>) -> Response {
    let limit = page.limit.unwrap_or(PAGE_LEN);
    if limit == 0 || limit > PAGE_LEN_MAX {
        let text = format!("limit {limit} is out of range; accepted: 1 to {PAGE_LEN_MAX}");
        return error(StatusCode::BAD_REQUEST, text);
    }
    let after = match page.after.as_deref().map(parse_name).transpose() {
        Ok(after) => after,
        Err(text) => return error(StatusCode::BAD_REQUEST, text),
    };
    let work = move || {
        let snapshot = server.publisher.current();
        let mut rest: Vec<&Image> = snapshot
            .catalog
            .iter()
            .filter(|image| {
                after.as_deref().is_none_or(|after| {
                    image.origin().canonical_cmp(wire::Name::from_trusted(after)).is_gt()
                })
            })
            .collect();
        let is_last = rest.len() <= limit;
        let order = |a: &&Image, b: &&Image| a.origin().canonical_cmp(b.origin());
        if !is_last {
            rest.select_nth_unstable_by(limit - 1, order);
            rest.truncate(limit);
        }
        rest.sort_unstable_by(order);
        let next = rest.last().filter(|_| !is_last).map(|image| image.origin().to_string());
        let zones: Vec<ZoneView> = rest.into_iter().map(ZoneView::new).collect();
        json!({ "zones": zones, "total": snapshot.catalog.totals().zones, "next_after": next })
    };
    // A million names take a while to go through.
    match tokio::task::spawn_blocking(work).await {
        Ok(body) => Json(body).into_response(),
        Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "the list could not be made"),
    }
}

async fn show_zone(State(server): Shared, UrlPath(zone): UrlPath<String>) -> Response {
    let name = match parse_name(&zone) {
        Ok(name) => name,
        Err(text) => return error(StatusCode::BAD_REQUEST, text),
    };
    let hash = server.publisher.hasher().name(wire::Name::from_trusted(&name));
    match server.publisher.current().catalog.get(&name, hash) {
        Some(image) => Json(ZoneView::new(image)).into_response(),
        None => error(StatusCode::NOT_FOUND, format!("no zone {zone} here")),
    }
}

/// What was wrong in the last load.
async fn list_problems(State(server): Shared) -> Response {
    Json(json!({ "problems": server.loads().problems })).into_response()
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ReloadRequest {
    zones: Vec<String>,
}

async fn reload_zones(State(server): Shared, Json(request): Json<ReloadRequest>) -> Response {
    let work = move || reload(&server, &request.zones);
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(report)) => Json(report).into_response(),
        Ok(Err(text)) => error(StatusCode::CONFLICT, text),
        Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "the reload did not finish"),
    }
}

/// A name in presentation form to lowered wire form.
fn parse_name(text: &str) -> Result<Vec<u8>, String> {
    wire::name::from_text(text)
        .map(|name| name.to_ascii_lowercase())
        .map_err(|error| format!("`{text}` is no domain name: {error}"))
}
