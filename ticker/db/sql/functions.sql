-- Functions: what workers have announced, and which functions of tasks no worker has announced. If none has announced any, nothing
-- is known about them. A start since its last edit shows that a worker knows the function of a task.

-- rule: unknown_function
(NOT EXISTS (SELECT FROM {schema}.functions f WHERE f.name = t.function) AND EXISTS (SELECT FROM {schema}.functions f)
    AND coalesce(t.last_run < t.updated_at, true))

-- rule: unknown_queue
-- Workers have announced queues, but not that of the task.
(NOT EXISTS (SELECT FROM {schema}.functions f WHERE t.queue = ANY (f.queues))
    AND EXISTS (SELECT FROM {schema}.functions f WHERE f.queues <> '{}'))

-- rule: unknown_functions
-- The names of functions of tasks that no worker has announced. Reads the index once for each of the first 1,000 names.
(WITH RECURSIVE names AS (
    (SELECT function FROM {schema}.tasks ORDER BY function LIMIT 1)
    UNION ALL
    SELECT (SELECT o.function FROM {schema}.tasks o WHERE o.function > names.function ORDER BY o.function LIMIT 1)
    FROM names WHERE function IS NOT NULL)
SELECT function FROM (SELECT function FROM names WHERE function IS NOT NULL LIMIT 1000) n
WHERE EXISTS (SELECT FROM {schema}.functions f) AND NOT EXISTS (SELECT FROM {schema}.functions f WHERE f.name = n.function))

-- rule: of_unknown_function
(t.function = ANY (ARRAY{unknown_functions}) AND {unknown_function t})

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

-- name: functions
-- Returns the functions that workers have announced.
SELECT name, batch, concurrency, repeatable, queues, announced_at FROM {schema}.functions ORDER BY name

-- rule: missing_functions
-- Functions that no worker has announced, each with a task that has been waiting for it for a minute. A deployment may start its
-- workers last.
(SELECT w.id, w.function, w.declared_in FROM {unknown_functions} u, LATERAL (
    SELECT o.id, o.function, o.declared_in FROM {schema}.tasks o
    WHERE o.function = u.function AND {runnable o} AND {unknown_function o}
      AND o.updated_at < {now} - interval '1 minute' LIMIT 1) w)

-- name: missing_functions
SELECT function, declared_in FROM {missing_functions} m ORDER BY function

-- name: unreported_functions
-- Returns the missing functions that no event names yet.
SELECT m.id, m.function FROM {missing_functions} m
WHERE NOT EXISTS (SELECT FROM {schema}.events e WHERE e.what = 'unknown_function' AND e.function = m.function)
