//! One article, and two services with ten buyers each. Who gets it?
//!
//! `cargo run --example flash_sale` in this folder runs without a lock, with a lock inside each
//! service, and with Lockkeeper on the embedded server. Plain locks of stores that run already are
//! named by their URLs:
//! `cargo run --example flash_sale --features redis -- redis+setnx://127.0.0.1:6379`. A URL of a
//! server alone, as `redis://127.0.0.1:6379`, stands for Lockkeeper's own lock on that store and
//! for all kinds of plain lock that it can have.
//!
//! A buyer reads the stock, and then writes it. Where nothing keeps two buyers apart, they meet
//! between the two, at a barrier: so the race is lost each time, and not by chance.
#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockkeeper::Keeper;
use lockkeeper::compat::{self, KINDS, PlainKeeper, PlainLayer, PlainStore};
use lockkeeper::embedded::{EmbeddedServer, Op};
use tokio::sync::{Barrier, Mutex};
use tokio::task::JoinSet;
use tokio::time::timeout;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const SERVICES: usize = 2;
const BUYERS: usize = 10;
/// So long a buyer under a lock leaves the others time to break in.
const TEMPTING: Duration = Duration::from_millis(50);

#[tokio::main]
async fn main() -> Result<()> {
    let urls: Vec<String> = std::env::args().skip(1).collect();
    println!("{}", Sale::HEAD);
    for sale in [without_lock().await?, inside_services().await?] {
        println!("{sale}");
    }
    println!("{}", on_embedded_server().await?);
    for url in &urls {
        if let Some(store) = engine_of(url) {
            println!("{}", on_engine(&store).await?);
        }
        for url in kinds_of(url) {
            make_table(&url).await?;
            println!("{}", on_plain_lock(&url).await?);
        }
    }
    Ok(())
}

/// The URL of the store for Lockkeeper's own lock: of several servers of Redis, the first.
fn engine_of(url: &str) -> Option<String> {
    let (scheme, servers) = url.split_once("://").unwrap_or(("zookeeper", url));
    match scheme {
        "redis" => Some(format!("redis://{}", servers.split(',').next()?)),
        "postgres" | "zookeeper" => Some(url.to_owned()),
        _ => None,
    }
}

/// The URLs of all kinds of lock on a server. Redlock needs three of them, with commas between.
/// Tair's is another server, so it is named by its own kind.
fn kinds_of(url: &str) -> Vec<String> {
    let (scheme, servers) = url.split_once("://").unwrap_or((url, ""));
    if scheme.contains('+') {
        return vec![url.to_owned()];
    }
    let first = servers.split(',').next().unwrap_or_default();
    let kinds = KINDS.iter().map(|(kind, _)| *kind);
    let mut urls = Vec::new();
    for kind in kinds.filter(|kind| kind.split('+').next() == Some(scheme)) {
        match kind {
            "redis+tair" => {}
            "redis+redlock" if servers.split(',').count() < 3 => {}
            "redis+redlock" => urls.push(format!("{kind}://{servers}")),
            _ => urls.push(format!("{kind}://{first}")),
        }
    }
    urls
}

/// Makes the table of a kind that has one, if it is not there.
#[cfg(any(feature = "mysql", feature = "postgres"))]
async fn make_table(url: &str) -> Result<()> {
    use compat::sql::{ForUpdate, ShedLock, SpringLock, UniqueRow};
    let is_missing = matches!(
        compat::connect(url).await,
        Err(lockkeeper::Error::Store {
            problem: compat::StoreProblem::Schema(_),
            ..
        })
    );
    let (_, kind) = url.split_once('+').unwrap_or_default();
    match kind.split("://").next() {
        _ if !is_missing => {}
        Some("row") => UniqueRow::create_table(url).await?,
        Some("forupdate") => ForUpdate::create_table(url).await?,
        Some("shedlock") => ShedLock::create_table(url).await?,
        Some("spring") => SpringLock::create_table(url).await?,
        _ => {}
    }
    Ok(())
}

/// No other kind has a table.
#[cfg(not(any(feature = "mysql", feature = "postgres")))]
async fn make_table(_url: &str) -> Result<()> {
    Ok(())
}

/// What came of a sale: a row of the table.
#[derive(Debug)]
pub struct Sale {
    /// What kept the buyers apart.
    pub lock: String,
    /// How many of them got the one article.
    pub winners: usize,
    /// How many were told that it is sold.
    pub refused: usize,
    /// From the first buyer to the last.
    pub time: Duration,
    /// What was asked: of the embedded server, each request; of a plain lock, each call to its
    /// store. Other servers are asked by other programs too, so nobody can tell.
    pub asked: Option<u64>,
}

impl Sale {
    const HEAD: &str = "| lock | winners | refused | time | asked |\n|---|---|---|---|---|";
}

impl fmt::Display for Sale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (winners, refused) = (self.winners, self.refused);
        let ms = self.time.as_millis();
        let asked = self
            .asked
            .map_or_else(|| "-".to_owned(), |asked| asked.to_string());
        write!(
            f,
            "| {} | {winners} | {refused} | {ms} ms | {asked} |",
            self.lock
        )
    }
}

/// The database of the shop: a read and a write, and nothing between them.
#[derive(Debug)]
struct Shop {
    stock: AtomicU32,
    /// Where those meet who have read that there is one.
    meeting: Barrier,
    /// Whether the meeting takes place whatever happens. Under a lock nobody else comes.
    is_sure: bool,
}

impl Shop {
    fn new(rivals: usize, is_sure: bool) -> Arc<Self> {
        Arc::new(Self {
            stock: AtomicU32::new(1),
            meeting: Barrier::new(rivals),
            is_sure,
        })
    }

    /// Whether the buyer has got one.
    async fn buy(&self) -> bool {
        let stock = self.stock.load(Ordering::SeqCst);
        if stock == 0 {
            return false;
        }
        if self.is_sure {
            self.meeting.wait().await;
        } else {
            // A lock that lets two in is found out here.
            let met = timeout(TEMPTING, self.meeting.wait()).await;
            met.map(drop).unwrap_or_default();
        }
        self.stock.store(stock - 1, Ordering::SeqCst);
        true
    }
}

/// All buyers come at once. `buy` is given the number of their service.
async fn sale<F>(lock: &str, buy: impl Fn(usize) -> F) -> Result<Sale>
where
    F: Future<Output = Result<bool>> + Send + 'static,
{
    let begun = Instant::now();
    let mut buyers = JoinSet::new();
    for buyer in 0..SERVICES * BUYERS {
        buyers.spawn(buy(buyer % SERVICES));
    }
    let (mut winners, mut refused) = (0, 0);
    while let Some(bought) = buyers.join_next().await {
        if bought?? {
            winners += 1;
        } else {
            refused += 1;
        }
    }
    Ok(Sale {
        lock: lock.to_owned(),
        winners,
        refused,
        time: begun.elapsed(),
        asked: Some(0),
    })
}

/// Nothing keeps the buyers apart.
///
/// # Errors
///
/// A buyer panicked.
pub async fn without_lock() -> Result<Sale> {
    let shop = Shop::new(SERVICES * BUYERS, true);
    sale("none", |_| {
        let shop = Arc::clone(&shop);
        async move { Ok(shop.buy().await) }
    })
    .await
}

/// Each service has a mutex of its own, as a process has.
///
/// # Errors
///
/// A buyer panicked.
pub async fn inside_services() -> Result<Sale> {
    let shop = Shop::new(SERVICES, true);
    let locks: Vec<Arc<Mutex<()>>> = (0..SERVICES).map(|_| Arc::default()).collect();
    sale("inside each service", |service| {
        let (shop, lock) = (Arc::clone(&shop), Arc::clone(&locks[service]));
        async move {
            let _guard = lock.lock().await;
            Ok(shop.buy().await)
        }
    })
    .await
}

/// With Lockkeeper's own lock, on a server in this process.
///
/// # Errors
///
/// Whatever the server refuses.
pub async fn on_embedded_server() -> Result<Sale> {
    let server = EmbeddedServer::start().await?;
    let requests = || {
        let counters = server.counters();
        counters.requests() - counters.get(Op::Ping)
    };
    let mut services = Vec::new();
    for _ in 0..SERVICES {
        services.push(Keeper::connect(server.connect_string()).await?);
    }
    let before = requests();
    let mut sale = with_keepers("ZooKeeper (embedded)", &services).await?;
    sale.asked = Some(requests() - before);
    for keeper in services {
        keeper.close().await;
    }
    Ok(sale)
}

/// With Lockkeeper's own lock, on the store that the scheme of the URL says.
///
/// # Errors
///
/// Whatever the store refuses.
pub async fn on_engine(url: &str) -> Result<Sale> {
    // An empty store is new here, and nobody waits for holders of before. ZooKeeper keeps them.
    let may_be_new = url.starts_with("redis://") || url.starts_with("postgres://");
    let mut services = Vec::new();
    for _ in 0..SERVICES {
        let builder = Keeper::builder(url).new_store(may_be_new);
        services.push(builder.connect().await?);
    }
    let engine = services[0].engine();
    let mut sale = with_keepers(&format!("{engine} (`Keeper`)"), &services).await?;
    sale.asked = None;
    for keeper in services {
        keeper.close().await;
    }
    Ok(sale)
}

async fn with_keepers(lock: &str, services: &[Keeper]) -> Result<Sale> {
    let (shop, article) = (Shop::new(2, false), article());
    sale(lock, |service| {
        let mutex = services[service].mutex(&article);
        let shop = Arc::clone(&shop);
        async move {
            let guard = mutex?.lock().await?;
            let bought = guard.run(shop.buy()).await?;
            guard.release().await?;
            Ok(bought)
        }
    })
    .await
}

/// Nobody else's article.
fn article() -> String {
    format!("article/{}", uuid::Uuid::new_v4().simple())
}

/// With a plain lock. The scheme of the URL says which.
///
/// # Errors
///
/// Whatever the store refuses. Tables must be there.
pub async fn on_plain_lock(url: &str) -> Result<Sale> {
    let mut services = Vec::new();
    for _ in 0..SERVICES {
        services.push(Counted::new(compat::connect(url).await?));
    }
    let (shop, article) = (Shop::new(2, false), article());
    let kind = url.split("://").next().unwrap_or_default();
    let mut sale = sale(kind, |service| {
        let lock = PlainKeeper::new(services[service].clone()).mutex(&article);
        let shop = Arc::clone(&shop);
        async move {
            let guard = lock?.lock().await?;
            let bought = guard.run(shop.buy()).await?;
            guard.release().await?;
            Ok(bought)
        }
    })
    .await?;
    sale.asked = Some(services.iter().map(Counted::requests).sum());
    Ok(sale)
}

/// A store that counts what is asked of it.
#[derive(Debug, Clone)]
pub struct Counted {
    inner: PlainKeeper<dyn PlainStore>,
    requests: Arc<AtomicU64>,
}

impl Counted {
    /// Counts for this one.
    pub fn new(inner: PlainKeeper<dyn PlainStore>) -> Self {
        let requests = Arc::default();
        Self { inner, requests }
    }

    /// Of all clones together.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

impl PlainLayer for Counted {
    fn inner(&self) -> &dyn PlainStore {
        self.inner.store()
    }

    fn request(&self) -> &dyn PlainStore {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.inner()
    }
}
