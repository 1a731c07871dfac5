"""Faults in the start statement: the guard of spacing, overlap and single starts."""

from tests.mutants.mutant import Mutant

SQL = "ticker/statements.sql"
MIGRATION = "ticker/migrations/versions/0003_record.py"

STARTS = (
    Mutant(
        "guard-without-a-row-lock",
        SQL,
        "SELECT * FROM {schema}.tasks WHERE id = %(task_id)s FOR NO KEY UPDATE\n), instant",
        "SELECT * FROM {schema}.tasks WHERE id = %(task_id)s\n), instant",
        "The start judges under the task's row lock: read-then-write lets every racing worker win.",
        ("tests/test_start.py::test_of_16_racing_starts_one_wins_and_15_learn_why",),
    ),
    Mutant(
        "clock-of-the-transaction",
        SQL,
        "SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now, count(id) AS found,",
        "SELECT coalesce(%(now)s::timestamptz, now()) AS now, count(id) AS found,",
        "The clock is read after the row's lock, by clock_timestamp(): `now()` lets two starts come closer than I - T.",
        ("tests/test_start.py::test_last_run_is_read_after_a_wait_for_the_row",),
    ),
    Mutant(
        "disabled-task-starts",
        SQL,
        "        WHEN NOT l.enabled OR NOT l.owner_active\n             OR (l.paused_by IS NOT NULL AND (l.paused_until",
        "        WHEN (l.paused_by IS NOT NULL AND (l.paused_until",
        "Nothing starts after its task was disabled or its owner became inactive.",
        ("tests/test_start.py::test_each_reason_is_found_and_changes_nothing_else",),
    ),
    Mutant(
        "no-clamp-in-the-start",
        SQL,
        "WHEN l.clock_was_set AND (l.true_last_run",
        "WHEN false AND (l.true_last_run",
        "After the clock was set back a task starves for an interval at most: the start pulls `last_run` back to now.",
        ("tests/test_start.py::test_after_the_clock_was_set_back_one_job_is_dropped_and_spacing_is_kept",),
    ),
    Mutant(
        "expired-occurrence-starts",
        SQL,
        "AND %(occurrence)s < (SELECT max(w) FROM unnest(l.waiting) w) THEN 'expired'",
        "AND %(occurrence)s < (SELECT min(w) FROM unnest(l.waiting) w) THEN 'expired'",
        "Waiting jobs stay bounded: an occurrence older than max(2 I, 10 min) does not start once a newer one waits.",
        ("tests/test_start.py::test_each_reason_is_found_and_changes_nothing_else",),
    ),
    Mutant(
        "no-duplicate-check",
        SQL,
        "WHEN %(occurrence)s <= l",
        "WHEN NULL::timestamptz <= l",
        "An occurrence that is not newer than the last one started is a duplicate, and does not start.",
        ("tests/test_start.py::test_each_reason_is_found_and_changes_nothing_else",),
    ),
    Mutant(
        "no-duplicate-check-in-the-records",
        MIGRATION,
        "kind = 'scheduled' AND started_at IS NOT NULL)",
        "kind = 'none' AND started_at IS NOT NULL)",
        "Per (task, occurrence) there is at most one scheduled start, also after the clock was set back over `last_occurrence`.",
        (
            "tests/test_start.py::test_an_occurrence_that_has_started_is_a_duplicate_although_the_clock_was_set_back_over_it",
        ),
    ),
    Mutant(
        "given-up-and-then-run",
        MIGRATION,
        "AND started_at IS NULL\n",
        "AND started_at IS NULL AND false\n",
        "What the sweep gave up, as expired or lost, does not start any more, though a worker had its job in hand.",
        (
            (
                "tests/test_start.py::"
                "test_an_occurrence_that_the_sweep_gave_up_is_a_duplicate_and_one_that_still_waits_is_none"
            ),
        ),
    ),
    Mutant(
        "start-with-a-view-from-before-its-wait",
        MIGRATION,
        "RETURNS boolean LANGUAGE sql VOLATILE",
        "RETURNS boolean LANGUAGE sql STABLE",
        "A start that waited for the sweep sees what the sweep has recorded meanwhile.",
        ("tests/test_start.py::test_a_start_that_waited_for_the_sweep_sees_what_it_recorded",),
    ),
    Mutant(
        "late-start-moves-the-next-run",
        SQL,
        "m.last_run - interval '3 seconds' AND m.last_run + interval '20 seconds'",
        "m.last_run - interval '3 seconds' AND m.last_run + interval '3 seconds'",
        "No committed advance without a push, also where a stopped PostgreSQL read the start late.",
        (
            (
                "tests/test_start.py::test_a_start_that_the_server_read_late_leaves_the_next_run"
                "_and_a_clock_that_was_set_far_forward_moves_it"
            ),
        ),
    ),
    Mutant(
        "no-still-running-check",
        SQL,
        "THEN 'still_running'\n        WHEN",
        "AND false THEN 'still_running'\n        WHEN",
        "No overlap: nothing starts while another run holds the task.",
        ("tests/test_start.py::test_each_reason_is_found_and_changes_nothing_else",),
    ),
    Mutant(
        "no-still-running-check-for-planned-runs",
        SQL,
        "THEN 'still_running'\n        END",
        "AND false THEN 'still_running'\n        END",
        "No overlap: a planned run, too, obeys the hold of another run.",
        ("tests/test_start.py::test_a_manual_run_obeys_enabled_and_the_hold",),
    ),
    Mutant(
        "equality-is-too-early",
        SQL,
        "AND l.now < l.spaced_from + (l.every_ms - l.tolerance_ms) * interval '1 millisecond' THEN 'too_early'",
        "AND l.now <= l.spaced_from + (l.every_ms - l.tolerance_ms) * interval '1 millisecond' THEN 'too_early'",
        "A run may start at `last_run + I - T`; equality runs.",
        ("tests/test_start.py::test_each_reason_is_found_and_changes_nothing_else",),
    ),
    Mutant(
        "no-tolerance",
        SQL,
        "AND l.now < l.spaced_from + (l.every_ms - l.tolerance_ms) * interval '1 millisecond' THEN 'too_early'",
        "AND l.now < l.spaced_from + l.every_ms * interval '1 millisecond' THEN 'too_early'",
        "A run may start up to its tolerance before `last_run + I`.",
        ("tests/test_start.py::test_each_reason_is_found_and_changes_nothing_else",),
    ),
    Mutant(
        "no-spacing",
        SQL,
        "THEN 'too_early'",
        "AND false THEN 'too_early'",
        "Two runs of a task never start closer than I - T.",
        ("tests/test_start.py::test_each_reason_is_found_and_changes_nothing_else",),
    ),
    Mutant(
        "waiting-not-cleared",
        SQL,
        "waiting = array_remove(j.waiting, %(occurrence)s),",
        "waiting = j.waiting,",
        "An occurrence that started or was dropped waits no more, so that it is not pushed again.",
        (
            "tests/test_start.py::test_each_reason_is_found_and_changes_nothing_else",
            "tests/test_worker.py::test_functions_end_in_the_outcome_that_they_earned",
        ),
    ),
    Mutant(
        "hold-without-grace",
        SQL,
        "SELECT i.now, i.uptime, l.*, (l.box_ms + l.grace_ms) * interval '1 millisecond' AS hold,",
        "SELECT i.now, i.uptime, l.*, l.box_ms * interval '1 millisecond' AS hold,",
        "The hold lasts B + g, as long as something of the run may live; no other run starts before.",
        ("tests/test_start.py::test_a_first_start_takes_the_hold_and_sets_last_run",),
    ),
    Mutant(
        "arguments-of-the-registration",
        SQL,
        "recorded.id AS run_id, j.name, j.function, j.kwargs,",
        "recorded.id AS run_id, j.name, j.function, coalesce(j.registered -> 'kwargs', '{}') AS kwargs,",
        "A run has the arguments of the task's row at its start, not older ones.",
        ("tests/test_start.py::test_a_start_is_handed_the_arguments_of_the_row_and_not_those_of_the_registration",),
    ),
    Mutant(
        "planned-run-moves-last-run",
        SQL,
        "running_until = CASE WHEN j.refusal IS NULL AND j.run_kind <> 'piece'",
        "last_run = j.now, running_until = CASE WHEN j.refusal IS NULL AND j.run_kind <> 'piece'",
        "A manual run leaves the schedule alone: it never touches `last_run` or `last_occurrence`.",
        ("tests/test_start.py::test_a_planned_run_skips_the_spacing_and_touches_no_schedule",),
    ),
)
