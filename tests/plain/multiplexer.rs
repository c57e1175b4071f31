//! A stand-in for a proxy of MariaDB that shares connections, as MaxScale and ProxySQL do it: it
//! greets its clients itself, and each statement goes to another connection to the server.
//!
//! It changes nothing but the number of the connection in the greeting. A prepared statement is
//! executed where it was prepared, if that was the last one.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use lockkeeper::Error;
use lockkeeper::compat::{StoreProblem, connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::bed::Bed;

crate::cases![["mysql+getlock"] a_proxy_that_shares_connections_is_refused];

const QUERY: u8 = 0x03;
const PREPARE: u8 = 0x16;

async fn a_proxy_that_shares_connections_is_refused(bed: Arc<Bed>, name: String) {
    for connections in [1, 2] {
        let proxy = Multiplexer::to(bed.addresses()[0], connections).await;
        let error = connect(&bed.url_at(&proxy.address.to_string())).await;
        let error = match error {
            Err(error) => error,
            Ok(keeper) => {
                let tried = keeper.mutex(&name).unwrap().try_lock().await;
                panic!("{connections} connections: it is not refused: {tried:?}");
            }
        };
        let Error::Store { problem, .. } = &error else {
            panic!("{error}");
        };
        assert!(matches!(problem, StoreProblem::Pooler(_)), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("127.0.0.1:") && text.contains("the server itself"),
            "{text}"
        );
    }
}

/// It ends with its task.
struct Multiplexer {
    address: SocketAddr,
    _work: JoinSet<()>,
}

impl Multiplexer {
    /// Each client is given so many connections to the server.
    async fn to(server: SocketAddr, connections: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut work = JoinSet::new();
        work.spawn(async move {
            let mut clients = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                clients.spawn(async move {
                    let served = serve(client, server, connections).await;
                    served.unwrap_or_default();
                });
            }
        });
        Self {
            address,
            _work: work,
        }
    }
}

async fn serve(mut client: TcpStream, server: SocketAddr, connections: usize) -> io::Result<()> {
    let mut servers = vec![TcpStream::connect(server).await?];
    let mut greeting = packet(&mut servers[0]).await?;
    // Behind the head, the protocol and the version as a text: the number of the connection.
    let version = greeting[5..].iter().position(|byte| *byte == 0);
    let number = 5 + version.expect("a greeting") + 1;
    greeting[number..number + 4].copy_from_slice(&4_000_000_u32.to_le_bytes());
    client.write_all(&greeting).await?;
    // Without a password it is the same for each greeting.
    let login = packet(&mut client).await?;
    servers[0].write_all(&login).await?;
    let welcome = packet(&mut servers[0]).await?;
    client.write_all(&welcome).await?;
    for _ in 1..connections {
        let mut another = TcpStream::connect(server).await?;
        packet(&mut another).await?;
        another.write_all(&login).await?;
        packet(&mut another).await?;
        servers.push(another);
    }
    loop {
        let request = packet(&mut client).await?;
        if matches!(request[4], QUERY | PREPARE) {
            servers.rotate_left(1);
        }
        servers[0].write_all(&request).await?;
        // One answer has several packets, and comes at once.
        let mut answer = vec![0; 65536];
        let mut asked = [0];
        loop {
            tokio::select! {
                read = servers[0].read(&mut answer) => match read? {
                    0 => return Ok(()),
                    count => client.write_all(&answer[..count]).await?,
                },
                peeked = client.peek(&mut asked) => match peeked? {
                    0 => return Ok(()),
                    _ => break,
                },
            }
        }
    }
}

/// One packet with its head.
async fn packet(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let length = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
    let mut packet = head.to_vec();
    packet.resize(4 + length, 0);
    stream.read_exact(&mut packet[4..]).await?;
    Ok(packet)
}
