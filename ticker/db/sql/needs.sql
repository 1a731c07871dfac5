--
-- How many workers each queue needs. The thread that closes minutes measures that every few minutes (ticker/daemon/needs.py).

-- name: last_needs
-- Returns whether the needs are newer than `every_ms`, how many seconds ago the last tick began, and by how much the table of tasks
-- is larger than what is read of it (12 MB).
SELECT EXISTS (SELECT FROM {schema}.needs WHERE at > i.now - %(every_ms)s::bigint * interval '1 millisecond' AND at <= i.now) AS are_new,
    coalesce(date_part('epoch', i.now - (SELECT max(last_tick_at) FROM {schema}.tickers)), 0) AS ticked,
    greatest(pg_relation_size('{schema}.tasks'::regclass) / 12e6, 1)::float8 AS weight
FROM (SELECT {now} AS now) i

-- name: demand
-- Lists what is due of the tasks that may run, or of those on a sample of the table's pages. Only for interval tasks without limits
-- is it known when they run: `every` is null for the others. No task runs more often than ticks push. Tasks that have waited for a
-- pause are let go within their interval.
SELECT t.queue, t.function, {packed t} AS batch, coalesce(f.concurrency, 1) AS concurrency, e.every, t.phase_ms IS NOT NULL AS is_spread,
    CASE WHEN t.pause_id IS NULL THEN date_part('epoch', t.next_run - i.now) ELSE e.every * mod(t.id * 0.6180339887498949, 1)::float8 END AS due
FROM (SELECT {now} AS now) i, {schema}.tasks t TABLESAMPLE SYSTEM (%(percent)s::float4) REPEATABLE (1) {announced t}, LATERAL (
    SELECT CASE WHEN t.kind = 'interval' AND t.limits IS NULL THEN greatest({interval_ms t}, %(tick_ms)s) / 1000.0::float8 END AS every) e
WHERE NOT {inactive t} AND NOT {kept_waiting t} AND t.next_run IS NOT NULL
ORDER BY t.id

-- name: measured
-- Adds up what has started in the last hour, with the seconds that were measured. Of functions that have not, adds up the last
-- eight days, for their durations (`seconds` is null).
WITH n AS MATERIALIZED (
    SELECT max(at) + interval '1 minute' AS until, max(at) - interval '59 minutes' AS since FROM {schema}.closed_minutes
), recent AS MATERIALIZED (
    SELECT m.* FROM {schema}.minutes m, n WHERE m.at >= n.since AND m.at < n.until AND m.started > 0
)
SELECT function, queue, outcome, kind, sum(started)::bigint AS started, sum(took_ms)::float8 / 1000 AS took, {schema}.sum_counts(took) AS counts,
    (SELECT count(*) * 60.0 FROM {schema}.closed_minutes c, n WHERE c.at >= n.since)::float8 AS seconds
FROM recent GROUP BY function, queue, outcome, kind
UNION ALL
SELECT function, queue, outcome, kind, sum(started), sum(took_ms)::float8 / 1000, {schema}.sum_counts(took), NULL
FROM {schema}.hours, n WHERE at >= n.until - interval '8 days' AND started > 0 AND function NOT IN (SELECT function FROM recent)
GROUP BY function, queue, outcome, kind

-- name: write_need
-- Stores the need of a queue, and notes it in the present minute.
WITH i AS MATERIALIZED (
    SELECT {now} AS now
), noted AS (
    INSERT INTO {schema}.queue_minutes AS m (at, queue, needed)
    SELECT date_trunc('minute', i.now, 'UTC'), %(queue)s, %(enough)s::integer FROM i WHERE %(enough)s::integer IS NOT NULL
    ON CONFLICT (at, queue) DO UPDATE SET needed = greatest(m.needed, excluded.needed)
)
INSERT INTO {schema}.needs AS o (queue, at, average, enough, functions)
SELECT %(queue)s, i.now, %(average)s, %(enough)s::integer, %(functions)s::jsonb FROM i
ON CONFLICT (queue) DO UPDATE SET at = excluded.at, average = excluded.average, enough = excluded.enough, functions = excluded.functions

-- name: forget_needs
-- Deletes the needs of other queues: no task uses them any more.
DELETE FROM {schema}.needs WHERE queue <> ALL (%(queues)s::text[])

-- name: needs
-- Returns the needs by queue, with the largest need of the last day, and the workers that the last tick saw: `crews` of those that
-- listen to the same queues.
SELECT n.queue, n.at, n.average, n.enough, n.functions::text AS functions, date_part('epoch', i.now - n.at) AS age, (
        SELECT max(m.needed) FROM {schema}.queue_minutes m WHERE m.queue = n.queue AND m.at > i.now - interval '1 day') AS peak,
    (SELECT last_report -> 'crews' FROM {schema}.tickers WHERE last_report ? 'crews' ORDER BY last_tick_at DESC LIMIT 1)::text AS crews
FROM (SELECT {now} AS now) i, {schema}.needs n ORDER BY n.queue
