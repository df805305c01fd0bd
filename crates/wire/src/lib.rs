//! The DNS fast path: a question read from untrusted bytes, an answer written
//! into a caller's buffer. Nothing here blocks or knows a zone, and nothing on
//! the way from question to answer allocates. What a zone file may contain is
//! known to `authority`.
#![forbid(unsafe_code)]

pub mod code;
pub mod cookie;
pub mod edns;
pub mod name;
pub mod query;
pub mod reply;

pub use code::{ExtendedError, Rcode, class, opcode, rtype};
pub use cookie::{CookieSecrets, Secret};
pub use edns::{Edns, OptReply};
pub use name::Name;
pub use query::{DropReason, Flags, Query, QueryName, Verdict};
pub use reply::{Block, Owner, Reply, Section};
