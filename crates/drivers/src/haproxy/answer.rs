//! What the runtime socket says, read without trust: whatever is in an answer,
//! reading it ends in values or in [`Malformed`], never in a panic.

use std::fmt;

/// Why an answer cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A server, from `show servers state`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub name: String,
    pub state: State,
    /// Now, and as configured: 0 to 256.
    pub weight: u32,
    pub initial: u32,
    /// Whether it takes traffic, as far as HAProxy's checks tell.
    pub is_up: bool,
}

impl Server {
    /// Whether it is given requests.
    pub fn serves(&self) -> bool {
        self.is_up && self.state == State::Ready && self.weight > 0
    }
}

/// What somebody has put a server into. Health checks have a say of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Ready,
    Drain,
    Maint,
}

impl State {
    pub const ALL: [State; 3] = [State::Ready, State::Drain, State::Maint];

    pub fn name(self) -> &'static str {
        match self {
            State::Ready => "ready",
            State::Drain => "drain",
            State::Maint => "maint",
        }
    }
}

/// Numbers about a server, from `show stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub name: String,
    pub sessions: u64,
    pub rate: u64,
    /// Since HAProxy started: connections and responses that failed, and
    /// responses of class 5xx.
    pub errors: u64,
}

/// A session, from `show sess`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// As HAProxy names it; hexadecimal digits and nothing else.
    pub id: String,
    pub server: String,
    pub age_secs: u64,
}

/// The highest weight there is.
pub const WEIGHT_MAX: u32 = 256;
/// The version of `show servers state` that is known, since HAProxy 1.6.
const STATE_VERSION: &str = "1";
/// `srv_op_state` of a server that gets requests: after its start, or running. A
/// stopping one (`http-check disable-on-404`) is given none, nor is one that is down.
const SERVING: [u32; 2] = [1, 2];
/// Bits of a server's administrative state: put into maintenance, or into
/// draining, by somebody. The others are inherited or from the configuration.
const FORCED_MAINT: u32 = 0x01;
const FORCED_DRAIN: u32 = 0x08;
/// Draining because of a server that it tracks: it is up, and gets no requests.
const INHERITED_DRAIN: u32 = 0x10;

/// Reads `show servers state BACKEND`.
pub fn servers(text: &str, backend: &str) -> Result<Vec<Server>, Malformed> {
    let mut lines = text.lines();
    match lines.next() {
        Some(STATE_VERSION) => {}
        other => return Err(malformed("the version of the state", other.unwrap_or(""))),
    }
    let head = lines.next().unwrap_or("");
    let columns: Vec<&str> = head.trim_start_matches('#').split_whitespace().collect();
    let place = |name| {
        let found = columns.iter().position(|column| *column == name);
        found.ok_or_else(|| malformed(&format!("the column {name}"), head))
    };
    let (of_backend, of_name) = (place("be_name")?, place("srv_name")?);
    let (of_state, of_weight, of_initial) =
        (place("srv_admin_state")?, place("srv_uweight")?, place("srv_iweight")?);
    let of_operation = place("srv_op_state")?;
    let mut servers = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if fields.len() != columns.len() {
            return Err(malformed("as many fields as columns", line));
        }
        if fields[of_backend] != backend {
            continue;
        }
        let number = |at: usize| number(fields[at], line);
        let admin = number(of_state)?;
        let weights = (number(of_weight)?, number(of_initial)?);
        let (weight, initial) = weights;
        if weight > WEIGHT_MAX || initial > WEIGHT_MAX {
            return Err(malformed("weights up to 256", line));
        }
        let state = match admin {
            admin if admin & FORCED_MAINT != 0 => State::Maint,
            admin if admin & FORCED_DRAIN != 0 => State::Drain,
            _ => State::Ready,
        };
        let is_up = SERVING.contains(&number(of_operation)?) && admin & INHERITED_DRAIN == 0;
        let name = fields[of_name].to_owned();
        servers.push(Server { name, state, weight, initial, is_up });
    }
    Ok(servers)
}

/// Reads `show stat BACKEND 4 -1`: its servers.
pub fn stats(text: &str, backend: &str) -> Result<Vec<Stat>, Malformed> {
    let mut lines = text.lines();
    let head = lines.next().unwrap_or("");
    let Some(head) = head.strip_prefix("# ") else {
        return Err(malformed("a head that begins with `# `", head));
    };
    let columns = csv(head);
    let place = |name: &str| {
        let found = columns.iter().position(|column| column == name);
        found.ok_or_else(|| malformed(&format!("the column {name}"), head))
    };
    let (of_backend, of_name) = (place("pxname")?, place("svname")?);
    let (of_sessions, of_rate) = (place("scur")?, place("rate")?);
    let of_errors = [place("econ")?, place("eresp")?, place("hrsp_5xx")?];
    let mut stats = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let fields = csv(line);
        if fields.len() != columns.len() {
            return Err(malformed("as many fields as columns", line));
        }
        if fields[of_backend] != backend {
            continue;
        }
        // What does not apply, such as responses of a TCP backend, is empty.
        let number = |at: usize| match fields[at].as_str() {
            "" => Ok(0),
            text => number::<u64>(text, line),
        };
        let mut errors = 0u64;
        for at in of_errors {
            errors = errors.saturating_add(number(at)?);
        }
        stats.push(Stat {
            name: fields[of_name].clone(),
            sessions: number(of_sessions)?,
            rate: number(of_rate)?,
            errors,
        });
    }
    Ok(stats)
}

/// Reads `show sess`: those that a server of the backend has, the oldest first.
pub fn sessions(text: &str, backend: &str) -> Result<Vec<Session>, Malformed> {
    let mut sessions = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let mut words = line.split(' ');
        let id = words.next().and_then(|word| word.strip_suffix(':')).unwrap_or("");
        let digits = id.strip_prefix("0x").unwrap_or("");
        if !(1..=16).contains(&digits.len()) || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(malformed("a session that begins with its number", line));
        }
        let (mut of, mut server, mut age) = (None, None, None);
        // The first of each: what follows can hold what clients sent.
        for word in words {
            match word.split_once('=') {
                Some(("be", name)) => of = of.or(Some(name)),
                Some(("srv", name)) => server = server.or(Some(name)),
                Some(("age", span)) => age = age.or(Some(span)),
                _ => {}
            }
        }
        let (Some(of), Some(server), Some(age)) = (of, server, age) else {
            return Err(malformed("a session with be=, srv= and age=", line));
        };
        // Nobody has it yet, or it is none that is balanced.
        if of != backend || server.starts_with('<') {
            continue;
        }
        let age_secs = span_secs(age).ok_or_else(|| malformed("an age such as 1h5m", line))?;
        sessions.push(Session { id: id.to_owned(), server: server.to_owned(), age_secs });
    }
    sessions.sort_by_key(|session| std::cmp::Reverse(session.age_secs));
    Ok(sessions)
}

/// Reads `show backend`: the names of all of them.
pub fn backends(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

/// A span as HAProxy prints it: `3s`, `2m3s`, `1h2m`, `4d3h`.
fn span_secs(text: &str) -> Option<u64> {
    let mut total = 0u64;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let count: u64 = rest[..end].parse().ok()?;
        let unit = rest[end..].chars().next()?;
        let secs = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            'w' => 604_800,
            _ => return None,
        };
        total = total.checked_add(count.checked_mul(secs)?)?;
        rest = &rest[end + 1..];
    }
    (!text.is_empty()).then_some(total)
}

/// The fields of a line of CSV: between commas, or between quotes where a quote
/// is two.
fn csv(line: &str) -> Vec<String> {
    let mut fields = Vec::new();
    let mut field = String::new();
    let mut is_quoted = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(std::mem::take(&mut field)),
            other => field.push(other),
        }
    }
    fields.push(field);
    fields
}

fn number<T: std::str::FromStr>(text: &str, line: &str) -> Result<T, Malformed> {
    text.parse().map_err(|_| malformed(&format!("a number instead of {:?}", start(text)), line))
}

fn malformed(expected: &str, found: &str) -> Malformed {
    Malformed(format!("expected {expected}, found {:?}", start(found)))
}

/// The beginning of a text of HAProxy's, as one line, for messages.
pub fn start(text: &str) -> String {
    const SHOWN_MAX: usize = 120;
    base::text::excerpt(text, SHOWN_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STATE: &str = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state \
        srv_admin_state srv_uweight srv_iweight\n5 ux 1 dc1-a - 0 5 10 10\n\
        5 ux 2 dc1-b - 2 8 0 256\n5 ux 3 dc1-c - 2 4 7 10\n6 other 1 dc1-a - 2 0 1 1\n\n";
    const SESSIONS: &str = "0x55c6f6873340: proto=tcpv4 src=127.0.0.1:4 fe=ux be=ux srv=dc1-b \
        ts=00 epoch=0 age=2m1s calls=1\n0x7f: proto=unix_stream src=unix:1 fe=GLOBAL be=<NONE> \
        srv=<none> ts=00 age=0s\n0x7e: fe=ux be=ux srv=dc1-a age=1h srv=evil\n\n";

    #[test]
    fn servers_are_read() {
        let server = |name: &str, state, weight, initial| Server {
            name: name.into(),
            state,
            weight,
            initial,
            is_up: state != State::Maint,
        };
        assert_eq!(
            servers(STATE, "ux").unwrap(),
            [
                server("dc1-a", State::Maint, 10, 10),
                server("dc1-b", State::Drain, 0, 256),
                server("dc1-c", State::Ready, 7, 10),
            ]
        );
    }

    #[test]
    fn a_server_serves_if_it_is_up_and_ready_and_has_weight() {
        let serves = |own: &str| {
            let head = STATE.lines().nth(1).unwrap();
            servers(&format!("1\n{head}\n5 ux 1 a - {own} 10\n"), "ux").unwrap()[0].serves()
        };
        // srv_op_state, srv_admin_state, srv_uweight.
        assert!(serves("2 0 10") && serves("1 0 1") && serves("2 4 10"));
        for not in ["0 0 10", "3 0 10", "2 1 10", "2 8 10", "2 16 10", "2 0 0"] {
            assert!(!serves(not), "{not}");
        }
    }

    #[test]
    fn sessions_are_read_the_oldest_first() {
        let found = sessions(SESSIONS, "ux").unwrap();
        let found: Vec<_> = found.iter().map(|s| (s.server.as_str(), s.age_secs)).collect();
        assert_eq!(found, [("dc1-a", 3600), ("dc1-b", 121)]);
    }

    #[test]
    fn numbers_are_read_past_quoted_commas() {
        let text = "# pxname,svname,scur,econ,eresp,rate,hrsp_5xx,last_chk,\n\
                    ux,dc1-a,3,1,2,9,,\"a, \"\"b\"\"\",\nother,x,1,1,1,1,1,,\n\n";
        let stat = Stat { name: "dc1-a".into(), sessions: 3, rate: 9, errors: 3 };
        assert_eq!(stats(text, "ux").unwrap(), [stat]);
    }

    #[test]
    fn what_haproxy_says_is_quoted_as_one_bounded_line() {
        assert_eq!(start("No such\nserver\u{202e}."), "No such server?.");
        assert_eq!(start(&"x".repeat(5000)).chars().count(), 121);
    }

    #[test]
    fn what_is_malformed_is_said_so() {
        for (text, expected) in [
            ("", "the version"),
            ("2\n# x\n", "the version"),
            ("1\n# be_name\n", "the column srv_name"),
            (&STATE.replace(" 256", ""), "as many fields"),
            (&STATE.replace(" 256", " 257"), "weights up to 256"),
            (&STATE.replace(" 256", " -1"), "a number instead of"),
        ] {
            let error = servers(text, "ux").unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        for text in ["Permission denied", "0x1;quit: be=a srv=b age=1s", "0x1: be=ux srv=b age=1y"]
        {
            assert!(sessions(text, "ux").is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "\\PC{0,200}", cut in 0usize..400) {
            for text in [&text[..], &STATE.replace("dc1", &text), &SESSIONS.replace("age", &text)] {
                let text = text.get(..cut).unwrap_or(text);
                let _ = servers(text, "ux");
                let _ = stats(text, "ux");
                let _ = sessions(text, "ux");
                backends(text);
            }
        }
    }
}
