"""Faults in the sweep: what mends dead runs, lost jobs and clock steps."""

from tests.mutants.mutant import Mutant

SWEEP = "ticker/engine/sweep.py"

SWEEPS = (
    Mutant(
        "no-clamp-in-the-sweep",
        "ticker/engine/tick.py",
        "set_back = store.clamp(now, options.batch)",
        "set_back = False",
        "After the clock was set back, the next tick sets `next_run`, `last_run` and the hold back to now.",
        ("tests/engine/test_tick.py::test_a_pass_brings_back_what_lies_ahead_since_the_clock_was_set_back",),
    ),
    Mutant(
        "no-sign-of-a-clock-step",
        "ticker/db/store.py",
        "set_back = stepped or self._look_again or self._sees_a_tick_ahead(now)",
        "set_back = stepped or self._look_again",
        "A tick recorded in the future shows that the clock was set back: the next tick corrects the rows, not one an hour later.",
        ("tests/engine/test_ports.py::test_a_tick_in_the_future_makes_a_later_pass_look_at_every_row_again",),
    ),
    Mutant(
        "hold-freed-at-once",
        "ticker/db/sql/sweep.sql",
        "ELSE until < (SELECT now FROM instant) - interval '1 second' END",
        "ELSE started_at < (SELECT now FROM instant) - interval '1 second' END",
        "The sweep keeps the hold of a run until B + g: a process of the run may live that long.",
        ("tests/engine/test_ports.py::test_a_run_past_its_box_ends_as_lost_and_frees_its_task",),
    ),
    Mutant(
        "overdue-runs-are-left",
        "ticker/db/sql/sweep.sql",
        "WHERE state = 'running'\n      AND CASE",
        "WHERE false AND state = 'running'\n      AND CASE",
        "A run without an end gets its outcome within B + g and two ticks.",
        ("tests/engine/test_ports.py::test_a_run_past_its_box_ends_as_lost_and_frees_its_task",),
    ),
    Mutant(
        "lost-at-once-after-all-were-away",
        "ticker/db/store.py",
        "if period and self._watched_for(now, period) < patience(period):",
        "if period and self._watched_for(now, period) < 0:",
        "After all tickers, or the tables, were unavailable, workers get time to write their ends before a run is lost.",
        ("tests/db/test_late_ends.py::test_after_all_tickers_were_away_the_sweep_waits_before_it_declares_runs_lost",),
    ),
    Mutant(
        "overdue-by-the-wall-clock",
        "ticker/db/sql/sweep.sql",
        "AND CASE WHEN boot = %(boot)s::text AND uptime_us <= %(uptime)s::bigint\n               THEN",
        "AND CASE WHEN false AND boot = %(boot)s::text AND uptime_us <= %(uptime)s::bigint\n               THEN",
        "A live run is not recorded as lost when the clock is set forward: the uptime of its host decides.",
        (
            "tests/engine/test_clock_steps.py::test_a_run_that_lives_is_not_taken_for_lost_when_the_clock_is_set_forward",
        ),
    ),
    Mutant(
        "overdue-by-the-clock-of-the-pass",
        "ticker/engine/tick.py",
        "store.end_overdue(now, limit, options.period)",
        "store.end_overdue(now or store.now(), limit, options.period)",
        "A pass that was stopped ends no live run, even if its `now` is ahead of a clock that was set back meanwhile.",
        (
            "tests/engine/test_tick.py::test_a_run_is_past_its_end_by_the_clock_of_the_tables_and_not_by_that_of_the_pass",
        ),
    ),
    Mutant(
        "back-off-from-ahead-of-the-clock",
        "ticker/db/sql/sweep.sql",
        "OR t.push_after > m.now +",
        "OR false AND t.push_after > m.now +",
        "A row whose push failed is tried again in time, even if the clock was set back meanwhile.",
        ("tests/engine/test_clock_steps.py::test_a_back_off_does_not_wait_for_a_clock_that_was_set_back",),
    ),
    Mutant(
        "sweep-frees-a-later-runs-hold",
        "ticker/db/sql/sweep.sql",
        "ON h.id = e.task_id AND h.run_token = e.token",
        "ON h.id = e.task_id",
        "The end of a lost run does not change the hold of a later run.",
        ("tests/engine/test_ports.py::test_the_end_of_an_overdue_run_leaves_a_later_runs_hold_alone",),
    ),
    Mutant(
        "nothing-expires",
        "ticker/engine/timing.py",
        "return occurrence < newest and occurrence < now - span(expiry(every))",
        "return False",
        "The number of waiting jobs of a task stays bounded, even after hours without workers.",
        ("tests/engine/test_tick.py::test_it_expires_when_it_is_older_than_two_intervals_and_ten_minutes",),
    ),
    Mutant(
        "pushed-again-without-asking",
        SWEEP,
        "    if state is JobState.WAITING:\n        return JobVerdict.WAITS\n",
        "    if state is JobState.WAITING:\n        return JobVerdict.AGAIN\n",
        "An occurrence is pushed again only if Redis no longer holds its job.",
        ("tests/engine/test_tick.py::test_the_job_of_a_daily_task_that_redis_lost_is_pushed_again_on_the_next_tick",),
    ),
    Mutant(
        "lost-jobs-are-not-pushed-again",
        SWEEP,
        "return JobVerdict.GIVEN_UP if state is JobState.DEAD and is_old else again",
        "return JobVerdict.GIVEN_UP if state is JobState.DEAD and is_old else JobVerdict.WAITS",
        "A job that Redis lost before its start is pushed again automatically.",
        ("tests/engine/test_tick.py::test_the_job_of_a_daily_task_that_redis_lost_is_pushed_again_on_the_next_tick",),
    ),
    Mutant(
        "refused-jobs-go-back-without-end",
        SWEEP,
        "    if not task.is_closed and (refusal.times > 1 or",
        "    if not task.is_closed and (refusal.times > 9 or",
        "A job that workers refuse because of their settings goes back once.",
        ("tests/engine/test_unstarted_jobs.py::test_what_is_refused_again_is_lost",),
    ),
    Mutant(
        "waiting-asked-about-without-a-lock",
        "ticker/db/sql/sweep.sql",
        "FOR NO KEY UPDATE OF t SKIP LOCKED\n\n-- name: wait_again",
        "\n-- name: wait_again",
        "Rows are locked while Redis is queried for their jobs, so none of them starts meanwhile.",
        ("tests/engine/test_ports.py::test_waiting_tasks_that_another_batch_holds_are_left_out",),
    ),
    Mutant(
        "sweep-of-any-number",
        "ticker/db/sql/sweep.sql",
        "count < 5000 AS fits",
        "count < 5000000 AS fits",
        "The sweep settles a limited number of occurrences at a time, so their rows are not locked for long.",
        (
            (
                "tests/db/test_poison_rows.py::"
                "test_a_sweep_settles_so_many_occurrences_that_their_rows_are_not_locked_for_long"
            ),
        ),
    ),
    Mutant(
        "expired-without-a-record",
        SWEEP,
        "rows.settle([Settled(due.id, due.occurrence, Outcome.DROPPED, Reason.EXPIRED) for due in expired], now)",
        "pass",
        "Every pushed job ends as a run, as a drop with a reason, or as lost with a reason.",
        ("tests/engine/test_tick.py::test_an_old_occurrence_expires_once_a_newer_one_waits_and_the_newest_never_does",),
    ),
)
