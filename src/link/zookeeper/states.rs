//! Follows the states of the client crate into the link's, while the session's own tasks run.
//!
//! Invariant: the link's states end with `Over`, because the crate's always end in a terminal
//! state. A state proves nothing.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tracing::Instrument;
use zookeeper_client as zk;

use super::nodelay::set_nodelay;
use super::standalone::{Standalone, prove};
use super::{BROKEN, Target};
use crate::link::SessionState;
use crate::link::pacer::Pacer;

/// Follows the crate's states, and paces its connects. The task ends with the session: in a
/// terminal state the crate connects to no server.
pub(super) fn follow(
    (mut theirs, broken): (zk::StateWatcher, Arc<Notify>),
    pacer: Pacer,
    session_timeout: Duration,
    target: &Target,
    standalone: Arc<Standalone>,
) -> watch::Receiver<SessionState> {
    let (sender, receiver) = watch::channel(state(theirs.peek_state()));
    let (servers, only) = (
        target.servers.clone(),
        target.only_server().map(str::to_owned),
    );
    let states = receiver.clone();
    let quicken = on_connections(states.clone(), async move || set_nodelay(&servers).await);
    let prove = on_connections(states, async move || {
        if let Some(only) = &only {
            prove(&standalone, only, session_timeout).await;
        }
    });
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

/// Does this on each connection of a session, until it is done or the connection is lost.
async fn on_connections(
    mut states: watch::Receiver<SessionState>,
    act: impl AsyncFn(),
) -> Infallible {
    let is_connected = |state: &SessionState| *state == SessionState::Connected;
    while states.wait_for(is_connected).await.is_ok() {
        let act_and_stay = async {
            act().await;
            std::future::pending().await
        };
        tokio::select! {
            () = act_and_stay => {}
            changed = states.changed() => if changed.is_err() {
                break;
            },
        }
    }
    // The session is over.
    std::future::pending().await
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
