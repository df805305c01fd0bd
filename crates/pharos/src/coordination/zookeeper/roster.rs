//! Whom to believe in when the list of members gets shorter.
//!
//! A member that disappears from a service that is well has gone: its session
//! ended. A member that disappears with the service has most likely not: it is
//! about to register again, like this node. So after the service was lost,
//! members that are missing are kept for a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::Member;
use tokio::time::Instant;

/// The members that the service listed, and the number of its state then.
#[derive(Debug, Default)]
pub struct Listing {
    /// By name; `None` for what is no member but is listed.
    pub listed: BTreeMap<Arc<str>, Option<Listed>>,
    pub zxid: i64,
}

/// A member and the number of the state in which it registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub member: Member,
    pub created: i64,
}

/// The members that are believed in.
#[derive(Debug)]
pub struct Roster {
    known: BTreeMap<Arc<str>, Listed>,
    doubt: Doubt,
    zxid: i64,
    grace: Duration,
}

/// Whether those who are missing are believed to be gone.
#[derive(Clone, Copy, Debug)]
enum Doubt {
    /// They are.
    None,
    /// The service is lost; nothing is known.
    Lost,
    /// The service is back, and those who had registered up to this state may
    /// still come back too.
    Until { end: Instant, registered: i64 },
}

impl Roster {
    /// Nobody, until somebody is listed. Members that go with the service are
    /// kept for `grace` after it came back.
    pub fn new(grace: Duration) -> Self {
        Roster { known: BTreeMap::new(), doubt: Doubt::None, zxid: 0, grace }
    }

    /// The service was lost, or what it had.
    pub fn lose(&mut self) {
        self.doubt = Doubt::Lost;
    }

    /// Takes in what the service listed.
    pub fn update(&mut self, now: Instant, listing: Listing) {
        self.doubt = match self.doubt {
            Doubt::Lost => Doubt::Until { end: now + self.grace, registered: self.zxid },
            Doubt::Until { end, .. } if now >= end => Doubt::None,
            doubt => doubt,
        };
        let is_kept = |known: &Listed| match self.doubt {
            Doubt::Until { registered, .. } => known.created <= registered,
            _ => false,
        };
        self.known.retain(|name, known| listing.listed.contains_key(name) || is_kept(known));
        // What cannot be read leaves what was known.
        let readable =
            listing.listed.into_iter().filter_map(|(name, listed)| Some((name, listed?)));
        self.known.extend(readable);
        self.zxid = listing.zxid;
    }

    /// The members.
    pub fn members(&self) -> Vec<Member> {
        self.known.values().map(|known| known.member.clone()).collect()
    }

    /// When those who are missing will be believed to be gone.
    pub fn deadline(&self) -> Option<Instant> {
        match self.doubt {
            Doubt::Until { end, .. } => Some(end),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::record::member_for_tests;
    use super::*;

    const GRACE: Duration = Duration::from_secs(16);

    /// A listing of members as name and state of registration.
    fn listing(zxid: i64, members: &[(&str, i64)]) -> Listing {
        let listed = members.iter().map(|(name, created)| {
            let listed = Listed { member: member_for_tests(name, 1), created: *created };
            (Arc::from(*name), Some(listed))
        });
        Listing { listed: listed.collect(), zxid }
    }

    fn names(roster: &Roster) -> String {
        roster.members().iter().map(|member| member.name.to_string()).collect()
    }

    fn check(roster: &mut Roster, now: Instant, listing: Listing, expected: &str) {
        roster.update(now, listing);
        assert_eq!(names(roster), expected);
    }

    #[test]
    fn who_disappears_from_a_service_that_is_well_is_gone() {
        let now = Instant::now();
        let mut roster = Roster::new(GRACE);
        check(&mut roster, now, listing(3, &[("a", 1), ("b", 2), ("c", 3)]), "abc");
        check(&mut roster, now, listing(4, &[("a", 1), ("c", 3)]), "ac");
        assert_eq!(roster.deadline(), None);
    }

    #[test]
    fn who_disappears_with_the_service_is_kept_for_a_while() {
        let now = Instant::now();
        let mut roster = Roster::new(GRACE);
        check(&mut roster, now, listing(3, &[("a", 1), ("b", 2), ("c", 3)]), "abc");
        roster.lose();
        assert_eq!(names(&roster), "abc");
        // All are gone, then one comes back, then the time is over.
        check(&mut roster, now, listing(4, &[]), "abc");
        assert_eq!(roster.deadline(), Some(now + GRACE));
        check(&mut roster, now + GRACE / 2, listing(5, &[("b", 5)]), "abc");
        check(&mut roster, now + GRACE, listing(5, &[("b", 5)]), "b");
        assert_eq!(roster.deadline(), None);
    }

    #[test]
    fn sessions_that_the_service_ends_after_it_came_back_count_as_lost_with_it() {
        let now = Instant::now();
        let mut roster = Roster::new(GRACE);
        check(&mut roster, now, listing(3, &[("a", 1), ("b", 2)]), "ab");
        roster.lose();
        check(&mut roster, now, listing(3, &[("a", 1), ("b", 2)]), "ab");
        check(&mut roster, now, listing(4, &[("a", 1)]), "ab");
    }

    #[test]
    fn who_registers_after_the_loss_and_disappears_is_gone() {
        let now = Instant::now();
        let mut roster = Roster::new(GRACE);
        check(&mut roster, now, listing(3, &[("a", 1), ("b", 2)]), "ab");
        roster.lose();
        check(&mut roster, now, listing(5, &[("a", 1), ("b", 5)]), "ab");
        check(&mut roster, now, listing(6, &[("a", 1)]), "a");
    }

    #[test]
    fn a_second_loss_begins_the_time_anew() {
        let now = Instant::now();
        let mut roster = Roster::new(GRACE);
        check(&mut roster, now, listing(3, &[("a", 1)]), "a");
        roster.lose();
        check(&mut roster, now, listing(4, &[]), "a");
        roster.lose();
        assert_eq!(roster.deadline(), None);
        check(&mut roster, now + GRACE, listing(5, &[]), "a");
        check(&mut roster, now + GRACE * 2, listing(5, &[]), "");
    }

    #[test]
    fn a_service_that_counts_from_the_beginning_again_loses_nobody() {
        let now = Instant::now();
        let mut roster = Roster::new(GRACE);
        check(&mut roster, now, listing(900, &[("a", 700), ("b", 900)]), "ab");
        roster.lose();
        check(&mut roster, now, listing(1, &[]), "ab");
        check(&mut roster, now, listing(2, &[("a", 2)]), "ab");
        check(&mut roster, now + GRACE, listing(3, &[("a", 2), ("b", 3)]), "ab");
    }

    #[test]
    fn what_cannot_be_read_leaves_what_was_known() {
        let now = Instant::now();
        let mut roster = Roster::new(GRACE);
        check(&mut roster, now, listing(2, &[("a", 1), ("b", 2)]), "ab");
        let mut spoilt = listing(4, &[]);
        spoilt.listed = [("a", None), ("x", None)].map(|(name, it)| (Arc::from(name), it)).into();
        check(&mut roster, now, spoilt, "a");
    }
}
