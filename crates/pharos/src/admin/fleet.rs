//! Pages about virtual name servers.

use std::fmt::Write;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use authority::Image;
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use wire::Name;

use super::connections::REQUEST_TIME_MAX;
use super::{Desk, Shared, error};
use crate::fleet::{FleetState, OFF_SECS_MAX};
use crate::serve::Server;

/// A name server of a zone.
#[derive(Debug, Serialize)]
pub struct ServerView {
    number: u16,
    name: String,
    addresses: Vec<IpAddr>,
}

/// The name servers that a zone lives on; none if it is answered everywhere.
pub fn servers_of(server: &Server, image: &Image) -> Vec<ServerView> {
    let Some(fleet) = &server.fleet else { return Vec::new() };
    let view = |number| ServerView {
        number,
        name: fleet.assignments.names().text(number),
        addresses: fleet.fleet.pool.addresses_of(number).collect(),
    };
    image.servers().map(view).collect()
}

pub async fn show(State(Desk { server, .. }): Shared) -> Response {
    let Some(fleet) = server.fleet.clone() else { return no_fleet() };
    // It may wait for somebody who waits for the disk.
    match tokio::task::spawn_blocking(move || fleet.status()).await {
        Ok(status) => Json(status).into_response(),
        Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "the fleet could not be shown"),
    }
}

fn no_fleet() -> Response {
    let text = "this server has no fleet: every zone is answered on every address; [fleet] in the \
                configuration makes one";
    error(StatusCode::NOT_FOUND, text)
}

/// All zones and their servers, as CSV.
pub async fn export(State(desk): Shared) -> Response {
    let Some(fleet) = desk.server.fleet.clone() else { return no_fleet() };
    let Ok(Ok(turn)) = timeout(REQUEST_TIME_MAX, desk.listing.acquire_owned()).await else {
        return error(StatusCode::SERVICE_UNAVAILABLE, "other lists are being made; try again");
    };
    // The work keeps its turn even if nobody waits for it any more.
    let work = move || {
        let text = shards_as_csv(&fleet);
        drop(turn);
        text
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(text)) => ([("content-type", "text/csv")], text).into_response(),
        Ok(Err(text)) => error(StatusCode::INTERNAL_SERVER_ERROR, text),
        Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "the list could not be made"),
    }
}

fn shards_as_csv(fleet: &FleetState) -> Result<String, String> {
    let mut text = String::new();
    fleet.assignments.each_zone(|zone, (number, gone_secs)| {
        if gone_secs != 0 {
            return;
        }
        // A comma in a name is written with a backslash and would still be one.
        let name = Name::from_trusted(zone).to_string().replace('"', "\"\"");
        match name.contains([',', '"']) {
            true => drop(write!(text, "\"{name}\"")),
            false => text.push_str(&name),
        }
        for server in fleet.assignments.servers_of(number) {
            let _ = write!(text, ",{server}");
        }
        text.push('\n');
    })?;
    Ok(text)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Switch {
    off: Vec<u16>,
    on: Vec<u16>,
    /// How long those stay off; without it until they are switched on.
    secs: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Close {
    close: Vec<u16>,
    open: Vec<u16>,
}

/// Switches servers off and on; all on if none is named.
pub async fn switch(State(Desk { server, .. }): Shared, request: Request) -> Response {
    let Some(fleet) = server.fleet.clone() else { return no_fleet() };
    let accepted = format!(
        "{{\"off\": [NUMBER, …], \"on\": [NUMBER, …], \"secs\": N}}, where secs is 1 to \
         {OFF_SECS_MAX}, or left out to keep them off until they are switched on"
    );
    let Switch { off, on, secs } = match body(request, &accepted).await {
        Ok(wanted) => wanted,
        Err(response) => return response,
    };
    let until = match end_of(secs, &off, Instant::now()) {
        Ok(until) => until,
        Err(text) => {
            return error(StatusCode::BAD_REQUEST, format!("{text}; accepted: {accepted}"));
        }
    };
    // As above.
    let work = move || {
        fleet.switch(&off, &on, until)?;
        tracing::warn!(?off, ?on, ?secs, "virtual name servers were switched");
        server.publish_served(&fleet);
        Ok::<_, String>(fleet.status())
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(status)) => Json(status).into_response(),
        Ok(Err(text)) => error(StatusCode::BAD_REQUEST, text),
        Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "the servers could not be switched"),
    }
}

/// When the servers `off` are to come back; an error says what is wrong.
fn end_of(secs: Option<u64>, off: &[u16], now: Instant) -> Result<Option<Instant>, String> {
    match secs {
        None => Ok(None),
        // With nothing to switch off, all would be switched on.
        Some(secs) if off.is_empty() => Err(format!("{secs} secs for no server")),
        Some(secs @ 1..=OFF_SECS_MAX) => Ok(Some(now + Duration::from_secs(secs))),
        Some(secs) => Err(format!("secs {secs} is out of range")),
    }
}

/// Closes servers to new zones, and opens them again.
pub async fn close(State(Desk { server, .. }): Shared, request: Request) -> Response {
    let Some(fleet) = server.fleet.clone() else { return no_fleet() };
    let accepted = "{\"close\": [NUMBER, …], \"open\": [NUMBER, …]}";
    let Close { close, open } = match body(request, accepted).await {
        Ok(wanted) => wanted,
        Err(response) => return response,
    };
    // It waits for the disk.
    let work = move || fleet.close(&close, &open).map(|()| fleet.status());
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(status)) => Json(status).into_response(),
        Ok(Err(text)) => error(StatusCode::CONFLICT, text),
        Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "the servers could not be closed"),
    }
}

/// What a request asks for; `accepted` is told to whoever asks otherwise.
pub async fn body<T: DeserializeOwned>(request: Request, accepted: &str) -> Result<T, Response> {
    let wanted: Result<Json<T>, JsonRejection> = Json::from_request(request, &()).await;
    wanted.map(|Json(wanted)| wanted).map_err(|rejection| {
        let text = format!("{}; accepted: {accepted}", rejection.body_text());
        error(StatusCode::BAD_REQUEST, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_off_are_bounded() {
        let now = Instant::now();
        let end = |secs| end_of(secs, &[3], now);
        assert_eq!(end(None), Ok(None));
        for secs in [1, 3600] {
            assert_eq!(end(Some(secs)), Ok(Some(now + Duration::from_secs(secs))));
        }
        for secs in [0, 3601, u64::MAX] {
            assert_eq!(end(Some(secs)), Err(format!("secs {secs} is out of range")));
        }
        assert_eq!(end_of(Some(30), &[], now), Err("30 secs for no server".into()));
        assert_eq!(end_of(None, &[], now), Ok(None));
    }
}
