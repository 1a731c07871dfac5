"""Faults in elastic intervals, in `run.again`, in bursts of calls that are one run, and in hours of the day."""

from tests.mutants.mutant import Mutant

RULES, REGISTER = "ticker/db/sql/rules.sql", "ticker/db/sql/register.sql"
TICK, HOURS = "ticker/engine/tick.py", "ticker/schedules/hours.py"
ELASTIC, AGAIN, ONCE = (
    "tests/worker/test_elastic_intervals.py",
    "tests/worker/test_run_again.py",
    "tests/registration/test_runs_once.py",
)
OF_HOURS, IN_PASSES = "tests/schedules/test_hours.py", "tests/engine/test_hours.py"

RHYTHM = (
    Mutant(
        "manual-run-slows-down",
        RULES,
        "e.outcome = 'nothing_to_do' AND e.kind <> 'manual' THEN",
        "e.outcome = 'nothing_to_do' THEN",
        "A manual run that finds nothing leaves the interval in force.",
        (f"{ELASTIC}::test_a_manual_run_shortens_it_with_work_and_leaves_it_without",),
    ),
    Mutant(
        "interval-in-force-forgotten-by-the-clamp",
        "ticker/db/sql/sweep.sql",
        "ELSE 2 END, t.pace_ms,",
        "ELSE 2 END,",
        "A long interval in force does not mean that the clock was set back.",
        (f"{ELASTIC}::test_a_clock_that_goes_well_leaves_it",),
    ),
    Mutant(
        "stretch-from-the-lower-bound",
        "ticker/engine/follow_up.py",
        "every = min(interval(run) << min",
        "every = min(run.every_ms << min",
        "A failing task is slowed down from its interval in force.",
        (f"{ELASTIC}::test_a_quiet_task_that_fails_is_slowed_down_from_its_interval_in_force",),
    ),
    Mutant(
        "asked-time-moved-by-the-end",
        RULES,
        " OR t.next_run IS NOT DISTINCT FROM t.again_at\n",
        "\n",
        "The time that a run asks for holds, whatever the run finds.",
        (f"{AGAIN}::test_the_task_is_due_then_whatever_the_run_finds_and_after_that_at_its_pace",),
    ),
    Mutant(
        "asked-for-without-a-hold",
        "ticker/db/sql/end.sql",
        "AND t.run_token = %(token)s::uuid FOR NO KEY UPDATE OF t",
        "FOR NO KEY UPDATE OF t",
        "Only the run that holds the task sets its next due time.",
        (f"{AGAIN}::test_a_run_without_its_hold_changes_nothing",),
    ),
    Mutant(
        "every-call-a-run",
        REGISTER,
        " AND t.id NOT IN (SELECT task_id FROM waits)",
        "",
        "A burst of calls is one run.",
        (f"{ONCE}::test_a_burst_is_one_run",),
    ),
    Mutant(
        "bursts-follow-at-once",
        REGISTER,
        "max(least(r.due_at, i.now)) + %(within_ms)s::bigint * interval '1 millisecond'",
        "max(least(r.due_at, i.now)) + 0 * %(within_ms)s::bigint * interval '1 millisecond'",
        "Runs that calls ask for keep their distance.",
        (f"{ONCE}::test_a_call_while_one_is_at_work_plans_another_which_keeps_away",),
    ),
    Mutant(
        "long-distance-taken-for-a-clock-set-back",
        "ticker/db/sql/sweep.sql",
        "CASE reason WHEN '' THEN interval '61 minutes'",
        "CASE reason WHEN '' THEN interval '1 minute'",
        "A run that keeps its distance from the last one waits, also if no clock was set.",
        (f"{ONCE}::test_a_long_distance_holds_through_ticks",),
    ),
    Mutant(
        "pushed-outside-its-hours",
        TICK,
        "if (first := in_hours(task, instant)) > instant:",
        "if (first := instant) > instant:",
        "A tick pushes no task outside its hours.",
        (f"{IN_PASSES}::test_what_is_due_outside_its_hours_for_any_reason_is_put_off_without_a_record",),
    ),
    Mutant(
        "hours-begin-with-all-tasks",
        HOURS,
        "last - current.begins) * share",
        "last - current.begins) * 0",
        "Tasks share the interval that follows the beginning of their hours.",
        (f"{OF_HOURS}::test_many_tasks_share_the_interval_after_the_beginning",),
    ),
    Mutant(
        "put-off-to-the-last-minute",
        HOURS,
        "min((current.ends - current.begins) / 2, BEFORE_THE_END)",
        "min((current.ends - current.begins) / 2, timedelta(0))",
        "No task is put off to the last minutes of its hours, in which a tick could miss it day after day.",
        (f"{OF_HOURS}::test_no_task_is_put_off_to_the_last_minutes_in_which_a_tick_could_miss_it_each_day",),
    ),
    Mutant(
        "due-a-little-early-and-put-off",
        TICK,
        "instant = max(now, task.occurrence)",
        "instant = now",
        "A task that is due when its hours begin is not put off by a tick that looks ahead.",
        (f"{IN_PASSES}::test_a_look_ahead_does_not_put_off_what_is_due_at_the_beginning",),
    ),
    Mutant(
        "quiet-task-put-off-by-its-push",
        "ticker/schedules/kinds.py",
        "due is None or task.pace_ms is not None else",
        "due is None else",
        "An elastic task that finds work shortly before its hours end is polled again before that.",
        (
            f"{OF_HOURS}::test_a_longer_interval_in_force_is_not_put_off_before_its_run_has_ended",
            f"{IN_PASSES}::test_an_elastic_task_that_finds_work_shortly_before_the_end_is_polled_again_before_it",
        ),
    ),
    Mutant(
        "alarm-at-night",
        "ticker/engine/follow_up.py",
        "return too_late_in_hours(task) or timing.later(",
        "return timing.later(",
        "The alarm for a missing success counts due times, which are in the hours of the task.",
        (f"{IN_PASSES}::test_a_success_is_missed_after_due_times_and_not_at_night",),
    ),
    Mutant(
        "hours-taken-for-a-clock-set-back",
        "ticker/db/sql/sweep.sql",
        "CASE WHEN t.during = '' THEN\n",
        "CASE WHEN true THEN\n",
        "A task may wait for its hours for days, which does not mean that the clock was set back.",
        (f"{IN_PASSES}::test_a_ticker_that_starts_leaves_a_task_that_waits_for_its_hours",),
    ),
    Mutant(
        "hours-of-a-later-day",
        "ticker/db/sql/sweep.sql",
        " OR during <> '')",
        ")",
        "After the clock was set back, a task does not wait for the hours of a later day.",
        (f"{IN_PASSES}::test_after_the_clock_was_set_back_a_task_does_not_wait_for_hours_of_a_later_day",),
    ),
)  # fmt: skip
