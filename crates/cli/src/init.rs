//! `init`: declares that a store is new, so that nobody waits for clients that it may have
//! forgotten.

use crate::args::Server;
use crate::failure::Failure;
use crate::report;

pub(crate) async fn run(server: &Server) -> Result<u8, Failure> {
    let access = server.access().await?;
    let keeper = server.connect_to(server.builder(&access).new_store(true));
    keeper.await?.close().await;
    report::say(format_args!("{} serves locks", server.place.shown()));
    Ok(0)
}
