//! Things that are wrong with a world on purpose: each is one that a checker
//! has to find. None is in the engine: what it does stays as it is, and the
//! world lies about it or to it.

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
    /// A node is not told of the last view.
    WithheldView,
    /// A forger knows port, id and letters.
    PerfectForgery,
    /// A cell is not woken any more once it has work under way.
    StoppedTimers,
    /// Neither handovers nor questions to former owners arrive.
    LostHandover,
}

impl Sabotage {
    /// Every sabotage with the checker that must find it.
    pub const ALL: [(Sabotage, &str); 12] = [
        (Sabotage::AlteredReply, "replies"),
        (Sabotage::NeedlessFailure, "replies"),
        (Sabotage::EmptiedFailure, "replies"),
        (Sabotage::SlowClock, "replies"),
        (Sabotage::LostReply, "deadline"),
        (Sabotage::DoubledReply, "deadline"),
        (Sabotage::LateReply, "deadline"),
        (Sabotage::DoubledQuestion, "once"),
        (Sabotage::WithheldView, "agreement"),
        (Sabotage::PerfectForgery, "forgery"),
        (Sabotage::StoppedTimers, "bounds"),
        (Sabotage::LostHandover, "warmth"),
    ];
}
