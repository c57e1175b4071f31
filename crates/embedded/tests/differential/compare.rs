//! Whether two servers said the same.
//!
//! Invariant: two transcripts are the same when one bijection of zxids that keeps their order, and
//! one of sessions, turn each into the other. All else must be equal.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Bound;

use super::play::{Heard, Line, Welcome};
use super::reply::{Event, Field, Reply, Stamp};

/// Where two transcripts part.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) step: usize,
    pub(super) text: String,
}

/// What corresponds to what, as far as the transcripts were read.
#[derive(Default)]
struct Pairs {
    zxids: BTreeMap<i64, i64>,
    sessions: BTreeMap<i64, i64>,
    /// The highest zxid that each side has shown, in the same order of sides.
    highest: (i64, i64),
}

/// The first difference between what a real server said and what the embedded one said.
pub(super) fn compare(real: &[Heard], embedded: &[Heard]) -> Option<Difference> {
    let mut pairs = Pairs::default();
    let mut both = real.iter().zip(embedded);
    let parted = both.find_map(|(a, b)| {
        let why = if a.lines.len() == b.lines.len() {
            let mut lines = a.lines.iter().zip(&b.lines);
            lines.find_map(|(a, b)| pairs.line(a, b).err())?
        } else {
            "one heard more".to_owned()
        };
        Some((a, b, why))
    });
    if let Some((a, b, why)) = parted {
        return Some(Difference {
            step: a.step.min(b.step),
            text: side_by_side(a, b, &why),
        });
    }
    // One side hears less often only after another difference; but nothing here relies on it.
    (real.len() != embedded.len()).then(|| Difference {
        step: real.len().min(embedded.len()),
        text: "one side heard more often".to_owned(),
    })
}

impl Pairs {
    fn line(&mut self, real: &Line, embedded: &Line) -> Result<(), String> {
        match (real, embedded) {
            (Line::Welcome(a), Line::Welcome(b)) => self.welcome(a, b),
            (Line::Event(a), Line::Event(b)) => same("event", a, b),
            (Line::Reply(_, a), Line::Reply(_, b)) => self.reply(a, b),
            (a, b) => same("outcome", a, b),
        }
    }

    fn welcome(&mut self, a: &Welcome, b: &Welcome) -> Result<(), String> {
        let is_blank = |welcome: &Welcome| welcome.password.iter().all(|byte| *byte == 0);
        same("timeout", &a.timeout_ms, &b.timeout_ms)?;
        same("password length", &a.password.len(), &b.password.len())?;
        same("blank password", &is_blank(a), &is_blank(b))?;
        same("rest", &a.rest, &b.rest)?;
        self.session(a.session, b.session)
    }

    fn reply(&mut self, a: &Reply, b: &Reply) -> Result<(), String> {
        same("xid", &a.xid, &b.xid)?;
        same("error", &a.error, &b.error)?;
        match (a.stamp, b.stamp) {
            (Stamp::Own(a), Stamp::Own(b)) => self.zxid("header zxid", a, b)?,
            (Stamp::Last(a), Stamp::Last(b)) => {
                if a < self.highest.0 || b < self.highest.1 {
                    return Err("the header zxid went back".to_owned());
                }
            }
            (a, b) => same("header zxid", &a, &b)?,
        }
        same("number of fields", &a.fields.len(), &b.fields.len())?;
        for (a, b) in a.fields.iter().zip(&b.fields) {
            match (a, b) {
                (Field::Zxid(name, a), Field::Zxid(_, b)) => self.zxid(name, *a, *b)?,
                (Field::Session(_, a), Field::Session(_, b)) => self.session(*a, *b)?,
                (a, b) => same("field", a, b)?,
            }
        }
        Ok(())
    }

    fn session(&mut self, a: i64, b: i64) -> Result<(), String> {
        if a == 0 || b == 0 {
            return same("session", &a, &b);
        }
        let is_new = !self.sessions.contains_key(&a);
        let is_taken = self.sessions.values().any(|known| *known == b);
        if self.sessions.entry(a).or_insert(b) == &b && is_new != is_taken {
            Ok(())
        } else {
            Err(format!("session {a:#x} is not session {b:#x}"))
        }
    }

    fn zxid(&mut self, name: &str, a: i64, b: i64) -> Result<(), String> {
        if a <= 0 || b <= 0 {
            return same(name, &a, &b);
        }
        self.highest = (self.highest.0.max(a), self.highest.1.max(b));
        let before = self.zxids.range(..a).next_back();
        let after = self
            .zxids
            .range((Bound::Excluded(a), Bound::Unbounded))
            .next();
        let fits = self.zxids.get(&a).is_none_or(|known| *known == b)
            && before.is_none_or(|(_, before)| *before < b)
            && after.is_none_or(|(_, after)| b < *after);
        self.zxids.insert(a, b);
        if fits {
            Ok(())
        } else {
            Err(format!(
                "{name}: zxid {a:#x} is not zxid {b:#x}, or they are not in the same order"
            ))
        }
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, a: &T, b: &T) -> Result<(), String> {
    if a == b {
        Ok(())
    } else {
        Err(format!("{what}: {a:?} is not {b:?}"))
    }
}

fn side_by_side(real: &Heard, embedded: &Heard, why: &str) -> String {
    let mut text = format!("  {why}\n");
    for (name, heard) in [("ZooKeeper", real), ("embedded", embedded)] {
        writeln!(
            text,
            "  {name} told session {} in step {}:",
            heard.session, heard.step
        )
        .unwrap();
        if heard.lines.is_empty() {
            text.push_str("    nothing\n");
        }
        for line in &heard.lines {
            writeln!(text, "    {}", show(line)).unwrap();
        }
    }
    text
}

fn show(line: &Line) -> String {
    match line {
        Line::Event(Event {
            path,
            kind,
            state,
            odd,
        }) => {
            let kind = ["", "created", "deleted", "data changed", "children changed"]
                .get(usize::try_from(*kind).unwrap_or(0))
                .copied()
                .unwrap_or("?");
            let odd = odd.as_deref().unwrap_or_default();
            format!("event {kind} {path} (state {state}) {odd}")
        }
        Line::Reply(
            op,
            Reply {
                xid,
                stamp,
                error,
                fields,
            },
        ) => {
            let mut text = format!("reply {xid} {stamp:?} error {error}");
            for field in fields {
                match field {
                    Field::Number(name, number) => write!(text, " {name}={number}"),
                    Field::Zxid(name, zxid) => write!(text, " {name}={zxid:#x}"),
                    Field::Session(name, session) => write!(text, " {name}={session:#x}"),
                    other => write!(text, " {other:?}"),
                }
                .unwrap();
            }
            format!("{text}\n      to {op:?}")
        }
        Line::Welcome(Welcome {
            timeout_ms,
            session,
            ..
        }) => {
            format!("welcome to session {session:#x} of {timeout_ms} ms")
        }
        other => format!("{other:?}"),
    }
}
