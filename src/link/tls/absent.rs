//! What stands for TLS where it is not built in: a client that nobody can make.

use std::error::Error;
use std::io;

#[derive(Debug, Clone)]
pub(crate) enum TlsClient {}

impl TlsClient {
    #[cfg_attr(not(feature = "redis"), allow(dead_code))]
    pub(crate) async fn handshake<S>(&self, _host: &str, _stream: S) -> io::Result<S> {
        match *self {}
    }
}

pub(crate) const fn refusal(_error: &(dyn Error + 'static)) -> Option<String> {
    None
}
