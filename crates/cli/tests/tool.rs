//! The built tool, as a child process of a case.

pub(crate) use testbench::process::{Finished, finished, heed_signals};
use testbench::{World, process};
use tokio::process::Command;

/// `lockkeeper` with the server of this world in its environment, no input, and both outputs piped.
pub(crate) fn lockkeeper(world: &World) -> Command {
    process::tool(env!("CARGO_BIN_EXE_lockkeeper"), world)
}
