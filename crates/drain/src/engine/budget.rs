//! How tasks share what there is not enough of: higher priorities first, and
//! among equals nobody gets more while another gets less than it wants.

/// One task that wants a part of a budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    pub priority: i32,
    pub wants: f64,
}

/// What each claim gets of `size`, in the order of the claims.
pub fn divide(size: f64, claims: &[Claim]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..claims.len()).collect();
    order.sort_by(|a, b| {
        let (a, b) = (&claims[*a], &claims[*b]);
        b.priority.cmp(&a.priority).then(a.wants.total_cmp(&b.wants))
    });
    let mut shares = vec![0.0; claims.len()];
    let mut rest = size.max(0.0);
    for equals in order.chunk_by(|a, b| claims[*a].priority == claims[*b].priority) {
        // The smallest first: what it does not want is left for the others.
        for (done, claim) in equals.iter().enumerate() {
            let even = rest / (equals.len() - done) as f64;
            let share = claims[*claim].wants.min(even).max(0.0);
            shares[*claim] = share;
            rest -= share;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claims(of: &[(i32, f64)]) -> Vec<Claim> {
        of.iter().map(|(priority, wants)| Claim { priority: *priority, wants: *wants }).collect()
    }

    #[test]
    fn equals_share_and_the_higher_go_first() {
        assert_eq!(divide(10.0, &claims(&[(0, 8.0), (0, 2.0), (0, 8.0)])), [4.0, 2.0, 4.0]);
        assert_eq!(divide(10.0, &claims(&[(0, 8.0), (1, 9.0)])), [1.0, 9.0]);
        assert_eq!(divide(10.0, &claims(&[(0, 3.0), (1, 20.0)])), [0.0, 10.0]);
    }

    proptest! {
        #[test]
        fn nothing_is_given_twice_and_nothing_is_kept_back(
            size in 0.0..100.0f64,
            of in proptest::collection::vec((0..3i32, 0.0..50.0f64), 0..12),
        ) {
            let claims = claims(&of);
            let shares = divide(size, &claims);
            let (given, wanted): (f64, f64) =
                (shares.iter().sum(), claims.iter().map(|claim| claim.wants).sum());
            prop_assert!((given - wanted.min(size)).abs() < 1e-6);
            for (claim, share) in claims.iter().zip(&shares) {
                prop_assert!(*share <= claim.wants + 1e-9);
                for (other, others) in claims.iter().zip(&shares) {
                    // Whoever gets less than it wants envies no equal, and nobody below.
                    let is_short = *share < claim.wants - 1e-6;
                    let envies = other.priority <= claim.priority && others > &(share + 1e-6);
                    prop_assert!(!(is_short && envies), "{claims:?} {shares:?}");
                }
            }
        }
    }
}
