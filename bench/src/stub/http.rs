//! The counts over HTTP, one request at a time.
//!
//! `GET /counts` tells all, `GET /counts/NAME/TYPE` how often one question came, `POST /reset`
//! starts from zero.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::json;

use super::Shared;
use super::counts::{Counts, parse_type};

const REQUEST_BYTES_MAX: usize = 4096;
const TIMEOUT: Duration = Duration::from_secs(2);

/// Answers until the process ends. A client that is slow or talks nonsense is left.
pub fn serve(listener: &TcpListener, shared: &Shared) {
    for stream in listener.incoming().flatten() {
        let _ = handle(stream, shared);
    }
}

fn handle(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let request = read_head(&mut stream)?;
    let (status, body) = respond(&request, shared);
    write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Up to the empty line, or as much as may be.
fn read_head(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    let mut part = [0; 512];
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") && bytes.len() < REQUEST_BYTES_MAX {
        match stream.read(&mut part)? {
            0 => break,
            len => bytes.extend_from_slice(&part[..len]),
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn respond(request: &str, shared: &Shared) -> (&'static str, String) {
    let mut words = request.split_ascii_whitespace();
    let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let body = match (method, &parts[..]) {
        ("GET", ["counts"]) => json!(shared.counts().summary()),
        ("GET", ["counts", name, rtype]) => match parse_type(rtype) {
            Some(number) => {
                json!({ "name": name, "type": number, "count": shared.counts().of(name, number) })
            }
            None => return ("400 Bad Request", json!({ "error": "no such type" }).to_string()),
        },
        ("POST", ["reset"]) => {
            *shared.counts() = Counts::default();
            json!({})
        }
        _ => {
            let error = "GET /counts, GET /counts/NAME/TYPE and POST /reset are there";
            return ("404 Not Found", json!({ "error": error }).to_string());
        }
    };
    ("200 OK", body.to_string() + "\n")
}
