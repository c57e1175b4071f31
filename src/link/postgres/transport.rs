//! TLS below the client crate of PostgreSQL.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{self, ChannelBinding, MakeTlsConnect, TlsConnect};

use crate::link::tls::{TlsClient, TlsStream};

/// Makes a handshake for each connection. Without a client it makes none.
pub(super) struct Transport(Option<TlsClient>);

pub(super) struct Handshake {
    tls: Option<TlsClient>,
    host: String,
}

pub(super) struct SecureSocket(TlsStream<Socket>);

impl Transport {
    pub(super) const fn new(tls: Option<TlsClient>) -> Self {
        Self(tls)
    }
}

impl MakeTlsConnect<Socket> for Transport {
    type Stream = SecureSocket;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        let host = host.to_owned();
        let tls = self.0.clone();
        Ok(Handshake { tls, host })
    }
}

impl TlsConnect<Socket> for Handshake {
    type Stream = SecureSocket;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<SecureSocket>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let Some(tls) = self.tls else {
                return Err(io::Error::other("no TLS was asked for"));
            };
            tls.handshake(&self.host, socket).await.map(SecureSocket)
        })
    }
}

/// The certificate is verified, so nothing else binds the password to the connection.
impl tls::TlsStream for SecureSocket {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for SecureSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for SecureSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
