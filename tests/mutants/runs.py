"""Faults in a run: its time box, its fences and its end."""

from tests.mutants.mutant import Mutant

SQL = "ticker/statements.sql"
BOX = "wrappers/layers/box.py"
STARTS = "wrappers/starts.py"

RUNS = (
    Mutant(
        "rqs-time-out-alone",
        BOX,
        "    limits.arm()\n",
        "",
        "A run is dead by B + g after its start, also when it overlooks every exception; RQ's time-out alone does not do that.",
        ("tests/test_worker.py::test_what_overruns_its_box_is_ended_with_everything_it_left_behind",),
    ),
    Mutant(
        "limits-counted-from-the-functions-start",
        BOX,
        "since=call.since, how",
        "since=None, how",
        "The limits count from before the start statement was sent, as the hold does; else a run outlives its hold.",
        ("tests/test_mutants_caught.py::test_what_the_start_took_is_gone_from_the_quota_and_from_both_limits",),
    ),
    Mutant(
        "quota-counted-from-the-functions-start",
        BOX,
        "quota = Quota(granted / 1000, call.began)",
        "quota = Quota(granted / 1000, clock.monotonic())",
        "The quota counts from before the start statement was sent, as the hold does.",
        ("tests/test_mutants_caught.py::test_what_the_start_took_is_gone_from_the_quota_and_from_both_limits",),
    ),
    Mutant(
        "box-counted-from-the-guards-answer",
        STARTS,
        "return replace(call, began=began, start",
        "return replace(call, began=clock.monotonic(), start",
        "The box counts from before the start statement was sent: its answer may have taken two seconds of the hold.",
        ("tests/test_mutants_caught.py::test_a_run_counts_its_time_from_before_the_start_was_asked_for",),
    ),
    Mutant(
        "late-answer-of-the-start-is-trusted",
        STARTS,
        "if waited > SLOWEST_ANSWER:",
        "if waited > 1000 * SLOWEST_ANSWER:",
        "If the answer of the start took over 2 s the run does not begin: nobody knows how much of its hold is left.",
        ("tests/test_mutants_caught.py::test_a_start_whose_answer_took_over_two_seconds_is_given_up_and_says_so",),
    ),
    Mutant(
        "box-longer-than-rqs-time-out",
        BOX,
        "timing.granted_box(start.box_ms, start.grace_ms, call.rq_timeout)",
        "timing.granted_box(start.box_ms, start.grace_ms, None)",
        "The box never outlasts the time-out that RQ was told at the push, however the row was edited since.",
        ("tests/test_worker.py::test_the_box_never_outlasts_the_time_out_that_rq_was_told_at_the_push",),
    ),
    Mutant(
        "soft-limit-can-be-swallowed",
        "wrappers/limits.py",
        "class SoftLimit(BaseException):",
        "class SoftLimit(Exception):",
        "`except Exception` cannot swallow the soft limit.",
        ("tests/test_worker.py::test_what_overruns_its_box_is_ended_with_everything_it_left_behind",),
    ),
    Mutant(
        "end-recorded-after-the-timers",
        "wrappers/layers/record.py",
        "    ended = endings.write(",
        "    if call.limits:\n        call.limits.cancel()\n    ended = endings.write(",
        "The limits are cancelled last of all, after the record: a run that hangs there is dead by B + g, too.",
        ("tests/test_worker.py::test_under_a_stock_worker_a_run_that_hangs_where_its_end_is_recorded_is_killed_too",),
    ),
    Mutant(
        "children-left-alive",
        "wrappers/worker.py",
        "left = orphans.kill_new_children(self._before)",
        "left = 0",
        "No child of a run is alive behind it, under our own worker.",
        ("tests/test_worker.py::test_what_a_run_left_behind_dies_by_the_workers_own_hand_long_before_its_box_is_over",),
    ),
    Mutant(
        "checkpoint-without-a-fence",
        SQL,
        "WHERE id = %(task_id)s AND run_token = %(token)s::uuid\nRETURNING id",
        "WHERE id = %(task_id)s AND (run_token = %(token)s::uuid OR true)\nRETURNING id",
        "A run that lost its hold can write no cursor, and learns it.",
        ("tests/test_start.py::test_a_run_that_lost_its_hold_writes_no_cursor_and_learns_it",),
    ),
    Mutant(
        "children-live-on-beside-the-end",
        "wrappers/layers/record.py",
        "    leftovers.kill()",
        "    pass",
        "The end frees the hold, so nothing that the function started lives on when it is written.",
        ("tests/test_run_ends.py::test_no_child_and_no_daemon_lives_when_a_horse_leaves_its_end",),
    ),
    Mutant(
        "end-without-a-fence",
        SQL,
        "run_token IS NOT DISTINCT FROM %(token)s::uuid AS mine,\n        told",
        "run_token IS NOT DISTINCT FROM %(token)s::uuid OR true AS mine,\n        told",
        "A run that lost its hold can write no end, and learns it.",
        ("tests/test_start.py::test_the_end_is_fenced_by_the_token",),
    ),
)
