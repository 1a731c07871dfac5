-- Limits by key, as people declare and see them. Triggers apply them to the keys in use. Starts take their slots (`take_slots` in
-- 6_limits.sql).

-- name: lock_limits
-- Taken before limits change. Two transactions that change limits and then use new keys would wait for each other.
LOCK TABLE {schema}.limits IN SHARE ROW EXCLUSIVE MODE

-- name: declare_limit
INSERT INTO {schema}.limits AS l (key, concurrency, rate, period_ms, burst, by, updated_at)
SELECT %(key)s::text, %(concurrency)s::int, %(rate)s::int, %(period_ms)s::bigint, %(burst)s::int,
    left(coalesce(%(by)s, {author}), 200), {now}
ON CONFLICT (key) DO UPDATE SET concurrency = excluded.concurrency, rate = excluded.rate, period_ms = excluded.period_ms,
    burst = excluded.burst, by = excluded.by, updated_at = excluded.updated_at
WHERE (l.concurrency, l.rate, l.period_ms, l.burst)
    IS DISTINCT FROM (excluded.concurrency, excluded.rate, excluded.period_ms, excluded.burst)

-- name: remove_limit
DELETE FROM {schema}.limits WHERE key = %(key)s

-- name: release_key
UPDATE {schema}.limited_keys SET closed_until = NULL, closed_step = 0 WHERE key = %(key)s AND closed_until > {now} RETURNING key

-- name: find_limit
SELECT key, concurrency, rate, period_ms, burst, by, updated_at FROM {schema}.limits WHERE key = %(key)s

-- name: declared_limits
-- Returns the limits that `ticker sync` compares: those that modules declare, or that have one of these keys.
SELECT key, declared_in, registered::text AS registered FROM {schema}.limits
WHERE declared_in <> '' OR key = ANY (%(keys)s::text[]) ORDER BY key

-- name: note_declaration
-- Notes which module declares a limit, and its declaration.
UPDATE {schema}.limits SET declared_in = %(declared_in)s, registered = %(registered)s::text::jsonb WHERE key = %(key)s

-- name: list_limits
-- Limited keys in use, keys that are held, and limits without a key in use. The keys with most waiting tasks come first.
WITH i AS (SELECT {now} AS now), waiting AS (
    SELECT u.key, count(*)::int AS waiting FROM {schema}.tasks t, unnest(t.limits) AS u (key)
    WHERE {limited t} AND t.next_run <= (SELECT now FROM i) GROUP BY u.key
), keys AS (
    SELECT key, limited_by, CASE WHEN closed_until > (SELECT now FROM i) THEN closed_until END AS closed_until, allowed
    FROM {schema}.limited_keys
    UNION ALL SELECT key, key, NULL, NULL FROM {schema}.limits l
    WHERE NOT EXISTS (SELECT FROM {schema}.limited_keys k WHERE k.limited_by = l.key)
), chosen AS MATERIALIZED (
    SELECT k.*, coalesce(w.waiting, 0) AS waiting FROM keys k LEFT JOIN waiting w ON w.key = k.key
    WHERE k.limited_by IS NOT NULL OR k.closed_until IS NOT NULL OR k.allowed IS NOT NULL
    ORDER BY waiting DESC, k.key LIMIT %(limit)s
)
SELECT k.key, k.limited_by, l.concurrency, l.rate, l.period_ms, l.burst, k.closed_until, k.allowed, k.waiting, s.active, s.tokens
FROM chosen k LEFT JOIN {schema}.limits l ON l.key = k.limited_by, LATERAL (
    SELECT (count(*) FILTER (WHERE kind = 'run' AND until > (SELECT now FROM i)))::int AS active,
        (CASE WHEN bool_or(kind = 'start') THEN l.burst - count(*) FILTER (WHERE kind = 'start' AND n <= l.burst AND until > (SELECT now FROM i)) END)::int
            AS tokens
    FROM {schema}.slots WHERE key = k.key) s
ORDER BY k.waiting DESC, k.key

-- name: limits_held_too_long
-- Returns the limits of the tasks that a limit has kept waiting for over an interval, and the number of these tasks.
SELECT k.limited_by AS key, count(DISTINCT t.id)::int AS tasks
FROM (SELECT id, limits FROM {schema}.tasks t
      WHERE {waits_too_long_for_room t} AND NOT {of_unknown_function t} ORDER BY next_run LIMIT %(most)s) t
    JOIN {schema}.limited_keys k ON k.key = ANY (t.limits)
WHERE k.limited_by IS NOT NULL GROUP BY k.limited_by ORDER BY k.limited_by

-- rule: runs_of_keys
-- The oldest active runs with a slot of each key.
SELECT k.key, h.* FROM unnest(%(keys)s::text[]) AS k (key), LATERAL (
    SELECT r.id AS run_id, r.task_id, r.task_name, r.owner_type, r.owner_id, {subject r} AS subject,
        r.started_at AS since
    FROM {schema}.slots s JOIN {schema}.runs r ON r.token = s.token AND r.state = 'running'
    WHERE s.key = k.key AND s.kind = 'run' AND s.until > (SELECT now FROM i) ORDER BY r.started_at, r.id LIMIT %(limit)s) h

-- name: oldest_runs_of_keys
WITH i AS (SELECT {now} AS now)
{runs_of_keys}

-- name: users_of_keys
-- Returns the oldest active runs with a slot of each key, and its tasks that have been due for longest.
WITH i AS (SELECT {now} AS now)
{runs_of_keys}
UNION ALL
SELECT key, NULL, id, name, owner_type, owner_id, subject, next_run FROM (
    SELECT u.key, t.id, t.name, t.owner_type, t.owner_id, t.subject, t.next_run,
        row_number() OVER (PARTITION BY u.key ORDER BY t.next_run, t.id) AS n
    FROM {schema}.tasks t, unnest(t.limits) AS u (key)
    WHERE {limited t} AND t.next_run <= (SELECT now FROM i) AND u.key = ANY (%(keys)s::text[])) w
WHERE n <= %(limit)s
ORDER BY since, task_id
