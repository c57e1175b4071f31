//! What others have set at the server, and what they have made there.

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
