"""Faults in the start statement: the guard of spacing, overlap and single starts."""

from tests.mutants.mutant import Mutant

MIGRATION = "ticker/migrations/versions/0010_schema.sql"

STARTS = (
    Mutant(
        "guard-without-a-row-lock",
        "ticker/db/sql/start.sql",
        "SELECT * FROM {schema}.tasks WHERE id = %(task_id)s FOR NO KEY UPDATE\n), instant",
        "SELECT * FROM {schema}.tasks WHERE id = %(task_id)s\n), instant",
        "The start judges under the task's row lock: read-then-write lets every racing worker win.",
        ("tests/db/test_start.py::test_of_16_racing_starts_one_wins_and_15_learn_why",),
    ),
    Mutant(
        "clock-of-the-transaction",
        "ticker/db/sql/start.sql",
        "SELECT {now} AS now, count(id) AS found,",
        "SELECT coalesce(%(now)s::timestamptz, now()) AS now, count(id) AS found,",
        "The clock is read after the row's lock, by clock_timestamp(): `now()` lets two starts come closer than I - T.",
        ("tests/db/test_start.py::test_last_run_is_read_after_a_wait_for_the_row",),
    ),
    Mutant(
        "disabled-task-starts",
        "ticker/db/sql/start.sql",
        "        WHEN {inactive l}\n             OR (l.paused_by IS NOT NULL AND (l.paused_until",
        "        WHEN (l.paused_by IS NOT NULL AND (l.paused_until",
        "Nothing starts after its task was disabled or its owner became inactive.",
        ("tests/db/test_start.py::test_each_reason_is_found_and_changes_nothing_else",),
    ),
    Mutant(
        "no-clamp-in-the-start",
        "ticker/db/sql/start.sql",
        "WHEN l.clock_was_set AND (l.true_last_run",
        "WHEN false AND (l.true_last_run",
        "After the clock was set back a task starves for an interval at most: the start pulls `last_run` back to now.",
        ("tests/db/test_start.py::test_after_the_clock_was_set_back_one_job_is_dropped_and_spacing_is_kept",),
    ),
    Mutant(
        "expired-occurrence-starts",
        "ticker/db/sql/start.sql",
        "AND %(occurrence)s < (SELECT max(w) FROM unnest(l.waiting) w) THEN 'expired'",
        "AND %(occurrence)s < (SELECT min(w) FROM unnest(l.waiting) w) THEN 'expired'",
        "Waiting jobs stay bounded: an occurrence older than max(2 I, 10 min) does not start once a newer one waits.",
        ("tests/db/test_start.py::test_each_reason_is_found_and_changes_nothing_else",),
    ),
    Mutant(
        "no-duplicate-check",
        "ticker/db/sql/start.sql",
        "WHEN %(occurrence)s <= l",
        "WHEN NULL::timestamptz <= l",
        "An occurrence that is not newer than the last one started is a duplicate, and does not start.",
        ("tests/db/test_start.py::test_each_reason_is_found_and_changes_nothing_else",),
    ),
    Mutant(
        "record-not-asked-for",
        "ticker/db/sql/start.sql",
        "WHEN l.record IS NOT NULL THEN 'redelivered'",
        "WHEN false THEN 'redelivered'",
        "Each occurrence has one record, whatever became of it: a job that is delivered again starts nothing and drops nothing.",
        (
            "tests/db/test_start.py::test_a_job_that_is_delivered_again_is_an_event_on_the_record_whatever_came_of_the_first",
            "tests/db/test_start.py::test_an_occurrence_that_has_started_does_not_start_again_although_the_clock_was_set_back_over_it",
        ),
    ),
    Mutant(
        "stale-job-starts",
        "ticker/db/sql/start.sql",
        "WHEN NOT l.is_expected THEN 'stale'",
        "WHEN false THEN 'stale'",
        "Nothing starts for an occurrence that its row neither waits for nor has as its next run.",
        ("tests/db/test_start.py::test_an_occurrence_that_the_task_does_not_wait_for_is_stale_and_changes_nothing",),
    ),
    Mutant(
        "planned-run-of-another-task",
        "ticker/db/sql/start.sql",
        "WHERE r.id = %(run_id)s AND r.task_id = %(task_id)s FOR NO KEY UPDATE OF r",
        "WHERE r.id = %(run_id)s FOR NO KEY UPDATE OF r",
        "A planned job runs only the task to which its run belongs.",
        (
            (
                "tests/db/test_start.py::test_a_planned_job_never_runs_another_tasks_function_under_the_row_of_a_planned_run"
            ),
        ),
    ),
    Mutant(
        "start-with-a-view-from-before-its-wait",
        MIGRATION,
        "RETURNS bigint LANGUAGE sql VOLATILE",
        "RETURNS bigint LANGUAGE sql STABLE",
        "A start that waited for the sweep sees what the sweep has recorded meanwhile.",
        ("tests/db/test_start.py::test_a_start_that_waited_for_the_sweep_sees_what_it_recorded",),
    ),
    Mutant(
        "late-start-moves-the-next-run",
        "ticker/db/sql/start.sql",
        "m.last_run - interval '20 seconds' AND m.last_run + interval '20 seconds'",
        "m.last_run - interval '20 seconds' AND m.last_run + interval '3 seconds'",
        "No committed advance without a push, also where a stopped PostgreSQL read the start late.",
        (
            (
                "tests/db/test_start.py::test_a_start_that_the_server_read_late_leaves_the_next_run"
                "_and_a_clock_that_was_set_far_forward_moves_it"
            ),
        ),
    ),
    Mutant(
        "no-still-running-check",
        "ticker/db/sql/start.sql",
        "THEN 'still_running'\n        WHEN",
        "AND false THEN 'still_running'\n        WHEN",
        "No overlap: nothing starts while another run holds the task.",
        ("tests/db/test_start.py::test_each_reason_is_found_and_changes_nothing_else",),
    ),
    Mutant(
        "no-still-running-check-for-planned-runs",
        "ticker/db/sql/start.sql",
        "THEN 'still_running'\n        END",
        "AND false THEN 'still_running'\n        END",
        "No overlap: a planned run, too, obeys the hold of another run.",
        ("tests/db/test_start.py::test_a_manual_run_obeys_enabled_and_the_hold",),
    ),
    Mutant(
        "equality-is-too-early",
        "ticker/db/sql/start.sql",
        "AND l.now < l.spaced_from + {spacing l} THEN 'too_early'",
        "AND l.now <= l.spaced_from + {spacing l} THEN 'too_early'",
        "A run may start at `last_run + I - T`; equality runs.",
        ("tests/db/test_start.py::test_each_reason_is_found_and_changes_nothing_else",),
    ),
    Mutant(
        "no-tolerance",
        "ticker/db/sql/start.sql",
        "AND l.now < l.spaced_from + {spacing l} THEN 'too_early'",
        "AND l.now < l.spaced_from + l.every_ms * interval '1 millisecond' THEN 'too_early'",
        "A run may start up to its tolerance before `last_run + I`.",
        ("tests/db/test_start.py::test_each_reason_is_found_and_changes_nothing_else",),
    ),
    Mutant(
        "no-spacing",
        "ticker/db/sql/start.sql",
        "THEN 'too_early'",
        "AND false THEN 'too_early'",
        "Two runs of a task never start closer than I - T.",
        ("tests/db/test_start.py::test_each_reason_is_found_and_changes_nothing_else",),
    ),
    Mutant(
        "waiting-not-cleared",
        "ticker/db/sql/start.sql",
        "waiting = array_remove(j.waiting, %(occurrence)s),",
        "waiting = j.waiting,",
        "An occurrence that started or was dropped waits no more, so that it is not pushed again.",
        (
            "tests/db/test_start.py::test_each_reason_is_found_and_changes_nothing_else",
            "tests/worker/test_worker.py::test_functions_end_in_the_outcome_that_they_earned",
        ),
    ),
    Mutant(
        "hold-without-grace",
        "ticker/db/sql/start.sql",
        "SELECT i.now, i.uptime, l.*, (l.box_ms + l.grace_ms) * interval '1 millisecond' AS hold,",
        "SELECT i.now, i.uptime, l.*, l.box_ms * interval '1 millisecond' AS hold,",
        "The hold lasts B + g, as long as something of the run may live; no other run starts before.",
        ("tests/db/test_start.py::test_a_first_start_takes_the_hold_and_sets_last_run",),
    ),
    Mutant(
        "arguments-of-the-registration",
        "ticker/db/sql/start.sql",
        "coalesce(recorded.id, j.record) AS run_id, j.name, j.function, j.kwargs,",
        "coalesce(recorded.id, j.record) AS run_id, j.name, j.function, coalesce(j.registered -> 'kwargs', '{}') AS kwargs,",
        "A run has the arguments of the task's row at its start, not older ones.",
        ("tests/db/test_start.py::test_a_start_is_handed_the_arguments_of_the_row_and_not_those_of_the_registration",),
    ),
    Mutant(
        "planned-run-moves-last-run",
        "ticker/db/sql/start.sql",
        "running_until = CASE WHEN j.refusal IS NULL AND j.run_kind <> 'piece'",
        "last_run = j.now, running_until = CASE WHEN j.refusal IS NULL AND j.run_kind <> 'piece'",
        "A manual run leaves the schedule alone: it never touches `last_run` or `last_occurrence`.",
        ("tests/db/test_start.py::test_a_planned_run_skips_the_spacing_and_touches_no_schedule",),
    ),
)
