//! Plays a script on one server and writes down all that was heard.
//!
//! Invariant: one step at a time, and within a step every reply is awaited, so that what each
//! session hears between two of its replies is decided by the server and not by the scheduler.

use std::net::SocketAddr;

use super::op::{Op, Place};
use super::reply::{self, Event, Reply, Stamp};
use super::script::{Act, Hello, Password, SESSIONS, Step};
use testbench::wire::{Arrival, In, Out, Wire};

/// One thing that a session heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Welcome(Welcome),
    Event(Event),
    Reply(Op, Reply),
    Closed,
    Silence,
    Garbled(String),
}

/// The reply to a connect request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Welcome {
    pub(super) timeout_ms: i32,
    pub(super) session: i64,
    pub(super) password: Vec<u8>,
    /// What follows: the read-only flag.
    pub(super) rest: Vec<u8>,
}

/// What one session heard in one step.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    pub(super) step: usize,
    pub(super) session: usize,
    pub(super) lines: Vec<Line>,
}

/// A session as the client knows it.
#[derive(Default)]
struct Client {
    wire: Option<Wire>,
    session: i64,
    password: Vec<u8>,
}

struct Player<'a> {
    server: SocketAddr,
    root: &'a str,
    clients: [Client; SESSIONS],
    xid: i32,
    /// The zxids of the replies to writes.
    written: Vec<i64>,
    heard: Vec<Heard>,
}

/// Plays a script below `root`, which must not exist, and ends all its sessions.
pub(super) async fn play(server: SocketAddr, root: &str, script: &[Step]) -> Vec<Heard> {
    let mut player = Player {
        server,
        root,
        clients: Default::default(),
        xid: 0,
        written: Vec::new(),
        heard: Vec::new(),
    };
    for (number, step) in script.iter().enumerate() {
        player.step(number, step).await;
        if player.is_silent() {
            // Its answers to the rest would take as long as they say little.
            return player.heard;
        }
    }
    for session in 0..SESSIONS {
        let end = Step {
            session,
            act: Act::Send(vec![Op::CloseSession]),
        };
        player.step(script.len() + session, &end).await;
    }
    player.heard
}

impl Player<'_> {
    async fn step(&mut self, number: usize, step: &Step) {
        let ends_session =
            matches!(&step.act, Act::Send(ops) if ops.iter().any(|op| op.code() == -11));
        if ends_session {
            self.ask_others(number, step.session, false).await;
        }
        let mut lines = Vec::new();
        if matches!(&step.act, Act::Send(_)) {
            self.connect_if_needed(step.session, &mut lines).await;
        } else {
            // Whether a connection that ends still brings what is on its way is luck, so nothing
            // may be on its way.
            self.send(step.session, &[Op::Ping], &mut lines).await;
        }
        match &step.act {
            Act::Send(ops) => self.send(step.session, ops, &mut lines).await,
            Act::HangUp => self.hang_up(step.session, &mut lines).await,
            Act::Attach(hello) => self.attach(step.session, hello, &mut lines).await,
        }
        if ends_session {
            sort_events(&mut lines);
        }
        self.note(number, step.session, lines);
        if ends_session {
            self.ask_others(number, step.session, true).await;
        }
    }

    fn is_silent(&self) -> bool {
        let last = self.heard.last();
        last.is_some_and(|heard| heard.lines.contains(&Line::Silence))
    }

    fn note(&mut self, step: usize, session: usize, lines: Vec<Line>) {
        self.heard.push(Heard {
            step,
            session,
            lines,
        });
    }

    /// Collects the events that the others have been sent. The ephemerals of a session that ends go
    /// in the order of a Java hash set, so these events, and only these, are compared without their
    /// order.
    async fn ask_others(&mut self, number: usize, but: usize, sorted: bool) {
        for session in (0..SESSIONS).filter(|session| *session != but) {
            if self.clients[session].wire.is_some() {
                let mut lines = Vec::new();
                self.send(session, &[Op::Ping], &mut lines).await;
                if sorted {
                    sort_events(&mut lines);
                }
                self.note(number, session, lines);
            }
        }
    }

    async fn send(&mut self, session: usize, ops: &[Op], lines: &mut Vec<Line>) {
        let place = Place {
            root: self.root,
            written: &self.written,
        };
        let mut bytes = Vec::new();
        for op in ops {
            self.xid += 1;
            bytes.extend(op.frame(self.xid, &place));
        }
        let Some(wire) = &mut self.clients[session].wire else {
            return;
        };
        wire.send(&bytes).await;
        let mut is_over = false;
        for op in ops {
            loop {
                let line = hear(wire, op).await;
                let is_event = matches!(line, Line::Event(_));
                is_over = is_farewell(&line);
                if let Line::Reply(_, reply) = &line {
                    if let Stamp::Own(zxid) = reply.stamp {
                        self.written.push(zxid);
                    }
                } else if !is_event {
                    lines.push(line);
                    self.clients[session].wire = None;
                    return;
                }
                lines.push(line);
                if !is_event {
                    break;
                }
            }
            if is_over {
                break;
            }
        }
        if is_over {
            self.drain(session, lines).await;
        }
    }

    async fn connect_if_needed(&mut self, session: usize, lines: &mut Vec<Line>) {
        if self.clients[session].wire.is_none() && self.clients[session].session != 0 {
            self.attach(session, &Hello::USUAL, lines).await;
        }
        if self.clients[session].wire.is_none() {
            // Never had a session, or it is over.
            self.clients[session] = Client::default();
            self.attach(session, &Hello::USUAL, lines).await;
        }
    }

    async fn hang_up(&mut self, session: usize, lines: &mut Vec<Line>) {
        if let Some(wire) = &mut self.clients[session].wire {
            wire.hang_up().await;
        }
        self.drain(session, lines).await;
    }

    /// Reads to the end of the connection.
    async fn drain(&mut self, session: usize, lines: &mut Vec<Line>) {
        let Some(mut wire) = self.clients[session].wire.take() else {
            return;
        };
        loop {
            let line = hear(&mut wire, &Op::Ping).await;
            let is_over = !matches!(line, Line::Event(_) | Line::Reply(..));
            lines.push(line);
            if is_over {
                return;
            }
        }
    }

    /// Asks for the session on a new connection, and reads what becomes of the old one.
    async fn attach(&mut self, session: usize, hello: &Hello, lines: &mut Vec<Line>) {
        let client = &self.clients[session];
        let asks_for = client.session + if hello.is_stranger { 1 << 40 } else { 0 };
        let password = match hello.password {
            Password::Right if client.session == 0 => &[0; 16],
            Password::Right => &client.password[..],
            Password::Wrong => &[7; 16],
            Password::Short => &[7; 3],
        };
        let mut out = Out::default();
        out.int(0)
            .long(if hello.is_ahead { i64::MAX } else { 0 })
            .int(hello.timeout_ms)
            .long(asks_for)
            .buffer(Some(password));
        if hello.knows_read_only {
            out.flag(false);
        }
        let mut wire = Wire::dial(self.server).await;
        wire.send(&out.framed()).await;

        let greeting = greeting(&mut wire).await;
        // The old connection ends when the session is asked for, whatever the password.
        if matches!(greeting, Line::Welcome(_)) && !hello.is_stranger {
            self.drain(session, lines).await;
        }
        match &greeting {
            Line::Welcome(welcome) if welcome.session != 0 => {
                self.drain(session, lines).await;
                self.clients[session] = Client {
                    wire: Some(wire),
                    session: welcome.session,
                    password: welcome.password.clone(),
                };
            }
            // A refusal ends the new connection.
            Line::Welcome(_) => lines.push(hear(&mut wire, &Op::Ping).await),
            _ => {}
        }
        lines.push(greeting);
    }
}

async fn hear(wire: &mut Wire, op: &Op) -> Line {
    let frame = match wire.next().await {
        Arrival::Frame(frame) => frame,
        Arrival::Closed => return Line::Closed,
        Arrival::Silence => return Line::Silence,
    };
    if let Some(event) = reply::event(&frame) {
        return Line::Event(event);
    }
    reply::reply(op, &frame).map_or_else(
        || Line::Garbled(frame.escape_ascii().to_string()),
        |reply| Line::Reply(op.clone(), reply),
    )
}

async fn greeting(wire: &mut Wire) -> Line {
    let frame = match wire.next().await {
        Arrival::Frame(frame) => frame,
        Arrival::Closed => return Line::Closed,
        Arrival::Silence => return Line::Silence,
    };
    let mut input = In(&frame);
    let welcome = || {
        (input.int()? == 0).then_some(())?;
        Some(Welcome {
            timeout_ms: input.int()?,
            session: input.long()?,
            password: input.bytes()?,
            rest: input.0.to_vec(),
        })
    };
    let mut welcome = welcome;
    welcome().map_or_else(
        || Line::Garbled(frame.escape_ascii().to_string()),
        Line::Welcome,
    )
}

/// Whether the server ends the connection after this.
fn is_farewell(line: &Line) -> bool {
    const UNIMPLEMENTED: i32 = -6;
    const AUTH_FAILED: i32 = -115;
    matches!(line, Line::Reply(op, reply)
        if op.ends_session() || matches!(reply.error, AUTH_FAILED | UNIMPLEMENTED))
}

/// Sorts each run of events that has no reply in it.
fn sort_events(lines: &mut [Line]) {
    let is_event = |line: &Line| matches!(line, Line::Event(_));
    for run in lines.chunk_by_mut(|a, b| is_event(a) == is_event(b)) {
        run.sort_by_key(|line| match line {
            Line::Event(event) => Some(event.clone()),
            _ => None,
        });
    }
}
