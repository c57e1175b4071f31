//! A `run` inside of a `run` that holds the same lock: it would wait for one that waits for it.
//!
//! Invariant: it is sure, or it says nothing. The ticket that the environment names must hold the
//! lock on our servers, and be of the tool that runs us.

use std::env;

use lockkeeper::QueueEntry;

use crate::failure::Failure;
use crate::held::Wanted;
use crate::process;
use crate::run::Source;

/// Fails if the wait would have no end. It asks servers only inside of another `run`.
pub(crate) async fn check<S: Source>(
    source: &S,
    wanted: &Wanted,
    names: &[String],
) -> Result<(), Failure> {
    for (name, node) in around() {
        if !names.contains(&name) {
            continue;
        }
        // If it cannot be read, the wait itself says why.
        let queue = source.queue(&name).await.unwrap_or_default();
        let is_in_vain = |ticket: &QueueEntry| {
            ticket.is_holder && ticket.node == node && wanted.waits_for(ticket) && runs_us(ticket)
        };
        if queue.iter().any(is_in_vain) {
            return Err(Failure::Nested { name });
        }
    }
    Ok(())
}

/// The names of the locks around us, each with the node of its ticket.
fn around() -> Vec<(String, String)> {
    let [names, nodes] = ["LOCKKEEPER_NAME", "LOCKKEEPER_NODE"].map(env::var);
    let (Ok(names), Ok(nodes)) = (names, nodes) else {
        return Vec::new();
    };
    let pairs = names.lines().zip(nodes.lines());
    pairs
        .map(|(name, node)| (name.to_owned(), node.to_owned()))
        .collect()
}

fn runs_us(ticket: &QueueEntry) -> bool {
    let host = gethostname::gethostname();
    ticket.host.as_deref() == Some(&*host.to_string_lossy())
        && ticket.pid.is_some_and(process::runs_us)
}
