//! Which servers this run is on, as `LOCKKEEPER_TEST_ON` says.
//!
//! It never falls back: a word that it does not know is an error, not the default.

use super::case::Where;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Embedded,
    Zookeeper,
    Ensemble,
}

impl Target {
    pub(crate) fn from_env() -> Result<Self, String> {
        match std::env::var("LOCKKEEPER_TEST_ON").as_deref() {
            Err(std::env::VarError::NotPresent) | Ok("" | "embedded") => Ok(Self::Embedded),
            Ok("zookeeper") => Ok(Self::Zookeeper),
            Ok("ensemble") => Ok(Self::Ensemble),
            other => Err(format!(
                "LOCKKEEPER_TEST_ON is {other:?}: say embedded (the default), zookeeper (one server) or ensemble (three)"
            )),
        }
    }

    /// How many JVMs it takes.
    pub(crate) fn members(self) -> Option<usize> {
        match self {
            Self::Embedded => None,
            Self::Zookeeper => Some(1),
            Self::Ensemble => Some(3),
        }
    }

    pub(crate) fn takes(self, place: Where) -> bool {
        match place {
            Where::Both => true,
            Where::Embedded => self == Self::Embedded,
            Where::Real => self != Self::Embedded,
        }
    }
}
