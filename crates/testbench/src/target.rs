//! The servers of this run, selected by `LOCKKEEPER_TEST_ON`.
//!
//! It never falls back: an unknown word is an error, not the default.

use super::case::Where;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Embedded,
    Zookeeper,
    Ensemble,
}

impl Target {
    pub fn from_env() -> Result<Self, String> {
        let word = std::env::var_os("LOCKKEEPER_TEST_ON").unwrap_or_default();
        match word.to_str() {
            Some("" | "embedded") => Ok(Self::Embedded),
            Some("zookeeper") => Ok(Self::Zookeeper),
            Some("ensemble") => Ok(Self::Ensemble),
            _ => Err(format!(
                "LOCKKEEPER_TEST_ON is {word:?}: say embedded (the default), zookeeper (one server) or ensemble (three)"
            )),
        }
    }

    /// The number of JVMs.
    pub fn members(self) -> Option<usize> {
        match self {
            Self::Embedded => None,
            Self::Zookeeper => Some(1),
            Self::Ensemble => Some(3),
        }
    }

    pub fn takes(self, place: Where) -> bool {
        match place {
            Where::Both => true,
            Where::Embedded => self == Self::Embedded,
            Where::Real => self != Self::Embedded,
        }
    }
}
