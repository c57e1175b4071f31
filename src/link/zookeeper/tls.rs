//! TLS: the authorities to trust, and our certificate. (pure)
//!
//! Invariant: no key is ever shown. It reads no certificate: the link does.

use std::fmt;

/// How connections are encrypted: the authorities to trust, and the client's own certificate. All
/// of it is PEM text.
///
/// Names in the connect string must be those of the servers' certificates.
#[derive(Clone, PartialEq, Eq)]
pub struct Tls {
    pub(crate) ca: String,
    pub(crate) identity: Option<(String, String)>,
}

impl Tls {
    /// Believes servers whose certificate one of these authorities has signed. Revocation lists may
    /// be in there too.
    pub fn with_ca(ca: impl Into<String>) -> Self {
        Self {
            ca: ca.into(),
            identity: None,
        }
    }

    /// Shows servers that ask for it this certificate, which is proved by its key.
    #[must_use]
    pub fn identity(mut self, certificate: impl Into<String>, key: impl Into<String>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("has_identity", &self.identity.is_some())
            .finish_non_exhaustive()
    }
}
