-- Functions: what workers have announced, and which functions of tasks no worker has announced. If none has announced any, nothing
-- is known about them. A start since its last edit shows that a worker knows the function of a task.

-- rule: announcements
-- What workers have announced. They announce again every hour: what they have not is forgotten. An application says only how a job may
-- run a function.
(SELECT * FROM {schema}.functions WHERE announced_at > clock_timestamp() - interval '3 hours')

-- rule: unknown_function
-- Either a worker did not know the function, and the task waits for one that does.
({waits_for_worker t} OR coalesce(t.wait_reason = 'unknown_here', false) OR NOT EXISTS (SELECT FROM {announcements} f WHERE f.name = t.function) AND EXISTS (SELECT FROM {announcements} f)
    AND coalesce(t.last_run < t.updated_at, true))

-- rule: unknown_queue
-- Workers have announced queues, but not that of the task.
(NOT EXISTS (SELECT FROM {announcements} f WHERE t.queue = ANY (f.queues))
    AND EXISTS (SELECT FROM {announcements} f WHERE f.queues <> '{}'))

-- rule: unknown_functions
-- The names of functions of tasks that no worker has announced. Reads the index once for each of the first 1,000 names.
(WITH RECURSIVE names AS (
    (SELECT function FROM {schema}.tasks ORDER BY function LIMIT 1)
    UNION ALL
    SELECT (SELECT o.function FROM {schema}.tasks o WHERE o.function > names.function ORDER BY o.function LIMIT 1)
    FROM names WHERE function IS NOT NULL)
SELECT function FROM (SELECT function FROM names WHERE function IS NOT NULL LIMIT 1000) n
WHERE EXISTS (SELECT FROM {announcements} f) AND NOT EXISTS (SELECT FROM {announcements} f WHERE f.name = n.function))

-- rule: of_unknown_function
(t.function = ANY (ARRAY(SELECT p.value FROM {schema}.pauses p WHERE p.scope = 'unknown' AND p.resumed_at IS NULL
        UNION {unknown_functions})) AND {unknown_function t})

-- name: announce
-- Announces the functions of a worker. States for each how many tasks one job may carry, how many of them run at the same
-- time, and whether an interrupted run is retried even without retries. Adds the worker's queues to those of other workers.
INSERT INTO {schema}.functions AS o (name, batch, concurrency, repeatable, queues, announced_at)
SELECT f.*, %(queues)s::text[], clock_timestamp() FROM unnest(
    %(names)s::text[], %(batches)s::integer[], %(concurrencies)s::integer[], %(repeatables)s::boolean[]) AS f (name)
ORDER BY f.name
ON CONFLICT (name) DO UPDATE SET batch = excluded.batch, concurrency = excluded.concurrency,
    repeatable = excluded.repeatable, announced_at = excluded.announced_at,
    queues = ARRAY(SELECT DISTINCT unnest(o.queues || excluded.queues) ORDER BY 1)

-- name: declare_functions
-- Stores how a job may run the tasks of functions, as the application that has registered them says before a worker announces them.
-- With `replaces`, also changes what is stored. Otherwise an application's transaction stores what is missing, unless another one
-- does: none waits for another.
INSERT INTO {schema}.functions AS o (name, batch, concurrency, repeatable)
SELECT f.* FROM unnest(%(names)s::text[], %(batches)s::integer[], %(concurrencies)s::integer[], %(repeatables)s::boolean[])
    AS f (name, batch, concurrency, repeatable)
WHERE %(replaces)s::boolean OR NOT EXISTS (SELECT FROM {schema}.functions k WHERE k.name = f.name)
    AND pg_try_advisory_xact_lock('{schema}.functions'::regclass::oid::bigint)
ORDER BY f.name
ON CONFLICT (name) DO UPDATE SET batch = excluded.batch, concurrency = excluded.concurrency, repeatable = excluded.repeatable
    WHERE (o.batch, o.concurrency, o.repeatable) IS DISTINCT FROM (excluded.batch, excluded.concurrency, excluded.repeatable)

-- name: functions
-- Returns the functions that workers have announced.
SELECT name, batch, concurrency, repeatable, queues, announced_at FROM {announcements} f ORDER BY name

-- rule: missing_functions
-- Functions that no worker has announced, each with a task that has been waiting for it for a minute, as a deployment may start its
-- workers last; and functions that a worker did not know. `is_new`: within this minute.
(SELECT DISTINCT ON (w.function) w.* FROM (
    SELECT o.*, false AS is_new FROM {unknown_functions} u, LATERAL (
        SELECT o.id, o.function, o.declared_in FROM {schema}.tasks o
        WHERE o.function = u.function AND {wanted o} AND {unknown_function o} AND o.updated_at < {now} - interval '1 minute' LIMIT 1) o
    UNION ALL
    SELECT o.*, p.paused_at >= {now} - interval '1 minute' FROM {schema}.pauses p, LATERAL (
        SELECT t.id, t.function, t.declared_in FROM {schema}.tasks t WHERE t.function = p.value AND t.queue = p.of_queue AND {wanted t} LIMIT 1) o
    WHERE p.scope = 'unknown' AND p.resumed_at IS NULL) w ORDER BY w.function, w.is_new)

-- name: missing_functions
SELECT function, declared_in, is_new FROM {missing_functions} m ORDER BY function

-- name: unreported_functions
-- Returns the missing functions that no event names yet.
SELECT m.id, m.function FROM {missing_functions} m
WHERE NOT is_new AND NOT EXISTS (SELECT FROM {schema}.events e WHERE e.what = 'unknown_function' AND e.function = m.function)
