//! Text for the console: numbers with their thousands apart, and progress lines.
//!
//! It knows nothing of what the numbers mean.

use std::error::Error;
use std::fmt::Display;

use crate::results::Spread;

/// Prints a progress line to stderr.
#[expect(clippy::print_stderr, reason = "the one place that talks")]
pub(crate) fn say(line: impl Display) {
    eprintln!("{line}");
}

/// Says a part of a line, at once.
#[expect(clippy::print_stderr, reason = "the one place that talks")]
pub(crate) fn say_on(part: impl Display) {
    eprint!("{part}");
}

/// Prints a line of what was asked for.
#[expect(clippy::print_stdout, reason = "the one place that answers")]
pub(crate) fn print(line: impl Display) {
    println!("{line}");
}

/// An error with all that led to it.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}

/// A whole number with its thousands apart.
pub(crate) fn whole(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(' ');
        }
        text.push(digit);
    }
    if number < 0.0 {
        format!("-{text}")
    } else {
        text
    }
}

/// Three digits that say something.
pub(crate) fn three(number: f64) -> String {
    match number.abs() {
        size if size >= 100.0 => whole(number),
        size if size >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// `median (min to max)`.
pub(crate) fn spread(spread: Spread, number: fn(f64) -> String) -> String {
    let Spread {
        median,
        min,
        max,
        rounds,
    } = spread;
    match rounds {
        1 => number(median),
        _ => format!("{} ({} to {})", number(median), number(min), number(max)),
    }
}

/// Bytes in the unit that suits them.
pub(crate) fn bytes(number: f64) -> String {
    const KIB: f64 = 1024.0;
    match number {
        small if small < KIB => format!("{} B", whole(small)),
        some if some < KIB * KIB => format!("{} KiB", three(some / KIB)),
        many => format!("{} MiB", three(many / KIB / KIB)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        assert_eq!(whole(7.4), "7");
        assert_eq!(whole(999.6), "1 000");
        assert_eq!(whole(1_234_567.0), "1 234 567");
        assert_eq!(three(3.456), "3.46");
        assert_eq!(bytes(2_150.0), "2.10 KiB");
    }
}
