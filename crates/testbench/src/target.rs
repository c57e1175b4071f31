//! The servers of this run, selected by `LOCKKEEPER_TEST_ON`.
//!
//! It never falls back: an unknown word is an error, not the default.

use super::case::Where;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Embedded,
    Zookeeper,
    Ensemble,
    Redis,
    Postgres,
}

impl Target {
    pub fn from_env() -> Result<Self, String> {
        let word = std::env::var_os("LOCKKEEPER_TEST_ON").unwrap_or_default();
        match word.to_str() {
            Some("" | "embedded") => Ok(Self::Embedded),
            Some("zookeeper") => Ok(Self::Zookeeper),
            Some("ensemble") => Ok(Self::Ensemble),
            Some("redis") => Ok(Self::Redis),
            Some("postgres") => Ok(Self::Postgres),
            _ => Err(format!(
                "LOCKKEEPER_TEST_ON is {word:?}: say embedded (the default), zookeeper (one server), ensemble (three), redis or postgres"
            )),
        }
    }

    /// The number of JVMs.
    pub fn members(self) -> Option<usize> {
        match self {
            Self::Embedded | Self::Redis | Self::Postgres => None,
            Self::Zookeeper => Some(1),
            Self::Ensemble => Some(3),
        }
    }

    pub fn takes(self, place: Where) -> bool {
        match place {
            Where::Every => true,
            Where::ZooKeeper(_) => !matches!(self, Self::Redis | Self::Postgres),
            Where::Embedded => self == Self::Embedded,
            Where::EmbeddedAndRedis => matches!(self, Self::Embedded | Self::Redis),
            Where::Redis => self == Self::Redis,
            Where::Postgres => self == Self::Postgres,
            Where::Real => matches!(self, Self::Zookeeper | Self::Ensemble),
        }
    }
}
