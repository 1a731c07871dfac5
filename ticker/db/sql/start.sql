-- rule: outlived
-- The occurrence can wait no longer: a newer one is due, or waits. Or the clock was set back, and the task is due before an
-- occurrence from ahead. (Cron and calendar come to that time again.)
(t.next_run > t.occurrence AND t.next_run <= t.now OR t.occurrence < t.newest OR t.kind = 'interval' AND t.next_run < t.occurrence)

-- rule: slots_taken
-- Takes a slot of each key of the run t, if it may start. `missing` is the key that has none, and NULL if there is no such key.
(SELECT CASE WHEN t.verdict IS NULL AND t.limits IS NOT NULL THEN {schema}.take_slots(
    t.limits, t.token, t.hold, t.now, %(boot)s::text, %(uptime)s::bigint) END AS missing OFFSET 0)

-- rule: noted_worker
-- Notes whether the worker knows the function of a task, if that is news.
CASE WHEN t.verdict = 'unknown_here' OR t.refusal IS NULL AND {gated t} THEN {schema}.note_worker(
            t.function, t.queue, t.refusal IS NULL, %(worker)s::text, t.now, {longest_unknown}) END

-- name: start
-- Decides which of these scheduled runs may start, under the row locks of their tasks, and records the decisions. The clock
-- is read after the rows are locked. Each run is of a different task. If another transaction has locked a task, the answer
-- is `locked`, and the start is requested again: this statement must not wait for one row while it holds others.
-- A `last_run` ahead of the clock means that the clock was set back. That one job is dropped as `clock`, and the drop
-- moves the row's times to the new clock.
-- `record_of` (a volatile function) sees what was committed after this statement began; the statement itself does not.
-- If the run with this token has begun and has not ended, the answer to its start was lost. The same token then gets the
-- answer again (`has_begun`), and nothing is written.
-- An occurrence of a cron, calendar or `at` task that meets the run at work (`still_running`) goes back to being the next run.
-- Three refusals are not drops, and leave no record. If the task is gone, its deletion has recorded what waited. If a
-- job is delivered again (`redelivered`), the record of its occurrence gets an event. If the row neither waits for the
-- occurrence nor has it as its next run (`stale`), as after the restore of an older dump, the installation gets an
-- event: the job may have been meant for another task. If a later occurrence has started, `stale` is only a line in the
-- worker's log. The record was then pruned, or the tick was killed before it could commit. (A tick that is killed in
-- this way leaves a job for the next run, which is expected.)
-- The id of the only waiting job stays in the row until the next push (`advance`). To remove it here would cost 75 bytes
-- of WAL per run (python -m tests.bench polls).
-- Only the columns that are needed are locked and passed on: with all of them, a start takes a tenth more CPU.
-- A task that may start also needs a slot of each of its keys, all or none (`take_slots`), oldest first. If it has not got them, it is
-- `no_room`, which is no drop. With `waits`, nothing is written then, and the start is requested again. Otherwise the occurrence goes
-- back to being the next run, so that a tick pushes it again. So does one that a pause keeps waiting (`closed`), and one whose
-- function this worker does not know, but another may (`unknown_here`): ticks drop it after ten minutes without a start of the function.
-- Only the newest occurrence goes back: an older one is dropped as `superseded`. With a reason in `back`, no run starts: a group gives
-- its tasks back.
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(%(task_ids)s::bigint[], %(occurrences)s::timestamptz[], %(tokens)s::uuid[], %(job_ids)s::text[])
        AS a (task_id, occurrence, token, job_id)
), locked AS MATERIALIZED (
    SELECT id, name, function, owner_type, owner_id, kwargs, cursor, kind, every_ms, tolerance_ms, box_ms, grace_ms, enabled,
        owner_active, queue, group_name, paused_by, paused_until, next_run, waits_again, wait_reason, waiting, batch_jobs, last_run, last_occurrence, run_token,
        running_until, last_run_id, last_outcome, last_ended_at, starts_at, ends_at, max_runs, started, dropped, limits
    FROM {schema}.tasks WHERE id = ANY (%(task_ids)s::bigint[]) FOR NO KEY UPDATE SKIP LOCKED
), instant AS MATERIALIZED (
    SELECT {now} AS now, count(id) AS found FROM locked
), measured AS MATERIALIZED (
    SELECT i.now, a.*, l.*, o.hold, h.held_since, coalesce(h.held_for, o.hold) - coalesce(h.held_since, interval '0') AS hold_left,
        l.id IS NULL AND EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = a.task_id) AS is_locked,
        {schema}.record_of(a.task_id, a.occurrence) AS record, (SELECT max(w) FROM unnest(l.waiting) w) AS newest,
        a.occurrence = ANY (l.waiting) OR a.occurrence IS NOT DISTINCT FROM l.next_run AS is_expected
    FROM asked a CROSS JOIN instant i LEFT JOIN locked l ON l.id = a.task_id
    CROSS JOIN LATERAL (SELECT (l.box_ms + l.grace_ms) * interval '1 millisecond' AS hold) o LEFT JOIN LATERAL (
        SELECT {held_times r} FROM {schema}.runs r WHERE {holder l}) h ON true
), judged AS MATERIALIZED (
    SELECT l.*, CASE
        WHEN l.is_locked THEN 'locked'
        WHEN l.id IS NULL THEN 'gone'
        WHEN l.run_token = l.token THEN 'begun'
        WHEN l.record IS NOT NULL THEN 'redelivered'
        WHEN NOT l.is_expected THEN 'stale'
        WHEN l.function <> ALL (%(functions)s::text[]) THEN 'unknown_here'
        WHEN {inactive l} THEN 'paused'
        WHEN l.started >= l.max_runs THEN 'done'
        WHEN l.last_run > l.now THEN 'clock'
        WHEN l.occurrence < l.now - greatest(2 * l.every_ms, 600000) * interval '1 millisecond'
             AND l.occurrence < l.newest THEN 'expired'
        WHEN l.occurrence <= l.last_occurrence THEN 'duplicate'
        WHEN CASE WHEN l.held_since IS NULL THEN l.now < l.running_until ELSE l.hold_left > interval '0' END THEN 'still_running'
        WHEN l.kind = 'interval' AND l.now < l.last_run + {spacing l} THEN 'too_early'
        WHEN {paused_itself l} OR {covered l} THEN 'closed'
        ELSE %(back)s::text
        END AS verdict
    FROM measured l
), ruled AS MATERIALIZED (
    SELECT j.*, (k.missing).key AS full_key, (k.missing).until AS retry_at, r.refusal, g.goes_back AND r.refusal <> 'superseded' AS goes_back,
        r.refusal IS NULL OR r.refusal NOT IN ('locked', 'gone', 'begun', 'redelivered', 'stale', 'waits')
            AND NOT (g.goes_back AND r.refusal <> 'superseded') AS is_recorded
    FROM (SELECT * FROM judged ORDER BY occurrence, id) j,
        LATERAL {slots_taken j} k,
        LATERAL (SELECT CASE WHEN (k.missing).key IS NULL THEN j.verdict WHEN %(waits)s::boolean THEN 'waits' ELSE 'no_room' END AS answer) v,
        LATERAL (SELECT answer IN ('no_room', 'closed', 'unknown_here', 'no_slot')
            OR answer = 'still_running' AND j.kind <> 'interval' AS goes_back) g,
        LATERAL (SELECT CASE WHEN g.goes_back AND {outlived j} THEN 'superseded' ELSE answer END AS refusal) r
), changed AS (
    UPDATE {schema}.tasks t SET
        waiting = array_remove(j.waiting, j.occurrence),
        batch_jobs = CASE WHEN j.waiting = ARRAY[j.occurrence] THEN j.batch_jobs
                          ELSE nullif(j.batch_jobs - {schema}.micros(j.occurrence), '{}') END,
        started = CASE WHEN j.refusal IS NULL THEN least(j.started + 1, 1000000000) ELSE j.started END,
        dropped = j.dropped + (j.is_recorded AND j.refusal IS NOT NULL)::int,
        next_run = CASE WHEN n.next_run > j.ends_at THEN NULL ELSE n.next_run END,
        waits_again = CASE WHEN j.goes_back THEN j.occurrence ELSE j.waits_again END,
        wait_reason = CASE WHEN j.goes_back THEN j.refusal ELSE j.wait_reason END,
        last_run = CASE WHEN j.refusal IS NULL OR j.refusal = 'clock' THEN j.now ELSE j.last_run END,
        last_occurrence = CASE WHEN j.refusal IS NULL AND j.occurrence > j.now + interval '1 second' THEN j.now
                               WHEN j.refusal IS NULL THEN j.occurrence
                               WHEN j.refusal = 'clock' AND j.last_occurrence > j.now THEN j.now
                               ELSE j.last_occurrence END,
        run_token = CASE WHEN j.refusal IS NULL THEN j.token ELSE j.run_token END,
        running_until = CASE WHEN j.refusal IS NULL THEN j.now + j.hold
                             WHEN j.refusal = 'clock' AND j.run_token IS NOT NULL
                                  AND (j.held_since IS NOT NULL OR j.running_until > j.now + j.hold_left)
                             THEN j.now + j.hold_left ELSE j.running_until END
    FROM ruled j, LATERAL (SELECT CASE WHEN j.refusal IS NULL AND j.started + 1 >= j.max_runs THEN NULL
        WHEN j.goes_back THEN least(j.next_run, j.occurrence)
        WHEN j.kind <> 'interval' OR j.next_run IS NULL THEN j.next_run
        WHEN j.refusal IS NULL AND j.occurrence > j.now + interval '1 second'
        THEN greatest(j.starts_at, j.now + j.every_ms * interval '1 millisecond') ELSE j.next_run END AS next_run) n
    WHERE t.id = j.id AND (j.refusal IS NULL
        OR j.refusal NOT IN ('begun', 'stale', 'waits'))
), recorded AS (
    INSERT INTO {schema}.runs (
        task_id, task_name, function, owner_type, owner_id, kind, occurrence, state, outcome, reason, token,
        started_at, until, boot, uptime_us, ended_at, created_at, checked_last_run, checked_at, every_ms,
        tolerance_ms, worker, host, pid, job_id, queue)
    SELECT j.id, j.name, j.function, j.owner_type, j.owner_id, 'scheduled', j.occurrence,
        CASE WHEN j.refusal IS NULL THEN 'running' ELSE 'ended' END,
        CASE WHEN j.refusal IS NOT NULL THEN 'dropped' END, coalesce(j.refusal, ''),
        CASE WHEN j.refusal IS NULL THEN j.token END,
        CASE WHEN j.refusal IS NULL THEN j.now END, CASE WHEN j.refusal IS NULL THEN j.now + j.hold END,
        CASE WHEN j.refusal IS NULL THEN %(boot)s::text END, CASE WHEN j.refusal IS NULL THEN %(uptime)s::bigint END,
        CASE WHEN j.refusal IS NOT NULL THEN j.now END, j.now,
        j.last_run, CASE WHEN j.refusal IS NOT NULL THEN j.now END, j.every_ms, j.tolerance_ms, %(worker)s, %(host)s,
        %(pid)s, j.job_id, j.queue
    FROM ruled j WHERE j.is_recorded
    RETURNING id, task_id
), noted AS (
    INSERT INTO {schema}.events (at, task_id, task_name, function, owner_type, owner_id, what, words, run_id)
    SELECT j.now, CASE WHEN k.is_known THEN j.id ELSE 0 END, CASE WHEN k.is_known THEN j.name ELSE '' END,
        CASE WHEN k.is_known THEN j.function ELSE '' END, CASE WHEN k.is_known THEN j.owner_type ELSE '' END,
        CASE WHEN k.is_known THEN j.owner_id ELSE '' END, CASE WHEN k.is_known THEN 'redelivered' ELSE 'stale' END,
        format('job %%s reached worker %%s, and ' || CASE WHEN k.is_known THEN 'its occurrence had a record'
            ELSE 'task %%s does not wait for it' END, j.job_id, %(worker)s::text, j.task_id), CASE WHEN k.is_known THEN j.record END
    FROM ruled j, LATERAL (SELECT j.refusal = 'redelivered' AS is_known) k
    WHERE k.is_known OR j.refusal = 'stale' AND j.occurrence > coalesce(j.last_occurrence, '-infinity')
        OR j.refusal = 'gone' AND j.record IS NULL
)
SELECT j.token, CASE j.refusal WHEN 'begun' THEN NULL WHEN 'waits' THEN 'no_room' ELSE j.refusal END AS refusal, j.refusal IS NOT DISTINCT FROM 'begun' AS has_begun,
    CASE j.refusal WHEN 'begun' THEN j.last_run ELSE j.now END AS now, coalesce(recorded.id, j.record) AS run_id, j.name, j.function, j.kwargs, j.owner_type,
    j.owner_id, j.cursor, j.kind, j.every_ms, j.tolerance_ms, j.box_ms, j.grace_ms, j.last_run,
    CASE WHEN j.held_since IS NULL THEN j.running_until ELSE j.now + j.hold_left END AS running_until,
    'scheduled' AS run_kind, j.occurrence, 1 AS attempt,
    NULL::jsonb AS item, j.limits, j.full_key, j.retry_at, {noted_worker j} AS noted_worker
FROM ruled j LEFT JOIN recorded ON recorded.task_id = j.task_id

-- name: runs_alone
-- Returns the task if it is a suspect or guilty.
SELECT t.id FROM {schema}.tasks t WHERE t.id = %(task_id)s AND {suspected t}

-- name: wait_again_planned
-- Gives planned runs back that their group cannot begin: ticks push them again.
UPDATE {schema}.runs SET state = 'planned', pushed_at = NULL, reason = %(reason)s WHERE id = ANY (%(ids)s::bigint[]) AND state = 'pushed'

-- rule: own_token
-- The run t has begun with this token, and has not ended.
t.state = 'running' AND t.token = %(token)s::uuid

-- name: start_planned
-- Decides the same for a planned run. It obeys enabled, and waits for the hold (a manual run also starts while the task is paused;
-- a piece runs next to the others). It skips the too-early and duplicate checks, and never changes last_run or
-- last_occurrence. A run that does not exist, or belongs to another task, is `stale`.
-- A retry or a piece must have ended before the next start is possible, so its box shrinks to the time left until then.
-- It is dropped as `no_time` if less than a second is left, or if a newer occurrence has started. For a task that is not
-- an interval task, a newer occurrence that waits is enough, because it may start at any moment. A retry or a piece of a
-- manual run is bounded by the next occurrence, because its next start is unknown.
-- If the run has begun with this token, its start gets the answer again, as in `start`.
-- If another transaction has locked the task or the run, the answer is `locked`. A statement that waited would not see the holds,
-- limits and pauses that were written meanwhile.
-- The run takes the same slots as a scheduled one. If there is no room (`no_room`), or a pause keeps it waiting (`closed`), it is
-- planned again, and a tick pushes it when it may start. With `waits`, nothing is written if there is no room. The same happens half a
-- minute after a worker did not know the function (`unknown_here`), until it was planned ten minutes ago, and no run of the function has
-- started for as long: then it is dropped.
WITH locked AS MATERIALIZED (
    SELECT id, name, function, owner_type, owner_id, kwargs, cursor, kind, every_ms, tolerance_ms, box_ms, grace_ms, enabled, owner_active,
        queue, group_name, paused_by, paused_until, next_run, waiting, last_run, last_occurrence, run_token, running_until, last_run_id,
        last_outcome, last_ended_at, limits
    FROM {schema}.tasks WHERE id = %(task_id)s FOR NO KEY UPDATE SKIP LOCKED
), plan AS MATERIALIZED (
    SELECT r.id, r.kind, r.occurrence, r.attempt, r.item, r.state, r.parent_id, r.traceparent, r.created_at, r.started_at, r.token
    FROM {schema}.runs r, (SELECT count(id) FROM locked) AS after_the_task
    WHERE r.id = %(run_id)s AND r.task_id = %(task_id)s FOR NO KEY UPDATE OF r SKIP LOCKED
), instant AS MATERIALIZED (
    SELECT coalesce(max(started_at) FILTER (WHERE {own_token plan}), {now}) AS now, count(id) AS found FROM plan
), bounded AS MATERIALIZED (
    SELECT i.now, l.*, p.id AS run_id, p.kind AS run_kind, p.occurrence, p.attempt, p.item, p.state, p.parent_id, p.traceparent,
        p.created_at AS planned_at, {own_token p} AS has_begun,
        coalesce(p.kind IN ('retry', 'piece') AND (p.occurrence < l.last_occurrence OR (l.kind <> 'interval'
            AND p.occurrence < (SELECT max(w) FROM unnest(l.waiting) w))), false) AS is_past,
        m.room, least(l.box_ms, m.room) AS box
    FROM instant i LEFT JOIN locked l ON true LEFT JOIN plan p ON true, LATERAL (
        SELECT CASE WHEN p.kind IN ('retry', 'piece') THEN floor(1000 * extract(epoch FROM
            CASE WHEN l.kind = 'interval' AND p.occurrence IS NOT NULL
                 THEN l.last_run + (l.every_ms - l.tolerance_ms - l.grace_ms) * interval '1 millisecond'
                 ELSE l.next_run - (l.tolerance_ms + l.grace_ms) * interval '1 millisecond' END - i.now))::bigint END AS room) m
), judged AS MATERIALIZED (
    SELECT b.*, %(token)s::uuid AS token, (b.box + b.grace_ms) * interval '1 millisecond' AS hold,
        coalesce(b.now + h.held_for - h.held_since, b.running_until) AS held_until,
        coalesce(b.state IN ('planned', 'pushed'), false) AS fresh, CASE
        WHEN b.id IS NULL AND EXISTS (SELECT FROM {schema}.tasks WHERE id = %(task_id)s)
            OR b.run_id IS NULL AND EXISTS (SELECT FROM {schema}.runs WHERE id = %(run_id)s AND task_id = %(task_id)s) THEN 'locked'
        WHEN b.id IS NULL THEN 'gone'
        WHEN b.run_id IS NULL THEN 'stale'
        WHEN b.has_begun THEN 'begun'
        WHEN b.state NOT IN ('planned', 'pushed') THEN 'redelivered'
        WHEN b.function <> ALL (%(functions)s::text[]) THEN CASE WHEN b.planned_at <= b.now - {longest_unknown} AND EXISTS (
            SELECT FROM {schema}.pauses p WHERE p.mark = {gate b} AND p.resumed_at IS NULL AND p.paused_at <= b.now - {longest_unknown})
            THEN 'unknown_function' ELSE 'unknown_here' END
        WHEN {inactive b} THEN 'paused'
        WHEN b.is_past OR b.room < 1000 THEN 'no_time'
        WHEN b.run_kind <> 'piece' AND b.now < coalesce(b.now + h.held_for - h.held_since, b.running_until) THEN 'still_running'
        WHEN {all_paused} OR b.run_kind <> 'manual' AND ({paused_itself b} OR {covered b}) THEN 'closed'
        END AS verdict
    FROM bounded b LEFT JOIN LATERAL (
        SELECT {held_times r} FROM {schema}.runs r WHERE {holder b}) h ON true
), ruled AS MATERIALIZED (
    SELECT j.*, (k.missing).key AS full_key, (k.missing).until AS retry_at, r.refusal, g.goes_back,
        j.fresh AND r.refusal IS DISTINCT FROM 'locked' AND NOT g.goes_back AS is_final
    FROM judged j,
        LATERAL {slots_taken j} k,
        LATERAL (SELECT CASE WHEN (k.missing).key IS NULL THEN j.verdict ELSE 'no_room' END AS refusal) r,
        LATERAL (SELECT coalesce(j.fresh AND r.refusal IN ('no_room', 'closed', 'unknown_here', 'still_running'), false) AS goes_back) g
), waits_again AS (
    UPDATE {schema}.runs r SET state = 'planned', pushed_at = NULL, reason = j.refusal,
        due_at = CASE j.refusal WHEN 'unknown_here' THEN j.now + interval '30 seconds' ELSE r.due_at END
    FROM ruled j WHERE r.id = j.run_id AND j.goes_back AND NOT (j.refusal = 'no_room' AND %(waits)s::boolean)
), changed AS (
    UPDATE {schema}.tasks t SET
        run_token = CASE WHEN j.refusal IS NULL AND j.run_kind <> 'piece' THEN %(token)s::uuid ELSE t.run_token END,
        running_until = CASE WHEN j.refusal IS NULL AND j.run_kind <> 'piece' THEN j.now + j.hold ELSE t.running_until END,
        dropped = t.dropped + (j.refusal IS NOT NULL)::int
    FROM ruled j WHERE t.id = j.id AND j.is_final AND j.run_kind <> 'piece'
), taken AS (
    UPDATE {schema}.runs r SET
        task_name = coalesce(j.name, r.task_name), function = coalesce(j.function, r.function), queue = coalesce(j.queue, r.queue),
        state = CASE WHEN j.refusal IS NULL THEN 'running' ELSE 'ended' END,
        outcome = CASE WHEN j.refusal IS NOT NULL THEN 'dropped' END, reason = coalesce(j.refusal, ''),
        token = CASE WHEN j.refusal IS NULL THEN %(token)s::uuid END,
        started_at = CASE WHEN j.refusal IS NULL THEN j.now END,
        until = CASE WHEN j.refusal IS NULL THEN j.now + j.hold END,
        boot = CASE WHEN j.refusal IS NULL THEN %(boot)s::text END,
        uptime_us = CASE WHEN j.refusal IS NULL THEN %(uptime)s::bigint END,
        ended_at = CASE WHEN j.refusal IS NOT NULL THEN j.now END,
        follow_up = j.refusal IS NOT NULL AND j.run_kind = 'retry',
        checked_last_run = j.last_run, checked_at = CASE WHEN j.refusal IS NOT NULL THEN j.now END,
        every_ms = j.every_ms, tolerance_ms = j.tolerance_ms,
        worker = %(worker)s, host = %(host)s, pid = %(pid)s, job_id = %(job_id)s
    FROM ruled j WHERE r.id = j.run_id AND j.is_final
    RETURNING r.id
), noted AS (
    INSERT INTO {schema}.events (at, task_id, task_name, function, owner_type, owner_id, what, words, run_id)
    SELECT j.now, j.id, j.name, j.function, j.owner_type, j.owner_id, 'redelivered',
        format('job %%s reached worker %%s, and its run had %%s', %(job_id)s::text, %(worker)s::text,
            CASE j.state WHEN 'ended' THEN 'ended' ELSE 'started' END), j.run_id
    FROM ruled j WHERE j.refusal = 'redelivered'
    UNION ALL
    SELECT j.now, 0, '', '', '', '', 'stale', format('job %%s reached worker %%s, and task %%s has no run %%s',
        %(job_id)s::text, %(worker)s::text, %(task_id)s::bigint, %(run_id)s::bigint), NULL
    FROM ruled j WHERE j.run_id IS NULL AND j.refusal <> 'locked'
)
SELECT nullif(j.refusal, 'begun') AS refusal, coalesce(j.has_begun, false) AS has_begun, j.now,
    coalesce(taken.id, j.run_id) AS run_id, j.name, j.function, j.kwargs, j.owner_type, j.owner_id,
    j.cursor, j.kind, j.every_ms, j.tolerance_ms, j.box AS box_ms, j.grace_ms, j.last_run,
    j.held_until AS running_until, j.run_kind, j.occurrence, j.attempt, j.item, j.limits, j.full_key, j.retry_at,
    j.parent_id, j.traceparent, {noted_worker j} AS noted_worker
FROM ruled j LEFT JOIN taken ON true
