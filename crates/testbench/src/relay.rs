//! A relay: an address in front of a server whose way can be cut in each of the ways in which
//! networks are cut.
//!
//! It changes no byte and knows nothing of the protocol. Its address stays the same for its life.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const BACKLOG: u32 = 1024;

/// What becomes of connections to a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Open,
    /// Connections are closed, new ones refused.
    Refusing,
    /// Connections are neither closed nor answered, new ones are taken and never answered.
    Silent,
    /// Connections are neither closed nor answered, and whoever wants a new one hears nothing at
    /// all.
    Dropping,
}

/// Relays until it is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    way: watch::Sender<Way>,
    server: watch::Sender<SocketAddr>,
    _port: TcpSocket,
    /// The task ends with it.
    _work: JoinSet<()>,
}

impl Relay {
    pub async fn to(server: SocketAddr) -> Self {
        // Bound and never listening: it keeps the port ours while connections are refused.
        let port = bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = port.local_addr().unwrap();
        let listener = listen(address, BACKLOG).await;
        let (way, ways) = watch::channel(Way::Open);
        let mut work = JoinSet::new();
        let (server, servers) = watch::channel(server);
        work.spawn(relay(listener, servers, ways));
        Self {
            address,
            way,
            server,
            _port: port,
            _work: work,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on. That a port is closed or opened takes a moment: a task does it.
    pub fn set(&self, way: Way) {
        self.way.send_replace(way);
    }

    /// New connections go to this server. Those that are there stay where they are.
    pub fn lead_to(&self, server: SocketAddr) {
        self.server.send_replace(server);
    }
}

async fn relay(
    listener: TcpListener,
    servers: watch::Receiver<SocketAddr>,
    mut ways: watch::Receiver<Way>,
) {
    let address = listener.local_addr().unwrap();
    let mut listener = Some(listener);
    let mut pipes = JoinSet::new();
    // What was taken and not answered never hears anything again, not even when the way is open.
    let mut held = Vec::new();
    loop {
        let way = *ways.borrow_and_update();
        match way {
            Way::Refusing => listener = None,
            Way::Dropping => {
                drop(listener.take());
                let deaf = listen(address, 0).await;
                // Whoever finds the queue full is not answered.
                while let Ok(Ok(taken)) =
                    timeout(Duration::from_millis(20), TcpStream::connect(address)).await
                {
                    held.push(taken);
                }
                listener = Some(deaf);
            }
            Way::Open | Way::Silent if listener.is_none() => {
                listener = Some(listen(address, BACKLOG).await);
            }
            Way::Open | Way::Silent => {}
        }
        loop {
            tokio::select! {
                biased;
                changed = ways.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                Ok((client, _)) = async { listener.as_ref().unwrap().accept().await },
                    if way != Way::Dropping && listener.is_some() =>
                {
                    match way {
                        Way::Open => {
                            let server = *servers.borrow();
                            pipes.spawn(pipe(client, server, ways.clone()));
                        }
                        _ => held.push(client),
                    }
                }
            }
        }
        // The queue of one that dropped is not worth anything: its listener goes with it.
        if way == Way::Dropping {
            listener = None;
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// A process that another case is just starting may have the last listener for a moment more;
/// beside that one no socket can be bound.
async fn listen(address: SocketAddr, backlog: u32) -> TcpListener {
    loop {
        match bind(address).and_then(|socket| socket.listen(backlog)) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                sleep(Duration::from_millis(2)).await;
            }
            listener => return listener.unwrap(),
        }
    }
}

/// Copies both ways between a client and a server, until both have ended or one fails. There may be
/// no server: a keeper still asks at the end of a case.
pub async fn pass_on(mut client: TcpStream, server: SocketAddr) {
    match TcpStream::connect(server).await {
        Ok(mut server) => drop(copy_bidirectional(&mut client, &mut server).await),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}"),
    }
}

/// Copies both ways while the way is open. A connection that the way went silent under is never
/// heard of again, and neither end is closed: a server frees what is bound to one that is.
async fn pipe(mut client: TcpStream, server: SocketAddr, mut ways: watch::Receiver<Way>) {
    client.set_nodelay(true).unwrap();
    // The way comes first: what is sent after it was set arrives nowhere.
    let connecting = tokio::select! {
        biased;
        _ = ways.wait_for(|way| *way != Way::Open) => None,
        server = TcpStream::connect(server) => server.ok(),
    };
    if let Some(mut server) = connecting {
        server.set_nodelay(true).unwrap();
        tokio::select! {
            biased;
            _ = ways.wait_for(|way| *way != Way::Open) => {}
            // However it ends, both ends are closed.
            _ = copy_bidirectional(&mut client, &mut server) => return,
        }
        if *ways.borrow() != Way::Refusing {
            std::future::pending::<()>().await;
        }
    } else if *ways.borrow() != Way::Open && *ways.borrow() != Way::Refusing {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::runtime::Builder;

    use super::*;

    /// What is sent right after it arrives nowhere, even if a task of the relay hears of both at
    /// once, as on a busy machine.
    #[test]
    fn a_way_counts_from_the_moment_that_it_is_set() {
        let mut runtime = Builder::new_current_thread();
        // After each task it hears what has arrived.
        let runtime = runtime.enable_all().event_interval(1).build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            for _ in 0..20 {
                let relay = Relay::to(listener.local_addr().unwrap()).await;
                let mut client = TcpStream::connect(relay.address()).await.unwrap();
                let (mut server, _) = listener.accept().await.unwrap();
                client.write_all(b"before").await.unwrap();
                server.read_exact(&mut [0; 6]).await.unwrap();

                // It runs before the relay's.
                drop(tokio::spawn(async {}));
                relay.set(Way::Silent);
                client.try_write(b"after").unwrap();

                let heard = timeout(Duration::from_millis(20), server.read(&mut [0; 5])).await;
                assert!(heard.is_err(), "{heard:?}");
            }
        });
    }
}
