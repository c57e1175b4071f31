//! Ports for servers that are stopped and started again on the same port.
//!
//! They lie below the range that the system gives to outgoing connections. Otherwise a client that
//! keeps dialling a stopped server's port could be given that port, and connect to itself.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;

use tokio::net::TcpSocket;
use uuid::Uuid;

const RANGE: Range<u16> = 12_000..32_000;

/// A port of a server that comes later, or is stopped for a while. Until it is dropped, no other
/// process gets it from here: a database takes seconds to listen, and whoever finds its port
/// answered takes the answer for its own.
#[derive(Debug)]
pub struct Reserved {
    pub number: u16,
    /// Ports of UDP are no ports of TCP. So the server can have it, and it ends with its process.
    _mark: UdpSocket,
}

/// Ports that are free, all of them different.
pub fn reserve(count: usize) -> io::Result<Vec<Reserved>> {
    search(anywhere(), count, reserved)
}

/// Listeners on ports of the range, all of them different.
pub fn listen(count: usize) -> io::Result<Vec<TcpListener>> {
    search(anywhere(), count, listener)
}

// Each takes its own before it looks for the other's: of two at once, at most one gets the port.

fn reserved(port: u16) -> io::Result<Reserved> {
    let mark = UdpSocket::bind((Ipv4Addr::LOCALHOST, port))?;
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    Ok(Reserved {
        number: port,
        _mark: mark,
    })
}

fn listener(port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    UdpSocket::bind((Ipv4Addr::LOCALHOST, port))?;
    Ok(listener)
}

fn anywhere() -> u16 {
    RANGE.start + (Uuid::new_v4().as_u128() % u128::from(RANGE.end - RANGE.start)) as u16
}

fn search<T>(from: u16, count: usize, take: impl Fn(u16) -> io::Result<T>) -> io::Result<Vec<T>> {
    let ports = (from..RANGE.end).chain(RANGE.start..from);
    let taken: Vec<T> = ports
        .filter_map(|port| take(port).ok())
        .take(count)
        .collect();
    if taken.len() < count {
        return Err(io::Error::other("no free ports between 12000 and 32000"));
    }
    Ok(taken)
}

/// A port on which nothing listens, reserved as long as the socket lives. A port that was closed
/// could be taken by another case at once.
pub fn refusing() -> io::Result<(TcpSocket, SocketAddr)> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_reserved_is_given_to_nobody_else_and_can_be_listened_on() {
        let mine = reserve(1).unwrap().remove(0);
        let next = search(mine.number, 1, reserved).unwrap().remove(0);
        let heard = search(mine.number, 1, listener).unwrap().remove(0);

        let heard = heard.local_addr().unwrap().port();
        assert!(next.number != mine.number && heard != mine.number && heard != next.number);
        let own = TcpListener::bind((Ipv4Addr::LOCALHOST, mine.number));
        own.expect("it is free for its server");
    }
}
