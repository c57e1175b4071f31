//! A service that breaks when too many call it at once, and callers in many processes that agree on
//! how many may.
//!
//! `cargo run --example rate_limit` in this folder runs on the embedded server;
//! `cargo run --example rate_limit zk1:2181,zk2:2181` on yours. A small call takes one permit and a
//! large one as many as it costs, all at once: it is not overtaken for ever by small ones, and two
//! large ones never wait for each other's half. The one who can see the service's load changes the
//! limit for all.
#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockkeeper::Keeper;
use lockkeeper::embedded::EmbeddedServer;
use tokio::time::sleep;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const LIMIT: u32 = 4;
const CALLERS: u32 = 6;
const CALLS: u32 = 20;

#[tokio::main]
async fn main() -> Result<()> {
    let most = match std::env::args().nth(1) {
        Some(servers) => calls(&servers).await?,
        None => {
            let server = EmbeddedServer::start().await?;
            calls(&server.connect_string()).await?
        }
    };
    println!(
        "{} calls from {CALLERS} callers, and never more than {most} of {LIMIT} at once",
        CALLERS * CALLS
    );
    Ok(())
}

/// Lets the callers call, and says how much the service had to bear at once.
pub(crate) async fn calls(servers: &str) -> Result<u32> {
    let service = Arc::new(Service::default());
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| tokio::spawn(call(servers.to_owned(), Arc::clone(&service))))
        .collect();
    for caller in callers {
        caller.await??;
    }
    Ok(service.most.load(Ordering::SeqCst))
}

/// One caller, in a process of its own.
async fn call(servers: String, service: Arc<Service>) -> Result<()> {
    let keeper = Keeper::connect(servers).await?;
    let permits = keeper.semaphore("render-service", LIMIT)?;
    for number in 1..=CALLS {
        let cost = if number % 5 == 0 { 3 } else { 1 };

        let permit = permits.acquire_many(cost).await?;
        // Dropped at its next await when the permit is lost, because others may call by then.
        permit.run(service.render(cost)).await??;
        permit.release().await?;
    }
    keeper.close().await;
    Ok(())
}

/// What the limit protects.
#[derive(Default)]
struct Service {
    load: AtomicU32,
    most: AtomicU32,
}

impl Service {
    async fn render(&self, cost: u32) -> Result<()> {
        let load = self.load.fetch_add(cost, Ordering::SeqCst) + cost;
        self.most.fetch_max(load, Ordering::SeqCst);
        if load > LIMIT {
            return Err(format!("overloaded: {load} of {LIMIT}").into());
        }
        sleep(Duration::from_millis(2)).await;
        self.load.fetch_sub(cost, Ordering::SeqCst);
        Ok(())
    }
}
