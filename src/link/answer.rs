//! What a fault of a link means for the decisions in `protocol/`, and a code in words.

use std::fmt;

use super::{Code, Fault};
use crate::protocol::answer::Answer;

impl From<&Fault> for Answer {
    fn from(fault: &Fault) -> Self {
        let (Fault::Answered(code) | Fault::Refused(_, code)) = fault else {
            return Self::Unknown;
        };
        match code {
            Code::NoNode => Self::NoNode,
            Code::NodeExists => Self::NodeExists,
            Code::NotEmpty => Self::NotEmpty,
            Code::NoAuth(_) => Self::NoAuth,
            Code::NotNow(_) | Code::Recovering(_) => Self::NotNow,
            _ => Self::Refused,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoNode => "no such node",
            Self::NodeExists => "the node exists already",
            Self::NotEmpty => "the node has children",
            Self::BadVersion => "the version differs",
            Self::Unauthenticated => "authentication failed",
            Self::NoAuth(_) => "no permission",
            Self::TooLarge(_) => "it is too large",
            Self::Recovering(_) => "the store has started again",
            Self::NotNow(words) | Self::Other(words) => words,
        })
    }
}
