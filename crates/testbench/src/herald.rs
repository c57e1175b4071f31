//! A stand-in before a server: it answers `srvr` as a test says, and passes everything else on.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How it answers.
#[derive(Clone, Copy, Debug)]
pub enum Says {
    Text(&'static str),
    /// It never answers, and keeps the connection open.
    Nothing,
    /// Its answer never ends.
    Endless,
}

/// The answer of ZooKeeper 3.8.
pub const STANDALONE: &str = "Zookeeper version: 3.8.0-1, built on 2022\nLatency min/avg/max: 0/0.0/0\nReceived: 2\nSent: 1\nConnections: 1\n\
     Outstanding: 0\nZxid: 0x5\nMode: standalone\nNode count: 5\n";

#[derive(Debug)]
pub struct Herald {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    says: Mutex<Says>,
    asked: AtomicUsize,
    /// Connections with an older number are ended.
    cuts: watch::Sender<usize>,
}

impl Herald {
    pub async fn before(server: SocketAddr, says: Says) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            server,
            says: Mutex::new(says),
            asked: AtomicUsize::new(0),
            cuts: watch::Sender::new(0),
        });
        let serving = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&serving);
                // An ended connection does not matter here.
                tokio::spawn(async move { shared.pass(stream).await.ok() });
            }
        });
        Self {
            address,
            shared,
            task,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn say(&self, says: Says) {
        *self.shared.says() = says;
    }

    /// How often it was asked.
    pub fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::Relaxed)
    }

    /// Ends all connections.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }
}

impl Drop for Herald {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

impl Shared {
    fn says(&self) -> std::sync::MutexGuard<'_, Says> {
        self.says.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn pass(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut cuts = self.cuts.subscribe();
        let passing = async {
            let mut first = [0; 4];
            stream.read_exact(&mut first).await?;
            if first != *b"srvr" {
                let mut server = TcpStream::connect(self.server).await?;
                server.write_all(&first).await?;
                return copy_bidirectional(&mut stream, &mut server).await.map(drop);
            }
            self.asked.fetch_add(1, Ordering::Relaxed);
            let says = *self.says();
            match says {
                Says::Text(text) => stream.write_all(text.as_bytes()).await,
                Says::Nothing => std::future::pending().await,
                Says::Endless => loop {
                    stream.write_all(STANDALONE.as_bytes()).await?;
                },
            }
        };
        tokio::select! {
            biased;
            _ = cuts.changed() => Ok(()),
            passed = passing => passed,
        }
    }
}
