//! The Boolean quadruple system: `{a, b, c, a ^ b ^ c}` over `2^n` points.
//!
//! Any three points lie in exactly one such quadruple, so two of them share at
//! most two points, and there are as many as there can be: the packing bound
//! is met. A quadruple is a plane `{x, x^u, x^v, x^u^v}`; the planes along the
//! same `u` and `v` are a class that holds every point once.

/// All quadruples over `2^bits` points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quadruples {
    bits: u32,
}

impl Quadruples {
    /// Points of the smallest and the largest system.
    pub const BITS_MIN: u32 = 2;
    pub const BITS_MAX: u32 = 20;

    pub fn new(bits: u32) -> Self {
        assert!((Self::BITS_MIN..=Self::BITS_MAX).contains(&bits));
        Quadruples { bits }
    }

    pub fn point_count(self) -> u32 {
        1 << self.bits
    }

    /// Directions `u, v` that span different planes through 0.
    pub fn class_count(self) -> u64 {
        plane_count(self.bits)
    }

    pub fn class_len(self) -> u32 {
        1 << (self.bits - 2)
    }

    /// The quadruple number `offset` of a class, in ascending order.
    #[inline]
    pub fn quadruple(self, class: u64, offset: u32) -> [u32; 4] {
        let (Plane { u, v }, high) = Plane::number(class);
        let x = widen(widen(offset, v.ilog2()), high);
        // x has neither leading bit; v's is the lower one.
        [x, x ^ v, x ^ u, x ^ u ^ v]
    }

    /// The class of four points and their number there; `None` if they are no
    /// quadruple.
    #[inline]
    pub fn locate(self, points: [u32; 4]) -> Option<(u64, u32)> {
        let [a, b, c, d] = points;
        if a ^ b ^ c ^ d != 0 || a == b || a == c || b == c {
            return None;
        }
        if (a | b | c | d) >> self.bits != 0 {
            return None;
        }
        let plane = Plane::spanned_by(a ^ b, a ^ c);
        let (high, low) = (plane.u.ilog2(), plane.v.ilog2());
        let mut x = a;
        if x >> high & 1 == 1 {
            x ^= plane.u;
        }
        if x >> low & 1 == 1 {
            x ^= plane.v;
        }
        Some((plane.rank(), narrow(narrow(x, high), low)))
    }

    /// How many quadruples have all their points below `len`.
    pub fn count_below(self, len: u32) -> u128 {
        if len >= self.point_count() {
            return u128::from(self.class_count()) * u128::from(self.class_len());
        }
        self.count_by_marked(len, |_| false)[0]
    }

    /// How many quadruples with all their points below `len` have 0, 1, 2, 3
    /// and 4 points that are marked.
    pub fn count_by_marked(self, len: u32, is_marked: impl Fn(u32) -> bool) -> [u128; 5] {
        // Ordered quadruples with sum 0, one point of each of four sets, are
        // the product of the transforms of their indicators, summed; less
        // those with equal points.
        let plain = self.transform(|x| x < len && !is_marked(x));
        let marked = self.transform(|x| x < len && is_marked(x));
        let (plain_len, marked_len) = (i128::from(plain[0]), i128::from(marked[0]));
        let alike = |len: i128| 3 * len * len - 2 * len;
        let equal = [alike(plain_len), 0, 6 * plain_len * marked_len, 0, alike(marked_len)];
        std::array::from_fn(|count| {
            let product = |(p, m): (&i64, &i64)| {
                i128::from(*p).pow(4 - count as u32) * i128::from(*m).pow(count as u32)
            };
            let sum = plain.iter().zip(&marked).map(product).sum::<i128>() >> self.bits;
            ((sum * [1, 4, 6, 4, 1][count] - equal[count]) / 24) as u128
        })
    }

    /// The transform of Walsh and Hadamard of the indicator of a set of points.
    fn transform(self, is_in: impl Fn(u32) -> bool) -> Vec<i64> {
        let mut values: Vec<i64> = (0..self.point_count()).map(|x| i64::from(is_in(x))).collect();
        let mut half = 1;
        while half < values.len() {
            for block in values.chunks_exact_mut(2 * half) {
                let (left, right) = block.split_at_mut(half);
                for (a, b) in left.iter_mut().zip(right) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            half *= 2;
        }
        values
    }
}

/// Planes through 0 of a space of `bits` dimensions.
#[inline]
fn plane_count(bits: u32) -> u64 {
    PLANE_COUNTS[bits as usize]
}

/// Of all spaces up to one dimension more than points of a system have.
const PLANE_COUNTS: [u64; Quadruples::BITS_MAX as usize + 2] = {
    let mut counts = [0; Quadruples::BITS_MAX as usize + 2];
    let mut bits = 1;
    while bits < counts.len() {
        let points = 1u64 << bits;
        counts[bits] = (points - 1) * (points - 2) / 6;
        bits += 1;
    }
    counts
};

/// A plane through 0. `u` has the higher leading bit, and not that of `v`, so
/// that every plane is written in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plane {
    u: u32,
    v: u32,
}

impl Plane {
    /// The planes are numbered by the leading bit of `u`, then by `v`, then by
    /// the rest of `u`. Says which bit that is too.
    #[inline]
    fn number(rank: u64) -> (Self, u32) {
        // Planes within `bits` dimensions number a little less than 4^bits / 6,
        // so it is rarely one more, which a processor soon knows.
        let mut bits = ((rank * 6 + 1).ilog2() / 2).max(1);
        if plane_count(bits + 1) <= rank {
            bits += 1;
        }
        let rest = rank - plane_count(bits);
        let v = (rest >> (bits - 1)) as u32 + 1;
        let low = rest as u32 & ((1 << (bits - 1)) - 1);
        (Plane { u: 1 << bits | widen(low, v.ilog2()), v }, bits)
    }

    #[inline]
    fn spanned_by(a: u32, b: u32) -> Self {
        let (high, other) = if a > b { (a, b) } else { (b, a) };
        // Of a, b and a ^ b, the one with the lower leading bit is the least.
        let v = other.min(high ^ other);
        let u = if high >> v.ilog2() & 1 == 1 { high ^ v } else { high };
        Plane { u, v }
    }

    #[inline]
    fn rank(self) -> u64 {
        let bits = self.u.ilog2();
        let low = narrow(self.u ^ 1 << bits, self.v.ilog2());
        plane_count(bits) + (u64::from(self.v - 1) << (bits - 1) | u64::from(low))
    }
}

/// Makes room for a bit, 0, at `at`.
#[inline]
fn widen(number: u32, at: u32) -> u32 {
    let low = number & ((1 << at) - 1);
    (number >> at) << at << 1 | low
}

/// Takes the bit at `at` out.
#[inline]
fn narrow(number: u32, at: u32) -> u32 {
    let low = number & ((1 << at) - 1);
    number >> at >> 1 << at | low
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_triple_is_in_one_quadruple() {
        for bits in 2..=6 {
            let system = Quadruples::new(bits);
            let mut triples = HashSet::new();
            for class in 0..system.class_count() {
                let mut points = HashSet::new();
                for offset in 0..system.class_len() {
                    let four = system.quadruple(class, offset);
                    assert!(four.is_sorted(), "{four:?}");
                    assert_eq!(system.locate(four), Some((class, offset)));
                    assert_eq!(
                        system.locate([four[2], four[0], four[3], four[1]]),
                        Some((class, offset))
                    );
                    points.extend(four);
                    for left_out in 0..4 {
                        let mut three = four.to_vec();
                        three.remove(left_out);
                        assert!(triples.insert(three), "{four:?}");
                    }
                }
                assert_eq!(points.len() as u32, system.point_count());
            }
            let n = u64::from(system.point_count());
            assert_eq!(triples.len() as u64, n * (n - 1) * (n - 2) / 6);
        }
    }

    #[test]
    fn the_full_system_meets_the_bound() {
        let system = Quadruples::new(11);
        assert_eq!(system.class_count() * u64::from(system.class_len()), 357_389_824);
        for class in [0, 1, 12_345, 349_184, 349_185, 698_026] {
            let four = system.quadruple(class, 511);
            assert_eq!(system.locate(four), Some((class, 511)));
        }
        assert_eq!(system.locate([1, 2, 3, 4]), None);
        assert_eq!(system.locate([1, 1, 2, 2]), None);
        assert_eq!(system.locate([0, 1, 2048, 2049]), None);
    }

    #[test]
    fn quadruples_below_a_limit_are_counted() {
        for bits in 2..=5 {
            let system = Quadruples::new(bits);
            for len in 0..=system.point_count() {
                let classes = 0..system.class_count();
                let all = classes.flat_map(|c| (0..system.class_len()).map(move |o| (c, o)));
                let below = all.filter(|&(c, o)| system.quadruple(c, o)[3] < len).count();
                assert_eq!(system.count_below(len), below as u128, "{len} of 2^{bits}");
            }
        }
    }

    #[test]
    fn quadruples_are_counted_by_their_marked_points() {
        let system = Quadruples::new(5);
        for (len, step) in [(32, 3), (32, 32), (32, 1), (29, 2), (19, 5), (3, 2)] {
            let is_marked = |x: u32| x.is_multiple_of(step);
            let mut counts = [0; 5];
            for class in 0..system.class_count() {
                for offset in 0..system.class_len() {
                    let four = system.quadruple(class, offset);
                    if four[3] < len {
                        counts[four.iter().filter(|x| is_marked(**x)).count()] += 1;
                    }
                }
            }
            assert_eq!(system.count_by_marked(len, is_marked), counts, "{len} {step}");
        }
    }
}
