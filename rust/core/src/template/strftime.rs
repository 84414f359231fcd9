//! `datetime.strftime` in the C locale, for a local time without a zone.

use std::fmt::Write;

use super::Timestamp;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const DAYS_BEFORE: [u32; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];

/// How a number or a name is laid out: glibc's flags.
#[derive(Clone, Copy, Default)]
struct Flags {
    /// `-` for none, `_` for spaces, `0` for zeros.
    padding: Option<char>,
    upper: bool,
    swap: bool,
}

/// The clock's local time.
pub(super) fn local_now() -> Timestamp {
    use chrono::{Datelike, Timelike};
    let now = chrono::Local::now();
    let small = |number: u32| u8::try_from(number).unwrap_or(0);
    Timestamp {
        year: now.year(),
        month: small(now.month()),
        day: small(now.day()),
        hour: small(now.hour()),
        minute: small(now.minute()),
        second: small(now.second()),
        microsecond: now.nanosecond() / 1000 % 1_000_000,
    }
}

/// Format a time; an unknown directive stays as it is.
pub(super) fn strftime(time: &Timestamp, format: &str) -> String {
    let mut out = String::with_capacity(format.len() + 16);
    let mut rest = format;
    while let Some(place) = rest.find('%') {
        out.push_str(&rest[..place]);
        rest = &rest[place..];
        let taken = directive(&mut out, time, rest);
        if taken == 0 {
            out.push('%');
            rest = &rest[1..];
        } else {
            rest = &rest[taken..];
        }
    }
    out.push_str(rest);
    out
}

/// Append one directive; the bytes it takes, or 0 if there is none.
fn directive(out: &mut String, time: &Timestamp, text: &str) -> usize {
    let mut flags = Flags::default();
    for (place, character) in text.char_indices().skip(1) {
        match character {
            '-' | '_' | '0' => flags.padding = Some(character),
            '^' => flags.upper = true,
            '#' => flags.swap = true,
            _ => return if append(out, time, character, flags) { place + character.len_utf8() } else { 0 },
        }
    }
    0
}

fn append(out: &mut String, time: &Timestamp, directive: char, flags: Flags) -> bool {
    let (month, hour) = (u32::from(time.month.clamp(1, 12)), u32::from(time.hour));
    let weekday = weekday(time);
    let day_of_year = day_of_year(time);
    let month_name = MONTHS[month as usize - 1];
    let weekday_name = WEEKDAYS[weekday as usize % 7];
    let hour12 = (hour + 11) % 12 + 1;
    let nested = |out: &mut String, format: &str| out.push_str(&strftime(time, format));
    match directive {
        'a' => name(out, &weekday_name[..3], flags),
        'A' => name(out, weekday_name, flags),
        'b' | 'h' => name(out, &month_name[..3], flags),
        'B' => name(out, month_name, flags),
        'p' if flags.swap => out.push_str(if hour < 12 { "am" } else { "pm" }),
        'p' => out.push_str(if hour < 12 { "AM" } else { "PM" }),
        'P' => out.push_str(if hour < 12 { "am" } else { "pm" }),
        'd' => number(out, i64::from(time.day), 2, '0', flags),
        'e' => number(out, i64::from(time.day), 2, '_', flags),
        'H' => number(out, i64::from(hour), 2, '0', flags),
        'k' => number(out, i64::from(hour), 2, '_', flags),
        'I' => number(out, i64::from(hour12), 2, '0', flags),
        'l' => number(out, i64::from(hour12), 2, '_', flags),
        'j' => number(out, i64::from(day_of_year), 3, '0', flags),
        'm' => number(out, i64::from(month), 2, '0', flags),
        'M' => number(out, i64::from(time.minute), 2, '0', flags),
        'S' => number(out, i64::from(time.second), 2, '0', flags),
        'f' => number(out, i64::from(time.microsecond), 6, '0', Flags::default()),
        'w' => number(out, i64::from(weekday), 1, '0', flags),
        'u' => number(out, i64::from((weekday + 6) % 7 + 1), 1, '0', flags),
        'U' => number(out, i64::from((day_of_year + 6 - weekday) / 7), 2, '0', flags),
        'W' => number(out, i64::from((day_of_year + 6 - (weekday + 6) % 7) / 7), 2, '0', flags),
        'V' => number(out, i64::from(iso_week(time).1), 2, '0', flags),
        'G' => number(out, i64::from(iso_week(time).0), 1, '0', flags),
        'g' => number(out, i64::from(iso_week(time).0.rem_euclid(100)), 2, '0', flags),
        'Y' => number(out, i64::from(time.year), 1, '0', flags),
        'y' => number(out, i64::from(time.year.rem_euclid(100)), 2, '0', flags),
        'C' => number(out, i64::from(time.year.div_euclid(100)), 2, '0', flags),
        'c' => nested(out, "%a %b %e %H:%M:%S %Y"),
        'x' | 'D' => nested(out, "%m/%d/%y"),
        'X' | 'T' => nested(out, "%H:%M:%S"),
        'F' => nested(out, "%Y-%m-%d"),
        'R' => nested(out, "%H:%M"),
        'r' => nested(out, "%I:%M:%S %p"),
        'n' => out.push('\n'),
        't' => out.push('\t'),
        'z' | 'Z' => {}
        '%' => out.push('%'),
        _ => return false,
    }
    true
}

fn name(out: &mut String, name: &str, flags: Flags) {
    if flags.upper || flags.swap { out.push_str(&name.to_uppercase()) } else { out.push_str(name) }
}

fn number(out: &mut String, number: i64, width: usize, padding: char, flags: Flags) {
    let _ = match flags.padding.unwrap_or(padding) {
        '-' => write!(out, "{number}"),
        '_' => write!(out, "{number:width$}"),
        _ => write!(out, "{number:0width$}"),
    };
}

fn is_leap(year: i32) -> bool {
    year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0)
}

/// Counted from 1.
fn day_of_year(time: &Timestamp) -> u32 {
    let month = usize::from(time.month.clamp(1, 12));
    DAYS_BEFORE[month - 1] + u32::from(time.day) + u32::from(month > 2 && is_leap(time.year))
}

/// Sunday is 0.
fn weekday(time: &Timestamp) -> u32 {
    let before = i64::from(time.year) - 1;
    let days = before * 365 + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400);
    u32::try_from((days + i64::from(day_of_year(time))).rem_euclid(7)).unwrap_or(0)
}

/// The year and week by ISO 8601.
fn iso_week(time: &Timestamp) -> (i32, u32) {
    let monday_based = (weekday(time) + 6) % 7;
    let day = day_of_year(time);
    let week = (day + 9 - monday_based) / 7;
    let weeks_in = |year: i32| {
        let january = weekday(&Timestamp { year, month: 1, day: 1, ..*time });
        if january == 4 || (january == 3 && is_leap(year)) { 53 } else { 52 }
    };
    if week == 0 {
        (time.year - 1, weeks_in(time.year - 1))
    } else if week > weeks_in(time.year) {
        (time.year + 1, 1)
    } else {
        (time.year, week)
    }
}
