//! What a fault of a link means for the decisions in `protocol/`. It keeps no message.

use super::{Code, Fault};
use crate::protocol::answer::Answer;

impl From<&Fault> for Answer {
    fn from(fault: &Fault) -> Self {
        match fault {
            Fault::Answered(Code::NoNode) => Self::NoNode,
            Fault::Answered(Code::NodeExists) => Self::NodeExists,
            Fault::Answered(Code::NotEmpty) => Self::NotEmpty,
            Fault::Answered(Code::NoAuth(_)) => Self::NoAuth,
            Fault::Answered(Code::NotNow(_)) => Self::NotNow,
            Fault::Answered(_) => Self::Refused,
            Fault::Unknown(_) => Self::Unknown,
        }
    }
}
