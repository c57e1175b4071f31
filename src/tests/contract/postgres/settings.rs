//! What others have set at the server, and what they have made there.

use super::connections::settings_seen;
use super::*;

/// A name without its schema means what is found first.
#[test]
fn what_others_have_made_in_public_is_not_called() {
    on_postgres(async |server| {
        let (ours, theirs) = (open(&server).await, open(&server).await);
        let makes = "CREATE USER weak; GRANT CREATE, USAGE ON SCHEMA public TO weak; SET ROLE weak; \
             CREATE TABLE public.calls (by text); GRANT ALL ON public.calls TO public; \
             CREATE FUNCTION public.calls(text, bigint) RETURNS text LANGUAGE plpgsql AS $$ BEGIN \
             INSERT INTO public.calls VALUES (current_user); RETURN $1 OPERATOR(pg_catalog.||) $2; END $$; \
             CREATE OPERATOR public.|| (LEFTARG = text, RIGHTARG = bigint, FUNCTION = public.calls)";
        run(&server, makes).await;
        let address = server.address();
        let pooler = tokio::task::spawn_blocking(move || pgbouncer(address, "").unwrap());
        let pooler = pooler.await.unwrap();
        let pooled = format!("{}?wake=poll", url(&pooler));
        let pooled = open_at(&pooled, false).await.unwrap();

        ours.create("/a", b"", Create::Persistent).await.unwrap();
        for other in [&theirs, &pooled] {
            let mine = ticket(&*ours, "/a/t-").await;
            let (_, mut watch) = other.watch(&mine).await.unwrap();
            ours.delete(&mine).await.unwrap();
            assert_eq!(told(&mut watch).await, Change::Deleted);
            // In one statement, without a function around it.
            let mine = ticket(&**other, "/a/t-").await;
            let (_, mut watch) = ours.watch(&mine).await.unwrap();
            let czxid = node(&**other, &mine).await.unwrap().czxid;
            other.multi(&leaves(&mine, czxid)).await.unwrap();
            assert_eq!(told(&mut watch).await, Change::Deleted);
        }

        let calls = client(&server).await;
        let calls = calls.query("SELECT FROM public.calls", &[]).await.unwrap();
        assert_eq!(calls.len(), 0, "somebody's operator was called");
    });
}

#[test]
fn another_isolation_reaches_no_connection_of_ours() {
    on_postgres(async |server| {
        drop(open(&server).await);
        let strict = "ALTER ROLE postgres SET default_transaction_isolation TO 'serializable'";
        run(&server, strict).await;

        let seen = settings_seen(&server, &url(&server), "transaction_isolation").await;

        assert_eq!(seen, ["read committed"]);
    });
}

/// On PostgreSQL 13 the text of a number with a fraction follows a setting.
#[test]
fn the_history_has_whole_numbers() {
    on_postgres(async |server| {
        drop(open(&server).await);
        let client = client(&server).await;
        let row = client
            .query_one("SELECT lockkeeper.incarnation()", &[])
            .await;
        let history: String = row.unwrap().get(0);
        assert_eq!(history.split('.').count(), 4, "{history}");
    });
}

/// All reads fail with this code from now on.
async fn fail_reads(server: &Daemon, code: &str, why: &str) {
    let fails = format!(
        "ALTER FUNCTION lockkeeper.read RENAME TO kept; \
         CREATE FUNCTION lockkeeper.read(text, bigint, text, bigint, text[], text[], text[], text[]) \
         RETURNS SETOF lockkeeper.reply LANGUAGE plpgsql AS $$ BEGIN \
         RAISE EXCEPTION '{why}' USING ERRCODE = '{code}'; END $$"
    );
    run(server, &fails).await;
}

/// It is the end of the connection, and not an answer.
#[test]
fn a_transaction_that_took_too_long_ends_the_connection() {
    on_postgres(async |server| {
        let link = open(&server).await;
        for code in ["25P03", "25P04"] {
            fail_reads(&server, code, "too long").await;

            let read = link.multi_read(&[Read::Data("/")]).await;

            assert!(matches!(read, Err(Fault::Unknown(_))), "{read:?}");
            let back =
                "DROP FUNCTION lockkeeper.read; ALTER FUNCTION lockkeeper.kept RENAME TO read";
            run(&server, back).await;
        }
    });
}

/// It has the code of a name that is too long, and passes.
#[test]
fn too_many_notifications_are_no_long_name() {
    on_postgres(async |server| {
        let link = open(&server).await;
        fail_reads(
            &server,
            "54000",
            "too many notifications in the NOTIFY queue",
        )
        .await;

        let read = link.multi_read(&[Read::Data("/")]).await;

        let is_asked_again = matches!(read, Err(Fault::Answered(Code::NotNow(_))));
        assert!(is_asked_again, "{read:?}");
    });
}

#[test]
fn a_name_that_no_index_takes_is_told() {
    on_postgres(async |server| {
        let keeper = keeper(&server).await;
        // Nothing that repeats: it would be made smaller.
        let words: Vec<String> = (0..120)
            .map(|_| uuid::Uuid::new_v4().simple().to_string())
            .collect();
        let long = words.join("/");

        let refused = keeper.mutex(&*long).unwrap().lock().await.unwrap_err();

        let text = refused.to_string();
        assert!(text.contains("too long for PostgreSQL"), "{text}");
        assert!(matches!(refused, Error::Refused { .. }), "{refused:?}");
        keeper.close().await;
    });
}
