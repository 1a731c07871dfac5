"""Faults in elastic intervals, in `run.again`, and in bursts of calls that are one run."""

from tests.mutants.mutant import Mutant

RULES, REGISTER = "ticker/db/sql/rules.sql", "ticker/db/sql/register.sql"
ELASTIC, AGAIN, ONCE = (
    "tests/worker/test_elastic_intervals.py",
    "tests/worker/test_run_again.py",
    "tests/registration/test_runs_once.py",
)

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
        "max(r.due_at) + %(within_ms)s::bigint * interval '1 millisecond'",
        "max(r.due_at) + 0 * %(within_ms)s::bigint * interval '1 millisecond'",
        "Runs that calls ask for keep their distance.",
        (f"{ONCE}::test_a_call_while_one_is_at_work_plans_another_which_keeps_away",),
    ),
)  # fmt: skip
