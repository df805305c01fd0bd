//! Things that are wrong with a world on purpose: each is one that a checker
//! has to find. None is in the engine: what it does stays as it is, and the
//! world lies about it or to it.

use crate::settings::Kind;

/// What is wrong with the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// An octet of a record changes on the way to a client.
    AlteredReply,
    /// A client gets a SERVFAIL in place of its answer.
    NeedlessFailure,
    /// A client gets NOERROR without records in place of its failure.
    EmptiedFailure,
    /// The clock of a node goes at half speed, so that its entries outlive
    /// their time.
    SlowClock,
    /// A reply is lost.
    LostReply,
    /// A reply comes twice.
    DoubledReply,
    /// A reply is held back until it is too late.
    LateReply,
    /// Upstream servers see a question twice.
    DoubledQuestion,
    /// A node is never told of another view.
    WithheldViews,
    /// A forger knows port, id and letters.
    PerfectForgery,
    /// Somebody asks whom nobody sees, when cells should be at rest.
    UnseenQuestion,
    /// Neither handovers nor questions to former owners arrive.
    LostHandover,
}

impl Sabotage {
    /// Every sabotage with the checker that must find it, and the kind of world
    /// in which it can.
    pub const ALL: [(Sabotage, &str, Kind); 12] = [
        (Sabotage::AlteredReply, "replies", Kind::Calm),
        (Sabotage::NeedlessFailure, "replies", Kind::Calm),
        (Sabotage::EmptiedFailure, "replies", Kind::Calm),
        (Sabotage::SlowClock, "replies", Kind::Calm),
        (Sabotage::LostReply, "deadline", Kind::Calm),
        (Sabotage::DoubledReply, "deadline", Kind::Calm),
        (Sabotage::LateReply, "deadline", Kind::Calm),
        (Sabotage::DoubledQuestion, "once", Kind::Calm),
        (Sabotage::WithheldViews, "agreement", Kind::Orderly),
        (Sabotage::PerfectForgery, "forgery", Kind::Calm),
        (Sabotage::UnseenQuestion, "bounds", Kind::Calm),
        (Sabotage::LostHandover, "warmth", Kind::Orderly),
    ];
}
