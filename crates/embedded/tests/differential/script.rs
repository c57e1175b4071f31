//! Scripts: what they are made of, and how one is made from a seed.
//!
//! Invariant: a script is a value. The same script means the same requests on any server, and any
//! part of its steps is a script too, so that a failing one can be made shorter.

use super::nouns::{ACLS, DATA, FOREIGN, NUMBERED, OPEN, PATHS, SCHEMES, SECRETS, STRANGE};
use super::op::{Acl, Bytes, Op, Path};
use Asked::{Change, Exist, Tell};
use testbench::dice::Dice;

/// What one session does next. A session that has no connection gets one first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) session: usize,
    pub(super) act: Act,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Requests back to back; then all their replies are read.
    Send(Vec<Op>),
    /// The client goes, and the server's end of the connection is awaited.
    HangUp,
    /// Another connection asks for the session while the old one is open.
    Attach(Hello),
}

impl Step {
    /// The same step with one request, or one part of a multi, left out.
    pub(super) fn smaller(&self) -> Vec<Self> {
        let Act::Send(ops) = &self.act else {
            return Vec::new();
        };
        let all = match &ops[..] {
            [Op::Multi(parts)] => without_one(parts)
                .map(|parts| vec![Op::Multi(parts)])
                .collect(),
            [Op::MultiRead(parts)] => without_one(parts)
                .map(|parts| vec![Op::MultiRead(parts)])
                .collect(),
            [_] => Vec::new(),
            ops => without_one(ops).collect::<Vec<_>>(),
        };
        let step = |ops| Self {
            session: self.session,
            act: Act::Send(ops),
        };
        all.into_iter().map(step).collect()
    }
}

fn without_one(ops: &[Op]) -> impl Iterator<Item = Vec<Op>> {
    (0..ops.len()).map(|index| [&ops[..index], &ops[index + 1..]].concat())
}

/// A connect request for the session of the step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) timeout_ms: i32,
    /// 16 bytes that are right, or others.
    pub(super) password: Password,
    pub(super) is_stranger: bool,
    /// Claims to have seen what the server has not.
    pub(super) is_ahead: bool,
    /// Old clients do not send the read-only flag.
    pub(super) knows_read_only: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Password {
    Right,
    Wrong,
    Short,
}

impl Hello {
    pub(super) const USUAL: Self = Self {
        timeout_ms: 30_000,
        password: Password::Right,
        is_stranger: false,
        is_ahead: false,
        knows_read_only: true,
    };
}

/// How many sessions a script has.
pub(super) const SESSIONS: usize = 3;

const STEPS: u64 = 40;

/// One script from a seed.
pub(super) fn script(seed: u64) -> Vec<Step> {
    let mut dice = Dice(seed);
    let mut steps = vec![Step {
        session: 0,
        act: Act::Send(vec![Op::Create {
            code: 1,
            path: Path::Below(""),
            data: Some(Bytes(b"")),
            acl: Some(OPEN),
            flags: 0,
            ttl: -1,
        }]),
    }];
    let count = STEPS - 10 + dice.below(21);
    for number in 0..count {
        // What nobody made cannot be read: scripts begin with creates.
        let is_seed = number < 12 && !dice.one_in(3);
        steps.push(if is_seed {
            Step {
                session: dice.session(),
                act: Act::Send(vec![easy_create(&mut dice)]),
            }
        } else {
            step(&mut dice)
        });
    }
    steps
}

/// One request from a seed.
pub(super) fn request(seed: u64) -> Op {
    op(&mut Dice(seed))
}

fn step(dice: &mut Dice) -> Step {
    let act = match dice.below(100) {
        0..=1 => Act::HangUp,
        2..=3 => Act::Attach(Hello::USUAL),
        4..=5 => Act::Attach(hello(dice)),
        6..=15 => Act::Send(
            (0..2 + dice.below(4))
                .filter_map(|_| pipelined(dice))
                .collect(),
        ),
        _ => Act::Send(vec![op(dice)]),
    };
    Step {
        session: dice.session(),
        act,
    }
}

/// A request that may stand among others. Not every one may, since real ZooKeeper's answer to some,
/// or to what comes behind them, is a matter of luck: some are answered past the queue; while a new
/// access list is on its way, the old one counts or the new; while a transaction that stumbled (and
/// not merely failed) is on its way, its first parts count.
fn pipelined(dice: &mut Dice) -> Option<Op> {
    fn stumbles(part: &Op) -> bool {
        match part {
            Op::Create { code, flags, .. } => *code != 21 && !(0..=4).contains(flags),
            Op::Delete(..) | Op::SetData(..) | Op::Check(..) => false,
            _ => true,
        }
    }
    Some(op(dice)).filter(|op| match op {
        Op::Odd(..) | Op::SetAcl(..) | Op::Auth(..) | Op::CloseSession => false,
        Op::Multi(parts) => !parts.iter().any(stumbles),
        _ => true,
    })
}

fn hello(dice: &mut Dice) -> Hello {
    Hello {
        timeout_ms: dice.pick(&[20_000, 40_000, 60_000, 100_000, i32::MAX]),
        password: dice.pick(&[Password::Right, Password::Wrong, Password::Short]),
        is_stranger: dice.one_in(4),
        is_ahead: dice.one_in(6),
        knows_read_only: !dice.one_in(3),
    }
}

fn op(dice: &mut Dice) -> Op {
    match dice.below(100) {
        0..=21 => create(dice),
        22..=30 => Op::Delete(dice.path(Exist), dice.version()),
        31..=38 => Op::SetData(dice.path(Change), dice.pick(&DATA), dice.version()),
        39..=44 => Op::Exists(dice.path(Tell), dice.one_in(2)),
        45..=50 => Op::GetData(dice.path(Tell), dice.one_in(2)),
        51..=54 => Op::GetChildren(dice.path(Tell), dice.one_in(2)),
        55..=58 => Op::GetChildren2(dice.path(Tell), dice.one_in(2)),
        59..=65 => Op::Multi((0..dice.below(5)).map(|_| part(dice)).collect()),
        66..=68 => Op::MultiRead((0..dice.below(5)).map(|_| part_of_read(dice)).collect()),
        69..=71 => Op::AddWatch(dice.path(Tell), dice.pick(&[0, 0, 1, 1, 1, 2, -1])),
        72..=73 => Op::RemoveWatches(dice.absolute(Exist), dice.pick(&[1, 2, 3, 3, 0, 4])),
        74..=75 => Op::CheckWatches(dice.absolute(Tell), dice.pick(&[1, 2, 3, 3, 0, 4])),
        76..=77 => Op::SetWatches {
            both_forms: dice.one_in(2),
            writes_ago: dice.below(12) as usize,
            paths: std::array::from_fn(|_| (0..dice.below(3)).map(|_| dice.path(Tell)).collect()),
        },
        78..=79 => Op::GetAcl(dice.path(Tell)),
        80..=82 => Op::SetAcl(dice.path(Change), dice.acl(), dice.version()),
        83..=85 => Op::Auth(dice.pick(&SCHEMES), Bytes(dice.pick(&SECRETS))),
        // A check on its own that succeeds is never answered by a real server, so these fail.
        86 => Op::Check(dice.path(Change), 77),
        87..=88 => Op::Sync(dice.path(Exist)),
        89..=90 => Op::GetEphemerals(dice.path(Exist)),
        91..=92 => Op::CountChildren(dice.path(Tell)),
        93 => Op::WhoAmI,
        94 => Op::Ping,
        95..=96 => Op::CloseSession,
        97 => odd(dice),
        _ => Op::GetData(Path::Below("/a"), true),
    }
}

/// A create with nothing wrong but, perhaps, its path.
fn easy_create(dice: &mut Dice) -> Op {
    let (code, flags) = dice.pick(&[
        (1, 0),
        (1, 0),
        (15, 0),
        (15, 0),
        (1, 1),
        (1, 2),
        (15, 3),
        (19, 4),
        (21, 5),
    ]);
    Op::Create {
        code,
        path: Path::Below(dice.pick(&PATHS)),
        data: dice.pick(&DATA),
        acl: if dice.one_in(10) {
            dice.acl()
        } else {
            Some(OPEN)
        },
        flags,
        ttl: 100_000,
    }
}

fn create(dice: &mut Dice) -> Op {
    if dice.one_in(2) {
        return easy_create(dice);
    }
    let code = dice.pick(&[1, 1, 1, 1, 15, 15, 19, 21]);
    let (flags, ttl) = match code {
        19 => (dice.pick(&[4, 4, 4, 4, 0, 1, 2, 3, 5, 9]), -1),
        // A real server ends when the TTL form of create comes without a TTL mode, so these two
        // modes only.
        21 => (
            dice.pick(&[5, 6]),
            dice.pick(&[100_000, 100_000, 100_000, 0, -1, 1 << 39, 1 << 40, i64::MAX]),
        ),
        _ => (
            dice.pick(&[0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, -1]),
            -1,
        ),
    };
    Op::Create {
        code,
        path: match dice.path(Exist) {
            // A number in there depends on how often others have created.
            Path::Foreign(Bytes(b"/")) if flags != 0 => Path::Below("/a"),
            path => path,
        },
        data: dice.pick(&DATA),
        acl: if dice.one_in(5) {
            dice.acl()
        } else {
            Some(OPEN)
        },
        flags,
        ttl,
    }
}

fn part(dice: &mut Dice) -> Op {
    match dice.below(40) {
        0..=17 => create(dice),
        18..=24 => Op::Delete(dice.path(Exist), dice.version()),
        25..=31 => Op::SetData(dice.path(Change), dice.pick(&DATA), dice.version()),
        32..=38 => Op::Check(dice.path(Change), dice.version()),
        _ => op(dice),
    }
}

/// Reads, and seldom what is none. Writes are left out: to these a real server answers an error
/// with a body.
fn part_of_read(dice: &mut Dice) -> Op {
    match dice.below(20) {
        0..=9 => Op::GetData(dice.path(Tell), dice.one_in(2)),
        10..=18 => Op::GetChildren(dice.path(Tell), dice.one_in(2)),
        _ => Op::Exists(dice.path(Tell), false),
    }
}

/// A code that no client sends. A reconfiguration is sound: a follower never answers one that
/// cannot be read.
fn odd(dice: &mut Dice) -> Op {
    if dice.one_in(10) {
        return Op::Odd(16, Bytes(dice.pick(&[&[0; 20], &[0xff; 20]])));
    }
    let code = dice.pick(&[0, -1, 10, 20, 23, 99, 102, 108, 999, i32::MIN]);
    let bodies: [&[u8]; 5] = [b"", b"\0\0\0\x02/a\0\0\0\0", b"/a", &[0; 20], &[0xff; 20]];
    Op::Odd(code, Bytes(dice.pick(&bodies)))
}

/// What is asked of a path decides which of the nodes that belong to all users of a server it may
/// be: the answer must not depend on what others do, nor change what they see.
#[derive(Clone, Copy, Debug)]
enum Asked {
    /// To be: all these are refused.
    Exist,
    /// To tell its state or to be watched.
    Tell,
    Change,
}

impl Asked {
    fn shared(self) -> &'static [&'static [u8]] {
        match self {
            Self::Exist => &[b"/", b"", b"/zookeeper/quota"],
            Self::Tell => &[b"/zookeeper/quota"],
            Self::Change => &[b"x", b""],
        }
    }
}

/// What the dice choose of a script.
trait Choices {
    fn session(&mut self) -> usize;
    fn path(&mut self, asked: Asked) -> Path;
    fn absolute(&mut self, asked: Asked) -> Path;
    fn version(&mut self) -> i32;
    fn acl(&mut self) -> Option<&'static [Acl]>;
}

impl Choices for Dice {
    fn session(&mut self) -> usize {
        self.below(SESSIONS as u64) as usize
    }

    fn path(&mut self, asked: Asked) -> Path {
        match self.below(32) {
            0 => Path::Below(self.pick(&STRANGE)),
            1 if self.one_in(2) => Path::Foreign(Bytes(self.pick(asked.shared()))),
            1 => Path::Foreign(Bytes(self.pick(&FOREIGN))),
            2..=5 => Path::Below(self.pick(&NUMBERED)),
            _ => Path::Below(self.pick(&PATHS)),
        }
    }

    /// A path that at least starts with a slash. The watches of others that do not depends on
    /// whether anybody at all has a recursive watch.
    fn absolute(&mut self, asked: Asked) -> Path {
        match self.path(asked) {
            Path::Foreign(Bytes(bytes)) if !bytes.starts_with(b"/") => Path::Below("/a"),
            path => path,
        }
    }

    fn version(&mut self) -> i32 {
        self.pick(&[-1, -1, -1, -1, -1, -1, 0, 0, 0, 1, 2, 77, -2, i32::MIN])
    }

    fn acl(&mut self) -> Option<&'static [Acl]> {
        if self.one_in(3) {
            Some(OPEN)
        } else {
            self.pick(&ACLS)
        }
    }
}
