//! Silences of the servers that a session timeout outlives: no command gets TERM, and no guard is
//! lost.
//!
//! Many holders meet each silence, and it begins at another moment between two beats for each of
//! them. What a lease has beyond a silence grows with the session timeout, and what a busy machine
//! takes of that does not: a round that was not survived is played again with times that are twice
//! as long.

use std::process::Stdio;
use std::time::Duration;

use lockkeeper::{Guard, Keeper};
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep, sleep_until};

use crate::commands::Holder;
use crate::commands::loss::end;
use crate::tool::lockkeeper;
use testbench::proxy::{Proxies, Way};
use testbench::zookeeper::Servers;
use testbench::{World, case, words};

/// A round whose fault was not what it should be is played again, so often.
const TRIES: usize = 10;
/// Where not even this is enough, the rule is broken and not the machine.
const LONGEST: Duration = Duration::from_secs(16);

/// The times of a case.
#[derive(Clone, Copy, Debug)]
struct Times {
    timeout: Duration,
    tick: Duration,
    /// How long a server that stands alone is silent.
    alone: Duration,
    /// How long an ensemble is.
    together: Duration,
}

impl Times {
    /// The long form has those of the page. The short form's are longer where servers took longer
    /// to start, because the machine is busy then, and always too long for a lease that reckons
    /// with a lag that is not there.
    fn of_servers_that_took(start: Duration) -> Self {
        let ms = Duration::from_millis;
        if World::soak() {
            return Self {
                timeout: ms(10_000),
                tick: tick(),
                alone: ms(6000),
                together: ms(4500),
            };
        }
        Self::short((start * 2).clamp(ms(4000), LONGEST))
    }

    fn short(timeout: Duration) -> Self {
        Self {
            timeout,
            tick: tick(),
            alone: timeout * 3 / 5,
            together: timeout * 11 / 20,
        }
    }

    /// Twice as long, if they are not the longest.
    fn longer(self) -> Option<Self> {
        let timeout = LONGEST.min(self.timeout * 2);
        (timeout > self.timeout).then(|| Self::short(timeout))
    }
}

/// The servers' tick.
fn tick() -> Duration {
    Duration::from_millis(if World::soak() { 2000 } else { 400 })
}

/// Commands under the tool, and guards, with a keeper each.
pub(super) struct Holders {
    commands: Vec<Holder>,
    guards: Vec<Guard>,
    _keepers: Vec<Keeper>,
}

/// How many of each a silence has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) commands: usize,
    pub(super) guards: usize,
}

impl Holders {
    /// As many of each kind as meet one silence.
    pub(super) async fn start(
        world: &World,
        hosts: &str,
        (timeout, tick): (Duration, Option<Duration>),
        round: &str,
    ) -> Self {
        let ms = |time: Duration| format!("{}ms", time.as_millis());
        let count = World::times(5, 10);
        let (mut commands, mut guards, mut keepers) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..count {
            let mut builder = Keeper::builder(hosts).session_timeout(timeout);
            let mut command = lockkeeper(world);
            command.args(["--zk", hosts, "--session-timeout", &ms(timeout)]);
            if let Some(tick) = tick {
                builder = builder.tick_time(tick);
                command.args(["--tick", &ms(tick)]);
            }
            command.args(["run", &format!("command/{round}/{number}")]);
            command.args(["--", "sh", "-c", "echo ready; read line; exit 0"]);
            commands.push(Holder::start(command.stdin(Stdio::piped())).await);
            let keeper = builder.connect().await.unwrap();
            let lock = keeper.mutex(format!("guard/{round}/{number}")).unwrap();
            guards.push(lock.lock().await.unwrap());
            keepers.push(keeper);
            // A beat comes each tenth of the session timeout.
            sleep(timeout / 10 / u32::try_from(count).unwrap()).await;
        }
        Self {
            commands,
            guards,
            _keepers: keepers,
        }
    }

    /// Ends those that are left.
    pub(super) async fn ended(self) -> Ended {
        let mut ended = Ended {
            commands: 0,
            guards: 0,
        };
        for guard in self.guards {
            if let Err(error) = guard.release().await {
                println!("a guard ended with: {error}");
                ended.guards += 1;
            }
        }
        for mut command in self.commands {
            drop(command.tool.stdin.take());
            let (code, stderr) = end(command).await;
            if code != Some(0) {
                println!("a command ended with {code:?}: {stderr:?}");
                ended.commands += 1;
            }
        }
        ended
    }
}

/// Silences that holders meet, until as many as are wanted count.
struct Rounds<'a> {
    world: &'a World,
    hosts: String,
    times: Times,
    tick: Option<Duration>,
    played: usize,
    counted: usize,
}

/// One of them.
struct Round {
    holders: Holders,
    began: Instant,
    times: Times,
}

impl<'a> Rounds<'a> {
    fn new(world: &'a World, hosts: String, times: Times) -> Self {
        println!("{times:?}");
        Self {
            world,
            hosts,
            times,
            tick: None,
            played: 0,
            counted: 0,
        }
    }

    /// The same with a declared tick.
    fn of_an_ensemble(world: &'a World, hosts: String, times: Times) -> Self {
        Self {
            tick: Some(times.tick),
            ..Self::new(world, hosts, times)
        }
    }

    /// The next one, if one is still wanted.
    async fn next(&mut self) -> Option<Round> {
        let wanted = World::times(1, 5);
        if self.counted == wanted {
            return None;
        }
        let (counted, played) = (self.counted, self.played);
        assert!(
            played < TRIES * wanted,
            "{counted} of {played} rounds count"
        );
        self.played += 1;
        let times = self.times;
        let (round, given) = (self.played.to_string(), (times.timeout, self.tick));
        let holders = Holders::start(self.world, &self.hosts, given, &round).await;
        Some(Round {
            holders,
            began: Instant::now(),
            times,
        })
    }

    /// Judges a round whose silence was what it should be.
    async fn survive(&mut self, round: Round) {
        let Round {
            holders,
            began,
            times,
        } = round;
        // Every lease from before it is over by then.
        sleep_until(began + times.timeout).await;
        let count = holders.guards.len();
        let ended = holders.ended().await;

        println!("{ended:?} of {count} each, with {times:?}");
        if (ended.commands, ended.guards) == (0, 0) {
            self.counted += 1;
            return;
        }
        let longer = times.longer();
        self.times = longer.unwrap_or_else(|| panic!("{ended:?} of {count} each"));
    }

    /// The fault took longer than these times allow, because the machine is busier than it was.
    fn played_too_slowly(&mut self) {
        self.times = self.times.longer().unwrap_or(self.times);
    }
}

#[case(embedded, within = 120)]
async fn a_silence_of_the_embedded_server_ends_nothing(world: World) {
    let proxies = Proxies::before(&world);
    let times = Times::of_servers_that_took(Duration::ZERO);
    let mut rounds = Rounds::new(&world, proxies.connect_string(), times);
    while let Some(round) = rounds.next().await {
        proxies.black_hole(Way::Both);
        sleep(round.times.alone).await;
        proxies.heal();
        rounds.survive(round).await;
    }
}

#[case(real, within = 300)]
async fn a_single_server_that_is_silent_or_started_again_ends_nothing(world: World) {
    let (mut servers, mut start) = servers(1);
    let times = Times::of_servers_that_took(start);
    let mut silences = Rounds::new(&world, hosts(&servers), times);
    while let Some(round) = silences.next().await {
        freeze(&servers, round.times.alone).await;
        silences.survive(round).await;
    }

    let mut starts = Rounds::new(&world, hosts(&servers), times);
    while let Some(round) = starts.next().await {
        // A client that was refused a moment ago comes a moment later.
        let longest = round.times.alone - round.times.timeout / 20;
        let began = Instant::now();
        servers.kill(0);
        sleep_until(began + longest.saturating_sub(start)).await;
        let launched = Instant::now();
        block_in_place(|| servers.launch(0).and_then(|()| servers.wait())).unwrap();
        start = launched.elapsed();
        let took = began.elapsed();
        println!("it serves again after {took:?}");
        if took < longest {
            starts.survive(round).await;
        } else {
            starts.played_too_slowly();
        }
    }
}

#[case(real, within = 180)]
async fn an_ensemble_that_is_silent_or_loses_a_member_ends_nothing(world: World) {
    let (mut servers, start) = servers(3);
    let times = Times::of_servers_that_took(start);
    let mut silences = Rounds::of_an_ensemble(&world, hosts(&servers), times);
    while let Some(round) = silences.next().await {
        freeze(&servers, round.times.together).await;
        silences.survive(round).await;
    }

    let mut losses = Rounds::of_an_ensemble(&world, hosts(&servers), times);
    while let Some(round) = losses.next().await {
        let leader = block_in_place(|| servers.leader()).expect("they serve");
        // The leader's loss is the one that all notice, so it comes first.
        let lost = if losses.played % 2 == 1 {
            leader
        } else {
            (leader + 1) % 3
        };
        println!("{} clients are there", clients(&servers, lost).await);
        let began = Instant::now();
        servers.kill(lost);
        while block_in_place(|| servers.leader()).is_none() {
            sleep(Duration::from_millis(10)).await;
        }
        let took = began.elapsed();
        println!("a leader after {took:?}");
        if took < round.times.timeout * 3 / 10 {
            losses.survive(round).await;
        } else {
            losses.played_too_slowly();
        }
        block_in_place(|| servers.launch(lost).and_then(|()| servers.wait())).unwrap();
    }
}

/// Servers of the case's own, and how long they took to start.
fn servers(count: usize) -> (Servers, Duration) {
    let (began, tick) = (Instant::now(), tick().as_millis());
    // They bear each other's silence longer than these are.
    let more = format!("tickTime={tick}\nsyncLimit={}\n", 40_000 / tick);
    let servers = block_in_place(|| Servers::start_as(count, &more));
    let servers = servers.unwrap_or_else(|why| panic!("{why}"));
    (servers, began.elapsed())
}

fn hosts(servers: &Servers) -> String {
    let addresses = servers.addresses();
    let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    hosts.join(",")
}

/// Stops all of them for so long.
async fn freeze(servers: &Servers, silence: Duration) {
    let began = Instant::now();
    let all = 0..servers.addresses().len();
    block_in_place(|| all.clone().for_each(|member| servers.freeze(member)));
    sleep_until(began + silence).await;
    block_in_place(|| all.for_each(|member| servers.thaw(member)));
}

/// How many clients are connected to a member.
async fn clients(servers: &Servers, member: usize) -> usize {
    let told = words::word(servers.addresses()[member], "mntr").await;
    let told = words::mntr(&told);
    told["zk_num_alive_connections"].parse().unwrap()
}
