//! `leader`: who leads an election, now or from now on. It only reads.

use lockkeeper::{Keeper, Leader, LockName};
use serde_json::{Value, json};

use crate::args::{Leader as Order, Server};
use crate::failure::Failure;
use crate::look;
use crate::report;
use crate::signals::{self, Signals};

const HEAD: [&str; 6] = ["VALUE", "TOKEN", "NODE", "LABEL", "HOST", "PID"];

pub(crate) async fn run(server: &Server, order: &Order, as_json: bool) -> Result<u8, Failure> {
    let name = LockName::new(&order.name)?;
    if !order.watch {
        let look = async |keeper: &Keeper| {
            let leader = leader(keeper, &name).await?;
            let nothing = nobody(server, keeper, &name, leader.as_ref()).await?;
            Ok((leader, nothing))
        };
        let (leader, nothing) = look::once(server, look).await?;
        show(leader.as_ref(), &nothing, as_json)?;
        return Ok(0);
    }
    let mut signals = Signals::listen(signals::ENDING)?;
    tokio::select! {
        failed = watch(server, &name, as_json) => failed,
        _ = signals.next() => Ok(0),
    }
}

async fn leader(keeper: &Keeper, name: &LockName) -> lockkeeper::Result<Option<Leader>> {
    keeper.election(name)?.leader().await
}

/// What to say if nobody leads.
async fn nobody(
    server: &Server,
    keeper: &Keeper,
    name: &LockName,
    leader: Option<&Leader>,
) -> Result<String, Failure> {
    let nobody = format!("nobody leads {name}");
    match leader {
        Some(_) => Ok(nobody),
        None => look::nothing(server, keeper, nobody).await,
    }
}

/// Follows until something fails. Dropped, it leaves an idle session behind, which ends with its
/// connection.
async fn watch(server: &Server, name: &LockName, as_json: bool) -> Result<u8, Failure> {
    let keeper = server.connect().await?;
    // It may be long until there is a leader to follow.
    if leader(&keeper, name).await?.is_none() {
        let nothing = nobody(server, &keeper, name, None).await?;
        show(None, &nothing, as_json)?;
    }
    let nobody = format!("nobody leads {name}");
    let mut observer = keeper.election(name)?.observe();
    loop {
        observer.changed().await?;
        let leader = observer.borrow();
        match leader {
            Some(leader) if !as_json => report::print(&line(leader))?,
            leader => show(leader, &nobody, as_json)?,
        }
    }
}

fn show(leader: Option<&Leader>, nobody: &str, as_json: bool) -> Result<(), Failure> {
    match leader {
        leader if as_json => report::print_json(&leader.map(object)),
        Some(leader) => report::print(&report::table(HEAD, &[row(leader)])),
        None => {
            report::say(nobody);
            Ok(())
        }
    }
}

fn object(leader: &Leader) -> Value {
    json!({
        "value": leader.value,
        "token": leader.token,
        "node": leader.node,
        "session": leader.session.to_string(),
        "label": leader.label,
        "host": leader.host,
        "pid": leader.pid,
    })
}

fn row(leader: &Leader) -> [String; 6] {
    [
        report::or_dash(Some(leader.value.clone())),
        leader.token.to_string(),
        leader.node.clone(),
        report::or_dash(leader.label.clone()),
        report::or_dash(leader.host.clone()),
        report::or_dash(leader.pid.map(|pid| pid.to_string())),
    ]
}

/// The row alone: the next leader is shown long after the head.
fn line(leader: &Leader) -> String {
    let table = report::table([""; 6], &[row(leader)]);
    table.trim_start_matches('\n').to_owned()
}
