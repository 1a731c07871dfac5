"""Faults in the rules of groups: many runs at the same time in one process."""

from tests.mutants.mutant import Mutant

TESTS = "tests/worker/test_groups.py::"
ALONE = "tests/worker/test_groups_alone.py::"

GROUPS = (
    Mutant(
        "neighbours-killed",
        "wrappers/pipeline/finish.py",
        'return End(Outcome.INTERRUPTED, f"its process was killed because of task {guilty.task_id}")',
        "return End(Outcome.KILLED, cause)",
        "Of the runs of a group, only the one that caused the death of the process is killed. The others are interrupted.",
        (f"{TESTS}test_what_ignores_its_limits_is_killed_and_its_neighbours_are_interrupted",),
    ),
    Mutant(
        "victim-of-a-blocked-loop-killed",
        "wrappers/pipeline/finish.py",
        "guilty = next((other for other in begun if blocked_until(other, overdue.deadline)), overdue)",
        "guilty = overdue",
        "A run that blocks the event loop is the cause of a kill, even if a neighbour reached its hard limit first.",
        (f"{TESTS}test_a_run_that_blocks_the_loop_pays_for_a_neighbour_that_cannot_end",),
    ),
    Mutant(
        "interruption-counts-as-failure",
        "ticker/db/sql/end.sql",
        "WHEN NOT e.bad OR (t.retries > 0",
        "WHEN (t.retries > 0",
        "An interrupted run is no failure of its task.",
        (f"{TESTS}test_what_ignores_its_limits_is_killed_and_its_neighbours_are_interrupted",),
    ),
    Mutant(
        "death-without-a-culprit-without-consequence",
        "wrappers/pipeline/finish.py",
        "return End(Outcome.INTERRUPTED, reason, alone=True)",
        "return End(Outcome.INTERRUPTED, reason)",
        "If a process dies of an unknown cause, each task whose run was at work runs alone next time.",
        (f"{ALONE}test_after_a_death_without_a_culprit_each_runs_alone_and_the_one_that_dies_alone_is_guilty",),
    ),
    Mutant(
        "alone-next-time-ignored",
        "ticker/db/sql/rules.sql",
        "CASE WHEN f.concurrency > 1 AND {alone t} THEN 1 ELSE coalesce(f.batch, 1) END",
        "coalesce(f.batch, 1)",
        "A tick pushes a task that must run alone in its own job.",
        (f"{ALONE}test_the_whole_function_runs_alone_after_ten_guilty_tasks_but_not_after_nine",),
    ),
    Mutant(
        "guilty-forgotten",
        "ticker/db/sql/end.sql",
        "WHEN t.alone_until BETWEEN e.ended_at AND e.ended_at + interval '1 hour' THEN t.alone_until",
        "",
        "A guilty task runs alone for an hour, even if its next run succeeds.",
        (f"{ALONE}test_a_guilty_task_is_alone_for_an_hour_whatever_its_runs_do",),
    ),
    Mutant(
        "killed-alone-without-guilt",
        "ticker/db/sql/end.sql",
        "WHEN e.outcome = 'killed' AND {grouped t} THEN e.ended_at + interval '1 hour'",
        "",
        "A task whose run dies alone is guilty, and runs alone for an hour.",
        (f"{ALONE}test_after_a_death_without_a_culprit_each_runs_alone_and_the_one_that_dies_alone_is_guilty",),
    ),
    Mutant(
        "function-alone-after-eleven",
        "ticker/db/sql/rules.sql",
        "HAVING count(*) >= 10",
        "HAVING count(*) >= 11",
        "All tasks of a function run alone once ten of them are guilty.",
        (f"{ALONE}test_the_whole_function_runs_alone_after_ten_guilty_tasks_but_not_after_nine",),
    ),
    Mutant(
        "group-pushed-again-one-by-one",
        "ticker/db/sql/sweep.sql",
        "CASE WHEN f.concurrency > 1 THEN {batch t} ELSE 1 END AS batch",
        "1 AS batch",
        "Tasks whose group was lost are pushed again in batches, except those that must run alone.",
        (f"{ALONE}test_what_a_group_left_is_pushed_again_in_batches_except_what_runs_alone",),
    ),
    Mutant(
        "repeatable-ignored",
        "ticker/db/sql/end.sql",
        "ELSE h.retries > 0 OR {repeatable h} END",
        "ELSE h.retries > 0 END",
        "An interrupted run of a repeatable function gets one second attempt without retries.",
        (f"{ALONE}test_an_interrupted_run_of_a_repeatable_function_gets_one_second_attempt",),
    ),
    Mutant(
        "interruption-hides-a-failure",
        "ticker/engine/follow_up.py",
        "        return run.failed_before\n",
        "        return False\n",
        "If the last attempt of an occurrence is interrupted, an earlier failure of it still counts.",
        (f"{ALONE}test_a_failure_counts_even_if_the_last_attempt_is_interrupted",),
    ),
    Mutant(
        "token-asked-twice-is-redelivered",
        "ticker/db/sql/start.sql",
        "        WHEN l.run_token = l.token THEN 'begun'\n",
        "",
        "If the answer to a start is lost, the same token gets the same answer, and nothing is written.",
        (
            f"{ALONE}test_a_token_that_has_begun_gets_the_same_answer_and_writes_nothing",
            f"{ALONE}test_starts_whose_answer_is_lost_begin_all_the_same_in_their_first_time",
        ),
    ),
    Mutant(
        "limits-from-the-second-request",
        "wrappers/pipeline/start.py",
        'Asked(*first, verdict.row) if verdict.row["has_begun"] else verdict',
        "verdict",
        "The limits of a run whose start was answered only at the second request count from the first one.",
        (f"{ALONE}test_starts_whose_answer_is_lost_begin_all_the_same_in_their_first_time",),
    ),
)
