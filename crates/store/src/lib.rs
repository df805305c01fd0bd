//! Where drains keep what must survive them: one SQLite file.
//!
//! It holds runs and their records, who may write them, what earlier runs
//! learnt, where knobs stood before a drain, and an audit log that shows when
//! it was changed. Records are texts with a number: this crate knows nothing
//! of plans or engines, and the file outlives changes of both.
//!
//! What is returned as written is on the disk: every transaction is synced
//! (`synchronous=FULL`) before its call ends, and a transaction is there whole
//! or not at all, whenever the process or the machine stops.
//!
//! Times are arguments, in milliseconds since the beginning of 1970.
#![forbid(unsafe_code)]

mod audit;
pub mod chain;
mod claims;
mod custody;
mod error;
mod fences;
mod history;
mod key;
mod lease;
mod open;
mod originals;
mod records;
mod runs;
mod schema;
mod step;
mod writer;

pub use audit::{
    AUDIT_LIMIT_MAX, Audit, AuditEntry, Head, KnownHead, Proof, SignedPart, Trust, Verdict,
    verify_audit_file,
};
pub use claims::{Claim, Claimed};
pub use custody::{
    Interpret, Meaning, Unmatched, opening_action, plan_misfit, row_misfit, unmatched, unopened,
};
pub use error::{Error, Result};
pub use fences::ClosedFence;
pub use history::{HISTORY_LIMIT_MAX, Performance};
pub use key::{AuditKey, KeyId, PublicKey, SentHead, Signature, public_path};
pub use lease::{CLOCKS_DIFFER_MAX_MS, Lease, is_live};
pub use open::{READERS_MAX, Store};
pub use originals::{Drained, Original};
pub use records::{ENTRIES_MAX, Entry, JSON_LEN_MAX, Records};
pub use runs::{Filter, NewRun, PLAN_LEN_MAX, RUNS_LIMIT_MAX, Run, RunId};
pub use step::{Deed, Step};
