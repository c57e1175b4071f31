//! A fair lock in a service: the requests of several instances for one order are worked off one by
//! one, in their order.
//!
//! `cargo run --example fair_lock` in this folder runs on the embedded server;
//! `cargo run --example fair_lock zk1:2181,zk2:2181` on yours. Each instance of the service has one
//! keeper for all its requests. A request that takes too long to come in is given up, which leaves
//! nothing behind; steps of one request share its lock by its owner.
#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockkeeper::embedded::EmbeddedServer;
use lockkeeper::{Keeper, Owner, Token};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const INSTANCES: usize = 3;
const REQUESTS: usize = 10;
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<()> {
    let tokens = match std::env::args().nth(1) {
        Some(servers) => serve(&servers).await?,
        None => {
            let server = EmbeddedServer::start().await?;
            serve(&server.connect_string()).await?
        }
    };
    println!("{} requests, in the order of their tokens", tokens.len());
    Ok(())
}

/// Runs the instances, and returns the tokens of their requests in the order of the work.
///
/// # Errors
///
/// Whatever the servers refuse, and what ought not to be.
pub async fn serve(servers: &str) -> Result<Vec<Token>> {
    let work = Arc::new(Mutex::new(Vec::new()));
    let mut requests = Vec::new();
    let mut instances = Vec::new();
    for _ in 0..INSTANCES {
        let keeper = Keeper::builder(servers)
            .session_timeout(Duration::from_secs(6))
            .connect()
            .await?;
        for _ in 0..REQUESTS {
            requests.push(tokio::spawn(handle(keeper.clone(), Arc::clone(&work))));
        }
        instances.push(keeper);
    }
    for request in requests {
        request.await??;
    }
    for keeper in instances {
        keeper.close().await;
    }
    let tokens = work.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if !tokens.is_sorted() {
        return Err(format!("out of order: {tokens:?}").into());
    }
    Ok(tokens)
}

/// One request: at most one at a time is in here, whichever instance it came to.
async fn handle(keeper: Keeper, work: Arc<Mutex<Vec<Token>>>) -> Result<()> {
    let request = Owner::new();
    let lock = keeper.mutex("orders/42")?.with_owner(&request);
    let guard = lock.lock_timeout(PATIENCE).await?;
    // Work that does not outlive the lock: it is dropped at its next await when the lock is lost.
    guard.run(charge(&keeper, &request, &work)).await??;
    guard.release().await?;
    Ok(())
}

/// A step that is also called by itself, and so takes the lock too: for the owner that has it,
/// without a request.
async fn charge(keeper: &Keeper, request: &Owner, work: &Mutex<Vec<Token>>) -> Result<()> {
    let lock = keeper.mutex("orders/42")?.with_owner(request);
    let inner = lock.lock().await?;
    tokio::task::yield_now().await;
    let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
    work.push(inner.token());
    Ok(())
}
