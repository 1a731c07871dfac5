"""Faults in the rules of groups: many runs at the same time in one process."""

from tests.mutants.mutant import Mutant

TESTS = "tests/worker/test_groups.py::"

GROUPS = (
    Mutant(
        "neighbours-killed",
        "wrappers/pipeline/finish.py",
        'return Outcome.INTERRUPTED, f"its process was killed because of task {guilty.task_id}"',
        "return Outcome.KILLED, cause",
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
        "failed-call-left-in-the-queue",
        "wrappers/group/group.py",
        "interruptible.interrupt()  # if",
        "pass  # if",
        "A function whose thread could not start is not called later, when its run has already failed and its task is free.",
        (f"{TESTS}test_a_function_whose_thread_could_not_start_is_not_called_after_its_run_has_failed",),
    ),
)
