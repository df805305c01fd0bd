//! Which of several values counts.

use drain::Comparison;

/// The value that is worst for a comparison with `bound`, and its place: a
/// condition holds for all series of a query exactly if it holds for this one.
/// What is not a number says nothing, and is the worst only if there is nothing
/// else.
pub fn worst(
    comparison: Comparison,
    bound: f64,
    values: impl IntoIterator<Item = f64>,
) -> (Option<usize>, f64) {
    let distance = |value: f64| if value == bound { 0.0 } else { (value - bound).abs() };
    let is_worse = |value: f64, than: f64| match comparison {
        Comparison::Below | Comparison::AtMost => value > than,
        Comparison::Above | Comparison::AtLeast => value < than,
        Comparison::Equals => distance(value) > distance(than),
    };
    let numbers = values.into_iter().enumerate().filter(|(_, value)| !value.is_nan());
    let worst = numbers.reduce(|worst, own| if is_worse(own.1, worst.1) { own } else { worst });
    worst.map_or((None, f64::NAN), |(at, value)| (Some(at), value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_comparison_has_its_worst() {
        let values = [2.0, f64::NAN, 9.0, -3.0];
        let check = |comparison, bound, expected| {
            assert_eq!(worst(comparison, bound, values).1, expected, "{comparison:?}");
        };
        check(Comparison::Below, 5.0, 9.0);
        check(Comparison::AtMost, 5.0, 9.0);
        check(Comparison::Above, 5.0, -3.0);
        check(Comparison::AtLeast, 5.0, -3.0);
        check(Comparison::Equals, 5.0, -3.0);
        check(Comparison::Equals, 1.0, 9.0);
        let (at, value) = worst(Comparison::Equals, 1.0, [f64::NAN]);
        assert!(at.is_none() && value.is_nan());
        assert_eq!(worst(Comparison::Equals, 1.0, []).0, None);
        let endless = [f64::INFINITY, 1.0];
        assert_eq!(worst(Comparison::Equals, f64::INFINITY, endless), (Some(1), 1.0));
    }

    proptest! {
        #[test]
        fn it_holds_for_all_exactly_if_it_holds_for_the_worst(
            values in prop::collection::vec(-4i8..4, 1..6),
            bound in -4i8..4,
            which in 0usize..5,
        ) {
            let comparison = [
                Comparison::Below,
                Comparison::AtMost,
                Comparison::Above,
                Comparison::AtLeast,
                Comparison::Equals,
            ][which];
            let bound = f64::from(bound);
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            let worst = worst(comparison, bound, values.iter().copied()).1;
            let all = values.iter().all(|value| comparison.holds(*value, bound));
            prop_assert_eq!(comparison.holds(worst, bound), all);
        }
    }
}
