-- name: clamp
-- After the clock was set, moves the tasks' times to the instant that is read after the rows' locks. An older instant,
-- from a ticker that was stopped meanwhile, would end holds of living runs. `stepped` means that the ticker saw the step
-- itself, by its uptime. Reads `limit` rows in the order of their ids, and returns the last id.
-- A hold that was taken on this host is measured by the uptime. Otherwise only times that are too far ahead are moved
-- back, back-offs included; the longest back-off is an hour. After an outage, a task with a phase may wait for it up to
-- two intervals. A task that was never pushed keeps its `first`, unless the task itself was registered in the future. A task
-- with hours may wait for them for a week: `claim_ahead` claims it. A time that a run asked for is at most as far ahead as it was
-- at the start of that run (a manual run is not the `last_run`). It may be set forward, too, between that start and the call.
-- The planner expects almost no rows after the list of ids, so from there on each row is looked up by its own id. A
-- second list would be scanned once per row, 5,000 times 5,000, after a step that affects all rows.
WITH measured AS MATERIALIZED (
    SELECT t.id, i.now, CASE WHEN t.during = '' THEN
        greatest(t.every_ms * CASE WHEN t.phase_ms IS NULL THEN 1 ELSE 2 END, t.pace_ms, t.stretched_ms,
            CASE WHEN t.next_run = t.again_at THEN least({longest_again t} + t.box_ms,
                1000 * extract(epoch FROM t.next_run - greatest(t.last_run, (SELECT max(r.started_at) FROM {schema}.runs r
                    WHERE r.id = t.last_run_id OR r.token = t.run_token)))) END
            ) * interval '1 millisecond' END AS reach
    FROM {schema}.tasks t, (SELECT {now} AS now) i
    WHERE t.id > %(after)s::bigint ORDER BY t.id LIMIT %(limit)s
), ahead AS MATERIALIZED (
    SELECT t.id, m.reach FROM {schema}.tasks t JOIN measured m ON m.id = t.id
    WHERE t.id = ANY (ARRAY(SELECT id FROM measured)) AND (t.last_run > m.now OR t.last_occurrence > m.now + interval '1 second'
        OR (%(stepped)s AND t.run_token IS NOT NULL)
        OR t.running_until > m.now + coalesce(
            (SELECT greatest(r.until - r.started_at, interval '0') FROM {schema}.runs r
             WHERE r.token = t.run_token AND r.state = 'running'),
            (t.box_ms + t.grace_ms) * interval '1 millisecond')
        OR t.push_after > m.now + CASE WHEN %(stepped)s THEN interval '0' ELSE interval '61 minutes' END
        OR (t.kind = 'interval' AND t.next_run > m.now + m.reach + interval '1 second'
            AND (t.starts_at IS NULL OR t.next_run > t.starts_at)
            AND (t.created_at > m.now + interval '1 second' OR {was_pushed t})))
    ORDER BY t.id FOR NO KEY UPDATE OF t SKIP LOCKED
), instant AS MATERIALIZED (
    SELECT {now} AS now, count(id) AS found FROM ahead
), held AS MATERIALIZED (
    SELECT t.id, i.now, a.reach, h.held_since, i.now + coalesce(h.held_for, (t.box_ms + t.grace_ms) * interval '1 millisecond')
            - coalesce(h.held_since, interval '0') AS until
    FROM instant i, ahead a, LATERAL (SELECT * FROM {schema}.tasks o WHERE o.id = a.id OFFSET 0) t LEFT JOIN LATERAL (
        SELECT {held_times r} FROM {schema}.runs r WHERE r.token = t.run_token AND r.state = 'running') h ON true
), changed AS (
    UPDATE {schema}.tasks t SET
        last_run = CASE WHEN t.last_run > h.now THEN h.now ELSE t.last_run END,
        last_occurrence = CASE WHEN t.last_occurrence > h.now THEN h.now ELSE t.last_occurrence END,
        running_until = CASE WHEN t.running_until > h.until OR h.held_since IS NOT NULL THEN h.until
                             ELSE t.running_until END,
        push_after = NULL,
        next_run = (SELECT CASE WHEN due.at > t.ends_at THEN NULL ELSE due.at END FROM (SELECT CASE
            WHEN t.kind = 'interval'
            AND (t.created_at > h.now + interval '1 second' OR {was_pushed t})
            AND t.next_run > h.now + h.reach
            THEN greatest(t.starts_at, h.now + greatest(t.every_ms, t.pace_ms, t.stretched_ms) * interval '1 millisecond')
            ELSE t.next_run END AS at) due)
    FROM held h WHERE t.id = h.id
)
SELECT id FROM measured ORDER BY id DESC LIMIT 1

-- name: has_work
-- Returns whether a pass might find work: the condition of each step, as roughly as an index can answer it. A pass that
-- finds nothing costs a few milliseconds; a pass that is not made would leave work undone. Uses ORDER BY with LIMIT 1,
-- because the planner expects an EXISTS to find a row at once, and would read the table. With `only_due`, there are due tasks
-- without limits, nothing else, and no pause that could be for them. (OFFSET: to ask each question once.)
WITH RECURSIVE {waited_for}, instant AS MATERIALIZED (
    SELECT {now} AS now
)
SELECT i.now, d.due OR o.other AS busy,
    d.due AND NOT o.other AND NOT EXISTS (SELECT FROM {schema}.pauses WHERE resumed_at IS NULL) AS only_due
FROM instant i, LATERAL (SELECT (SELECT id FROM {schema}.tasks WHERE {unlimited}
        AND next_run <= i.now + %(look_ahead)s * interval '1 millisecond' AND (push_after IS NULL OR push_after <= i.now)
        ORDER BY next_run LIMIT 1) IS NOT NULL AS due OFFSET 0) d,
    LATERAL (SELECT (SELECT id FROM {schema}.tasks WHERE {limited}
        AND next_run <= i.now + %(look_ahead)s * interval '1 millisecond' AND (push_after IS NULL OR push_after <= i.now)
        ORDER BY next_run LIMIT 1) IS NOT NULL
    OR EXISTS (SELECT FROM {schema}.tasks WHERE waiting <> '{}')
    OR EXISTS (SELECT FROM {schema}.runs WHERE {planned} AND due_at <= i.now)
    OR EXISTS (SELECT FROM {schema}.runs WHERE {planned_piece})
    OR EXISTS (SELECT FROM {schema}.runs WHERE state = 'pushed')
    OR EXISTS (SELECT FROM {schema}.runs WHERE follow_up)
    OR EXISTS (SELECT FROM {schema}.runs WHERE state = 'processing')
    OR EXISTS (SELECT FROM {schema}.runs WHERE {to_stop})
    OR EXISTS (SELECT FROM {schema}.runs WHERE state = 'running' AND (until < i.now - interval '1 second'
        OR started_at > i.now + interval '1 second' OR (boot = %(boot)s::text
        AND (%(uptime)s::bigint - uptime_us) * interval '1 microsecond' > until - started_at + interval '1 second')))
    OR (SELECT id FROM {schema}.tasks WHERE alarm_at <= i.now AND {runnable}
        ORDER BY alarm_at LIMIT 1) IS NOT NULL
    OR (SELECT id FROM {schema}.tasks WHERE paused_until <= i.now ORDER BY paused_until LIMIT 1) IS NOT NULL
    OR EXISTS (SELECT FROM {schema}.pauses p WHERE {over p} OR p.resumed_at IS NULL AND (p.until <= i.now OR p.scope = 'unknown'))
    OR {waits_in_vain}
    OR EXISTS (SELECT FROM {schema}.tasks WHERE kind = 'once' AND remove AND next_run IS NULL AND run_token IS NULL
        AND last_outcome IN {good_outcomes})
    OR EXISTS (SELECT FROM {schema}.tickers WHERE last_tick_at > i.now + interval '1 second') AS other OFFSET 0) o

-- name: clock_signs
-- Returns whether a ticker's heartbeat is ahead, which means that the clock was set back.
SELECT EXISTS (SELECT FROM {schema}.tickers
    WHERE last_tick_at > {now} + interval '1 second') AS set_back

-- name: claim_ahead
-- Claims cron and calendar tasks, and tasks with hours, that wait for a time ahead, after the clock was set back. Only tasks
-- that were pushed before are claimed, because a new task may wait for its `first`. The clamp cannot tell when they are due; a
-- pass can.
SELECT {claimed t}
FROM {schema}.tasks t {announced t}
WHERE (kind IN ('cron', 'calendar') OR during <> '') AND next_run > %(now)s AND id > %(after)s::bigint
  AND (created_at > %(now)s + interval '1 second' OR {was_pushed t})
ORDER BY id
LIMIT %(limit)s
FOR NO KEY UPDATE OF t SKIP LOCKED

-- name: clamp_runs
-- Moves runs that began, or were planned, in the future to the present. Each run is changed only once. Pieces are claimed
-- anyway. A manual run may be due up to an hour ahead (`once_within`), half a minute if its push failed (`reason`), or when its
-- spacing allows (`too_early`).
WITH ahead AS MATERIALIZED (
    SELECT id FROM {schema}.runs
    WHERE (state = 'running' AND started_at > %(now)s::timestamptz + interval '1 second')
       OR ({planned} AND (created_at > %(now)s::timestamptz + interval '1 second'
                                  OR (kind = 'manual' AND reason <> 'too_early' AND due_at > %(now)s::timestamptz
                                      + CASE WHEN reason IN ('', 'still_running') THEN interval '61 minutes' ELSE interval '1 minute' END)))
    LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE {schema}.runs r SET
    started_at = CASE WHEN r.state = 'running' THEN %(now)s::timestamptz ELSE r.started_at END,
    until = CASE WHEN r.state = 'running'
                 THEN %(now)s::timestamptz + greatest(r.until - r.started_at, interval '0') ELSE r.until END,
    due_at = CASE WHEN r.state = 'planned' THEN %(now)s::timestamptz ELSE r.due_at END,
    created_at = least(r.created_at, %(now)s::timestamptz)
FROM ahead WHERE r.id = ahead.id
RETURNING r.id

-- name: clamp_slots
-- After the clock was set back, slots are used no longer than from now on: a token as long as its rate says, a place as long
-- as its run holds it. If that run has ended without freeing its place, ten minutes are enough. A hold of a key begins again.
WITH instant AS MATERIALIZED (
    SELECT {now} AS now
), ahead AS MATERIALIZED (
    SELECT s.key, s.kind, s.n, u.until
    FROM instant i, {schema}.slots s LEFT JOIN {schema}.limited_keys k ON k.key = s.key, LATERAL (
        SELECT i.now + CASE s.kind WHEN 'start' THEN coalesce(k.token_us, 0) * interval '1 microsecond'
            ELSE coalesce((SELECT greatest(r.until - r.started_at, interval '0') FROM {schema}.runs r
                WHERE r.token = s.token AND r.state = 'running'), interval '10 minutes') END AS until) u
    WHERE s.until > i.now + interval '1 second' AND s.until > u.until + interval '1 second' FOR NO KEY UPDATE OF s SKIP LOCKED
), held AS (
    UPDATE {schema}.limited_keys k SET closed_at = i.now, closed_until = i.now + (k.closed_until - k.closed_at)
    FROM instant i WHERE k.closed_at > i.now + interval '1 second'
)
UPDATE {schema}.slots s SET until = a.until FROM ahead a
WHERE (s.key, s.kind, s.n) = (a.key, a.kind, a.n)

-- name: end_overdue
-- Ends runs past B + g without a recorded end. If the run's or its task's row is locked now, the run is left to the
-- next tick. This statement waits for no lock, so it may lock the run first. A run of this host is judged by the uptime,
-- whatever the clock was set to. Other runs are judged by the clock as it is read here, because the `now` of a pass that
-- was stopped meanwhile may be ahead. A run that lost its hold to another run is only counted, because the other
-- run sets the task's state. A run that is lost together with others of its worker is no failure of its task. The same applies to
-- its host, unless the host was alive: a ticker there has ticked since the run began, or another run began there later than this one
-- should have ended. Runs of the host whose time is not over count, and so does an event of the last hour: one event an hour tells
-- of the host. If runs of the task share a process, another run may be the cause of the loss. So the task becomes a suspect. If its
-- run was the only one of its worker twice, the task is guilty. After the clock was set back, slots of the runs may still be taken:
-- they are freed.
WITH instant AS MATERIALIZED (
    SELECT {now} AS now
), overdue AS MATERIALIZED (
    SELECT id, task_id, token, host, worker, started_at, until FROM {schema}.runs
    WHERE state = 'running'
      AND CASE WHEN boot = %(boot)s::text AND uptime_us <= %(uptime)s::bigint
               THEN (%(uptime)s::bigint - uptime_us) * interval '1 microsecond'
                    > until - started_at + interval '1 second'
               ELSE until < (SELECT now FROM instant) - interval '1 second' END
    ORDER BY until LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
), hosts AS MATERIALIZED (
    SELECT r.host, CASE WHEN count(DISTINCT r.task_id) > 1 THEN count(*) ELSE 1 END AS runs, max(r.started_at) AS last_start,
        (SELECT min(k.started_at) FROM {schema}.tickers k
            WHERE k.host = r.host AND k.last_report->>'ended' IS NULL AND {silent_at k} > (SELECT now FROM instant)) AS ticker_since,
        EXISTS (SELECT FROM {schema}.events e WHERE e.what = 'host_lost' AND e.at BETWEEN (SELECT now FROM instant) - interval '1 hour'
            AND (SELECT now FROM instant) AND starts_with(e.words, 'host ' || r.host || ': ')) AS is_told
    FROM {schema}.runs r WHERE r.state = 'running' AND r.host IN (SELECT host FROM overdue WHERE host <> '') GROUP BY r.host
), counted_together AS MATERIALIZED (
    SELECT o.*, CASE WHEN h.last_start <= o.until AND coalesce(h.ticker_since > o.started_at, true)
        THEN h.runs + h.is_told::int WHEN o.host <> '' THEN o.of_worker ELSE 1 END AS of_host, h.is_told
    FROM (SELECT *, CASE WHEN min(task_id) OVER w < max(task_id) OVER w THEN count(*) OVER w ELSE 1 END AS of_worker
            FROM overdue WINDOW w AS (PARTITION BY host, worker)) o LEFT JOIN hosts h ON h.host = o.host
), held AS MATERIALIZED (
    SELECT t.id, t.run_token FROM {schema}.tasks t
    WHERE t.id IN (SELECT task_id FROM overdue) ORDER BY t.id FOR NO KEY UPDATE SKIP LOCKED
), ended AS (
    UPDATE {schema}.runs r SET state = 'ended', outcome = 'lost', ended_at = (SELECT now FROM instant),
        reason = CASE WHEN o.of_host > 1 THEN 'lost with other runs of its host: ' ELSE '' END || 'no end was recorded by '
            || to_char(r.until AT TIME ZONE 'UTC', 'HH24:MI:SS') || ' UTC, when its box and grace were over',
        follow_up = o.task_id IN (SELECT id FROM held)
    FROM counted_together o
    WHERE r.id = o.id AND r.state = 'running'
      AND (o.task_id IN (SELECT id FROM held) OR NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = o.task_id))
    RETURNING r.id, r.task_id, r.token, r.kind, o.host, o.is_told, o.of_host, o.of_worker
), counted AS MATERIALIZED (
    SELECT task_id, count(*) FILTER (WHERE of_host = 1) AS lost, array_agg(token) AS tokens FROM ended WHERE kind <> 'piece' GROUP BY task_id
), passed_by AS (
    UPDATE {schema}.tasks t SET failed = t.failed + c.lost
    FROM counted c JOIN held h ON h.id = c.task_id AND coalesce(h.run_token <> ALL (c.tokens), true) WHERE t.id = c.task_id
), freed AS (
    UPDATE {schema}.tasks t SET run_token = NULL, running_until = NULL,
        last_run_id = e.id, last_outcome = 'lost', last_ended_at = (SELECT now FROM instant),
        failed = t.failed + (SELECT lost FROM counted c WHERE c.task_id = e.task_id),
        failures = CASE WHEN e.of_host > 1 THEN t.failures ELSE {one_more_failure t} END,
        alone_until = CASE WHEN NOT {grouped t} THEN t.alone_until
            WHEN {guilty t} OR t.alone_until = {open_end} AND t.share = 1 AND e.of_worker = 1
            THEN (SELECT now FROM instant) + interval '1 hour' ELSE {open_end} END,
        share = CASE WHEN NOT {grouped t} THEN t.share WHEN {suspected t} THEN 1 ELSE ceil(sqrt(e.of_worker)) END
    FROM ended e JOIN held h ON h.id = e.task_id AND h.run_token = e.token
    WHERE t.id = e.task_id
), given_back AS (
    UPDATE {schema}.slots s SET token = NULL, until = NULL FROM ended e WHERE s.token = e.token
), noted AS (
    INSERT INTO {schema}.events (at, task_id, task_name, function, owner_type, owner_id, what, by, words)
    SELECT (SELECT now FROM instant), 0, '', '', '', '', 'host_lost', 'ticker',
        format('host %%s: %%s of its runs have no end, and the boxes and graces of %%s of them are over', host, max(of_host), count(*))
    FROM ended WHERE of_host > 1 AND NOT is_told GROUP BY host
)
SELECT id FROM ended

-- name: stop_runs
-- Carries out requests to stop runs, as far as the tables can. A run that has not started is dropped. A run that waits for its
-- pieces passes the request on to those that have not ended. If a row is locked now, it is left to the next tick. Returns the
-- runs at work: a worker has to stop them. A dropped retry needs a follow-up, because its occurrence has failed.
WITH requested AS MATERIALIZED (
    SELECT id, task_id, state, worker, token, stop_requested_by, stop_requested_at FROM {schema}.runs
    WHERE {to_stop} ORDER BY id LIMIT %(limit)s
), held AS MATERIALIZED (
    SELECT id FROM {schema}.tasks WHERE id IN (SELECT task_id FROM requested WHERE state IN ('planned', 'pushed'))
    ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
), unstarted AS MATERIALIZED (
    SELECT id, true AS is_unstarted, stop_requested_by AS by, stop_requested_at AS at FROM {schema}.runs
    WHERE id = ANY (ARRAY(SELECT id FROM requested)) AND state IN ('planned', 'pushed') AND task_id IN (SELECT id FROM held)
    ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
), pieces AS MATERIALIZED (
    SELECT p.id, p.state <> 'running' AS is_unstarted, r.stop_requested_by AS by, r.stop_requested_at AS at
    FROM requested r, LATERAL (
        SELECT id, state FROM {schema}.runs
        WHERE parent_id = r.id AND kind = 'piece' AND state <> 'ended' AND stop_requested_by IS NULL
        LIMIT 20 * %(limit)s FOR NO KEY UPDATE SKIP LOCKED) p
    WHERE r.state = 'processing'
), changed AS (
    UPDATE {schema}.runs r SET stop_requested_by = s.by, stop_requested_at = s.at,
        state = CASE WHEN s.is_unstarted THEN 'ended' ELSE r.state END,
        outcome = CASE WHEN s.is_unstarted THEN 'dropped' END,
        reason = CASE WHEN s.is_unstarted THEN 'stopped' ELSE r.reason END,
        ended_at = CASE WHEN s.is_unstarted THEN %(now)s::timestamptz END,
        follow_up = s.is_unstarted AND r.kind = 'retry'
    FROM (SELECT * FROM unstarted UNION ALL SELECT * FROM pieces) s WHERE r.id = s.id
    RETURNING r.task_id, r.kind, r.state, r.worker, r.token
), counted AS (
    UPDATE {schema}.tasks t SET dropped = t.dropped + c.count
    FROM (SELECT task_id, count(*) FROM changed WHERE kind <> 'piece' GROUP BY task_id) c WHERE t.id = c.task_id
)
SELECT worker, token FROM requested WHERE state = 'running'
UNION ALL SELECT worker, token FROM changed WHERE state = 'running'

-- name: watched
-- Returns the time since which ticks have had no gap, in seconds since 1970, according to the tickers that
-- ticked within the last `gap` milliseconds. Also returns the current time.
WITH instant AS MATERIALIZED (
    SELECT {now} AS now
)
SELECT extract(epoch FROM i.now)::float8 AS now, min(CASE jsonb_typeof(t.last_report->'watching_since')
    WHEN 'number' THEN (t.last_report->>'watching_since')::float8 ELSE extract(epoch FROM t.started_at)::float8 END) AS since
FROM instant i LEFT JOIN {schema}.tickers t
    ON t.last_tick_at BETWEEN i.now - %(gap)s * interval '1 millisecond' AND i.now + interval '1 second'
GROUP BY i.now

-- name: remove_done
-- Deletes tasks for a single time that have succeeded and are to be removed, unless pieces of them are at work.
WITH done AS MATERIALIZED (
    SELECT id FROM {schema}.tasks t
    WHERE kind = 'once' AND remove AND next_run IS NULL AND run_token IS NULL AND waiting = '{}'
      AND last_outcome IN {good_outcomes}
      AND NOT EXISTS (SELECT FROM {schema}.runs r WHERE r.task_id = t.id AND r.state = 'processing' OFFSET 0)
    ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
DELETE FROM {schema}.tasks t USING done WHERE t.id = done.id AND set_config('ticker.by', 'ticker', true) IS NOT NULL
RETURNING t.id

-- name: claim_waiting
-- Claims tasks with waiting occurrences, with locks, so that none of them can start during the call to Redis about
-- their jobs. A task with more than 100 returns its oldest 99 and the newest. One call returns up to 5,000, because more
-- would take longer than the locks may be held. `upto` is the last task that was read, NULL at the end. `batch` is how
-- many tasks may share a job that is pushed again. It is above 1 only if their runs also share a process.
WITH looked_at AS MATERIALIZED (
    SELECT id, least(cardinality(waiting), 100) AS count FROM {schema}.tasks
    WHERE waiting <> '{}' AND id > %(after)s::bigint ORDER BY id LIMIT %(limit)s
), counted AS (
    SELECT id, sum(count) OVER (ORDER BY id) - count < 5000 AS fits FROM looked_at
), chosen AS MATERIALIZED (
    SELECT coalesce(array_agg(id) FILTER (WHERE fits), '{}') AS ids,
        CASE WHEN count(*) = %(limit)s OR NOT bool_and(fits) THEN max(id) FILTER (WHERE fits) END AS upto
    FROM counted
)
SELECT id, queue, function, every_ms, box_ms, grace_ms, batch_jobs, CASE WHEN cardinality(waiting) <= 100 THEN waiting
    ELSE waiting[:99] || waiting[cardinality(waiting)] END AS waiting, (SELECT upto FROM chosen) AS upto,
    {in_groups t}, {inactive t} OR {kept_waiting t} AS is_closed
FROM {schema}.tasks t {announced t}
WHERE waiting <> '{}' AND id = ANY (ARRAY(SELECT unnest(ids) FROM chosen))
ORDER BY id
FOR NO KEY UPDATE OF t SKIP LOCKED

-- name: wait_again
-- Makes occurrences of different tasks the next runs again, each for a reason: their jobs are gone, or end without them. After the
-- clock was set back, a task that is due before its occurrence goes on waiting.
UPDATE {schema}.tasks t SET waiting = array_remove(t.waiting, b.occurrence),
    batch_jobs = nullif(t.batch_jobs - {schema}.micros(b.occurrence), '{}'),
    next_run = b.occurrence, waits_again = b.occurrence, wait_reason = b.reason
FROM unnest(%(ids)s::bigint[], %(occurrences)s::timestamptz[], %(reasons)s::text[]) AS b (id, occurrence, reason)
WHERE t.id = b.id AND coalesce(t.next_run >= b.occurrence, true)

-- name: settle_waiting
-- Records occurrences that will not start, each with its outcome and reason: they waited, or get no job. A worker may have one,
-- if Redis was wiped, or if the worker itself was stopped for a while: the start then finds the record.
WITH settled AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(occurrences)s::timestamptz[], %(outcomes)s::text[], %(reasons)s::text[])
        AS s (id, occurrence, outcome, reason)
), recorded AS (
    INSERT INTO {schema}.runs (task_id, task_name, function, owner_type, owner_id, kind, occurrence, state, outcome,
        reason, ended_at, created_at, checked_last_run, checked_at, every_ms, tolerance_ms, queue, follow_up)
    SELECT t.id, t.name, t.function, t.owner_type, t.owner_id, 'scheduled', s.occurrence, 'ended', s.outcome,
        s.reason, %(now)s, %(now)s, t.last_run, %(now)s, t.every_ms, t.tolerance_ms, t.queue, s.outcome <> 'dropped'
    FROM settled s JOIN {schema}.tasks t ON t.id = s.id
    ON CONFLICT (task_id, occurrence) WHERE kind = 'scheduled' DO NOTHING
    RETURNING task_id, occurrence, outcome
)
UPDATE {schema}.tasks t SET
    waiting = ARRAY(SELECT w FROM unnest(t.waiting) w WHERE w <> ALL (f.occurrences) ORDER BY w),
    batch_jobs = nullif(t.batch_jobs - f.keys, '{}'),
    last_outcome = coalesce(f.failure, t.last_outcome), last_ended_at = CASE WHEN f.failed > 0 THEN %(now)s ELSE t.last_ended_at END,
    failures = least(t.failures + f.failed, 1000000), failed = t.failed + f.failed, dropped = t.dropped + f.dropped
FROM (SELECT s.id, array_agg(s.occurrence) AS occurrences, array_agg({schema}.micros(s.occurrence)) AS keys,
          max(r.outcome) FILTER (WHERE r.outcome <> 'dropped') AS failure,
          count(DISTINCT r.occurrence) FILTER (WHERE r.outcome <> 'dropped')::int AS failed,
          count(DISTINCT r.occurrence) FILTER (WHERE r.outcome = 'dropped')::int AS dropped
      FROM settled s LEFT JOIN recorded r ON (r.task_id, r.occurrence) = (s.id, s.occurrence) GROUP BY s.id) f
WHERE t.id = f.id

-- name: note_expired
-- Counts occurrences of these tasks that were dropped because their jobs ended or were lost before the start: one event for each
-- function and minute. The third in a row within an hour becomes a notice, if no run of the function started between them.
INSERT INTO {schema}.events AS e (at, task_id, task_name, function, owner_type, owner_id, what, by, count, until, words, told)
SELECT m.at, t.id, t.name, t.function, t.owner_type, t.owner_id, 'expired', 'ticker', c.count, %(now)s, %(words)s,
    2 <> (SELECT count(*) FROM {schema}.events b WHERE b.what = 'expired' AND b.function = t.function
        AND b.at < m.at AND b.at >= m.at - interval '1 hour' AND NOT EXISTS (SELECT FROM {schema}.minutes s
            WHERE s.at BETWEEN b.at AND m.at AND s.function = b.function AND s.started > 0))
FROM (SELECT date_trunc('minute', %(now)s::timestamptz, 'UTC') AS at) m, (
    SELECT min(t.id) AS id, count(*)::integer FROM unnest(%(ids)s::bigint[]) AS d (id) JOIN {schema}.tasks t ON t.id = d.id
    GROUP BY t.function) c JOIN {schema}.tasks t ON t.id = c.id
ORDER BY t.function
ON CONFLICT (function, at) WHERE what = 'expired' DO UPDATE SET count = e.count + excluded.count, until = excluded.until

-- name: claim_pushed
-- Claims planned runs that were pushed and have not started, with locks, for the same call to Redis. A young one, whose job died, is
-- pushed again.
SELECT r.id, r.task_id, t.queue, t.function, t.box_ms, t.grace_ms, {in_groups t}, r.job_id,
    r.due_at > %(now)s::timestamptz - interval '10 minutes' AS is_young
FROM {schema}.runs r JOIN {schema}.tasks t ON t.id = r.task_id {announced t}
WHERE r.state = 'pushed' AND r.id > %(after)s AND {may_be_pushed t}
ORDER BY r.id
LIMIT %(limit)s
FOR NO KEY UPDATE OF r SKIP LOCKED

-- name: lose_planned
-- Ends planned runs whose jobs died before they started. They are already locked. If another transaction holds the
-- task, they are left to the next tick.
WITH held AS MATERIALIZED (
    SELECT id FROM {schema}.tasks
    WHERE id IN (SELECT task_id FROM {schema}.runs WHERE id = ANY (%(ids)s::bigint[]))
    ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
), lost AS (
    UPDATE {schema}.runs SET state = 'ended', outcome = 'lost', reason = %(reason)s, ended_at = %(now)s,
        follow_up = kind IN ('retry', 'piece')
    WHERE id = ANY (%(ids)s::bigint[]) AND state = 'pushed' AND task_id IN (SELECT id FROM held)
    RETURNING task_id, kind
)
UPDATE {schema}.tasks t SET failed = t.failed + l.count
FROM (SELECT task_id, count(*) FROM lost WHERE kind <> 'piece' GROUP BY task_id) l WHERE t.id = l.task_id

-- name: queues
-- Returns the queues of all tasks, which a ticker leases. Reads the index once for each function and queue.
WITH RECURSIVE places AS (
    (SELECT function, queue FROM {schema}.tasks ORDER BY function, queue LIMIT 1)
    UNION ALL
    SELECT n.function, n.queue FROM places p, LATERAL (
        SELECT function, queue FROM {schema}.tasks WHERE (function, queue) > (p.function, p.queue)
        ORDER BY function, queue LIMIT 1) n)
SELECT DISTINCT queue FROM places

-- name: used_queues
-- Returns which of these queues are used by tasks. For a queue without a task, reads the whole table.
SELECT q.queue FROM unnest(%(queues)s::text[]) AS q (queue)
WHERE EXISTS (SELECT FROM {schema}.tasks t WHERE t.queue = q.queue) ORDER BY q.queue

-- name: next_due
-- Returns the seconds from `now`, when a pass has just ended, to the next work of a pass; NULL if there is none. Tasks
-- that are already due and could not be pushed wait for the next regular tick, or until their keys have room.
SELECT extract(epoch FROM least(
    (SELECT next_run FROM {schema}.tasks
     WHERE {unlimited} AND next_run > %(now)s::timestamptz ORDER BY next_run LIMIT 1),
    (SELECT next_run FROM {schema}.tasks
     WHERE {limited} AND next_run > %(now)s::timestamptz ORDER BY next_run LIMIT 1),
    (SELECT min(paused_until) FROM {schema}.tasks WHERE paused_until > %(now)s::timestamptz),
    (SELECT min(until) FROM {schema}.pauses WHERE done_at IS NULL AND until > %(now)s::timestamptz),
    (SELECT min(due_at) FROM {schema}.runs
     WHERE {planned} AND due_at > %(now)s::timestamptz)
) - %(now)s::timestamptz)::float8 AS seconds

-- name: wake_up
-- Notifies the tickers of this schema that something has changed, once the transaction commits.
SELECT pg_notify('ticker_wake', %(schema)s)

-- name: heartbeat
-- Records that a ticker is alive, and the result of its last tick. Deletes the rows of tickers that were silent for a
-- day, and those from before the clock was set back: this tick has clamped, and living tickers write theirs again.
WITH silent AS (
    DELETE FROM {schema}.tickers WHERE id <> %(id)s::uuid
      AND (greatest(last_tick_at, seen_at) < clock_timestamp() - interval '1 day'
           OR last_tick_at > clock_timestamp() + interval '1 second'))
INSERT INTO {schema}.tickers (id, host, pid, started_at, last_tick_at, last_report)
VALUES (%(id)s::uuid, %(host)s, %(pid)s, clock_timestamp(), %(now)s, %(report)s::jsonb)
ON CONFLICT (id) DO UPDATE SET last_tick_at = excluded.last_tick_at, last_report = excluded.last_report

-- name: show_sign
-- Records that a ticker is alive between its ticks: a pass takes long, or its ticks have failed for `failing_ms`. An empty
-- `failure` means that they do not.
INSERT INTO {schema}.tickers (id, host, pid, started_at, seen_at, last_report, failure, failing_since)
SELECT %(id)s::uuid, %(host)s, %(pid)s, i.now, i.now, jsonb_build_object('tick_ms', %(tick_ms)s::bigint), f.failure,
    CASE WHEN f.failure <> '' THEN i.now - %(failing_ms)s::bigint * interval '1 ms' END
FROM (SELECT clock_timestamp() AS now) i, (SELECT %(failure)s::text AS failure) f
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, failure = excluded.failure, failing_since = excluded.failing_since

-- name: sample
-- Adds what a tick saw of the queues to the minute, and stores the workers in the ticker's row: which of them listen to the same
-- queues, and how many are busy.
WITH noted AS (
    UPDATE {schema}.tickers SET last_report = last_report || jsonb_strip_nulls(jsonb_build_object('crews', %(crews)s::jsonb)) WHERE id = %(id)s::uuid
)
INSERT INTO {schema}.minutes AS m (at, queue, samples, listening, busy, waiting)
SELECT date_trunc('minute', %(now)s::timestamptz, 'UTC'), s.queue, 1, s.listening, s.busy, s.waiting
FROM unnest(%(queues)s::text[], %(listening)s::bigint[], %(busy)s::bigint[], %(waiting)s::bigint[]) AS s (queue, listening, busy, waiting)
ORDER BY s.queue
ON CONFLICT (at, function, queue, outcome, reason, kind) DO UPDATE SET samples = m.samples + 1, listening = m.listening + excluded.listening,
    busy = m.busy + excluded.busy, waiting = m.waiting + excluded.waiting

-- name: idle_worker
-- Returns whether the last tick saw an idle worker that listens to the queue of one of these tasks.
SELECT EXISTS (SELECT FROM jsonb_array_elements({crews}) c, {schema}.tasks t
    WHERE t.id = ANY (%(task_ids)s::bigint[]) AND c->0 ? t.queue AND c->1 > c->2) AS is_idle

-- name: show_refusal
-- Records that a ticker refused to start, in place of the last refusal on that host.
WITH earlier AS (DELETE FROM {schema}.tickers WHERE host = %(host)s AND last_report ? 'refused')
INSERT INTO {schema}.tickers (id, host, pid, started_at, seen_at, last_report)
SELECT gen_random_uuid(), %(host)s, %(pid)s, now, now, jsonb_build_object('ended', true, 'refused', %(why)s::text) FROM clock_timestamp() AS now

-- name: deregister
-- Records that a ticker ended cleanly. Its row stays for a day: a heartbeat ahead of the clock shows that the clock was
-- set back.
UPDATE {schema}.tickers SET last_report = last_report || '{"ended": true}' WHERE id = %(id)s::uuid
