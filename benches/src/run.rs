//! One whole run: servers, drivers, warm-up, rounds, the passes that are not timed, and what is
//! written at the end.
//!
//! It measures nothing itself, and leaves nothing behind but the files that it was asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::args::RunArgs;
use crate::driver::{self, Driver, Outcome};
use crate::machine::Machine;
use crate::order::Order;
use crate::passes;
use crate::peer::Peer;
use crate::plan::Plan;
use crate::results::{Entry, Results, Row};
use crate::servers::Servers;
use crate::text::{say, say_on, three, whole};
use crate::tools::{HERE, Tools};
use crate::{Result, charts, table, versions};

/// The parts that a run needs.
pub(crate) struct Stage<'a> {
    pub(crate) plan: Plan,
    pub(crate) tools: &'a Tools,
    pub(crate) servers: Servers,
}

impl Stage<'_> {
    pub(crate) async fn driver(&self, peer: Peer) -> Result<Driver> {
        let server = self.servers.address(peer.server(self.plan.on));
        self.driver_through(peer, server).await
    }

    /// A driver that finds its server at another address.
    pub(crate) async fn driver_through(&self, peer: Peer, server: &str) -> Result<Driver> {
        let aside = self.servers.address(peer.server(self.plan.on));
        let seat = (self.plan.on, peer);
        Driver::start(seat, self.tools, self.servers.folder(), server, aside).await
    }
}

/// A run on each store that somebody takes part on.
pub(crate) async fn run(args: RunArgs) -> Result<()> {
    let plans = args.on.iter().map(|on| Plan::new(&args, *on));
    let plans: Vec<Plan> = plans.filter(|plan| !plan.peers.is_empty()).collect();
    if plans.is_empty() {
        return Err("none of these peers is on these stores".into());
    }
    let tools = Tools::find(&plans)?;
    let out = args.out.unwrap_or_else(|| PathBuf::from(HERE).join("out"));
    let data = args.data.unwrap_or_else(std::env::temp_dir);
    for plan in plans {
        let out = out.join(plan.on.key());
        one(plan, &tools, &data, &out).await?;
    }
    Ok(())
}

async fn one(plan: Plan, tools: &Tools, data: &Path, out: &Path) -> Result<()> {
    let (began, at) = (Instant::now(), SystemTime::now());
    std::fs::create_dir_all(out)?;
    say(format_args!("starting {}", plan.on.title()));
    let servers = Servers::start(&plan.stores(), tools, data).await?;
    let stage = Stage {
        plan,
        tools,
        servers,
    };

    let mut results = Results {
        at: humantime::format_rfc3339_seconds(at).to_string(),
        on: stage.plan.on,
        took_s: 0,
        quick: stage.plan.quick,
        rounds: stage.plan.rounds,
        limit_s: stage.plan.limit.as_secs(),
        peers: stage.plan.peers.clone(),
        crowds: stage.plan.crowds.clone(),
        machine: Machine::look(stage.servers.folder())?,
        versions: versions::of_all(&stage.servers, stage.tools).await?,
        entries: Vec::new(),
        memory: Vec::new(),
        crossings: Vec::new(),
    };
    let mut field = Field::start(&stage, &mut results).await?;
    for round in 0..stage.plan.rounds {
        say(format_args!("round {} of {}", round + 1, stage.plan.rounds));
        for row in stage.plan.rows() {
            for turn in 0..stage.plan.turns(row) {
                field
                    .measure(row, round, turn, &mut results.entries)
                    .await?;
            }
        }
    }
    field.dismiss().await?;
    results.memory = passes::memory(&stage).await?;
    results.crossings = passes::crossings(&stage).await?;
    results.took_s = began.elapsed().as_secs();
    drop(stage);

    std::fs::write(
        out.join("results.json"),
        serde_json::to_string_pretty(&results)? + "\n",
    )?;
    write(&results, out)
}

/// Writes what people read of a run again.
pub(crate) fn draw(results: &Path, out: &Path) -> Result<()> {
    let results: Results = serde_json::from_str(&std::fs::read_to_string(results)?)?;
    std::fs::create_dir_all(out)?;
    write(&results, out)
}

fn write(results: &Results, out: &Path) -> Result<()> {
    let tables = table::all(results);
    std::fs::write(out.join("results.md"), &tables)?;
    charts::all(results, out)?;
    crate::text::print(tables);
    say(format_args!("written to {}", out.display()));
    Ok(())
}

/// All the drivers of a run, warm.
struct Field<'a> {
    stage: &'a Stage<'a>,
    drivers: BTreeMap<Peer, Driver>,
    /// Ephemerals on the server while no lock is held.
    at_rest: usize,
    /// A row that was given up is not tried again in later rounds.
    given_up: BTreeSet<(Row, Peer)>,
}

impl<'a> Field<'a> {
    async fn start(stage: &'a Stage<'a>, results: &mut Results) -> Result<Self> {
        driver::compile(&stage.plan.peers, stage.tools, stage.servers.folder()).await?;
        let mut field = Self {
            stage,
            drivers: BTreeMap::new(),
            at_rest: 0,
            given_up: BTreeSet::new(),
        };
        for peer in &stage.plan.peers {
            say(format_args!("warming up {}", peer.title()));
            let driver = field.warm(*peer).await?;
            results.versions.insert(
                format!("driver of {}", peer.title()),
                driver.version.clone(),
            );
            field.drivers.insert(*peer, driver);
        }
        field.at_rest = stage.servers.ephemerals().await?;
        Ok(field)
    }

    async fn warm(&self, peer: Peer) -> Result<Driver> {
        let mut driver = self.stage.driver(peer).await?;
        for order in self.stage.plan.warm_up(peer) {
            let why = match driver.obey(&order, PATIENCE).await {
                Outcome::Measured(_) => continue,
                Outcome::Failed(why) => why,
                Outcome::Over(seconds) => format!("not within {seconds} s"),
            };
            return Err(format!("{} does not warm up: {why}", peer.title()).into());
        }
        Ok(driver)
    }

    /// One turn of a row in a round: every peer that takes part, one after the other.
    async fn measure(
        &mut self,
        row: Row,
        round: usize,
        turn: usize,
        entries: &mut Vec<Entry>,
    ) -> Result<()> {
        say_on(format_args!("  {}:", title(row)));
        for peer in self.stage.plan.peers_in(round + turn) {
            if round >= self.stage.plan.rounds_of(row, peer) || self.given_up.contains(&(row, peer))
            {
                continue;
            }
            let mut next = Some(row);
            while let Some(row) = next {
                let (order, began) = (self.stage.plan.order(row, peer), Instant::now());
                let outcome = self.obey(peer, &order).await?;
                let again = if matches!(row, Row::Few { .. }) {
                    " at 100"
                } else {
                    ""
                };
                say_on(format_args!(
                    "  {}{again} {}",
                    peer.key(),
                    brief(row, &outcome)
                ));
                if outcome.measured().is_none() {
                    self.given_up.insert((row, peer));
                }
                entries.push(Entry {
                    row,
                    peer,
                    round,
                    turn,
                    took_ms: u64::try_from(began.elapsed().as_millis())?,
                    outcome,
                });
                next = Plan::follower(row, peer);
            }
        }
        say("");
        Ok(())
    }

    /// A driver that had to be stopped, or ended by itself, is replaced by a warm one.
    async fn obey(&mut self, peer: Peer, order: &Order) -> Result<Outcome> {
        let Some(driver) = self.drivers.get_mut(&peer) else {
            unreachable!("every peer has a driver")
        };
        let outcome = driver.obey(order, self.stage.plan.limit).await;
        if driver.is_useless() {
            if let Some(driver) = self.drivers.remove(&peer) {
                driver.kill().await?;
            }
            self.stage.servers.forget_the_dead(self.at_rest).await?;
            let driver = self.warm(peer).await?;
            self.drivers.insert(peer, driver);
        }
        Ok(outcome)
    }

    async fn dismiss(self) -> Result<()> {
        for driver in self.drivers.into_values() {
            driver.dismiss().await?;
        }
        Ok(())
    }
}

/// A row's title for the console.
pub(crate) fn title(row: Row) -> String {
    match row {
        Row::Uncontended => "uncontended, us".into(),
        Row::Independent => "independent, locks/s".into(),
        Row::Linger => "one lock that lingers, locks/s".into(),
        Row::HandOver { waiters } => format!("hand-over to {}, us", whole(waiters as f64)),
        Row::Few { after } => format!("hand-over to 100 after {}, us", whole(after as f64)),
    }
}

pub(crate) fn brief(row: Row, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Over(seconds) => format!("over {seconds} s"),
        Outcome::Failed(why) => format!("failed: {why}"),
        Outcome::Measured(answer) => match row.figure(answer) {
            Some(figure) => three(figure),
            None => format!("{} failed", answer.failed),
        },
    }
}

/// How long a fresh process may take for what the plan knows that it can do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
