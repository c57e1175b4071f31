//! Locks of a connection: their leases, their transactions, and poolers.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use lockkeeper::Error;
use lockkeeper::compat::sql::{ForUpdate, VersionColumn};
use lockkeeper::compat::{Acquired, Attempt, PlainGuard, StoreProblem, connect};
use testbench::daemon::Daemon;
use tokio::time::sleep;

use crate::bed::{Bed, Case, TTL};
use crate::sql::{is_session, url};

pub const CASES: &[&[Case]] = &[
    crate::cases![if is_session; a_silent_client_loses_its_lock],
    crate::cases![if |kind| kind.ends_with("+forupdate");
        data_and_lock_are_committed_together,
        what_was_not_committed_is_undone,
        a_failed_statement_keeps_the_lock,
        a_statement_that_ends_the_transaction_loses_the_lock,
        a_version_that_is_old_is_a_conflict,
    ],
    crate::cases![if |kind| kind == "postgres+forupdate";
        many_statements_are_not_nested,
        a_savepoint_of_the_user_is_kept,
    ],
    crate::cases![if |kind| kind == "mysql+forupdate";
        what_a_guard_has_set_does_not_end_the_next_hold,
    ],
    crate::cases![if |kind| kind.ends_with("+advisory"); a_pooler_is_refused],
    crate::cases![if |kind| kind == "postgres+row" || kind == "postgres+forupdate";
        a_lock_of_a_table_passes_a_pooler,
    ],
];

/// Nothing renews here.
async fn a_silent_client_loses_its_lock(bed: Arc<Bed>, name: String) {
    let keeper = bed.keeper().await;
    let attempt = Attempt {
        name: name.as_str().into(),
        secret: "silent".into(),
        ttl: TTL,
        owner: None,
        seen: Default::default(),
        turn: Default::default(),
    };
    let begun = Instant::now();
    let got = keeper.store().acquire(&attempt).await.unwrap();
    assert_eq!(got, Acquired::Yes { token: None });

    let next = bed.lock(&name).await.lock().await.unwrap();

    assert!(begun.elapsed() >= TTL.mul_f64(0.9), "{:?}", begun.elapsed());
    assert!(begun.elapsed() < TTL * 3, "{:?}", begun.elapsed());
    assert!(!keeper.store().renew(&attempt).await.unwrap());
    next.release().await.unwrap();
}

async fn guard(bed: &Bed, name: &str) -> PlainGuard<ForUpdate> {
    let keeper = ForUpdate::connect(&bed.database().url()).await.unwrap();
    keeper.mutex(name).unwrap().lock().await.unwrap()
}

fn insert(bed: &Bed) -> &'static str {
    match bed.kind.starts_with("postgres") {
        true => "INSERT INTO work (name, count) VALUES ($1, $2)",
        false => "INSERT INTO work (name, count) VALUES (?, ?)",
    }
}

async fn make_work(bed: &Bed) {
    let create = "CREATE TABLE IF NOT EXISTS work (name varchar(99) PRIMARY KEY, count int)";
    bed.database().execute("SELECT 1").await;
    // Two at once may collide in PostgreSQL.
    static ONCE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _once = ONCE.lock().await;
    bed.database().execute(create).await;
}

async fn rows(bed: &Bed, name: &str) -> u64 {
    let select = format!("SELECT 1 FROM work WHERE name = '{name}'");
    bed.database().execute(&select).await
}

async fn data_and_lock_are_committed_together(bed: Arc<Bed>, name: String) {
    make_work(&bed).await;
    let guard = guard(&bed, &name).await;
    let written = guard.execute(insert(&bed), &[&name, "7"]).await.unwrap();
    assert_eq!(written, 1);
    let count = "SELECT count FROM work WHERE count = 7 ORDER BY 1 LIMIT 1";
    let seen = guard.query(count, &[]).await.unwrap();
    assert_eq!(seen, [[Some("7".to_owned())]]);
    assert_eq!(rows(&bed, &name).await, 0, "nobody else sees it yet");
    assert!(bed.lock(&name).await.try_lock().await.unwrap().is_none());

    guard.commit().await.unwrap();

    assert_eq!(rows(&bed, &name).await, 1);
    let next = bed.lock(&name).await.try_lock().await.unwrap();
    next.expect("it is free").release().await.unwrap();
}

async fn what_was_not_committed_is_undone(bed: Arc<Bed>, name: String) {
    make_work(&bed).await;
    let held = guard(&bed, &name).await;
    held.execute(insert(&bed), &[&name, "1"]).await.unwrap();
    drop(held);
    let held = guard(&bed, &name).await;
    held.execute(insert(&bed), &[&name, "2"]).await.unwrap();
    let error = held.release().await.unwrap_err();
    assert!(error.to_string().contains("commit()"), "{error}");

    bed.lock(&name)
        .await
        .lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!(rows(&bed, &name).await, 0);
}

async fn a_failed_statement_keeps_the_lock(bed: Arc<Bed>, name: String) {
    make_work(&bed).await;
    let guard = guard(&bed, &name).await;
    guard.execute(insert(&bed), &[&name, "1"]).await.unwrap();

    // The name is there already.
    guard
        .execute(insert(&bed), &[&name, "1"])
        .await
        .unwrap_err();

    guard.check().await.unwrap();
    assert!(bed.lock(&name).await.try_lock().await.unwrap().is_none());
    guard.commit().await.unwrap();
    assert_eq!(rows(&bed, &name).await, 1);
}

/// Each open transaction in a transaction has a number that is locked, and costs memory there.
async fn many_statements_are_not_nested(bed: Arc<Bed>, name: String) {
    make_work(&bed).await;
    let guard = guard(&bed, &name).await;
    for number in 0..50 {
        let name = format!("{name}/{number}");
        guard.execute(insert(&bed), &[&name, "1"]).await.unwrap();
        let again = guard.execute(insert(&bed), &[&name, "1"]).await;
        again.unwrap_err();
    }
    let open = "SELECT 1 FROM pg_locks WHERE locktype = 'transactionid' AND pid = pg_backend_pid()";
    let open = guard.query(open, &[]).await.unwrap().len();
    assert!(open < 5, "{open} transactions are open");
    guard.commit().await.unwrap();
    assert_eq!(rows(&bed, &format!("{name}/49")).await, 1);
}

async fn a_savepoint_of_the_user_is_kept(bed: Arc<Bed>, name: String) {
    make_work(&bed).await;
    let guard = guard(&bed, &name).await;
    let names = ["1", "2", "3", "4"].map(|number| format!("{name}/{number}"));
    let write = async |name: &str| guard.execute(insert(&bed), &[name, "1"]).await;
    write(&names[0]).await.unwrap();
    guard.execute("SAVEPOINT mine", &[]).await.unwrap();
    write(&names[1]).await.unwrap();
    write(&names[2]).await.unwrap();
    guard
        .execute("rollback to savepoint mine", &[])
        .await
        .unwrap();
    write(&names[2]).await.unwrap();
    guard.execute("RELEASE SAVEPOINT mine", &[]).await.unwrap();
    write(&names[3]).await.unwrap();
    guard.commit().await.unwrap();
    let mut there = Vec::new();
    for name in &names {
        there.push(rows(&bed, name).await);
    }
    assert_eq!(there, [1, 0, 1, 1]);
}

async fn a_statement_that_ends_the_transaction_loses_the_lock(bed: Arc<Bed>, name: String) {
    for end in ["COMMIT", "ROLLBACK"] {
        let guard = guard(&bed, &name).await;
        let error = guard.execute(end, &[]).await.unwrap_err();
        assert!(error.is_lost(), "{error}");
        let error = guard.check().await.unwrap_err();
        assert!(error.is_lost(), "{error}");
        assert!(guard.commit().await.is_err());
    }
    bed.lock(&name)
        .await
        .lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// The next hold is on the same connection, and silent until its first renewal.
async fn what_a_guard_has_set_does_not_end_the_next_hold(bed: Arc<Bed>, name: String) {
    let ttl = TTL * 4;
    let keeper = ForUpdate::connect(&bed.database().url()).await.unwrap();
    let lock = keeper.mutex(&name).unwrap().with_ttl(ttl).unwrap();
    let first = lock.lock().await.unwrap();
    let own = "SET SESSION wait_timeout = 1";
    first.execute(own, &[]).await.unwrap();
    first.commit().await.unwrap();

    let next = lock.lock().await.unwrap();
    sleep(ttl / 4).await;

    assert!(bed.lock(&name).await.try_lock().await.unwrap().is_none());
    next.release().await.unwrap();
}

async fn a_version_that_is_old_is_a_conflict(bed: Arc<Bed>, name: String) {
    let database = bed.database();
    let create = "CREATE TABLE parts (id varchar(99) PRIMARY KEY, version bigint, what text)";
    database.execute(create).await;
    let insert = format!("INSERT INTO parts VALUES ('{name}', 1, 'a')");
    database.execute(&insert).await;
    let url = url(&bed.kind.replace("forupdate", "version"), database.server());
    let parts = VersionColumn::connect(&url, "parts").await.unwrap();
    let read = parts.read(&name, &["what"]).await.unwrap().unwrap();
    assert_eq!(
        (read.version, &read.columns[..]),
        (1, &[Some("a".to_owned())][..])
    );
    assert_eq!(parts.read("nobody", &[]).await.unwrap(), None);

    let first = parts.update_if(&name, 1, &[("what", Some("b"))]).await;
    let second = parts.update_if(&name, 1, &[("what", None)]).await.unwrap();
    let third = parts.update_if("nobody", 1, &[]).await.unwrap();

    assert_eq!(first.unwrap(), Ok(2));
    let conflict = second.unwrap_err();
    assert_eq!((conflict.read, conflict.now), (1, Some(2)));
    assert_eq!(third.unwrap_err().now, None);
    let updated = parts.update_if(&name, 2, &[("what", None)]).await.unwrap();
    assert_eq!(updated, Ok(3));
    let read = parts.read(&name, &["what"]).await.unwrap().unwrap();
    assert_eq!(read.columns, [None]);
    let error = parts.read(&name, &["what, 1"]).await.unwrap_err();
    assert!(error.is_invalid(), "{error}");
    let error = VersionColumn::connect(&url, "nowhere").await.unwrap_err();
    assert!(
        matches!(
            &error,
            Error::Store {
                problem: StoreProblem::Schema(_),
                ..
            }
        ),
        "{error}"
    );
}

/// PgBouncer before the server of a bed.
fn pgbouncer(bed: &Bed, more: &'static str) -> Daemon {
    let server = bed.database().server().address();
    let recipe = move |folder: &std::path::Path, port: u16| {
        let (config, users) = (folder.join("config"), folder.join("users"));
        fs::write(&users, "\"postgres\" \"\"\n").unwrap();
        let text = format!(
            "[databases]\npostgres = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nauth_type = any\nauth_file = {}\nunix_socket_dir =\n\
             auth_type = trust\n{more}\n",
            server.port(),
            users.display()
        );
        fs::write(&config, text).unwrap();
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid",
            "postgres",
            "--regid",
            "postgres",
            "--clear-groups",
            "--",
        ]);
        let own = Command::new("chown")
            .args(["-R", "postgres"])
            .arg(folder)
            .status();
        assert!(own.unwrap().success());
        command.arg("pgbouncer").arg(config);
        Ok(command)
    };
    Daemon::start("pgbouncer", Box::new(recipe)).unwrap()
}

const IGNORED: &str =
    "pool_mode = transaction\nignore_startup_parameters = extra_float_digits,options";

async fn a_pooler_is_refused(bed: Arc<Bed>, _name: String) {
    for more in [
        "pool_mode = transaction",
        IGNORED,
        "pool_mode = session",
        "pool_mode = statement\nignore_startup_parameters = options",
    ] {
        let pooler = pgbouncer(&bed, more);
        let error = connect(&url(bed.kind, &pooler)).await.unwrap_err();
        let is_told = matches!(
            &error,
            Error::Store {
                problem: StoreProblem::Pooler(_),
                ..
            }
        );
        assert!(is_told, "{more}: {error}");
    }
}

async fn a_lock_of_a_table_passes_a_pooler(bed: Arc<Bed>, name: String) {
    for more in ["pool_mode = transaction", IGNORED] {
        let pooler = pgbouncer(&bed, more);
        let lock = connect(&url(bed.kind, &pooler)).await.unwrap();
        let lock = lock.mutex(&name).unwrap().with_ttl(TTL).unwrap();
        let guard = lock.lock().await.unwrap();
        sleep(TTL + TTL / 2).await;
        guard.check().await.unwrap();
        assert!(bed.lock(&name).await.try_lock().await.unwrap().is_none());
        guard.release().await.unwrap();
        bed.lock(&name)
            .await
            .lock()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}
