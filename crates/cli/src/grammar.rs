//! The words of the command line that have a grammar of their own. (pure)
//!
//! Invariant: any text is read or refused, and no refusal names a secret. It knows no option.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What humantime reads as a month or a year.
const CALENDAR: [&str; 8] = ["M", "month", "months", "y", "yr", "yrs", "year", "years"];

/// A century: all clocks can count so far from now.
const LONGEST: Duration = Duration::from_secs(36_525 * 24 * 60 * 60);

/// A time as people write it: `1h 30min`, `1.5s`, or a number of seconds. Zero is one.
pub fn parse_duration(word: &str) -> Result<Duration, String> {
    let word = word.trim();
    let below = word.strip_prefix('-').unwrap_or_default();
    if below.starts_with(|c: char| c.is_ascii_digit()) {
        return Err("a time is not below zero: write it as 30s, or as 30".into());
    }
    let mut units = word.split(|c: char| !c.is_alphabetic());
    if let Some(unit) = units.find(|unit| CALENDAR.contains(unit)) {
        let minutes = if unit == "M" {
            ", and minutes as m"
        } else {
            ""
        };
        return Err(format!(
            "months and years differ in length: write days, as 30d{minutes}"
        ));
    }
    let is_bare = !word.is_empty() && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    let seconds = format!("{word}s");
    let time = if is_bare { &*seconds } else { word };
    match humantime::parse_duration(time) {
        Ok(time) if time > LONGEST => Err("it is longer than a century".into()),
        Ok(time) => Ok(time),
        Err(humantime::DurationError::NumberOverflow) => {
            Err("it is too long, or finer than a nanosecond".into())
        }
        Err(_) => Err("write it as 30s, 5min or 1h 30min; a number alone is seconds".into()),
    }
}

/// The same where nothing can be done in no time.
pub fn parse_some_duration(word: &str) -> Result<Duration, String> {
    match parse_duration(word) {
        Ok(Duration::ZERO) => Err("0 leaves no time for anything: it must be more".into()),
        time => time,
    }
}

/// So many permits of so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permits {
    pub count: u32,
    pub limit: u32,
}

impl FromStr for Permits {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let numbers = word
            .split_once('/')
            .map(|(count, limit)| (count.parse(), limit.parse()));
        match numbers {
            Some((Ok(0), _) | (_, Ok(0))) => Err("there must be at least one permit".into()),
            Some((Ok(count), Ok(limit))) if count > limit => {
                Err(format!("cannot take {count} permits: the limit is {limit}"))
            }
            Some((Ok(count), Ok(limit))) => Ok(Self { count, limit }),
            _ => Err("write it as 1/4: one permit of four".into()),
        }
    }
}

/// What must not be shown: any text is one, so that no refusal of it names it.
#[derive(Clone)]
pub struct Secret(String);

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// The scheme and the secret itself; `None` if one of them is not there.
    pub fn credential(&self) -> Option<(String, String)> {
        let parts = self.0.split_once(':');
        let parts = parts.filter(|(scheme, secret)| !scheme.is_empty() && !secret.is_empty());
        parts.map(|(scheme, secret)| (scheme.to_owned(), secret.to_owned()))
    }
}

/// What the fuzz target claims of any text in place of these words: see `fuzz/README.md`.
#[cfg(any(fuzzing, test))]
pub fn words(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match text.parse::<Permits>() {
        Ok(permits) => {
            assert!(1 <= permits.count && permits.count <= permits.limit);
            let shown = format!("{}/{}", permits.count, permits.limit);
            assert_eq!(shown.parse(), Ok(permits));
        }
        Err(why) => assert!(!why.is_empty()),
    }

    let secret = Secret::from(&*text);
    assert_eq!(format!("{secret:?}"), "Secret");
    let credential = secret.credential();
    let whole = credential.map(|(scheme, secret)| {
        assert!(!scheme.contains(':'));
        format!("{scheme}:{secret}")
    });
    assert!(whole.is_none_or(|whole| whole == text));

    match parse_duration(&text) {
        Ok(time) => {
            // It may have months, for the eye.
            let shown = humantime::format_duration(time).to_string();
            assert_eq!(humantime::parse_duration(&shown), Ok(time), "{shown}");
        }
        Err(why) => assert!(!why.is_empty() && !why.contains('\n')),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::panic::catch_unwind;
    use std::path::Path;

    use super::*;

    #[test]
    fn a_number_alone_is_seconds() {
        for (word, millis) in [
            ("30", 30_000),
            (" 30 ", 30_000),
            ("0", 0),
            ("0.5", 500),
            ("1.5s", 1500),
            ("250ms", 250),
            ("5m", 300_000),
            ("5min", 300_000),
            ("1h 30min", 5_400_000),
            ("2d", 172_800_000),
            ("1w", 604_800_000),
        ] {
            let time = Duration::from_millis(millis);
            assert_eq!(parse_duration(word), Ok(time), "{word}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused_in_words() {
        for (word, why) in [
            ("1month", "months and years"),
            ("1h 2months", "months and years"),
            ("2y", "write days"),
            ("1year", "write days"),
            ("5M", "minutes as m"),
            ("-5", "below zero"),
            ("-5s", "below zero"),
            ("soon", "a number alone is seconds"),
            ("5 minuts", "write it as 30s"),
            ("1h 30", "write it as 30s"),
            ("--no-wait", "write it as 30s"),
            ("", "write it as 30s"),
            (".", "write it as 30s"),
            ("1.2.3", "write it as 30s"),
            ("99999999999999999999", "too long"),
            ("36526d", "longer than a century"),
        ] {
            let error = parse_duration(word).unwrap_err();
            assert!(error.contains(why), "{word}: {error}");
        }
        assert!(
            parse_some_duration("0s")
                .unwrap_err()
                .contains("it must be more")
        );
        assert_eq!(parse_some_duration("1"), Ok(Duration::from_secs(1)));
    }

    #[test]
    fn what_is_in_the_corpus_keeps_its_claims() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/words");
        let mut seeds = 0;
        for seed in fs::read_dir(corpus).unwrap() {
            let path = seed.unwrap().path();
            let data = fs::read(&path).unwrap();
            assert!(catch_unwind(|| words(&data)).is_ok(), "{path:?}");
            seeds += 1;
        }
        assert!(seeds >= 8, "{seeds} seeds");
    }
}
