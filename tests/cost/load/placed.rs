//! Puts fleets in place: keepers for processes, with their guards and waiters.
//!
//! All of them are in this process; to a server they are as many strangers. It counts nothing.

use std::time::Duration;

use futures_util::stream::{StreamExt, iter};
use lockkeeper::{Guard, Keeper, LeaseStrength};
use tokio::task::JoinSet;
use zookeeper_client::Client;

use super::model::{Fleet, Load};
use super::site::Site;
use testbench::eventually;

/// Keepers that connect at the same time.
const AT_ONCE: usize = 16;

/// What one process of a fleet does.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    pub(crate) processes: usize,
    pub(crate) held: usize,
    pub(crate) waiting: usize,
    pub(crate) strength: LeaseStrength,
}

/// Fleets that stand where they should; they go with it.
pub(crate) struct Placed {
    fleets: Vec<Fleet>,
    /// Nodes of directories, and the bytes of their paths.
    pub(crate) directories: usize,
    pub(crate) directory_bytes: usize,
    keepers: Vec<Keeper>,
    guards: Vec<Guard>,
    crowd: JoinSet<lockkeeper::Result<Guard>>,
}

impl Placed {
    /// Puts these parts in place, and returns when each waiter has its watch.
    pub(crate) async fn on(site: &Site, timeout: Duration, parts: &[Part]) -> Self {
        let mut placed = Self {
            fleets: Vec::new(),
            directories: 0,
            directory_bytes: 0,
            keepers: Vec::new(),
            guards: Vec::new(),
            crowd: JoinSet::new(),
        };
        let before = site.told().await;
        let mut watches = 0;
        for (at, part) in parts.iter().enumerate() {
            let set = format!("set-{at}");
            placed.put(site, timeout, &set, *part).await;
            watches += i64::try_from(part.processes * part.waiting).unwrap();
        }
        let all_watch = || async { site.told().await.since(&before).watches == watches };
        eventually("all watch", Duration::from_secs(120), all_watch).await;
        placed.measure_line(site).await;
        placed
    }

    /// What the model says of all of them.
    pub(crate) fn load(&self) -> Load {
        self.fleets.iter().map(Fleet::load).sum()
    }

    pub(crate) async fn close(mut self) {
        self.guards.clear();
        self.crowd.shutdown().await;
        let closing = iter(&self.keepers).map(Keeper::close);
        closing.buffer_unordered(AT_ONCE).collect::<()>().await;
    }

    async fn put(&mut self, site: &Site, timeout: Duration, set: &str, part: Part) {
        let builder = Keeper::builder(site.connect_string())
            .session_timeout(timeout)
            .lease_strength(part.strength);
        if part.held + part.waiting > 0 {
            self.note_directory(&format!("/locks/{set}"));
        }
        let held = |process: usize, lock: usize| format!("{set}/{process:04}-{lock:04}");
        let opened = iter(0..part.processes).map(|process| {
            let builder = builder.clone();
            async move {
                let keeper = builder.connect().await.unwrap();
                let mut guards = Vec::new();
                for lock in 0..part.held {
                    let lock = keeper.mutex(held(process, lock)).unwrap();
                    guards.push(lock.lock().await.unwrap());
                }
                (keeper, guards)
            }
        });
        let opened: Vec<_> = opened.buffer_unordered(AT_ONCE).collect().await;
        let fleet = Fleet {
            processes: part.processes,
            held: part.held,
            waiting: part.waiting,
            directory: "/locks/".len() + held(0, 0).len(),
            line: 0,
            timeout,
            strength: part.strength,
        };
        let crowd = format!("{set}/the-crowd");
        if part.waiting > 0 {
            // Another client holds the locks that they wait for.
            let keeper = builder.connect().await.unwrap();
            let lock = keeper.mutex(crowd.as_str()).unwrap();
            self.guards.push(lock.lock().await.unwrap());
            self.note_directory(&format!("/locks/{crowd}"));
            self.keepers.push(keeper);
            self.fleets.push(Fleet {
                processes: 1,
                held: 1,
                waiting: 0,
                ..fleet
            });
        }
        for (keeper, guards) in opened {
            for guard in guards {
                self.note_directory(&format!("/locks/{}", guard.name()));
                self.guards.push(guard);
            }
            for _ in 0..part.waiting {
                let lock = keeper.mutex(crowd.as_str()).unwrap();
                self.crowd.spawn(async move { lock.lock().await });
            }
            self.keepers.push(keeper);
        }
        self.fleets.push(fleet);
    }

    /// Looks how long the line in a ticket is: as long in all of them, because all are made by one
    /// host and pid.
    async fn measure_line(&mut self, site: &Site) {
        let Some(guard) = self.guards.first() else {
            return;
        };
        let client = Client::connect(&site.connect_string()).await.unwrap();
        let path = format!("/locks/{}/{}", guard.name(), guard.node());
        client.sync(&path).await.unwrap();
        let (data, _) = client.get_data(&path).await.unwrap();
        for fleet in &mut self.fleets {
            fleet.line = data.len();
        }
        let mut state = client.state_watcher();
        drop(client);
        while !state.changed().await.is_terminated() {}
    }

    fn note_directory(&mut self, path: &str) {
        if self.directories == 0 {
            // The one above all of them.
            (self.directories, self.directory_bytes) = (1, "/locks".len());
        }
        self.directories += 1;
        self.directory_bytes += path.len();
    }
}
