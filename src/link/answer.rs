//! What a fault of a link means for the decisions in `protocol/`. It keeps no message.

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
