//! Users of a database who may not do what a lock needs.

use std::sync::Arc;

use lockkeeper::Error;
use lockkeeper::compat::{StoreProblem, connect};

use crate::bed::{Bed, Case};
use crate::sql::is_sql;
use crate::sql_errors::{has_table, is_postgres, problem};

pub const CASES: &[&[Case]] = &[
    crate::cases![if has_table;
        rights_that_are_missing_are_named,
        a_user_who_may_only_read_is_denied,
    ],
    crate::cases![if is_sql; a_user_who_may_not_enter_is_denied],
];

async fn rights_that_are_missing_are_named(bed: Arc<Bed>, _name: String) {
    let database = bed.database();
    let user = format!("poor_{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let made = match is_postgres(&bed) {
        true => format!("CREATE ROLE {user} LOGIN"),
        false => format!("CREATE USER {user}@'%' IDENTIFIED BY ''"),
    };
    database.execute(&made).await;
    if !is_postgres(&bed) {
        // Of the database, but not of the table.
        let grant = format!("GRANT CREATE ON test.* TO {user}@'%'");
        database.execute(&grant).await;
    }
    let url = database.url().replace("postgres@", &format!("{user}@"));
    let url = url.replace("root@", &format!("{user}@"));

    let problem = problem(&url).await;

    assert!(matches!(problem, StoreProblem::Denied(_)), "{problem}");
}

/// It reads the table, and is told when it would write.
async fn a_user_who_may_only_read_is_denied(bed: Arc<Bed>, name: String) {
    let database = bed.database();
    let user = format!("looks_{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let table = match bed.kind.split_once('+').unwrap().1 {
        "row" => "lockkeeper_locks",
        "forupdate" => "lockkeeper_rows",
        "spring" => "INT_LOCK",
        _ => "shedlock",
    };
    let made = match is_postgres(&bed) {
        true => [
            format!("CREATE ROLE {user} LOGIN"),
            format!("GRANT SELECT ON {table} TO {user}"),
        ],
        false => [
            format!("CREATE USER {user}@'%' IDENTIFIED BY ''"),
            format!("GRANT SELECT ON test.{table} TO {user}@'%'"),
        ],
    };
    for statement in made {
        database.execute(&statement).await;
    }
    let url = database.url().replace("postgres@", &format!("{user}@"));
    let url = url.replace("root@", &format!("{user}@"));
    let lock = connect(&url).await.unwrap().mutex(&name).unwrap();

    let error = lock.try_lock().await.unwrap_err();

    let Error::Store { problem, .. } = &error else {
        panic!("{error}");
    };
    assert!(matches!(problem, StoreProblem::Denied(_)), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains(&name) && text.contains("127.0.0.1:"),
        "{text}"
    );
    let next = bed.lock(&name).await.try_lock().await.unwrap();
    next.expect("nothing is left").release().await.unwrap();
}

async fn a_user_who_may_not_enter_is_denied(bed: Arc<Bed>, _name: String) {
    let database = bed.database();
    let user = format!("shut_{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let made = match is_postgres(&bed) {
        true => format!("CREATE ROLE {user} NOLOGIN"),
        false => format!("CREATE USER {user}@'%' IDENTIFIED BY 'other'"),
    };
    database.execute(&made).await;
    let url = database
        .url()
        .replace("postgres@", &format!("{user}:geheim@"));
    let url = url.replace("root@", &format!("{user}:geheim@"));
    let error = connect(&url).await.unwrap_err();
    let Error::Store { problem, .. } = &error else {
        panic!("{error}");
    };
    assert!(matches!(problem, StoreProblem::Denied(_)), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("127.0.0.1:") && text.contains(&user),
        "{text}"
    );
    assert!(
        !format!("{error} {error:?}").contains("geheim"),
        "{error:?}"
    );
}
