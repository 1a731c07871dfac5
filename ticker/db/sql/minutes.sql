--
-- Minutes: what ended in each minute and hour. A thread of each ticker runs these statements (ticker/daemon/minutes.py). A minute is
-- counted when it has been over for 70 s, and once more twelve minutes later: a worker may write an end so late, or correct it.

-- name: prepare_to_count
-- Gives the statements of this transaction more time, and lets them group with a hash table: the planner expects too many rows.
SELECT set_config('statement_timeout', '60s', true), set_config('enable_sort', 'off', true)

-- name: next_minute
-- Claims and clears the next minute to count, with the hour that it completes. A second count goes first. Returns no row if there is
-- none, or if another ticker is counting. Begins with the last hour, or after an outage with the last 30 days. If the clock was set
-- back, minutes are counted again when they are over again.
WITH held AS MATERIALIZED (
    SELECT counted_until, counted_twice_until, date_trunc('minute', {now} - interval '130 seconds', 'UTC') AS newest
    FROM {schema}.installation FOR NO KEY UPDATE SKIP LOCKED
), waiting AS (
    SELECT h.newest, least(greatest(h.counted_until, s.second), h.newest + interval '1 minute') AS first, s.second,
        s.second <= h.newest - interval '12 minutes' AS is_second
    FROM held h, LATERAL (SELECT least(h.newest - interval '11 minutes', greatest(h.newest - interval '30 days',
        coalesce(h.counted_twice_until, h.newest - interval '72 minutes'))) AS second) s
), next AS MATERIALIZED (
    SELECT n.at, w.is_second, w.newest, n.at = date_trunc('hour', n.at, 'UTC') + interval '59 minutes' AS completes_hour,
        greatest(w.first, least(n.at, w.newest) + interval '1 minute') AS counted_until,
        CASE WHEN w.is_second THEN n.at + interval '1 minute' ELSE w.second END AS counted_twice_until
    FROM waiting w, LATERAL (SELECT CASE WHEN w.is_second THEN w.second ELSE w.first END AS at) n
), marked AS (
    UPDATE {schema}.installation i SET counted_until = n.counted_until, counted_twice_until = n.counted_twice_until
    FROM next n WHERE (i.counted_until, i.counted_twice_until) IS DISTINCT FROM (n.counted_until, n.counted_twice_until)
), cleared AS (
    DELETE FROM {schema}.minutes m USING next n WHERE m.at = n.at AND m.outcome <> '' AND n.at <= n.newest
), cleared_hour AS (
    DELETE FROM {schema}.hours o USING next n WHERE o.at = date_trunc('hour', n.at, 'UTC') AND n.completes_hour AND n.at <= n.newest
)
SELECT at, is_second, completes_hour FROM next WHERE at <= newest

-- rule: ended_in_minute
-- The end t is in the minute. Names all values of the leading columns of the index (owner_type, outcome or reason, ended_at).
t.owner_type = ANY (ARRAY(SELECT owner_type FROM types WHERE owner_type IS NOT NULL))
        AND t.ended_at >= %(at)s::timestamptz AND t.ended_at < %(at)s::timestamptz + interval '1 minute'

-- rule: added_up
-- Adds up `groups`, separately for the 200 functions with most ends. What ticks saw of a queue has the function ''.
coalesce(f.function, '(other)'), g.queue, g.outcome, g.reason, g.kind, sum(g.count)::integer, sum(g.started)::integer,
    sum(g.late_ms)::bigint, sum(g.took_ms)::bigint

-- rule: of_largest_functions
FROM groups g LEFT JOIN (
        SELECT function FROM groups GROUP BY function ORDER BY function = '' DESC, sum(count) DESC, function LIMIT 200) f
    ON f.function = g.function
GROUP BY f.function, g.queue, g.outcome, g.reason, g.kind

-- name: count_minute
-- Counts what ended in the minute.
{types_of_owners}, types AS (
    SELECT owner_type FROM types_of_runs UNION SELECT owner_type FROM types_of_drops
), ended AS (
    SELECT r.*, '' AS why FROM {schema}.runs r
    WHERE {ended_in_minute r} AND r.outcome = ANY (%(outcomes)s::text[]) AND r.outcome <> 'dropped'
    UNION ALL
    SELECT r.*, r.reason FROM {schema}.runs r
    WHERE {ended_in_minute r} AND r.reason = ANY (%(reasons)s::text[]) AND r.outcome = 'dropped'
), counted AS (
    SELECT e.function, coalesce(e.queue, '') AS queue, e.outcome, e.why AS reason, e.kind, b.late, b.took, count(*)::integer AS count,
        coalesce(sum(m.late_ms), 0) AS late_ms, coalesce(sum(m.took_ms), 0) AS took_ms
    FROM ended e, LATERAL (SELECT
        CASE WHEN e.started_at IS NOT NULL
            THEN greatest(0, round(1000 * date_part('epoch', e.started_at - coalesce(e.due_at, e.occurrence)))) END AS late_ms,
        CASE WHEN e.started_at IS NOT NULL AND e.pieces IS NULL AND e.outcome <> 'lost'
            THEN greatest(0, round(1000 * date_part('epoch', e.ended_at - e.started_at))) END AS took_ms) m, LATERAL (SELECT
        width_bucket(m.late_ms, ARRAY[1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000, 256000, 512000, 1024000,
            2048000]::float8[]) AS late,
        width_bucket(m.took_ms, ARRAY[50, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 51200, 102400, 204800, 409600,
            819200, 1638400]::float8[]) AS took) b
    GROUP BY e.function, e.queue, e.outcome, e.why, e.kind, b.late, b.took
), groups AS MATERIALIZED (
    SELECT c.*, CASE WHEN c.late IS NULL THEN 0 ELSE c.count END AS started,
        CASE WHEN c.late IS NULL THEN '{}' ELSE array_fill(0, ARRAY[c.late]) || c.count END AS lates,
        CASE WHEN c.took IS NULL THEN '{}' ELSE array_fill(0, ARRAY[c.took]) || c.count END AS tooks
    FROM counted c
)
INSERT INTO {schema}.minutes (at, function, queue, outcome, reason, kind, count, started, late_ms, took_ms, late, took)
SELECT %(at)s::timestamptz, {added_up}, {schema}.sum_counts(g.lates), {schema}.sum_counts(g.tooks) {of_largest_functions}

-- name: sum_hour
-- Adds up the minutes of the hour that %(at)s completes, and all functions and queues for the chart, in rows of the function `(all)`.
WITH groups AS MATERIALIZED (
    SELECT * FROM {schema}.minutes WHERE at > %(at)s::timestamptz - interval '1 hour' AND at <= %(at)s::timestamptz
), of_all AS (
    INSERT INTO {schema}.hours (at, function, queue, outcome, reason, count, late, listening, busy)
    SELECT date_trunc('hour', %(at)s::timestamptz, 'UTC'), '(all)', '', outcome, reason, sum(count)::integer, {schema}.sum_counts(late),
        sum(listening), sum(busy)
    FROM groups GROUP BY outcome, reason
)
INSERT INTO {schema}.hours
    (at, function, queue, outcome, reason, kind, count, started, late_ms, took_ms, late, took, samples, listening, busy, waiting, needed)
SELECT date_trunc('hour', %(at)s::timestamptz, 'UTC'), {added_up}, {schema}.sum_counts(g.late), {schema}.sum_counts(g.took),
    sum(g.samples), sum(g.listening), sum(g.busy), sum(g.waiting), max(g.needed)
{of_largest_functions}

-- name: measure_functions
-- Stores how long a run of each function takes: the mean of those that ended in the ten minutes up to %(at)s.
UPDATE {schema}.functions f SET mean_ms = m.mean_ms FROM (
    SELECT function, greatest(sum(took_ms) / sum(started), 1) AS mean_ms FROM {schema}.minutes
    WHERE at > %(at)s::timestamptz - interval '10 minutes' AND at <= %(at)s::timestamptz AND started > 0 AND outcome <> 'lost'
    GROUP BY function) m
WHERE f.name = m.function AND f.mean_ms IS DISTINCT FROM m.mean_ms
  AND f.name = ANY (ARRAY(SELECT name FROM {schema}.functions ORDER BY name FOR NO KEY UPDATE SKIP LOCKED))

-- name: pace
-- Returns how many runs ended per minute in the ten minutes that were counted last, without minutes before the
-- installation was created. Returns no row if no minute was counted in the last hour.
SELECT coalesce(sum(m.count), 0)::float8 / c.minutes AS pace
FROM (SELECT counted_until, least(10, floor(extract(epoch FROM counted_until - created_at) / 60)) AS minutes
    FROM {schema}.installation WHERE counted_until > {now} - interval '1 hour') c LEFT JOIN {schema}.minutes m
    ON m.at >= c.counted_until - c.minutes * interval '1 minute' AND m.at < c.counted_until AND m.outcome NOT IN ('', 'dropped')
WHERE c.minutes > 0 GROUP BY c.minutes

-- name: activity
-- Adds up what ended in each `step` from `since` on and before `until`, by outcome and reason, with starts by the
-- bucket of their lateness, and what ticks saw of workers (`outcome` is empty). Reads minutes, or else hours, and the
-- minutes after the last whole hour.
WITH whole AS MATERIALIZED (
    SELECT coalesce(date_trunc('hour', max(counted_until), 'UTC'), '-infinity') AS hour FROM {schema}.installation
), counted AS (
    SELECT at, outcome, reason, count, late, listening, busy FROM {schema}.hours
    WHERE NOT %(by_minute)s AND function = '(all)' AND at >= %(since)s::timestamptz AND at < least((SELECT hour FROM whole), %(until)s::timestamptz)
    UNION ALL
    SELECT at, outcome, reason, count, late, listening, busy FROM {schema}.minutes
    WHERE at >= greatest(%(since)s::timestamptz, CASE WHEN NOT %(by_minute)s THEN (SELECT hour FROM whole) END) AND at < %(until)s
)
SELECT date_bin(%(step)s::interval, at, %(since)s::timestamptz) AS at, outcome, reason, sum(count)::bigint AS count,
    ARRAY[sum(late[1]), sum(late[2]), sum(late[3]), sum(late[4]), sum(late[5]), sum(late[6]), sum(late[7]),
        sum(late[8]), sum(late[9]), sum(late[10]), sum(late[11]), sum(late[12]), sum(late[13])]::bigint[] AS late,
    sum(listening)::bigint AS listening, sum(busy)::bigint AS busy
FROM counted GROUP BY 1, 2, 3

-- name: counted_until
SELECT counted_until FROM {schema}.installation

-- name: prune_minutes
-- Deletes up to `limit` minutes that are older than `minutes`, and hours older than `hours`. Returns how many rows.
WITH i AS MATERIALIZED (
    SELECT {now} AS now
), old_minutes AS (
    DELETE FROM {schema}.minutes WHERE ctid = ANY (ARRAY(
        SELECT m.ctid FROM {schema}.minutes m WHERE m.at < (SELECT now FROM i) - %(minutes)s::interval LIMIT %(limit)s)) RETURNING 1
), old_hours AS (
    DELETE FROM {schema}.hours WHERE ctid = ANY (ARRAY(
        SELECT o.ctid FROM {schema}.hours o WHERE o.at < (SELECT now FROM i) - %(hours)s::interval LIMIT %(limit)s)) RETURNING 1
)
SELECT count(*) FROM (SELECT FROM old_minutes UNION ALL SELECT FROM old_hours) g
