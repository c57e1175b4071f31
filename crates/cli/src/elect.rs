//! `elect`: leads while a command runs. All but the standing is `run`'s.

use crate::args::{Elect, Server};
use crate::failure::Failure;
use crate::held::{Badge, Wanted, badged};
use crate::run;

pub(crate) async fn run(server: &Server, order: &Elect) -> Result<u8, Failure> {
    let names = std::slice::from_ref(&order.name);
    let value = order.id.clone().unwrap_or_else(me);
    let connecting = run::keeper(server, names, &order.work)?;
    run::work(connecting, names, &order.work, |keeper| {
        let election = keeper.election(order.name.as_str())?;
        let election = badged!(election, Badge::of(&order.work));
        Ok(Wanted::Lead(election, value))
    })
    .await
}

/// What tells this process from others when it was given no name.
fn me() -> String {
    let host = gethostname::gethostname();
    format!("{}:{}", host.to_string_lossy(), std::process::id())
}
