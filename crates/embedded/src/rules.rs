//! Rules for requests: which requests they match, and the action to take.
//!
//! Invariant: of several rules that match a request only the oldest is used. It does nothing to the
//! request itself.

use std::sync::Arc;

use super::outbox::Latch;
use super::proto::{Code, Op, Request};

/// Which requests a rule is for.
#[derive(Debug, Clone)]
#[must_use]
pub struct Match {
    op: Option<Op>,
    session: Option<i64>,
    path: Option<PathMatch>,
}

#[derive(Debug, Clone)]
enum PathMatch {
    Exact(String),
    Prefix(String),
    Contains(String),
}

impl Match {
    /// Every request.
    pub fn any() -> Self {
        Self {
            op: None,
            session: None,
            path: None,
        }
    }

    /// Requests of one kind.
    pub fn op(op: Op) -> Self {
        Self {
            op: Some(op),
            ..Self::any()
        }
    }

    /// Only requests on exactly this path. For a multi or multi-read, one matching part is enough,
    /// here and below.
    pub fn path(self, path: impl Into<String>) -> Self {
        Self {
            path: Some(PathMatch::Exact(path.into())),
            ..self
        }
    }

    /// Only requests on a path with this prefix. A sequential create is matched by the path in the
    /// request.
    pub fn path_prefix(self, prefix: impl Into<String>) -> Self {
        Self {
            path: Some(PathMatch::Prefix(prefix.into())),
            ..self
        }
    }

    /// Only requests on a path that contains this.
    pub fn path_contains(self, piece: impl Into<String>) -> Self {
        Self {
            path: Some(PathMatch::Contains(piece.into())),
            ..self
        }
    }

    /// Only requests of this session.
    pub fn session(self, session: impl Into<i64>) -> Self {
        let session = session.into();
        Self {
            session: Some(session),
            ..self
        }
    }

    fn takes(&self, session: i64, request: &Request) -> bool {
        self.op.is_none_or(|op| op == request.op())
            && self.session.is_none_or(|wanted| wanted == session)
            && self.path.as_ref().is_none_or(|wanted| {
                request.any_path(|path| match wanted {
                    PathMatch::Exact(exact) => path == exact,
                    PathMatch::Prefix(prefix) => path.starts_with(prefix.as_str()),
                    PathMatch::Contains(piece) => path.contains(piece.as_str()),
                })
            })
    }
}

#[derive(Debug, Clone)]
pub(super) enum Action {
    DropReply,
    HoldReply(Arc<Latch>),
    StopBefore(Arc<Latch>),
    Fail(Code),
}

#[derive(Debug)]
struct Armed {
    what: Match,
    left: usize,
    action: Action,
}

/// The armed rules. The oldest match is used, and removed after its last time.
#[derive(Debug, Default)]
pub(super) struct Rules(Vec<Armed>);

impl Rules {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn take(&mut self, session: i64, request: &Request) -> Option<Action> {
        let index = self
            .0
            .iter()
            .position(|rule| rule.what.takes(session, request))?;
        let rule = self.0.get_mut(index)?;
        rule.left = rule.left.saturating_sub(1);
        let action = rule.action.clone();
        if rule.left == 0 {
            self.0.remove(index);
        }
        Some(action)
    }

    pub(super) fn arm(&mut self, what: Match, times: usize, action: Action) {
        if times > 0 {
            self.0.push(Armed {
                what,
                left: times,
                action,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::Write;

    fn delete(path: &str) -> Request {
        Request::Write(Write::Delete {
            path: path.to_owned(),
            version: -1,
        })
    }

    #[test]
    fn a_rule_is_used_up() {
        let mut rules = Rules::default();
        rules.arm(
            Match::op(Op::Delete).path_prefix("/a"),
            2,
            Action::DropReply,
        );

        assert!(rules.take(1, &delete("/b")).is_none());
        assert!(rules.take(1, &delete("/a/x")).is_some());
        assert!(rules.take(1, &delete("/a/y")).is_some());
        assert!(rules.take(1, &delete("/a/z")).is_none());
    }

    #[test]
    fn one_part_of_a_transaction_is_enough() {
        let write = |path: &str| Write::Delete {
            path: path.to_owned(),
            version: -1,
        };
        let multi = Request::Multi(vec![write("/a"), write("/b")]);

        assert!(Match::op(Op::Multi).path("/b").takes(1, &multi));
        assert!(!Match::op(Op::Multi).path("/c").takes(1, &multi));
        assert!(!Match::op(Op::Delete).path("/b").takes(1, &multi));
        assert!(!Match::any().session(2).takes(1, &multi));
        assert!(Match::any().path_contains("b").takes(1, &multi));
    }
}
