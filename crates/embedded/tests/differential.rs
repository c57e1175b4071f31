//! The embedded server answers as real ZooKeeper does: the same random scripts are played on both,
//! and every reply and every event is compared; and bytes that are no requests hurt nobody but
//! their sender.
//!
//! A script that is answered differently is made shorter and printed with both answers.
//! `LOCKKEEPER_SEED=<seed>` plays the script of one seed alone.
//!
//! Compared: error codes, paths, data, children, access lists, stats, session time-outs, ends of
//! connections, xids, and where among its replies a session hears which event. Not compared,
//! because it cannot be equal: times; absolute zxids, session ids and passwords (they correspond
//! instead); the order of names in a list, of identities, and of the events of ephemerals that go
//! with their session (the order of a Java hash set). What is left out of the scripts is said in
//! `script.rs`, where it is left out.

mod compare;
mod garbage;
mod nouns;
mod op;
mod play;
mod reply;
mod script;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use zookeeper_client::{Acls, Client, CreateMode};
use zookeeper_embedded::EmbeddedServer;

use testbench::zookeeper::Servers;
use testbench::{World, case};

use self::compare::{Difference, compare};
use self::op::Op;
use self::play::{Line, play};
use self::script::{Act, Step, script};

/// How many differences are reported before the case gives up.
const REPORTS: usize = 3;

/// The requests that a script must have seen succeed: all but a check on its own and a
/// reconfiguration.
const CODES: [i32; 26] = [
    -11, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 14, 15, 17, 18, 19, 21, 22, 100, 101, 103, 104, 105,
    106, 107,
];

/// How long a failing script is made shorter.
const SHRINK: Duration = Duration::from_secs(20);

#[case(real, within = 300)]
async fn random_scripts_are_answered_as_by_real_zookeeper(world: World) {
    let mut both = Both::new(&world).await;
    // The short form plays the same scripts every time; the long one explores.
    let first: u64 = if World::soak() {
        uuid::Uuid::new_v4().as_u64_pair().0
    } else {
        2_026
    };
    let seeds = match std::env::var("LOCKKEEPER_SEED") {
        Ok(seed) => vec![seed.parse().expect("LOCKKEEPER_SEED is a number")],
        Err(_) => (0..World::times(300, 20_000) as u64)
            .map(|number| first.wrapping_add(number))
            .collect(),
    };

    let is_whole = seeds.len() > 1;

    let mut reports = Vec::new();
    for seed in seeds {
        let script = script(seed);
        if let Some(difference) = both.difference(&script).await {
            let (script, difference) = both.shorter(script, difference).await;
            let report = report(&script, &difference);
            reports.push(format!("LOCKKEEPER_SEED={seed}: {report}"));
        }
        if reports.len() == REPORTS {
            break;
        }
    }

    assert!(reports.is_empty(), "{}", reports.join("\n"));
    if is_whole {
        // Scripts in which nothing succeeds would agree too.
        let missing: Vec<i32> = BTreeSet::from(CODES)
            .difference(&both.granted)
            .copied()
            .collect();
        assert!(
            missing.is_empty(),
            "no request of these codes succeeded: {missing:?}"
        );
        assert_eq!(
            both.events,
            BTreeSet::from([1, 2, 3, 4]),
            "all kinds of events were heard"
        );
    }
    both.embedded.stop().await;
}

/// A real server and an embedded one with the same settings.
struct Both {
    _servers: Servers,
    real: SocketAddr,
    embedded: EmbeddedServer,
    chroot: String,
    played: usize,
    /// Codes of the requests that succeeded, and kinds of the events that were heard.
    granted: BTreeSet<i32>,
    events: BTreeSet<i32>,
}

impl Both {
    /// Of an ensemble one member serves all: others may be behind.
    async fn new(world: &World) -> Self {
        let embedded = EmbeddedServer::builder()
            .session_timeouts(Duration::from_millis(400), Duration::from_secs(60))
            .container_interval(Duration::from_secs(100_000))
            .start()
            .await
            .expect("a free port");
        let client = Client::connect(&embedded.connect_string())
            .await
            .expect("a plain client connects");
        let mode = CreateMode::Persistent.with_acls(Acls::anyone_all());
        client
            .create(world.chroot(), b"", &mode)
            .await
            .expect("an empty server takes the root");
        // A server of its own: what the neighbours do would show in zxids and at the root.
        let servers = tokio::task::spawn_blocking(|| Servers::start(1))
            .await
            .expect("it starts")
            .expect("it serves");
        let real = servers.addresses()[0];
        let stranger = Client::connect(&real.to_string())
            .await
            .expect("a plain client connects");
        stranger
            .create(world.chroot(), b"", &mode)
            .await
            .expect("an empty server takes the root");
        Self {
            real,
            _servers: servers,
            embedded,
            chroot: world.chroot().to_owned(),
            played: 0,
            granted: BTreeSet::new(),
            events: BTreeSet::new(),
        }
    }

    /// The real server reaps containers once a minute, which may fall into a script: what uses
    /// containers is played again before its difference counts.
    async fn difference(&mut self, script: &[Step]) -> Option<Difference> {
        let difference = self.play(script).await?;
        if script.iter().any(uses_containers) {
            return self.play(script).await;
        }
        Some(difference)
    }

    async fn play(&mut self, script: &[Step]) -> Option<Difference> {
        self.played += 1;
        let root = format!("{}/{}", self.chroot, self.played);
        let (real, embedded) = tokio::join!(
            play(self.real, &root, script),
            play(self.embedded.addr(), &root, script)
        );
        for line in embedded.iter().flat_map(|heard| &heard.lines) {
            match line {
                Line::Event(event) => drop(self.events.insert(event.kind)),
                Line::Reply(op, reply) if reply.error == 0 => drop(self.granted.insert(op.code())),
                _ => {}
            }
        }
        compare(&real, &embedded)
    }

    /// Leaves out what is not needed for a difference: steps, then requests of a step and parts of
    /// a multi.
    async fn shorter(
        &mut self,
        mut script: Vec<Step>,
        mut difference: Difference,
    ) -> (Vec<Step>, Difference) {
        let deadline = Instant::now() + SHRINK;
        script.truncate(difference.step + 1);
        let mut size = script.len() / 2;
        while size > 0 {
            let mut start = 0;
            while start < script.len() && Instant::now() < deadline {
                let mut fewer = script.clone();
                fewer.drain(start..(start + size).min(script.len()));
                match self.difference(&fewer).await {
                    Some(found) => (script, difference) = (fewer, found),
                    None => start += size,
                }
            }
            size /= 2;
        }
        let mut number = 0;
        while number < script.len() {
            let mut tries = script[number].smaller().into_iter();
            let mut found = None;
            while let (None, Some(step), true) = (&found, tries.next(), Instant::now() < deadline) {
                let mut smaller = script.clone();
                smaller[number] = step;
                found = self
                    .difference(&smaller)
                    .await
                    .map(|found| (smaller, found));
            }
            match found {
                Some(found) => (script, difference) = found,
                None => number += 1,
            }
        }
        (script, difference)
    }
}

fn uses_containers(step: &Step) -> bool {
    fn is_container(op: &Op) -> bool {
        match op {
            Op::Multi(parts) => parts.iter().any(is_container),
            op => op.code() == 19,
        }
    }
    matches!(&step.act, Act::Send(ops) if ops.iter().any(is_container))
}

fn report(script: &[Step], difference: &Difference) -> String {
    let steps: String = script
        .iter()
        .enumerate()
        .map(|(number, step)| format!("  {number}: session {} {:?}\n", step.session, step.act))
        .collect();
    format!(
        "the embedded server is unlike ZooKeeper in step {} of:\n{steps}{}",
        difference.step, difference.text
    )
}
