//! EDNS(0) (RFC 6891): the OPT record of a question, its options, and the
//! octets of the OPT record of an answer.

use crate::code::{ExtendedError, Rcode, rtype};
use crate::cookie::{COOKIE_LEN_MAX, RequestCookie};

/// Smallest UDP answer every client must take (RFC 6891, 6.2.5).
pub const PAYLOAD_MIN: u16 = 512;
/// Octets of an OPT record without options.
pub const OPT_LEN: usize = 11;

const OPTION_NSID: u16 = 3;
const OPTION_COOKIE: u16 = 10;
const OPTION_KEEPALIVE: u16 = 11;
const OPTION_EXTENDED_ERROR: u16 = 15;
const FLAG_DO: u16 = 0x8000;

/// What the OPT record of a question said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edns {
    /// Largest UDP answer the asker takes, as sent.
    pub payload: u16,
    /// EDNS version asked for.
    pub version: u8,
    /// The asker wants DNSSEC records.
    pub dnssec_ok: bool,
    /// An option is not what its RFC says; the answer is FORMERR.
    pub malformed: bool,
    /// The asker wants to know which server this is (RFC 5001).
    pub nsid: bool,
    /// The asker wants to know how long a connection is kept (RFC 7828).
    pub keepalive: bool,
    /// DNS cookie (RFC 7873).
    pub cookie: Option<RequestCookie>,
}

/// Reads `count` records from `at` on and takes the OPT record among them.
/// `None`: the records are malformed, or there are two OPT records.
pub(crate) fn read_records(
    message: &[u8],
    mut at: usize,
    count: usize,
    edns: &mut Option<Edns>,
) -> Option<usize> {
    for _ in 0..count {
        let (owner_is_root, fixed) = skip_name(message, at)?;
        let head = message.get(fixed..fixed + 10)?;
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let data = message.get(fixed + 10..fixed + 10 + word(8) as usize)?;
        if word(0) == rtype::OPT {
            if edns.is_some() || !owner_is_root {
                return None;
            }
            let mut found = Edns {
                payload: word(2),
                version: head[5],
                dnssec_ok: word(6) & FLAG_DO != 0,
                malformed: false,
                nsid: false,
                keepalive: false,
                cookie: None,
            };
            // Options of another version may look different.
            if found.version == 0 {
                found.malformed = read_options(data, &mut found).is_none();
            }
            *edns = Some(found);
        }
        at = fixed + 10 + data.len();
    }
    Some(at)
}

fn read_options(mut data: &[u8], edns: &mut Edns) -> Option<()> {
    while !data.is_empty() {
        let head = data.first_chunk::<4>()?;
        let code = u16::from_be_bytes([head[0], head[1]]);
        let len = u16::from_be_bytes([head[2], head[3]]) as usize;
        let value = data.get(4..4 + len)?;
        match code {
            OPTION_NSID => edns.nsid = true,
            OPTION_KEEPALIVE => edns.keepalive = true,
            // RFC 7873, 5.2: only the first cookie counts.
            OPTION_COOKIE if edns.cookie.is_none() => {
                edns.cookie = Some(RequestCookie::read(value)?);
            }
            _ => {}
        }
        data = &data[4 + len..];
    }
    Some(())
}

/// Skips a name that may be compressed; says if it is the root and where it
/// ends. Pointers are not followed: nobody here reads the name.
pub(crate) fn skip_name(message: &[u8], mut at: usize) -> Option<(bool, usize)> {
    let start = at;
    loop {
        match *message.get(at)? {
            0 => return Some((at == start, at + 1)),
            len @ 1..=63 => at += 1 + len as usize,
            0xc0..=0xff => return message.get(at + 1).map(|_| (false, at + 2)),
            _ => return None,
        }
        if at - start > 255 {
            return None;
        }
    }
}

/// What the OPT record of an answer says.
#[derive(Clone, Copy, Debug)]
pub struct OptReply<'a> {
    /// Largest UDP message this server takes.
    pub payload: u16,
    /// Copied from the question (RFC 3225, 3).
    pub dnssec_ok: bool,
    /// The answer's code; its upper bits go here.
    pub rcode: Rcode,
    /// This server's identity, if asked for.
    pub nsid: Option<&'a [u8]>,
    /// Client and server cookie together.
    pub cookie: Option<&'a [u8; COOKIE_LEN_MAX]>,
    /// Idle time of a connection in units of 100 ms, if asked for.
    pub keepalive: Option<u16>,
    /// Why the answer is what it is.
    pub error: Option<ExtendedError>,
}

impl OptReply<'_> {
    /// Octets that [`OptReply::write`] needs.
    pub fn len(&self) -> usize {
        OPT_LEN
            + self.nsid.map_or(0, |nsid| 4 + nsid.len())
            + self.cookie.map_or(0, |cookie| 4 + cookie.len())
            + self.keepalive.map_or(0, |_| 6)
            + self.error.map_or(0, |error| 6 + error.text.len())
    }

    /// An OPT record always has octets.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the record at `at` of `out`, which has the room; returns its end.
    pub fn write(&self, out: &mut [u8], at: usize) -> usize {
        let end = at + self.len();
        let record = &mut out[at..end];
        record[0] = 0;
        record[1..3].copy_from_slice(&rtype::OPT.to_be_bytes());
        record[3..5].copy_from_slice(&self.payload.to_be_bytes());
        record[5] = (self.rcode as u16 >> 4) as u8;
        record[6] = 0;
        let flags = if self.dnssec_ok { FLAG_DO } else { 0 };
        record[7..9].copy_from_slice(&flags.to_be_bytes());
        record[9..11].copy_from_slice(&((end - at - OPT_LEN) as u16).to_be_bytes());
        let mut options = &mut record[OPT_LEN..];
        let mut put = |code: u16, parts: [&[u8]; 2]| {
            let len = parts[0].len() + parts[1].len();
            let (option, rest) = std::mem::take(&mut options).split_at_mut(4 + len);
            option[0..2].copy_from_slice(&code.to_be_bytes());
            option[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            option[4..4 + parts[0].len()].copy_from_slice(parts[0]);
            option[4 + parts[0].len()..].copy_from_slice(parts[1]);
            options = rest;
        };
        if let Some(nsid) = self.nsid {
            put(OPTION_NSID, [nsid, &[]]);
        }
        if let Some(cookie) = self.cookie {
            put(OPTION_COOKIE, [cookie, &[]]);
        }
        if let Some(keepalive) = self.keepalive {
            put(OPTION_KEEPALIVE, [&keepalive.to_be_bytes(), &[]]);
        }
        if let Some(error) = self.error {
            put(OPTION_EXTENDED_ERROR, [&error.code.to_be_bytes(), error.text.as_bytes()]);
        }
        end
    }
}
