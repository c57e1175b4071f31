//! The link on real ZooKeeper, through the `zookeeper-client` crate: the only file that names it.
//!
//! It uses the crate's plain operations only. The crate's lock recipe, its persistent watches
//! across reconnects and its session state as proof are not used (docs/failures.md section G says
//! why).

mod nodelay;
mod standalone;
#[cfg(feature = "tls")]
pub(crate) mod tls;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tracing::Instrument;
use zookeeper_client as zk;

#[cfg(feature = "tls")]
use crate::link::zookeeper::tls::Tls;
use crate::protocol::acl;
use crate::protocol::acl::{Acl, Credential};

use standalone::Standalone;

use super::pacer::Pacer;
use super::size::Envelope;
use super::{
    AccessList, Change, Code, Create, Created, Fault, Found, Link, Node, Opener, Read, Reply,
    Right, SessionState, Watch, Write, size,
};

/// Server codes that the crate has no name for (ZooKeeper's `KeeperException.Code`).
const SYSTEM_ERROR: i32 = -1;
const OPERATION_TIMEOUT: i32 = -7;

/// The client crate panics on some replies that no server gives, such as an empty path.
pub(crate) const BROKEN: &str = "the server's answer is not one that the client can read";

/// The most tries to open one session that go on at the same time.
const MOST_TRIES: usize = 8;

/// What a connection needs to know.
#[derive(Debug, Clone, Default)]
pub(crate) struct Target {
    /// Servers without the chroot.
    pub(crate) servers: String,
    /// Starts with `/`, or is empty.
    pub(crate) chroot: String,
    /// What is asked for. Whatever waits once a session is open goes by what was granted.
    pub(crate) session_timeout: Duration,
    /// What was granted last, in milliseconds; 0 until then.
    pub(crate) granted: Arc<AtomicU64>,
    pub(crate) credentials: Vec<Credential>,
    pub(crate) acl: Acl,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Tls>,
}

impl Target {
    /// What will most likely be granted.
    fn expected(&self) -> Duration {
        match self.granted.load(Ordering::Relaxed) {
            0 => self.session_timeout,
            granted => Duration::from_millis(granted),
        }
    }

    /// A server has granted this; whether that was not to be expected.
    fn has_learnt(&self, granted: Duration) -> bool {
        let expected = self.expected().as_millis();
        let millis = granted.as_millis();
        self.granted
            .store(u64::try_from(millis).unwrap_or(u64::MAX), Ordering::Relaxed);
        millis != expected
    }
}

impl Target {
    /// The server that can be asked what it is, if there is only one. Through TLS no such question
    /// can be asked.
    fn only_server(&self) -> Option<&str> {
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

    fn envelope(&self) -> Envelope {
        Envelope::new(&self.chroot, self.acl.entries())
    }

    #[cfg(feature = "tls")]
    fn is_secure(&self) -> bool {
        self.tls.is_some()
    }
}

/// One session of the client crate.
#[derive(Debug)]
struct ZooKeeper {
    client: zk::Client,
    servers: String,
    /// Of all that is made.
    acl: Vec<zk::Acl>,
    envelope: Envelope,
    states: watch::Receiver<SessionState>,
    standalone: Arc<Standalone>,
    /// The client panicked; nothing that it says of the session counts any more.
    broken: Arc<Notify>,
    /// Ours, not the crate's: a request made while disconnected would otherwise hang until the
    /// session expires.
    deadline: Duration,
}

impl ZooKeeper {
    async fn connect(target: Target, limit: Duration) -> Result<Arc<dyn Link>, Fault> {
        let (mut client, mut pacer) = try_all(&target, limit).await?;
        // Before the first session nobody knows what is granted, and the crate keeps the patience
        // that it begins with: with one for a longer session it would look for another server too
        // late, with one for a shorter session without a reason.
        if target.has_learnt(client.session_timeout()) {
            // The session ends by itself, and a server that does not answer keeps nobody waiting.
            drop(client);
            (client, pacer) = try_all(&target, limit).await?;
        }
        let timeout = client.session_timeout();
        let broken = Arc::<Notify>::default();
        let signs = (client.state_watcher(), Arc::clone(&broken));
        let standalone = Arc::new(Standalone::new(client.state_watcher()));
        let states = translate_states(signs, pacer, timeout, &target, Arc::clone(&standalone));
        let deadline = timeout.max(Duration::from_millis(100));
        Ok(Arc::new(Self {
            client,
            envelope: target.envelope(),
            acl: target.acl.entries().iter().map(acl).collect(),
            servers: target.servers,
            states,
            standalone,
            broken,
            deadline,
        }))
    }

    /// Boxes a request that was sent already, with our deadline on its answer, and what is made of
    /// that.
    fn bounded<'a, T: 'a, U: 'a>(
        &self,
        needs: Right,
        sent: impl Future<Output = T> + Send + 'a,
        translate: impl FnOnce(T) -> Result<U, zk::Error> + Send + 'a,
    ) -> Reply<'a, U> {
        let deadline = self.deadline;
        // Mapped and not awaited in a block of its own, whose future would be twice as large.
        let answered = timeout(deadline, sent).map(move |answer| match answer {
            Ok(answer) => translate(answer).map_err(|error| fault(error, needs)),
            Err(_) => Err(Fault::Unknown(format!("no answer within {deadline:?}"))),
        });
        // Some replies make the client panic. That is no end of whoever asks, but of the session.
        let broken = Arc::clone(&self.broken);
        let survived = AssertUnwindSafe(answered)
            .catch_unwind()
            .map(move |answer| {
                answer.unwrap_or_else(|_| {
                    broken.notify_one();
                    Err(Fault::Unknown(BROKEN.into()))
                })
            });
        Box::pin(survived)
    }

    fn options(&self, mode: zk::CreateMode) -> zk::CreateOptions<'_> {
        mode.with_acls(zk::Acls::new(&self.acl))
    }

    fn writer(&self, writes: &[Write<'_>]) -> Result<zk::MultiWriter<'_>, Fault> {
        size::check(self.envelope.writes(writes))?;
        self.built(writes)
            .map_err(|error| fault(error, Right::Read))
    }

    fn built(&self, writes: &[Write<'_>]) -> Result<zk::MultiWriter<'_>, zk::Error> {
        let mut writer = self.client.new_multi_writer();
        for write in writes {
            match *write {
                Write::Check { path, version } => writer.add_check_version(path, version)?,
                Write::Create { path, data } => {
                    let options = self.options(zk::CreateMode::Persistent);
                    writer.add_create(path, data, &options)?;
                }
                Write::Ephemeral {
                    path,
                    data,
                    is_sequential,
                } => {
                    let mode = if is_sequential {
                        zk::CreateMode::EphemeralSequential
                    } else {
                        zk::CreateMode::Ephemeral
                    };
                    writer.add_create(path, data, &self.options(mode))?;
                }
                Write::Set {
                    path,
                    data,
                    version,
                } => writer.add_set_data(path, data, Some(version))?,
                Write::Delete { path, version } => writer.add_delete(path, Some(version))?,
            }
        }
        Ok(writer)
    }

    /// The answer to a request that is too large, or that the crate refused to build: it was not
    /// sent.
    fn refused<'a, T: Send + 'a>(fault: impl Into<Fault>) -> Reply<'a, T> {
        Box::pin(std::future::ready(Err(fault.into())))
    }
}

impl Link for ZooKeeper {
    fn session_id(&self) -> i64 {
        self.client.session_id().0
    }

    fn session_timeout(&self) -> Duration {
        self.client.session_timeout()
    }

    fn servers(&self) -> &str {
        &self.servers
    }

    fn create<'a>(&'a self, path: &'a str, data: &[u8], kind: Create) -> Reply<'a, Created> {
        let mode = match kind {
            Create::Container => zk::CreateMode::Container,
            Create::Persistent => zk::CreateMode::Persistent,
            Create::EphemeralSequential => zk::CreateMode::EphemeralSequential,
        };
        if let Err(too_large) = size::check(self.envelope.create(path, data)) {
            return Self::refused(too_large);
        }
        let sent = self.client.create(path, data, &self.options(mode));
        self.bounded(Right::Create, sent, |answer| {
            let (stat, sequence) = answer?;
            // The server prints a 32-bit number; the crate hands it on as 64 bits.
            let seq = i32::try_from(sequence.into_i64())
                .map_err(|_| zk::Error::UnexpectedError("sequence number out of range".into()))?;
            Ok(Created {
                seq,
                czxid: stat.czxid,
                owner: stat.ephemeral_owner,
            })
        })
    }

    fn delete(&self, path: &str) -> Reply<'_, ()> {
        self.bounded(Right::Delete, self.client.delete(path, None), |answer| {
            answer
        })
    }

    fn watch(&self, path: &str) -> Reply<'_, (Node, Watch)> {
        let sent = self.client.get_and_watch_data(path);
        self.bounded(Right::Read, sent, |answer| {
            let (data, stat, watcher) = answer?;
            let watch = Watch::new(async move { change(&watcher.changed().await) });
            Ok((node(data, &stat), watch))
        })
    }

    fn watch_children(&self, path: &str) -> Reply<'_, (Vec<String>, Watch)> {
        let sent = self.client.list_and_watch_children(path);
        self.bounded(Right::Read, sent, |answer| {
            let (children, watcher) = answer?;
            let watch = Watch::new(async move { change(&watcher.changed().await) });
            Ok((children, watch))
        })
    }

    fn multi_read(&self, reads: &[Read<'_>]) -> Reply<'_, Vec<Found>> {
        if let Err(too_large) = size::check(self.envelope.reads(reads)) {
            return Self::refused(too_large);
        }
        let mut reader = self.client.new_multi_reader();
        for read in reads {
            let added = match *read {
                Read::Data(path) => reader.add_get_data(path),
                Read::Children(path) => reader.add_get_children(path),
            };
            if let Err(error) = added {
                return Self::refused(fault(error, Right::Read));
            }
        }
        let sent = reader.commit();
        let asked = reads.len();
        self.bounded(Right::Read, sent, move |answer| {
            let found: Vec<Found> = answer?.into_iter().map(found).collect();
            if found.len() == asked {
                Ok(found)
            } else {
                Err(zk::Error::UnexpectedError(format!(
                    "{} results for {asked} reads",
                    found.len()
                )))
            }
        })
    }

    fn access_list(&self, path: &str) -> Reply<'_, AccessList> {
        self.bounded(Right::Read, self.client.get_acl(path), |answer| {
            let (list, stat) = answer?;
            Ok(AccessList {
                entries: list.iter().map(entry).collect(),
                czxid: stat.czxid,
                aversion: stat.aversion,
            })
        })
    }

    fn multi(&self, writes: &[Write<'_>]) -> Reply<'_, Vec<String>> {
        match self.writer(writes) {
            Ok(mut writer) => {
                let sent = writer.commit();
                let asked = creates(writes);
                // The crate does not say here which one was refused: the first is as good as any.
                let needs = writes.first().map_or(Right::Write, Write::needs);
                self.bounded(needs, sent, move |answer| created(answer?, asked))
            }
            Err(fault) => Self::refused(fault),
        }
    }

    fn attempt(&self, writes: &[Write<'_>]) -> Reply<'_, Result<Vec<String>, (usize, Code)>> {
        match self.writer(writes) {
            Ok(mut writer) => {
                let sent = writer.commit();
                let asked = creates(writes);
                let needs: Vec<Right> = writes.iter().map(Write::needs).collect();
                self.bounded(Right::Write, sent, move |answer| match answer {
                    Ok(results) => created(results, asked).map(Ok),
                    Err(zk::MultiWriteError::OperationFailed { index, source }) => {
                        let needs = needs.get(index).copied().unwrap_or(Right::Write);
                        refusal(index, source, needs)
                    }
                    Err(zk::MultiWriteError::RequestFailed { source }) => Err(source),
                })
            }
            Err(fault) => Self::refused(fault),
        }
    }

    fn ephemerals(&self, prefix: &str) -> Reply<'_, Vec<String>> {
        self.bounded(Right::Read, self.client.list_ephemerals(prefix), |answer| {
            answer
        })
    }

    fn sync(&self, path: &str) -> Reply<'_, ()> {
        self.bounded(Right::Read, self.client.sync(path), |answer| answer)
    }

    fn states(&self) -> watch::Receiver<SessionState> {
        self.states.clone()
    }

    fn standalone(&self) -> Option<u64> {
        self.standalone.connection()
    }

    fn proofs(&self) -> watch::Receiver<u64> {
        self.standalone.proofs()
    }
}

/// Opens a session, unless every server is tried in vain.
async fn try_all(target: &Target, limit: Duration) -> Result<(zk::Client, Pacer), Fault> {
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
/// silent several times before it meets another. So, with several servers, a try that gets no
/// answer is not waited for: others are begun beside it, and the first session is taken. What is
/// then dropped may leave a session at a server that was slow, which has no node and ends when it
/// times out.
async fn open(target: &Target, pacer: &Pacer, limit: Duration) -> Result<zk::Client, zk::Error> {
    let servers = target.servers.split(',').count();
    let most = if servers == 1 {
        1
    } else {
        MOST_TRIES.min(2 * servers)
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
            return connector
                .with_tls(tls.clone())
                .secure_connect(&list)
                .boxed();
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

/// Follows the crate's states into ours, and paces it. The task ends with the session: the crate
/// always ends in a terminal state, and connects to nobody then.
fn translate_states(
    (mut theirs, broken): (zk::StateWatcher, Arc<Notify>),
    pacer: Pacer,
    session_timeout: Duration,
    target: &Target,
    standalone: Arc<Standalone>,
) -> watch::Receiver<SessionState> {
    let (sender, receiver) = watch::channel(state(theirs.peek_state()));
    let quicken = nodelay::keep(target.servers.clone(), receiver.clone());
    let only = target.only_server().map(str::to_owned);
    let prove = standalone::prove(standalone, only, receiver.clone(), session_timeout);
    let follow = async move {
        // After a terminal state the crate's watcher never answers again.
        while !matches!(*sender.borrow(), SessionState::Over(_)) {
            let now = tokio::select! {
                biased;
                () = broken.notified() => SessionState::Over(BROKEN),
                now = theirs.changed() => state(now),
            };
            sender.send_replace(now);
        }
    };
    let both = async move {
        tokio::select! {
            () = follow => (),
            never = quicken => match never {},
            never = prove => match never {},
            never = pacer.pace(session_timeout) => match never {},
        }
    };
    tokio::spawn(both.instrument(tracing::debug_span!("session_states")));
    receiver
}

fn state(theirs: zk::SessionState) -> SessionState {
    match theirs {
        zk::SessionState::SyncConnected => SessionState::Connected,
        zk::SessionState::Disconnected | zk::SessionState::ConnectedReadOnly => {
            SessionState::Disconnected
        }
        zk::SessionState::Expired => SessionState::Over("it expired"),
        zk::SessionState::AuthFailed => SessionState::Over("authentication failed"),
        zk::SessionState::Closed => SessionState::Over("it was closed"),
    }
}

/// What the crate makes of certificates and keys; it says what is wrong with them, and never shows
/// them.
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

/// In the order of their bits in the protocol.
const RIGHTS: [zk::Permission; 5] = [
    zk::Permission::READ,
    zk::Permission::WRITE,
    zk::Permission::CREATE,
    zk::Permission::DELETE,
    zk::Permission::ADMIN,
];

fn entry(acl: &zk::Acl) -> acl::Entry {
    let granted = RIGHTS.iter().enumerate();
    let granted = granted.filter(|(_, right)| acl.permission().has(**right));
    acl::Entry {
        scheme: acl.scheme().to_owned(),
        id: acl.id().to_owned(),
        rights: granted.fold(0, |all, (bit, _)| all | (1 << bit)),
    }
}

fn acl(entry: &acl::Entry) -> zk::Acl {
    let granted = RIGHTS.into_iter().enumerate();
    let granted = granted.filter(|(bit, _)| entry.rights & (1 << bit) != 0);
    let granted = granted.fold(zk::Permission::NONE, |all, (_, right)| all | right);
    zk::Acl::new(granted, zk::AuthId::new(&entry.scheme, &entry.id))
}

fn change(event: &zk::WatchedEvent) -> Change {
    match event.event_type {
        zk::EventType::NodeDeleted => Change::Deleted,
        zk::EventType::Session => Change::SessionOver,
        // Whatever else it is, the watch is spent and the node, or its children, are looked at
        // again.
        _ => Change::Changed,
    }
}

fn node(data: Vec<u8>, stat: &zk::Stat) -> Node {
    Node {
        data,
        czxid: stat.czxid,
        version: stat.version,
        owner: stat.ephemeral_owner,
        num_children: stat.num_children,
        pzxid: stat.pzxid,
        aversion: stat.aversion,
    }
}

fn found(result: zk::MultiReadResult) -> Found {
    match result {
        zk::MultiReadResult::Data { data, stat } => Found::Node(node(data, &stat)),
        zk::MultiReadResult::Children { children } => Found::Children(children),
        zk::MultiReadResult::Error { err } => Found::Failed(code(&err, Right::Read)),
        other => Found::Failed(Code::Other(format!("{other:?}"))),
    }
}

fn creates(writes: &[Write<'_>]) -> usize {
    let is_create =
        |write: &&Write<'_>| matches!(write, Write::Create { .. } | Write::Ephemeral { .. });
    writes.iter().filter(is_create).count()
}

/// The paths that were created, without the chroot: the crate has taken it off.
fn created(results: Vec<zk::MultiWriteResult>, asked: usize) -> Result<Vec<String>, zk::Error> {
    let paths = results.into_iter().filter_map(|result| match result {
        zk::MultiWriteResult::Create { path, .. } => Some(path),
        _ => None,
    });
    let paths: Vec<String> = paths.collect();
    if paths.len() == asked {
        Ok(paths)
    } else {
        Err(zk::Error::UnexpectedError(format!(
            "{} paths for {asked} creates",
            paths.len()
        )))
    }
}

/// Sorts an error into what the server answered and everything else. Only an error code in a reply
/// is an answer: the transport's errors come in three shapes, and the session's end says nothing
/// about a request that was under way.
fn fault(error: zk::Error, needs: Right) -> Fault {
    match error {
        zk::Error::NoNode
        | zk::Error::NoAuth
        | zk::Error::BadVersion
        | zk::Error::NoChildrenForEphemerals
        | zk::Error::NodeExists
        | zk::Error::NotEmpty
        | zk::Error::InvalidAcl
        | zk::Error::SessionMoved
        | zk::Error::NotReadOnly
        | zk::Error::NoWatcher
        | zk::Error::QuotaExceeded
        | zk::Error::Throttled
        | zk::Error::MarshallingError
        | zk::Error::Unimplemented
        | zk::Error::ReconfigDisabled
        | zk::Error::RuntimeInconsistent
        | zk::Error::UnexpectedErrorCode(_)
        | zk::Error::BadArguments(_) => Fault::Answered(code(&error, needs)),
        other => Fault::Unknown(other.to_string()),
    }
}

/// What a refused write of several says. Servers that are about to end our session, or have moved
/// it, say so in the place of a write's result: that is no answer about a node, and no sign of
/// life.
fn refusal<T>(
    index: usize,
    error: zk::Error,
    needs: Right,
) -> Result<Result<T, (usize, Code)>, zk::Error> {
    match fault(error.clone(), needs) {
        Fault::Answered(Code::NotNow(_)) | Fault::Unknown(_) => Err(error),
        Fault::Answered(code) => Ok(Err((index, code))),
    }
}

fn code(error: &zk::Error, needs: Right) -> Code {
    match error {
        zk::Error::NoNode => Code::NoNode,
        zk::Error::NodeExists => Code::NodeExists,
        zk::Error::NotEmpty => Code::NotEmpty,
        zk::Error::BadVersion => Code::BadVersion,
        zk::Error::NoAuth => Code::NoAuth(needs),
        zk::Error::SessionMoved
        | zk::Error::Throttled
        | zk::Error::UnexpectedErrorCode(SYSTEM_ERROR | OPERATION_TIMEOUT) => {
            Code::NotNow(error.to_string())
        }
        other => Code::Other(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_crate_is_the_one_that_was_looked_through() {
        const TESTED: &str = "0.11.2";
        let lock = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.lock");
        let lock = std::fs::read_to_string(lock).unwrap();

        let (_, rest) = lock.split_once("name = \"zookeeper-client\"\n").unwrap();
        let version = rest.lines().next().unwrap();

        assert_eq!(
            version,
            format!("version = {TESTED:?}"),
            "another version of the client crate: look at how it begins and ends sessions, its timeouts and the order of its tries \
             (`link/pacer.rs`), the bytes of its watches after a reconnect (`WATCHED_LIMIT`), one watch of a kind on a path \
             (`served.rs`), its sockets (`nodelay.rs`) and what it makes of replies (`hostile.rs`); run the suite on an ensemble, \
             and say here what was tested"
        );
    }

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

    #[test]
    fn the_end_of_the_session_is_no_answer_to_a_write() {
        assert_eq!(
            refusal::<()>(3, zk::Error::NoNode, Right::Write).unwrap(),
            Err((3, Code::NoNode))
        );
        for unknown in [zk::Error::SessionExpired, zk::Error::SessionMoved] {
            assert!(
                refusal::<()>(0, unknown.clone(), Right::Write).is_err(),
                "{unknown:?}"
            );
        }
    }

    // docs/failures.md row 53: FIN, RST, silence, garbage and the session's end are all unknown;
    // only codes are answers.
    #[test]
    fn only_a_server_code_is_an_answer() {
        for answered in [
            zk::Error::NoNode,
            zk::Error::NodeExists,
            zk::Error::SessionMoved,
            zk::Error::Throttled,
            zk::Error::UnexpectedErrorCode(-117),
        ] {
            assert!(
                matches!(fault(answered.clone(), Right::Read), Fault::Answered(_)),
                "{answered:?}"
            );
        }
        for unknown in [
            zk::Error::ConnectionLoss,
            zk::Error::Timeout,
            zk::Error::NoHosts,
            zk::Error::SessionExpired,
            zk::Error::ClientClosed,
            zk::Error::AuthFailed,
            zk::Error::UnexpectedError("expect xid".into()),
            zk::Error::UnmarshalError {
                entity: "stat",
                reason: &"short",
            },
        ] {
            assert!(
                matches!(fault(unknown.clone(), Right::Read), Fault::Unknown(_)),
                "{unknown:?}"
            );
        }
    }
}
