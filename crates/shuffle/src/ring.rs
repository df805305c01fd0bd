//! Arithmetic on the letters of an alphabet of any size.
//!
//! Letters are the numbers below `len`. They are added and multiplied either
//! as integers modulo `len`, or as tuples of elements of finite fields, one
//! field for each prime power that `len` is a product of. Letters are added
//! for every shard; they are multiplied only when a design is made.

/// Letters of the largest alphabet.
pub(crate) const RING_LEN_MAX: u32 = 1 << 20;

/// An alphabet with addition and multiplication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ring {
    len: u32,
    structure: Structure,
    addition: Addition,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Structure {
    Integers,
    Fields(Vec<Field>),
}

/// How two letters are added, as fast as the alphabet allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Addition {
    /// Fields of characteristic 2 alone.
    Xor,
    Modulo,
    /// Digit by digit, each modulo its own prime.
    Digits(Vec<u32>),
}

/// A field of `prime ^ degree` elements: polynomials over the integers modulo
/// `prime`, modulo one of them. The digits of a number to the base `prime` are
/// the coefficients.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    prime: u32,
    degree: u32,
    len: u32,
    /// The powers of `x`, which are all elements but 0, and the exponent of
    /// each; none if the degree is 1, where integers are as quick.
    powers: Vec<u32>,
    logs: Vec<u32>,
}

impl Ring {
    /// Integers modulo `len`.
    pub fn integers(len: u32) -> Self {
        assert!((1..=RING_LEN_MAX).contains(&len));
        Ring { len, structure: Structure::Integers, addition: Addition::Modulo }
    }

    /// The product of the fields that `len` is made of.
    pub fn fields(len: u32) -> Self {
        assert!((2..=RING_LEN_MAX).contains(&len));
        let fields: Vec<Field> = prime_powers(len)
            .into_iter()
            .map(|(prime, degree)| Field::new(prime, degree))
            .collect();
        let addition = match &fields[..] {
            [Field { prime: 2, .. }] => Addition::Xor,
            [Field { degree: 1, .. }] => Addition::Modulo,
            _ => Addition::Digits(
                fields
                    .iter()
                    .flat_map(|f| std::iter::repeat_n(f.prime, f.degree as usize))
                    .collect(),
            ),
        };
        Ring { len, structure: Structure::Fields(fields), addition }
    }

    pub fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub fn addition(&self) -> &Addition {
        &self.addition
    }

    #[inline]
    pub fn add(&self, a: u32, b: u32) -> u32 {
        match &self.addition {
            Addition::Xor => a ^ b,
            Addition::Modulo => {
                let sum = a + b;
                if sum >= self.len { sum - self.len } else { sum }
            }
            Addition::Digits(primes) => {
                map_digits(
                    primes,
                    a,
                    b,
                    |prime, x, y| {
                        if x + y >= prime { x + y - prime } else { x + y }
                    },
                )
            }
        }
    }

    #[inline]
    pub fn subtract(&self, a: u32, b: u32) -> u32 {
        match &self.addition {
            Addition::Xor => a ^ b,
            Addition::Modulo => {
                if a >= b {
                    a - b
                } else {
                    a + self.len - b
                }
            }
            Addition::Digits(primes) => {
                map_digits(primes, a, b, |prime, x, y| if x >= y { x - y } else { x + prime - y })
            }
        }
    }

    pub fn multiply(&self, a: u32, b: u32) -> u32 {
        match &self.structure {
            Structure::Integers => (u64::from(a) * u64::from(b) % u64::from(self.len)) as u32,
            Structure::Fields(fields) => map_fields(fields, [a, b], Field::multiply),
        }
    }

    /// The letter that stands for 1.
    pub fn one(&self) -> u32 {
        self.letter(1)
    }

    /// A letter for each small number; the differences of two of the first
    /// `n` of them are units if all prime factors, or fields, have `n` elements.
    pub fn letter(&self, number: u32) -> u32 {
        match &self.structure {
            Structure::Integers => number % self.len,
            Structure::Fields(fields) => {
                map_fields(fields, [0; 2], |field, _, _| number % field.len)
            }
        }
    }

    /// The letter that `a` times gives 1, if there is one.
    pub fn inverse(&self, a: u32) -> Option<u32> {
        match &self.structure {
            Structure::Integers => inverse_modulo(a, self.len),
            Structure::Fields(fields) => {
                let is_unit = split(fields, a).all(|part| part != 0);
                is_unit.then(|| map_fields(fields, [a, 0], |field, a, _| field.inverse(a)))
            }
        }
    }
}

/// Puts a letter together from what `part` says of each field and of the parts
/// of two letters there.
fn map_fields(fields: &[Field], letters: [u32; 2], part: impl Fn(&Field, u32, u32) -> u32) -> u32 {
    let [mut a, mut b] = letters;
    let (mut whole, mut place) = (0, 1);
    for field in fields {
        whole += place * part(field, a % field.len, b % field.len);
        (a, b, place) = (a / field.len, b / field.len, place * field.len);
    }
    whole
}

fn split(fields: &[Field], mut letter: u32) -> impl Iterator<Item = u32> {
    fields.iter().map(move |field| {
        let part = letter % field.len;
        letter /= field.len;
        part
    })
}

#[inline]
fn map_digits(primes: &[u32], a: u32, b: u32, digit: impl Fn(u32, u32, u32) -> u32) -> u32 {
    let (mut a, mut b, mut place, mut whole) = (a, b, 1, 0);
    for &prime in primes {
        whole += place * digit(prime, a % prime, b % prime);
        (a, b, place) = (a / prime, b / prime, place * prime);
    }
    whole
}

impl Field {
    fn new(prime: u32, degree: u32) -> Self {
        let len = prime.pow(degree);
        let (powers, logs) =
            if degree == 1 { (Vec::new(), Vec::new()) } else { powers(prime, len) };
        Field { prime, degree, len, powers, logs }
    }

    fn multiply(&self, a: u32, b: u32) -> u32 {
        match self.degree {
            1 => (u64::from(a) * u64::from(b) % u64::from(self.prime)) as u32,
            _ if a == 0 || b == 0 => 0,
            _ => {
                let sum = self.logs[a as usize] + self.logs[b as usize];
                self.powers[(sum % (self.len - 1)) as usize]
            }
        }
    }

    /// `a` is not 0.
    fn inverse(&self, a: u32) -> u32 {
        match self.degree {
            1 => inverse_modulo(a, self.prime).unwrap_or(0),
            _ => self.powers[((self.len - 1 - self.logs[a as usize]) % (self.len - 1)) as usize],
        }
    }
}

/// The powers of `x` modulo a polynomial that makes them all different, from
/// exponent 0 on, and the exponent of each element.
fn powers(prime: u32, len: u32) -> (Vec<u32>, Vec<u32>) {
    // A polynomial of which `x` is no factor: the lowest digit is not 0.
    let polynomials = (1..len).filter(|number| !number.is_multiple_of(prime));
    let powers = polynomials.map(|lower| powers_modulo(prime, len, lower));
    let powers = powers
        .into_iter()
        .find(|powers| powers.len() as u32 == len - 1)
        .expect("there are primitive polynomials of every degree");
    let mut logs = vec![0; len as usize];
    for (exponent, &power) in powers.iter().enumerate() {
        logs[power as usize] = exponent as u32;
    }
    (powers, logs)
}

/// The powers of `x`, until 1 comes back, if `x ^ degree` is the polynomial
/// `lower`; digits to the base `prime` are coefficients.
fn powers_modulo(prime: u32, len: u32, lower: u32) -> Vec<u32> {
    let mut powers = vec![1];
    let mut power = 1;
    loop {
        let lead = power / (len / prime);
        power = power % (len / prime) * prime;
        for _ in 0..lead {
            power = add_digits(prime, power, lower);
        }
        if power == 1 || powers.len() as u32 >= len {
            return powers;
        }
        powers.push(power);
    }
}

/// Adds two polynomials over the integers modulo `prime`.
fn add_digits(prime: u32, mut a: u32, mut b: u32) -> u32 {
    if prime == 2 {
        return a ^ b;
    }
    let (mut sum, mut place) = (0, 1);
    while a > 0 || b > 0 {
        sum += place * ((a % prime + b % prime) % prime);
        (a, b) = (a / prime, b / prime);
        place = place.wrapping_mul(prime);
    }
    sum
}

fn inverse_modulo(a: u32, len: u32) -> Option<u32> {
    if len == 1 {
        return Some(0);
    }
    let (mut old, mut new) = ((i64::from(a), 1i64), (i64::from(len), 0i64));
    while new.0 != 0 {
        let quotient = old.0 / new.0;
        (old, new) = (new, (old.0 - quotient * new.0, old.1 - quotient * new.1));
    }
    (old.0 == 1).then(|| old.1.rem_euclid(i64::from(len)) as u32)
}

/// The prime powers that `number` is a product of, as primes and exponents, in
/// the order of the primes.
pub(crate) fn prime_powers(mut number: u32) -> Vec<(u32, u32)> {
    let mut powers = Vec::new();
    let mut prime = 2;
    while prime * prime <= number {
        let mut exponent = 0;
        while number.is_multiple_of(prime) {
            (number, exponent) = (number / prime, exponent + 1);
        }
        if exponent > 0 {
            powers.push((prime, exponent));
        }
        prime += 1;
    }
    if number > 1 {
        powers.push((number, 1));
    }
    powers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fall_into_prime_powers() {
        assert_eq!(prime_powers(1), []);
        assert_eq!(prime_powers(512), [(2, 9)]);
        assert_eq!(prime_powers(500), [(2, 2), (5, 3)]);
        assert_eq!(prime_powers(65_521), [(65_521, 1)]);
    }

    fn check_ring(ring: &Ring) {
        let len = ring.len();
        for a in 0..len {
            assert_eq!(ring.multiply(a, ring.one()), a);
            assert_eq!(ring.add(a, ring.letter(0)), a);
            for b in 0..len {
                let sum = ring.add(a, b);
                assert!(sum < len);
                assert_eq!(sum, ring.add(b, a));
                assert_eq!(ring.subtract(sum, b), a);
                for c in [0, 1, len / 2, len - 1] {
                    let (left, right) = (ring.multiply(c, sum), ring.multiply(c, b));
                    assert_eq!(left, ring.add(ring.multiply(c, a), right), "{c}({a}+{b})");
                }
            }
            if let Some(inverse) = ring.inverse(a) {
                assert_eq!(ring.multiply(a, inverse), ring.one());
            }
        }
    }

    #[test]
    fn the_laws_of_rings_hold() {
        for len in [2, 3, 4, 5, 7, 8, 9, 12, 16, 25, 27, 35, 36, 49, 60, 64] {
            check_ring(&Ring::fields(len));
            check_ring(&Ring::integers(len));
        }
    }

    #[test]
    fn everything_but_zero_is_a_unit_of_a_field() {
        for len in [2, 4, 8, 9, 25, 27, 49, 125, 512, 509, 2048] {
            let ring = Ring::fields(len);
            assert_eq!(ring.inverse(0), None);
            assert!((1..len).all(|a| ring.inverse(a).is_some()), "{len}");
        }
    }
}
