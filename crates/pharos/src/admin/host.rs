//! Which `Host` a request to the admin address may name.
//!
//! A web page that an operator looks at can make a browser send requests here:
//! its name is made to point to this address (DNS rebinding), and the browser
//! lets the page read the responses. Such a request has the page's name as its
//! `Host`, which no client of a server uses that is meant to be asked.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::header::{HOST, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};

use super::error;

/// What a `Host` may be, without its port.
#[derive(Clone, Debug)]
pub struct Hosts {
    listen: IpAddr,
    /// Names and addresses of `admin.hosts`, in small letters.
    known: Vec<String>,
}

impl Hosts {
    pub fn new(listen: SocketAddr, configured: &[String]) -> Hosts {
        let known = configured.iter().map(|name| name.to_ascii_lowercase()).collect();
        Hosts { listen: listen.ip().to_canonical(), known }
    }

    /// Routes that other hosts' names do not reach, and whose responses no
    /// browser takes for something else.
    pub fn guard(self, routes: Router) -> Router {
        let hosts = Arc::new(self);
        routes.layer(middleware::from_fn(move |request: Request, next: Next| {
            let hosts = hosts.clone();
            async move {
                let mut response = match hosts.check(request.uri(), request.headers()) {
                    Ok(()) => next.run(request).await,
                    Err(refused) => refused.into_response(),
                };
                let headers = response.headers_mut();
                headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
                response
            }
        }))
    }

    fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Misdirected> {
        let named = headers.get_all(HOST).iter().map(HeaderValue::as_bytes);
        // Every browser names a host; health checks of HTTP/1.0 need not.
        let named = named.chain(uri.authority().map(|own| own.as_str().as_bytes()));
        for host in named {
            if !self.accepts(host) {
                return Err(Misdirected(base::text::excerpt(&String::from_utf8_lossy(host), 100)));
            }
        }
        Ok(())
    }

    fn accepts(&self, host: &[u8]) -> bool {
        let Ok(authority) = Authority::try_from(host) else { return false };
        let name = authority.host().to_ascii_lowercase();
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let is_known = |own: &String| *own == name || own == bare;
        match bare.parse::<IpAddr>().map(|own| own.to_canonical()) {
            // Who listens on all addresses has to take each of them: a page that is
            // loaded from an address cannot make it point elsewhere.
            Ok(address) => {
                address.is_loopback()
                    || address == self.listen
                    || self.listen.is_unspecified()
                    || self.known.iter().any(is_known)
            }
            Err(_) => name == "localhost" || self.known.iter().any(is_known),
        }
    }
}

/// A request for another host.
#[derive(Debug)]
struct Misdirected(String);

impl IntoResponse for Misdirected {
    fn into_response(self) -> Response {
        let text = format!(
            "this server is not `{}`; accepted as Host: its address, localhost, and the names in \
             admin.hosts",
            self.0
        );
        error(StatusCode::MISDIRECTED_REQUEST, text)
    }
}

/// What `admin.hosts` can hold: a name or an address, without a port.
pub fn is_host(text: &str) -> bool {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let is_name = !text.is_empty()
        && text.len() <= 253
        && text.bytes().all(|own| own.is_ascii_alphanumeric() || b".-_".contains(&own));
    is_name || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;

    async fn status(hosts: &Hosts, host: Option<&str>) -> StatusCode {
        let routes = Router::new().route("/v1/drains", get(async || "secrets"));
        let mut request = Request::get("/v1/drains");
        if let Some(host) = host {
            request = request.header(HOST, host);
        }
        let request = request.body(Body::empty()).unwrap();
        let response = hosts.clone().guard(routes).oneshot(request).await.unwrap();
        assert_eq!(response.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
        response.status()
    }

    #[track_caller]
    fn hosts(listen: &str, configured: &[&str]) -> Hosts {
        let configured: Vec<String> = configured.iter().map(|&own| own.to_owned()).collect();
        Hosts::new(listen.parse().unwrap(), &configured)
    }

    #[tokio::test]
    async fn a_page_whose_name_points_here_reads_nothing() {
        let loopback = hosts("127.0.0.1:8053", &[]);
        for host in ["127.0.0.1:8053", "localhost", "LOCALHOST:1", "[::1]:8053", "127.0.0.1"] {
            assert_eq!(status(&loopback, Some(host)).await, StatusCode::OK, "{host}");
        }
        assert_eq!(status(&loopback, None).await, StatusCode::OK);
        let refused = StatusCode::MISDIRECTED_REQUEST;
        for host in [
            "evil.example",
            "evil.example:8053",
            "localhost.evil.example",
            "10.0.0.1:8053",
            "",
            "a@localhost@evil",
            "127.0.0.1.evil.example",
        ] {
            assert_eq!(status(&loopback, Some(host)).await, refused, "{host}");
        }
        let outside = hosts("10.0.0.1:8053", &["Pharos.example", "10.0.0.9"]);
        for host in ["10.0.0.1:8053", "pharos.EXAMPLE:80", "10.0.0.9", "localhost"] {
            assert_eq!(status(&outside, Some(host)).await, StatusCode::OK, "{host}");
        }
        assert_eq!(status(&outside, Some("10.0.0.2:8053")).await, refused);
        let everywhere = hosts("[::]:8053", &[]);
        assert_eq!(status(&everywhere, Some("192.0.2.7:8053")).await, StatusCode::OK);
        assert_eq!(status(&everywhere, Some("evil.example:8053")).await, refused);
    }

    #[test]
    fn hosts_are_names_or_addresses_without_ports() {
        for good in ["pharos.example", "10.0.0.1", "2001:db8::1", "[::1]", "a_b"] {
            assert!(is_host(good), "{good}");
        }
        for bad in ["", "pharos.example:8053", "http://x", "a b", "*", "x/y"] {
            assert!(!is_host(bad), "{bad}");
        }
    }
}
