--
-- Minutes: what ended in each minute, and how many workers each queue needs. A thread of each ticker runs these statements
-- (ticker/daemon/minutes.py). An end counts exactly once: it is in the snapshot in which its minute was counted, or the minute is
-- counted again after its transaction (`horizon`), or it has left a change (`minute_changes`).

-- rule: newest_to_close
-- The newest minute that may be closed: it has been over for 70 s. So a minute is closed at least 10 s after the end of the next
-- one. Each transaction with an end of that one that is not late has begun by then: its id is lower than that of the closing.
date_trunc('minute', {now} - interval '130 seconds', 'UTC')

-- rule: oldest_at_work
-- The id of the oldest transaction that has not ended, in this statement's snapshot. Ids are stored as numbers: libraries that
-- read the tables do not know xid8.
pg_snapshot_xmin(pg_current_snapshot())::text::bigint

-- rule: last_of_hour
-- The last minute of the hour of %(at)s. Its row says whether the hour is added up.
date_trunc('hour', %(at)s::timestamptz, 'UTC') + interval '59 minutes'

-- rule: types_of_owners
-- The types of owners of ended runs, and of drops ('' for no owner), each found after the previous one: there are few types and
-- many rows.
WITH RECURSIVE types_of_runs AS (
    SELECT min(owner_type) AS owner_type FROM {schema}.runs WHERE outcome <> 'dropped'
    UNION ALL
    SELECT (SELECT min(r.owner_type) FROM {schema}.runs r WHERE r.outcome <> 'dropped' AND r.owner_type > e.owner_type)
    FROM types_of_runs e WHERE e.owner_type IS NOT NULL
), types_of_drops AS (
    SELECT min(owner_type) AS owner_type FROM {schema}.runs WHERE outcome = 'dropped'
    UNION ALL
    SELECT (SELECT min(r.owner_type) FROM {schema}.runs r WHERE r.outcome = 'dropped' AND r.owner_type > d.owner_type)
    FROM types_of_drops d WHERE d.owner_type IS NOT NULL
)

-- rule: measured_end
-- What the end t counts for besides its outcome, and its lateness and duration: whole numbers as float8, which PostgreSQL adds and
-- compares faster. A scheduled run has no due time besides its occurrence.
t.function, t.queue, t.kind,
    CASE WHEN t.started_at IS NOT NULL
        THEN greatest(0, round(1000 * date_part('epoch', t.started_at - coalesce(t.due_at, t.occurrence)))) END AS late_ms,
    CASE WHEN t.started_at IS NOT NULL AND t.pieces IS NULL AND t.outcome <> 'lost'
        THEN greatest(0, round(1000 * date_part('epoch', t.ended_at - t.started_at))) END AS took_ms

-- rule: buckets
-- The buckets of the lateness and the duration of t.
width_bucket(t.late_ms, ARRAY[1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000, 256000, 512000, 1024000, 2048000]::float8[]) AS late,
    width_bucket(t.took_ms, ARRAY[50, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 51200, 102400, 204800, 409600, 819200,
        1638400]::float8[]) AS took

-- rule: group_in_buckets
-- Ends with the same outcome, key and buckets. A `sign` of -1 takes an end away. A histogram with one value ends at its bucket.
function, queue, kind, sum(sign) AS count, CASE WHEN late IS NULL THEN 0 ELSE sum(sign) END AS started,
    coalesce(sum(sign * late_ms), 0) AS late_ms, coalesce(sum(sign * took_ms), 0) AS took_ms,
    CASE WHEN late IS NULL THEN '{}' ELSE array_fill(0, ARRAY[late]) || sum(sign)::integer END AS late,
    CASE WHEN took IS NULL THEN '{}' ELSE array_fill(0, ARRAY[took]) || sum(sign)::integer END AS took

-- rule: key
-- The key of a row: it must fit into an index.
n.function, coalesce(g.queue, ''), g.outcome, left(g.reason, 200), g.kind

-- rule: sums
sum(g.count)::integer, sum(g.started)::integer, sum(g.late_ms)::bigint, sum(g.took_ms)::bigint, {schema}.sum_counts(g.late),
    {schema}.sum_counts(g.took)

-- rule: rolled_up
-- Adds up `groups`, separately for the 200 functions with most ends.
SELECT %(at)s::timestamptz, {key}, {sums}
    FROM groups g LEFT JOIN (SELECT function FROM groups GROUP BY function ORDER BY sum(count) DESC, function LIMIT 200) f
        ON f.function = g.function, LATERAL (SELECT coalesce(f.function, '(other)') AS function) n
    GROUP BY {key}

-- name: prepare_to_count
-- Gives the statements of this transaction more time, and lets them group with a hash table: the planner expects too many rows.
SELECT set_config('statement_timeout', '60s', true), set_config('enable_sort', 'off', true), set_config('jit', 'off', true)

-- name: reopen_minutes
-- If minutes are closed that are not over, the clock was set back. They are closed again when they are over again.
WITH ahead AS (
    DELETE FROM {schema}.closed_minutes WHERE at > {newest_to_close} RETURNING at
)
DELETE FROM {schema}.minutes WHERE at >= (SELECT min(at) FROM ahead)

-- name: next_minute
-- Begins to close the next minute, unless another ticker is closing one: that one has locked the newest closed minute. Returns no
-- row if there is none. Prefers a minute whose count has to be repeated. Does not wait for longer than 90 minutes: a transaction of
-- ours does not take so long, and the records of the minute are not pruned meanwhile. Begins with the last hour.
WITH unsettled AS MATERIALIZED (
    SELECT at FROM {schema}.closed_minutes WHERE horizon <= {oldest_at_work}
    ORDER BY at LIMIT 1 FOR UPDATE SKIP LOCKED
), given_up AS (
    UPDATE {schema}.closed_minutes SET horizon = NULL
    WHERE horizon > {oldest_at_work} AND at < {now} - interval '90 minutes'
), cleared AS (
    DELETE FROM {schema}.minutes m USING unsettled u WHERE m.at = u.at
), newest AS MATERIALIZED (
    SELECT at FROM {schema}.closed_minutes ORDER BY at DESC LIMIT 1 FOR UPDATE SKIP LOCKED
), begun AS (
    INSERT INTO {schema}.closed_minutes (at)
    SELECT n.at FROM (SELECT greatest(coalesce(max(at) + interval '1 minute', {newest_to_close} - interval '1 hour'),
        {newest_to_close} - %(keep_ms)s::bigint * interval '1 millisecond') AS at FROM newest) n
    WHERE n.at <= {newest_to_close} AND NOT EXISTS (SELECT FROM unsettled)
      AND (EXISTS (SELECT FROM newest) OR NOT EXISTS (SELECT FROM {schema}.closed_minutes))
    ON CONFLICT DO NOTHING RETURNING at
)
SELECT at FROM unsettled UNION ALL SELECT at FROM begun

-- rule: ended_in_minute
-- Groups the ends t of an owner type and an outcome. So each query reads its own range of the index, and few texts are compared.
SELECT {group_in_buckets} FROM (SELECT e.*, 1 AS sign, {buckets e} FROM (
            SELECT {measured_end r} FROM {schema}.runs r WHERE r.owner_type = t.owner_type
                AND r.ended_at >= %(at)s::timestamptz AND r.ended_at < %(at)s::timestamptz + interval '1 minute'

-- name: close_minute
-- Counts what ended in the minute, in one snapshot.
{types_of_owners}, groups AS MATERIALIZED (
    SELECT o.outcome, '' AS reason, g.* FROM types_of_runs t, unnest(%(outcomes)s::text[]) AS o (outcome), LATERAL (
        {ended_in_minute t} AND r.outcome = o.outcome AND r.outcome <> 'dropped' OFFSET 0) e) e
        GROUP BY function, queue, kind, late, took) g
    UNION ALL
    SELECT 'dropped', o.reason, g.* FROM types_of_drops t, unnest(%(reasons)s::text[]) AS o (reason), LATERAL (
        {ended_in_minute t} AND r.reason = o.reason AND r.outcome = 'dropped' OFFSET 0) e) e
        GROUP BY function, queue, kind, late, took) g
), counted AS (
    INSERT INTO {schema}.minutes {rolled_up}
)
UPDATE {schema}.closed_minutes c SET
    snapshot = CASE WHEN c.at = %(at)s::timestamptz THEN pg_current_snapshot()::text ELSE c.snapshot END,
    horizon = CASE WHEN c.at <> %(at)s::timestamptz THEN c.horizon
        WHEN c.horizon IS NULL AND {oldest_at_work} < s.horizon THEN s.horizon END,
    is_summed = c.at <> {last_of_hour}
FROM (SELECT coalesce((SELECT xact FROM {schema}.closed_minutes WHERE at = %(at)s::timestamptz - interval '1 minute'),
    pg_current_xact_id()::text::bigint) AS horizon) s
WHERE c.at IN (%(at)s::timestamptz, {last_of_hour})

-- name: measure_functions
-- Stores how long a run of each function takes: the mean of those that ended in the ten minutes up to %(at)s.
UPDATE {schema}.functions f SET mean_ms = m.mean_ms FROM (
    SELECT function, greatest(sum(took_ms) / sum(started), 1) AS mean_ms FROM {schema}.minutes
    WHERE at > %(at)s::timestamptz - interval '10 minutes' AND at <= %(at)s::timestamptz AND started > 0 AND outcome <> 'lost'
    GROUP BY function) m
WHERE f.name = m.function AND f.mean_ms IS DISTINCT FROM m.mean_ms
  AND f.name = ANY (ARRAY(SELECT name FROM {schema}.functions ORDER BY name FOR NO KEY UPDATE SKIP LOCKED))

-- name: apply_changes
-- Applies the changes of closed minutes, and deletes them. A change that was in the minute's snapshot is counted already. Returns
-- how many changes are done with. The rows of hours are locked first, in order. A function beyond the 200 of the minute counts as `(other)`.
WITH asked AS MATERIALIZED (
    SELECT id, at FROM {schema}.minute_changes WHERE at <= (SELECT max(at) FROM {schema}.closed_minutes)
    ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), hours AS MATERIALIZED (
    SELECT at FROM {schema}.closed_minutes
    WHERE at IN (SELECT date_trunc('hour', at, 'UTC') + interval '59 minutes' FROM asked) ORDER BY at FOR UPDATE
), closed AS MATERIALIZED (
    SELECT c.at, c.snapshot FROM {schema}.closed_minutes c, (SELECT count(*) FROM hours) AS after_the_hours
    WHERE c.at = ANY (ARRAY(SELECT at FROM asked)) ORDER BY c.at FOR UPDATE OF c SKIP LOCKED
), done AS (
    DELETE FROM {schema}.minute_changes c USING asked a LEFT JOIN closed m ON m.at = a.at
    WHERE c.id = a.id AND (m.at IS NOT NULL OR NOT EXISTS (SELECT FROM {schema}.closed_minutes o WHERE o.at = a.at))
    RETURNING c.*, NOT pg_visible_in_snapshot(c.xact::text::xid8, m.snapshot::pg_snapshot) AS is_missing
), groups AS MATERIALIZED (
    SELECT at, outcome, reason, {group_in_buckets} FROM (SELECT e.*, {buckets e} FROM (
        SELECT c.at, c.sign, c.outcome, CASE c.outcome WHEN 'dropped' THEN c.reason ELSE '' END AS reason, {measured_end c}
        FROM done c WHERE c.is_missing) e) e
    GROUP BY at, outcome, reason, function, queue, kind, late, took
), changed AS (
    INSERT INTO {schema}.minutes AS m
    SELECT g.at, {key}, {sums} FROM groups g, LATERAL (
        SELECT CASE WHEN bool_or(o.function = g.function) OR count(DISTINCT o.function) < 200 THEN g.function ELSE '(other)' END AS function
        FROM {schema}.minutes o WHERE o.at = g.at) n
    GROUP BY g.at, {key}
    ON CONFLICT (at, function, queue, outcome, reason, kind) DO UPDATE SET
        count = m.count + excluded.count, started = m.started + excluded.started,
        late_ms = m.late_ms + excluded.late_ms, took_ms = m.took_ms + excluded.took_ms,
        late = {schema}.add_counts(m.late, excluded.late), took = {schema}.add_counts(m.took, excluded.took)
), reopened AS (
    UPDATE {schema}.closed_minutes SET is_summed = false WHERE at IN (SELECT at FROM hours) AND EXISTS (SELECT FROM groups)
)
SELECT count(*) FROM done

-- name: adopt_minutes
-- Cuts the minutes off from the transactions of another server, after the changes of closed minutes are applied: its ids mean nothing
-- here. Changes from now on are in no snapshot. A minute that was to be counted again is counted again, with what is there.
WITH gone AS (
    DELETE FROM {schema}.minute_changes
)
UPDATE {schema}.closed_minutes SET xact = pg_current_xact_id()::text::bigint, snapshot = '1:1:',
    horizon = CASE WHEN horizon IS NOT NULL THEN 1 END

-- name: next_hour
-- Locks and clears the next hour that is over and not added up as its minutes are now, unless another ticker adds it up.
WITH hour AS MATERIALIZED (
    SELECT at, at - interval '59 minutes' AS begin FROM {schema}.closed_minutes WHERE NOT is_summed
    ORDER BY at LIMIT 1 FOR UPDATE SKIP LOCKED
), marked AS (
    UPDATE {schema}.closed_minutes c SET is_summed = true FROM hour h WHERE c.at = h.at
), cleared AS (
    DELETE FROM {schema}.hours o USING hour h WHERE o.at = h.begin
), cleared_queues AS (
    DELETE FROM {schema}.queue_hours o USING hour h WHERE o.at = h.begin
)
SELECT begin AS at FROM hour

-- name: sum_hour
WITH groups AS MATERIALIZED (
    SELECT * FROM {schema}.minutes WHERE at >= %(at)s::timestamptz AND at < %(at)s::timestamptz + interval '1 hour' AND count <> 0
), summed AS (
    INSERT INTO {schema}.hours {rolled_up}
)
INSERT INTO {schema}.queue_hours
SELECT %(at)s::timestamptz, queue, sum(samples), sum(listening), sum(busy), sum(waiting), max(needed) FROM {schema}.queue_minutes
WHERE at >= %(at)s::timestamptz AND at < %(at)s::timestamptz + interval '1 hour' GROUP BY queue

-- name: prune_minutes
-- Deletes up to `limit` rows of each table that are older than `keep_ms`, or 400 days for hours. Returns how many.
WITH old AS MATERIALIZED (
    SELECT n.now - %(keep_ms)s::bigint * interval '1 millisecond' AS minute, n.now - interval '400 days' AS hour FROM (SELECT {now} AS now) n
), ends AS (
    DELETE FROM {schema}.minutes WHERE ctid = ANY (ARRAY(SELECT ctid FROM {schema}.minutes WHERE at < (SELECT minute FROM old) LIMIT %(limit)s)) RETURNING 1
), hours AS (
    DELETE FROM {schema}.hours WHERE ctid = ANY (ARRAY(SELECT ctid FROM {schema}.hours WHERE at < (SELECT hour FROM old) LIMIT %(limit)s)) RETURNING 1
), queues AS (
    DELETE FROM {schema}.queue_minutes WHERE ctid = ANY (ARRAY(SELECT ctid FROM {schema}.queue_minutes WHERE at < (SELECT minute FROM old) LIMIT %(limit)s)) RETURNING 1
), queue_hours AS (
    DELETE FROM {schema}.queue_hours WHERE ctid = ANY (ARRAY(SELECT ctid FROM {schema}.queue_hours WHERE at < (SELECT hour FROM old) LIMIT %(limit)s)) RETURNING 1
), closed AS (
    DELETE FROM {schema}.closed_minutes WHERE ctid = ANY (ARRAY(SELECT ctid FROM {schema}.closed_minutes WHERE at < (SELECT minute FROM old) LIMIT %(limit)s)) RETURNING 1
)
SELECT count(*) FROM (SELECT FROM ends UNION ALL SELECT FROM hours UNION ALL SELECT FROM queues UNION ALL SELECT FROM queue_hours UNION ALL SELECT FROM closed) g
