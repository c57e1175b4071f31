//! A service whose locks are watched: workers under locks of a few classes, and a page that
//! Prometheus scrapes.
//!
//! `cargo run --features metrics --example service` in this folder runs on the embedded server,
//! with `zk1:2181,zk2:2181` behind it on yours. The page is http://127.0.0.1:9464/metrics, or at
//! the address in SERVICE_PAGE; `docker/monitoring` shows it in Grafana. Some workers are slow,
//! some are impatient, and an operator removes a holder's ticket now and then, so that there is
//! something to see. Ctrl-C ends it.
#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use lockkeeper::Keeper;
use lockkeeper::embedded::EmbeddedServer;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tokio::task::JoinSet;
use tokio::time::sleep;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Bounds in seconds, from a free lock to one that is held for hours. Without bounds there are
/// summaries, which cannot be added up.
const SECONDS: [f64; 16] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0,
    3600.0,
];
/// Bounds of what else stands in a queue.
const OTHERS: [f64; 10] = [
    0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0, 10_000.0,
];

#[tokio::main]
async fn main() -> Result<()> {
    let page = std::env::var("SERVICE_PAGE").unwrap_or_else(|_| "127.0.0.1:9464".into());
    let page: SocketAddr = page.parse()?;
    show(page)?;
    println!("http://{page}/metrics, until Ctrl-C");
    let service = async {
        match std::env::args().nth(1) {
            Some(servers) => serve(&servers).await,
            None => {
                let server = EmbeddedServer::start().await?;
                serve(&server.connect_string()).await
            }
        }
    };
    tokio::select! {
        failed = service => failed,
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

/// Serves the page. It comes first: what is counted before somebody listens is gone.
pub(crate) fn show(page: SocketAddr) -> Result<()> {
    PrometheusBuilder::new()
        .with_http_listener(page)
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Full("lockkeeper_queue_length".into()), &OTHERS)?
        .install()?;
    Ok(())
}

/// Works until something fails.
pub(crate) async fn serve(servers: &str) -> Result<()> {
    let keeper = Keeper::builder(servers).session_timeout(Duration::from_secs(4));
    let keeper = keeper.connect().await?;
    let mut workers = JoinSet::new();
    for number in 0..6 {
        workers.spawn(orders(keeper.clone(), number));
        workers.spawn(prices(keeper.clone(), number));
        workers.spawn(downloads(keeper.clone()));
    }
    for _ in 0..2 {
        workers.spawn(reports(keeper.clone()));
        workers.spawn(transfers(keeper.clone()));
        workers.spawn(schedule(keeper.clone()));
    }
    workers.spawn(operator(keeper));
    match workers.join_next().await {
        Some(ended) => ended?,
        None => Ok(()),
    }
}

/// Many locks, one class.
async fn orders(keeper: Keeper, number: u32) -> Result<()> {
    for round in number.. {
        let lock = keeper.mutex(format!("orders/{}", round % 3))?;
        let lock = lock.with_class("orders");
        // A caller who went away: counted as a timeout, if it was not its turn by then.
        let locked = match round % 10 {
            0 => lock.lock_timeout(Duration::from_millis(10)).await,
            _ => lock.lock().await,
        };
        match locked {
            Ok(guard) => {
                sleep(Duration::from_millis(20)).await;
                guard.release().await?;
            }
            Err(error) if error.is_timeout() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Readers together, and now and then a writer who goes on as a reader.
async fn prices(keeper: Keeper, number: u32) -> Result<()> {
    let table = keeper.rw_lock("prices")?.with_class("prices");
    for round in number.. {
        let reader = if round % 20 == 0 {
            let writer = table.write().await?;
            sleep(Duration::from_millis(15)).await;
            writer.downgrade().await?
        } else {
            table.read().await?
        };
        sleep(Duration::from_millis(10)).await;
        reader.release().await?;
    }
    Ok(())
}

async fn downloads(keeper: Keeper) -> Result<()> {
    let permits = keeper.semaphore("downloads", 4)?.with_class("downloads");
    for round in 0_u32.. {
        let permit = permits.acquire_many(1 + round % 2).await?;
        sleep(Duration::from_millis(30)).await;
        permit.release().await?;
    }
    Ok(())
}

async fn transfers(keeper: Keeper) -> Result<()> {
    let accounts = keeper.multi_lock(["accounts/4", "accounts/17"])?;
    let accounts = accounts.with_class("transfers");
    loop {
        let guard = accounts.lock().await?;
        sleep(Duration::from_millis(25)).await;
        guard.release().await?;
    }
}

async fn schedule(keeper: Keeper) -> Result<()> {
    let election = keeper.election("scheduler")?.with_class("scheduler");
    loop {
        let leadership = election.campaign("service").await?;
        sleep(Duration::from_millis(200)).await;
        leadership.resign().await?;
    }
}

const REPORT: &str = "reports/daily";

/// Holds for long, and loses its lock to the operator.
async fn reports(keeper: Keeper) -> Result<()> {
    let lock = keeper.mutex(REPORT)?.with_class("reports");
    loop {
        let worked = async {
            let guard = lock.lock().await?;
            guard.run(sleep(Duration::from_millis(1500))).await?;
            guard.release().await
        };
        match worked.await {
            Err(lost) if lost.is_lost() => println!("{lost}"),
            ended => ended?,
        }
    }
}

/// Removes the ticket of whoever holds, now and then.
async fn operator(keeper: Keeper) -> Result<()> {
    loop {
        sleep(Duration::from_secs(2)).await;
        if let Some(holder) = keeper.queue(REPORT).await?.first() {
            keeper.evict(REPORT, holder).await?;
        }
    }
}
