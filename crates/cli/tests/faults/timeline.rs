//! What follows when from the last beat that servers answer to a command, for each setting: TERM,
//! the end of the lease, KILL, and the end of the session.
//!
//! The long form prints the figures of `docs/operating.md`, and how long a silence may be that ends
//! nothing.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::ChildStderr;
use tokio::task::{JoinHandle, block_in_place};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use zookeeper_client::{Client, EventType};

use super::silence::Holders;
use crate::commands::Holder;
use crate::tool::lockkeeper;
use testbench::events::{Nanos, now};
use testbench::proxy::{Proxies, Way};
use testbench::stall::Stall;
use testbench::stranger::catch_up;
use testbench::zookeeper::Servers;
use testbench::{World, case};

/// What a command knows of the servers.
#[derive(Clone, Copy, Debug)]
enum Setting {
    /// There is one only, and it says so.
    Single,
    Declared,
    Undeclared,
}

impl Setting {
    const ALL: [Self; 3] = [Self::Single, Self::Declared, Self::Undeclared];
}

/// The times that the servers and the commands are given, and how often each setting is measured.
#[derive(Clone, Copy, Debug)]
struct Plan {
    timeout: Duration,
    tick: Duration,
    grace: Duration,
    silences: usize,
    commands: usize,
}

impl Plan {
    /// The long form has those of the page.
    fn new() -> Self {
        let ms = Duration::from_millis;
        let (timeout, tick, grace) = if World::soak() {
            (ms(10_000), ms(2000), ms(5000))
        } else {
            (ms(2000), ms(200), ms(500))
        };
        Self {
            timeout,
            tick,
            grace,
            silences: World::times(1, 5),
            commands: World::times(2, 10),
        }
    }

    fn servers(&self, count: usize) -> Servers {
        let tick = format!("tickTime={}\n", self.tick.as_millis());
        block_in_place(|| Servers::start_as(count, &tick)).unwrap_or_else(|why| panic!("{why}"))
    }
}

/// A command that ignores TERM, by a way to the servers that is its own.
struct Subject {
    setting: Setting,
    proxies: Proxies,
    holder: Holder,
    said: JoinHandle<Option<Said>>,
    over: JoinHandle<Nanos>,
}

/// What the tool said, and when.
#[derive(Clone, Copy, Debug)]
struct Said {
    term: Nanos,
    lease: Nanos,
    kill: Nanos,
}

/// All of it in seconds since the last answered beat.
#[derive(Clone, Copy, Debug)]
struct Story {
    term: f64,
    lease: f64,
    kill: f64,
    session: f64,
}

#[case(real, within = 120)]
async fn a_command_is_told_and_its_lease_ends_before_its_session_does(world: World) {
    let plan = Plan::new();
    let (single, ensemble) = (plan.servers(1), plan.servers(3));
    let mut stories: [Vec<Story>; 3] = Default::default();
    for silence in 0..plan.silences {
        let mut tries = 0..10;
        let told = loop {
            let name = format!(
                "{silence}-{}",
                tries.next().expect("a machine that does not stall")
            );
            if let Some(told) = one_silence(&world, &plan, (&single, &ensemble), &name).await {
                break told;
            }
        };
        for (setting, story) in told {
            stories[setting as usize].push(story);
        }
    }
    println!("{plan:?}: seconds after the last answered beat, median (least to most)");
    for (setting, stories) in Setting::ALL.iter().zip(&stories) {
        let of = |what: fn(&Story) -> f64| spread(stories.iter().map(what).collect());
        println!(
            "{setting:?}, {} runs: TERM {}, lease {}, KILL {}, session {}",
            stories.len(),
            of(|story| story.term),
            of(|story| story.lease),
            of(|story| story.kill),
            of(|story| story.session),
        );
    }
    if World::soak() {
        longer_and_longer(&world, &plan, &single, &ensemble).await;
    }
}

/// What each command heard of one silence. None if the machine stalled for so long that one of them
/// was told too late.
async fn one_silence(
    world: &World,
    plan: &Plan,
    (single, ensemble): (&Servers, &Servers),
    name: &str,
) -> Option<Vec<(Setting, Story)>> {
    let stall = Stall::watch();
    let observers = [observer(single).await, observer(ensemble).await];
    let mut subjects = Vec::new();
    for number in 0..plan.commands {
        for setting in Setting::ALL {
            let (servers, observer) = match setting {
                Setting::Single => (single, &observers[0]),
                _ => (ensemble, &observers[1]),
            };
            let name = format!("{setting:?}-{name}-{number}");
            let command = (setting, servers, name.as_str());
            subjects.push(Subject::start(world, plan, command, observer).await);
        }
        // Each has its own moment between two beats.
        sleep(plan.timeout / 10 / plan.commands as u32).await;
    }
    // They have come to their rhythm.
    sleep(plan.timeout / 2).await;
    for subject in &subjects {
        subject.proxies.black_hole(Way::Both);
    }
    let ends = join_all(subjects.into_iter().map(Subject::story)).await;
    let late = stall.longest();
    let mut stories = Vec::new();
    for (setting, story) in ends {
        let Some(story) = story else {
            let is_stalled = late > plan.timeout / 40;
            assert!(
                is_stalled,
                "{setting:?}: nobody was told in time, {late:?} late"
            );
            return None;
        };
        let is_well = story.lease <= story.session + late.as_secs_f64();
        assert!(is_well, "{setting:?}: {story:?}, {late:?} late");
        stories.push((setting, story));
    }
    Some(stories)
}

/// Silences, each longer than the last, and how many holders each has ended.
async fn longer_and_longer(world: &World, plan: &Plan, single: &Servers, ensemble: &Servers) {
    let ways = [single, ensemble].map(|to| Proxies::before_servers(&to.addresses(), ""));
    for tenths in (30..=75).step_by(5) {
        let silence = Duration::from_millis(100 * tenths);
        let mut crowds = Vec::new();
        for setting in Setting::ALL {
            let way = &ways[usize::from(!matches!(setting, Setting::Single))];
            let tick = matches!(setting, Setting::Declared).then_some(plan.tick);
            let round = format!("{setting:?}-{tenths}");
            let hosts = way.connect_string();
            let given = (plan.timeout, tick);
            crowds.push((setting, Holders::start(world, &hosts, given, &round).await));
        }
        let began = Instant::now();
        ways.iter().for_each(|way| way.black_hole(Way::Both));
        sleep(silence).await;
        ways.iter().for_each(Proxies::heal);
        sleep_until(began + plan.timeout).await;
        let ends = crowds.into_iter().map(|(setting, crowd)| async move {
            let ended = crowd.ended().await;
            format!("{setting:?} {} and {}", ended.commands, ended.guards)
        });
        let ended = join_all(ends).await.join(", ");
        println!("{silence:?} of silence ended so many commands and guards of ten each: {ended}");
    }
}

fn spread(mut all: Vec<f64>) -> String {
    all.sort_by(f64::total_cmp);
    let (least, median, most) = (all[0], all[all.len() / 2], all[all.len() - 1]);
    format!("{median:.1} ({least:.1} to {most:.1})")
}

/// Somebody who sees what the leader does.
async fn observer(servers: &Servers) -> Client {
    let leader = block_in_place(|| servers.leader()).expect("they serve");
    let address = servers.addresses()[leader].to_string();
    Client::connect(&address).await.unwrap()
}

impl Subject {
    async fn start(
        world: &World,
        plan: &Plan,
        (setting, servers, name): (Setting, &Servers, &str),
        observer: &Client,
    ) -> Self {
        let ms = |time: Duration| format!("{}ms", time.as_millis());
        let proxies = Proxies::before_servers(&servers.addresses(), "");
        let mut command = lockkeeper(world);
        command.args(["--zk", &proxies.connect_string()]);
        command.args(["--session-timeout", &ms(plan.timeout)]);
        if let Setting::Declared = setting {
            command.args(["--tick", &ms(plan.tick)]);
        }
        command.args(["run", "--grace", &ms(plan.grace), name, "--", "sh", "-c"]);
        command.arg("trap '' TERM; echo ready; while :; do sleep 1; done");
        let mut holder = Holder::start(&mut command).await;
        let stderr = holder.tool.stderr.take().unwrap();
        let ticket = format!("/locks/{name}/lock-0000000000");
        catch_up(observer).await.unwrap();
        let (_, _, watch) = observer.get_and_watch_data(&ticket).await.unwrap();
        let over = async move {
            let event = watch.changed().await;
            assert_eq!(event.event_type, EventType::NodeDeleted);
            now()
        };
        Self {
            setting,
            proxies,
            holder,
            said: tokio::spawn(said(stderr)),
            over: tokio::spawn(over),
        }
    }

    /// None if the command was told when the lease was over, or before the silence.
    async fn story(self) -> (Setting, Option<Story>) {
        let patience = Duration::from_secs(40);
        let said = timeout(patience, self.said).await.unwrap().unwrap();
        let over = timeout(patience, self.over).await.unwrap().unwrap();
        drop(self.holder);
        let answered = self.proxies.answered();
        let since = |then: Nanos| {
            let since = then.checked_sub(answered).map(Duration::from_nanos);
            since.map(|since| since.as_secs_f64())
        };
        let story = said.and_then(|said| {
            Some(Story {
                term: since(said.term)?,
                lease: since(said.lease)?,
                kill: since(said.kill)?,
                session: since(over)?,
            })
        });
        (self.setting, story)
    }
}

/// Reads until KILL. None if the command was told only when the lease was over.
async fn said(stderr: ChildStderr) -> Option<Said> {
    let mut lines = BufReader::new(stderr).lines();
    let (mut term, mut lease) = (0, 0);
    while let Some(line) = lines.next_line().await.unwrap() {
        if let Some((_, left)) = line.split_once("the lease lasts for only ") {
            let left: u64 = left.split(' ').next().unwrap().parse().unwrap();
            term = now();
            lease = term + left * 1_000_000;
        }
        if line.ends_with("it gets SIGKILL") {
            let kill = now();
            return (term > 0).then_some(Said { term, lease, kill });
        }
    }
    panic!("nobody was told to end");
}
