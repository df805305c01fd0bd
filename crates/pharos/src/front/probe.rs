//! Asks each node, again and again, whether it is well: a DNS question, and a
//! page if the node has one.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{sleep, timeout};

use super::board::Board;
use super::message;
use super::node::{Health, HealthUrl, Node, NodeSpec, Standing};
use crate::random;

/// How long a node may take to answer a probe, if probes are not more frequent.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);
/// The same for one that is suspected: it should know soon.
const SUSPECT_TIME_MAX: Duration = Duration::from_millis(200);
/// Octets of a page that are read: its status stands at the start.
const PAGE_LEN_MAX: u64 = 1024;
/// Octets of the longest answer to a probe.
const ANSWER_LEN_MAX: usize = 4096;
/// Replies to other questions that are passed over.
const STRANGERS_MAX: usize = 16;
const SERVFAIL: u8 = 2;

/// How nodes are probed.
#[derive(Clone, Debug)]
pub struct Probing {
    pub interval: Duration,
    pub question: ProbeQuestion,
}

/// A question in wire form, whose id is set each time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeQuestion(Vec<u8>);

impl ProbeQuestion {
    /// Reads `NAME CLASS TYPE`, as in `id.server CH TXT`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let failed = |what: &str| {
            format!(
                "`{text}`: {what}; accepted: NAME CLASS TYPE, where the class is IN or CH and the \
                 type A, AAAA, NS, SOA or TXT, as in `id.server CH TXT` or `. IN NS`"
            )
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let [name, class, kind] = words[..] else { return Err(failed("three words are needed")) };
        let name =
            wire::name::from_text(name).map_err(|error| failed(&format!("{name}: {error}")))?;
        let class: u16 = match class.to_ascii_uppercase().as_str() {
            "IN" => wire::class::IN,
            "CH" => wire::class::CH,
            _ => return Err(failed("no such class")),
        };
        let kind = match kind.to_ascii_uppercase().as_str() {
            "A" => wire::rtype::A,
            "AAAA" => wire::rtype::AAAA,
            "NS" => wire::rtype::NS,
            "SOA" => wire::rtype::SOA,
            "TXT" => wire::rtype::TXT,
            _ => return Err(failed("no such type")),
        };
        // One question, recursion wanted: a node that cannot recurse is not well.
        let header = [0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        Ok(ProbeQuestion([&header[..], &name, &kind.to_be_bytes(), &class.to_be_bytes()].concat()))
    }
}

/// Probes a node until it is gone.
pub async fn watch(board: Arc<Board>, node: Weak<Node>, probing: Probing) {
    let mut health = Health::new();
    loop {
        let Some(own) = node.upgrade() else { return };
        let standing = own.standing();
        let time_max = match standing {
            Standing::Suspect => SUSPECT_TIME_MAX,
            _ => ANSWER_TIME_MAX.min(probing.interval),
        };
        let found = probe(&own.spec, &probing.question, time_max).await;
        if let Err(problem) = &found {
            own.probes_failed.fetch_add(1, Relaxed);
            tracing::debug!(node = own.spec.name, problem, "a probe failed");
        }
        // It may have come under suspicion meanwhile.
        let standing = own.standing();
        let after = health.after(standing, found.is_ok());
        board.turn(&own, standing, after);
        if after == Standing::Suspect {
            continue;
        }
        tokio::select! {
            () = own.wake.notified() => {}
            () = sleep(probing.interval) => {}
        }
    }
}

/// Says whether a node is well, or what is wrong with it.
async fn probe(
    node: &NodeSpec,
    question: &ProbeQuestion,
    time_max: Duration,
) -> Result<(), String> {
    let dns = timeout(time_max, ask(node.address, question));
    let page = async {
        match &node.health {
            Some(url) => timeout(time_max, get(url)).await.map_err(|_| ()),
            None => Ok(Ok(())),
        }
    };
    let (dns, page) = tokio::join!(dns, page);
    dns.map_err(|_| "no answer to a DNS question in time".to_owned())??;
    page.map_err(|()| "no page in time".to_owned())?
}

/// Asks the question over UDP.
async fn ask(node: SocketAddr, ProbeQuestion(question): &ProbeQuestion) -> Result<(), String> {
    let failed = |error: io::Error| format!("a DNS question: {error}");
    let any: SocketAddr = match node {
        SocketAddr::V4(_) => ([0; 4], 0).into(),
        SocketAddr::V6(_) => ([0u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any).await.map_err(failed)?;
    socket.connect(node).await.map_err(failed)?;
    let mut question = question.clone();
    message::set_id(&mut question, u16::from_le_bytes(random::octets()));
    socket.send(&question).await.map_err(failed)?;
    let mut reply = vec![0; ANSWER_LEN_MAX];
    for _ in 0..STRANGERS_MAX {
        let len = socket.recv(&mut reply).await.map_err(failed)?;
        let reply = &reply[..len];
        if message::id(reply) != message::id(&question)
            || message::check_reply(reply, &question).is_err()
        {
            continue;
        }
        // REFUSED and the like come from a node that works.
        return match message::flags(reply).map(message::rcode) {
            Some(SERVFAIL) => Err("a DNS question: SERVFAIL".to_owned()),
            _ => Ok(()),
        };
    }
    Err("a DNS question: answers to other questions".to_owned())
}

/// Gets the page; a status of 2xx is good.
async fn get(url: &HealthUrl) -> Result<(), String> {
    let failed = |error: io::Error| format!("{url}: {error}");
    let mut stream = TcpStream::connect(url.address).await.map_err(failed)?;
    let request = format!(
        "GET {} HTTP/1.1\r\nhost: {}\r\nuser-agent: pharos-front\r\nconnection: close\r\n\r\n",
        url.path, url.address
    );
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut page = Vec::new();
    stream.take(PAGE_LEN_MAX).read_to_end(&mut page).await.map_err(failed)?;
    match status_of(&page) {
        Some(200..=299) => Ok(()),
        Some(status) => Err(format!("{url}: status {status}")),
        None => Err(format!("{url}: no HTTP")),
    }
}

/// The status of an HTTP/1 answer.
fn status_of(page: &[u8]) -> Option<u16> {
    let line = page.split(|octet| *octet == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_read() {
        let question = ProbeQuestion::parse("id.server ch txt").unwrap();
        assert_eq!(question.0[12..], *b"\x02id\x06server\0\0\x10\0\x03");
        assert_eq!(ProbeQuestion::parse(". IN NS").unwrap().0[12..], *b"\0\0\x02\0\x01");
        for (text, part) in [
            ("id.server", "three words are needed"),
            ("a..b IN A", "a..b"),
            ("a HS A", "no such class"),
            ("a IN MX", "no such type"),
        ] {
            let problem = ProbeQuestion::parse(text).unwrap_err();
            assert!(problem.contains(part) && problem.contains("accepted: NAME CLASS TYPE"));
        }
    }

    #[test]
    fn a_page_is_judged_by_its_status() {
        assert_eq!(status_of(b"HTTP/1.1 200 OK\r\nx: y\r\n\r\nbody"), Some(200));
        assert_eq!(status_of(b"HTTP/1.0 503 Busy\r\n"), Some(503));
        for nonsense in [&b""[..], b"SSH-2.0-x\r\n", b"HTTP/1.1", b"HTTP/1.1 abc\r\n", b"\xff\r\n"]
        {
            assert_eq!(status_of(nonsense), None, "{nonsense:?}");
        }
    }

    /// A node that answers each probe with a code; none is silence.
    async fn node(codes: &'static [u8], page: Option<&'static str>) -> NodeSpec {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut message = [0; 512];
            for code in codes {
                let (len, from) = socket.recv_from(&mut message).await.unwrap();
                (message[2], message[3]) = (message[2] | 0x80, *code);
                socket.send_to(&message[..len], from).await.unwrap();
            }
        });
        let mut health = None;
        if let Some(page) = page {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            health = Some(HealthUrl { address: listener.local_addr().unwrap(), path: "/".into() });
            tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 512];
                let _ = stream.read(&mut request).await;
                stream.write_all(page.as_bytes()).await.unwrap();
            });
        }
        NodeSpec { name: "a".into(), address, health }
    }

    #[tokio::test]
    async fn a_node_must_answer_and_its_page_must_be_good() {
        let question = ProbeQuestion::parse("id.server CH TXT").unwrap();
        let long = Duration::from_secs(20);
        let check = async |codes, page, expected: Result<(), &str>| {
            let found = probe(&node(codes, page).await, &question, long).await;
            match (found, expected) {
                (Ok(()), Ok(())) => {}
                (Err(text), Err(part)) => assert!(text.contains(part), "{text}"),
                (found, _) => panic!("{found:?}"),
            }
        };
        check(&[0], None, Ok(())).await;
        check(&[5], None, Ok(())).await;
        check(&[2], None, Err("SERVFAIL")).await;
        check(&[0], Some("HTTP/1.1 200 OK\r\n\r\n"), Ok(())).await;
        check(&[0], Some("HTTP/1.1 503 Draining\r\n\r\n"), Err("status 503")).await;
        check(&[0], Some("hello"), Err("no HTTP")).await;
        let silent = probe(&node(&[], None).await, &question, Duration::ZERO).await;
        assert!(silent.is_err());
    }
}
