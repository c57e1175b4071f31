//! What is wrong with a database, each with an error of its own.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::Error;
use lockkeeper::compat::{StoreProblem, connect};
use testbench::daemon;
use tokio::time::sleep;

use crate::bed::{Bed, Case};
use crate::sql::{is_sql, url};

pub const CASES: &[&[Case]] = &[
    crate::cases![if has_table;
        a_missing_table_is_told_with_its_statement,
        a_table_without_a_key_is_refused,
        a_missing_column_is_named,
        a_server_that_only_reads_is_refused,
    ],
    crate::cases![if |kind| kind.ends_with("+forupdate");
        a_name_that_the_column_cannot_hold_is_refused,
    ],
    crate::cases![if |kind| kind.ends_with("+row");
        a_column_of_another_shape_is_named,
        a_table_that_is_changed_meanwhile_still_holds_locks,
        another_server_behind_the_port_is_told,
        what_is_wrong_with_a_url_is_told_without_its_password,
    ],
    crate::cases![if |kind| kind == "mysql+row";
        a_server_that_starts_removes_no_file_of_another,
    ],
    crate::cases![if is_sql; a_name_that_is_too_long_is_refused],
];

pub fn has_table(kind: &str) -> bool {
    ["+row", "+shedlock", "+spring", "+forupdate"]
        .iter()
        .any(|end| kind.ends_with(end))
}

pub async fn problem(url: &str) -> StoreProblem {
    match connect(url).await.unwrap_err() {
        Error::Store { problem, .. } => problem,
        other => panic!("{other}"),
    }
}

fn with_table(bed: &Bed, table: &str) -> String {
    match bed.kind.ends_with("+spring") {
        true => format!("{}?prefix={table}_", bed.database().url()),
        false => format!("{}?table={table}", bed.database().url()),
    }
}

pub fn is_postgres(bed: &Bed) -> bool {
    bed.kind.starts_with("postgres")
}

async fn a_missing_table_is_told_with_its_statement(bed: Arc<Bed>, _name: String) {
    let problem = problem(&with_table(&bed, "nowhere")).await;
    let StoreProblem::Schema(why) = problem else {
        panic!("{problem}");
    };
    let (_, statement) = why.split_once("It is made by: ").expect(&why);
    assert!(statement.starts_with("CREATE TABLE nowhere"), "{why}");
}

async fn a_missing_column_is_named(bed: Arc<Bed>, _name: String) {
    let kind = bed.kind.split_once('+').unwrap().1;
    let (columns, missing) = match kind {
        "row" => ("name varchar(9) PRIMARY KEY, holder varchar(9)", "host"),
        "shedlock" => (
            "name varchar(64) PRIMARY KEY, locked_by varchar(9)",
            "lock_until",
        ),
        "spring" => (
            "LOCK_KEY char(36), REGION varchar(9), CLIENT_ID char(36), \
             PRIMARY KEY (LOCK_KEY, REGION)",
            "created_date",
        ),
        _ => ("title varchar(64) PRIMARY KEY", "name"),
    };
    let table = format!("partial_{kind}");
    let suffix = if kind == "spring" { "_LOCK" } else { "" };
    let create = format!("CREATE TABLE {table}{suffix} ({columns})");
    bed.database().execute(&create).await;

    let error = connect(&with_table(&bed, &table)).await.unwrap_err();

    let Error::Store { problem, .. } = &error else {
        panic!("{error}");
    };
    let StoreProblem::Schema(why) = problem else {
        panic!("{error:?}");
    };
    assert!(why.to_lowercase().contains(missing), "{why}");
    assert!(why.contains("It is made by: CREATE TABLE"), "{why}");
    assert!(error.to_string().contains("127.0.0.1:"), "{error}");
}

async fn a_table_without_a_key_is_refused(bed: Arc<Bed>, _name: String) {
    let kind = bed.kind.split_once('+').unwrap().1;
    let columns = match (kind, is_postgres(&bed)) {
        ("row", true) => "name text, holder text, host text, token bigint, expires timestamptz",
        ("row", false) => {
            "name varchar(9), holder varchar(9), host varchar(9), token bigint, expires datetime(6)"
        }
        ("shedlock", _) => {
            "name varchar(64), lock_until timestamp(3) NOT NULL, \
             locked_at timestamp(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by varchar(9)"
        }
        ("spring", true) => {
            "LOCK_KEY char(36), REGION varchar(9), CLIENT_ID char(36), CREATED_DATE timestamp"
        }
        ("spring", false) => {
            "LOCK_KEY char(36), REGION varchar(9), CLIENT_ID char(36), CREATED_DATE datetime(6)"
        }
        _ => "name varchar(64)",
    };
    let table = format!("keyless_{kind}");
    let suffix = if kind == "spring" { "_LOCK" } else { "" };
    let create = format!("CREATE TABLE {table}{suffix} ({columns})");
    bed.database().execute(&create).await;

    let problem = problem(&with_table(&bed, &table)).await;

    let StoreProblem::Schema(why) = &problem else {
        panic!("{problem}");
    };
    assert!(why.contains("two clients could hold"), "{why}");
}

async fn a_column_of_another_shape_is_named(bed: Arc<Bed>, _name: String) {
    let database = bed.database();
    let (text, time) = match is_postgres(&bed) {
        true => ("text", "timestamptz"),
        false => ("varchar(9)", "datetime(6)"),
    };
    let columns = format!("name {text} PRIMARY KEY, holder {text}, host {text}");
    let create = format!("CREATE TABLE odd ({columns}, token {text}, expires {time})");
    database.execute(&create).await;
    let create = format!("CREATE TABLE short ({columns}, expires {time})");
    database.execute(&create).await;
    let shed = bed.kind.replace("+row", "+shedlock");
    let shed_url = format!("{}?table=zoned", url(&shed, database.server()));
    let create = "CREATE TABLE zoned (name varchar(64) PRIMARY KEY, lock_until timestamp(0) NOT \
                  NULL, locked_at timestamp(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), \
                  locked_by varchar(9))";
    database.execute(create).await;

    for (url, column) in [
        (with_table(&bed, "odd"), "token"),
        (with_table(&bed, "short"), "token"),
        (shed_url, "lock_until"),
    ] {
        let problem = problem(&url).await;
        let StoreProblem::Schema(why) = &problem else {
            panic!("{problem}");
        };
        assert!(why.contains(column), "{why}");
    }
}

/// PostgreSQL refuses a prepared statement whose columns were given other types.
async fn a_table_that_is_changed_meanwhile_still_holds_locks(bed: Arc<Bed>, name: String) {
    let table = with_table(&bed, "changing");
    crate::sql::create(bed.kind, &table).await.unwrap();
    let lock = connect(&table).await.unwrap().mutex(&name).unwrap();
    for _ in 0..3 {
        lock.lock().await.unwrap().release().await.unwrap();
    }
    let guard = lock.lock().await.unwrap();
    let change = match is_postgres(&bed) {
        true => "ALTER TABLE changing ALTER COLUMN token TYPE integer",
        false => "ALTER TABLE changing MODIFY COLUMN token integer NOT NULL",
    };
    bed.database().execute(change).await;

    guard.check().await.unwrap();
    guard.release().await.unwrap();
    for _ in 0..3 {
        lock.lock().await.unwrap().release().await.unwrap();
    }
}

async fn a_server_that_only_reads_is_refused(bed: Arc<Bed>, _name: String) {
    let (url, _server) = if is_postgres(&bed) {
        let database = bed.database();
        let reader = format!("reader_{}", bed.kind.split_once('+').unwrap().1);
        database
            .execute(&format!("CREATE ROLE {reader} LOGIN"))
            .await;
        let set = format!("ALTER ROLE {reader} SET default_transaction_read_only = on");
        database.execute(&set).await;
        let url = database.url().replace("postgres@", &format!("{reader}@"));
        (url, None)
    } else {
        let server = daemon::mariadb(&["--read-only"]).unwrap();
        let url = url(bed.kind, &server);
        wait_for(&url).await;
        (url, Some(server))
    };
    assert_eq!(problem(&url).await, StoreProblem::Replica);
    let text = connect(&url).await.unwrap_err().to_string();
    assert!(
        text.contains("127.0.0.1:") && text.contains("name the primary"),
        "{text}"
    );
}

/// Until it says anything else than that it cannot be reached yet.
async fn wait_for(url: &str) {
    for _ in 0..100 {
        match connect(url).await {
            Err(Error::Store {
                problem: StoreProblem::Unreachable(_),
                ..
            }) => sleep(Duration::from_millis(100)).await,
            _ => return,
        }
    }
    panic!("{url} does not start");
}

async fn another_server_behind_the_port_is_told(bed: Arc<Bed>, _name: String) {
    let redis = daemon::redis(&[]).unwrap();
    let other = match is_postgres(&bed) {
        true => daemon::mariadb(&[]).unwrap(),
        false => daemon::postgres(&[]).unwrap(),
    };
    for server in [&redis, &other] {
        let problem = problem(&url(bed.kind, server)).await;
        let is_told = matches!(
            problem,
            StoreProblem::WrongServer(_) | StoreProblem::Unreachable(_)
        );
        assert!(is_told, "{problem}");
    }
}

async fn what_is_wrong_with_a_url_is_told_without_its_password(bed: Arc<Bed>, _name: String) {
    let (kind, server) = (bed.kind, bed.database().server().address());
    let family = kind.split_once('+').unwrap().0;
    for url in [
        format!("{kind}://u:geheim@{server}/x?sslmode=require"),
        format!("{kind}://u:geheim@{server}/x?require_ssl=true"),
        format!("{kind}://u:geheim@{server}/x?table=a%20b"),
        format!("{kind}://u:geheim@{server}/x?password=geheim&what=1"),
        format!("{kind}://u:geheim@:0:0/x"),
        format!("{family}+nothing://u:geheim@{server}/x"),
    ] {
        let error = connect(&url).await.unwrap_err();
        assert!(error.is_invalid(), "{error}");
        assert!(!format!("{error} {error:?}").contains("geheim"), "{error}");
    }
    let error = connect(&format!("{kind}://u:geheim@{server}/x"))
        .await
        .unwrap_err();
    assert!(!format!("{error} {error:?}").contains("geheim"), "{error}");
}

async fn a_name_that_is_too_long_is_refused(bed: Arc<Bed>, _name: String) {
    let keeper = bed.keeper().await;
    let (longest, rule) = match bed.kind.split_once('+').unwrap().1 {
        "shedlock" | "getlock" => (64, "64 bytes"),
        "row" | "forupdate" => (255, "255 bytes"),
        _ => (64 * 1024, "64 KiB"),
    };
    let lock = keeper.mutex("n".repeat(longest)).unwrap();
    lock.try_lock()
        .await
        .unwrap()
        .expect("it is free")
        .release()
        .await
        .unwrap();
    for (bad, rule) in [("n".repeat(longest + 1), rule), ("a\0b".to_owned(), "NUL")] {
        let error = keeper.mutex(bad).unwrap_err();
        assert!(matches!(error, Error::InvalidName { .. }), "{error}");
        assert!(error.to_string().contains(rule), "{error}");
    }
}

/// The column is a user's own, and shorter than it could be.
async fn a_name_that_the_column_cannot_hold_is_refused(bed: Arc<Bed>, _name: String) {
    let database = bed.database();
    database
        .execute("CREATE TABLE narrow (name varchar(8) PRIMARY KEY)")
        .await;
    let keeper = connect(&with_table(&bed, "narrow")).await.unwrap();
    let error = keeper
        .mutex("n".repeat(9))
        .unwrap()
        .try_lock()
        .await
        .unwrap_err();
    let Error::Store { problem, .. } = &error else {
        panic!("{error}");
    };
    assert!(matches!(problem, StoreProblem::Schema(_)), "{error}");
    let text = error.to_string();
    for part in ["nnnnnnnnn", "127.0.0.1:", "narrow", "CREATE TABLE"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(
        database.execute("SELECT 1 FROM narrow").await,
        0,
        "nothing is left"
    );
    let fits = keeper.mutex("n".repeat(8)).unwrap().lock().await.unwrap();
    fits.release().await.unwrap();
}

/// It removes all temporary tables that it finds. Those of a server that is being installed hold
/// its users: then nobody may enter there.
async fn a_server_that_starts_removes_no_file_of_another(_bed: Arc<Bed>, name: String) {
    let mark = name.rsplit('/').next().unwrap();
    let file = std::env::temp_dir().join(format!("#sql-temptable-{mark}.MAI"));
    std::fs::write(&file, "").unwrap();
    if rustix::process::geteuid().is_root() {
        // Servers run as a user that removes its own files only.
        let mut own = std::process::Command::new("chown");
        assert!(own.arg("mysql").arg(&file).status().unwrap().success());
    }

    let server = daemon::mariadb(&[]).unwrap();
    wait_for(&url("mysql+getlock", &server)).await;

    let is_there = file.exists();
    std::fs::remove_file(&file).unwrap_or_default();
    assert!(is_there, "{} is gone", file.display());
}
