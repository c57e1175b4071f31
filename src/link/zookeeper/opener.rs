//! Opens sessions of the client crate.
//!
//! Invariant: an open ends within its limit, or when every server was tried about twenty times. It
//! keeps no session.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::sleep;
use zookeeper_client as zk;

use super::answer::fault;
use super::{BROKEN, ZooKeeper};
use crate::latch::Latch;
use crate::link::pacer::Pacer;
use crate::link::size::Envelope;
#[cfg(feature = "tls")]
use crate::link::tls::Tls;
use crate::link::{Code, Fault, Link, Opener, Reply, Right};
use crate::protocol::acl::{Acl, Credential};

/// The most tries to open one session that go on at the same time.
const MOST_TRIES: usize = 8;

/// The servers, and how to reach them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Target {
    /// Servers without the chroot.
    pub(crate) servers: String,
    /// Starts with `/`, or is empty.
    pub(crate) chroot: String,
    /// Whether it is made if it does not exist.
    pub(crate) creates_chroot: bool,
    /// The timeout to ask for. Once a session is open, waits go by the granted one.
    pub(crate) session_timeout: Duration,
    /// The timeout that was granted last.
    pub(crate) granted: Arc<Latch<Option<Duration>>>,
    pub(crate) credentials: Vec<Credential>,
    pub(crate) acl: Acl,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Tls>,
}

impl Target {
    /// The timeout that will most likely be granted.
    fn expected(&self) -> Duration {
        self.granted.lock().unwrap_or(self.session_timeout)
    }

    /// Learns what a server has granted. Whether that was not expected.
    pub(super) fn has_learnt(&self, granted: Duration) -> bool {
        let expected = self.expected();
        *self.granted.lock() = Some(granted);
        granted.as_millis() != expected.as_millis()
    }

    /// The server that can be asked whether it stands alone, if there is only one. Through TLS no
    /// such question can be asked.
    pub(super) fn only_server(&self) -> Option<&str> {
        let is_only = !self.servers.contains(',') && !self.is_secure();
        is_only.then_some(&*self.servers)
    }
}

impl Opener for Target {
    fn open(&self, limit: Duration) -> Reply<'static, Arc<dyn Link>> {
        Box::pin(ZooKeeper::connect(self.clone(), limit))
    }

    fn servers(&self) -> &str {
        &self.servers
    }

    fn chroot(&self) -> &str {
        &self.chroot
    }

    fn above_chroot(&self) -> Option<Arc<dyn Opener>> {
        let above = || Self {
            chroot: String::new(),
            ..self.clone()
        };
        self.creates_chroot.then(|| Arc::new(above()) as _)
    }

    fn envelope(&self) -> Envelope {
        Envelope::new(&self.chroot, self.acl.entries())
    }

    #[cfg(feature = "tls")]
    fn is_secure(&self) -> bool {
        self.tls.is_some()
    }
}

/// Opens a session, unless every server is tried in vain.
pub(super) async fn try_all(
    target: &Target,
    limit: Duration,
) -> Result<(zk::Client, Pacer), Fault> {
    let pacer = Pacer::new(target.expected()).await;
    let opening = AssertUnwindSafe(open(target, &pacer, limit)).catch_unwind();
    let client = tokio::select! {
        biased;
        opened = opening => match opened {
            Ok(Ok(client)) => client,
            Ok(Err(zk::Error::AuthFailed)) => return Err(Fault::Answered(Code::Unauthenticated)),
            Ok(Err(error)) => return Err(fault(error, Right::Read)),
            Err(_) => return Err(Fault::Unknown(BROKEN.into())),
        },
        () = pacer.count_tries() => {
            return Err(Fault::Unknown("every server was tried".into()));
        }
    };
    Ok((client, pacer))
}

/// Opens a session, or fails when every server was tried in vain.
///
/// The crate tries one server after the other, in an order of its own, and may meet one that is
/// silent several times before it meets another. So, with several servers, a silent try does not
/// hold up the rest: others are begun beside it, and the first session is taken. A dropped try may
/// leave a session at a slow server, which has no node and ends when it times out.
async fn open(target: &Target, pacer: &Pacer, limit: Duration) -> Result<zk::Client, zk::Error> {
    let servers = target.servers.split(',').count();
    let most = match servers {
        1 => 1,
        _ => MOST_TRIES.min(2 * servers),
    };
    // Also how long a connection may be silent later on; at three eighths of it the crate sends a
    // ping.
    let patience = target.expected() / 5;
    let list = format!("{}{}", pacer.list(&target.servers), target.chroot);
    #[cfg(feature = "tls")]
    let tls = target.tls.as_ref().map(tls_options).transpose()?;
    let connect = || {
        let mut connector = zk::Client::connector()
            .with_session_timeout(target.session_timeout)
            .with_connection_timeout(patience)
            .with_fail_eagerly();
        for Credential { scheme, secret } in &target.credentials {
            connector = connector.with_auth(scheme, secret);
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = &tls {
            let connector = connector.with_tls(tls.clone());
            return connector.secure_connect(&list).boxed();
        }
        connector.connect(&list).boxed()
    };
    let mut tries = FuturesUnordered::from_iter([connect()]);
    loop {
        tokio::select! {
            Some(opened) = tries.next() => return opened,
            () = sleep((limit / 8).min(patience)), if tries.len() < most => tries.push(connect()),
        }
    }
}

/// The certificates and keys for the crate. It says why it refuses them, and never shows them.
#[cfg(feature = "tls")]
fn tls_options(tls: &Tls) -> Result<zk::TlsOptions, zk::Error> {
    let options = zk::TlsOptions::new().with_pem_ca(&tls.ca)?;
    match &tls.identity {
        Some((certificate, key)) => options.with_pem_identity(certificate, key),
        None => Ok(options),
    }
}

/// Why these certificates cannot be used, if they cannot.
#[cfg(feature = "tls")]
pub(crate) fn check_tls(tls: &Tls) -> Result<(), String> {
    let checked = tls_options(tls);
    checked.map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_asked_in_clear_and_alone_or_not_at_all() {
        let target = |servers: &str| Target {
            servers: servers.into(),
            ..Target::default()
        };

        assert_eq!(target("zk1:2181").only_server(), Some("zk1:2181"));
        assert_eq!(target("zk1:2181,zk2:2181").only_server(), None);
        #[cfg(feature = "tls")]
        {
            let tls = Some(Tls::with_ca(""));
            let secure = Target {
                tls,
                ..target("zk1:2181")
            };
            assert_eq!(secure.only_server(), None);
        }
    }
}
