-- A ticket comes: what `multi` does with one sequential node, in one statement and without plpgsql, which costs a third of it. Whatever is not as
-- usual goes to `multi`, in the same request: nothing was changed then.
--
-- The update waits for the directory's row, and counts on what it finds then. Watches are looked at by `fire`, whose statements see what
-- was committed while this one waited; the rest of this one does not.
--
-- $1 incarnation, $2 session, $3 secret, $4 connection, $5 directory of the directory, $6 its name, $7 its path, $8 the ticket's name without its
-- number, $9 data, $10 echo.
WITH mine AS MATERIALIZED (
    SELECT FROM %S.sessions WHERE id = $2 AND secret = $3 AND incarnation = $1 AND connection <= $4 AND NOT dead
        AND $1 = concat_ws('.', current_setting('lockkeeper.history', true), (SELECT mark FROM %S.alive)) FOR KEY SHARE),
directory AS (
    UPDATE %S.nodes SET counter = counter + 1, children = children + 1, pzxid = greatest(czxid + 1, pzxid + 1, %S.micros())
        WHERE dir = $5 AND name = $6 AND owner = 0 AND counter < 2147483647 AND EXISTS (SELECT FROM mine)
        RETURNING data, czxid, version, counter - 1 AS number, children, pzxid),
ticket AS (
    INSERT INTO %S.nodes (dir, name, data, czxid, owner, pzxid)
        SELECT $7, $8 || lpad(number::text, 10, '0'), $9, pzxid, $2, pzxid FROM directory RETURNING name)
SELECT $10::bigint AS echo, 'ok' AS status, NULL::int AS at, %S.fire($7, 'c', 'c', $2) AS events, $7 || '/' || ticket.name AS path,
    directory.data, directory.pzxid AS czxid, directory.number AS version, NULL::bigint AS owner, directory.pzxid, directory.children,
    NULL::text[] AS names, ARRAY[directory.czxid, directory.version] AS ids
    FROM directory, ticket
UNION ALL
SELECT $10, other.* FROM %S.multi($1, $2, $3, $4, ARRAY[$5, $7], ARRAY[$6, $8], ARRAY['sequential'], ARRAY[$7], ARRAY[$8], ARRAY[$5], ARRAY[$6],
    ARRAY[$9], ARRAY[0], ARRAY[0::bigint]) AS other
    WHERE NOT EXISTS (SELECT FROM directory)
