-- Rules that several statements share, each written once. In a statement, `{runnable}` stands for the rule of that name over
-- the columns of the only table, and `{runnable t}` over those of the table with the alias t. A rule is a whole expression or a whole
-- CTE. It may use others: tests/db/test_rules.py limits how deep. A constant is the same for all rows of a statement.
--
-- Conventions of all statements in this folder: `{schema}` is the quoted name of the schema, and parameters are
-- psycopg's, %(name)s. Each statement that decides takes `now`; NULL means the database's clock, read with
-- clock_timestamp() and never with now(), which is the start of the transaction. Rows are locked FOR NO KEY UPDATE, a
-- task before its runs, unless locked rows are skipped. least() ignores NULLs, so a column that may be NULL is compared
-- in a CASE.
--
-- The database's clock may be set; the uptime of a host never is. If a run began on the host that executes the
-- statement (`boot`), `uptime` gives the time for which the run has held its task. Spacing is measured only by the
-- database's clock.

-- constant: now
coalesce(%(now)s::timestamptz, clock_timestamp())

-- rule: seen
-- The row belongs to an owner whom the viewer of the page may see. NULL: all may be seen.
(%(seen_types)s::text[] IS NULL
    OR (t.owner_type, t.owner_id) IN (SELECT * FROM unnest(%(seen_types)s::text[], %(seen_ids)s::text[])))

-- rule: tick_ms
-- The tick of the ticker that ticked last, in milliseconds; NULL if no ticker is alive.
(SELECT (a.last_report->>'tick_ms')::bigint FROM {schema}.tickers a WHERE a.last_report->>'ended' IS NULL
    AND {silent_at a} > clock_timestamp() ORDER BY a.last_tick_at DESC LIMIT 1)

-- rule: crews
-- The workers that the last tick saw, if a ticker is alive: those that listen to the same queues, and how many are busy.
(SELECT a.last_report->'crews' FROM {schema}.tickers a WHERE a.last_report ? 'crews' AND a.last_report->>'ended' IS NULL
    AND {silent_at a} > clock_timestamp() ORDER BY a.last_tick_at DESC LIMIT 1)

-- rule: silent_at
-- The time from which the ticker counts as gone, unless it gives a sign of life earlier: three of its ticks after the last one.
greatest(t.last_tick_at, t.seen_at) + greatest(interval '15 s', 3 * coalesce((t.last_report->>'tick_ms')::bigint, 30000) * interval '1 ms')

-- rule: runnable
-- The task is enabled, its owner is active, it is not paused, and it does not wait for a pause of many tasks. Indexes have the
-- same condition.
t.enabled AND t.owner_active AND t.paused_by IS NULL AND t.pause_id IS NULL

-- rule: paused_itself
-- The task's own pause is in force.
(t.paused_by IS NOT NULL AND (t.paused_until IS NULL OR t.paused_until > (SELECT {now})))

-- rule: is_paused
-- The task is paused by itself, or waits for a pause of many tasks. It contains the condition of `tasks_paused`.
((t.paused_by IS NULL AND t.pause_id IS NULL) IS NOT TRUE AND (t.paused_by IS NOT NULL OR NOT {waits_for_worker t}))

-- rule: in_force
-- The pause of many tasks is in force.
t.resumed_at IS NULL AND (t.until IS NULL OR t.until > (SELECT {now}))

-- rule: covers
-- The pause p of many tasks is for the task t.
(p.mark = ANY ({marks t}) OR p.scope = 'limit' AND EXISTS (
        SELECT FROM unnest(t.limits) AS u (key) WHERE {schema}.is_limit_of(p.value, u.key)))

-- rule: marks
-- The marks of the pauses that may be for the task, but for those of limits.
ARRAY['all', 'group ' || t.group_name, 'function ' || t.function, 'queue ' || t.queue, 'owner_type ' || t.owner_type]

-- rule: gate
-- The mark of the pause for which the task waits while no worker of its queue knows its function.
('unknown ' || t.queue || ' ' || t.function)

-- rule: gated
-- A worker of its queue did not know the function of the task, and no run of it has started there since.
(t.queue, t.function) IN (SELECT p.of_queue, p.value FROM {schema}.pauses p WHERE p.scope = 'unknown' AND p.resumed_at IS NULL)

-- rule: waits_for_worker
-- The task waits for a worker that knows its function.
EXISTS (SELECT FROM {schema}.pauses p WHERE p.id = t.pause_id AND p.scope = 'unknown' AND p.resumed_at IS NULL)

-- rule: wanted
-- The task is runnable, or would be if a worker knew its function.
(NOT {inactive t} AND t.paused_by IS NULL AND (t.pause_id IS NULL OR {waits_for_worker t}))

-- rule: failing
-- The task fails with a cause that was recorded, and nobody has paused or disabled it. The condition of `tasks_cause`.
(t.cause <> '' AND t.enabled AND t.owner_active AND (t.paused_by IS NULL OR t.paused_by = 'ticker'))

-- rule: causes
-- The causes with which tasks fail, and then NULL, each found after the previous one: there may be few causes and many tasks.
causes (cause) AS (
    (SELECT t.cause FROM {schema}.tasks t WHERE {failing t} ORDER BY t.cause LIMIT 1)
    UNION ALL
    SELECT (SELECT t.cause FROM {schema}.tasks t WHERE {failing t} AND t.cause > c.cause ORDER BY t.cause LIMIT 1)
    FROM causes c WHERE c.cause IS NOT NULL
)

-- rule: still_fails
-- A task fails with the cause of this notice.
EXISTS (SELECT FROM {schema}.tasks x WHERE {failing x} AND x.cause = t.cause)

-- rule: has_grown
-- More tasks fail with the cause of this notice, or were paused by the ticker, than its channel was notified of.
(SELECT count(*) > t.tasks OR count(*) FILTER (WHERE x.paused_by = 'ticker') > t.paused
    FROM {schema}.tasks x WHERE {failing x} AND x.cause = t.cause)

-- rule: late_cause
-- The cause of a task that has had no success for too long, and does not fail.
'no success in time'

-- rule: keeps
-- The pause p is for the task t, or the task waits with it for a worker that knows its function.
({covers t} OR p.mark = {gate t})

-- rule: covered
-- A pause of many tasks that is in force is for the task. The pauses are read once for all tasks.
((SELECT EXISTS (SELECT FROM {schema}.pauses p WHERE {in_force p}))
        AND ({marks t} && ARRAY(SELECT p.mark FROM {schema}.pauses p WHERE {in_force p})
            OR EXISTS (SELECT FROM unnest(t.limits) AS u (key) JOIN {schema}.pauses p ON {schema}.is_limit_of(p.value, u.key)
                WHERE p.scope = 'limit' AND {in_force p})))

-- rule: is_any_paused
-- A pause of many tasks is in force.
(SELECT EXISTS (SELECT FROM {schema}.pauses p WHERE {in_force p} AND p.scope <> 'unknown'))

-- rule: kept_waiting
-- A pause, of the task itself or of many, keeps it waiting.
(t.paused_by IS NOT NULL OR {covered t})

-- rule: all_paused
-- All tasks are paused: no run starts, whatever its kind.
(SELECT EXISTS (SELECT FROM {schema}.pauses p WHERE p.scope = 'all' AND {in_force p}))

-- rule: unlimited
-- The runnable tasks without limits. Limited tasks have an index of their own, so that those that are blocked delay nothing else.
{runnable t} AND t.limits IS NULL

-- rule: limited
{runnable t} AND t.next_run IS NOT NULL AND t.limits IS NOT NULL

-- constant: late_bound
-- A task that was due before this may be late, whatever its tolerance. (Indexes need a bound without columns.)
(SELECT {now} - %(late_ms)s::bigint * interval '1 millisecond')

-- rule: late_before
-- The task t is late if it was due before this and has not started: a tick and its tolerance, or 5 s if that is longer, have passed.
({late_bound} - greatest(t.tolerance_ms, 5000) * interval '1 millisecond')

-- rule: overdue
t.next_run < {late_bound} AND t.next_run < {late_before t} AND coalesce(t.resumed_at < {late_before t}, true)

-- rule: late_due
-- The task t has no limits, and should have been pushed.
{unlimited t} AND {overdue t}

-- rule: seen_waiting
-- The task t was due at the last tick, which has not pushed it.
{runnable t} AND t.push_errors = 0 AND t.next_run <= (SELECT max(last_tick_at) FROM {schema}.tickers)

-- rule: left
-- How many due tasks the last tick left in each queue, because it is full. Empty if no ticker is alive.
coalesce((SELECT CASE jsonb_typeof(a.last_report->'left') WHEN 'object' THEN a.last_report->'left' END FROM {schema}.tickers a
    WHERE a.last_report->>'ended' IS NULL AND {silent_at a} > clock_timestamp() ORDER BY a.last_tick_at DESC LIMIT 1), '{}')

-- rule: in_full_queue
-- The last tick left due tasks of its queue, which is full.
{left} ? t.queue

-- rule: for_queue
-- The task t was due at the last tick, which left it because its queue is full. (The first condition is asked once.)
(SELECT {left} <> '{}') AND {seen_waiting t} AND {in_full_queue t}

-- rule: for_turn
-- The last tick left the task t because suspected tasks take turns.
{suspected t} AND {seen_waiting t} AND {is_alone t} AND NOT ({in_full_queue t}) AND {waits_for_turn t}

-- rule: is_alone
-- It was a suspect at the last tick.
coalesce(t.alone_until > (SELECT max(last_tick_at) FROM {schema}.tickers), false)

-- rule: waits_for_room
-- A limit keeps the task t waiting, or a key that is closed or starts again: it was due at the last tick, which has not pushed it.
-- Nothing else has kept it: no job of its own, no turn of suspected tasks, and no full queue.
{limited t} AND {seen_waiting t} AND NOT {is_alone t} AND NOT {in_full_queue t} AND {may_be_full t}

-- rule: may_be_full
-- The task t has no job that waits, but keys with limits, or keys that SlowDown has closed.
t.waiting = '{}' AND EXISTS (
        SELECT FROM {schema}.limited_keys k WHERE k.key = ANY (t.limits) AND (k.limited_by IS NOT NULL OR k.allowed IS NOT NULL
            OR k.closed_until > (SELECT max(last_tick_at) FROM {schema}.tickers)))

-- rule: waits_too_long_for_room
-- A limit has kept the task t waiting for over an interval, or for 10 minutes if it has none.
{waits_for_room t} AND t.next_run < (SELECT {now}) - coalesce(nullif({interval_ms t}, 0), 600000) * interval '1 millisecond'

-- rule: late_with_limits
-- The task t has keys, but no limit keeps it waiting: it should have been pushed.
{limited t} AND {overdue t} AND NOT ({waits_for_room t})

-- rule: late_in_queue
-- A job of the task t should have started.
t.waiting <> '{}' AND {runnable t} AND t.waiting[1] < {late_before t}

-- rule: late
coalesce({late_due t} OR {late_with_limits t} OR {late_in_queue t}, false)

-- rule: late_tasks
-- Up to twice %(most)s late tasks, and since when they have been due.
(SELECT id, min(since) AS since FROM (
        (SELECT t.id, greatest(t.next_run, t.resumed_at) AS since FROM {schema}.tasks t WHERE {late_due t} ORDER BY t.next_run LIMIT %(most)s + 1)
        UNION ALL
        (SELECT t.id, greatest(t.next_run, t.resumed_at) FROM {schema}.tasks t WHERE {late_with_limits t} ORDER BY t.next_run LIMIT %(most)s + 1)
        UNION ALL
        (SELECT t.id, t.waiting[1] FROM {schema}.tasks t WHERE {late_in_queue t} LIMIT %(most)s + 1)) t GROUP BY id)

-- rule: interval_ms
-- The interval in force of the interval task t, in milliseconds.
coalesce(t.stretched_ms, t.pace_ms, t.every_ms)

-- rule: inactive
(NOT t.enabled OR NOT t.owner_active)

-- rule: places
-- How many runs of the key t may be active at the same time. After a hold, these are fewer than its limit.
least(t.concurrency, t.allowed)

-- constant: slow_start_most
-- After a hold, so many runs of a key without a concurrency limit are active before it is unlimited again.
64

-- rule: due
-- Interval tasks count as due a little early (timing.horizon). Others never do: they would be pushed twice. A time that has met the
-- run at work waits for its end. A single time that skips overlaps waits until no job of the task waits or runs: it has no other.
t.next_run <= %(now)s::timestamptz + %(look_ahead)s::bigint * interval '1 millisecond'
  AND t.next_run <= %(now)s::timestamptz
      + CASE WHEN t.kind = 'interval' THEN least(%(look_ahead)s::bigint, t.tolerance_ms / 5) ELSE 0 END * interval '1 millisecond'
  AND (t.push_after IS NULL OR t.push_after <= %(now)s::timestamptz)
  AND (t.wait_reason IS DISTINCT FROM 'still_running' OR coalesce(t.running_until <= %(now)s::timestamptz, true))
  AND NOT (t.kind = 'once' AND t.overlap = 'skip' AND {busy t})

-- rule: was_pushed
-- A job of the task was pushed before.
(t.last_occurrence IS NOT NULL OR t.waiting <> '{}'
    OR EXISTS (SELECT FROM {schema}.runs r WHERE r.task_id = t.id AND r.kind = 'scheduled'))

-- rule: planned
-- A retry or manual run waits for a tick to push it. Indexes have this condition and that of the next rule.
t.state = 'planned' AND (t.kind <> 'piece' OR t.attempt > 1)

-- rule: planned_piece
t.state = 'planned' AND t.kind = 'piece' AND t.attempt = 1

-- rule: to_stop
-- People have asked to stop the run, and it has not ended. An index has this condition.
t.stop_requested_by IS NOT NULL AND t.state <> 'ended'

-- rule: reason_of_end
-- The reason of an end of the run r. A process that stopped the run does not know who had asked for it.
left(CASE WHEN t.outcome = 'interrupted' AND t.reason = 'stopped' THEN 'stopped by ' || coalesce(r.stop_requested_by, '?') ELSE t.reason END, 2000)

-- rule: busy
-- A job of the task waits or runs, so `overlap = 'skip'` pushes no other.
(t.waiting <> '{}' OR coalesce(t.running_until > %(now)s, false)
        OR EXISTS (SELECT FROM {schema}.runs r WHERE r.state = 'pushed' AND r.task_id = t.id)
        OR EXISTS (SELECT FROM {schema}.runs r WHERE r.state = 'processing' AND r.task_id = t.id))

-- rule: holder
-- The run r that holds the task. A ticker on another host may have recorded it as lost because the clock was set
-- forward. By the uptime of its own host, the run still holds the task. A statement that waited for the task's lock
-- meanwhile sees the run as it was before: still running.
(r.token = t.run_token AND r.state = 'running'
        OR r.id = CASE WHEN t.run_token IS NULL AND t.last_outcome = 'lost' THEN t.last_run_id END
        AND CASE WHEN r.state = 'running' THEN t.last_ended_at WHEN r.outcome = 'lost' THEN r.ended_at END > r.until)

-- rule: held_times
-- For how long the run t may hold its task, and for how long it has, by the uptime: NULL if it began on another host.
greatest(t.until - t.started_at, interval '0') AS held_for,
    CASE WHEN t.boot = %(boot)s::text AND t.uptime_us <= %(uptime)s::bigint
        THEN (%(uptime)s::bigint - t.uptime_us) * interval '1 microsecond' END AS held_since

-- rule: spacing
-- The minimum time between two starts of an interval task.
(t.every_ms - t.tolerance_ms) * interval '1 millisecond'

-- rule: phase
-- The phase of the spread task t in its interval, or after each of its times: a hash of its owner and name.
CASE WHEN t.spread
    THEN ('x' || substr(md5(t.owner_type || '/' || t.owner_id || '/' || t.name), 1, 7))::bit(28)::bigint
        * CASE t.kind WHEN 'interval' THEN t.every_ms ELSE t.within_ms END / 268435456 END

-- rule: in_phase
-- The first point in the phase of the interval task t at or after t.soonest. If its schedule ends before, the end.
least(timestamptz 'epoch' + (ceil((1000 * extract(epoch FROM t.soonest) - t.phase_ms) / t.every_ms) * t.every_ms + t.phase_ms)::float8
    * interval '1 millisecond', greatest(coalesce(t.ends_at, 'infinity'), t.soonest))

-- rule: soonest_due
-- The first time at which an interval task is due after its last start. It is not dropped as too early then, even if a
-- ticker looks ahead by 1 s (`timing.LOOK_AHEAD`).
t.last_run + (t.every_ms - t.tolerance_ms + least(t.tolerance_ms / 5, 1000)) * interval '1 millisecond'

-- rule: needs_follow_up
-- Whether the next tick has work after a success of the task: a notice, the return to its own interval, or the alarm.
(t.told <> '' OR t.stretched_ms IS NOT NULL OR (t.dead_man IS NOT NULL AND t.alarm_at IS NULL))

-- rule: one_more_failure
-- The failures of the task t after the run e has failed. If it may be retried, a tick counts it (`counts_here`).
CASE WHEN t.retries > 0 AND e.kind <> 'manual' THEN t.failures ELSE least(t.failures + 1, 1000000) END

-- rule: pace
-- The interval in force of the elastic task t after the run e: twice as long as before if it found nothing to do, up to the
-- upper bound, or the lower bound (NULL) if it found work. A manual run that finds nothing changes nothing.
CASE WHEN t.every_most_ms IS NULL OR e.outcome IN {work_outcomes} THEN NULL
        WHEN e.outcome = 'nothing_to_do' AND e.kind <> 'manual' THEN least(2 * coalesce(t.pace_ms, t.every_ms), t.every_most_ms)
        ELSE t.pace_ms END

-- rule: longest_again
-- The longest time after which the task t is due again because a run asked for it, in milliseconds.
coalesce(t.every_most_ms, 86400000)

-- rule: next_is_pushed
-- An occurrence between the last one that started and the next one is in the queue. (An earlier one may be in the hands of a dead
-- worker. So may a later one, if the clock was set back.)
EXISTS (SELECT FROM unnest(t.waiting) w WHERE coalesce(w > t.last_occurrence, true) AND w < t.next_run)

-- rule: paced
-- When the elastic task t is due after its interval in force has become this pace. The push of its last run has counted on the
-- earlier one. A spread task moves by whole lower bounds, to another of its phases. Nothing moves if a run asked for this time
-- (`again`). If the shorter interval has passed, the task is due now: it is not late.
CASE WHEN t.every_most_ms IS NULL OR t.next_run IS NULL OR t.next_run IS NOT DISTINCT FROM t.again_at
        THEN t.next_run
        ELSE (SELECT CASE WHEN n.at > t.ends_at THEN NULL ELSE n.at END FROM (SELECT CASE WHEN m.ms = 0 THEN t.next_run
            ELSE greatest(t.starts_at, {soonest_due t}, t.next_run + m.ms * interval '1 millisecond') END AS at
            FROM (SELECT CASE WHEN t.phase_ms IS NULL THEN d.ms ELSE d.ms / t.every_ms * t.every_ms END AS ms
                FROM (SELECT greatest(coalesce({pace t}, t.every_ms) - coalesce(t.pace_ms, t.every_ms),
                    least(0, -floor(1000 * extract(epoch FROM t.next_run - e.ended_at)))::bigint) AS ms) d) m) n) END

-- rule: resumed
-- When a task is due if its pause ends at i.now, or if it is enabled then. A time that has passed is kept, as after a
-- pause of many tasks. Otherwise, an interval task is due as soon as it may run, and never later than before. (A daily task that is due
-- at once, without regard to its spacing, would be dropped as too early and wait another day.) The result is never after
-- the last time that the tables' CHECK accepts, even if a `last_run` was edited by hand.
CASE WHEN t.kind <> 'interval' OR t.next_run IS NULL THEN t.next_run WHEN i.now > t.ends_at THEN NULL
        WHEN greatest(t.next_run, {soonest_due t}) <= i.now THEN t.next_run ELSE
        greatest(t.starts_at, least(CASE WHEN t.next_run > i.now THEN t.next_run END, '9999-12-31T00:00:00Z',
            greatest(i.now, {soonest_due t}))) END

-- rule: announced
-- Joins the function f of the task t, if a worker has announced it, or an application has declared it.
LEFT JOIN {schema}.functions f ON f.name = t.function

-- rule: claimed
-- The columns that a push needs of a due task t and its announced function f, in the order of the fields of DueTask.
t.id, t.next_run AS occurrence, t.queue, t.function, t.every_ms, t.box_ms, t.grace_ms, t.push_errors, t.kind, t.expression, t.zone,
    t.starts_at, t.ends_at, t.catch_up, t.overlap = 'skip' AND {busy t} AS busy, t.tolerance_ms, t.phase_ms,
    {batch t} AS batch, coalesce(f.concurrency, 1) AS concurrency, {apart t} AS apart, t.pace_ms, t.during, t.resumed_at,
    cardinality(array_remove(t.waiting, t.next_run)) AS waiting, t.owner_type, t.owner_id, t.priority

-- rule: in_groups
-- How planned runs, and jobs that are pushed again, share a job: only if their runs also share a process.
CASE WHEN f.concurrency > 1 THEN {batch t} ELSE 1 END AS batch, coalesce(f.concurrency, 1) AS concurrency, {apart t} AS apart

-- rule: batch
-- How many tasks of the announced function f one job may carry.
CASE {apart t} WHEN '' THEN {packed t} WHEN 'halved' THEN f.halved_to ELSE coalesce(t.share, 1) END

-- rule: packed
-- As many tasks as the slots of the function f begin within half a tick, if each run takes the measured mean. Until that is known, as
-- many as begin at once, or the whole batch without `concurrency`.
coalesce(least(f.batch, greatest(f.concurrency,
    coalesce(f.concurrency * {tick_ms} / (2 * f.mean_ms), CASE f.concurrency WHEN 1 THEN f.batch END))), 1)

-- rule: apart
-- Why the process of the task's job takes in no further jobs: it carries suspects or guilty tasks, or the size of groups is halved.
-- Empty if it does. Guilty tasks take turns, one job at a time. So do suspects, if the function has other tasks in the queue.
CASE WHEN coalesce(f.concurrency, 1) = 1 THEN '' WHEN {suspected t} THEN CASE WHEN {guilty t} OR {has_good t} THEN 'in turn' ELSE 'suspect' END
        WHEN {is_halved f} THEN 'halved' ELSE '' END

-- rule: is_halved
-- The size of the groups of the function is halved. After the clock was set back, it is not.
coalesce(t.halved_until BETWEEN (SELECT {now}) AND (SELECT {now}) + interval '1 hour', false)

-- rule: suspected
-- The task is a suspect or guilty.
t.alone_until > (SELECT {now})

-- rule: guilty
-- A run of the task was killed or lost within the last hour, and no other run was the cause.
{suspected t} AND t.alone_until < {open_end}

-- constant: open_end
-- The `alone_until` of a suspect: a run of it was interrupted or lost, and the cause is unknown. Suspects of one death share jobs of
-- `share` tasks, about the square root of their number. The members of a job that dies again run alone: their `share` is 1. A
-- suspect is cleared when one of its runs has ended. It keeps its `share` until a further run has ended.
'9999-12-31T00:00:00Z'::timestamptz

-- rule: suspects
-- Up to 1,000 suspected tasks. (The order and the limit keep the planner to the index: it expects a third of all tasks.)
(SELECT o.* FROM {schema}.tasks o WHERE {suspected o} ORDER BY o.alone_until LIMIT 1000)

-- rule: has_good
-- The function of the suspected task t has other tasks in its queue. The subquery is executed once for all rows.
(t.queue, t.function) IN (SELECT s.queue, s.function FROM (SELECT DISTINCT queue, function FROM {suspects} d) s WHERE (
        SELECT o.id FROM {schema}.tasks o
        WHERE (o.function, o.queue, ({runnable o})) >= (s.function, s.queue, true) AND (o.function, o.queue) <= (s.function, s.queue)
            AND coalesce(o.alone_until <= (SELECT {now}), true) ORDER BY o.function, o.queue LIMIT 1) IS NOT NULL)

-- rule: waits_for_turn
-- The task is suspected, and a job of suspected tasks of its function waits in its queue. Guilty tasks also wait while a guilty task of
-- the function runs, and until it has taken a tenth of a worker's time, if the function has other tasks. A process that dies costs
-- about a second. A job whose task was due over ten minutes ago keeps no others waiting, nor does a planned run that was pushed so long
-- ago: the queue may have no workers. Nor does what lies ahead: the clock was set back.
coalesce({suspected t} AND {grouped t} AND ((t.queue, t.function) IN (SELECT g.queue, g.function FROM {suspects} g WHERE
            g.waiting[cardinality(g.waiting)] {recently} OR EXISTS (
                SELECT FROM {schema}.runs r WHERE r.state = 'pushed' AND r.task_id = g.id AND r.pushed_at {recently} OFFSET 0))
        OR {guilty t} AND t.function IN (SELECT g.function FROM {suspects} g WHERE {guilty g} AND (
            g.running_until > (SELECT {now}) OR {has_good g} AND (SELECT r.started_at + 10 * greatest(r.ended_at - r.started_at, interval '1 s')
                FROM {schema}.runs r WHERE r.id = g.last_run_id AND r.started_at <= (SELECT {now})) > (SELECT {now})))), false)

-- constant: recently
BETWEEN (SELECT {now}) - interval '10 minutes' AND (SELECT {now}) + interval '10 minutes'

-- rule: too_large
-- What people are told while the size of the groups of the function is halved.
'full groups of the function died, but smaller ones did not; a full one probably needs too much memory: lower concurrency. Until '
        || to_char(t.halved_until AT TIME ZONE 'UTC', 'HH24:MI:SS') || ' UTC, its jobs carry at most ' || t.halved_to || ' tasks'

-- rule: lost_with_host
-- The run was lost together with others of its host or worker: no failure of its task.
(t.outcome = 'lost' AND starts_with(t.reason, 'lost with other runs'))

-- rule: repeatable
-- An interrupted run of the task is retried even if the task has no retries.
coalesce((SELECT f.repeatable FROM {schema}.functions f WHERE f.name = t.function), false)

-- rule: grouped
-- Runs of the task may share a process with other runs at the same time.
coalesce((SELECT f.concurrency > 1 FROM {schema}.functions f WHERE f.name = t.function), false)

-- rule: with_parents
-- The runs with pieces that were never pushed. Each run is looked up after the previous one.
WITH RECURSIVE parents AS (
    (SELECT parent_id AS id FROM {schema}.runs WHERE {planned_piece} ORDER BY parent_id LIMIT 1)
    UNION ALL
    SELECT (SELECT r.parent_id FROM {schema}.runs r
            WHERE {planned_piece r} AND r.parent_id > p.id
            ORDER BY r.parent_id LIMIT 1)
    FROM parents p WHERE p.id IS NOT NULL
)

-- constant: good_outcomes
('succeeded', 'partial', 'nothing_to_do')

-- constant: work_outcomes
-- The good outcomes that count as work.
('succeeded', 'partial')

-- constant: bad_outcomes
('failed', 'timed_out', 'killed', 'lost')

-- rule: run
-- The columns of a run that people read, without its output, which is up to 64 kB. A run that has started was judged at its
-- start: to store that time twice would cost 16 bytes of WAL per run. The subject is that of its task now.
t.id, t.task_id, t.task_name, t.function, t.owner_type, t.owner_id, t.kind, t.parent_id, t.item::text AS item, t.occurrence,
    t.attempt, t.retried, t.pieces, t.state, t.outcome, t.reason, t.due_at, t.pushed_at, t.started_at, t.until, t.ended_at,
    t.created_at, t.checked_last_run, coalesce(t.checked_at, t.started_at) AS checked_at, t.every_ms, t.tolerance_ms,
    t.result::text AS result, t.traceback, t.worker, t.host, t.pid, t.job_id, t.stop_requested_by, t.stop_requested_at, t.queue,
    {subject t} AS subject

-- rule: event
-- The columns of an event that people read.
t.id, t.at, t.task_id, t.task_name, t.function, t.owner_type, t.owner_id, t.what, t.by, t.words, t.run_id, t.count, t.until,
    {subject t} AS subject

-- rule: subject
-- The subject of the task of a run or an event t. Empty if it has none, or was deleted.
coalesce((SELECT s.subject FROM {schema}.tasks s WHERE s.id = t.task_id), '')
