//! How public types show themselves with `{:?}`: briefly, as stable as possible from version to
//! version, and without secrets. (pure)
//!
//! Invariants: texts of other clients are cut. Credentials, keys, data and names of owners are not
//! shown. Errors say all else that they know. Values are taken out before they are shown: nothing
//! of ours is locked while a formatter, which is not ours, runs.

use std::fmt;

/// So many characters of the beginning and of the end are shown.
const ENDS: (usize, usize) = (48, 16);

/// A text that is cut in the middle if it is long.
pub(crate) struct Brief<T>(pub(crate) T);

impl<T: AsRef<str>> fmt::Debug for Brief<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.as_ref();
        let (first, last) = ENDS;
        if text.chars().nth(first + last).is_none() {
            return write!(f, "{text:?}");
        }
        let start: String = text.chars().take(first).collect();
        let end = text.char_indices().rev().nth(last - 1);
        let end = end.map_or("", |(at, _)| &text[at..]);
        write!(f, "\"{}...{}\"", start.escape_debug(), end.escape_debug())
    }
}

/// How a type shows itself: with its name and these facts, which are taken out first.
macro_rules! shows {
    (|$it:ident| $shown:ident $(<$life:lifetime>)? { $($fact:ident: $value:expr),* $(,)? }) => {
        impl std::fmt::Debug for $shown$(<$life>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $it = self;
                $(let $fact = &$value;)*
                let mut shown = f.debug_struct(stringify!($shown));
                $(shown.field(stringify!($fact), $fact);)*
                shown.finish_non_exhaustive()
            }
        }
    };
}

pub(crate) use shows;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_and_a_short_one_is_not() {
        let show = |text: &str| format!("{:?}", Brief(text));
        let fits = "\u{e9}".repeat(64);
        assert_eq!(show(&fits), format!("{fits:?}"));
        let long = format!("{}{}{}", "a".repeat(48), "b".repeat(1000), "\n".repeat(16));
        let cut = format!("\"{}...{}\"", "a".repeat(48), "\\n".repeat(16));
        assert_eq!(show(&long), cut);
    }
}

/// All public types, as they are shown.
#[cfg(all(test, feature = "tls"))]
mod table {
    use std::time::Duration;

    use testbench::shown::Table;
    use zookeeper_embedded::EmbeddedServer;

    use crate::*;

    /// Is in all that must not be shown.
    const SECRET: &str = "hunter2";
    /// Names that stand for other types.
    const ALIASES: [&str; 1] = ["Result"];

    #[tokio::test]
    async fn every_public_type_shows_itself_briefly_and_without_secrets() {
        let mut table = Table::default();
        let long = |what: &str| format!("{what}/{}", ["segment"; 200].join("/"));
        let server = EmbeddedServer::start().await.unwrap();
        let tls = Tls::with_ca("authority").identity("certificate", SECRET);
        let acl = Acl::creator().allow("digest", format!("user:{SECRET}"), "cdrwa");
        let acl = acl.unwrap();
        let builder = Keeper::builder(server.connect_string())
            .credential("digest", format!("user:{SECRET}"))
            .acl(Acl::open())
            .journal(10);
        table.show(&builder.clone().acl(acl.clone()).tls(tls.clone()));
        table.show(&tls);
        table.show(&acl);
        let keeper = builder.connect().await.unwrap();
        table.show(&keeper);
        table.show(&keeper.session_events());
        table.show(&keeper.session_events().borrow());
        let owner = Owner::named(SECRET);
        table.show(&owner);

        let name = LockName::new(long("mutex")).unwrap();
        table.show(&name);
        let text = "x".repeat(1000);
        let mutex = keeper.mutex(name.clone()).unwrap().with_label(&text);
        let mutex = mutex.with_trace_id(&text).with_owner(&owner);
        table.show(&mutex);
        table.show(&mutex.clone().with_linger(Duration::from_secs(1)));
        let mut place = mutex.enqueue().await.unwrap();
        table.show(&place);
        let guard = place.granted().await.unwrap();
        table.show(&place);
        table.show(&guard);
        table.show(&guard.token());
        table.show(&guard.state());
        table.show(&guard.lost());
        table.show(&guard.fenced().create(format!("/{}", long("x")), SECRET));
        for entry in keeper.queue(name.clone()).await.unwrap() {
            table.show(&entry.kind);
            table.show(&entry);
        }
        guard.release().await.unwrap();
        // It is written in the background.
        let journal = loop {
            let journal = keeper.journal(name.clone()).await.unwrap();
            if journal.iter().any(|hold| hold.outcome.is_some()) {
                break journal;
            }
        };
        for hold in &journal {
            table.show(hold);
            table.show(hold.outcome.as_ref().unwrap());
        }
        table.show(&HoldOutcome::Lost(text.clone()));

        let lock = keeper.rw_lock(long("rw")).unwrap().with_owner(&owner);
        table.show(&lock);
        let read = lock.read().await.unwrap();
        table.show(&read);
        let beside = keeper.rw_lock(long("rw")).unwrap().read().await.unwrap();
        let refused = read.try_upgrade().await.unwrap_err();
        table.show(&refused);
        drop((refused, beside));
        // An error says all that it knows, but no name of an owner.
        let held = keeper.rw_lock("held").unwrap().with_owner(&owner);
        let _read = held.read().await.unwrap();
        table.show(&held.write().await.unwrap_err());
        let write = keeper.rw_lock("written").unwrap().write().await.unwrap();
        table.show(&write);
        let semaphore = keeper.semaphore(long("semaphore"), 7).unwrap();
        table.show(&semaphore);
        table.show(&semaphore.acquire().await.unwrap());
        let election = keeper.election(long("election")).unwrap();
        table.show(&election);
        let led = election.campaign("x".repeat(60_000)).await.unwrap();
        table.show(&led);
        table.show(&election.leader().await.unwrap().unwrap());
        let mut observer = election.observe();
        table.show(&observer);
        observer.changed().await.unwrap();
        table.show(&observer);
        let names = (0..100).map(|number| format!("set/of/many/locks/{number}"));
        let set = keeper.multi_lock(names).unwrap();
        table.show(&set);
        table.show(&set.lock().await.unwrap());

        table.show(&WiderAcl {
            path: long("/locks"),
            allows: "ip:192.0.2.1:cdrwa,".repeat(100),
        });
        table.show(&Weakness {
            setting: long("setting"),
            why: long("why"),
        });
        table.show(&LockSummary {
            name: long("locks"),
            tickets: 7,
            is_denied: false,
        });
        let unreachable = Keeper::builder("127.0.0.1:1")
            .connect_timeout(Duration::ZERO)
            .connect()
            .await
            .unwrap_err();
        table.show(&unreachable);
        let Error::Unreachable { addresses, .. } = &unreachable else {
            panic!("{unreachable}");
        };
        table.show(&addresses[0]);
        table.show(&addresses[0].reason);
        let too_long = Owner::named(SECRET.repeat(1000));
        let too_long = keeper.mutex("owned").unwrap().with_owner(&too_long);
        table.show(&too_long.lock().await.unwrap_err());
        table.show(&SessionId::from(7));
        table.show(&Right::Create);
        table.show(&LockKind::Other(text.clone()));
        table.show(&Dialect::Curator);
        table.show(&Engine::Redis);
        table.show(&LeaseStrength::Quorum);

        table.check(SECRET, include_str!("lib.rs"), &ALIASES);
    }
}
