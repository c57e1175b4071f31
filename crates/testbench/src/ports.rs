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
/// answered takes the answer for its own. For the same reason, nobody listens there to find out
/// whether it is free.
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

/// Listeners on ports that are reserved, all of them different.
pub fn listen(count: usize) -> io::Result<Vec<(Reserved, TcpListener)>> {
    search(anywhere(), count, listener)
}

// Both mark the port before they look at it.

fn reserved(port: u16) -> io::Result<Reserved> {
    let mark = mark(port)?;
    look(port)?;
    Ok(mark)
}

fn listener(port: u16) -> io::Result<(Reserved, TcpListener)> {
    let mark = mark(port)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    Ok((mark, listener))
}

/// Fails if somebody listens there, and is in nobody's way.
fn look(port: u16) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())
}

fn mark(number: u16) -> io::Result<Reserved> {
    let mark = UdpSocket::bind((Ipv4Addr::LOCALHOST, number))?;
    Ok(Reserved {
        number,
        _mark: mark,
    })
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
    use std::net::TcpStream;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::thread;

    use super::*;

    #[test]
    fn a_port_that_is_reserved_is_given_to_nobody_else_and_can_be_listened_on() {
        let mine = reserve(1).unwrap().remove(0);
        let next = search(mine.number, 1, reserved).unwrap().remove(0);
        let (heard, _listener) = search(mine.number, 1, listener).unwrap().remove(0);

        let (mine_at, next, heard) = (mine.number, next.number, heard.number);
        assert!(next != mine_at && heard != mine_at && heard != next);
        let own = TcpListener::bind((Ipv4Addr::LOCALHOST, mine.number));
        own.expect("it is free for its server");
    }

    /// A case that waits until its server listens took a search of another one for the server, and
    /// was reset when that went on.
    #[test]
    fn nobody_is_answered_on_a_port_that_is_only_looked_at() {
        let mine = reserve(1).unwrap().remove(0);
        let port = mine.number;
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let dial = || {
                let dial = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
                let dials = std::iter::repeat_with(dial);
                dials.take_while(|_| !over.load(Relaxed)).any(|it_is| it_is)
            };
            let dials = [(); 2].map(|()| scope.spawn(dial));
            for _ in 0..2_000 {
                listener(port).expect_err("it is reserved");
                look(port).expect("it is free");
            }
            over.store(true, Relaxed);
            for dial in dials {
                assert!(!dial.join().unwrap(), "somebody listened");
            }
        });
    }
}
