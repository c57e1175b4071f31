//! Why a subcommand failed. What the library says is passed on whole; `main.rs` makes exit codes of
//! it.

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Library(#[from] lockkeeper::Error),

    #[error("the servers did not answer all within {} (--connect-timeout and --read-timeout)", humantime::format_duration(*limit))]
    Silent { limit: Duration },

    #[error("{name} is taken, and --no-wait says not to wait for it")]
    Taken { name: String },

    #[error("{name} was lost while the command ran")]
    Lost {
        name: String,
        source: lockkeeper::Error,
    },

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

    #[error("cannot read {}", file.display())]
    File { file: PathBuf, source: io::Error },

    #[error("a credential is a scheme and a secret: digest:user:password")]
    NoCredential,

    #[error("cannot {doing}")]
    Bench {
        doing: String,
        source: Box<dyn Error + Send + Sync>,
    },

    #[error("{path} cannot be removed now, and is left to the servers, who do so within minutes")]
    Left {
        path: String,
        source: Box<dyn Error + Send + Sync>,
    },

    #[error("cannot write to stdout")]
    Output(#[source] io::Error),

    #[error("cannot write {}", file.display())]
    Page { file: PathBuf, source: io::Error },

    #[error("the system refuses what is needed")]
    System(#[source] io::Error),
}

impl Failure {
    pub(crate) fn bench(doing: impl Display, source: Box<dyn Error + Send + Sync>) -> Self {
        let doing = doing.to_string();
        Self::Bench { doing, source }
    }
}
