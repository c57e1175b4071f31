//! Doubts: reads those nodes in a lock's directory whose names do not tell whether they can share
//! the queue.
//!
//! It only reads, a bounded number of nodes, and only where such names are; it decides nothing
//! about turns.

use crate::error::Result;
use crate::link::{Code, Found, Read};
use crate::name::LockName;
use crate::protocol::dialect::Doubt;
use crate::protocol::ticket::path_in;
use crate::session::{Failure, Session, failed};

const LOOKING: &str = "look at";

/// Refuses those that cannot share it, and a semaphore's nodes that may not be read.
pub(super) async fn read(
    session: &Session,
    name: &LockName,
    directory: &str,
    doubts: &[Doubt],
) -> Result<()> {
    if doubts.is_empty() {
        return Ok(());
    }
    let paths = doubts.iter().map(|doubt| path_in(directory, &doubt.node));
    let paths: Vec<String> = paths.collect();
    let reads = doubts.iter().zip(&paths).map(|(doubt, path)| {
        if doubt.asks_for_children() {
            Read::Children(path)
        } else {
            Read::Data(path)
        }
    });
    let reads: Vec<Read<'_>> = reads.collect();
    let found = session.read(|link| link.multi_read(&reads)).await;
    let found = found.map_err(|failure| failed(session, LOOKING, name, directory, failure))?;
    for ((doubt, path), found) in doubts.iter().zip(&paths).zip(found) {
        match found {
            // Others may hold by it.
            Found::Failed(code @ Code::NoAuth(_)) if doubt.is_of_semaphore() => {
                let failure = Failure::Answered(code);
                return Err(failed(session, LOOKING, name, path, failure));
            }
            Found::Node(node) => doubt.check_node(name.as_str(), &node.data, node.owner)?,
            Found::Children(children) => doubt.check_children(name.as_str(), &children)?,
            // What is gone, or may not be read, is nobody.
            Found::Failed(_) => {}
        }
    }
    Ok(())
}
