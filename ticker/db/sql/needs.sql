--
-- How many workers each queue needs. The thread that counts minutes measures that every two minutes (ticker/daemon/needs.py).

-- name: last_needs
-- Returns whether the needs are newer than `every_ms`, and by how much the table of tasks is larger than what is read of it (12 MB).
SELECT EXISTS (SELECT FROM {schema}.minutes m WHERE m.outcome = '' AND m.at BETWEEN i.now - interval '1 hour' AND i.now
        AND (m.demand->>'at')::timestamptz BETWEEN i.now - %(every_ms)s::bigint * interval '1 millisecond' AND i.now) AS are_new,
    greatest(pg_relation_size('{schema}.tasks'::regclass) / 12e6, 1)::float8 AS weight
FROM (SELECT {now} AS now) i

-- rule: demanded
-- What the demand of the task t, with its announced function f, has in common. `overhead`: seconds for which a run occupies a worker
-- besides itself, for the fork and RQ (python -m tests.bench worker), and less in a job with others.
t.queue, t.function, coalesce(f.concurrency, 1) AS concurrency, t.limits, CASE WHEN f.batch > 1 THEN 0.003 ELSE 0.02 END::float8 AS overhead

-- name: demand
-- Adds up what the tasks that may run ask for, read from a sample of the table's pages in which each stands for `weight` tasks.
-- `rate`: starts per second of interval tasks; none runs more often than ticks push. `window`: the two ticks of the next hour in
-- which `tasks` of them are due. A limit or an ended pause spreads them. `others`: tasks with other schedules. `waiting`: occurrences
-- of these, and planned runs, that were pushed. `longest`: seconds after which a run is killed.
SELECT {demanded t}, e.window, count(e.every) * %(weight)s::float8 AS tasks, coalesce(sum(1 / e.every), 0) * %(weight)s::float8 AS rate,
    count(*) - count(e.every) AS others,
    coalesce(sum(cardinality(t.waiting)) FILTER (WHERE e.every IS NULL), 0) * %(weight)s::float8 AS waiting,
    max(t.box_ms + t.grace_ms) / 1000.0::float8 AS longest
FROM (SELECT {now} AS now) i, {schema}.tasks t TABLESAMPLE SYSTEM ((100 / %(weight)s)::float4) REPEATABLE (1) {announced t}, LATERAL (
    SELECT CASE WHEN t.kind = 'interval' THEN greatest({interval_ms t}, %(tick_ms)s) / 1000.0::float8 END AS every,
        CASE WHEN t.kind = 'interval' AND t.limits IS NULL AND t.pause_id IS NULL AND t.next_run < i.now + interval '1 hour'
            THEN floor(greatest(date_part('epoch', t.next_run - i.now), 0) * 500 / %(tick_ms)s) END AS window) e
WHERE NOT {inactive t} AND NOT {kept_waiting t} AND t.next_run IS NOT NULL
GROUP BY t.queue, t.function, f.concurrency, f.batch, t.limits, e.window
UNION ALL
SELECT {demanded t}, NULL, 0, 0, 0, count(*), max(t.box_ms + t.grace_ms) / 1000.0::float8
FROM {schema}.runs r JOIN {schema}.tasks t ON t.id = r.task_id {announced t}
WHERE r.state = 'pushed' GROUP BY t.queue, t.function, f.concurrency, f.batch, t.limits

-- name: capacities
-- Returns how many runs of these keys may be active, and how many may start per second. Null where it is not limited.
SELECT t.key, {places t} AS places, 1e6::float8 * t.burst / t.token_us AS rate FROM {schema}.limited_keys t WHERE t.key = ANY (%(keys)s::text[])

-- name: measured
-- Adds up the starts per second of the last hour, of scheduled runs and of others, and the durations, in each queue and in all
-- (null). Of functions that have not started in it, adds up the durations of the last eight days.
WITH recent AS MATERIALIZED (
    SELECT m.* FROM {schema}.minutes m, {schema}.installation i
    WHERE m.at >= i.counted_until - interval '1 hour' AND m.at < i.counted_until AND m.started > 0
)
SELECT function, queue, coalesce(sum(started) FILTER (WHERE kind = 'scheduled'), 0) / 3600.0::float8 AS scheduled,
    coalesce(sum(started) FILTER (WHERE kind <> 'scheduled'), 0) / 3600.0::float8 AS others, sum(took_ms) / 1000.0::float8 AS took,
    {schema}.sum_counts(took) AS counts
FROM recent GROUP BY GROUPING SETS ((function, queue), (function))
UNION ALL
SELECT o.function, o.queue, 0, 0, sum(o.took_ms) / 1000.0::float8, {schema}.sum_counts(o.took)
FROM {schema}.hours o, {schema}.installation i
WHERE o.at >= i.counted_until - interval '8 days' AND o.started > 0 AND o.function NOT IN (SELECT function FROM recent)
GROUP BY GROUPING SETS ((o.function, o.queue), (o.function))

-- name: write_needs
-- Notes the needs in the present minute, in place of the former ones.
WITH i AS MATERIALIZED (
    SELECT n.now, date_trunc('minute', n.now, 'UTC') AS minute FROM (SELECT {now} AS now) n
), forgotten AS (
    UPDATE {schema}.minutes m SET demand = NULL FROM i
    WHERE m.outcome = '' AND m.at > i.now - interval '1 day' AND m.demand IS NOT NULL AND (m.at <> i.minute OR m.queue <> ALL (%(queues)s::text[]))
)
INSERT INTO {schema}.minutes (at, queue, needed, demand)
SELECT i.minute, n.queue, n.needed, n.demand || jsonb_build_object('at', i.now)
FROM i, unnest(%(queues)s::text[], %(needed)s::integer[], %(demands)s::jsonb[]) AS n (queue, needed, demand) ORDER BY n.queue
ON CONFLICT (at, function, queue, outcome, reason, kind) DO UPDATE SET needed = excluded.needed, demand = excluded.demand

-- name: needs
-- Returns the needs by queue, with the largest need of the last day, and the workers that the last tick saw: `crews` of those that
-- listen to the same queues.
SELECT n.queue, n.needed, (n.demand->>'at')::timestamptz AS at, (n.demand->>'average')::float8 AS average,
    (n.demand->'functions')::text AS functions, date_part('epoch', i.now - (n.demand->>'at')::timestamptz) AS age, (
        SELECT max(m.needed) FROM {schema}.minutes m WHERE m.outcome = '' AND m.queue = n.queue AND m.at > i.now - interval '1 day') AS peak,
    (SELECT last_report -> 'crews' FROM {schema}.tickers WHERE last_report ? 'crews' ORDER BY last_tick_at DESC LIMIT 1)::text AS crews
FROM (SELECT {now} AS now) i, {schema}.minutes n
WHERE n.outcome = '' AND n.demand IS NOT NULL AND n.at > i.now - interval '1 day' ORDER BY n.queue
