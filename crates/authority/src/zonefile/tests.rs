//! Cases are texts in `cases/`: what is read, then the records and problems
//! that come of it. `ZONEFILE_BLESS=1 cargo test -p authority zonefile` writes
//! what came instead of comparing; read the difference before keeping it.

use super::{Includes, NoIncludes, Reader, types, wirecheck};
use crate::problem::Problems;
use crate::records::{Record, RecordSet};
use proptest::prelude::*;
use std::fmt::Write;
use std::path::Path;
use wire::name::Name;

const ORIGIN: &[u8] = b"\x07example\x03com\0";

/// Files that the cases include.
struct Shelf;

impl Includes for Shelf {
    fn open(
        &mut self,
        path: &str,
        from_file: &str,
        _len_max: usize,
    ) -> Result<(String, Vec<u8>), String> {
        let text = match path {
            "hosts" => "h1 A 192.0.2.1\n$ORIGIN deep\nh2 A 192.0.2.2\n",
            "blank" => " A 192.0.2.1\n",
            "bad" => "ok A 192.0.2.1\nbad A 192.0.2.256\n",
            "self" => "$INCLUDE self\nx A 192.0.2.3\n",
            "ttl" => "$TTL 77\n",
            _ => return Err(format!("no file {path} beside {from_file}")),
        };
        Ok((path.to_string(), text.into()))
    }
}

fn load(text: &[u8], origin: Option<&[u8]>) -> (RecordSet, Problems) {
    let (mut records, mut problems) = (RecordSet::default(), Problems::new("zone"));
    let origin = origin.map(|origin| Name::parse(origin).unwrap());
    Reader::new().read(text, origin, &mut Shelf, &mut records, &mut problems);
    (records, problems)
}

fn type_name(code: u16) -> String {
    types::by_code(code).map_or_else(|| format!("TYPE{code}"), |spec| spec.name.into())
}

/// A record as a zone file holds it, with its data by RFC 3597.
fn render(record: Record<'_>) -> String {
    let (owner, ttl) = (Name::parse(record.owner).unwrap(), record.ttl_secs);
    let rtype = type_name(record.rtype);
    let mut line = format!("{owner} {ttl} {rtype} \\# {}", record.rdata.len());
    for (at, octet) in record.rdata.iter().enumerate() {
        let blank = if at == 0 { " " } else { "" };
        write!(line, "{blank}{octet:02x}").unwrap();
    }
    line
}

fn outcome(text: &[u8], origin: Option<&[u8]>) -> String {
    let (records, problems) = load(text, origin);
    let mut lines = String::new();
    for record in records.iter() {
        if let Some(spec) = types::by_code(record.rtype) {
            wirecheck::check(spec, record.rdata)
                .expect("what is read passes the check of its type");
        }
        writeln!(lines, "{}", render(record)).unwrap();
    }
    write!(lines, "{problems}").unwrap();
    lines
}

#[track_caller]
fn check(text: &[u8], expected: &str) {
    assert_eq!(outcome(text, Some(ORIGIN)), expected, "reading {}", String::from_utf8_lossy(text));
}

/// Runs one file of cases: `=== title`, text, `---`, expected lines.
fn check_cases(file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/zonefile/cases").join(file);
    let cases = std::fs::read_to_string(&path).unwrap();
    let mut blessed = String::new();
    for case in cases.split("=== ").skip(1) {
        let (title, body) = case.split_once('\n').unwrap();
        let (text, expected) = body.split_once("---\n").unwrap();
        let origin = (!title.contains("without origin")).then_some(ORIGIN);
        let found = outcome(text.as_bytes(), origin);
        write!(blessed, "=== {title}\n{text}---\n{found}\n").unwrap();
        if std::env::var_os("ZONEFILE_BLESS").is_none() {
            assert_eq!(found.trim_end(), expected.trim_end(), "{file}: {title}");
        }
    }
    if std::env::var_os("ZONEFILE_BLESS").is_some() {
        std::fs::write(path, blessed).unwrap();
    }
}

#[test]
fn syntax() {
    check_cases("syntax.txt");
}

#[test]
fn problems_name_what_was_found_and_what_is_accepted() {
    check_cases("problems.txt");
}

#[test]
fn reading_goes_on_after_a_problem() {
    check_cases("recovery.txt");
}

#[test]
fn directives() {
    check_cases("directives.txt");
}

#[test]
fn types_and_their_data() {
    check_cases("types.txt");
}

#[test]
fn svcb() {
    check_cases("svcb.txt");
}

#[test]
fn octets_that_a_case_file_cannot_hold() {
    let a = "a.example.com. 5 A \\# 4 c0000201\n";
    check(b"a 5 A 192.0.2.1\r\n\r\n", a);
    check(b"a 5 A 192.0.2.1", a);
    check(b"\xef\xbb\xbfa 5 A 192.0.2.1\n", a);
    check(b"a\t5\tA\t(\r\n192.0.2.1\r\n)\r\n; \x00 in a comment\n", a);
    check(b"caf\xc3\xa9 5 TXT \xff", "caf\\195\\169.example.com. 5 TXT \\# 2 01ff\n");
    check(
        b"a\0b 5 A 192.0.2.1\na 5 A 192.0.2.1\n",
        &format!(
            "{a}zone:1:2: error: control octet \\000; \
             accepted: text; in a name or string, the escape `\\000`\n"
        ),
    );
    check(b"", "");
    check(
        b"\\",
        "zone:1:1: error: `\\` at the end of a line; accepted: `\\` before the octet it escapes\n",
    );
}

#[test]
fn bounds_hold() {
    let long = format!("a 5 TXT {}\n", "x".repeat(super::TOKEN_LEN_MAX + 1));
    assert!(
        outcome(long.as_bytes(), Some(ORIGIN)).starts_with("zone:1:9: error: a word of 262145")
    );
    let wide = format!("a 5 TXT{}\nb 5 A 192.0.2.1\n", " x".repeat(super::ENTRY_TOKENS_MAX));
    let found = outcome(wide.as_bytes(), Some(ORIGIN));
    assert!(found.contains("too many words in one entry") && found.contains("b.example.com."));
    let large = format!("a 5 TXT{}\n", " xyz".repeat(16_384));
    assert!(outcome(large.as_bytes(), Some(ORIGIN)).contains("record data of 65536 octets"));
    let label = "x".repeat(63);
    let name = format!("{label}.{label}.{label}.{}", "y".repeat(61));
    let found = outcome(format!("{name}. 5 NS {name}.\n").as_bytes(), None);
    assert!(found.starts_with(&name), "255 octets are a name: {found}");
    let found = outcome(format!("{name}y. 5 NS .\n").as_bytes(), None);
    assert!(found.contains("has 256 octets"), "{found}");
}

/// One file, as large as is wanted of it and never read.
struct Hoard {
    asked: Vec<usize>,
}

impl Includes for Hoard {
    fn open(
        &mut self,
        path: &str,
        _from_file: &str,
        len_max: usize,
    ) -> Result<(String, Vec<u8>), String> {
        self.asked.push(len_max);
        match path.parse() {
            Ok(len) if len <= len_max => Ok((path.to_string(), vec![b'\n'; len])),
            _ => Err("too large".into()),
        }
    }
}

/// Whoever opens an included file knows how much of it will be taken before
/// reading any of it.
#[test]
fn includes_know_the_room_that_is_left() {
    let mut hoard = Hoard { asked: Vec::new() };
    let (mut records, mut problems) = (RecordSet::default(), Problems::new("zone"));
    let text = format!("$INCLUDE 1000\n$INCLUDE {0}\n$INCLUDE 24\n", super::INCLUDED_LEN_MAX);
    Reader::new().read(text.as_bytes(), None, &mut hoard, &mut records, &mut problems);
    let max = super::INCLUDED_LEN_MAX;
    assert_eq!(hoard.asked, [max, max - 1000, max - 1000], "what is refused takes no room");
    assert!(problems.to_string().contains("of all together at most 1 GiB"), "{problems}");
}

#[test]
fn unclosed_parentheses_cost_linear_time() {
    let text = "b 5 A\n 5 A (\n".repeat(200_000);
    let (records, problems) = load(text.as_bytes(), Some(ORIGIN));
    assert!(records.is_empty() && problems.errors() > 100_000);
}

#[test]
fn a_reader_keeps_nothing_of_the_last_zone() {
    let mut reader = Reader::new();
    let (mut records, mut problems) = (RecordSet::default(), Problems::new("zone"));
    let text = b"$ORIGIN a.\n$TTL 5\nb A 192.0.2.1\n";
    reader.read(text, None, &mut NoIncludes, &mut records, &mut problems);
    assert!(problems.is_empty());
    reader.read(
        b"b A 192.0.2.1\n A 192.0.2.2\n",
        None,
        &mut NoIncludes,
        &mut records,
        &mut problems,
    );
    assert_eq!((records.len(), problems.errors()), (1, 2), "{problems}");
}

/// Data that another implementation of the types takes apart without error.
#[test]
fn the_domain_crate_agrees_on_the_wire_form() {
    use domain::base::iana::Rtype;
    use domain::base::{ParseRecordData, ParsedName};
    use domain::dep::octseq::Parser;
    use domain::rdata::ZoneRecordData;
    let cases = include_str!("cases/types.txt");
    let mut compared = 0;
    for case in cases.split("=== ").skip(1) {
        let text = case.split_once('\n').unwrap().1.split_once("---\n").unwrap().0;
        for record in load(text.as_bytes(), Some(ORIGIN)).0.iter() {
            let mut parser = Parser::from_ref(record.rdata);
            let rtype = Rtype::from_int(record.rtype);
            let parsed = ZoneRecordData::<_, ParsedName<_>>::parse_rdata(rtype, &mut parser);
            assert!(parsed.is_ok_and(|data| data.is_some()), "{}", render(record));
            assert_eq!(parser.remaining(), 0, "{}", render(record));
            compared += 1;
        }
    }
    assert!(compared > 80);
}

const SAMPLE: &str = include_str!("cases/types.txt");

proptest! {
    #[test]
    fn any_octets_are_read_without_panic(text in prop::collection::vec(any::<u8>(), 0..400)) {
        load(&text, Some(ORIGIN));
    }

    #[test]
    fn any_mix_of_pieces_is_read_without_panic(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "a", " ", "\n", "(", ")", "\"", "\\", "$", ";", "@", ".", "=", "5", "A", "TXT", "LOC",
            "SVCB", "APL", "\\#", "alpn=\"", "$GENERATE", "0-3", "${", "}", "$INCLUDE", "self",
            "NSEC3", "HIP", "-", "/", ":", "\\300", "\r", "\0", "N", "E", "1.2", "!1:",
        ]), 0..60),
    ) {
        load(pieces.concat().as_bytes(), Some(ORIGIN));
    }

    #[test]
    fn changed_files_are_read_without_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..9),
    ) {
        let mut text = SAMPLE.as_bytes().to_vec();
        for (index, octet, kind) in changes {
            let at = index.index(text.len());
            match kind {
                0 => text[at] = octet,
                1 => drop(text.remove(at)),
                _ => text.insert(at, octet),
            }
        }
        load(&text, Some(ORIGIN));
    }

    #[test]
    fn records_written_back_are_read_back(
        labels in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 0..5),
        rtype in prop_oneof![Just(16u16), Just(99), 300..65_000u16],
        strings in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..5),
        ttl_secs in 0..=super::TTL_SECS_MAX,
    ) {
        let mut owner = Vec::new();
        for label in &labels {
            owner.push(label.len() as u8);
            owner.extend_from_slice(label);
        }
        owner.push(0);
        let mut rdata = Vec::new();
        let mut quoted = String::new();
        for string in &strings {
            rdata.push(string.len() as u8);
            rdata.extend_from_slice(string);
            quoted.push_str(" \"");
            string.iter().for_each(|octet| write!(quoted, "\\{octet:03}").unwrap());
            quoted.push('"');
        }
        let at = Default::default();
        let record = Record { owner: &owner, rtype, ttl_secs, rdata: &rdata, at };
        let (records, problems) = load(render(record).as_bytes(), None);
        prop_assert!(problems.is_empty(), "{}", problems);
        let back = records.get(0);
        prop_assert_eq!(Record { at: record.at, ..back }, record);
        let text = format!("{} {ttl_secs} TXT{quoted}", Name::parse(&owner).unwrap());
        let (records, _) = load(text.as_bytes(), None);
        prop_assert_eq!(records.get(0).rdata, &rdata[..]);
    }
}
