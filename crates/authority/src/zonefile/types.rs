//! Record types: their names and the fields of their data.
//!
//! One table says how a type is written and how it lies in a message. Both the
//! reader of text ([`super::rdata`]) and the check of RFC 3597 data
//! ([`super::wirecheck`]) follow it, so they cannot disagree.

/// One field of record data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// Number of 8, 16 or 32 bits.
    U8,
    U16,
    U32,
    /// 32 bits, written in seconds or with units.
    Period,
    /// RRSIG time: `YYYYMMDDHHmmSS` or seconds (RFC 4034, 3.2).
    Time,
    Name,
    Ipv4,
    Ipv6,
    /// One character string, length octet and at most 255 octets.
    String,
    /// The same, but may be left out.
    StringMaybe,
    /// One or more character strings.
    Strings,
    /// One word or string that fills the rest of the data.
    Text,
    /// CAA property tag: a string of letters and digits (RFC 8659, 4.1).
    Tag,
    /// Hexadecimal or base 64 words that fill the rest of the data.
    Hex,
    Base64,
    /// NSEC3 salt: `-` or hexadecimal, with a length octet.
    Salt,
    /// NSEC3 next owner: base 32, with a length octet.
    Hash,
    /// Record types as a bitmap (RFC 4034, 4.1.2).
    Types,
    /// One record type, 16 bits.
    Type,
    /// DNSSEC algorithm, number or mnemonic.
    Algorithm,
    /// CERT type, number or mnemonic (RFC 4398, 2.1).
    CertType,
    /// DSYNC scheme, number or mnemonic (RFC 9859, 2.1).
    Scheme,
    /// 48 or 64 bits as hyphenated pairs (RFC 7043).
    Eui48,
    Eui64,
    /// 64 bits as four groups with colons (RFC 6742).
    Locator64,
    /// The fields with rules of their own, see `rdata_rare` and `svcb`.
    SvcParams,
    Location,
    Prefixes,
    IpsecGateway,
    RelayTail,
    HostIdentity,
    Nsap,
    /// No presentation form is known, or none worth code: only `\#`.
    Opaque,
}

/// A record type: name, number, and the fields with the words for them.
#[derive(Debug)]
pub(super) struct Spec {
    pub name: &'static str,
    pub code: u16,
    pub fields: &'static [(Field, &'static str)],
}

macro_rules! types {
    ($($name:literal $code:literal $($field:ident $label:literal),+;)+) => {
        &[$(Spec {
            name: $name,
            code: $code,
            fields: &[$((Field::$field, $label)),+],
        }),+]
    };
}

/// Ordered by how often zones hold them; the search is linear.
static TYPES: &[Spec] = types! {
    "A" 1 Ipv4 "IPv4 address";
    "AAAA" 28 Ipv6 "IPv6 address";
    "NS" 2 Name "name server";
    "MX" 15 U16 "preference", Name "host name";
    "TXT" 16 Strings "text";
    "CNAME" 5 Name "target name";
    "SOA" 6 Name "primary server", Name "mailbox", U32 "serial", Period "refresh", Period "retry",
        Period "expire", Period "minimum";
    "RRSIG" 46 Type "type covered", Algorithm "algorithm", U8 "labels", Period "original TTL",
        Time "expiration", Time "inception", U16 "key tag", Name "signer", Base64 "signature";
    "NSEC" 47 Name "next name", Types "types";
    "NSEC3" 50 U8 "hash algorithm", U8 "flags", U16 "iterations", Salt "salt",
        Hash "next hashed owner", Types "types";
    "DS" 43 U16 "key tag", Algorithm "algorithm", U8 "digest type", Hex "digest";
    "DNSKEY" 48 U16 "flags", U8 "protocol", Algorithm "algorithm", Base64 "public key";
    "PTR" 12 Name "target name";
    "SRV" 33 U16 "priority", U16 "weight", U16 "port", Name "target name";
    "CAA" 257 U8 "flags", Tag "tag", Text "value";
    "HTTPS" 65 U16 "priority", Name "target name", SvcParams "any parameters";
    "SVCB" 64 U16 "priority", Name "target name", SvcParams "any parameters";
    "TLSA" 52 U8 "usage", U8 "selector", U8 "matching type", Hex "association data";
    "SSHFP" 44 U8 "algorithm", U8 "fingerprint type", Hex "fingerprint";
    "NAPTR" 35 U16 "order", U16 "preference", String "flags", String "services", String "regexp",
        Name "replacement";
    "DNAME" 39 Name "target name";
    "NSEC3PARAM" 51 U8 "hash algorithm", U8 "flags", U16 "iterations", Salt "salt";
    "CDS" 59 U16 "key tag", Algorithm "algorithm", U8 "digest type", Hex "digest";
    "CDNSKEY" 60 U16 "flags", U8 "protocol", Algorithm "algorithm", Base64 "public key";
    "ZONEMD" 63 U32 "serial", U8 "scheme", U8 "hash algorithm", Hex "digest";
    "HINFO" 13 String "CPU", String "OS";
    "RP" 17 Name "mailbox", Name "text name";
    "LOC" 29 Location "location";
    "SPF" 99 Strings "text";
    "URI" 256 U16 "priority", U16 "weight", Text "target";
    "CERT" 37 CertType "certificate type", U16 "key tag", Algorithm "algorithm",
        Base64 "certificate";
    "SMIMEA" 53 U8 "usage", U8 "selector", U8 "matching type", Hex "association data";
    "OPENPGPKEY" 61 Base64 "key";
    "IPSECKEY" 45 U8 "precedence", IpsecGateway "gateway type, algorithm, gateway and key";
    "DHCID" 49 Base64 "identifier";
    "AFSDB" 18 U16 "subtype", Name "host name";
    "KX" 36 U16 "preference", Name "host name";
    "APL" 42 Prefixes "prefixes";
    "CSYNC" 62 U32 "serial", U16 "flags", Types "types";
    "EUI48" 108 Eui48 "address";
    "EUI64" 109 Eui64 "address";
    "NID" 104 U16 "preference", Locator64 "node identifier";
    "L32" 105 U16 "preference", Ipv4 "locator";
    "L64" 106 U16 "preference", Locator64 "locator";
    "LP" 107 U16 "preference", Name "locator name";
    "HIP" 55 HostIdentity "algorithm, host identity, public key and servers";
    "AMTRELAY" 260 U8 "precedence", RelayTail "discovery bit, relay type and relay";
    "DSYNC" 66 Type "type", Scheme "scheme", U16 "port", Name "target name";
    "DLV" 32769 U16 "key tag", Algorithm "algorithm", U8 "digest type", Hex "digest";
    "TA" 32768 U16 "key tag", Algorithm "algorithm", U8 "digest type", Hex "digest";
    "TALINK" 58 Name "previous name", Name "next name";
    "MB" 7 Name "host name";
    "MD" 3 Name "host name";
    "MF" 4 Name "host name";
    "MG" 8 Name "mailbox";
    "MR" 9 Name "mailbox";
    "MINFO" 14 Name "responsible mailbox", Name "error mailbox";
    "RT" 21 U16 "preference", Name "host name";
    "PX" 26 U16 "preference", Name "RFC 822 domain", Name "X.400 domain";
    "X25" 19 String "address";
    "ISDN" 20 String "address", StringMaybe "subaddress";
    "GPOS" 27 String "longitude", String "latitude", String "altitude";
    "NSAP" 22 Nsap "address";
    "NSAP-PTR" 23 Name "target name";
    "SIG" 24 Type "type covered", Algorithm "algorithm", U8 "labels", Period "original TTL",
        Time "expiration", Time "inception", U16 "key tag", Name "signer", Base64 "signature";
    "KEY" 25 U16 "flags", U8 "protocol", Algorithm "algorithm", Base64 "public key";
    "EID" 31 Hex "identifier";
    "NIMLOC" 32 Hex "locator";
    "NINFO" 56 Strings "text";
    "RKEY" 57 U16 "flags", U8 "protocol", Algorithm "algorithm", Base64 "public key";
    "AVC" 258 Strings "text";
    "RESINFO" 261 Strings "text";
    "WALLET" 262 Strings "text";
    "CLA" 263 Strings "text";
    "NULL" 10 Opaque "data";
    "WKS" 11 Opaque "data";
    "NXT" 30 Opaque "data";
    "ATMA" 34 Opaque "data";
    "A6" 38 Opaque "data";
    "SINK" 40 Opaque "data";
    "DOA" 259 Opaque "data";
    "IPN" 264 Opaque "data";
};

/// A type without an entry of its own.
pub(super) static UNKNOWN: Spec =
    Spec { name: "an unknown type", code: 0, fields: &[(Field::Opaque, "data")] };

/// Types that only exist in questions and messages (RFC 6895, 3.1).
static META: &[(&str, u16)] = &[
    ("ANY", 255),
    ("*", 255),
    ("AXFR", 252),
    ("IXFR", 251),
    ("MAILA", 254),
    ("MAILB", 253),
    ("OPT", 41),
    ("TSIG", 250),
    ("TKEY", 249),
    ("NXNAME", 128),
];

/// True for a type that cannot stand in a zone: 0, OPT, and the range that
/// RFC 6895, 3.1 sets aside for questions and messages.
pub(super) fn is_meta(code: u16) -> bool {
    matches!(code, 0 | 41 | 128..=255)
}

/// The entry of a type number.
pub(super) fn by_code(code: u16) -> Option<&'static Spec> {
    TYPES.iter().find(|spec| spec.code == code)
}

/// The entry of a type name in any case.
#[inline]
pub(super) fn by_name(name: &[u8]) -> Option<&'static Spec> {
    TYPES.iter().find(|spec| name.eq_ignore_ascii_case(spec.name.as_bytes()))
}

/// The number of a type name or `TYPE123`, meta types included.
pub(super) fn code(name: &[u8]) -> Option<u16> {
    if let Some(spec) = by_name(name) {
        return Some(spec.code);
    }
    if let Some((prefix, digits)) = name.split_at_checked(4)
        && prefix.eq_ignore_ascii_case(b"TYPE")
    {
        return super::text::parse_digits(digits).and_then(|number| number.try_into().ok());
    }
    let found = META.iter().find(|(meta, _)| name.eq_ignore_ascii_case(meta.as_bytes()));
    found.map(|&(_, code)| code)
}

/// The known type name nearest to a mistyped one, if one is near.
#[cold]
pub(super) fn nearest(name: &[u8]) -> Option<&'static str> {
    if name.len() > 12 {
        return None;
    }
    let name = name.to_ascii_uppercase();
    let near = |spec: &'static Spec| (distance(&name, spec.name.as_bytes()), spec.name);
    let (distance, found) = TYPES.iter().map(near).min_by_key(|&(distance, _)| distance)?;
    // One slip, or two in a word that keeps more than half its letters.
    (distance <= 1 && name.len() > 1 || distance == 2 && name.len() > 4).then_some(found)
}

/// Edits between two words; swapping neighbours counts as one.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = match (i, j) {
                (_, 0) => i,
                (0, _) => j,
                _ => {
                    let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    let least = changed.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                    let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                    if swapped { least.min(rows[i - 2][j - 2] + 1) } else { least }
                }
            };
        }
    }
    rows[a.len()][b.len()]
}
