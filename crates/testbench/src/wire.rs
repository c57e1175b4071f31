//! A raw client: frames on a socket, and the primitives inside them.
//!
//! It checks nothing and hides nothing; its callers know requests and replies.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a server may take. After that, "no answer" is the answer to compare.
const PATIENCE: Duration = Duration::from_secs(5);

/// The next item on a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    Frame(Vec<u8>),
    Closed,
    Silence,
}

pub struct Wire(TcpStream);

impl Wire {
    pub async fn dial(server: SocketAddr) -> Self {
        let stream = TcpStream::connect(server)
            .await
            .expect("the server accepts connections");
        stream.set_nodelay(true).expect("a socket takes options");
        Self(stream)
    }

    /// A closed connection shows at the next read.
    pub async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap_or_default();
    }

    /// Closes the sending half.
    pub async fn hang_up(&mut self) {
        self.0.shutdown().await.unwrap_or_default();
    }

    pub async fn next(&mut self) -> Arrival {
        timeout(PATIENCE, self.frame())
            .await
            .unwrap_or(Arrival::Silence)
    }

    async fn frame(&mut self) -> Arrival {
        let Ok(length) = self.0.read_i32().await else {
            return Arrival::Closed;
        };
        let length = usize::try_from(length).expect("a server sends no negative lengths");
        assert!(length < 1 << 24, "a reply of {length} bytes");
        let mut frame = vec![0; length];
        match self.0.read_exact(&mut frame).await {
            Ok(_) => Arrival::Frame(frame),
            Err(_) => Arrival::Closed,
        }
    }
}

/// Writes jute primitives.
#[derive(Clone, Debug, Default)]
pub struct Out(Vec<u8>);

impl Out {
    pub fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn long(&mut self, value: i64) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn flag(&mut self, value: bool) -> &mut Self {
        self.0.push(u8::from(value));
        self
    }

    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend(bytes);
        self
    }

    pub fn buffer(&mut self, bytes: Option<&[u8]>) -> &mut Self {
        match bytes {
            Some(bytes) => self.int(length(bytes.len())).raw(bytes),
            None => self.int(-1),
        }
    }

    pub fn count(&mut self, count: usize) -> &mut Self {
        self.int(length(count))
    }

    /// The bytes with their length in front.
    pub fn framed(self) -> Vec<u8> {
        let mut frame = length(self.0.len()).to_be_bytes().to_vec();
        frame.extend(self.0);
        frame
    }
}

fn length(length: usize) -> i32 {
    i32::try_from(length).expect("scripts send little")
}

/// Reads jute primitives; `None` when the frame is too short.
#[derive(Debug)]
pub struct In<'a>(pub &'a [u8]);

impl<'a> In<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }

    pub fn int(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    pub fn long(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    pub fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    /// A buffer that is not null.
    pub fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.int()?).ok()?;
        self.take(length).map(<[u8]>::to_vec)
    }

    /// A buffer in readable form, since all that is done with it is to compare and to print it.
    pub fn text(&mut self) -> Option<String> {
        Some(match usize::try_from(self.int()?) {
            Ok(length) => self.take(length)?.escape_ascii().to_string(),
            Err(_) => "(null)".to_owned(),
        })
    }
}
