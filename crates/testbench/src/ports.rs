//! Ports for servers that are stopped and started again on the same port.
//!
//! They lie below the range that the system gives to outgoing connections. Otherwise a client that
//! keeps dialling a stopped server's port could be given that port, and connect to itself.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;

use tokio::net::TcpSocket;
use uuid::Uuid;

const RANGE: Range<u16> = 12_000..32_000;

/// Ports that are free now.
pub fn free(count: usize) -> io::Result<Vec<u16>> {
    listen(count)?
        .iter()
        .map(|listener| Ok(listener.local_addr()?.port()))
        .collect()
}

/// Listeners on ports of the range, all of them different.
pub fn listen(count: usize) -> io::Result<Vec<TcpListener>> {
    let mut port =
        RANGE.start + (Uuid::new_v4().as_u128() % u128::from(RANGE.end - RANGE.start)) as u16;
    let mut held = Vec::new();
    for _ in RANGE {
        port = if port + 1 < RANGE.end {
            port + 1
        } else {
            RANGE.start
        };
        held.extend(TcpListener::bind((Ipv4Addr::LOCALHOST, port)));
        if held.len() == count {
            return Ok(held);
        }
    }
    Err(io::Error::other("no free ports between 12000 and 32000"))
}

/// A port on which nothing listens, reserved as long as the socket lives. A port that was closed
/// could be taken by another case at once.
pub fn refusing() -> io::Result<(TcpSocket, SocketAddr)> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}
