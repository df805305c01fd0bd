//! The small words of runbooks: numbers, shares, durations, names, knobs, and
//! the variables within texts.

use super::tree::Scalar;
use crate::time::Millis;

/// What a name may be, for problems and for people.
pub(crate) const NAME_RULE: &str = "letters, digits, `-` and `_`, at most 64 of them";
pub(crate) const NAME_PATTERN: &str = "^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$";
pub(crate) const REFERENCE_PATTERN: &str =
    "^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}([.][A-Za-z0-9_][A-Za-z0-9_-]{0,63})?$";
pub(crate) const DURATION_RULE: &str = "a duration such as `30s`, `5m`, `1h30m` or `250ms`";
pub(crate) const DURATION_PATTERN: &str =
    "^(?=[0-9])([0-9]{1,9}h)?([0-9]{1,9}m)?([0-9]{1,9}s)?([0-9]{1,9}ms)?$";
pub(crate) const SHARE_RULE: &str = "a share such as `5%` or `0.05`, from 0 to 1";
pub(crate) const SHARE_PATTERN: &str = "^(100([.]0+)?|[0-9]{1,2}([.][0-9]+)?)%$";
pub(crate) const KNOB_RULE: &str =
    "a knob such as `edge:web/$dc`: a driver, `:`, and its name there";
pub(crate) const KNOB_PATTERN: &str = "^[A-Za-z0-9_$][A-Za-z0-9_${}-]{0,127}:[^\\s]+$";

const NAME_LENGTH_MAX: usize = 64;

pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= NAME_LENGTH_MAX
        && !text.starts_with('-')
        && text.bytes().all(|octet| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_'))
}

/// A task, or one of a service: `shift`, `web.shift`.
pub(crate) fn is_reference(text: &str) -> bool {
    match text.split_once('.') {
        Some((service, task)) => is_name(service) && is_name(task),
        None => is_name(text),
    }
}

/// The driver and the name of a knob. Both may have variables: a load balancer of
/// each datacenter is a driver of each, `edge-$dc:weight/web`.
pub(crate) fn knob(text: &str) -> Option<(&str, &str)> {
    let (driver, name) = text.split_once(':')?;
    let is_driver = || {
        let is_sound = |(_, _, piece): &(usize, usize, Piece<'_>)| {
            matches!(piece, Piece::Text(_) | Piece::Variable(_))
        };
        pieces(driver).iter().all(is_sound) && is_name(&mask(driver))
    };
    (is_driver() && !name.is_empty() && !name.contains(char::is_whitespace))
        .then_some((driver, name))
}

pub(crate) fn number(scalar: &Scalar) -> Option<f64> {
    if !scalar.plain { None } else { plain_number(&scalar.text) }
}

/// `inf` and `nan` are words here, not numbers.
fn plain_number(text: &str) -> Option<f64> {
    let digits = text.trim_start_matches(['-', '+']);
    if !digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return None;
    }
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

pub(crate) fn truth(scalar: &Scalar) -> Option<bool> {
    match scalar.text.as_str() {
        _ if !scalar.plain => None,
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

/// `5%` or `0.05`.
pub(crate) fn share(scalar: &Scalar) -> Option<f64> {
    let share = match scalar.text.strip_suffix('%') {
        Some(percent) => plain_number(percent)? / 100.0,
        None => number(scalar)?,
    };
    (0.0..=1.0).contains(&share).then_some(share)
}

/// `1h30m`: whole numbers, each unit once, the largest first.
pub(crate) fn duration(text: &str) -> Option<Millis> {
    const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
    let (mut rest, mut total, mut smallest) = (text, 0u64, UNITS.len());
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let unit_end = rest[digits..]
            .find(|c: char| !c.is_ascii_alphabetic())
            .map_or(rest.len(), |length| digits + length);
        let unit = UNITS.iter().rposition(|(name, _)| *name == &rest[digits..unit_end])?;
        if digits == 0 || digits > 9 || (smallest < UNITS.len() && unit <= smallest) {
            return None;
        }
        total = total.checked_add(rest[..digits].parse::<u64>().ok()? * UNITS[unit].1)?;
        (smallest, rest) = (unit, &rest[unit_end..]);
    }
    (smallest < UNITS.len()).then_some(Millis(total))
}

/// One piece of a text with variables in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Piece<'a> {
    Text(&'a str),
    /// `$name` or `${name}`.
    Variable(&'a str),
    /// `$$`.
    Dollar,
    /// A `$` that begins nothing.
    Lone,
}

/// The pieces of a text, with the octet each begins at and how many it has.
pub(crate) fn pieces(text: &str) -> Vec<(usize, usize, Piece<'_>)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (mut pieces, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let rest = &text[at..];
        let (length, piece) = if let Some(after) = rest.strip_prefix('$') {
            let word = after.len() - after.trim_start_matches(is_word).len();
            let braced = after.strip_prefix('{').and_then(|inner| inner.split_once('}'));
            match braced {
                _ if after.starts_with('$') => (2, Piece::Dollar),
                Some((name, _)) if !name.is_empty() && name.chars().all(is_word) => {
                    (name.len() + 3, Piece::Variable(name))
                }
                _ if word > 0 => (1 + word, Piece::Variable(&after[..word])),
                _ => (1, Piece::Lone),
            }
        } else {
            let length = rest.find('$').unwrap_or(rest.len());
            (length, Piece::Text(&rest[..length]))
        };
        pieces.push((at, length, piece));
        at += length;
    }
    pieces
}

/// The variable, if the text is one and nothing else.
pub(crate) fn whole_variable(text: &str) -> Option<&str> {
    match pieces(text).as_slice() {
        [(_, _, Piece::Variable(name))] => Some(name),
        _ => None,
    }
}

/// Puts values in the place of variables. What has none stays as it is.
pub(crate) fn substitute(text: &str, value: impl Fn(&str) -> Option<String>) -> String {
    pieces(text)
        .into_iter()
        .map(|(at, length, piece)| match piece {
            Piece::Variable(name) => {
                value(name).unwrap_or_else(|| text[at..at + length].to_owned())
            }
            Piece::Dollar => "$".to_owned(),
            Piece::Text(text) => text.to_owned(),
            Piece::Lone => "$".to_owned(),
        })
        .collect()
}

/// The text with letters in the place of variables, octet by octet, so that the
/// rest can be read as what it will be and places stay where they are.
pub(crate) fn mask(text: &str) -> String {
    pieces(text)
        .into_iter()
        .map(|(_, length, piece)| match piece {
            Piece::Text(text) => text.to_owned(),
            _ => "x".repeat(length),
        })
        .collect()
}

/// The candidate that was most likely meant: at most a third of its letters
/// away.
pub(crate) fn nearest<'a>(
    written: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= 2 * NAME_LENGTH_MAX + 1)
        .map(|candidate| (distance(written, candidate), candidate))
        .filter(|(distance, candidate)| {
            *distance <= (candidate.len() / 3).max(usize::from(candidate.len() > 1))
        })
        .min()
        .map(|(_, candidate)| candidate)
}

/// `did you mean …?`, or all that would be accepted.
pub(crate) fn did_you_mean<'a>(
    written: &str,
    candidates: impl IntoIterator<Item = &'a str> + Clone,
) -> String {
    const LISTED_MAX: usize = 16;
    if let Some(near) = nearest(written, candidates.clone()) {
        return format!("did you mean `{near}`?");
    }
    let mut all: Vec<_> = candidates.into_iter().collect();
    all.dedup();
    let more = all.len().saturating_sub(LISTED_MAX);
    let listed: Vec<_> = all.iter().take(LISTED_MAX).map(|name| format!("`{name}`")).collect();
    match (listed.is_empty(), more) {
        (true, _) => "accepted: nothing, as there is none yet; define it first".into(),
        (_, 0) => format!("accepted: {}", listed.join(", ")),
        _ => format!("accepted: {} and {more} more", listed.join(", ")),
    }
}

/// Letters to add, drop, change or swap with their neighbour.
fn distance(from: &str, to: &str) -> usize {
    let lower = |text: &str| -> Vec<char> { text.chars().flat_map(char::to_lowercase).collect() };
    let (from, to) = (lower(from), lower(to));
    if from.len().abs_diff(to.len()) > NAME_LENGTH_MAX {
        return usize::MAX;
    }
    let mut rows = vec![(0..=to.len()).collect::<Vec<usize>>()];
    for (i, letter) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, other) in to.iter().enumerate() {
            let change = rows[i][j] + usize::from(letter != other);
            let mut best = change.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && from[i - 1] == *other && to[j - 1] == *letter {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_what_people_write() {
        for (text, millis) in [
            ("30s", Some(30_000)),
            ("5m", Some(300_000)),
            ("1h30m", Some(5_400_000)),
            ("250ms", Some(250)),
            ("1m5ms", Some(60_005)),
            ("0s", Some(0)),
            ("", None),
            ("30", None),
            ("s", None),
            ("5m1h", None),
            ("1s1s", None),
            ("1.5s", None),
            ("1d", None),
            ("-1s", None),
            ("12345678901s", None),
        ] {
            assert_eq!(duration(text), millis.map(Millis), "{text}");
        }
    }

    #[test]
    fn variables_are_found_and_replaced() {
        let value = |name: &str| (name == "dc").then(|| "east".to_owned());
        for (text, expected) in [
            ("edge:web/$dc", "edge:web/east"),
            ("${dc}a $$dc $", "easta $dc $"),
            ("$dcx ${dc", "$dcx ${dc"),
            ("${} ü$dc", "${} üeast"),
        ] {
            assert_eq!(substitute(text, value), expected);
            assert_eq!(mask(text).len(), text.len());
        }
        assert_eq!(whole_variable("$knob"), Some("knob"));
        assert_eq!(whole_variable("a$knob"), None);
    }

    #[test]
    fn the_nearest_name_is_found_if_it_is_near() {
        let names = ["template", "timeout", "after"];
        assert_eq!(nearest("tempalte", names), Some("template"));
        assert_eq!(nearest("Timeout", names), Some("timeout"));
        assert_eq!(nearest("budget", names), None);
        assert_eq!(did_you_mean("x", ["b", "a"]), "accepted: `b`, `a`");
    }

    #[test]
    fn knobs_and_references_have_their_form() {
        assert_eq!(knob("edge:web/dc1"), Some(("edge", "web/dc1")));
        assert_eq!(knob("pg:a:b"), Some(("pg", "a:b")));
        assert_eq!(knob("edge-$dc:web"), Some(("edge-$dc", "web")));
        assert_eq!(knob("${dc}:web"), Some(("${dc}", "web")));
        assert!(knob("edge$:web").is_none() && knob("edge$$dc:web").is_none());
        assert!(knob("edge").is_none() && knob("edge:").is_none() && knob("a b:c").is_none());
        assert!(is_reference("web.shift") && is_reference("shift"));
        assert!(!is_reference("a.b.c") && !is_reference(".a") && !is_reference("-a"));
    }
}
