//! Record types: mnemonics, and where names stand inside their data.

pub const A: u16 = 1;
pub const NS: u16 = 2;
pub const CNAME: u16 = 5;
pub const SOA: u16 = 6;
pub const PTR: u16 = 12;
pub const MX: u16 = 15;
pub const TXT: u16 = 16;
pub const AAAA: u16 = 28;
pub const SRV: u16 = 33;
pub const NAPTR: u16 = 35;
pub const DNAME: u16 = 39;
pub const OPT: u16 = 41;
pub const DS: u16 = 43;
pub const RRSIG: u16 = 46;
pub const NSEC: u16 = 47;
pub const DNSKEY: u16 = 48;
pub const NSEC3: u16 = 50;
pub const NSEC3PARAM: u16 = 51;
pub const SVCB: u16 = 64;
pub const HTTPS: u16 = 65;
pub const AXFR: u16 = 252;
pub const ANY: u16 = 255;
pub const CAA: u16 = 257;
/// A type without meaning, from the private range (RFC 3597, RFC 6895 3.1).
pub const PRIVATE: u16 = 65280;

pub const CLASS_IN: u16 = 1;
pub const CLASS_CH: u16 = 3;
pub const CLASS_ANY: u16 = 255;

const NAMES: &[(u16, &str)] = &[
    (A, "A"),
    (NS, "NS"),
    (CNAME, "CNAME"),
    (SOA, "SOA"),
    (PTR, "PTR"),
    (MX, "MX"),
    (TXT, "TXT"),
    (AAAA, "AAAA"),
    (SRV, "SRV"),
    (NAPTR, "NAPTR"),
    (DNAME, "DNAME"),
    (OPT, "OPT"),
    (DS, "DS"),
    (RRSIG, "RRSIG"),
    (NSEC, "NSEC"),
    (DNSKEY, "DNSKEY"),
    (NSEC3, "NSEC3"),
    (NSEC3PARAM, "NSEC3PARAM"),
    (SVCB, "SVCB"),
    (HTTPS, "HTTPS"),
    (AXFR, "AXFR"),
    (ANY, "ANY"),
    (CAA, "CAA"),
];

pub fn mnemonic(rtype: u16) -> String {
    match NAMES.iter().find(|(code, _)| *code == rtype) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("TYPE{rtype}"),
    }
}

pub fn class_mnemonic(class: u16) -> String {
    match class {
        CLASS_IN => "IN".to_owned(),
        CLASS_CH => "CH".to_owned(),
        CLASS_ANY => "ANY".to_owned(),
        other => format!("CLASS{other}"),
    }
}

pub fn rcode_mnemonic(rcode: u16) -> String {
    let known = ["NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN"];
    match known.get(rcode as usize) {
        Some(name) => (*name).to_owned(),
        None if rcode == 9 => "NOTAUTH".to_owned(),
        None if rcode == 16 => "BADVERS".to_owned(),
        None if rcode == 23 => "BADCOOKIE".to_owned(),
        None => format!("RCODE{rcode}"),
    }
}

/// A field of record data, as far as names are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// A name that may be compressed: only the types of RFC 1035 (RFC 3597 4).
    Compressible,
    /// A name that must not be compressed and whose case does not count (RFC 4034 6.2).
    Plain,
    /// A name whose case goes into signatures (NSEC: RFC 6840 5.1; SVCB is newer than the list).
    Cased,
    Octets(usize),
    CharString,
    Rest,
}

pub fn layout(rtype: u16) -> &'static [Field] {
    use Field::*;
    match rtype {
        NS | CNAME | PTR => &[Compressible],
        SOA => &[Compressible, Compressible, Octets(20)],
        MX => &[Octets(2), Compressible],
        DNAME => &[Plain],
        SRV => &[Octets(6), Plain],
        NAPTR => &[Octets(4), CharString, CharString, CharString, Plain],
        RRSIG => &[Octets(18), Plain, Rest],
        NSEC => &[Cased, Rest],
        SVCB | HTTPS => &[Octets(2), Cased, Rest],
        A => &[Octets(4)],
        AAAA => &[Octets(16)],
        _ => &[Rest],
    }
}
