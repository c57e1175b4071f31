-- The tables and functions of a root. Each operation of a session is one call of one function, and one transaction. Where plans are made once,
-- tickets come and go by `join.sql` and `leave.sql`, which do what `multi` does.
--
-- `%S` stands for the schema. All of it may run again: an advisory lock lets one client at a time do so. Volatile functions in plpgsql
-- take a snapshot for each statement in them, so what must show one moment is one statement.
--
-- Locks, in this order: the row of a session, then rows of nodes by (dir, name), parents before children. A directory's row serialises what
-- happens in that directory, and nothing else. A node's id is max(last of the rows that are locked + 1, the server's microseconds), one for each
-- transaction, so that ids rise in each directory.
--
-- Functions set `enable_seqscan`, because plans that are cached while a table is small go on scanning it; and `plan_cache_mode`, because a plan for
-- each call costs several times what it runs. They set `jit`, because the cost of a scan that cannot be helped would have each call compiled for
-- 100 ms. What reads a table is in plpgsql: a function in SQL plans its query at each call.
--
-- Those that are called from outside set `search_path`, and the others run in it: whoever may create in a schema that is searched could bring an
-- operator that fits better, and have it run as our user.

SET LOCAL search_path = pg_catalog, pg_temp;
SELECT pg_advisory_xact_lock(hashtextextended('%S of lockkeeper', 0));

DO $$ BEGIN
    -- Without the question, it would need the right to create schemas even if this one is there.
    IF to_regnamespace('%S') IS NULL THEN CREATE SCHEMA %S; END IF;
    IF to_regtype('%S.reply') IS NULL THEN
        CREATE TYPE %S.reply AS (
            status text, at int, events text[], path text, data bytea, czxid bigint, version int, owner bigint, pzxid bigint, children int,
            names text[], ids bigint[]);
    END IF;
END $$;

CREATE TABLE IF NOT EXISTS %S.schema_version (one boolean PRIMARY KEY DEFAULT true CHECK (one), version int NOT NULL);
-- Which history the store was last used in, when sessions are given again, the longest timeout, when somebody may look for the dead, and since
-- when the first of these times lies further ahead than it may.
CREATE TABLE IF NOT EXISTS %S.meta (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), incarnation text NOT NULL, free bigint NOT NULL, longest bigint NOT NULL,
    due bigint NOT NULL DEFAULT 0, ahead bigint) WITH (fillfactor = 10);
-- It is empty after a crash of any process of the server: commits that were not waited for may be lost then.
CREATE UNLOGGED TABLE IF NOT EXISTS %S.alive (one boolean PRIMARY KEY DEFAULT true CHECK (one), mark text NOT NULL);
-- Updated by each heartbeat, and no index has what they change. Since when its deadline is past, and since when it lies further ahead than it may.
CREATE TABLE IF NOT EXISTS %S.sessions (
    id bigint PRIMARY KEY, secret text NOT NULL, incarnation text NOT NULL, timeout bigint NOT NULL, deadline bigint NOT NULL, connection bigint NOT NULL,
    marked bigint, ahead bigint, dead boolean NOT NULL DEFAULT false)
    WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
-- The root is ('', ''), and /a is ('', 'a').
CREATE TABLE IF NOT EXISTS %S.nodes (
    dir text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, data bytea NOT NULL, czxid bigint NOT NULL, version int NOT NULL DEFAULT 0,
    owner bigint NOT NULL DEFAULT 0, pzxid bigint NOT NULL, counter int NOT NULL DEFAULT 0, children int NOT NULL DEFAULT 0,
    is_container boolean NOT NULL DEFAULT false, PRIMARY KEY (dir, name))
    WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS nodes_of_owner ON %S.nodes (owner) WHERE owner <> 0;
CREATE INDEX IF NOT EXISTS containers ON %S.nodes (dir, name) WHERE is_container;
-- They end with the connections of their sessions, so a crash may empty them. Without a channel the session polls for its events.
CREATE UNLOGGED TABLE IF NOT EXISTS %S.watches (
    path text COLLATE "C" NOT NULL, session bigint NOT NULL, number bigint NOT NULL, kind text NOT NULL, channel text NOT NULL,
    PRIMARY KEY (path, session, number))
    WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS watches_of_session ON %S.watches (session);
CREATE UNLOGGED TABLE IF NOT EXISTS %S.events (session bigint NOT NULL, event text NOT NULL)
    WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS events_of_session ON %S.events (session);

INSERT INTO %S.nodes (dir, name, data, czxid, pzxid) VALUES ('', '', '', 0, 0) ON CONFLICT DO NOTHING;

CREATE OR REPLACE FUNCTION %S.micros() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

-- Another one after each start, promotion and crash, and on each other server. A process of the server ends with it, and on a standby this
-- fails. So each process looks once at what does not change while it lives.
CREATE OR REPLACE FUNCTION %S.incarnation() RETURNS text LANGUAGE plpgsql AS $$
DECLARE history text := current_setting('lockkeeper.history', true);
BEGIN
    IF history IS NULL OR history = '' THEN
        SELECT concat_ws('.', system_identifier, substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8),
            -- Whole numbers: on PostgreSQL 13 the text of others follows a setting.
            (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint) INTO history FROM pg_control_system();
        PERFORM set_config('lockkeeper.history', history, false);
    END IF;
    RETURN concat_ws('.', history, (SELECT mark FROM %S.alive));
END $$;

CREATE OR REPLACE FUNCTION %S.hello() RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO %S.alive (mark) SELECT gen_random_uuid() WHERE NOT EXISTS (SELECT FROM %S.alive) ON CONFLICT DO NOTHING;
    RETURN %S.incarnation();
END $$;

-- Nothing, or why a session may not ask. While it has the lock, the session is not ended, and not moved to another connection.
CREATE OR REPLACE FUNCTION %S.refused(a_incarnation text, a_session bigint, a_secret text, a_connection bigint, a_locks boolean)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE mine record;
BEGIN
    IF a_incarnation IS DISTINCT FROM %S.incarnation() THEN RETURN 'incarnation'; END IF;
    IF a_locks THEN
        SELECT secret, incarnation, connection, dead INTO mine FROM %S.sessions WHERE id = a_session FOR KEY SHARE;
    ELSE
        SELECT secret, incarnation, connection, dead INTO mine FROM %S.sessions WHERE id = a_session;
    END IF;
    IF mine IS NULL OR mine.secret <> a_secret OR mine.dead THEN RETURN 'over'; END IF;
    -- It was opened before, and data may be lost since.
    IF mine.incarnation <> a_incarnation THEN RETURN 'incarnation'; END IF;
    -- What an earlier connection still brings comes too late: its outcome was looked up since.
    IF a_connection < mine.connection THEN RETURN 'moved'; END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION %S.open(
    a_incarnation text, a_session bigint, a_secret text, a_connection bigint,
    a_asked bigint, a_longest bigint, a_margin bigint, a_is_new boolean)
RETURNS SETOF %S.reply LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '3s' AS $$
DECLARE r %S.reply; known record; opens_at bigint; most bigint; pause bigint; since bigint; now bigint;
BEGIN
    IF a_incarnation IS DISTINCT FROM %S.incarnation() THEN r.status := 'incarnation'; RETURN NEXT r; RETURN; END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('%S of lockkeeper', 1));
    now := %S.micros();
    SELECT incarnation, free, longest, ahead INTO known FROM %S.meta FOR UPDATE;
    most := coalesce(known.longest, a_longest);
    pause := most + a_margin;
    opens_at := coalesce(known.free, 0);
    IF opens_at > now + pause THEN
        -- The clock was set back since, and may be right again: only if it still is a whole pause later, the pause begins anew.
        since := CASE WHEN known.ahead <= now THEN known.ahead ELSE now END;
        opens_at := since + 2 * pause;
        IF since + pause <= now THEN since := NULL; opens_at := now + pause; UPDATE %S.meta SET free = opens_at; END IF;
    END IF;
    UPDATE %S.meta SET ahead = since WHERE ahead IS DISTINCT FROM since;
    IF known.incarnation IS DISTINCT FROM a_incarnation THEN
        -- Data may be lost: nobody of before holds a session, and nobody gets one while somebody of before may still think so.
        opens_at := now + pause;
        IF a_is_new AND known.incarnation IS NULL THEN opens_at := 0; END IF;
        PERFORM FROM %S.sessions WHERE NOT dead ORDER BY id FOR UPDATE;
        UPDATE %S.sessions SET dead = true WHERE NOT dead;
        INSERT INTO %S.meta (incarnation, free, longest) VALUES (a_incarnation, opens_at, most)
            ON CONFLICT (one) DO UPDATE SET incarnation = a_incarnation, free = opens_at, longest = most, ahead = NULL;
    END IF;
    IF now < opens_at THEN r.status := 'grace'; r.pzxid := opens_at - now; RETURN NEXT r; RETURN; END IF;
    r.status := 'ok';
    r.pzxid := least(a_asked, most);
    INSERT INTO %S.sessions (id, secret, incarnation, timeout, deadline, connection)
        VALUES (a_session, a_secret, a_incarnation, r.pzxid, now + r.pzxid, a_connection);
    UPDATE %S.meta SET due = least(due, now + r.pzxid);
    RETURN NEXT r;
END $$;

-- A heartbeat: the deadline, and nothing that a crash may not take back. Nothing, or why not.
CREATE OR REPLACE FUNCTION %S.beat(a_incarnation text, a_session bigint, a_secret text, a_connection bigint)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE refusal text := %S.refused(a_incarnation, a_session, a_secret, a_connection, false);
BEGIN
    IF refusal IS NOT NULL THEN RETURN refusal; END IF;
    -- Before it moves to another connection, all that the earlier one has begun comes to its end.
    PERFORM FROM %S.sessions WHERE id = a_session AND connection < a_connection FOR UPDATE;
    UPDATE %S.sessions SET deadline = %S.micros() + timeout, connection = a_connection, marked = NULL, ahead = NULL
        WHERE id = a_session AND connection <= a_connection AND NOT dead;
    IF NOT FOUND THEN RETURN %S.refused(a_incarnation, a_session, a_secret, a_connection, false); END IF;
    -- Where a standby may take over, it waits for it: a primary that is cut off must not keep sessions.
    IF current_setting('synchronous_standby_names') = '' THEN PERFORM set_config('synchronous_commit', 'off', true); END IF;
    RETURN NULL;
END $$;

-- A heartbeat that also says who is late, and which containers have been empty for long. One session at a time is told: it
-- removes them. All are told when to ask again: when the next one may be late. Times that lie further ahead than they may are of a clock
-- that was set back since, and that may be right again. A deadline is marked then, and begins anew only if that is so a whole timeout later: it
-- would be too early otherwise for a holder that is silent. Whoever has the row just sends a heartbeat.
CREATE OR REPLACE FUNCTION %S.touch(a_incarnation text, a_session bigint, a_secret text, a_connection bigint, a_empty_for bigint)
RETURNS SETOF %S.reply LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '3s' AS $$
DECLARE r %S.reply; now bigint := %S.micros();
BEGIN
    r.status := coalesce(%S.beat(a_incarnation, a_session, a_secret, a_connection), 'ok');
    IF r.status = 'ok' THEN
        UPDATE %S.meta SET due = greatest(now + 200000, least(now + 1000000,
                (SELECT min(deadline) FROM %S.sessions WHERE NOT dead AND deadline >= now)))
            WHERE one IN (SELECT one FROM %S.meta WHERE due <= now OR due > %S.micros() + 1000000 FOR UPDATE SKIP LOCKED);
        IF FOUND THEN
            UPDATE %S.sessions AS session SET
                    ahead = CASE WHEN deadline > seen.now + timeout AND (ahead < seen.now - timeout) IS NOT TRUE THEN least(ahead, seen.now) END,
                    deadline = CASE WHEN deadline > seen.now + timeout AND ahead < seen.now - timeout THEN seen.now + timeout ELSE deadline END
                FROM (SELECT id, %S.micros() AS now FROM %S.sessions WHERE NOT dead AND CASE WHEN deadline > %S.micros() + timeout
                    THEN ahead IS NULL OR ahead NOT BETWEEN %S.micros() - timeout AND %S.micros() ELSE ahead IS NOT NULL END
                    FOR NO KEY UPDATE SKIP LOCKED) AS seen
                WHERE session.id = seen.id;
            r.ids := ARRAY(SELECT id FROM %S.sessions WHERE dead OR deadline < now LIMIT 100);
            r.names := ARRAY(SELECT dir || '/' || name FROM %S.nodes
                WHERE is_container AND children = 0 AND counter > 0 AND pzxid < now - a_empty_for LIMIT 100);
        END IF;
        SELECT greatest(due - now, 0) INTO r.pzxid FROM %S.meta;
    END IF;
    RETURN NEXT r;
END $$;

-- Tells the watches of these kinds on a path, each once. The own session learns it with the reply.
CREATE OR REPLACE FUNCTION %S.fire(a_path text, a_kinds text, a_change text, a_session bigint)
RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE fired record; own text[] := '{}';
BEGIN
    -- It costs less than a delete of nothing.
    PERFORM FROM %S.watches WHERE path = a_path LIMIT 1;
    IF NOT FOUND THEN RETURN own; END IF;
    FOR fired IN
        DELETE FROM %S.watches WHERE path = a_path AND strpos(a_kinds, kind) > 0 RETURNING session, number, channel
    LOOP
        IF fired.session = a_session THEN
            own := own || (a_change || fired.number);
        ELSIF fired.channel = '' THEN
            INSERT INTO %S.events (session, event) VALUES (fired.session, a_change || fired.number);
        ELSE
            PERFORM pg_notify(fired.channel, fired.session || ' ' || a_change || fired.number);
        END IF;
    END LOOP;
    RETURN own;
END $$;

-- What a statement fails with that has changed the directory, and finds no ticket to remove.
CREATE OR REPLACE FUNCTION %S.taken() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the ticket was taken meanwhile' USING ERRCODE = 'LK002';
END $$;

-- Locks the rows that are there, all transactions in one order, and gives their paths and the id of this transaction.
CREATE OR REPLACE FUNCTION %S.lock(a_dirs text[], a_names text[], OUT id bigint, OUT locked text[]) LANGUAGE plpgsql AS $$
DECLARE last bigint;
BEGIN
    SELECT max(greatest(czxid, pzxid)), coalesce(array_agg(dir || '/' || name), '{}') INTO last, locked FROM (
        SELECT node.dir, node.name, node.czxid, node.pzxid
        FROM unnest(a_dirs, a_names) AS asked (dir, name) JOIN %S.nodes AS node ON node.dir = asked.dir AND node.name = asked.name
        ORDER BY node.dir, node.name FOR NO KEY UPDATE OF node) AS node;
    id := greatest(coalesce(last, 0) + 1, %S.micros());
END $$;

-- One write. All that may be refused comes before what it changes. A node that came after the locks is not there yet: its counter and its
-- children are another transaction's. A ticket is deleted with its czxid, because a late copy of a delete must remove nobody else's; 0 is any
-- node. Data of a delete is the directory's from then on.
CREATE OR REPLACE FUNCTION %S.write(
    a_session bigint, a_id bigint, a_kind text, a_dir text, a_name text, a_up_dir text, a_up_name text, a_data bytea, a_version int,
    a_czxid bigint, a_locked text[])
RETURNS %S.reply LANGUAGE plpgsql AS $$
DECLARE r %S.reply; node record; up record; own_path text := CASE WHEN a_name = '' THEN '' ELSE a_dir || '/' || a_name END;
BEGIN
    r.status := 'ok';
    IF a_kind IN ('create', 'container', 'ephemeral', 'sequential') THEN
        SELECT data, czxid, version, owner, counter, children INTO up FROM %S.nodes
            WHERE dir = a_up_dir AND name = a_up_name AND a_up_dir || '/' || a_up_name = ANY (a_locked);
        IF NOT FOUND THEN r.status := 'no node'; RETURN r; END IF;
        IF up.owner <> 0 THEN r.status := 'ephemeral nodes have no children'; RETURN r; END IF;
        r.path := own_path;
        r.version := up.counter;
        IF a_kind = 'sequential' THEN
            -- A ticket's own request tells of the directory, too: nobody need read it.
            r.data := up.data; r.ids := ARRAY[up.czxid, up.version]; r.children := up.children + 1; r.pzxid := a_id;
            r.path := r.path || lpad(up.counter::text, 10, '0');
            a_name := a_name || lpad(up.counter::text, 10, '0');
        END IF;
        PERFORM FROM %S.nodes WHERE dir = a_dir AND name = a_name;
        IF FOUND THEN r.status := 'exists'; RETURN r; END IF;
        r.czxid := a_id;
        INSERT INTO %S.nodes (dir, name, data, czxid, owner, pzxid, is_container) VALUES (
            a_dir, a_name, a_data, a_id, CASE WHEN a_kind IN ('ephemeral', 'sequential') THEN a_session ELSE 0 END, a_id, a_kind = 'container');
        UPDATE %S.nodes SET counter = least(up.counter, 2147483646) + 1, children = children + 1, pzxid = a_id
            WHERE dir = a_up_dir AND name = a_up_name;
        r.events := %S.fire(a_dir, 'c', 'c', a_session);
        RETURN r;
    END IF;
    IF a_kind = 'leave' THEN
        -- It stands for two writes: the first of them is about the directory.
        SELECT directory.version, ticket.children, ticket.czxid INTO node FROM %S.nodes AS directory
            LEFT JOIN %S.nodes AS ticket ON ticket.dir = a_dir AND ticket.name = a_name AND a_dir || '/' || a_name = ANY (a_locked)
            WHERE directory.dir = a_up_dir AND directory.name = a_up_name AND a_up_dir || '/' || a_up_name = ANY (a_locked);
        IF NOT FOUND THEN r.status := 'no node'; RETURN r; END IF;
        IF a_version <> node.version THEN r.status := 'version'; RETURN r; END IF;
        r.at := 1;
        IF node.czxid IS NULL THEN r.status := 'no node'; RETURN r; END IF;
    ELSE
        SELECT version, children, czxid INTO node FROM %S.nodes
            WHERE dir = a_dir AND name = a_name AND (a_locked IS NULL OR a_dir || '/' || a_name = ANY (a_locked));
        IF NOT FOUND THEN r.status := 'no node'; RETURN r; END IF;
        IF a_version <> -1 AND a_version <> node.version THEN r.status := 'version'; RETURN r; END IF;
    END IF;
    IF a_czxid <> 0 AND a_czxid <> node.czxid THEN r.status := 'no node'; RETURN r; END IF;
    IF a_kind = 'set' THEN
        UPDATE %S.nodes SET data = a_data, version = version + 1 WHERE dir = a_dir AND name = a_name;
        r.events := %S.fire(own_path, 'd', 'c', a_session);
    ELSIF a_kind IN ('delete', 'leave') THEN
        IF node.children > 0 THEN r.status := 'not empty'; RETURN r; END IF;
        DELETE FROM %S.nodes WHERE dir = a_dir AND name = a_name;
        UPDATE %S.nodes SET children = children - 1, pzxid = greatest(pzxid, a_id),
                data = CASE WHEN a_data = '' THEN data ELSE a_data END, version = version + (a_data <> '')::int
            WHERE dir = a_up_dir AND name = a_up_name;
        r.events := %S.fire(own_path, 'dc', 'x', a_session) || %S.fire(a_dir, CASE WHEN a_data = '' THEN 'c' ELSE 'dc' END, 'c', a_session);
    END IF;
    RETURN r;
END $$;

-- Does all of the writes or none. Those that only check are a heartbeat, and lock nothing.
CREATE OR REPLACE FUNCTION %S.multi(
    a_incarnation text, a_session bigint, a_secret text, a_connection bigint, a_lock_dirs text[], a_lock_names text[],
    a_kinds text[], a_dirs text[], a_names text[], a_up_dirs text[], a_up_names text[], a_datas bytea[], a_versions int[],
    a_czxids bigint[])
RETURNS SETOF %S.reply LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '3s' AS $$
DECLARE r %S.reply; done %S.reply; made %S.reply[]; held record; id bigint; locked text[]; own text[] := '{}';
BEGIN
    IF 'check' = ALL (a_kinds) THEN
        r.status := %S.beat(a_incarnation, a_session, a_secret, a_connection);
    ELSE
        r.status := %S.refused(a_incarnation, a_session, a_secret, a_connection, true);
    END IF;
    IF r.status IS NOT NULL THEN RETURN NEXT r; RETURN; END IF;
    IF 'check' <> ANY (a_kinds) THEN
        held := %S.lock(a_lock_dirs, a_lock_names);
        id := held.id; locked := held.locked;
    END IF;
    IF cardinality(a_kinds) = 1 THEN
        done := %S.write(a_session, id, a_kinds[1], a_dirs[1], a_names[1], a_up_dirs[1], a_up_names[1], a_datas[1], a_versions[1],
            a_czxids[1], locked);
        IF done.status <> 'ok' THEN r.status := 'refused'; r.path := done.status; r.at := coalesce(done.at, 0); RETURN NEXT r; RETURN; END IF;
        RETURN NEXT done;
        RETURN;
    END IF;
    BEGIN
        FOR at IN 1 .. cardinality(a_kinds) LOOP
            done := %S.write(
                a_session, id, a_kinds[at], a_dirs[at], a_names[at], a_up_dirs[at], a_up_names[at], a_datas[at], a_versions[at],
                a_czxids[at], locked);
            IF done.status <> 'ok' THEN
                r.at := at - 1;
                RAISE EXCEPTION 'refused' USING ERRCODE = 'LK001';
            END IF;
            own := own || done.events;
            IF done.path IS NOT NULL THEN made := made || done; locked := locked || done.path; END IF;
        END LOOP;
    EXCEPTION WHEN SQLSTATE 'LK001' THEN
        r.status := 'refused';
        r.path := done.status;
        RETURN NEXT r;
        RETURN;
    END;
    r.status := 'ok';
    r.events := own;
    RETURN NEXT r;
    RETURN QUERY SELECT * FROM unnest(made);
END $$;

CREATE OR REPLACE FUNCTION %S.read(
    a_incarnation text, a_session bigint, a_secret text, a_connection bigint, a_kinds text[], a_dirs text[], a_names text[], a_paths text[])
RETURNS SETOF %S.reply LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE r %S.reply;
BEGIN
    r.status := %S.refused(a_incarnation, a_session, a_secret, a_connection, false);
    IF r.status IS NOT NULL THEN RETURN NEXT r; RETURN; END IF;
    -- One statement, so one moment.
    RETURN QUERY
        SELECT 'ok'::text, NULL::int, NULL::text[], asked.path, CASE WHEN asked.kind = 'd' THEN node.data END, node.czxid, node.version,
            node.owner, node.pzxid, node.children,
            CASE WHEN asked.kind = 'c' AND node.czxid IS NOT NULL THEN
                ARRAY(SELECT child.name FROM %S.nodes AS child WHERE child.dir = asked.path AND child.name <> '') END,
            NULL::bigint[]
        FROM unnest(a_kinds, a_dirs, a_names, a_paths) WITH ORDINALITY AS asked (kind, dir, name, path, place)
            LEFT JOIN %S.nodes AS node ON node.dir = asked.dir AND node.name = asked.name
        ORDER BY asked.place;
END $$;

-- The node is locked, so that no delete goes by unseen between the read and the commit of the watch.
CREATE OR REPLACE FUNCTION %S.watch(
    a_incarnation text, a_session bigint, a_secret text, a_connection bigint,
    a_kind text, a_dir text, a_name text, a_path text, a_number bigint, a_channel text)
RETURNS SETOF %S.reply LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '3s' AS $$
DECLARE r %S.reply;
BEGIN
    r.status := %S.refused(a_incarnation, a_session, a_secret, a_connection, true);
    IF r.status IS NOT NULL THEN RETURN NEXT r; RETURN; END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT data, czxid, version, owner, pzxid, children INTO r.data, r.czxid, r.version, r.owner, r.pzxid, r.children
        FROM %S.nodes WHERE dir = a_dir AND name = a_name FOR SHARE;
    IF NOT FOUND THEN r.status := 'refused'; r.at := 0; r.path := 'no node'; RETURN NEXT r; RETURN; END IF;
    INSERT INTO %S.watches (path, session, number, kind, channel) VALUES (a_path, a_session, a_number, a_kind, a_channel);
    IF a_kind = 'c' THEN r.names := ARRAY(SELECT name FROM %S.nodes WHERE dir = a_path AND name <> ''); END IF;
    r.status := 'ok';
    RETURN NEXT r;
END $$;

CREATE OR REPLACE FUNCTION %S.unwatch(
    a_incarnation text, a_session bigint, a_secret text, a_connection bigint, a_path text, a_number bigint)
RETURNS SETOF %S.reply LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '3s' AS $$
DECLARE r %S.reply;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    DELETE FROM %S.watches WHERE path = a_path AND session = a_session AND number = a_number;
    r.status := 'ok';
    RETURN NEXT r;
END $$;

-- What was seen when each watch was armed; what has changed since is told now. A node that another program has locked holds up nobody here: its
-- watch is told of a change, and whoever waits for it reads the node and watches it again, which waits by itself.
CREATE OR REPLACE FUNCTION %S.rearm(
    a_incarnation text, a_session bigint, a_secret text, a_connection bigint, a_kinds text[], a_dirs text[], a_names text[], a_paths text[],
    a_numbers bigint[], a_czxids bigint[], a_lasts bigint[], a_channel text)
RETURNS SETOF %S.reply LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '3s' AS $$
DECLARE r %S.reply; asked record; node record;
BEGIN
    r.status := %S.refused(a_incarnation, a_session, a_secret, a_connection, true);
    IF r.status IS NOT NULL THEN RETURN NEXT r; RETURN; END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    FOR asked IN
        SELECT * FROM unnest(a_kinds, a_dirs, a_names, a_paths, a_numbers, a_czxids, a_lasts)
            AS asked (kind, dir, name, path, number, czxid, last)
        ORDER BY dir COLLATE "C", name COLLATE "C"
    LOOP
        SELECT czxid, version, pzxid INTO node FROM %S.nodes WHERE dir = asked.dir AND name = asked.name FOR SHARE SKIP LOCKED;
        IF NOT FOUND AND EXISTS (SELECT FROM %S.nodes WHERE dir = asked.dir AND name = asked.name AND czxid = asked.czxid) THEN
            r.events := r.events || ('c' || asked.number);
        ELSIF NOT FOUND OR node.czxid <> asked.czxid THEN
            r.events := r.events || ('x' || asked.number);
        ELSIF asked.last <> (CASE WHEN asked.kind = 'c' THEN node.pzxid ELSE node.version END) THEN
            r.events := r.events || ('c' || asked.number);
        ELSE
            INSERT INTO %S.watches (path, session, number, kind, channel)
                VALUES (asked.path, a_session, asked.number, asked.kind, a_channel)
                ON CONFLICT (path, session, number) DO UPDATE SET channel = a_channel;
        END IF;
    END LOOP;
    r.status := 'ok';
    RETURN NEXT r;
END $$;

-- What an earlier connection still asks takes no event: nobody would hear of it. One statement, so that the session does not move meanwhile.
CREATE OR REPLACE FUNCTION %S.poll(a_session bigint, a_connection bigint)
RETURNS SETOF text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    RETURN QUERY DELETE FROM %S.events WHERE session = a_session
        AND EXISTS (SELECT FROM %S.sessions WHERE id = a_session AND connection <= a_connection) RETURNING event;
END $$;

CREATE OR REPLACE FUNCTION %S.ephemerals(a_incarnation text, a_session bigint, a_secret text, a_connection bigint, a_prefix text)
RETURNS SETOF %S.reply LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE r %S.reply;
BEGIN
    r.status := coalesce(%S.refused(a_incarnation, a_session, a_secret, a_connection, false), 'ok');
    r.names := ARRAY(SELECT dir || '/' || name FROM %S.nodes WHERE owner = a_session AND owner <> 0 AND starts_with(dir || '/' || name, a_prefix));
    RETURN NEXT r;
END $$;

-- Some of the nodes of a session that is dead; without any it is forgotten.
CREATE OR REPLACE FUNCTION %S.remains(a_victim bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE paths text[] := ARRAY(SELECT dir || '/' || name FROM %S.nodes WHERE owner = a_victim AND owner <> 0 LIMIT 200);
BEGIN
    IF cardinality(paths) = 0 THEN
        DELETE FROM %S.watches WHERE session = a_victim;
        DELETE FROM %S.events WHERE session = a_victim;
        DELETE FROM %S.sessions WHERE id = a_victim;
    END IF;
    RETURN paths;
END $$;

-- Whoever is late is marked at first sight, and dead at a second one later. A heartbeat between them takes the mark away, so that one step
-- of the clock ends no session.
CREATE OR REPLACE FUNCTION %S.bury(a_incarnation text, a_session bigint, a_secret text, a_connection bigint, a_victim bigint)
RETURNS SETOF %S.reply LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '3s' AS $$
DECLARE r %S.reply; victim record; now bigint := %S.micros();
BEGIN
    r.status := %S.refused(a_incarnation, a_session, a_secret, a_connection, false);
    IF r.status IS NOT NULL THEN RETURN NEXT r; RETURN; END IF;
    r.status := 'ok';
    r.pzxid := 0;
    -- It waits for what the victim has begun, elsewhere than here: others wait behind.
    SELECT timeout, deadline, marked, dead INTO victim FROM %S.sessions WHERE id = a_victim FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        IF EXISTS (SELECT FROM %S.sessions WHERE id = a_victim) THEN r.pzxid := 100000; END IF;
        RETURN NEXT r;
        RETURN;
    END IF;
    IF NOT victim.dead THEN
        IF victim.deadline >= now THEN RETURN NEXT r; RETURN; END IF;
        r.pzxid := greatest(least(coalesce(victim.marked, now), now) + victim.timeout / 5 - now, 0);
        IF victim.marked IS NULL OR victim.marked > now THEN UPDATE %S.sessions SET marked = now WHERE id = a_victim; END IF;
        IF r.pzxid > 0 THEN RETURN NEXT r; RETURN; END IF;
        UPDATE %S.sessions SET dead = true WHERE id = a_victim;
    END IF;
    r.names := %S.remains(a_victim);
    RETURN NEXT r;
END $$;

-- Removes nodes of a dead session, and nothing of another one that has a node of that name by now.
CREATE OR REPLACE FUNCTION %S.reap(
    a_incarnation text, a_session bigint, a_secret text, a_connection bigint, a_victim bigint, a_lock_dirs text[], a_lock_names text[],
    a_dirs text[], a_names text[], a_up_dirs text[], a_up_names text[])
RETURNS SETOF %S.reply LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '3s' AS $$
DECLARE r %S.reply; done %S.reply; id bigint; locked text[];
BEGIN
    r.status := %S.refused(a_incarnation, a_session, a_secret, a_connection, false);
    -- A session that was closed may only remove what is left of it.
    IF r.status = 'over' AND a_victim = a_session AND EXISTS (SELECT FROM %S.sessions WHERE sessions.id = a_session AND secret = a_secret) THEN
        r.status := NULL;
    END IF;
    IF r.status IS NOT NULL THEN RETURN NEXT r; RETURN; END IF;
    r.status := 'ok';
    IF EXISTS (SELECT FROM %S.sessions WHERE sessions.id = a_victim AND dead) THEN
        SELECT * INTO id, locked FROM %S.lock(a_lock_dirs, a_lock_names);
        FOR at IN 1 .. cardinality(a_dirs) LOOP
            PERFORM FROM %S.nodes WHERE dir = a_dirs[at] AND name = a_names[at] AND owner = a_victim;
            CONTINUE WHEN NOT FOUND;
            done := %S.write(a_session, id, 'delete', a_dirs[at], a_names[at], a_up_dirs[at], a_up_names[at], '', -1, 0, locked);
            r.events := r.events || done.events;
        END LOOP;
        r.names := %S.remains(a_victim);
    END IF;
    RETURN NEXT r;
END $$;

CREATE OR REPLACE FUNCTION %S.collect(
    a_incarnation text, a_session bigint, a_secret text, a_connection bigint, a_lock_dirs text[], a_lock_names text[],
    a_dir text, a_name text, a_up_dir text, a_up_name text, a_empty_for bigint)
RETURNS SETOF %S.reply LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '3s' AS $$
DECLARE r %S.reply; done %S.reply; id bigint; locked text[];
BEGIN
    r.status := %S.refused(a_incarnation, a_session, a_secret, a_connection, true);
    IF r.status IS NOT NULL THEN RETURN NEXT r; RETURN; END IF;
    r.status := 'ok';
    SELECT * INTO id, locked FROM %S.lock(a_lock_dirs, a_lock_names);
    PERFORM FROM %S.nodes
        WHERE dir = a_dir AND name = a_name AND is_container AND children = 0 AND pzxid < %S.micros() - a_empty_for;
    IF FOUND THEN
        done := %S.write(a_session, id, 'delete', a_dir, a_name, a_up_dir, a_up_name, '', -1, 0, locked);
        r.events := done.events;
    END IF;
    RETURN NEXT r;
END $$;

CREATE OR REPLACE FUNCTION %S.close(a_incarnation text, a_session bigint, a_secret text, a_connection bigint)
RETURNS SETOF %S.reply LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '3s' AS $$
DECLARE r %S.reply;
BEGIN
    r.status := %S.refused(a_incarnation, a_session, a_secret, a_connection, false);
    IF r.status IS NOT NULL THEN RETURN NEXT r; RETURN; END IF;
    PERFORM FROM %S.sessions WHERE id = a_session FOR UPDATE;
    UPDATE %S.sessions SET dead = true WHERE id = a_session;
    r.status := 'ok';
    r.names := %S.remains(a_session);
    RETURN NEXT r;
END $$;

INSERT INTO %S.schema_version (version) VALUES (7) ON CONFLICT DO NOTHING;
