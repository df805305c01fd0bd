//! A checker is trusted after something wrong made it fail.

use lab::Sabotage;

/// Worlds that are tried until one of them gives a sabotage its occasion.
const TRIES: u64 = 12;

#[test]
fn every_sabotage_is_found_by_the_checker_that_is_there_for_it() {
    for (sabotage, checker, kind) in Sabotage::ALL {
        let found = (0..TRIES).find_map(|seed| {
            assert_eq!(lab::run_kind(seed, kind, None).violation, None, "{kind:?} {seed} is sound");
            lab::run_kind(seed, kind, Some(sabotage)).violation
        });
        let found = found.unwrap_or_else(|| panic!("nobody finds {sabotage:?}"));
        assert_eq!(found.checker, checker, "{sabotage:?}: {found}");
    }
}
