//! One pass over all records of a message: whether they are well formed, and
//! what a cache has to know of them.

use wire::query::HEADER_LEN;
use wire::{Section, rtype};

use super::chain::Chain;
use super::names::Names;
use super::records::{self, RECORD_LEN_MIN, Record, SIG};
use super::{QUESTION_TAIL_LEN, ttl_at};

/// Any class, in a question (RFC 1035, 3.2.5).
const CLASS_ANY: u16 = 255;
/// Option code of an extended error (RFC 8914, 2).
const OPTION_EXTENDED_ERROR: u16 = 15;

/// What the records of a message say.
#[derive(Debug)]
pub(super) struct Survey {
    /// Where the times to live of the kept records stand.
    pub ttl_places: Vec<u16>,
    /// Kept records of the three sections.
    pub counts: [u16; 3],
    /// Where the kept part of the message ends.
    pub end: usize,
    pub chain: Chain,
    /// How long a denial lives, as the first SOA of the authority section says
    /// (RFC 2308, 5).
    pub soa_secs: Option<u32>,
    /// The authority section has NS records.
    pub has_servers: bool,
    pub opt: Option<Opt>,
}

/// What the OPT record says that outlives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opt {
    /// The upper 8 of a code's 12 bits.
    pub code_high: u8,
    /// INFO-CODE of the first extended error.
    pub error: Option<u16>,
}

impl Survey {
    /// Surveys `message`, which has a header and one question. `None` if
    /// anything is malformed, of another class than was asked for, or left
    /// over.
    ///
    /// The additional section is kept up to its first OPT, TSIG or SIG record:
    /// these were meant for us and not for clients. Records behind them are
    /// few, can be done without, and could not be moved without a look for the
    /// pointers to them.
    pub fn of(message: &[u8]) -> Option<Survey> {
        let mut names = Names::new(message);
        let (name, tail_at) = names.read(HEADER_LEN)?;
        let mut at = tail_at + QUESTION_TAIL_LEN;
        message.get(tail_at..at)?;
        let word = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
        let (qtype, qclass) = (word(tail_at), word(tail_at + 2));
        let counts = [word(6), word(8), word(10)];
        let records = counts.iter().map(|&count| count as usize).sum::<usize>();
        let fitting = (message.len() - at) / RECORD_LEN_MIN;
        let mut survey = Survey {
            ttl_places: Vec::with_capacity(records.min(fitting)),
            counts: [0; 3],
            end: at,
            chain: Chain::new(name, qtype),
            soa_secs: None,
            has_servers: false,
            opt: None,
        };
        let mut is_cut = false;
        for section in [Section::Answer, Section::Authority, Section::Additional] {
            for _ in 0..counts[section as usize] {
                let record = records::read(&mut names, at)?;
                at = record.end;
                if matches!(record.rtype, rtype::OPT | rtype::TSIG | SIG) {
                    is_cut |= section == Section::Additional;
                }
                if record.rtype == rtype::OPT {
                    survey.take_opt(message, section, &record)?;
                } else if !is_cut {
                    let has_class = record.class == qclass || qclass == CLASS_ANY;
                    has_class.then(|| survey.take(message, section, &record))?;
                }
            }
        }
        (at == message.len()).then_some(survey)
    }

    /// Takes a record that is kept.
    fn take(&mut self, message: &[u8], section: Section, record: &Record) {
        self.ttl_places.push(record.ttl_at as u16);
        self.counts[section as usize] += 1;
        self.end = record.end;
        match (section, record.rtype) {
            (Section::Answer, _) => self.chain.follow(message, record),
            (Section::Authority, rtype::NS) => self.has_servers = true,
            (Section::Authority, rtype::SOA) if self.soa_secs.is_none() => {
                let minimum_secs = ttl_at(message, records::soa_minimum_at(record));
                self.soa_secs = Some(ttl_at(message, record.ttl_at).min(minimum_secs));
            }
            _ => {}
        }
    }

    /// Takes the OPT record: the only one, of the root, among the additional
    /// ones (RFC 6891, 6.1.1).
    fn take_opt(&mut self, message: &[u8], section: Section, record: &Record) -> Option<()> {
        let is_root = message[record.start] == 0;
        if section != Section::Additional || self.opt.is_some() || !is_root {
            return None;
        }
        let error = first_error(&message[record.data_at..record.end])?;
        self.opt = Some(Opt { code_high: message[record.ttl_at], error });
        Some(())
    }
}

/// The first extended error among options; `None` if they are not options.
fn first_error(mut options: &[u8]) -> Option<Option<u16>> {
    let mut error = None;
    while !options.is_empty() {
        let (head, rest) = options.split_first_chunk::<4>()?;
        let len = u16::from_be_bytes([head[2], head[3]]) as usize;
        let (value, rest) = rest.split_at_checked(len)?;
        if u16::from_be_bytes([head[0], head[1]]) == OPTION_EXTENDED_ERROR {
            let code = u16::from_be_bytes(*value.first_chunk()?);
            error.get_or_insert(code);
        }
        options = rest;
    }
    Some(error)
}
