//! A holder that was paused for too long writes late, and a store that compares tokens refuses it.
//!
//! `cargo run --example fencing` in this folder runs on the embedded server;
//! `cargo run --example fencing zk1:2181,zk2:2181` on yours. No lock can stop a process that
//! believes that it still has it: the process may sleep between its look at the guard and its
//! write. Tokens grow with every grant, so the store itself sees who is late.
#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;

use lockkeeper::embedded::EmbeddedServer;
use lockkeeper::{Keeper, Token};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let report = match std::env::args().nth(1) {
        Some(servers) => publish(&servers).await?,
        None => {
            let server = EmbeddedServer::start().await?;
            publish(&server.connect_string()).await?
        }
    };
    println!("{report}");
    Ok(())
}

/// Two editors publish a page, and the first one is paused in the middle. Returns what is on the
/// page at the end.
///
/// # Errors
///
/// Whatever the servers refuse, and what ought not to be.
pub async fn publish(servers: &str) -> Result<String> {
    let mut page = Page::default();

    let early = Keeper::connect(servers).await?;
    let guard = early.mutex("page")?.lock().await?;
    let early_token = guard.token();
    page.write(early_token, "draft of the first editor")?;
    // Here the first editor's machine sleeps, for longer than its session lives. Its servers end
    // the session; whatever it had in memory, the token too, is still there when it wakes up.
    early.close().await;

    let late = Keeper::connect(servers).await?;
    let next = late.mutex("page")?.lock().await?;
    page.write(next.token(), "page of the second editor")?;

    // The first editor wakes up, and was just about to write.
    let refused = page.write(early_token, "page of the first editor");
    let Err(highest) = refused else {
        return Err("a late write got through".into());
    };
    println!("refused token {early_token}: {highest} has written already");
    if guard.is_held() {
        return Err("the guard does not know of its loss".into());
    }
    next.release().await?;
    late.close().await;
    Ok(page.text)
}

/// The store. With a database it is `UPDATE page SET text = $1, token = $2 WHERE token <= $2`.
#[derive(Debug, Default)]
struct Page {
    token: Option<Token>,
    text: String,
}

impl Page {
    /// Writes, unless a later holder has written before; then the error is its token.
    fn write(&mut self, token: Token, text: &str) -> std::result::Result<(), Late> {
        if let Some(highest) = self.token.filter(|highest| *highest > token) {
            return Err(Late(highest));
        }
        self.token = Some(token);
        text.clone_into(&mut self.text);
        Ok(())
    }
}

/// Somebody with a higher token has written.
#[derive(Debug, thiserror::Error)]
#[error("token {0} has written already")]
struct Late(Token);
