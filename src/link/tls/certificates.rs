//! TLS: the authorities to trust, and our certificate. (pure)
//!
//! Invariant: no key is ever shown. It reads no certificate: the link does.

use crate::brief::shows;

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

shows!(|tls| Tls {
    has_identity: tls.identity.is_some(),
});
