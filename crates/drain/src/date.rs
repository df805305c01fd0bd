//! Points in time as people write them, always with a time zone. The zone is an
//! argument: nothing here asks the system for one.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::time::Time;

fn format(at: Time, zone: &TimeZone, pattern: &str) -> String {
    let millis = i64::try_from(at.0).unwrap_or(i64::MAX);
    // What no calendar has is shown as it is.
    match Timestamp::from_millisecond(millis) {
        Ok(stamp) => stamp.to_zoned(zone.clone()).strftime(pattern).to_string(),
        Err(_) => format!("{} ms", at.0),
    }
}

/// For a line of text: `2026-11-17 03:12:04 CET (+01:00)`.
pub fn date(at: Time, zone: &TimeZone) -> String {
    let offset = format(at, zone, "%:z");
    let short = format(at, zone, "%Y-%m-%d %H:%M:%S %Z");
    // A zone without a name of letters is its offset; everybody knows that of UTC.
    let has_name = short.chars().last().is_some_and(char::is_alphabetic);
    match has_name && !short.ends_with("UTC") && offset.contains(':') {
        true => format!("{short} ({offset})"),
        false => short,
    }
}

/// For a table, all of one width: `2026-11-17 03:12:04 +01:00`.
pub fn date_in_table(at: Time, zone: &TimeZone) -> String {
    format(at, zone, "%Y-%m-%d %H:%M:%S %:z")
}

/// The time of the day: `03:12:04 CET`.
pub fn time_of_day(at: Time, zone: &TimeZone) -> String {
    format(at, zone, "%H:%M:%S %Z")
}

/// The time of the day, with the date where it is not that of `now`.
pub fn time_near(at: Time, now: Time, zone: &TimeZone) -> String {
    let day = |at| format(at, zone, "%Y-%m-%d");
    match day(at) == day(now) {
        true => format(at, zone, "%H:%M %Z"),
        false => format(at, zone, "%Y-%m-%d %H:%M %Z"),
    }
}

/// For labels below an axis, whose zone is said once: `03:12`, or `03:12:04`.
pub fn hour(at: Time, zone: &TimeZone, with_seconds: bool) -> String {
    format(at, zone, if with_seconds { "%H:%M:%S" } else { "%H:%M" })
}

/// The zone at a time, for such an axis: `CET, +01:00`.
pub fn zone_name(at: Time, zone: &TimeZone) -> String {
    let (name, offset) = (format(at, zone, "%Z"), format(at, zone, "%:z"));
    match name.chars().all(char::is_alphabetic) {
        true if name == "UTC" => name,
        true => format!("{name}, {offset}"),
        false => offset,
    }
}

/// For machines: RFC 3339 with the offset.
pub fn rfc3339(at: Time, zone: &TimeZone) -> String {
    format(at, zone, "%Y-%m-%dT%H:%M:%S.%3f%:z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_have_a_zone() {
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let (winter, summer) = (Time(1_794_842_096_000), Time(1_782_000_000_000));
        assert_eq!(date(winter, &TimeZone::UTC), "2026-11-16 15:14:56 UTC");
        assert_eq!(date(winter, &berlin), "2026-11-16 16:14:56 CET (+01:00)");
        assert_eq!(date(summer, &berlin), "2026-06-21 02:00:00 CEST (+02:00)");
        assert_eq!(date_in_table(winter, &berlin), "2026-11-16 16:14:56 +01:00");
        assert_eq!(rfc3339(winter, &berlin), "2026-11-16T16:14:56.000+01:00");
        assert_eq!(time_near(winter, winter, &berlin), "16:14 CET");
        assert_eq!(time_near(winter, summer, &berlin), "2026-11-16 16:14 CET");
        assert_eq!(zone_name(winter, &berlin), "CET, +01:00");
        assert_eq!(zone_name(winter, &TimeZone::fixed(jiff::tz::offset(3))), "+03:00");
        assert_eq!(date(Time(0), &TimeZone::UTC), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(Time(u64::MAX), &TimeZone::UTC), "18446744073709551615 ms");
    }
}
