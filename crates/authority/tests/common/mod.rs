//! Zones and questions as text, for the tests of answers.

// Each test binary uses its own part of this.
#![allow(dead_code)]

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use authority::respond::{Arrival, Context, Scratch, Settings, Transport, respond};
use authority::zonefile::{self, NoIncludes};
use authority::{Catalog, Change, Compiler, Image, NameHasher, Placement, Problems, RecordSet};
use domain::base::Message;
use domain::rdata::AllRecordData;

/// Keys of the names in every catalogue here.
pub const HASHER: [u8; 16] = [5; 16];

pub fn compile(text: &str) -> (Option<Image>, Problems) {
    compile_for(&Placement::Everywhere, text)
}

pub fn compile_for(placement: &Placement, text: &str) -> (Option<Image>, Problems) {
    let mut records = RecordSet::default();
    let mut problems = Problems::new("test.zone");
    zonefile::read(text.as_bytes(), None, &mut NoIncludes, &mut records, &mut problems);
    let image =
        Compiler::new(NameHasher::new(HASHER)).compile(&mut records, placement, &mut problems);
    (image, problems)
}

pub fn catalog(zones: &[&str]) -> Catalog {
    let put = |zone: &&str| {
        let (image, problems) = compile(zone);
        Change::Put(image.unwrap_or_else(|| panic!("{problems}")))
    };
    Catalog::default().with(zones.iter().map(put).collect())
}

/// A question such as `www.example. A`, with the words `do` (DNSSEC), `edns`,
/// `tcp` behind it where wanted.
pub fn question(text: &str) -> (Vec<u8>, Transport) {
    let words: Vec<&str> = text.split_whitespace().collect();
    let has = |word: &str| words[2..].contains(&word);
    let mut message = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    message.extend(wire::name::from_text(words[0]).unwrap());
    let rtype: domain::base::Rtype = words[1].parse().unwrap();
    message.extend(rtype.to_int().to_be_bytes());
    message.extend([0, 1]);
    if has("do") || has("edns") {
        message[11] = 1;
        message.extend([0, 0, 41, 4, 208, 0, 0, if has("do") { 0x80 } else { 0 }, 0, 0, 0]);
    }
    let transport = match has("tcp") {
        true => Transport::Tcp { idle_100ms: 100 },
        false => Transport::Udp,
    };
    (message, transport)
}

pub fn ask(catalog: &Catalog, text: &str) -> Vec<u8> {
    ask_at(None, catalog, text)
}

/// Asks a virtual name server.
pub fn ask_at(server: Option<u16>, catalog: &Catalog, text: &str) -> Vec<u8> {
    let (request, transport) = question(text);
    let hasher = NameHasher::new(HASHER);
    let settings = Settings::default();
    let context = Context { catalog, hasher: &hasher, settings: &settings, now_secs: 0 };
    let mut out = vec![0xee; 65_535];
    let arrival = Arrival { from: IpAddr::V4(Ipv4Addr::LOCALHOST), server, transport };
    let outcome = respond(&context, &mut Scratch::default(), &request, arrival, &mut out);
    out.truncate(outcome.len);
    out
}

/// The answer as text: code and flags, then a line for each record.
pub fn show(answer: &[u8]) -> String {
    let message = Message::from_octets(answer).expect("a header");
    let header = message.header();
    let mut text = header.rcode().to_string();
    for (is_set, name) in [(header.aa(), " aa"), (header.tc(), " tc")] {
        text.push_str(if is_set { name } else { "" });
    }
    text.push('\n');
    let (_, answer, authority, additional) = message.sections().expect("all sections");
    for (name, section) in [("an", answer), ("au", authority), ("ad", additional)] {
        for record in section.limit_to::<AllRecordData<_, _>>() {
            let record = record.expect("a well-formed record");
            if record.rtype() == domain::base::Rtype::OPT {
                continue;
            }
            let data = match record.rtype() {
                // The octets of a signature tell nothing.
                domain::base::Rtype::RRSIG => {
                    record.data().to_string().split(' ').next().unwrap_or_default().to_owned()
                }
                _ => record.data().to_string(),
            };
            let data = data.trim_end();
            let _ = writeln!(
                text,
                "{name} {}. {} {} {data}",
                record.owner(),
                record.ttl().as_secs(),
                record.rtype()
            );
        }
    }
    text
}

/// Text of the extended error (RFC 8914) that an answer carries.
pub fn extended_error(answer: &[u8]) -> Option<String> {
    let message = Message::from_octets(answer).expect("a header");
    let opt = message.opt()?;
    let error = opt.opt().iter::<domain::base::opt::ExtendedError<_>>().next()?.expect("an error");
    error.text().map(|text| match text {
        Ok(text) => text.to_string(),
        Err(_) => "no text".into(),
    })
}
