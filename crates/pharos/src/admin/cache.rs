//! The pages of a cache node.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{FromRequest, Path as UrlPath, Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use bytes::Bytes;
use cache::{Bits, Question};
use cluster::Standing;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{Desk, Shared, error, parse_name};
use crate::node::{Command, Node};
use crate::peers::Flush;

/// Entries on one page of a dump at the most.
const DUMP_LEN_MAX: usize = 1000;

/// The pages that only read.
pub fn reading() -> Router<Desk> {
    Router::new()
        .route("/v1/cache", get(show))
        .route("/v1/cache/members", get(members))
        .route("/v1/cache/dump", get(dump))
        .route("/v1/cache/owner/{*name}", get(owner))
}

fn node(desk: &Desk) -> Result<Arc<Node>, Box<Response>> {
    let text = "this server is no cache; its configuration has no [cache]";
    desk.server.node().cloned().ok_or_else(|| Box::new(error(StatusCode::NOT_FOUND, text)))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StatusOf {
    node: Option<String>,
}

/// How this node is, or another: `?node=NAME`.
async fn show(State(desk): Shared, of: Result<Query<StatusOf>, QueryRejection>) -> Response {
    let (node, of) = match (node(&desk), of) {
        (Ok(node), Ok(Query(of))) => (node, of.node),
        (Err(response), _) => return *response,
        (_, Err(rejection)) => {
            let text = format!("{}; accepted: node=NAME", rejection.body_text());
            return error(StatusCode::BAD_REQUEST, text);
        }
    };
    match of.filter(|name| **name != *node.own.name) {
        None => Json(node.status().await).into_response(),
        Some(name) => status_of(&node, &name).await,
    }
}

async fn status_of(node: &Node, name: &str) -> Response {
    let Some(clients) = &node.clients else {
        return error(StatusCode::NOT_FOUND, "this node is alone");
    };
    let said = clients.status(name).await.map_err(|error| error.to_string());
    let parsed = said.and_then(|text| {
        serde_json::from_str::<Value>(&text).map_err(|_| format!("{name} did not say JSON"))
    });
    match parsed {
        Ok(status) => Json(status).into_response(),
        Err(problem) => error(StatusCode::BAD_GATEWAY, problem),
    }
}

async fn members(State(desk): Shared) -> Response {
    match node(&desk) {
        Ok(node) => Json(node.members().await).into_response(),
        Err(response) => *response,
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnerOf {
    #[serde(rename = "type")]
    qtype: Option<String>,
}

/// The number of a type that is given by its name or as a number.
fn parse_type(text: &str) -> Result<u16, String> {
    let known = crate::counters::QTYPES.iter().find(|(_, name)| name.eq_ignore_ascii_case(text));
    let number = known.map(|(number, _)| *number).or_else(|| text.parse().ok());
    number.ok_or_else(|| {
        let names: Vec<&str> = crate::counters::QTYPES.iter().map(|(_, name)| *name).collect();
        format!("no type `{text}`; accepted: a number, or one of {}", names.join(", "))
    })
}

/// Who answers for a name.
async fn owner(
    State(desk): Shared,
    UrlPath(name): UrlPath<String>,
    of: Result<Query<OwnerOf>, QueryRejection>,
) -> Response {
    let node = match node(&desk) {
        Ok(node) => node,
        Err(response) => return *response,
    };
    let qtype = of
        .map_err(|rejection| rejection.body_text())
        .and_then(|Query(of)| of.qtype.map_or(Ok(wire::rtype::A), |text| parse_type(&text)));
    let (wire, qtype) = match (parse_name(&name), qtype) {
        (Ok(wire), Ok(qtype)) => (wire, qtype),
        (Err(text), _) | (_, Err(text)) => return error(StatusCode::BAD_REQUEST, text),
    };
    let question = Question { name: &wire, qtype, qclass: wire::class::IN, bits: Bits::default() };
    let mut encoded = Vec::new();
    question.encode(&mut encoded);
    let routing = node.routing();
    let slot = routing.slot(&encoded);
    let members = routing.view().members();
    let owners = routing.owners(slot).iter().map(|&at| &members[at as usize]);
    let owners: Vec<Value> = owners
        .map(|member| {
            let cell = slot.number() % member.cells.max(1) as usize;
            json!({ "name": &*member.name, "peer": member.peer, "cell": cell })
        })
        .collect();
    let body = json!({
        "name": name,
        "type": qtype,
        "slot": slot.number(),
        "view": routing.view().number(),
        "owners": owners,
    });
    Json(body).into_response()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DumpPage {
    cell: Option<usize>,
    cursor: Option<usize>,
    limit: Option<usize>,
}

/// What this node's L2 holds, a page at a time.
async fn dump(State(desk): Shared, page: Result<Query<DumpPage>, QueryRejection>) -> Response {
    let node = match node(&desk) {
        Ok(node) => node,
        Err(response) => return *response,
    };
    let page = match page {
        Ok(Query(page)) => page,
        Err(rejection) => {
            let what = rejection.body_text();
            let text = format!("{what}; accepted: cell=N, cursor=N and limit=N");
            return error(StatusCode::BAD_REQUEST, text);
        }
    };
    let (number, cursor) = (page.cell.unwrap_or(0), page.cursor.unwrap_or(0));
    let count = page.limit.unwrap_or(DUMP_LEN_MAX).clamp(1, DUMP_LEN_MAX);
    let Some(cell) = node.cells.get(number) else {
        let last = node.cells.len() - 1;
        return error(StatusCode::BAD_REQUEST, format!("no cell {number}; accepted: 0 to {last}"));
    };
    let (done, answer) = oneshot::channel();
    let is_told = cell.tell(Command::Dump { cursor, count, done });
    let Some((entries, next)) = (if is_told { answer.await.ok() } else { None }) else {
        return error(StatusCode::SERVICE_UNAVAILABLE, "the cell has too much to do; try again");
    };
    // Behind the last place of a cell comes the next cell.
    let next = match next {
        Some(cursor) => Some((number, cursor)),
        None => (number + 1 < node.cells.len()).then_some((number + 1, 0)),
    };
    let next = next.map(|(cell, cursor)| json!({ "cell": cell, "cursor": cursor }));
    Json(json!({ "entries": entries, "next": next })).into_response()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlushRequest {
    name: String,
    #[serde(default)]
    subtree: bool,
}

/// Flushes a name on every node; says for each what became of it.
pub async fn flush(State(desk): Shared, request: Request) -> Response {
    let node = match node(&desk) {
        Ok(node) => node,
        Err(response) => return *response,
    };
    let wanted: FlushRequest = match read(request, "{\"name\": NAME, \"subtree\": BOOL}").await {
        Ok(wanted) => wanted,
        Err(response) => return *response,
    };
    let name = match parse_name(&wanted.name) {
        Ok(name) => name,
        Err(text) => return error(StatusCode::BAD_REQUEST, text),
    };
    let mut nodes = BTreeMap::new();
    let mut calls = Vec::new();
    let routing = node.routing();
    for member in routing.view().members() {
        let (node, name) = (node.clone(), name.clone());
        let member = member.name.to_string();
        let subtree = wanted.subtree;
        calls.push(tokio::spawn(async move {
            let result = match &node.clients {
                _ if member == *node.own.name => node.flush(&name, subtree).await,
                Some(clients) => {
                    let flush = Flush { name: Bytes::from(name), subtree };
                    clients.flush(&member, flush).await.map_err(|error| error.to_string())
                }
                None => Err("there is no way to it".to_owned()),
            };
            (member, result)
        }));
    }
    for call in calls {
        if let Ok((member, result)) = call.await {
            let told = match result {
                Ok(removed) => json!({ "removed": removed }),
                Err(problem) => json!({ "error": problem }),
            };
            nodes.insert(member, told);
        }
    }
    let is_done = nodes.values().all(|told| told.get("error").is_none());
    let body =
        json!({ "name": wanted.name, "subtree": wanted.subtree, "nodes": nodes, "done": is_done });
    Json(body).into_response()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DrainRequest {
    node: String,
    #[serde(default)]
    undo: bool,
}

/// Takes a node's slots away, and it hands over what it has; or gives it its
/// share back.
pub async fn drain(State(desk): Shared, request: Request) -> Response {
    let node = match node(&desk) {
        Ok(node) => node,
        Err(response) => return *response,
    };
    let wanted: DrainRequest =
        match read(request, "{\"node\": NAME, \"undo\": true or false}").await {
            Ok(wanted) => wanted,
            Err(response) => return *response,
        };
    let routing = node.routing();
    let members = routing.view().members();
    if routing.index_of(&wanted.node).is_none() {
        let names: Vec<&str> = members.iter().map(|member| &*member.name).collect();
        let text = format!("no member `{}`; accepted: {}", wanted.node, names.join(", "));
        return error(StatusCode::BAD_REQUEST, text);
    }
    let is_last = |member: &cluster::Member| {
        *member.name == *wanted.node || member.standing == Standing::Draining
    };
    if !wanted.undo && members.iter().all(is_last) {
        let text = format!("{} is the last node that serves; nobody could take over", wanted.node);
        return error(StatusCode::CONFLICT, text);
    }
    let entries = match &node.clients {
        _ if *wanted.node == *node.own.name => Ok(node.drain(wanted.undo).await),
        Some(clients) => {
            let told = clients.drain(&wanted.node, wanted.undo).await;
            told.map_err(|error| error.to_string())
        }
        None => Err("there is no way to it".to_owned()),
    };
    match entries {
        Ok(entries) => {
            let body = json!({ "node": wanted.node, "entries": entries, "undo": wanted.undo });
            Json(body).into_response()
        }
        Err(problem) => error(StatusCode::BAD_GATEWAY, problem),
    }
}

/// Reads the body of a request.
async fn read<T: serde::de::DeserializeOwned>(
    request: Request,
    accepted: &str,
) -> Result<T, Box<Response>> {
    let body: Result<Json<T>, JsonRejection> = Json::from_request(request, &()).await;
    body.map(|Json(body)| body).map_err(|rejection| {
        let text = format!("{}; accepted: {accepted}", rejection.body_text());
        Box::new(error(StatusCode::BAD_REQUEST, text))
    })
}
