//! What is refused, and how that is told.

use super::*;

#[test]
fn a_wrong_password_and_a_missing_right_are_told_without_secrets() {
    on_postgres(async |server| {
        run(
            &server,
            "CREATE USER weak PASSWORD 'right'; REVOKE CREATE ON DATABASE postgres FROM PUBLIC",
        )
        .await;
        let at = server.address();
        let refused = refusal(&format!("postgres://weak:secret@{at}/postgres")).await;
        let text = format!("{refused} {refused:?}");
        assert!(
            text.contains("CREATE on the database") && !text.contains("secret"),
            "{text}"
        );

        let hba = server.folder().join("data/pg_hba.conf");
        std::fs::write(
            hba,
            "host all postgres all trust\nhost all all all scram-sha-256\n",
        )
        .unwrap();
        run(&server, "SELECT pg_reload_conf()").await;
        let refused = timeout(SOON, async {
            loop {
                // Until the server has read its file again.
                let refused = refusal(&format!("postgres://weak:secret@{at}/postgres")).await;
                if matches!(refused, Error::Unauthenticated { .. }) {
                    break refused;
                }
            }
        });
        let refused = refused.await.expect("it is refused");
        let text = format!("{refused} {refused:?}");
        assert!(
            text.contains(&at.to_string()) && !text.contains("secret"),
            "{text}"
        );
    });
}

#[test]
fn a_schema_of_another_version_is_told() {
    on_postgres(async |server| {
        drop(open(&server).await);
        for version in [6, 8] {
            run(
                &server,
                &format!("UPDATE lockkeeper.schema_version SET version = {version}"),
            )
            .await;
            let refused = refusal(&url(&server)).await.to_string();
            assert!(
                refused.contains(&format!("is of version {version}")),
                "{refused}"
            );
        }
        // Another schema is another store.
        let other = format!("{}?schema=other", url(&server));
        open_at(&other, true).await.unwrap();
    });
}

#[test]
fn a_table_that_was_dropped_is_told() {
    on_postgres(async |server| {
        let link = open(&server).await;
        run(&server, "DROP TABLE lockkeeper.nodes").await;

        let refused = link
            .create("/a", b"", Create::Persistent)
            .await
            .unwrap_err();

        let Fault::Answered(Code::Other(why)) = &refused else {
            panic!("{refused:?}");
        };
        assert!(
            why.contains("nodes") && why.contains("drop the schema"),
            "{why}"
        );
        let refused = refusal(&url(&server)).await.to_string();
        assert!(
            refused.contains("a table of the schema lockkeeper is not there"),
            "{refused}"
        );
    });
}

/// Its session expires meanwhile, as the server moves no deadline.
#[test]
fn a_heartbeat_that_the_server_refuses_extends_no_lease() {
    on_postgres(async |server| {
        let keeper = keeper(&server).await;
        let lock = keeper.mutex("orders/42").unwrap();
        let guard = lock.lock().await.unwrap();

        run(&server, "ALTER FUNCTION lockkeeper.beat RENAME TO beaten").await;

        let lost = timeout(SESSION_TIMEOUT, guard.lost()).await;
        assert!(lost.expect("its lease ends").is_lost());
        run(&server, "ALTER FUNCTION lockkeeper.beaten RENAME TO beat").await;
        drop(guard);
        let next = timeout(SOON, lock.lock()).await.unwrap().unwrap();
        next.release().await.unwrap();
        keeper.close().await;
    });
}

#[test]
fn a_pooler_is_refused_unless_the_url_says_to_poll() {
    on_postgres(async |server| {
        let address = server.address();
        let pooler = tokio::task::spawn_blocking(move || pgbouncer(address, "").unwrap());
        let pooler = pooler.await.unwrap();

        let refused = refusal(&url(&pooler)).await.to_string();

        assert!(refused.contains("add ?wake=poll"), "{refused}");
        let link = open_at(&format!("{}?wake=poll", url(&pooler)), true).await;
        let (ours, theirs) = (link.unwrap(), open(&server).await);
        let mine = ticket(&*theirs, "/t-").await;
        let (_, mut watch) = ours.watch(&mine).await.unwrap();
        assert!(is_quiet(&mut watch).await);
        theirs.delete(&mine).await.unwrap();
        assert_eq!(told(&mut watch).await, Change::Deleted);
    });
}

#[test]
fn what_is_of_zookeeper_or_asks_for_tls_is_refused_by_name_before_any_io() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let there = "postgres://me:secret@nowhere.invalid/db";
        let with = |query: &str| Keeper::builder(format!("{there}?{query}"));
        for (builder, option) in [
            (
                Keeper::builder(there).credential("digest", "a:b"),
                "credential",
            ),
            (
                Keeper::builder(there).acl(crate::Acl::open()),
                "access list",
            ),
            (Keeper::builder(there).require_tls(true), "TLS is required"),
            (Keeper::builder(there).strict_clock(true), "strict clock"),
            (with("sslmode=require"), "asks for TLS"),
            (with("wake=never"), "`wake` is"),
            (with("schema=a-b"), "`schema` has"),
            (with("password=secret&nonsense=1"), "connect string"),
        ] {
            let error = builder.connect().await.unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(error.is_invalid() && text.contains(option), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
    });
}
