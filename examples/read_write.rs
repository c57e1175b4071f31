//! A price list that many read and that is now and then written anew: readers together, a writer
//! alone.
//!
//! `cargo run --example read_write` in this folder runs on the embedded server;
//! `cargo run --example read_write zk1:2181,zk2:2181` on yours. Clerks in processes of their own
//! read two prices that belong together. Whoever finds them old writes new ones, if it is the only
//! one there, and goes on to read what it wrote before anybody else can write again.
#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lockkeeper::embedded::EmbeddedServer;
use lockkeeper::{Keeper, RwLock, WriteGuard};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const CLERKS: u64 = 4;
const QUOTES: u64 = 25;
/// After so many quotes the prices are old.
const OLD: u64 = 5;

#[tokio::main]
async fn main() -> Result<()> {
    let edition = match std::env::args().nth(1) {
        Some(servers) => read_write(&servers).await?,
        None => {
            let server = EmbeddedServer::start().await?;
            read_write(&server.connect_string()).await?
        }
    };
    println!("{} quotes from {edition} price lists", CLERKS * QUOTES);
    Ok(())
}

/// Lets the clerks work, and tells how often the prices were written.
pub(crate) async fn read_write(servers: &str) -> Result<u64> {
    let prices = Arc::new(Prices::default());
    let clerks: Vec<_> = (0..CLERKS)
        .map(|_| tokio::spawn(work(servers.to_owned(), Arc::clone(&prices))))
        .collect();
    for clerk in clerks {
        clerk.await??;
    }
    Ok(prices.net.load(Ordering::SeqCst))
}

async fn work(servers: String, prices: Arc<Prices>) -> Result<()> {
    let keeper = Keeper::connect(servers).await?;
    let lock = keeper.rw_lock("prices")?;
    for _ in 0..QUOTES {
        let mut reader = lock.read().await?;
        if prices.are_old() {
            let writer = match reader.try_upgrade().await {
                Ok(writer) => writer,
                // Others read as well. It does not wait for them, who may want the same, but asks
                // again behind them.
                Err(refused) => write_in_turn(&lock, refused.into_guard()).await?,
            };
            // Somebody else may have done it meanwhile.
            if prices.are_old() {
                prices.write_anew().await;
            }
            // Nobody writes in between, and those who wait to read are let in with us.
            reader = writer.downgrade().await?;
        }
        prices.quote()?;
        reader.release().await?;
    }
    keeper.close().await;
    Ok(())
}

async fn write_in_turn(lock: &RwLock, reader: lockkeeper::ReadGuard) -> Result<WriteGuard> {
    reader.release().await?;
    Ok(lock.write().await?)
}

/// What the lock protects: two numbers that must fit together.
#[derive(Default)]
struct Prices {
    net: AtomicU64,
    gross: AtomicU64,
    quotes: AtomicU64,
}

impl Prices {
    fn are_old(&self) -> bool {
        self.quotes.load(Ordering::SeqCst) >= OLD
    }

    fn quote(&self) -> Result<()> {
        self.quotes.fetch_add(1, Ordering::SeqCst);
        let (net, gross) = (
            self.net.load(Ordering::SeqCst),
            self.gross.load(Ordering::SeqCst),
        );
        if gross != net * 2 {
            return Err(format!("{net} and {gross} do not belong together").into());
        }
        Ok(())
    }

    async fn write_anew(&self) {
        let net = self.net.load(Ordering::SeqCst) + 1;
        self.net.store(net, Ordering::SeqCst);
        // Others run now, and would see half of it.
        tokio::task::yield_now().await;
        self.gross.store(net * 2, Ordering::SeqCst);
        self.quotes.store(0, Ordering::SeqCst);
    }
}
