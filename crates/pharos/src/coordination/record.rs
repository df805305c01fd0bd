//! What nodes tell each other of themselves and of the epochs: JSON with a
//! version, apart from the types that the rest of the server works with.
//!
//! Whoever can write into the coordination service can write anything here, so
//! all of it is bounded and nothing is believed that makes no member.

use std::fmt;
use std::net::SocketAddr;

use cluster::{Member, Standing};
use serde::{Deserialize, Serialize};

use super::epoch::{Epoch, Epochs};

/// The form that is written, and the only one that is read.
const VERSION: u32 = 1;
/// Octets of a record at the most.
pub const RECORD_LEN_MAX: usize = 8192;
/// Octets of a node's name at the most: as in a DNS label.
const NAME_LEN_MAX: usize = 63;
/// Octets of a datacenter's name at the most.
const DATACENTER_LEN_MAX: usize = 255;
/// Addresses for clients that a node has at the most.
const LISTEN_MAX: usize = 64;
/// The largest number that views may be counted from, so that adding to it
/// cannot overflow.
const VIEWS_FROM_MAX: u64 = 1 << 62;

/// Why a record says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError(String);

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RecordError {}

/// What all nodes agree on besides the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    pub epochs: Epochs,
    /// What is added to the coordination service's own numbers of views: it
    /// may have lost its memory and count from the beginning again.
    pub views_from: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct MemberRecord {
    version: u32,
    name: String,
    datacenter: String,
    incarnation: u64,
    peer: SocketAddr,
    listen: Vec<SocketAddr>,
    cells: u8,
    standing: StandingRecord,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StandingRecord {
    Serving,
    Draining,
}

#[derive(Serialize, Deserialize)]
struct AgreementRecord {
    version: u32,
    #[serde(flatten)]
    current: EpochRecord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<EpochRecord>,
    #[serde(default)]
    views_from: u64,
}

#[derive(Serialize, Deserialize)]
struct EpochRecord {
    number: u64,
    /// 32 hexadecimal digits.
    salt: String,
    started_unix_secs: u64,
}

/// Reads the version alone, so that a record of a later form is named as such.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Writes a member.
pub fn write_member(member: &Member) -> String {
    let standing = match member.standing {
        Standing::Serving => StandingRecord::Serving,
        Standing::Draining => StandingRecord::Draining,
    };
    to_json(&MemberRecord {
        version: VERSION,
        name: member.name.to_string(),
        datacenter: member.datacenter.to_string(),
        incarnation: member.incarnation,
        peer: member.peer,
        listen: member.listen.clone(),
        cells: member.cells,
        standing,
    })
}

/// Reads the member called `name`.
pub fn read_member(name: &str, octets: &[u8]) -> Result<Member, RecordError> {
    let record: MemberRecord = from_json(octets)?;
    check_name(&record.name).map_err(RecordError)?;
    let problem = if record.name != name {
        format!("it is of {}", record.name)
    } else if record.cells == 0 {
        "it has no cells; accepted: 1 to 255".into()
    } else if record.peer.ip().is_unspecified() || record.peer.port() == 0 {
        format!("peer {} cannot be sent to; accepted: an address and port", record.peer)
    } else if record.listen.len() > LISTEN_MAX {
        format!("{} addresses for clients; accepted: at most {LISTEN_MAX}", record.listen.len())
    } else if record.datacenter.len() > DATACENTER_LEN_MAX {
        format!("a datacenter of more than {DATACENTER_LEN_MAX} octets")
    } else {
        return Ok(Member {
            name: record.name.into(),
            datacenter: record.datacenter.into(),
            incarnation: record.incarnation,
            peer: record.peer,
            listen: record.listen,
            cells: record.cells,
            standing: match record.standing {
                StandingRecord::Serving => Standing::Serving,
                StandingRecord::Draining => Standing::Draining,
            },
        });
    };
    Err(RecordError(problem))
}

/// Writes an agreement.
pub fn write_agreement(agreement: &Agreement) -> String {
    let epoch = |epoch: Epoch| EpochRecord {
        number: epoch.number,
        salt: format!("{:032x}", u128::from_be_bytes(epoch.salt)),
        started_unix_secs: epoch.started_secs,
    };
    to_json(&AgreementRecord {
        version: VERSION,
        current: epoch(agreement.epochs.current),
        previous: agreement.epochs.previous.map(epoch),
        views_from: agreement.views_from,
    })
}

/// Reads an agreement.
pub fn read_agreement(octets: &[u8]) -> Result<Agreement, RecordError> {
    let record: AgreementRecord = from_json(octets)?;
    if record.views_from > VIEWS_FROM_MAX {
        return Err(RecordError(format!(
            "views_from is {}; accepted: at most {VIEWS_FROM_MAX}",
            record.views_from
        )));
    }
    let current = read_epoch(&record.current)?;
    let previous = record.previous.as_ref().map(read_epoch).transpose()?;
    Ok(Agreement { epochs: Epochs { current, previous }, views_from: record.views_from })
}

fn read_epoch(record: &EpochRecord) -> Result<Epoch, RecordError> {
    let is_hex = record.salt.len() == 32 && record.salt.bytes().all(|b| b.is_ascii_hexdigit());
    let salt = u128::from_str_radix(&record.salt, 16).ok().filter(|_| is_hex);
    let Some(salt) = salt else {
        return Err(RecordError("the salt is not of 32 hexadecimal digits".into()));
    };
    if record.number == 0 || record.number == u64::MAX {
        return Err(RecordError(format!("epoch {} cannot be", record.number)));
    }
    Ok(Epoch {
        number: record.number,
        salt: salt.to_be_bytes(),
        started_secs: record.started_unix_secs,
    })
}

/// Says whether a node may be called `name`: it becomes part of a path.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_fit = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let has_word = name.bytes().any(|b| b != b'.');
    if has_word && name.len() <= NAME_LEN_MAX && name.bytes().all(is_fit) {
        return Ok(());
    }
    let shown: String = name.chars().take(NAME_LEN_MAX).collect();
    Err(format!(
        "node.name: {shown:?} cannot name a node of a cluster; accepted: 1 to {NAME_LEN_MAX} \
         letters, digits, `-`, `_` and `.`"
    ))
}

fn to_json(record: &impl Serialize) -> String {
    serde_json::to_string(record).expect("records have nothing that JSON has not")
}

fn from_json<'o, T: Deserialize<'o>>(octets: &'o [u8]) -> Result<T, RecordError> {
    if octets.len() > RECORD_LEN_MAX {
        return Err(RecordError(format!(
            "{} octets; accepted: at most {RECORD_LEN_MAX}",
            octets.len()
        )));
    }
    let explain = |error: serde_json::Error| RecordError(error.to_string());
    match serde_json::from_slice(octets).map_err(explain)? {
        Versioned { version: VERSION } => serde_json::from_slice(octets).map_err(explain),
        Versioned { version } => {
            Err(RecordError(format!("it has version {version}; accepted: {VERSION}")))
        }
    }
}

/// A member that serves, for tests.
#[cfg(test)]
pub fn member_for_tests(name: &str, incarnation: u64) -> Member {
    // Any port: these are never sent to.
    let port = 4000 + name.bytes().map(u16::from).sum::<u16>();
    Member {
        name: name.into(),
        datacenter: "north".into(),
        incarnation,
        peer: SocketAddr::from(([127, 0, 0, 1], port)),
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 53))],
        cells: 2,
        standing: Standing::Serving,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_back_as_they_were_written() {
        for standing in [Standing::Serving, Standing::Draining] {
            let member = Member { standing, ..member_for_tests("web-1.a", u64::MAX) };
            let text = write_member(&member);
            assert_eq!(read_member("web-1.a", text.as_bytes()), Ok(member));
        }
    }

    #[test]
    fn agreements_come_back_as_they_were_written() {
        let epochs = Epochs::unagreed().agreed();
        for epochs in [epochs, epochs.next()] {
            let agreement = Agreement { epochs, views_from: 77 };
            assert_eq!(read_agreement(write_agreement(&agreement).as_bytes()), Ok(agreement));
        }
    }

    #[test]
    fn what_is_no_member_is_refused() {
        let good = write_member(&member_for_tests("a", 1));
        let long = format!("{good}{}", " ".repeat(RECORD_LEN_MAX));
        for (text, reason) in [
            (String::new(), "EOF"),
            ("{}".into(), "missing field `version`"),
            ("{\"version\":1}".into(), "missing field"),
            (good.replace("\"version\":1", "\"version\":2"), "version 2; accepted: 1"),
            (good.replace("\"name\":\"a\"", "\"name\":\"b\""), "it is of b"),
            (good.replace("\"name\":\"a\"", "\"name\":\"../a\""), "cannot name a node"),
            (good.replace("\"cells\":2", "\"cells\":0"), "no cells"),
            (good.replace("\"cells\":2", "\"cells\":256"), "invalid value"),
            (good.replace("127.0.0.1:4097", "0.0.0.0:4097"), "cannot be sent to"),
            (good.replace("127.0.0.1:4097", "127.0.0.1:0"), "cannot be sent to"),
            (good.replace("serving", "sleeping"), "unknown variant"),
            (good.replace("north", &"n".repeat(256)), "a datacenter of more than 255"),
            (long, "accepted: at most 8192"),
        ] {
            assert_ne!(text, good);
            let error = read_member("a", text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_no_agreement_is_refused() {
        let epochs = Epochs::unagreed().agreed();
        let good = write_agreement(&Agreement { epochs, views_from: 0 });
        let salt = format!("{:032x}", u128::from_be_bytes(epochs.current.salt));
        for (text, reason) in [
            (good.replace("\"number\":1", "\"number\":0"), "epoch 0 cannot be"),
            (good.replace(&salt, &salt[1..]), "32 hexadecimal digits"),
            (good.replace(&salt, &format!("+{}", &salt[1..])), "32 hexadecimal digits"),
            (good.replace("\"views_from\":0", "\"views_from\":9223372036854775808"), "views_from"),
        ] {
            assert_ne!(text, good);
            let error = read_agreement(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn names_fit_into_paths() {
        for name in ["a", "web-1", "web_1.example", "..a", &"x".repeat(63)] {
            assert_eq!(check_name(name), Ok(()));
        }
        for name in ["", ".", "..", "a/b", "a b", "ä", "a\n", &"x".repeat(64)] {
            assert!(check_name(name).unwrap_err().contains("accepted: 1 to 63"), "{name}");
        }
    }
}
