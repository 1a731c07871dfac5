"""Faults in keeping what runs, their child processes and C libraries write."""

from tests.mutants.mutant import Mutant

PIPES, STREAMS = "wrappers/sandbox/output_pipes.py", "wrappers/pipeline/output.py"
CHILDREN = "tests/worker/test_child_output.py::"
FLOOD = f"{CHILDREN}test_a_flood_is_bounded_and_waits_for_no_worker"

OUTPUTS = (
    Mutant(
        "children-write-to-the-worker",
        PIPES,
        "        os.dup2(pipe.writer, pipe.file)\n",
        "",
        "What child processes, forks and C libraries write is kept with the run.",
        (f"{CHILDREN}test_all_ways_to_write_are_kept_in_their_order",),
    ),
    Mutant(
        "pipes-not-restored",
        PIPES,
        "            os.dup2(own, pipe.file)\n",
        "            pass\n",
        "After a function has returned, its process writes to the worker's output again.",
        (f"{CHILDREN}test_what_is_written_after_a_function_goes_to_the_worker",),
    ),
    Mutant(
        "large-text-encoded-at-once",
        STREAMS,
        "range(0, len(text), PIECE):",
        "range(0, len(text), PIECE := 10**9):",
        "A print of a large text takes no more memory than what is kept of it.",
        ("tests/worker/test_output.py::test_a_large_text_is_not_copied_at_once",),
    ),
    Mutant(
        "child-output-after-all-prints",
        STREAMS,
        "            output_pipes.pass_on(self._number, self._ring)\n        self._ring",
        "            pass\n        self._ring",
        "Prints and what is written past Python's streams are kept in their order.",
        (f"{CHILDREN}test_all_ways_to_write_are_kept_in_their_order",),
    ),
    Mutant(
        "bytes-between-pipe-and-memory-overtaken",
        PIPES,
        "        self.arrived.announce(True)  # ",
        "        # ",
        "A print does not overtake bytes that another process is moving out of the pipe.",
        (f"{CHILDREN}test_bytes_on_their_way_from_the_pipe_to_the_memory_count_as_news",),
    ),
    Mutant(
        "log-handlers-write-into-the-run",
        PIPES,
        "        _log_to(_own)\n",
        "",
        "Log handlers of the worker write to its own output, also during a run.",
        (f"{CHILDREN}test_log_handlers_of_the_application_write_to_the_worker_as_before",),
    ),
    Mutant(
        "last-words-of-children-left-in-the-pipe",
        STREAMS,
        "pass_on(number, ring if slot is None else None)",
        "pass_on(number)",
        "What child processes wrote last is kept, also if the run was killed.",
        (f"{CHILDREN}test_the_last_words_of_a_child_are_in_the_record_of_a_run_that_died",),
    ),
    Mutant(
        "full-pipe-waits-for-the-worker",
        PIPES,
        """    threading.Thread(target=_relay, args=(_watched,), name="ticker-output", daemon=True).start()\n""",
        "",
        "A child process that writes much does not wait for a worker that writes an end.",
        (f"{CHILDREN}test_a_flood_does_not_wait_for_a_worker_that_writes_an_end",),
    ),
    Mutant(
        "full-pipe-waits-for-a-stopped-worker",
        "wrappers/sandbox/supervisor.py",
        "SOON if output_pipes.relieve() else LOOK",
        "LOOK",
        "A child process that writes much does not wait for a stopped or dead worker.",
        (FLOOD,),
    ),
    Mutant(
        "later-runs-keep-what-a-leftover-writes",
        PIPES,
        "    if are_held:\n",
        "    if False:\n",
        "What a process of an earlier job writes is not kept with a later run.",
        (f"{CHILDREN}test_a_child_that_keeps_the_pipe_keeps_neither_its_run_nor_the_next_one",),
    ),
    Mutant(
        "group-output-of-earlier-runs",
        STREAMS,
        "ring.empty(mark=output_pipes.pass_on(number))",
        "ring.empty()",
        "A run of a group keeps only what was written past Python's streams while it was active.",
        (f"{CHILDREN}test_in_a_group_each_run_of_that_time_keeps_it_and_says_so",),
    ),
)
