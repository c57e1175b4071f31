-- A ticket goes: what `multi` does with one `leave`, as in `join.sql`. All who delete tickets wait for the directory's row first. Who had it
-- before may have taken the ticket, which this statement does not see: then it fails, and changes nothing.
--
-- $1 incarnation, $2 session, $3 secret, $4 connection, $5 directory of the directory, $6 its name, $7 its path, $8 the ticket's name,
-- $9 data for the directory, $10 echo, $11 the directory's version, $12 the ticket's czxid.
WITH mine AS MATERIALIZED (
    SELECT FROM %S.sessions WHERE id = $2 AND secret = $3 AND incarnation = $1 AND connection <= $4 AND NOT dead
        AND $1 = concat_ws('.', current_setting('lockkeeper.history', true), (SELECT mark FROM %S.alive)) FOR KEY SHARE),
directory AS (
    UPDATE %S.nodes SET children = children - 1, pzxid = greatest(czxid + 1, pzxid + 1, %S.micros()),
            data = CASE WHEN $9 = '' THEN data ELSE $9 END, version = version + ($9 <> '')::int
        WHERE dir = $5 AND name = $6 AND version = $11 AND EXISTS (SELECT FROM mine)
            AND EXISTS (SELECT FROM %S.nodes WHERE dir = $7 AND name = $8 AND czxid = $12 AND children = 0)
        RETURNING pzxid),
ticket AS (
    DELETE FROM %S.nodes WHERE dir = $7 AND name = $8 AND czxid = $12 AND EXISTS (SELECT FROM directory) RETURNING czxid)
SELECT $10::bigint AS echo, 'ok' AS status, NULL::int AS at,
    %S.fire($7 || '/' || $8, 'dc', 'x', $2) || %S.fire($7, CASE WHEN $9 = '' THEN 'c' ELSE 'dc' END, 'c', $2) AS events,
    NULL::text AS path, NULL::bytea AS data, CASE WHEN ticket.czxid IS NULL THEN %S.taken() END AS czxid, NULL::int AS version, NULL::bigint AS owner,
    NULL::bigint AS pzxid, NULL::int AS children, NULL::text[] AS names, NULL::bigint[] AS ids
    FROM directory LEFT JOIN ticket ON true
UNION ALL
SELECT $10, other.* FROM %S.multi($1, $2, $3, $4, ARRAY[$5, $7], ARRAY[$6, $8], ARRAY['leave'], ARRAY[$7], ARRAY[$8], ARRAY[$5], ARRAY[$6],
    ARRAY[$9], ARRAY[$11], ARRAY[$12]) AS other
    WHERE NOT EXISTS (SELECT FROM directory)
