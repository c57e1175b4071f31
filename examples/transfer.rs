//! Money moves between accounts, each of which has a lock of its own: both are taken at once, or
//! none.
//!
//! `cargo run --example transfer` in this folder runs on the embedded server;
//! `cargo run --example transfer zk1:2181,zk2:2181` on yours. Clerks in processes of their own move
//! money to and fro. Whoever locked one account after the other would soon wait in a circle with
//! somebody who began with the other one; sets that are taken together cannot.
#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use lockkeeper::embedded::EmbeddedServer;
use lockkeeper::{Keeper, Token};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ACCOUNTS: usize = 4;
const CLERKS: usize = 6;
const TRANSFERS: usize = 50;
const EACH: i64 = 1_000;

#[tokio::main]
async fn main() -> Result<()> {
    let total = match std::env::args().nth(1) {
        Some(servers) => transfer(&servers).await?,
        None => {
            let server = EmbeddedServer::start().await?;
            transfer(&server.connect_string()).await?
        }
    };
    println!(
        "{} transfers, and {total} in all accounts as before",
        CLERKS * TRANSFERS
    );
    Ok(())
}

/// Lets the clerks work, and counts what is in all accounts afterwards.
pub(crate) async fn transfer(servers: &str) -> Result<i64> {
    let bank = Arc::new(Bank::default());
    let clerks: Vec<_> = (0..CLERKS)
        .map(|clerk| tokio::spawn(work(clerk, servers.to_owned(), Arc::clone(&bank))))
        .collect();
    for clerk in clerks {
        clerk.await??;
    }
    let total = bank.total();
    if total != EACH * ACCOUNTS as i64 {
        return Err(format!("{total} is not what there was").into());
    }
    Ok(total)
}

async fn work(clerk: usize, servers: String, bank: Arc<Bank>) -> Result<()> {
    let keeper = Keeper::connect(servers).await?;
    for number in 0..TRANSFERS {
        let from = (clerk + number) % ACCOUNTS;
        let to = (from + 1 + clerk % (ACCOUNTS - 1)) % ACCOUNTS;

        let both = [from, to].map(|account| format!("accounts/{account}"));
        let guard = keeper.lock_all(both).await?;
        let (rich, poor) = (bank.read(from), bank.read(to));
        // Others run now. None of them touches these two.
        tokio::task::yield_now().await;
        bank.write(from, rich - 1, guard.token())?;
        bank.write(to, poor + 1, guard.token())?;
        guard.release().await?;
    }
    keeper.close().await;
    Ok(())
}

/// What the locks protect. It refuses writes with a token older than one that it has seen: whoever
/// was paused for so long that the locks went to somebody else comes too late.
struct Bank(Mutex<[Account; ACCOUNTS]>);

#[derive(Clone, Copy)]
struct Account {
    balance: i64,
    newest: u64,
}

impl Bank {
    fn read(&self, account: usize) -> i64 {
        self.accounts()[account].balance
    }

    fn write(&self, account: usize, balance: i64, token: Token) -> Result<()> {
        let (account, token) = (&mut self.accounts()[account], u64::from(token));
        if token < account.newest {
            return Err("the token is older than one that was seen".into());
        }
        *account = Account {
            balance,
            newest: token,
        };
        Ok(())
    }

    fn total(&self) -> i64 {
        self.accounts().iter().map(|account| account.balance).sum()
    }

    fn accounts(&self) -> std::sync::MutexGuard<'_, [Account; ACCOUNTS]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Bank {
    fn default() -> Self {
        let account = Account {
            balance: EACH,
            newest: 0,
        };
        Self(Mutex::new([account; ACCOUNTS]))
    }
}
