//! Why a subcommand failed. Errors of the library are passed on whole; `main.rs` makes exit codes
//! of them.

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Or help that was asked for.
    #[error(transparent)]
    Words(#[from] clap::Error),

    #[error("cannot read the settings in {} (--config names another file, and /dev/null none)", file.display())]
    Settings { file: PathBuf, source: io::Error },

    #[error("{}, line {line}: {why}", file.display())]
    Setting {
        file: PathBuf,
        line: usize,
        why: String,
    },

    #[error("no command and no topic is called {word}: there are {there}")]
    NoTopic { word: String, there: String },

    #[error(transparent)]
    Library(#[from] lockkeeper::Error),

    #[error("the servers did not finish answering within {} (--connect-timeout and --read-timeout)", humantime::format_duration(*limit))]
    Silent { limit: Duration },

    #[error("the store did not answer within {} (--connect-timeout)", humantime::format_duration(*limit))]
    NoStore { limit: Duration },

    #[error("{name} is held or waited for, and --no-wait or --wait 0 was given")]
    Taken { name: String },

    #[error("{name} was lost while the command ran")]
    Lost {
        name: String,
        source: lockkeeper::Error,
    },

    #[error("{name} was lost after the command had ended, and before --hold-at-least was over")]
    LostAfter {
        name: String,
        source: lockkeeper::Error,
    },

    #[error(
        "the `lockkeeper` around this one holds {name}, and would wait for this one for ever: give {}",
        way_in(.has_owner)
    )]
    Nested { name: String, has_owner: bool },

    #[error("{name} was about to be lost while the command ran, so the command was ended")]
    Endangered { name: String },

    #[error("the command cannot be started")]
    Start(#[source] io::Error),

    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },

    #[cfg(feature = "ui")]
    #[error(
        "{address} is open to other machines: give --token-file or --proxy-header, or listen on 127.0.0.1"
    )]
    Open { address: SocketAddr },

    #[cfg(feature = "ui")]
    #[error("the first line of {} is no token, which has 16 characters or more: `head -c 24 /dev/urandom | base64` makes one", file.display())]
    WeakToken { file: PathBuf },

    #[error("{why}")]
    NoSemaphore { why: String },

    #[error("{name} is no semaphore: {node} is there, which is {what}")]
    OtherLock {
        name: String,
        node: String,
        what: &'static str,
    },

    #[error("stdin is no terminal: give --yes to remove a ticket without a question")]
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

    #[error("cannot remove {path} now; the servers remove it within minutes")]
    Left {
        path: String,
        source: Box<dyn Error + Send + Sync>,
    },

    #[error("cannot write to stdout")]
    Output(#[source] io::Error),

    #[error("cannot write {}", file.display())]
    Page { file: PathBuf, source: io::Error },

    #[error("the system refused an operation")]
    System(#[source] io::Error),
}

impl Failure {
    pub(crate) fn bench(doing: impl Display, source: Box<dyn Error + Send + Sync>) -> Self {
        let doing = doing.to_string();
        Self::Bench { doing, source }
    }
}

/// Of a wait that would have no end.
fn way_in(has_owner: &bool) -> &'static str {
    match has_owner {
        true => "both the same --owner, or this one a --wait",
        false => "this one a --wait",
    }
}
