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
        "guilty = next((other for other in begun if other.slot == blocking_slot()), overdue)",
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
        "interruption-repeated",
        "ticker/db/sql/end.sql",
        "ELSE h.retries > 0 END AS needs_follow_up",
        "ELSE true END AS needs_follow_up",
        "An interrupted run needs no follow-up unless its task has retries.",
        (f"{TESTS}test_only_a_task_with_retries_is_attempted_again_after_an_interruption",),
    ),
    Mutant(
        "starts-in-a-doomed-process",
        "wrappers/group/group.py",
        "return not (self._is_closing or self._error",
        "return not (self._error",
        "Once a run has ignored its soft limit, nothing new begins in its process.",
        (f"{TESTS}test_nothing_new_begins_in_a_process_that_will_be_killed",),
    ),
    Mutant(
        "starts-after-a-signal-to-stop",
        "wrappers/group/group.py",
        " or self._error or shared_state.is_stopping())",
        " or self._error)",
        "After a signal to stop, a group begins nothing new.",
        (f"{TESTS}test_a_worker_that_is_told_to_stop_begins_nothing_new_and_what_is_left_is_pushed_again",),
    ),
    Mutant(
        "sockets-left-open",
        "wrappers/group/threads.py",
        "opened.shutdown(socket.SHUT_RDWR)",
        "pass",
        "At its soft limit, the sockets of a plain function are shut down, because the exception does not reach a blocked call.",
        (f"{TESTS}test_a_thread_is_interrupted_in_its_code_and_in_a_socket_that_never_answers",),
    ),
)
