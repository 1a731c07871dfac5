-- rule: in_state
-- The ids of the tasks in the state. An index finds them; the sub-selects of other states never run.
SELECT id FROM {schema}.tasks WHERE %(state)s::text = 'failing' AND failures > 0
    UNION ALL
    SELECT id FROM {late_tasks t} l WHERE %(state)s::text = 'late'
    UNION ALL
    (SELECT id FROM {schema}.tasks t WHERE %(state)s::text = 'no_room' AND {waits_for_room t} ORDER BY next_run LIMIT %(most)s + 1)
    UNION ALL
    SELECT id FROM {in_full_queues t} t WHERE %(state)s::text = 'queue_full'
    UNION ALL
    SELECT id FROM {in_turns t} t WHERE %(state)s::text = 'waits_for_its_turn'
    UNION ALL
    SELECT id FROM {schema}.tasks WHERE %(state)s::text = 'paused' AND {is_paused}
    UNION ALL
    SELECT id FROM {schema}.tasks WHERE %(state)s::text = 'inactive' AND {inactive}
    UNION ALL
    SELECT id FROM {schema}.tasks WHERE %(state)s::text = 'unknown_function' AND {of_unknown_function}
    UNION ALL
    SELECT id FROM {schema}.tasks WHERE %(state)s::text = 'waiting' AND waiting <> '{}'
    UNION ALL
    SELECT task_id FROM {schema}.runs WHERE %(state)s::text = 'running' AND state = 'running'

-- rule: paused
-- Up to twice %(most)s tasks that are paused. An index finds those that are paused by themselves or wait for a pause. Those that a
-- pause of many covers are found among the first %(most)s tasks.
(SELECT id FROM (SELECT * FROM {schema}.tasks ORDER BY id LIMIT CASE WHEN {is_any_paused} THEN %(most)s ELSE 0 END) t WHERE {covered t}
        UNION
        (SELECT id FROM {schema}.tasks WHERE {is_paused} LIMIT %(most)s)) t

-- rule: in_full_queues
-- Up to twice %(most)s tasks that wait for a full queue, oldest first.
((SELECT id FROM {schema}.tasks t WHERE {unlimited t} AND {for_queue t} ORDER BY next_run LIMIT %(most)s + 1)
        UNION ALL
        (SELECT id FROM {schema}.tasks t WHERE {limited t} AND {for_queue t} ORDER BY next_run LIMIT %(most)s + 1))

-- rule: in_turns
-- Up to %(most)s suspected tasks that wait for their turn.
(SELECT id FROM {schema}.tasks t WHERE {for_turn t} ORDER BY alone_until LIMIT %(most)s + 1)

-- rule: state_of_wait
-- The state of a task that the last tick has left, by what has kept it. Empty for all others.
CASE WHEN NOT coalesce({seen_waiting t}, false) THEN '' WHEN {in_full_queue t} THEN 'queue_full' WHEN {is_alone t} THEN 'waits_for_its_turn'
        WHEN {may_be_full t} THEN 'no_room' ELSE '' END

-- rule: last_reason
-- The reason of the last run of the task, if it is kept. It is a sub-select, so that no plan reads all runs.
(SELECT r.reason FROM {schema}.runs r WHERE r.id = t.last_run_id)

-- rule: picked
-- The task matches all filters that are not null, apart from its state. Filters without an index are also in sub-selects.
(%(owner_type)s::text IS NULL OR t.owner_type = %(owner_type)s)
  AND (%(owner_id)s::text IS NULL OR t.owner_id = %(owner_id)s)
  AND (%(name)s::text IS NULL OR t.name = (SELECT %(name)s::text))
  AND (%(function)s::text IS NULL OR t.function = (SELECT %(function)s::text))
  AND (%(queue)s::text IS NULL OR t.queue = (SELECT %(queue)s::text))
  AND (%(group)s::text IS NULL OR t.group_name = (SELECT %(group)s::text))
  AND (%(submitter)s::text IS NULL OR t.submitter = (SELECT %(submitter)s::text))
  AND (%(cause)s::text IS NULL OR {failing t} AND t.cause = %(cause)s)
  AND (%(error)s::text IS NULL OR {failing t} AND position(lower(%(error)s) IN lower({last_reason t})) > 0)
  AND (%(failures)s::int IS NULL OR t.failures = %(failures)s)
  AND (%(search)s::text IS NULL
       OR position(lower(%(search)s) IN lower(concat_ws(' ', t.name, t.function, t.owner_type || ':' || t.owner_id, t.subject))) > 0)

-- name: list_tasks
-- Lists the tasks that match all filters that are not null, by id. With `state`, only the `first` tasks in that state are
-- looked at, limited to the page if there is no other filter. A large state is passed as `crowded` instead, because the
-- walk by id finds its tasks soon enough.
-- The planner must walk from `after` to `before`, but without the sub-selects of `picked`, it would read the
-- whole table for a value that it considers rare. Late tasks are read in order, because the planner expects a third of
-- all tasks to be late.
WITH chosen AS MATERIALIZED (
    {in_state t}
)
SELECT {task t} FROM {schema}.tasks t
WHERE (%(seen_types)s::text[] IS NULL OR id = ANY (ARRAY(SELECT o.id FROM {schema}.tasks o WHERE {seen o})))
  AND {picked t}
  AND (%(state)s::text IS NULL OR id = ANY (ARRAY(SELECT id FROM chosen WHERE id > %(after)s ORDER BY id LIMIT %(first)s::bigint)))
  AND (%(crowded)s::text IS NULL OR CASE (SELECT %(crowded)s::text) WHEN 'failing' THEN failures > 0
       WHEN 'late' THEN {late t} WHEN 'no_room' THEN {waits_for_room t}
       WHEN 'queue_full' THEN {for_queue t} WHEN 'waits_for_its_turn' THEN {for_turn t}
       WHEN 'outside_hours' THEN {runnable t} AND next_run IS NOT NULL
            AND (during, zone) IN (SELECT * FROM unnest(%(durings)s::text[], %(zones)s::text[]))
       WHEN 'paused' THEN {is_paused} OR {covered t} WHEN 'inactive' THEN {inactive}
       WHEN 'unknown_function' THEN {unknown_function} ELSE waiting <> '{}' END)
  AND id > %(after)s AND (%(before)s::bigint IS NULL OR id < %(before)s)
ORDER BY id
LIMIT %(limit)s

-- name: hours
-- Lists the hours of the tasks with ids from `after` to `before`.
SELECT DISTINCT during, zone FROM {schema}.tasks
WHERE during <> '' AND id > %(after)s AND (%(before)s::bigint IS NULL OR id < %(before)s)

-- name: is_crowded
-- Returns whether more than `most` tasks are in a state, or whether no index finds them: those that a pause of many covers.
SELECT count(*) > %(most)s OR %(state)s::text = 'paused' AND {is_any_paused} AS is_crowded FROM ({in_state t} LIMIT %(most)s + 1) t

-- name: task_behind
-- Skips `count` tasks after an id, and returns the next one.
SELECT id FROM {schema}.tasks WHERE id > %(after)s ORDER BY id OFFSET %(count)s LIMIT 1

-- name: last_occurrences_of
-- Returns the outcomes of the last occurrences of these tasks, which were due from `since` on, newest first. If one was retried, its
-- last attempt counts.
SELECT l.* FROM unnest(%(ids)s::bigint[]) AS t (id), LATERAL (
    SELECT r.task_id, a.id, a.state, a.outcome, a.reason, r.occurrence AS due
    FROM (SELECT * FROM {schema}.runs WHERE task_id = t.id AND kind = 'scheduled' AND occurrence >= coalesce(%(since)s::timestamptz, '-infinity')
            ORDER BY occurrence DESC LIMIT %(limit)s) r,
        LATERAL (SELECT r.id, r.state, r.outcome, r.reason, 0 AS attempt
            UNION ALL
            SELECT a.id, a.state, a.outcome, a.reason, a.attempt FROM {schema}.runs a
            WHERE r.retried AND a.parent_id = r.id AND a.kind = 'retry'
            ORDER BY attempt DESC LIMIT 1) a
    ORDER BY r.occurrence DESC) l

-- name: next_tasks
-- Lists the tasks that run next, nearest first. Includes tasks that are due but not late yet. Leaves out those that a pause of many
-- covers, and looks no further than a thousand of them.
WITH near AS MATERIALIZED (
    (SELECT * FROM {schema}.tasks WHERE {unlimited} AND next_run >= {late_bound} AND NOT {all_paused} ORDER BY next_run
     LIMIT CASE WHEN {is_any_paused} THEN 1000 ELSE %(limit)s::bigint END)
    UNION ALL
    (SELECT * FROM {schema}.tasks WHERE {limited} AND next_run >= {late_bound} AND NOT {all_paused} ORDER BY next_run
     LIMIT CASE WHEN {is_any_paused} THEN 1000 ELSE %(limit)s::bigint END)
)
SELECT {task t} FROM near t WHERE NOT {covered t} ORDER BY next_run LIMIT %(limit)s

-- name: due_by_second
-- Counts the runnable tasks by the second after `begin` in which they are due next, before `until`. Stops after `most` tasks.
SELECT floor(extract(epoch FROM next_run - %(begin)s::timestamptz))::integer AS second, count(*)::integer AS tasks FROM (
    SELECT next_run FROM {schema}.tasks t WHERE {unlimited t} AND next_run >= %(begin)s AND next_run < %(until)s::timestamptz
    UNION ALL
    SELECT next_run FROM {schema}.tasks t WHERE {limited t} AND next_run >= %(begin)s AND next_run < %(until)s::timestamptz
    ORDER BY next_run LIMIT %(most)s) d
GROUP BY second ORDER BY second

-- name: late_tasks
-- Lists late tasks that match the filters, those that have been due for longest first.
SELECT {task t} FROM {late_tasks t} l JOIN {schema}.tasks t USING (id) WHERE {picked t} AND {seen t}
ORDER BY l.since, id OFFSET %(skipped)s LIMIT %(limit)s

-- name: failing_tasks
-- Lists the failing tasks that match the filters, those with the most failures in a row first.
SELECT {task t} FROM {schema}.tasks t WHERE failures > 0 AND {picked t} AND {seen t}
ORDER BY failures DESC, id OFFSET %(skipped)s LIMIT %(limit)s

-- name: search_failing
-- Looks through the next `count` tasks in the order of `failing_tasks`, and lists those that match, each with its place there.
SELECT t.place, {task t} FROM (
    SELECT *, row_number() OVER (ORDER BY failures DESC, id) AS place FROM {schema}.tasks WHERE failures > 0
    ORDER BY failures DESC, id OFFSET %(skipped)s LIMIT %(count)s) t
WHERE {picked t} AND {seen t}
ORDER BY t.place LIMIT %(limit)s

-- name: failing_behind
-- Skips `count` tasks in the order of `failing_tasks`, and returns the next one.
SELECT id FROM {schema}.tasks WHERE failures > 0 ORDER BY failures DESC, id OFFSET %(count)s LIMIT 1

-- name: failing_causes
-- Groups failing tasks by cause, largest groups first, among the first thousand causes. `since` is when the first of up to a hundred
-- of them began to fail. Counting stops after %(most)s.
WITH RECURSIVE {causes t}, largest AS MATERIALIZED (
    SELECT c.cause, n.tasks FROM (SELECT cause FROM causes LIMIT 1000) c, LATERAL (
        SELECT count(*) AS tasks FROM (SELECT FROM {schema}.tasks t WHERE {failing t} AND t.cause = c.cause LIMIT %(most)s) t) n
    WHERE c.cause <> {late_cause} ORDER BY n.tasks DESC, c.cause LIMIT %(limit)s
)
SELECT l.cause, l.tasks, f.ids, (SELECT min(e.at) FROM unnest(f.ids) AS i (id), LATERAL (
        SELECT at FROM {schema}.events WHERE task_id = i.id AND what = 'failed' ORDER BY id DESC LIMIT 1) e) AS since
FROM largest l, LATERAL (SELECT array_agg(t.id) AS ids FROM (
    SELECT t.id FROM {schema}.tasks t WHERE {failing t} AND t.cause = l.cause ORDER BY t.id LIMIT 100) t) f
ORDER BY l.tasks DESC, l.cause

-- name: last_reasons
-- Returns the beginning of the last error of each of these tasks.
SELECT t.id, left({last_reason t}, 600) AS reason FROM {schema}.tasks t WHERE t.id = ANY (%(ids)s::bigint[])

-- name: none_succeeds
-- Returns whether tasks fail and no task that may run succeeded with its last run. It reads all tasks only if that is so.
SELECT EXISTS (SELECT FROM {schema}.tasks t WHERE {failing t}) AND NOT EXISTS (
    SELECT FROM {schema}.tasks t WHERE {runnable t} AND failures = 0 AND last_outcome IS NOT NULL) AS none_succeeds

-- name: tasks_by_id
SELECT {task t} FROM {schema}.tasks t WHERE id = ANY (%(ids)s::bigint[]) AND {seen t} ORDER BY id

-- name: graces
SELECT id, grace_ms FROM {schema}.tasks WHERE id = ANY (%(ids)s::bigint[])

-- name: running_runs
-- Lists the runs at work, the longest-running first.
SELECT id FROM {schema}.runs WHERE state = 'running' ORDER BY started_at, id LIMIT %(limit)s

-- rule: running
(SELECT count(*) FROM (SELECT FROM {schema}.runs WHERE state = 'running' LIMIT %(most)s) r)

-- name: running
SELECT {running t} AS running

-- rule: count_of_late
(SELECT least(count(*), %(most)s) FROM {late_tasks t} l)

-- name: late
SELECT {count_of_late t} AS late

-- name: counts
-- Counts the tasks, in total and in each state. Counting stops after %(most)s, and the size of a larger table is
-- estimated.
SELECT (SELECT CASE WHEN c.reltuples > %(most)s THEN c.reltuples::bigint
            ELSE (SELECT count(*) FROM (SELECT FROM {schema}.tasks LIMIT %(most)s + 1) t) END
        FROM pg_class c WHERE c.oid = '{schema}.tasks'::regclass) AS tasks,
    {count_of_late t} AS late,
    (SELECT count(*) FROM (SELECT FROM {schema}.tasks t WHERE {waits_for_room t} ORDER BY next_run LIMIT %(most)s) t) AS no_room,
    (SELECT least(count(*), %(most)s) FROM {in_full_queues t} t) AS queue_full,
    (SELECT least(count(*), %(most)s) FROM {in_turns t} t) AS waits_for_its_turn,
    (SELECT count(*) FROM (SELECT FROM {schema}.tasks WHERE failures > 0 LIMIT %(most)s) t) AS failing,
    (SELECT least(count(*), %(most)s) FROM {paused t}) AS paused,
    (SELECT count(*) FROM (SELECT FROM {schema}.tasks WHERE {inactive} LIMIT %(most)s) t) AS inactive,
    (SELECT count(*) FROM (SELECT FROM {schema}.tasks WHERE {of_unknown_function} LIMIT %(most)s) t) AS unknown_function,
    (SELECT count(*) FROM (SELECT FROM {schema}.tasks WHERE waiting <> '{}' LIMIT %(most)s) t) AS waiting,
    {running t} AS running,
    (SELECT count(*) FROM (
        SELECT FROM {schema}.runs WHERE {planned}
        UNION ALL SELECT FROM {schema}.runs WHERE {planned_piece}
        LIMIT %(most)s) r) AS planned

-- name: halved
-- Says whether and why the size of the groups of a function is halved.
SELECT {too_large f} AS words FROM {schema}.functions f WHERE f.name = %(function)s AND {is_halved f}

-- name: waiting_queues
-- Returns which of these queues contain waiting jobs of tasks. If a million wait, one of them is found at once; OFFSET
-- 0 keeps each query to the index of waiting tasks.
SELECT q.queue FROM unnest(%(queues)s::text[]) AS q (queue)
WHERE EXISTS (SELECT FROM {schema}.tasks t WHERE t.waiting <> '{}' AND t.queue = q.queue OFFSET 0) ORDER BY q.queue

-- name: list_owners
-- Lists owners and counts their tasks: those in trouble (failing, or late) first, then the others, each by type and id.
-- `failing`, `late` and `paused` say what counts as trouble. If the list `is_filtered`, it has only such owners. The
-- indexes of such tasks find them. If these indexes hold a `crowd`, and for the other owners, the statement walks the
-- tasks' key, which is in that order. The other owners are only read if the first part does not fill the page. A walk
-- filters whole owners (HAVING), so that the planner does not sort rows that it can walk. With `owner_id`, only this owner is read.
WITH suspects AS MATERIALIZED (
    (SELECT owner_type, owner_id FROM {schema}.tasks
     WHERE failures > 0 AND %(failing)s ORDER BY failures DESC, id LIMIT %(crowd)s)
    UNION ALL
    (SELECT owner_type, owner_id FROM {schema}.tasks t
     WHERE {late_due t} AND %(late)s ORDER BY next_run LIMIT %(crowd)s)
    UNION ALL
    (SELECT owner_type, owner_id FROM {schema}.tasks t
     WHERE {late_with_limits t} AND %(late)s ORDER BY next_run LIMIT %(crowd)s)
    UNION ALL
    (SELECT owner_type, owner_id FROM {schema}.tasks t
     WHERE {late_in_queue t} AND %(late)s LIMIT %(crowd)s)
    UNION ALL
    (SELECT owner_type, owner_id FROM {schema}.tasks
     WHERE {is_paused} AND %(paused)s ORDER BY id LIMIT %(crowd)s)
    UNION ALL
    (SELECT owner_type, owner_id FROM {schema}.tasks t
     WHERE {covered t} AND %(paused)s ORDER BY id LIMIT %(crowd)s)
    UNION ALL
    (SELECT owner_type, owner_id FROM {schema}.tasks
     WHERE {inactive} AND %(paused)s ORDER BY id LIMIT %(crowd)s)
), crowded AS MATERIALIZED (
    SELECT count(*) >= %(crowd)s AS yes FROM suspects
), first AS MATERIALIZED (
    (SELECT DISTINCT 0 AS rank, owner_type, owner_id FROM suspects
     WHERE NOT (SELECT yes FROM crowded) AND owner_type <> ''
       AND (%(owner_type)s::text IS NULL OR owner_type = %(owner_type)s::text)
       AND %(after_rank)s::int = 0 AND (owner_type, owner_id) > (%(after_type)s::text, %(after_id)s::text)
     ORDER BY owner_type, owner_id LIMIT %(limit)s)
    UNION ALL
    (SELECT 0, owner_type, owner_id FROM {schema}.tasks t
     WHERE (SELECT yes FROM crowded) AND owner_type <> ''
       AND (%(owner_type)s::text IS NULL OR owner_type = %(owner_type)s::text)
       AND %(after_rank)s::int = 0 AND (owner_type, owner_id) > (%(after_type)s::text, %(after_id)s::text)
     GROUP BY owner_type, owner_id
     HAVING bool_or(failures > 0 AND %(failing)s OR {late t} AND %(late)s OR ({is_paused} OR {covered t} OR {inactive}) AND %(paused)s)
     ORDER BY owner_type, owner_id LIMIT %(limit)s)
), others AS MATERIALIZED (
    SELECT 1 AS rank, owner_type, owner_id FROM {schema}.tasks t
    WHERE NOT %(is_filtered)s AND (SELECT count(*) FROM first) < %(limit)s
      AND owner_type <> '' AND (%(owner_type)s::text IS NULL OR owner_type = %(owner_type)s::text)
      AND (%(after_rank)s::int = 0 OR (owner_type, owner_id) > (%(after_type)s::text, %(after_id)s::text))
    GROUP BY owner_type, owner_id
    HAVING NOT bool_or(failures > 0 OR {late t})
    ORDER BY owner_type, owner_id LIMIT %(limit)s
)
SELECT c.* FROM (
        SELECT 0 AS rank, %(owner_type)s::text AS owner_type, %(owner_id)s::text AS owner_id WHERE %(owner_id)s::text IS NOT NULL
        UNION ALL
        (SELECT * FROM (SELECT * FROM first UNION ALL SELECT * FROM others) o WHERE %(owner_id)s::text IS NULL
         ORDER BY rank, owner_type, owner_id LIMIT %(limit)s)) o,
    LATERAL (
        SELECT t.owner_type, t.owner_id, min(nullif(t.subject, '')) AS subject, count(*)::int AS tasks, count(*) FILTER (WHERE failures > 0)::int AS failing,
            count(*) FILTER (WHERE {late t})::int AS late,
            count(*) FILTER (WHERE {is_paused} OR {covered t})::int AS paused,
            count(*) FILTER (WHERE {inactive})::int AS inactive,
            max(last_success_at) AS last_success,
            min(next_run) FILTER (WHERE {runnable}) AS next_run
        FROM {schema}.tasks t
        WHERE t.owner_type = o.owner_type AND t.owner_id = o.owner_id AND {seen t}
        GROUP BY t.owner_type, t.owner_id) c
ORDER BY o.rank, o.owner_type, o.owner_id

-- name: due_tasks
-- Lists, without locks, the tasks that a tick would push: tasks that are due, also those that wait for room under
-- a limit, and tasks whose pause has expired.
SELECT {task t} FROM {schema}.tasks t WHERE {unlimited t} AND {due t} AND NOT {covered t}
UNION ALL
SELECT {task t} FROM {schema}.tasks t WHERE {limited t} AND {due t} AND NOT {covered t}
UNION ALL
SELECT {task t} FROM {schema}.tasks t
WHERE enabled AND owner_active AND pause_id IS NULL AND NOT {covered t} AND paused_until <= %(now)s::timestamptz
  AND ({due t} OR kind = 'interval' AND next_run IS NOT NULL AND coalesce(push_after <= %(now)s::timestamptz, true))
ORDER BY next_run
LIMIT %(limit)s

-- name: use_of_keys
-- Returns the use of the limits of these keys, and how many tasks of each have jobs that wait. If a task is given, its own job does not
-- count, and `before` counts those that have been due for longer.
WITH i AS (SELECT {now} AS now), jobs AS MATERIALIZED (
    SELECT u.key, count(*) AS waiting FROM ({with_jobs t}) o, unnest(o.limits) AS u (key)
    WHERE (o.id = %(id)s::bigint) IS NOT TRUE GROUP BY u.key
)
SELECT k.key, {places k} AS places, k.burst, CASE WHEN k.closed_until > i.now THEN k.closed_until END AS closed_until,
    s.active, s.used, s.token_at, coalesce(j.waiting, 0) AS waiting, (
        SELECT count(*) FROM {schema}.tasks t, {schema}.tasks o WHERE t.id = %(id)s
            AND {limited o} AND o.next_run <= t.next_run AND k.key = ANY (o.limits) AND (o.next_run, o.id) < (t.next_run, t.id)) AS before
FROM i, {schema}.limited_keys k LEFT JOIN jobs j ON j.key = k.key, LATERAL (
        SELECT count(*) FILTER (WHERE kind = 'run') AS active, count(*) FILTER (WHERE kind = 'start' AND n <= k.burst) AS used,
            min(until) FILTER (WHERE kind = 'start' AND n <= k.burst) AS token_at
        FROM {schema}.slots WHERE key = k.key AND until > i.now) s
WHERE k.key = ANY (%(keys)s::text[])

-- name: left
-- Returns how many due tasks the last tick left in full queues.
SELECT key AS queue, value AS count FROM jsonb_each_text({left})

-- name: wait_for_turn
-- Returns which of these tasks wait for their turn.
SELECT id FROM {schema}.tasks t WHERE id = ANY (%(ids)s::bigint[]) AND {waits_for_turn t}

-- name: keys_at
-- Returns the keys of a task that were closed at a time in the past, or of which runs were active that still are. Of others, nothing
-- is stored.
SELECT k.key, {places k} AS places, CASE WHEN k.closed_at <= %(at)s AND k.closed_until > %(at)s THEN k.closed_at END AS closed_at, k.closed_until, s.active
FROM {schema}.tasks t, unnest(t.limits) WITH ORDINALITY AS u (key, n) JOIN {schema}.limited_keys k ON k.key = u.key, LATERAL (
        SELECT count(*) AS active FROM {schema}.slots s JOIN {schema}.runs r ON r.token = s.token AND r.state = 'running'
        WHERE s.key = k.key AND s.kind = 'run' AND r.started_at <= %(at)s) s
WHERE t.id = %(task_id)s AND (s.active > 0 OR k.closed_at <= %(at)s AND k.closed_until > %(at)s) ORDER BY u.n

-- name: list_runs
-- Lists runs without their output, which is up to 64 kB each.
SELECT {run} FROM {schema}.runs
WHERE (%(outcome)s::text IS NULL OR outcome = %(outcome)s) AND (%(before)s::bigint IS NULL OR id < %(before)s)
ORDER BY id DESC
LIMIT %(limit)s

-- name: runs_of_task
-- Lists the runs of one task by their ids. One index has its scheduled and manual runs, another its retries and pieces.
-- (The planner must not see the task's id: see `last_occurrences`.)
SELECT id FROM (
    (SELECT id FROM {schema}.runs WHERE task_id = (SELECT %(task_id)s::bigint) AND kind IN ('scheduled', 'manual')
        AND (%(outcome)s::text IS NULL OR outcome = %(outcome)s) AND (%(before)s::bigint IS NULL OR id < %(before)s)
     ORDER BY id DESC LIMIT %(limit)s)
    UNION ALL
    (SELECT id FROM {schema}.runs WHERE task_id = (SELECT %(task_id)s::bigint) AND kind IN ('retry', 'piece')
        AND (%(outcome)s::text IS NULL OR outcome = %(outcome)s) AND (%(before)s::bigint IS NULL OR id < %(before)s)
     ORDER BY id DESC LIMIT %(limit)s)) r
ORDER BY id DESC LIMIT %(limit)s

-- name: runs_by_id
SELECT {run} FROM {schema}.runs WHERE id = ANY (%(ids)s::bigint[]) AND {seen} ORDER BY id

-- name: read_run
SELECT {run}, output, error_output FROM {schema}.runs WHERE id = %(id)s AND {seen}

-- name: runs_of_parents
-- Lists the retries of these runs, or their pieces, in the order of their creation, after an id.
SELECT id FROM {schema}.runs
WHERE parent_id = ANY (%(parents)s::bigint[]) AND kind = %(kind)s AND id > %(after)s ORDER BY id LIMIT %(limit)s

-- name: attempts_of_piece
-- Lists all attempts of a piece, itself included, in the order of their creation.
SELECT a.id FROM {schema}.runs p JOIN {schema}.runs a ON a.parent_id = p.parent_id AND a.kind = 'piece'
WHERE p.id = %(id)s AND a.item IS NOT DISTINCT FROM p.item ORDER BY a.id LIMIT %(limit)s

-- name: waiting_notices
-- Lists the notices that have not been delivered yet, oldest first.
SELECT n.event_id, n.channel, n.tries, n.due_at, n.error, e.at, e.what, e.task_id, coalesce(e.task_name, '') AS task_name,
    coalesce(e.owner_type, '') AS owner_type, coalesce(e.owner_id, '') AS owner_id
FROM {schema}.notices n LEFT JOIN {schema}.events e ON e.id = n.event_id
WHERE n.cause = '' OR n.tries > 0
ORDER BY n.event_id, n.channel LIMIT %(limit)s

-- name: tick_ms
-- Returns the tick of the ticker that is alive.
SELECT {tick_ms} AS tick_ms

-- name: paused_one_by_one
-- Counts the tasks that people have paused by themselves, by who did. Counting stops after %(most)s.
SELECT p.by, count(*) AS tasks FROM (
    SELECT paused_by AS by FROM {schema}.tasks WHERE {is_paused} AND paused_by NOT IN ('ticker', 'template') LIMIT %(most)s) p
GROUP BY p.by ORDER BY tasks DESC, p.by

-- name: failing_pushes
-- Returns the task that has been due longest of those whose last push failed, and their number. Reads the indexes of what is due.
SELECT count(*) OVER () AS count, t.id, t.name, t.push_error AS error FROM (
    SELECT * FROM {schema}.tasks t WHERE {unlimited t} AND t.next_run <= (SELECT clock_timestamp())
    UNION ALL SELECT * FROM {schema}.tasks t WHERE {limited t} AND t.next_run <= (SELECT clock_timestamp())) t
WHERE t.push_errors > 0 ORDER BY t.next_run, t.id LIMIT 1

-- name: tickers
SELECT t.id, t.host, t.pid, t.started_at, t.last_tick_at, t.last_report::text AS last_report, t.failure,
    greatest(round(1000 * extract(epoch FROM i.now - t.failing_since))::bigint, 0) AS failing_ms,
    round(1000 * extract(epoch FROM i.now - t.last_tick_at))::bigint AS age_ms,
    s.seen_at, round(1000 * extract(epoch FROM i.now - s.seen_at))::bigint AS seen_ms,
    round(1000 * extract(epoch FROM {silent_at t} - s.seen_at))::bigint AS patience_ms
FROM (SELECT clock_timestamp() AS now) i, {schema}.tickers t, LATERAL (SELECT greatest(t.last_tick_at, t.seen_at) AS seen_at) s
ORDER BY s.seen_at DESC NULLS LAST

-- name: pieces_of
-- Returns the progress of the pieces of these runs. A piece that was retried counts by its last attempt.
SELECT parent_id, count(*) FILTER (WHERE outcome IN {good_outcomes}) AS done,
    count(*) FILTER (WHERE (outcome IN {bad_outcomes} OR outcome = 'dropped') AND NOT retried) AS failed,
    count(*) FILTER (WHERE state <> 'ended') AS open
FROM {schema}.runs WHERE parent_id = ANY (%(parents)s::bigint[]) AND kind = 'piece'
GROUP BY parent_id

-- name: last_occurrences
-- Lists the newest runs and drops of a task that are not retries or pieces. Here and below, a sub-select hides the
-- task's id. Otherwise the planner would go through the runs of all tasks to find the newest of a task with many runs.
SELECT id FROM {schema}.runs
WHERE task_id = (SELECT %(task_id)s::bigint) AND kind IN ('scheduled', 'manual')
ORDER BY id DESC LIMIT %(limit)s

-- name: occurrences_around
-- Returns the occurrences and the manual runs of a task that were due last at that time, and the first ones after it.
(SELECT id FROM {schema}.runs
 WHERE task_id = (SELECT %(task_id)s::bigint) AND kind = 'scheduled' AND occurrence <= %(at)s::timestamptz
 ORDER BY occurrence DESC LIMIT %(limit)s)
UNION ALL
(SELECT id FROM {schema}.runs
 WHERE task_id = (SELECT %(task_id)s::bigint) AND kind = 'scheduled' AND occurrence > %(at)s::timestamptz
 ORDER BY occurrence LIMIT 1)
UNION ALL
(SELECT id FROM {schema}.runs
 WHERE task_id = (SELECT %(task_id)s::bigint) AND kind = 'manual' AND due_at <= %(at)s::timestamptz
 ORDER BY due_at DESC LIMIT %(limit)s)
UNION ALL
(SELECT id FROM {schema}.runs
 WHERE task_id = (SELECT %(task_id)s::bigint) AND kind = 'manual' AND due_at > %(at)s::timestamptz
 ORDER BY due_at LIMIT 1)

-- name: last_events
SELECT {event} FROM {schema}.events WHERE task_id = %(task_id)s AND {seen} ORDER BY id DESC LIMIT %(limit)s

-- name: events_by_id
SELECT {event} FROM {schema}.events WHERE id = ANY (%(ids)s::bigint[]) ORDER BY id

-- rule: types_of_owners
-- The types of owners of ended runs, and of drops ('' for no owner), each found after the previous one: there are few
-- types and many rows.
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

-- rule: in_page
-- The entry t of the journal is from `since` on, and before the end of the page.
t.ended_at >= coalesce(%(since)s::timestamptz, '-infinity')
    AND t.ended_at <= coalesce(%(before)s::timestamptz, 'infinity')
    AND (t.ended_at, t.id) < (coalesce(%(before)s::timestamptz, 'infinity'), %(before_run)s::bigint)

-- rule: of_outcomes
-- The run t has one of the outcomes, or is a drop for one of the reasons.
(t.outcome = ANY (%(outcomes)s::text[]) OR (t.outcome = 'dropped' AND t.reason = ANY (%(reasons)s::text[])))

-- rule: of_owner
-- The row belongs to the owner, or to an owner of the type, if one is given.
(%(owner_type)s::text IS NULL OR t.owner_type = %(owner_type)s)
    AND (%(owner_id)s::text IS NULL OR t.owner_id = %(owner_id)s) AND {seen t}

-- rule: of_text
-- The run t has this function and queue, and this text in its reason, as far as they are given.
(%(function)s::text IS NULL OR t.function = %(function)s) AND (%(queue)s::text IS NULL OR t.queue = %(queue)s)
    AND (%(search)s::text IS NULL OR position(lower(%(search)s) IN lower(t.reason)) > 0)

-- name: journal
-- Lists the newest ended runs and drops. Finds the newest of each type of owner and outcome (for a drop, its reason),
-- and returns those of the newest `most` that fit. The last of these `most` is returned in any case. `before` is where
-- the previous page ends.
{types_of_owners}
SELECT id, at, fits, number = %(most)s AS is_last FROM (
    SELECT id, ended_at AS at, fits, row_number() OVER (ORDER BY ended_at DESC, id DESC) AS number FROM (
        SELECT r.* FROM types_of_runs t, unnest(%(outcomes)s::text[]) AS o (outcome), LATERAL (
            SELECT id, ended_at, {of_text} AS fits FROM {schema}.runs
            WHERE owner_type = t.owner_type AND outcome = o.outcome AND outcome <> 'dropped' AND {in_page}
            ORDER BY ended_at DESC, id DESC LIMIT %(most)s) r
        WHERE %(owner_type)s::text IS NULL OR t.owner_type = %(owner_type)s
        UNION ALL
        SELECT d.* FROM types_of_drops t, unnest(%(reasons)s::text[]) AS o (reason), LATERAL (
            SELECT id, ended_at, {of_text} AS fits FROM {schema}.runs
            WHERE owner_type = t.owner_type AND reason = o.reason AND outcome = 'dropped' AND {in_page}
            ORDER BY ended_at DESC, id DESC LIMIT %(most)s) d
        WHERE %(owner_type)s::text IS NULL OR t.owner_type = %(owner_type)s) f) n
WHERE number <= %(most)s AND (fits OR number = %(most)s)
ORDER BY at DESC, id DESC LIMIT %(limit)s

-- name: journal_of_task
-- Does the same for one task, among its newest runs by creation, because an end follows soon. The same applies to its
-- retries and pieces. A run ends after its pieces, however many there are, so the run that they belong to is included,
-- too.
WITH heads AS MATERIALIZED (
    SELECT id FROM {schema}.runs
    WHERE task_id = (SELECT %(task_id)s::bigint) AND kind IN ('scheduled', 'manual') AND state = 'ended'
      AND {of_outcomes} AND {of_text} AND {in_page}
    ORDER BY id DESC LIMIT %(limit)s + 1000
), further AS MATERIALIZED (
    SELECT id, parent_id FROM {schema}.runs
    WHERE task_id = (SELECT %(task_id)s::bigint) AND kind IN ('retry', 'piece') AND state = 'ended'
      AND {of_outcomes} AND {of_text} AND {in_page}
    ORDER BY id DESC LIMIT %(limit)s + 1000
)
SELECT id, ended_at AS at FROM {schema}.runs
WHERE id = ANY (ARRAY(SELECT id FROM heads UNION SELECT id FROM further UNION SELECT parent_id FROM further))
  AND {of_outcomes} AND {of_text} AND {of_owner} AND {in_page}
ORDER BY ended_at DESC, id DESC LIMIT %(limit)s

-- name: journal_of_owner
-- Does the same for one owner, its deleted tasks included.
SELECT id, ended_at AS at FROM {schema}.runs
WHERE owner_type = %(owner_type)s AND owner_id = %(owner_id)s AND owner_type <> '' AND ended_at IS NOT NULL
  AND {of_outcomes} AND {of_text} AND {in_page} AND {seen}
ORDER BY ended_at DESC, id DESC LIMIT %(limit)s

-- name: journal_of_owners
-- Does the same for all owners that the viewer may see, and returns those of the newest `most` that fit, as `journal`
-- does. A few entries of each owner show how far back these may be, and to which owners they belong: twice its share,
-- because some owners have fewer.
WITH active AS MATERIALIZED (
    SELECT o.*, count(*) OVER () AS number
    FROM unnest(%(seen_types)s::text[], %(seen_ids)s::text[]) AS o (owner_type, owner_id), LATERAL (
        SELECT ended_at FROM {schema}.runs
        WHERE owner_type = o.owner_type AND owner_id = o.owner_id AND owner_type <> '' AND ended_at IS NOT NULL AND {in_page}
        ORDER BY ended_at DESC LIMIT 1) r
    WHERE %(owner_type)s::text IS NULL OR o.owner_type = %(owner_type)s
), few AS MATERIALIZED (
    SELECT o.*, r.at FROM active o, LATERAL (
        SELECT ended_at AS at FROM {schema}.runs
        WHERE owner_type = o.owner_type AND owner_id = o.owner_id AND owner_type <> '' AND ended_at IS NOT NULL AND {in_page}
        ORDER BY ended_at DESC LIMIT 2 * %(most)s / o.number + 1) r
), far AS MATERIALIZED (
    SELECT coalesce((SELECT at FROM few ORDER BY at DESC OFFSET %(most)s::bigint - 1 LIMIT 1), '-infinity') AS at
)
SELECT id, at, fits, number = %(most)s AS is_last FROM (
    SELECT r.*, row_number() OVER (ORDER BY at DESC, id DESC) AS number
    FROM (SELECT DISTINCT owner_type, owner_id FROM few WHERE at >= (SELECT at FROM far)) o, LATERAL (
        SELECT id, ended_at AS at, {of_outcomes} AND {of_text} AS fits FROM {schema}.runs
        WHERE owner_type = o.owner_type AND owner_id = o.owner_id AND owner_type <> '' AND ended_at IS NOT NULL AND {in_page}
          AND ended_at >= (SELECT at FROM far)
        ORDER BY ended_at DESC, id DESC LIMIT %(most)s) r) n
WHERE number <= %(most)s AND (fits OR number = %(most)s)
ORDER BY at DESC, id DESC LIMIT %(limit)s

-- name: journal_of_events
SELECT id, at FROM {schema}.events
WHERE at >= coalesce(%(since)s::timestamptz, '-infinity')
  AND at <= coalesce(%(before)s::timestamptz, 'infinity')
  AND (at, id) < (coalesce(%(before)s::timestamptz, 'infinity'), %(before_event)s::bigint)
  AND (%(task_id)s::bigint IS NULL OR task_id = %(task_id)s) AND {of_owner}
ORDER BY at DESC, id DESC LIMIT %(limit)s

-- name: drops
-- Counts the drops from `since` on and before `until` in groups (`by`), with the newest drop of each group as an
-- example. Reads only their range of the index, for each type of owner and reason.
{types_of_owners}
SELECT key, count(*) AS count, max(ended_at) AS newest, max(id) AS run_id
FROM types_of_drops t, unnest(%(reasons)s::text[]) AS o (reason), LATERAL (
    SELECT id, task_id, function, owner_id, ended_at FROM {schema}.runs
    WHERE outcome = 'dropped' AND owner_type = t.owner_type AND reason = o.reason AND {seen}
      AND ended_at >= coalesce(%(since)s::timestamptz, '-infinity') AND ended_at < coalesce(%(until)s::timestamptz, 'infinity')
    OFFSET 0) r, LATERAL (
    SELECT CASE %(by)s WHEN 'reason' THEN o.reason WHEN 'function' THEN r.function WHEN 'task' THEN r.task_id::text
        ELSE concat_ws(':', nullif(t.owner_type, ''), nullif(r.owner_id, '')) END AS key) k
GROUP BY key ORDER BY count(*) DESC, max(ended_at) DESC, key LIMIT %(limit)s

-- name: deleted_tasks
-- Returns the deleted ones of these tasks, named as in their newest record (those of `gone` may lack a name) or their
-- last event.
SELECT i.id, coalesce(r.task_name, e.task_name, '') AS task_name, coalesce(r.owner_type, e.owner_type, '') AS owner_type,
    coalesce(r.owner_id, e.owner_id, '') AS owner_id
FROM unnest(%(ids)s::bigint[]) AS i (id) LEFT JOIN LATERAL (
    SELECT task_name, owner_type, owner_id FROM {schema}.runs
    WHERE task_id = i.id AND kind IN ('scheduled', 'manual') AND task_name <> '' AND {seen} ORDER BY id DESC LIMIT 1) r ON true
    LEFT JOIN LATERAL (
    SELECT task_name, owner_type, owner_id FROM {schema}.events WHERE task_id = i.id AND {seen} ORDER BY id DESC LIMIT 1) e ON true
WHERE NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = i.id)

-- name: last_ends
-- Returns for each of these tasks the record of its last end, if it is kept. That is the end of its last run, or of an
-- occurrence that was lost later, before it started. OFFSET 0 keeps that query to the index of lost occurrences.
SELECT t.id AS task_id, coalesce(
    (SELECT r.id FROM {schema}.runs r WHERE r.id = t.last_run_id AND r.ended_at = t.last_ended_at),
    (SELECT max(l.id) FROM (
        SELECT r.id FROM {schema}.runs r
        WHERE r.task_id = t.id AND r.started_at IS NULL AND r.outcome = 'lost' AND r.ended_at = t.last_ended_at OFFSET 0) l)
    ) AS run_id
FROM {schema}.tasks t WHERE t.id = ANY (%(ids)s::bigint[])

-- name: server_version
SELECT current_setting('server_version') AS version
