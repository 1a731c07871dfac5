-- name: has_task
SELECT id FROM {schema}.tasks WHERE id = %(id)s

-- name: checkpoint
-- Sets where the next run continues. Only the run that holds the task may write it.
UPDATE {schema}.tasks SET cursor = %(cursor)s::text::jsonb
WHERE id = %(task_id)s AND run_token = %(token)s::uuid
RETURNING id

-- name: again
-- Makes the task due `after_ms` from now, once, but not before its next run may start, nor after `longest_ms`. Only the run that
-- holds the task may ask for it. Writes nothing if a later occurrence was pushed already, or the schedule is over.
WITH held AS MATERIALIZED (
    SELECT t.id, t.kind, l.ms AS longest_ms, n.at,
        t.kind = 'interval' AND t.next_run IS NOT NULL AND NOT {next_is_pushed t} AND coalesce(n.at <= t.ends_at, true) AS may_move
    FROM {schema}.tasks t, LATERAL (SELECT {longest_again t} AS ms) l, LATERAL (
        SELECT greatest({soonest_due t}, t.starts_at, {now} + least(%(after_ms)s::bigint, l.ms) * interval '1 millisecond') AS at) n
    WHERE t.id = %(task_id)s AND t.run_token = %(token)s::uuid FOR NO KEY UPDATE OF t
), changed AS (
    UPDATE {schema}.tasks t SET next_run = h.at, again_at = h.at
    FROM held h WHERE t.id = h.id AND h.may_move
    RETURNING t.next_run
)
SELECT kind, longest_ms, (SELECT next_run FROM changed) AS next_run FROM held

-- rule: ends_asked
-- The ends that a worker asks for. Each run ended `age` seconds before the statement.
(SELECT *, outcome IN {good_outcomes} AS good, outcome IN {bad_outcomes} AS bad
    FROM unnest(%(task_ids)s::bigint[], %(tokens)s::uuid[], %(outcomes)s::text[], %(reasons)s::text[], %(results)s::text[],
        %(tracebacks)s::text[], %(outputs)s::text[], %(error_outputs)s::text[], %(ages)s::float8[], %(pids)s::integer[],
        %(suspect_counts)s::integer[])
        AS u (task_id, token, outcome, reason, result, traceback, output, error_output, age, pid, suspects))

-- rule: ended_runs
-- Ends the runs that are `asked`, unless they are left to another statement.
held AS MATERIALIZED (
    SELECT id, run_token, retries, function, alone_until, share, {needs_follow_up} AS needs_follow_up
    FROM {schema}.tasks WHERE id = ANY (%(task_ids)s::bigint[]) FOR NO KEY UPDATE SKIP LOCKED
), measured AS MATERIALIZED (
    SELECT a.*, coalesce(%(now)s::timestamptz, statement_timestamp()) - a.age * interval '1 second' AS at,
        CASE WHEN a.bad THEN true WHEN a.good THEN h.needs_follow_up
             ELSE h.retries > 0 OR {repeatable h} END AS needs_follow_up,
        h.id IS NULL OR h.run_token IS NOT DISTINCT FROM a.token AS mine,
        h.id IS NULL AND EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = a.task_id) AS is_locked,
        h.alone_until IS NOT NULL AS was_alone
    FROM asked a LEFT JOIN held h ON h.id = a.task_id
), ended AS (
    UPDATE {schema}.runs r SET
        state = 'ended', outcome = m.outcome, reason = {reason_of_end m}, result = m.result::jsonb,
        traceback = m.traceback, output = m.output, error_output = m.error_output,
        ended_at = greatest(r.started_at, m.at), boot = NULL, uptime_us = NULL,
        pid = coalesce(m.pid, r.pid),
        follow_up = coalesce(m.needs_follow_up AND (NOT m.good OR r.kind <> 'piece')
            AND (m.outcome <> 'slowed_down' OR r.kind = 'retry'), false)
    FROM measured m
    WHERE r.id = (SELECT x.id FROM {schema}.runs x WHERE x.token = m.token AND x.state = 'running')
      AND r.outcome IS NULL AND (m.mine OR r.kind = 'piece') AND NOT m.is_locked AND NOT m.is_left
    RETURNING r.id, r.kind, r.started_at, r.ended_at, m.task_id, m.token, m.outcome, m.good, m.bad, m.suspects
), freed AS (
    UPDATE {schema}.tasks t SET
        run_token = NULL, running_until = NULL,
        last_run_id = e.id, last_outcome = e.outcome, last_ended_at = e.ended_at,
        last_success_at = CASE WHEN e.good THEN e.ended_at ELSE t.last_success_at END,
        last_worked_at = CASE WHEN e.outcome IN {work_outcomes} THEN e.ended_at ELSE t.last_worked_at END,
        failures = CASE WHEN e.good THEN 0 WHEN e.bad THEN {one_more_failure t} ELSE t.failures END,
        succeeded = t.succeeded + e.good::int, failed = t.failed + e.bad::int,
        alone_until = CASE
            WHEN e.outcome = 'killed' AND {grouped t} THEN e.ended_at + interval '1 hour'
            WHEN t.alone_until BETWEEN e.ended_at AND e.ended_at + interval '1 hour' THEN t.alone_until
            WHEN e.suspects > 0 THEN {open_end}
            WHEN e.outcome IN ('interrupted', 'lost') THEN t.alone_until END,
        share = CASE
            WHEN e.outcome = 'killed' OR e.suspects > 0 AND t.alone_until = {open_end} THEN 1
            WHEN e.suspects > 0 THEN ceil(sqrt(e.suspects))
            WHEN t.alone_until > e.ended_at OR e.outcome IN ('interrupted', 'lost') THEN t.share END,
        pace_ms = {pace t}, next_run = {paced t}
    FROM ended e
    WHERE t.id = e.task_id AND t.run_token = e.token
)

-- name: finish
-- Ends runs of different tasks, each fenced by its token: a run that lost its hold changes nothing (a piece has no hold to
-- lose). A run whose task is gone still ends. If another transaction has locked the task, nothing is written for that run
-- (`is_locked`), because this statement must not wait for one row while it holds others. A tick handles what follows from a
-- failure, and from a success after failures. For a task with retries it also counts the failures, because a failure that
-- is retried does not count. An interrupted run is not a failure. It is retried only if the task has retries, or if its
-- function is repeatable. The uptime of its start is no longer needed.
-- If a run has slots, or has died together with others, nothing is written (`is_left`): `finish_limited` ends it. So other
-- ends do not pay for that.
WITH asked AS MATERIALIZED (
    SELECT a.*, a.suspects > 0 OR EXISTS (SELECT FROM {schema}.slots s WHERE s.token = a.token OFFSET 0) AS is_left FROM {ends_asked} a
), {ended_runs t}
SELECT m.token, e.id AS run_id, m.is_locked, m.is_left, m.was_alone FROM measured m LEFT JOIN ended e ON e.token = m.token

-- name: finish_limited
-- Ends any runs in the same way, also those that have slots, or have died together with others.
-- If a process with several runs (`suspects`) died and the cause is unknown, their tasks are suspects until one of their runs has
-- ended. If a run of a function with groups is killed, its task is guilty, and runs alone for an hour. If a group dies whose tasks
-- have just been cleared in smaller parts, the group is too large: its size is halved for an hour.
-- The end frees the run's slots, and returns their `keys`. It may wait for a start that looks for a free one: a start waits for
-- nothing. A slot that this start takes, because its time has passed, is not freed. After a key was closed (`close_key`), each success doubles
-- how many runs of its key may be active.
WITH asked AS MATERIALIZED (
    SELECT a.*, false AS is_left FROM {ends_asked} a
), {ended_runs t}, halving AS MATERIALIZED (
    SELECT f.name, d.suspects, d.ended_at FROM {schema}.functions f JOIN (
        SELECT h.function, e.ended_at, max(e.suspects) AS suspects FROM ended e JOIN held h ON h.id = e.task_id AND h.run_token = e.token
        WHERE e.suspects > 0 AND h.alone_until IS NULL AND h.share BETWEEN 2 AND e.suspects - 1 GROUP BY h.function, e.ended_at) d ON f.name = d.function
    WHERE CASE WHEN f.halved_until BETWEEN d.ended_at AND d.ended_at + interval '1 hour'
        THEN f.halved_to > d.suspects / 2 AND f.halved_to < 2 * d.suspects ELSE f.concurrency < 2 * d.suspects END
    FOR NO KEY UPDATE OF f SKIP LOCKED
), halved AS (
    UPDATE {schema}.functions f SET halved_to = greatest(d.suspects / 2, 1), halved_until = d.ended_at + interval '1 hour'
    FROM halving d WHERE f.name = d.name
    RETURNING f.name, f.halved_to, f.halved_until
), noted AS (
    INSERT INTO {schema}.events (at, task_id, task_name, function, owner_type, owner_id, what, by, words)
    SELECT (SELECT max(ended_at) FROM ended), 0, '', name, '', '', 'group_too_large', 'worker', {too_large h} FROM halved h
), given_back AS (
    UPDATE {schema}.slots s SET token = NULL, until = NULL,
        took_ms = least(1000 * extract(epoch FROM e.ended_at - e.started_at), 1000000000)
    FROM ended e, LATERAL (SELECT x.key, x.kind, x.n FROM {schema}.slots x WHERE x.token = e.token OFFSET 0) x
    WHERE (s.key, s.kind, s.n) = (x.key, x.kind, x.n) AND s.token = e.token
    RETURNING s.key, e.good, e.started_at
), ramping AS MATERIALIZED (
    SELECT k.key, 2 * k.allowed AS allowed, coalesce(k.concurrency, {slow_start_most}) AS most FROM {schema}.limited_keys k
    WHERE k.key = ANY (ARRAY(SELECT key FROM given_back WHERE good)) AND k.allowed IS NOT NULL
      AND EXISTS (SELECT FROM given_back s WHERE s.key = k.key AND s.good AND coalesce(s.started_at >= k.closed_until, true))
    FOR NO KEY UPDATE SKIP LOCKED
), ramped AS (
    UPDATE {schema}.limited_keys k SET allowed = CASE WHEN r.allowed < r.most THEN r.allowed END, closed_step = 0
    FROM ramping r WHERE k.key = r.key
)
SELECT m.token, e.id AS run_id, m.is_locked, m.was_alone, ARRAY(SELECT key::text FROM given_back) AS keys
FROM measured m LEFT JOIN ended e ON e.token = m.token

-- name: wake_for_room
-- Notifies the tickers if runs of these tasks have ended that others waited for: a planned run or an occurrence of the task, tasks
-- that run alone (`was_alone`), or tasks with the `keys` whose slots were freed, which a tick has left because they had no room: one
-- of the 100 that have been due for longest, or maybe others, if there are more. Planned runs count without regard to their keys.
SELECT pg_notify('ticker_wake', %(schema)s) WHERE EXISTS (SELECT FROM {schema}.runs r
        WHERE r.task_id = ANY (%(task_ids)s::bigint[]) AND r.state IN ('planned', 'pushed') AND {planned r} AND r.due_at <= {now})
    OR EXISTS (SELECT FROM {schema}.tasks WHERE id = ANY (%(task_ids)s::bigint[]) AND wait_reason = 'still_running')
    OR %(was_alone)s::boolean AND EXISTS (SELECT FROM {suspects} o WHERE o.next_run <= {now})
    OR %(keys)s::text[] <> '{}' AND (
        coalesce((SELECT count(*) >= 100 OR bool_or(limits && %(keys)s::text[]) FROM (
            SELECT limits FROM {schema}.tasks WHERE {limited} AND next_run <= {now} ORDER BY next_run, id LIMIT 100) due), false)
        OR EXISTS (SELECT FROM {schema}.runs WHERE {planned} AND due_at <= {now})
        OR EXISTS (SELECT FROM {schema}.runs WHERE {planned_piece}))

-- name: close_key
-- Nobody starts a run of this key before a time: `for_ms` after the call, which was `age` seconds ago. Without `for_ms`, the
-- time is one minute, and it doubles with each hold since the last success, up to an hour. Runs that were already active when
-- the key was held do not double it. After the hold, one run may start first; each success doubles the number. If the clock was
-- set back since the key was last closed, that time begins again, as in `clamp_slots`.
WITH held AS MATERIALIZED (
    SELECT k.*, CASE WHEN k.closed_at > i.now + interval '1 second' THEN i.now + (k.closed_until - k.closed_at) ELSE k.closed_until END AS lasts_until
    FROM {schema}.limited_keys k, (SELECT {now} AS now) i WHERE k.key = %(key)s FOR NO KEY UPDATE OF k SKIP LOCKED
), step AS MATERIALIZED (
    SELECT h.key, h.concurrency, h.lasts_until, {now} - %(age)s::float8 * interval '1 second' AS at,
        CASE WHEN r.started_at < h.closed_until THEN greatest(h.closed_step - 1, 0) ELSE h.closed_step END AS step
    FROM held h LEFT JOIN {schema}.runs r ON r.id = %(run_id)s
), slots AS (
    INSERT INTO {schema}.slots (key, kind, n)
    SELECT s.key, 'run', n FROM step s, generate_series(1, {slow_start_most}) n WHERE s.concurrency IS NULL
    ON CONFLICT DO NOTHING
), changed AS (
    UPDATE {schema}.limited_keys k SET allowed = CASE WHEN s.lasts_until >= u.until THEN k.allowed ELSE 1 END,
        closed_step = CASE WHEN %(for_ms)s::bigint IS NULL THEN s.step + 1 ELSE k.closed_step END,
        closed_at = s.at, closed_until = greatest(s.lasts_until, u.until)
    FROM step s, LATERAL (SELECT s.at + coalesce(%(for_ms)s::bigint * interval '1 millisecond',
        least(interval '1 minute' * 2 ^ least(s.step, 10), interval '1 hour')) AS until) u WHERE k.key = s.key
    RETURNING k.closed_until
)
SELECT EXISTS (SELECT FROM {schema}.limited_keys WHERE key = %(key)s) AND NOT EXISTS (SELECT FROM held) AS is_locked,
    (SELECT closed_until FROM changed) AS closed_until

-- name: outcome_of
SELECT coalesce(outcome, state) AS outcome FROM {schema}.runs WHERE id = %(run_id)s AND token = %(token)s::uuid

-- name: finish_late
-- Ends a run that the sweep has declared lost. The end becomes the record, unless a later run of the task, or the next
-- attempt of the piece, has started. A success undoes the failure and its effects: a retry that has not started ends as
-- a `duplicate` (that of a piece does not count in the totals of its run). The next tick ends a pause, and undoes what
-- `follow_up` handles (a longer interval, a notice).
WITH held AS MATERIALIZED (
    SELECT * FROM {schema}.tasks WHERE id = %(task_id)s FOR NO KEY UPDATE
), run AS MATERIALIZED (
    SELECT r.* FROM {schema}.runs r, (SELECT count(id) FROM held) AS after_the_task
    WHERE r.id = %(run_id)s AND r.token = %(token)s::uuid AND r.outcome = 'lost' AND r.started_at IS NOT NULL
    FOR NO KEY UPDATE OF r
), next AS MATERIALIZED (
    SELECT n.id FROM run r JOIN {schema}.runs n ON n.parent_id = coalesce(r.parent_id, r.id) AND n.attempt = r.attempt + 1
        AND n.kind = CASE r.kind WHEN 'piece' THEN 'piece' ELSE 'retry' END AND n.item IS NOT DISTINCT FROM r.item
    WHERE n.state IN ('planned', 'pushed')
    ORDER BY n.id LIMIT 1 FOR NO KEY UPDATE OF n
), late AS MATERIALIZED (
    SELECT r.*, i.now, %(outcome)s IN {good_outcomes} AS good,
        greatest(r.started_at, coalesce(%(now)s::timestamptz, statement_timestamp()) - %(age)s::float8 * interval '1 second')
            AS true_end, (SELECT count(*) FROM next) AS open,
        {needs_follow_up h} AS needs_follow_up
    FROM run r LEFT JOIN held h ON true, LATERAL (SELECT {now} AS now) i
    WHERE %(outcome)s <> 'lost' AND CASE WHEN r.kind = 'piece' THEN (NOT r.retried OR EXISTS (SELECT FROM next))
            AND EXISTS (SELECT FROM {schema}.runs p WHERE p.id = r.parent_id AND p.state = 'processing')
        ELSE h.id IS NULL OR (h.run_token IS NULL AND h.last_run_id = r.id AND NOT EXISTS (
            SELECT FROM {schema}.runs p WHERE p.state = 'processing' AND p.task_id = h.id AND p.started_at > r.started_at)) END
), recorded AS (
    UPDATE {schema}.runs r SET outcome = %(outcome)s, reason = {reason_of_end m}, result = %(result)s::jsonb,
        pid = coalesce(%(pid)s::integer, r.pid), traceback = %(traceback)s, output = %(output)s, error_output = %(error_output)s, ended_at = l.true_end,
        retried = l.retried AND NOT l.good,
        follow_up = CASE WHEN l.good THEN coalesce(l.needs_follow_up AND l.kind <> 'piece', false) ELSE l.follow_up END
    FROM late l, (SELECT %(outcome)s::text AS outcome, %(reason)s::text AS reason) m WHERE r.id = l.id
), cancelled AS (
    UPDATE {schema}.runs n SET state = 'ended', outcome = 'dropped', reason = 'duplicate', ended_at = l.now,
        retried = n.kind = 'piece'
    FROM late l, next WHERE n.id = next.id AND l.good
), noted AS (
    INSERT INTO {schema}.events (at, task_id, task_name, function, owner_type, owner_id, what, by, words, run_id)
    SELECT l.now, l.task_id, l.task_name, l.function, l.owner_type, l.owner_id, 'end_recorded_late', 'worker',
        %(outcome)s::text || ' at ' || to_char(l.true_end AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC, recorded at '
            || to_char(l.now AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC', l.id
    FROM late l
), corrected AS (
    UPDATE {schema}.tasks t SET last_outcome = %(outcome)s, last_ended_at = l.true_end,
        last_success_at = CASE WHEN l.good THEN greatest(t.last_success_at, l.true_end) ELSE t.last_success_at END,
        last_worked_at = CASE WHEN %(outcome)s IN {work_outcomes} THEN greatest(t.last_worked_at, l.true_end)
                         ELSE t.last_worked_at END,
        failures = CASE WHEN l.good THEN 0 ELSE t.failures END,
        succeeded = t.succeeded + l.good::int, failed = greatest(t.failed - (l.good AND NOT {lost_with_host l})::int, 0),
        dropped = t.dropped + CASE WHEN l.good THEN l.open ELSE 0 END,
        alone_until = CASE WHEN l.good AND t.alone_until = {open_end} THEN NULL ELSE t.alone_until END,
        paused_until = CASE WHEN l.good AND t.paused_by = 'ticker' AND EXISTS (
            SELECT FROM {schema}.events e WHERE e.task_id = t.id AND e.what = 'auto_paused' AND e.at >= l.started_at)
            THEN l.now ELSE t.paused_until END
    FROM late l WHERE t.id = l.task_id AND l.kind <> 'piece'
)
SELECT id AS run_id FROM late

-- rule: made_pieces
-- Plans a piece of the run `parent` for each of the items, in their order.
made AS (
    INSERT INTO {schema}.runs (
        task_id, task_name, function, owner_type, owner_id, queue, kind, parent_id, item, occurrence, state, due_at, created_at,
        traceparent)
    SELECT p.task_id, p.task_name, p.function, p.owner_type, p.owner_id, p.queue, 'piece', p.id, e.item, p.occurrence, 'planned',
        i.now, i.now, p.traceparent
    FROM parent p, instant i, jsonb_array_elements(%(items)s::jsonb) WITH ORDINALITY AS e (item, n)
    ORDER BY e.n
    RETURNING id
)

-- name: add_pieces
-- Records some of the many pieces of a run while it holds its task. Ticks skip them until all are made.
WITH instant AS (SELECT {now} AS now), parent AS (
    SELECT r.* FROM {schema}.runs r WHERE r.token = %(token)s::uuid AND r.state = 'running'
      AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = r.task_id AND t.run_token IS DISTINCT FROM %(token)s::uuid)
), {made_pieces}
SELECT id FROM made

-- name: generated
-- Records the last pieces of a run, after the `made` ones that are already recorded. The run then waits for all of
-- them, without a hold and without slots.
-- If the task is gone by now, its pieces are recorded, too, and end as if the task had been deleted a moment later.
WITH held AS MATERIALIZED (
    SELECT id, run_token IS NOT DISTINCT FROM %(token)s::uuid AS mine
    FROM {schema}.tasks WHERE id = %(task_id)s FOR NO KEY UPDATE
), instant AS MATERIALIZED (
    SELECT {now} AS now, coalesce(bool_and(mine), true) AS mine FROM held
), parent AS (
    UPDATE {schema}.runs r SET
        state = 'processing', pieces = %(made)s + jsonb_array_length(%(items)s::jsonb),
        output = %(output)s, error_output = %(error_output)s,
        pid = coalesce(%(pid)s::integer, r.pid)
    FROM instant i
    WHERE r.token = %(token)s::uuid AND r.state = 'running' AND i.mine
    RETURNING r.id, r.task_id, r.task_name, r.function, r.owner_type, r.owner_id, r.queue, r.occurrence, r.token, r.traceparent
), {made_pieces}, freed AS (
    UPDATE {schema}.tasks t SET run_token = NULL, running_until = NULL
    FROM parent p WHERE t.id = p.task_id AND t.run_token = %(token)s::uuid
), given_back AS (
    UPDATE {schema}.slots s SET token = NULL, until = NULL FROM parent p WHERE s.token = p.token
)
SELECT id AS run_id FROM parent
