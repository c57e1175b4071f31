//! Who we say we are and how we are connected, as it was read. It is shown nowhere.

use lockkeeper::{Acl, KeeperBuilder, Tls};

#[derive(Clone, Default)]
pub struct Access {
    /// A scheme and its secret.
    pub credential: Option<(String, String)>,
    /// As it was given.
    pub acl: Option<Acl>,
    /// Of lists that are wider, in place of refusing them.
    pub only_warns: bool,
    /// In PEM, like the certificate and the key.
    pub ca: Option<String>,
    pub identity: Option<(String, String)>,
    pub requires_tls: bool,
}

impl Access {
    /// The list of all that is made.
    pub fn effective_acl(&self) -> Acl {
        match (&self.acl, &self.credential) {
            (Some(acl), _) => acl.clone(),
            (None, Some(_)) => Acl::creator(),
            (None, None) => Acl::open(),
        }
    }

    pub fn give(&self, mut builder: KeeperBuilder) -> KeeperBuilder {
        if let Some((scheme, secret)) = &self.credential {
            builder = builder.credential(scheme, secret.as_str());
        }
        if let Some(acl) = &self.acl {
            builder = builder.acl(acl.clone());
        }
        builder = builder.strict_acl(!self.only_warns);
        if let Some(ca) = &self.ca {
            let tls = Tls::with_ca(ca);
            builder = builder.tls(match &self.identity {
                Some((certificate, key)) => tls.identity(certificate, key),
                None => tls,
            });
        }
        builder.require_tls(self.requires_tls)
    }
}
