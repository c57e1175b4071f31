//! The rules, pure: bytes, names and times come in as arguments, and verdicts go out.
//!
//! Nothing here sends, waits, reads a clock or writes a log, so the exhaustive search and property
//! tests drive the real code.

pub(crate) mod acl;
pub(crate) mod answer;
pub(crate) mod departure;
pub(crate) mod dialect;
#[cfg(any(test, feature = "postgres", feature = "redis"))]
pub(crate) mod epoch;
pub(crate) mod exchange;
pub(crate) mod join;
pub(crate) mod journal_page;
pub(crate) mod kind;
pub(crate) mod leader;
pub(crate) mod lease;
pub(crate) mod mark;
pub(crate) mod permits;
pub(crate) mod rule;
pub(crate) mod several;
pub(crate) mod sweep;
pub(crate) mod ticket;
pub(crate) mod walk;
