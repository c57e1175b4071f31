//! Why a subcommand failed. What the library says is passed on whole; `main.rs` makes exit codes of it.

use std::io;
use std::net::SocketAddr;

use lockkeeper::Error;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Library(#[from] Error),

    #[error("{name} is taken, and --no-wait says not to wait for it")]
    Taken { name: String },

    #[error("{name} was lost while the command ran")]
    Lost { name: String, source: Error },

    #[error("{name} was about to be lost while the command ran, so the command was ended")]
    Endangered { name: String },

    #[error("the command cannot be started")]
    Start(#[source] io::Error),

    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },

    #[error("stdin is no terminal to ask on: say --yes to remove a ticket without a question")]
    NobodyToAsk,

    #[error("cannot write to stdout")]
    Output(#[source] io::Error),

    #[error("the system refuses what is needed")]
    System(#[source] io::Error),
}
