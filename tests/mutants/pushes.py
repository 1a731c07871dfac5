"""Faults in the tick: what is found due, pushed and advanced."""

from tests.mutants.mutant import Mutant

TICK = "ticker/engine/tick.py"

PUSH_THEN_ADVANCE = """\
        receipts = work.queue.push([job.spec for job in packed])
        sent = list(zip(packed, receipts, strict=True))
        refused = {task.id: receipt.error for job, receipt in sent if receipt.error for task in job.tasks}
        batch_jobs = {task.id: job.batch_job_id for job in packed for task in job.tasks}
        failed += [(task, refused[task.id]) for task, _ in plans if task.id in refused]
        rows.advance(
            [(*plan, batch_jobs[id_]) for plan in plans if (id_ := plan[0].id) in batch_jobs and id_ not in refused]
        )
        rows.try_later("""

ADVANCE_THEN_PUSH = """\
        rows.advance([(task, next_run, None) for task, next_run in plans])
    receipts = work.queue.push([job.spec for job in packed])
    sent = list(zip(packed, receipts, strict=True))
    refused = {task.id: receipt.error for job, receipt in sent if receipt.error for task in job.tasks}
    failed += [(task, refused[task.id]) for task, _ in plans if task.id in refused]
    with work.store.batch() as rows:
        rows.try_later("""

PUSHES = (
    Mutant(
        "pause-unseen-by-a-short-pass",
        "ticker/db/sql/sweep.sql",
        "d.due AND NOT o.other AND NOT EXISTS (SELECT FROM {schema}.pauses WHERE resumed_at IS NULL)",
        "d.due AND NOT o.other",
        "A pass that finds only due tasks skips the other steps, but not while a pause may be for the tasks.",
        (
            "tests/engine/test_pauses.py::test_a_pass_does_nothing_but_push_where_tasks_are_due_and_no_pause_is_in_force",
        ),
    ),
    Mutant(
        "copied-signature",
        "ticker/queue/push.lua",
        "if signature ~= '' then",
        "if signature ~= '' and firsts[number] == job then",
        "Each job of a push has a signature of its own, although later jobs are copies of the first.",
        ("tests/queue/test_bulk.py::test_jobs_that_are_pushed_together_are_signed_as_those_pushed_alone",),
    ),
    Mutant(
        "commit-before-push",
        TICK,
        PUSH_THEN_ADVANCE,
        ADVANCE_THEN_PUSH,
        "`next_run` advances only after Redis took the job. After a crash between the two, the job is pushed again, and nothing is lost.",
        ("tests/engine/test_tick.py::test_a_task_whose_push_has_no_answer_does_not_advance",),
    ),
    Mutant(
        "advance-on-push-error",
        TICK,
        "in batch_jobs and id_ not in refused]",
        "in batch_jobs]",
        "A row whose push Redis refused does not advance; it stays due.",
        ("tests/engine/test_tick.py::test_a_task_that_cannot_be_enqueued_costs_only_itself_backs_off_and_is_shown",),
    ),
    Mutant(
        "planned-run-counts-as-pushed-on-error",
        TICK,
        "rows.mark_pushed([(run.id, job.spec.job_id) for run, job, receipt in sent if not receipt.error], work.now)",
        "rows.mark_pushed([(run.id, job.spec.job_id) for run, job, _ in sent], work.now)",
        "A planned run whose push Redis refused stays planned: no job of it exists.",
        ("tests/engine/test_tick.py::test_a_planned_run_that_cannot_be_pushed_is_tried_again_after_30_seconds",),
    ),
    Mutant(
        "bad-row-stops-its-batch",
        TICK,
        "except (BadInput, OverflowError) as error:",
        "except ZeroDivisionError as error:",
        "A bad row affects only itself, and changes no other task's history.",
        ("tests/engine/test_tick.py::test_a_row_that_has_no_next_time_costs_only_itself_and_says_why",),
    ),
    Mutant(
        "alarm-time-without-an-alert",
        "ticker/db/sql/follow_up.sql",
        "WHERE alarm_at <= %(now)s AND dead_man IS NOT NULL AND {wanted t}",
        "WHERE alarm_at <= %(now)s AND {wanted t}",
        "An alarm time that was set by hand, without an alert, does not stop the tick.",
        ("tests/worker/test_ailing_tasks.py::test_a_row_that_a_hand_has_spoilt_costs_only_itself",),
    ),
    Mutant(
        "random-job-id",
        "ticker/engine/jobs.py",
        'return f"{installation}-t{task_id}-{micros(occurrence)}"',
        "return f\"{installation}-t{task_id}-{__import__('uuid').uuid4().hex}\"",
        "A job's id is determined by its task and occurrence, so a push that is repeated after a crash is refused.",
        (
            "tests/engine/test_tick.py::test_after_a_crash_between_push_and_commit_the_same_jobs_are_held_and_the_tasks_advance",
        ),
    ),
    Mutant(
        "secrets-in-the-description",
        "ticker/db/sql/rules.sql",
        "t.queue, t.function, t.every_ms,",
        "t.queue, t.function || ' ' || t.kwargs::text AS function, t.every_ms,",
        "A job's description contains no arguments of its task, since these may be secret.",
        ("tests/worker/test_worker.py::test_the_job_carries_ids_only",),
    ),
    Mutant(
        "for-update",
        "ticker/db/sql/push.sql",
        "ORDER BY next_run\nLIMIT %(limit)s\nFOR NO KEY UPDATE OF t SKIP LOCKED\n\n-- name: claim_in_turn",
        "ORDER BY next_run\nLIMIT %(limit)s\nFOR UPDATE OF t SKIP LOCKED\n\n-- name: claim_in_turn",
        "Due rows are locked FOR NO KEY UPDATE, so a foreign key to a task in another open transaction does not hide the task.",
        (
            "tests/engine/test_tick.py::test_a_task_that_an_open_transaction_refers_to_by_a_foreign_key_is_pushed_all_the_same",
        ),
    ),
    Mutant(
        "no-skip-locked",
        "ticker/db/sql/push.sql",
        "ORDER BY next_run\nLIMIT %(limit)s\nFOR NO KEY UPDATE OF t SKIP LOCKED\n\n-- name: claim_in_turn",
        "ORDER BY next_run\nLIMIT %(limit)s\nFOR NO KEY UPDATE OF t\n\n-- name: claim_in_turn",
        "Row locks divide the work among tickers: a ticker skips the rows that another one has locked, instead of waiting for them.",
        ("tests/engine/test_ports.py::test_rows_of_an_open_batch_are_left_out_by_others_until_it_ends",),
    ),
    Mutant(
        "no-look-ahead",
        "ticker/db/sql/rules.sql",
        "THEN least(%(look_ahead)s::bigint, t.tolerance_ms / 5) ELSE 0 END",
        "THEN 0 ELSE 0 END",
        "An interval task is due a little early, so jitter of the ticks does not delay it by a whole tick.",
        (
            "tests/engine/test_ports.py::test_an_interval_task_is_due_early_by_the_look_ahead_and_at_most_a_fifth_of_its_tolerance",
        ),
    ),
    Mutant(
        "look-ahead-of-the-loop-unused",
        "ticker/daemon/tick_job.py",
        "look_ahead=timing.LOOK_AHEAD,",
        "look_ahead=0,",
        "The loop looks a second ahead, so over 50 intervals a task starts in at least 0.98 of them.",
        ("tests/daemon/test_loop.py::test_a_tick_of_the_loop_looks_a_second_ahead",),
    ),
    Mutant(
        "paused-tasks-are-pushed",
        "ticker/db/sql/rules.sql",
        "t.enabled AND t.owner_active AND t.paused_by IS NULL",
        "t.enabled AND t.owner_active",
        "A task is due only if it is enabled, its owner is active, and it is not paused.",
        ("tests/engine/test_ports.py::test_what_is_off_paused_done_or_set_back_is_not_due",),
    ),
    Mutant(
        "next-run-counted-from-the-occurrence",
        "ticker/schedules/kinds.py",
        "phase_ms is None:\n        due = in_force(task).next_after(now)",
        "phase_ms is None:\n        due = in_force(task).next_after(task.occurrence)",
        "An outage causes one late run, never a burst: the next time is counted from now.",
        ("tests/engine/test_tick.py::test_an_outage_gives_one_late_run_and_never_a_burst",),
    ),
    Mutant(
        "pushed-occurrence-not-noted",
        "ticker/db/sql/push.sql",
        "waiting = CASE WHEN t.next_run = ANY (t.waiting) OR",
        "waiting = CASE WHEN true OR",
        "Every pushed occurrence is recorded as waiting, so a job that Redis loses is found and pushed again.",
        ("tests/engine/test_ports.py::test_an_advanced_task_waits_for_its_start_and_moves_on",),
    ),
    Mutant(
        "job-ttl-shorter-than-expiry",
        "ticker/engine/timing.py",
        "return math.ceil(2 * expiry(every) / SECOND) + 3600",
        "return math.ceil(expiry(every) / SECOND) // 2",
        "Redis deletes a waiting job only long after it has expired. Otherwise, RQ would skip the job without a record.",
        ("tests/engine/test_timing.py::test_redis_forgets_a_job_long_after_it_has_expired",),
    ),
)
