//! Pages of a front: health, metrics and nodes for all; draining only through
//! the control socket.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::TcpListener;

use super::counters::percentile;
use super::node::Node;
use super::{Front, metrics};
use crate::admin::connections::{self, READING_TIME_MAX};
use crate::admin::host::Hosts;
use crate::admin::{body, error, socket};
use crate::coordination::Observer;

type Shared = State<Arc<Front>>;

/// Starts the admin HTTP server and the control socket, whose place in the
/// file system is returned.
pub async fn start(
    front: &Arc<Front>,
    listener: std::net::TcpListener,
    hosts: Hosts,
    control: Option<socket::Bound>,
) -> Result<Option<socket::Place>, String> {
    let failed = |error| format!("the admin HTTP server cannot start: {error}");
    let listener = TcpListener::from_std(listener).map_err(failed)?;
    let routes = hosts.guard(reading().with_state(front.clone()));
    tokio::spawn(connections::serve(listener, routes, READING_TIME_MAX));
    Ok(control.map(|(listener, place)| {
        let routes = reading().route("/v1/front/drain", post(drain)).with_state(front.clone());
        tokio::spawn(connections::serve(listener, routes, READING_TIME_MAX));
        place
    }))
}

fn reading() -> Router<Arc<Front>> {
    Router::new()
        .route("/healthz", get(health))
        .route("/metrics", get(show_metrics))
        .route("/v1/front", get(show))
        .fallback(async || {
            let text = "no such page; there are /healthz, /metrics and /v1/front";
            error(StatusCode::NOT_FOUND, text)
        })
        .method_not_allowed_fallback(async || {
            let text = "this page is not for that method; accepted: GET, and POST for \
                        /v1/front/drain on the control socket";
            error(StatusCode::METHOD_NOT_ALLOWED, text)
        })
}

async fn health(State(front): Shared) -> Response {
    let standings = front.board.table().standings();
    let is_ready = !standings.ready.is_empty();
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = json!({
        "status": if is_ready { "ready" } else { "no node is up" },
        "nodes": standings.all.len(),
        "ready": standings.ready.len(),
    });
    (status, Json(body)).into_response()
}

async fn show_metrics(State(front): Shared) -> Response {
    ([("content-type", "text/plain; version=0.0.4")], metrics::render(&front)).into_response()
}

/// A front as `/v1/front` shows it.
#[derive(Debug, Serialize)]
struct FrontView {
    nodes: Vec<NodeView>,
    /// Nodes of a shard, if clients have one.
    shard: Option<usize>,
    connections: usize,
    /// Whether whoever lists the nodes answers; none if the file lists them.
    coordination_reached: Option<bool>,
}

#[derive(Debug, Serialize)]
struct NodeView {
    name: String,
    address: String,
    health: Option<String>,
    standing: &'static str,
    draining: bool,
    outstanding: u64,
    connections: u64,
    questions: u64,
    answers: u64,
    retries: u64,
    probes_failed: u64,
    p50_us: Option<u64>,
    p99_us: Option<u64>,
}

impl NodeView {
    fn new(node: &Node) -> Self {
        let latencies = node.latencies();
        NodeView {
            name: node.spec.name.clone(),
            address: node.spec.address.to_string(),
            health: node.spec.health.as_ref().map(ToString::to_string),
            standing: node.standing().name(),
            draining: node.is_draining(),
            outstanding: node.sum(|counters| counters.outstanding.get()),
            connections: node.tcp.open.load(Relaxed),
            questions: node.sum(|counters| counters.questions.get()),
            answers: node.sum(|counters| counters.answers.get()),
            retries: node.sum(|counters| counters.retries.get()),
            probes_failed: node.probes_failed.load(Relaxed),
            p50_us: percentile(&latencies, 50),
            p99_us: percentile(&latencies, 99),
        }
    }
}

fn view(front: &Front) -> FrontView {
    let table = front.board.table();
    FrontView {
        nodes: table.nodes().map(|(_, node)| NodeView::new(node)).collect(),
        shard: front.board.sharding.map(|sharding| sharding.size),
        connections: front.streams.places.connections().0,
        coordination_reached: front.observer.as_ref().map(Observer::is_reached),
    }
}

async fn show(State(front): Shared) -> Response {
    Json(view(&front)).into_response()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Drain {
    node: String,
    draining: bool,
}

/// Lets no new questions go to a node, or lets them again.
async fn drain(State(front): Shared, request: Request) -> Response {
    let accepted = "{\"node\": NAME, \"draining\": true or false}";
    let Drain { node, draining } = match body(request, accepted).await {
        Ok(wanted) => wanted,
        Err(response) => return response,
    };
    match front.board.drain(&node, draining) {
        Ok(()) => Json(view(&front)).into_response(),
        Err(text) => error(StatusCode::CONFLICT, text),
    }
}
