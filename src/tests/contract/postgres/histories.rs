//! What a restart, a crash, a promotion and a loss cost.

use super::*;

#[test]
fn a_restart_ends_sessions_and_grants_nothing_for_a_while() {
    on_postgres(async |mut server| {
        let link = open(&server).await;
        link.create("/a", b"", Create::Persistent).await.unwrap();
        let (_, mut watch) = link.watch("/a").await.unwrap();

        let since = Instant::now();
        // As `pg_ctl stop -m immediate`: it writes nothing that is not written yet.
        server.signal(daemon::Signal::QUIT);
        server.kill();
        server.launch().unwrap();
        ready(server.address()).await;

        is_over(&*link).await;
        assert_eq!(told(&mut watch).await, Change::SessionOver);
        for _ in 0..2 {
            let refused = open_at(&url(&server), true).await.unwrap_err();
            assert!(is_recovering(&refused, since), "{refused:?}");
        }
    });
}

/// The server starts its other processes again, and its identity stays the same.
#[test]
fn a_crash_of_one_process_ends_sessions_and_grants_nothing_for_a_while() {
    on_postgres(async |server| {
        let link = open(&server).await;
        ticket(&*link, "/t-").await;
        let victim = client(&server).await;
        let row = victim.query_one("SELECT pg_backend_pid()", &[]).await;
        let pid = row.unwrap().get::<_, i32>(0).to_string();

        let since = Instant::now();
        let kill = std::process::Command::new("kill")
            .args(["-KILL", &pid])
            .status();
        assert!(kill.unwrap().success());

        is_over(&*link).await;
        let refused = timeout(SOON, async {
            loop {
                match open_at(&url(&server), false).await {
                    Err(Fault::Unknown(_)) => sleep(Duration::from_millis(20)).await,
                    other => break other.unwrap_err(),
                }
            }
        });
        let refused = refused.await.expect("it answers again");
        assert!(is_recovering(&refused, since), "{refused:?}");
    });
}

#[test]
fn a_request_that_comes_to_another_history_changes_nothing() {
    on_postgres(async |server| {
        let link = open(&server).await;
        // What a promotion does to the answer of the function, without a second server.
        run(&server, "UPDATE lockkeeper.alive SET mark = 'another'").await;

        let kind = Create::Persistent;
        let late = link.create("/late", b"", kind).await;

        assert!(matches!(late, Err(Fault::Unknown(_))), "{late:?}");
        is_over(&*link).await;
        let rows = client(&server).await;
        let rows = rows.query("SELECT FROM lockkeeper.nodes WHERE name = 'late'", &[]);
        assert!(rows.await.unwrap().is_empty());
    });
}

#[test]
fn a_standby_is_refused() {
    on_postgres(async |primary| {
        let link = open(&primary).await;
        link.create("/a", b"", Create::Persistent).await.unwrap();
        let address = primary.address();
        let standby =
            tokio::task::spawn_blocking(move || daemon::postgres_standby(address).unwrap());
        let standby = standby.await.unwrap();
        ready(standby.address()).await;

        let refused = refusal(&url(&standby)).await;

        assert!(refused.to_string().contains("it is a standby"), "{refused}");
    });
}

#[test]
fn a_store_that_was_emptied_ends_sessions_and_grants_nothing_for_a_while() {
    on_postgres(async |server| {
        let link = open(&server).await;
        let since = Instant::now();
        run(&server, "DROP SCHEMA lockkeeper CASCADE").await;

        let refused = open_at(&url(&server), false).await.unwrap_err();

        assert!(is_recovering(&refused, since), "{refused:?}");
        is_over(&*link).await;
    });
}

/// Commits wait for ever then, as on a primary that is cut off from its standby. Another one may
/// have taken over.
#[test]
fn a_primary_without_the_standby_that_its_commits_wait_for_keeps_no_session() {
    on_postgres(async |server| {
        let link = open(&server).await;
        ticket(&*link, "/t-").await;

        run(
            &server,
            "ALTER SYSTEM SET synchronous_standby_names = 'gone'",
        )
        .await;
        run(&server, "SELECT pg_reload_conf()").await;

        is_over(&*link).await;
    });
}
