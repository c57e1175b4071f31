//! A way to a server on which one request meets a fault.
//!
//! It changes no byte. A fault strikes once, and the connection that it struck is never used again.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// What becomes of the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It never arrives.
    SwallowsRequest,
    /// It is done, and its answer never arrives.
    SwallowsReply,
    /// It is done, and the connection is closed instead of an answer.
    CutsAfterDelivery,
}

pub const FAULTS: [Fault; 3] = [
    Fault::SwallowsRequest,
    Fault::SwallowsReply,
    Fault::CutsAfterDelivery,
];

#[derive(Debug, Default)]
struct Shared {
    fault: Mutex<Option<Fault>>,
    struck: AtomicUsize,
    requests: AtomicUsize,
    /// In milliseconds, of the first answer on each connection.
    late: AtomicU64,
    /// In milliseconds, of each.
    slow: AtomicU64,
}

impl Shared {
    fn late(&self) -> Duration {
        Duration::from_millis(self.late.load(Ordering::SeqCst))
    }

    fn slow(&self) -> Duration {
        Duration::from_millis(self.slow.load(Ordering::SeqCst))
    }
}

#[derive(Debug)]
pub struct CutWay {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// The task ends with it.
    _work: JoinSet<()>,
}

impl CutWay {
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::<Shared>::default();
        let (mut work, theirs) = (JoinSet::new(), Arc::clone(&shared));
        work.spawn(async move {
            let mut pipes = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                pipes.spawn(pipe(client, server, Arc::clone(&theirs)));
            }
        });
        Self {
            address,
            shared,
            _work: work,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn arm(&self, fault: Fault) {
        *self.shared.fault.lock().unwrap() = Some(fault);
    }

    /// From now on, the first answer on each connection comes so much later.
    pub fn greet_after(&self, late: Duration) {
        let late = late.as_millis().try_into().unwrap();
        self.shared.late.store(late, Ordering::SeqCst);
    }

    /// From now on, each answer comes so much later.
    pub fn answer_after(&self, slow: Duration) {
        let slow = slow.as_millis().try_into().unwrap();
        self.shared.slow.store(slow, Ordering::SeqCst);
    }

    pub fn struck(&self) -> usize {
        self.shared.struck.load(Ordering::SeqCst)
    }

    /// How many requests clients have sent. One packet may hold several of Redis; for other
    /// servers packets are counted, of which one client without others sends one for each request.
    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }
}

/// Each command of Redis is an array, whose head is a line of its own: `*3`.
fn requests_in(packet: &[u8]) -> usize {
    let lines = packet.split(|byte| *byte == b'\n');
    lines.filter(|line| line.starts_with(b"*")).count().max(1)
}

async fn pipe(mut client: TcpStream, server: SocketAddr, shared: Arc<Shared>) {
    let Ok(mut server) = TcpStream::connect(server).await else {
        return;
    };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (mut asked, mut answered) = (vec![0; 65536], vec![0; 65536]);
    let mut late = shared.late();
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(count @ 1..) = read else { return };
                shared.requests.fetch_add(requests_in(&asked[..count]), Ordering::SeqCst);
                let fault = shared.fault.lock().unwrap().take();
                if fault != Some(Fault::SwallowsRequest)
                    && server.write_all(&asked[..count]).await.is_err()
                {
                    return;
                }
                let Some(fault) = fault else { continue };
                shared.struck.fetch_add(1, Ordering::SeqCst);
                if fault != Fault::SwallowsRequest {
                    // The answer says that it is done.
                    server.read(&mut answered).await.map(drop).unwrap_or_default();
                }
                if fault == Fault::CutsAfterDelivery {
                    return;
                }
                // Neither closed nor answered.
                sleep(Duration::from_secs(3600)).await;
            }
            read = server.read(&mut answered) => {
                let Ok(count @ 1..) = read else { return };
                sleep(std::mem::take(&mut late) + shared.slow()).await;
                if client.write_all(&answered[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}
