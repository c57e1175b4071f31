//! Joining: what the answer to a create means, for one ticket or for several together. (pure)
//!
//! Invariants: a create whose reply was lost is not sent again before a search for what it
//! made; tickets of several queues are adopted together or not at all. It sends nothing: the
//! queue does, and so does the exhaustive search of the tests.

use super::answer::Answer;

/// What follows a create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterCreate {
    /// The tickets are there.
    Created,
    /// A directory is missing: make it, and create again.
    MakeDirectories,
    /// The counter is at its end: wait until numbers begin again, and create again.
    WaitForCounter,
    /// Nothing was changed: create again after a pause.
    Again,
    /// Look for what it made.
    FindOut,
    /// The servers refuse.
    Refused,
}

impl From<Answer> for AfterCreate {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Done => Self::Created,
            Answer::NoNode => Self::MakeDirectories,
            Answer::NodeExists => Self::WaitForCounter,
            Answer::NotNow => Self::Again,
            Answer::Unknown => Self::FindOut,
            Answer::NoAuth | Answer::NotEmpty | Answer::Refused => Self::Refused,
        }
    }
}

/// What a create with a lost reply made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Adoption<T> {
    /// Nothing: create again.
    Nothing,
    All(Vec<T>),
    /// Somebody has removed the others. What is left of the set must not stand in our own way:
    /// remove it, and create again.
    Part(Vec<Option<T>>),
}

impl<T> Adoption<T> {
    /// From what was found in each queue.
    pub(crate) fn of(found: Vec<Option<T>>) -> Self {
        if found.iter().all(Option::is_none) {
            Self::Nothing
        } else if found.iter().any(Option::is_none) {
            Self::Part(found)
        } else {
            Self::All(found.into_iter().flatten().collect())
        }
    }
}
