//! Shuffle shards by construction: every tenant gets a few workers of a fleet,
//! and no two tenants ever share more of them than was promised.
//!
//! A tenant that is flooded, or that kills its workers with a poisonous
//! request, then takes down its own shard and nobody else's. The usual way to
//! find such shards is to draw at random and to compare with everything drawn
//! before, which is slow, needs memory for every tenant, and stops far from
//! what is possible. Here shards come from arithmetic: a [`Design`] turns a
//! number into a shard and a shard into its number in nanoseconds, stores
//! nothing per tenant, and reaches the packing bound where one is known.
//!
//! # A short guide
//!
//! Describe the [`Fleet`], say what you wish, and let the [`Plan`] find the
//! design:
//!
//! ```
//! use shuffle::{Fleet, Key, Plan, STRIPE, Wish};
//!
//! // 2048 name servers in four stripes, each under a domain of its own.
//! let fleet = Fleet::numbered(2048, Some(4))?;
//! let wish = Wish { size: 4, overlap: Some(2), apart: vec![STRIPE.into()], ..Wish::default() };
//! let plan = Plan::new(&fleet, &wish, &Key::PUBLIC)?;
//! assert_eq!(plan.design.capacity(), 134_217_728);
//! assert_eq!(plan.design.guarantee().survives_attackers(), Some(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Then hand out shards. The [`Allocator`] counts, takes numbers back, and is
//! kept as a few octets; write them before you tell a tenant its shard:
//!
//! ```
//! use std::sync::Arc;
//! use shuffle::{Admission, Allocator, Design, Fleet, Key, STRIPE};
//!
//! let columns = Fleet::numbered(2048, Some(4))?.columns(4, &[STRIPE])?;
//! let design = Arc::new(Design::striped(columns, 2, None, &Key::PUBLIC));
//! let mut allocator = Allocator::new(design.clone());
//! let (index, shard) = allocator.allocate(&Admission::everyone()).ok_or("full")?;
//! let kept = allocator.to_bytes();
//!
//! // After a restart:
//! let allocator = Allocator::from_bytes(design.clone(), &kept)?;
//! let index = allocator.confirm(index.get()).ok_or("not handed out")?;
//! assert_eq!(design.shard(index), Some(shard));
//! assert_eq!(design.index(&shard), Some(index));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A number of a shard comes from an allocator and from nowhere else. Hashing
//! a tenant's name into the numbers of a design would put pairs of tenants on
//! the same shard, so [`DesignIndex`] cannot be made from a hash.
//!
//! # Which design
//!
//! | fleet | shards | design | how many |
//! |---|---|---|---|
//! | `k` stripes of `q` | one of each stripe, `k = t + 2` | sum | `q^(t+1)`, any `q` |
//! | `k` stripes of `q` | one of each stripe | polynomials of degree `t` | `q^(t+1)` if the prime powers in `q` are `k` or more, else a few less |
//! | uneven stripes | one of each stripe | the same with gaps | `k = t + 2`: the product of the `t + 1` shortest |
//! | no stripes, `2^n` workers | 4 with overlap 2 | Boolean quadruples | the packing bound |
//! | no stripes | 2 with overlap 1 | all pairs | the packing bound |
//! | small, anything else | any | exhaustive search | says whether it is the most possible |
//!
//! Two flooded tenants can touch `2t` workers of a third, so `j` of them leave
//! everybody else a worker if `k > j * t`: [`Guarantee::survives_attackers`].
#![forbid(unsafe_code)]

mod admission;
mod allocator;
mod answers;
mod assignment;
pub mod blast;
pub mod bound;
mod code;
pub mod compare;
mod count;
mod design;
mod fleet;
mod hosts;
mod key;
mod lattice;
mod nested;
mod packed;
mod pairs;
mod plan;
mod quadruple;
mod resize;
mod ring;
mod search;
mod shard;
mod shared;
mod signature;
pub mod spectrum;
pub mod suspects;
mod tally;
pub mod verify;

pub use admission::Admission;
pub use allocator::{Allocator, StateError};
pub use answers::{AnswerSet, Answers, Branch, Outcome, Tree};
pub use assignment::{Assignment, FOREIGN_SIZE_MAX, Problem, Problems, TENANTS_MAX};
pub use blast::Blast;
pub use design::{Design, Guarantee};
pub use fleet::{Columns, Fleet, FleetError, STRIPE, WORKERS_MAX, Worker};
pub use hosts::{Applied, Host, HostChange, HostId, MapError, Move, SlotMap, Step};
pub use key::{Key, KeyError};
pub use lattice::{Lack, Lattice, LatticeError, LatticeShard, Placed};
pub use nested::{Nested, NestedError, NestedGuarantee, NestedIndex};
pub use packed::{PackedMap, Sharing};
pub use plan::{Change, Plan, Refusal, Wish};
pub use resize::{
    Beyond, Dark, Relocations, Replay, Resize, ResizePlan, ResizeRefusal, Violation, plan_resize,
};
pub use shard::{DesignIndex, SIZE_MAX, Shard, Slot};
pub use signature::{Signature, SignatureShard};
pub use spectrum::{Spectrum, SpectrumRange};
pub use suspects::{Explanation, Suspect, Suspects};
pub use tally::CountError;
