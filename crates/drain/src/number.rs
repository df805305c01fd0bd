//! Numbers as people read them.

/// With as many digits as say something: four that count, no zeros at the end,
/// and no sign before a zero.
pub fn number(value: f64) -> String {
    const DIGITS: i32 = 4;
    let size = value.abs();
    if !value.is_finite() || (size != 0.0 && !(1e-9..1e15).contains(&size)) {
        return format!("{value:e}");
    }
    let magnitude = if size == 0.0 { 0 } else { size.log10().floor() as i32 };
    let places = (DIGITS - 1 - magnitude).clamp(0, 12) as usize;
    let text = format!("{value:.places$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    if text == "-0" { "0".into() } else { text.to_owned() }
}

/// A share of 1 in percent, between 0 and 100, without a sign.
pub fn percent(share: f64) -> String {
    // A sum with zero has no negative zero; what is no number is nothing.
    let whole = (share * 100.0).round().clamp(0.0, 100.0) + 0.0;
    format!("{:.0} %", if whole.is_nan() { 0.0 } else { whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_count_and_zero_has_no_sign() {
        let cases = [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (0.30000000000000004, "0.3"),
            (0.012345, "0.01235"),
            (-0.5, "-0.5"),
            (1234567.8, "1234568"),
            (99.994, "99.99"),
            (1e-12, "1e-12"),
            (f64::MAX, "1.7976931348623157e308"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn percent_is_never_below_zero() {
        let cases = [(-0.0, "0 %"), (-0.001, "0 %"), (0.004, "0 %"), (0.5, "50 %"), (2.0, "100 %")];
        for (share, text) in cases {
            assert_eq!(percent(share), text);
        }
        assert_eq!(percent(f64::NAN), "0 %");
    }
}
