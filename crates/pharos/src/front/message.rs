//! What the front reads of a message: its header and its question. The rest
//! is between the client and the node.

use wire::name::NAME_LEN_MAX;
use wire::query::HEADER_LEN;
use wire::{Flags, Name};

use super::counters::Loss;

/// Octets of a header and the longest question: what must be kept of a message
/// to recognise its answer.
pub const QUESTION_END_MAX: usize = HEADER_LEN + NAME_LEN_MAX + 4;

/// Says whether a client's message may be passed on. Nodes judge the rest.
#[inline]
pub fn check_question(message: &[u8]) -> Result<(), Loss> {
    match flags(message) {
        None => Err(Loss::Short),
        // Passed on, it could go in circles between two servers.
        Some(flags) if flags.has(Flags::QR) => Err(Loss::IsAnswer),
        Some(_) => Ok(()),
    }
}

/// Says whether `reply` may be taken for the answer to `asked`, of which the
/// first [`QUESTION_END_MAX`] octets are enough. Names are compared without
/// regard to case.
#[inline]
pub fn check_reply(reply: &[u8], asked: &[u8]) -> Result<(), Loss> {
    let (Some(own), Some(other)) = (flags(reply), flags(asked)) else {
        return Err(Loss::ReplyMalformed);
    };
    if !own.has(Flags::QR) {
        return Err(Loss::ReplyMalformed);
    }
    // A reply repeats both (RFC 1035, 4.1.1).
    if (own.0 ^ other.0) & (Flags::OPCODE | Flags::RD) != 0 {
        return Err(Loss::ReplyQuestion);
    }
    match (question_count(reply), question(asked)) {
        // Refusals of what could not be read come without the question, and so
        // does the answer to a message without one (RFC 7873, 5.4).
        (0, Some(_)) if rcode(own) == 0 => Err(Loss::ReplyQuestion),
        (0, _) => Ok(()),
        (_, asked) => match (question(reply), asked) {
            (None, _) => Err(Loss::ReplyMalformed),
            (Some(own), Some(other)) if own.eq_ignore_ascii_case(other) => Ok(()),
            _ => Err(Loss::ReplyQuestion),
        },
    }
}

/// The id of a message; 0 if it has none.
#[inline]
pub fn id(message: &[u8]) -> u16 {
    word(message, 0).unwrap_or_default()
}

/// Gives a message another id.
#[inline]
pub fn set_id(message: &mut [u8], id: u16) {
    if let Some(place) = message.first_chunk_mut() {
        *place = id.to_be_bytes();
    }
}

/// The response code of a reply, without the bits that EDNS adds.
pub fn rcode(flags: Flags) -> u8 {
    (flags.0 & 0xf) as u8
}

/// The flags of a message that has a whole header.
#[inline]
pub fn flags(message: &[u8]) -> Option<Flags> {
    if message.len() < HEADER_LEN {
        return None;
    }
    word(message, 2).map(Flags)
}

fn question_count(message: &[u8]) -> u16 {
    word(message, 4).unwrap_or_default()
}

/// Name, type and class of a message's one question.
#[inline]
fn question(message: &[u8]) -> Option<&[u8]> {
    if question_count(message) != 1 {
        return None;
    }
    let rest = message.get(HEADER_LEN..)?;
    let name_len = Name::parse(rest).ok()?.as_bytes().len();
    rest.get(..name_len + 4)
}

#[inline]
fn word(message: &[u8], at: usize) -> Option<u16> {
    let octets = message.get(at..at + 2)?;
    Some(u16::from_be_bytes([octets[0], octets[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ASKED: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03WwW\x04test\0\0\x01\0\x01";

    /// The reply to [`ASKED`], changed by `change`.
    fn check(change: impl FnOnce(&mut Vec<u8>), expected: Result<(), Loss>) {
        let mut reply = ASKED.to_ascii_lowercase();
        reply[2] |= 0x80;
        change(&mut reply);
        assert_eq!(check_reply(&reply, ASKED), expected, "{reply:02x?}");
    }

    #[test]
    fn only_the_answer_to_the_question_is_taken() {
        check(|_| {}, Ok(()));
        check(|reply| reply.extend([0xc0; 600]), Ok(()));
        check(|reply| reply.truncate(11), Err(Loss::ReplyMalformed));
        check(|reply| reply[2] &= 0x7f, Err(Loss::ReplyMalformed));
        check(|reply| reply[12] = 0xc0, Err(Loss::ReplyMalformed));
        check(|reply| reply.truncate(23), Err(Loss::ReplyMalformed));
        check(|reply| reply[5] = 2, Err(Loss::ReplyMalformed));
        check(|reply| reply[13] = b'x', Err(Loss::ReplyQuestion));
        check(|reply| reply[23] = 28, Err(Loss::ReplyQuestion));
        check(|reply| reply[2] ^= 1, Err(Loss::ReplyQuestion));
        check(|reply| reply[2] |= 0x20, Err(Loss::ReplyQuestion));
    }

    #[test]
    fn a_refusal_may_leave_the_question_out() {
        let bare = |rcode: u8| {
            move |reply: &mut Vec<u8>| {
                reply.truncate(12);
                (reply[3], reply[5]) = (rcode, 0);
            }
        };
        check(bare(1), Ok(()));
        check(bare(0), Err(Loss::ReplyQuestion));
        let cookie_only = b"\x12\x34\0\0\0\0\0\0\0\0\0\x01";
        let mut reply = cookie_only.to_vec();
        reply[2] = 0x80;
        assert_eq!(check_reply(&reply, cookie_only), Ok(()));
    }

    #[test]
    fn answers_and_scraps_are_no_questions() {
        assert_eq!(check_question(ASKED), Ok(()));
        assert_eq!(check_question(&ASKED[..11]), Err(Loss::Short));
        let mut answer = ASKED.to_vec();
        answer[2] |= 0x80;
        assert_eq!(check_question(&answer), Err(Loss::IsAnswer));
    }

    proptest! {
        #[test]
        fn anything_can_be_read(
            reply in prop::collection::vec(any::<u8>(), 0..300),
            asked in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let _ = check_question(&asked);
            if check_reply(&reply, &asked).is_ok() {
                prop_assert!(flags(&reply).is_some_and(|flags| flags.has(Flags::QR)));
            }
        }
    }
}
