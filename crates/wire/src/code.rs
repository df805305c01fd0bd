//! Numbers of the protocol that the fast path knows by name.

/// Record types (IANA registry "Resource Record (RR) TYPEs").
pub mod rtype {
    pub const A: u16 = 1;
    pub const NS: u16 = 2;
    pub const CNAME: u16 = 5;
    pub const SOA: u16 = 6;
    pub const PTR: u16 = 12;
    pub const MX: u16 = 15;
    pub const TXT: u16 = 16;
    pub const AAAA: u16 = 28;
    pub const SRV: u16 = 33;
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
    pub const TSIG: u16 = 250;
    pub const IXFR: u16 = 251;
    pub const AXFR: u16 = 252;
    pub const MAILB: u16 = 253;
    pub const MAILA: u16 = 254;
    pub const ANY: u16 = 255;
}

/// Classes.
pub mod class {
    pub const IN: u16 = 1;
    pub const CH: u16 = 3;
}

/// Operation codes.
pub mod opcode {
    pub const QUERY: u8 = 0;
    pub const UPDATE: u8 = 5;
}

/// Response codes, the extended ones with the bits that EDNS carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Rcode {
    NoError = 0,
    FormErr = 1,
    ServFail = 2,
    NxDomain = 3,
    NotImp = 4,
    Refused = 5,
    YxDomain = 6,
    BadVers = 16,
}

impl Rcode {
    /// Every code this server sends, in the order of their numbers.
    pub const ALL: [Rcode; 8] = [
        Rcode::NoError,
        Rcode::FormErr,
        Rcode::ServFail,
        Rcode::NxDomain,
        Rcode::NotImp,
        Rcode::Refused,
        Rcode::YxDomain,
        Rcode::BadVers,
    ];

    /// The name used in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Rcode::NoError => "NOERROR",
            Rcode::FormErr => "FORMERR",
            Rcode::ServFail => "SERVFAIL",
            Rcode::NxDomain => "NXDOMAIN",
            Rcode::NotImp => "NOTIMP",
            Rcode::Refused => "REFUSED",
            Rcode::YxDomain => "YXDOMAIN",
            Rcode::BadVers => "BADVERS",
        }
    }

    /// Place in [`Rcode::ALL`], for counters.
    pub fn index(self) -> usize {
        match self {
            Rcode::BadVers => 7,
            other => other as usize,
        }
    }
}

/// An extended DNS error (RFC 8914): a code and a text that never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedError {
    /// INFO-CODE.
    pub code: u16,
    /// EXTRA-TEXT, UTF-8.
    pub text: &'static str,
}

impl ExtendedError {
    /// The answer is past its time, and nobody has a newer one (RFC 8767).
    pub const STALE_ANSWER: ExtendedError = ExtendedError { code: 3, text: "" };
    /// The same, for an answer that says that the name is not there.
    pub const STALE_NXDOMAIN: ExtendedError = ExtendedError { code: 19, text: "" };
    /// No zone of this server holds the name.
    pub const NOT_AUTHORITATIVE: ExtendedError =
        ExtendedError { code: 20, text: "no zone here holds this name" };
    /// A zone holds the name, but on other name servers.
    pub const NOT_SERVED_HERE: ExtendedError =
        ExtendedError { code: 20, text: "not a name server of this name's zone" };
    /// The zone is known but its data could not be loaded.
    pub const INVALID_ZONE: ExtendedError =
        ExtendedError { code: 24, text: "the zone's data is not valid" };
    /// The question asks for something this server does not do.
    pub const NOT_SUPPORTED: ExtendedError =
        ExtendedError { code: 21, text: "not supported by this server" };
    /// A chain of aliases is longer than this server follows.
    pub const CHAIN_TOO_LONG: ExtendedError =
        ExtendedError { code: 0, text: "the chain of aliases is too long" };
    /// A chain of aliases leads back to a name that it passed.
    pub const CHAIN_LOOPS: ExtendedError =
        ExtendedError { code: 0, text: "the chain of aliases is a loop" };
}
