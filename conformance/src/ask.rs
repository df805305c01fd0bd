//! Sends messages and collects what comes back: small windows, so that nothing is lost; retries,
//! because something is lost anyway.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::answer::Reply;
use crate::queries::Query;

/// Few enough that no socket buffer overflows with answers of 4 KiB.
const UDP_WINDOW: usize = 24;
const TCP_WINDOW: usize = 8;
const TRIES_MAX: usize = 3;
const UDP_TIMEOUT: Duration = Duration::from_millis(700);
const TCP_TIMEOUT: Duration = Duration::from_secs(10);
/// One batch shares a socket and its ids, so it must stay below 65536.
pub const BATCH_MAX: usize = 20_000;

/// Asks every query over its own transport; answers in the order of the queries.
pub fn ask(server: SocketAddr, queries: &[Query]) -> Result<Vec<Reply>> {
    assert!(queries.len() <= BATCH_MAX);
    let messages: Vec<Vec<u8>> =
        queries.iter().enumerate().map(|(index, query)| query.encode(index as u16)).collect();
    let (tcp, udp): (Vec<usize>, Vec<usize>) =
        (0..queries.len()).partition(|index| queries[*index].tcp);
    let mut replies = vec![Reply::Silence; queries.len()];
    ask_udp(server, &messages, udp, &mut replies)?;
    ask_tcp(server, &messages, &tcp, &mut replies)?;
    Ok(replies)
}

struct Waiting {
    index: usize,
    tries: usize,
    since: Instant,
}

fn ask_udp(
    server: SocketAddr,
    messages: &[Vec<u8>],
    indices: Vec<usize>,
    replies: &mut [Reply],
) -> Result<()> {
    let socket = udp_socket(server)?;
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    let mut todo: VecDeque<(usize, usize)> = indices.into_iter().map(|index| (index, 0)).collect();
    let mut waiting: Vec<Waiting> = Vec::new();
    let mut buffer = vec![0; 65536];
    while !todo.is_empty() || !waiting.is_empty() {
        while waiting.len() < UDP_WINDOW
            && let Some((index, tries)) = todo.pop_front()
        {
            socket.send(&messages[index]).context("send over UDP")?;
            waiting.push(Waiting { index, tries: tries + 1, since: Instant::now() });
        }
        match socket.recv(&mut buffer) {
            Ok(size) => {
                let octets = &buffer[..size];
                let id = octets.first_chunk::<2>().map(|id| u16::from_be_bytes(*id) as usize);
                let place = waiting.iter().position(|one| Some(one.index) == id);
                // Answers to a repetition that were late: the first has been taken already.
                if let Some(place) = place {
                    let one = waiting.swap_remove(place);
                    replies[one.index] = Reply::read(octets);
                }
            }
            Err(error) if is_pause(error.kind()) => {}
            Err(error) => return Err(error).context("receive over UDP (did the server die?)"),
        }
        let (late, rest): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|one| one.since.elapsed() > UDP_TIMEOUT);
        waiting = rest;
        // Silence stays in `replies` when the tries are used up.
        todo.extend(
            late.iter().filter(|one| one.tries < TRIES_MAX).map(|one| (one.index, one.tries)),
        );
    }
    Ok(())
}

fn is_pause(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn udp_socket(server: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0").context("bind a UDP socket")?;
    socket.connect(server)?;
    Ok(socket)
}

/// Several queries are written before the first answer is read, and answers may come in any
/// order (RFC 7766 6.2.1.1, 7).
fn ask_tcp(
    server: SocketAddr,
    messages: &[Vec<u8>],
    indices: &[usize],
    replies: &mut [Reply],
) -> Result<()> {
    let mut stream: Option<TcpStream> = None;
    for window in indices.chunks(TCP_WINDOW) {
        let mut missing: Vec<usize> = window.to_vec();
        for _ in 0..TRIES_MAX {
            let mut connection = match stream.take() {
                Some(connection) => connection,
                None => connect(server)?,
            };
            // A server may close at any time (RFC 7766 6.2.4); what is missing is asked again.
            if exchange(&mut connection, messages, &mut missing, replies).is_ok() {
                stream = Some(connection);
                break;
            }
        }
    }
    Ok(())
}

fn exchange(
    stream: &mut TcpStream,
    messages: &[Vec<u8>],
    missing: &mut Vec<usize>,
    replies: &mut [Reply],
) -> Result<()> {
    let mut out = Vec::new();
    for index in missing.iter() {
        out.extend_from_slice(&(messages[*index].len() as u16).to_be_bytes());
        out.extend_from_slice(&messages[*index]);
    }
    stream.write_all(&out)?;
    while !missing.is_empty() {
        let octets = read_framed(stream)?;
        let Some(id) = octets.first_chunk::<2>() else { bail!("an answer without an id") };
        let id = u16::from_be_bytes(*id) as usize;
        let place = missing.iter().position(|index| *index == id);
        let place = place.with_context(|| format!("an answer with id {id} nobody asked with"))?;
        missing.swap_remove(place);
        replies[id] = Reply::read(&octets);
    }
    Ok(())
}

pub fn connect(server: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&server, TCP_TIMEOUT)
        .with_context(|| format!("connect to {server} over TCP"))?;
    stream.set_read_timeout(Some(TCP_TIMEOUT))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

pub fn write_framed(stream: &mut TcpStream, message: &[u8]) -> Result<()> {
    let mut out = (message.len() as u16).to_be_bytes().to_vec();
    out.extend_from_slice(message);
    stream.write_all(&out).context("write over TCP")
}

pub fn read_framed(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).context("read a length over TCP")?;
    let mut octets = vec![0; u16::from_be_bytes(length) as usize];
    stream.read_exact(&mut octets).context("read a message over TCP")?;
    Ok(octets)
}

/// One message as it is, for what no [`Query`] can say. Silence is an outcome here, so the wait
/// is short: loopback answers within milliseconds.
pub fn ask_raw(server: SocketAddr, message: &[u8]) -> Result<Reply> {
    let socket = udp_socket(server)?;
    socket.set_read_timeout(Some(Duration::from_millis(250)))?;
    let mut buffer = vec![0; 65536];
    for _ in 0..2 {
        socket.send(message)?;
        match socket.recv(&mut buffer) {
            Ok(size) => return Ok(Reply::read(&buffer[..size])),
            Err(error) if is_pause(error.kind()) => continue,
            Err(error) => return Err(error).context("receive over UDP"),
        }
    }
    Ok(Reply::Silence)
}
