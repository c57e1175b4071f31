//! Who we say we are and how we are connected, as it was read. It is shown nowhere.

use lockkeeper::{Acl, KeeperBuilder, Tls};

#[derive(Clone, Default)]
pub(crate) struct Access {
    /// A scheme and its secret.
    pub(crate) credential: Option<(String, String)>,
    pub(crate) acl: Option<Acl>,
    /// In PEM, like the certificate and the key.
    pub(crate) ca: Option<String>,
    pub(crate) identity: Option<(String, String)>,
    pub(crate) requires_tls: bool,
}

impl Access {
    pub(crate) fn give(&self, mut builder: KeeperBuilder) -> KeeperBuilder {
        if let Some((scheme, secret)) = &self.credential {
            builder = builder.credential(scheme, secret.as_str());
        }
        if let Some(acl) = &self.acl {
            builder = builder.acl(acl.clone());
        }
        if let Some(ca) = &self.ca {
            let tls = Tls::with_ca(ca);
            builder = builder.tls(match &self.identity {
                Some((certificate, key)) => tls.identity(certificate, key),
                None => tls,
            });
        }
        if self.requires_tls {
            builder = builder.require_tls();
        }
        builder
    }
}
