--
-- A thread next to the ticks runs these statements for each scrape (ticker/metrics). Every record lives for at least two
-- hours, whatever its task keeps, so that each record is counted.

-- name: count_ended
-- Counts the records that ended at or after `since` and before `until`: runs by function and outcome, drops by function
-- and reason. Also returns the delays, durations and used quotas of runs by function, in buckets, with their sums. The
-- bounds of the buckets are negated, largest first, so that a value equal to a bound belongs to it. A run in pieces
-- lasts as long as its pieces, and the end of a lost run is unknown: neither has a duration. `until` of a run is the end
-- of its grace, which the record itself does not contain.
-- OFFSET 0 keeps each query to the range of one owner type and one outcome in the index, however many rows there are.
{types_of_owners}, ended AS MATERIALIZED (
    SELECT r.* FROM types_of_runs t, unnest(%(outcomes)s::text[]) AS o (outcome), LATERAL (
        SELECT function, outcome, pushed_at, started_at, until, ended_at,
            CASE kind WHEN 'scheduled' THEN occurrence ELSE due_at END AS due,
            pieces IS NULL AND outcome <> 'lost' AS is_timed,
            CASE WHEN every_ms BETWEEN 1 AND 9999 THEN every_ms / 10 ELSE 1000 END * interval '1 millisecond' AS grace
        FROM {schema}.runs
        WHERE owner_type = t.owner_type AND outcome = o.outcome AND outcome <> 'dropped'
          AND ended_at >= %(since)s::timestamptz AND ended_at < %(until)s::timestamptz OFFSET 0) r
), dropped AS MATERIALIZED (
    SELECT d.* FROM types_of_drops t, unnest(%(reasons)s::text[]) AS o (reason), LATERAL (
        SELECT function, reason FROM {schema}.runs
        WHERE owner_type = t.owner_type AND reason = o.reason AND outcome = 'dropped'
          AND ended_at >= %(since)s::timestamptz AND ended_at < %(until)s::timestamptz OFFSET 0) d
), spans AS (
    SELECT function, started_at - due AS start_delay, started_at - pushed_at AS queue_delay,
        CASE WHEN is_timed THEN ended_at - started_at END AS duration,
        CASE WHEN is_timed AND until > started_at + grace THEN until - started_at - grace END AS box
    FROM ended WHERE started_at IS NOT NULL
), measured AS (
    SELECT s.function, m.family, m.bounds, greatest(m.value, 0) AS value
    FROM spans s, LATERAL (VALUES
        ('ticker_start_delay_seconds', extract(epoch FROM s.start_delay)::float8, %(delays)s::float8[]),
        ('ticker_queue_delay_seconds', extract(epoch FROM s.queue_delay)::float8, %(delays)s::float8[]),
        ('ticker_run_duration_seconds', extract(epoch FROM s.duration)::float8, %(durations)s::float8[]),
        ('ticker_run_quota_used_ratio', (extract(epoch FROM s.duration) / extract(epoch FROM s.box))::float8,
            %(shares)s::float8[])
    ) AS m (family, value, bounds)
    WHERE m.value IS NOT NULL
)
SELECT 'ticker_runs_total' AS family, function, outcome AS word, NULL::int AS bound, count(*), 0::float8 AS sum
FROM ended GROUP BY function, outcome
UNION ALL
SELECT 'ticker_drops_total', function, reason, NULL, count(*), 0 FROM dropped GROUP BY function, reason
UNION ALL
SELECT family, function, NULL, cardinality(bounds) - width_bucket(-value, bounds) AS bound, count(*), sum(value)
FROM measured GROUP BY family, function, bounds, bound

-- name: oldest_due
-- Returns the seconds for which the longest overdue task has been due, among the first 1,000 by time; 0 if no task is
-- due. Time in which a task was disabled or paused does not count.
WITH instant AS MATERIALIZED (SELECT {now} AS now)
SELECT greatest((SELECT extract(epoch FROM (SELECT now FROM instant) - min(greatest(t.next_run, t.resumed_at))) FROM (
    SELECT next_run, resumed_at FROM {schema}.tasks
    WHERE {unlimited} AND next_run <= (SELECT now FROM instant)
    ORDER BY next_run LIMIT 1000) t), 0)::float8 AS seconds

-- name: use_of_pauses
SELECT (SELECT count(*) FROM {schema}.pauses p WHERE {in_force p} AND p.scope <> 'unknown') AS in_force,
    (SELECT count(*) FROM (SELECT FROM {schema}.tasks WHERE pause_id IS NOT NULL LIMIT %(most)s) t) AS waiting

-- name: waiting_in_queues
-- Returns, for each queue with waiting jobs of tasks, how many seconds ago its oldest occurrence was due.
SELECT queue, greatest(extract(epoch FROM {now} - min(waiting[1])), 0)::float8
    AS seconds
FROM {schema}.tasks WHERE waiting <> '{}' GROUP BY queue ORDER BY queue

-- name: use_of_limits
-- Adds up the use of each declared limit over its keys in use, for the first limits by key. A task counts as waiting if the
-- limit has kept it for over an interval.
WITH i AS MATERIALIZED (
    SELECT {now} AS now
), waiting AS (
    SELECT u.key, count(*) AS waiting FROM {schema}.tasks t, unnest(t.limits) AS u (key)
    WHERE {waits_too_long_for_room t} GROUP BY u.key
), used AS (
    SELECT key, count(*) FILTER (WHERE kind = 'run') AS active, count(*) FILTER (WHERE kind = 'start' AND n <= k.burst) AS starts
    FROM {schema}.slots s JOIN {schema}.limited_keys k USING (key) WHERE s.until > (SELECT now FROM i) GROUP BY key
)
SELECT l.key, l.concurrency * greatest(count(k.key), 1) AS concurrency, l.burst * greatest(count(k.key), 1) AS burst,
    CASE WHEN l.concurrency > 0 THEN coalesce(sum(u.active), 0)::bigint END AS active,
    CASE WHEN l.burst > 0 THEN coalesce(sum(u.starts), 0)::bigint END AS starts,
    coalesce(sum(w.waiting), 0)::bigint AS waiting, count(*) FILTER (WHERE k.closed_until > (SELECT now FROM i)) AS closed
FROM (SELECT * FROM {schema}.limits ORDER BY key LIMIT %(limit)s) l LEFT JOIN {schema}.limited_keys k ON k.limited_by = l.key
    LEFT JOIN used u ON u.key = k.key LEFT JOIN waiting w ON w.key = k.key
GROUP BY l.key, l.concurrency, l.burst
