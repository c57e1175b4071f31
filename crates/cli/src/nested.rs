//! A `run` inside of a `run` that holds the same lock: it would wait for one that waits for it.
//!
//! Invariant: it is sure, or it says nothing. A ticket that the environment names must hold the
//! lock on our servers, and be of a tool that runs us. A process may take itself out: it waits for
//! no `run` around it if it has no `LOCKKEEPER_NAME`.

use std::env;

use lockkeeper::QueueEntry;

use crate::failure::Failure;
use crate::held::{Held, Wanted};
use crate::process;
use crate::run::Source;

/// The tickets around a command, from the outermost on. It stays below several `run`s, of which
/// each has the other variables for itself.
const AROUND: &str = "LOCKKEEPER_AROUND";

/// Fails if the wait would have no end. It asks servers only inside of another `run`.
pub(crate) async fn check<S: Source>(
    source: &S,
    wanted: &Wanted,
    names: &[String],
) -> Result<(), Failure> {
    let around = match env::var("LOCKKEEPER_NAME") {
        Ok(_) => env::var(AROUND).unwrap_or_default(),
        Err(_) => return Ok(()),
    };
    for name in names {
        let nodes: Vec<&str> = tickets(&around)
            .filter(|(_, of)| of == name)
            .map(|(node, _)| node)
            .collect();
        if nodes.is_empty() {
            continue;
        }
        // If it cannot be read, the wait itself says why.
        let queue = source.queue(name).await.unwrap_or_default();
        let is_in_vain = |holder: &QueueEntry| {
            holder.is_holder
                && nodes.contains(&&*holder.node)
                && runs_us(holder)
                && (wanted.waits_for(holder)
                    || queue.iter().any(|it| wanted.waits_behind(it, holder)))
        };
        if queue.iter().any(is_in_vain) {
            let name = name.clone();
            let has_owner = matches!(wanted, Wanted::Alone(..) | Wanted::Shared(..));
            return Err(Failure::Nested { name, has_owner });
        }
    }
    Ok(())
}

/// What the command sees of the tickets around it: those around us, and these.
pub(crate) fn environment(held: &Held) -> (&'static str, Option<String>) {
    let mut all = env::var(AROUND).unwrap_or_default();
    for (name, node) in held.tickets() {
        all += &format!("{node} {name}\n");
    }
    (AROUND, Some(all).filter(|all| !all.is_empty()))
}

/// Each with its lock.
fn tickets(around: &str) -> impl Iterator<Item = (&str, &str)> {
    around.lines().filter_map(|line| line.split_once(' '))
}

fn runs_us(ticket: &QueueEntry) -> bool {
    let host = gethostname::gethostname();
    ticket.host.as_deref() == Some(&*host.to_string_lossy())
        && ticket.pid.is_some_and(process::runs_us)
}
