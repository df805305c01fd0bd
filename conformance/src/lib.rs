//! Pharos and its peers (Knot, NSD, BIND) get the same zones and the same questions; every
//! difference is either decided by a clause of an RFC, listed in [`rules`], or a finding.
//!
//! The way through: [`zones`] makes zone files from a seed, [`sign`] signs some of them, [`peers`]
//! starts the servers, [`truth`] reads back what was loaded, [`queries`] and [`odd`] make the
//! messages, [`ask`] sends them, [`answer`] normalises what came back. Two judges follow:
//! [`invariants`] holds Pharos against [`model`] and [`denial`], which say what the RFCs demand
//! of these zones; [`compare`] holds it against each peer, and [`rules`] lists the differences
//! that a clause decides. [`report`] says what happened. [`differ`] holds these steps together;
//! [`clients`] is apart: real clients against Pharos.
//!
//! Absent on purpose: any code of Pharos, any DNS library, any clock or random source that
//! decides what is asked.

pub mod answer;
pub mod ask;
pub mod clients;
pub mod compare;
pub mod denial;
pub mod differ;
pub mod invariants;
pub mod model;
pub mod name;
pub mod odd;
pub mod peers;
pub mod queries;
pub mod random;
pub mod report;
pub mod rtype;
pub mod rules;
pub mod scratch;
pub mod sign;
pub mod truth;
pub mod wire;
pub mod zones;
