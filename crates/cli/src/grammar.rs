//! The words of the command line that have a grammar of their own. (pure)
//!
//! Invariant: any text is read or refused, and no refusal names a secret. It knows no option.

use std::fmt;
use std::str::FromStr;

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

    if let Ok(time) = humantime::parse_duration(&text) {
        let shown = humantime::format_duration(time).to_string();
        assert_eq!(humantime::parse_duration(&shown), Ok(time), "{shown}");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::panic::catch_unwind;
    use std::path::Path;

    use super::*;

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
