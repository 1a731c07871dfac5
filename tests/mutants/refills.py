"""Faults in how the process of a group gets further jobs while its runs are active."""

from tests.mutants.mutant import Mutant

GROUP = "wrappers/group/group.py"
OPEN_JOBS = "wrappers/rq/open_jobs.py"
WORKER = "wrappers/rq/worker.py"
REFILL = "tests/worker/test_refill.py::"
GIVING = "tests/worker/test_open_jobs.py::"

REFILLS = (
    Mutant(
        "job-after-job",
        GROUP,
        "                self._refill.ask()",
        "                pass",
        "The process takes its next job as soon as fewer of its tasks are unstarted than slots are free.",
        (f"{REFILL}test_the_slots_next_to_a_slow_run_take_the_tasks_of_further_jobs",),
    ),
    Mutant(
        "another-job-put-back-at-the-end",
        OPEN_JOBS,
        "calls.lpush(",
        "calls.rpush(",
        "A job that cannot join the group keeps its place in the queue.",
        (f"{REFILL}test_a_job_of_another_function_runs_next_and_is_not_overtaken",),
    ),
    Mutant(
        "jobs-of-a-dead-process-left-open",
        OPEN_JOBS,
        "            elif not keep_first or job_id != self._first.id:\n                self._end(job_id)",
        "            else:\n                pass",
        "If the process of a group dies, its jobs leave RQ, and what had not started is pushed again.",
        (f"{REFILL}test_the_jobs_of_a_process_that_dies_leave_nothing_and_what_had_not_begun_is_pushed_again",),
    ),
    Mutant(
        "exit-with-zero-is-a-success",
        WORKER,
        "elif ended[1] == os.EX_OK and self._start is not None:",
        "elif False:",
        "If the process of a job exits with status 0 before the job is done, what had not started is pushed again.",
        (f"{REFILL}test_what_had_not_begun_is_pushed_again_after_a_process_that_exits_as_if_all_were_done",),
    ),
    Mutant(
        "first-job-left-open-by-a-cold-shutdown",
        WORKER,
        "self._open_jobs.close(keep_first=False)",
        "self._open_jobs.close()",
        "A worker that is stopped at once leaves no open job of a group, so that the next tick pushes its tasks again.",
        (f"{REFILL}test_a_worker_that_is_stopped_twice_leaves_no_open_job",),
    ),
    Mutant(
        "results-of-further-jobs-lost",
        OPEN_JOBS,
        "return is_ours and self._worker.leaves_nothing(job)",
        "return is_ours",
        "A group takes no job whose result RQ must keep.",
        ("tests/worker/test_open_jobs.py::test_a_job_whose_result_rq_keeps_waits_for_its_own_process",),
    ),
    Mutant(
        "unstarted-tasks-kept",
        GROUP,
        "if now > job.until or not may_begin",
        "if not may_begin",
        "Tasks that cannot begin within one tick go back, so that another process can run them.",
        (f"{REFILL}test_tasks_that_cannot_begin_within_one_tick_go_back",),
    ),
    Mutant(
        "one-task-twice-in-a-statement",
        GROUP,
        "if call.task_id in calls or not self._full_keys.admit(call.task_id, chosen):\n                later.append(call)\n"
        "            else:\n                calls[call.task_id] = call",
        "if not self._full_keys.admit(call.task_id, chosen):\n                later.append(call)\n"
        "            else:\n                calls[len(calls)] = call",
        "Two occurrences of a task are never started by the same statement.",
        (f"{REFILL}test_two_occurrences_of_a_locked_task_are_decided_one_after_the_other",),
    ),
    Mutant(
        "alarm-put-off-by-further-jobs",
        OPEN_JOBS,
        "max(left - (limits.now() - began), 1e-6)",
        "math.ceil(left)",
        "Further jobs do not put off RQ's alarm, at which the worker sends its heartbeat.",
        (f"{GIVING}test_further_jobs_do_not_put_off_rqs_heartbeat",),
    ),
    Mutant(
        "alarm-not-held",
        OPEN_JOBS,
        "signal.setitimer(signal.ITIMER_REAL, 0)",
        "signal.getitimer(signal.ITIMER_REAL)",
        "RQ's alarm does not interrupt a block that holds it, and comes after the block.",
        (f"{GIVING}test_an_alarm_that_came_due_in_a_held_block_comes_after_it",),
    ),
    Mutant(
        "alarm-while-a-job-is-given",
        OPEN_JOBS,
        "        with alarm_held():\n",
        "        if True:\n",
        "RQ's alarm is held while a worker gives a job to a group: otherwise, the job could be lost.",
        (f"{GIVING}test_rqs_alarm_is_held_while_the_group_is_given_a_job",),
    ),
    Mutant(
        "timeout-without-the-tick",
        OPEN_JOBS,
        "timeout = math.ceil(job.timeout) + self._tick if",
        "timeout = math.ceil(job.timeout) if",
        "RQ's timeout for a further job includes the tick within which its tasks begin.",
        (f"{GIVING}test_a_job_whose_tasks_wait_for_a_long_tick_is_neither_interrupted_nor_abandoned",),
    ),
    Mutant(
        "abandoned-within-the-tick",
        OPEN_JOBS,
        "new_execution(worker, job, self._tick + UNTIL_BEGUN)",
        "new_execution(worker, job, UNTIL_BEGUN)",
        "RQ does not declare a further job abandoned within the tick in which its tasks begin.",
        (f"{GIVING}test_a_job_whose_tasks_wait_for_a_long_tick_is_neither_interrupted_nor_abandoned",),
    ),
    Mutant(
        "further-jobs-beyond-max-jobs",
        "wrappers/rq/worker.py",
        "self._start.is_group and not self._is_limited:",
        "self._start.is_group:",
        "A worker with `--max-jobs` gives a group no further jobs.",
        (f"{REFILL}test_a_worker_for_a_limited_number_of_jobs_gives_none_to_a_group",),
    ),
    Mutant(
        "further-jobs-while-suspended",
        OPEN_JOBS,
        "if is_suspended(worker.connection, worker):",
        "if False:",
        "After `rq suspend`, a group gets no further jobs.",
        (f"{GIVING}test_a_suspended_worker_gives_no_further_jobs_until_it_is_resumed",),
    ),
    Mutant(
        "further-jobs-after-another-function",
        OPEN_JOBS,
        "self._may_give = False  # this",
        "pass  # this",
        "After a job of another function, a group gets no further jobs, so that its worker can take that job.",
        (f"{GIVING}test_a_group_gets_no_further_jobs_after_one_of_another_function",),
    ),
    Mutant(
        "further-jobs-without-end",
        "wrappers/group/refill.py",
        "if not self._is_asked and limits.now() < self._ends_at:",
        "if not self._is_asked:",
        "The process of a group takes no further job after ten minutes, so that its worker can do its own maintenance.",
        (f"{GIVING}test_a_process_requests_no_further_job_after_ten_minutes",),
    ),
    Mutant(
        "job-after-the-last-run-lost",
        GROUP,
        "loop.remove_reader(self._refill.fileno())",
        "pass",
        "A job that arrives after the last run of a group stays unread, so that its worker can put it back.",
        (f"{GIVING}test_a_job_that_arrives_after_the_last_run_stays_unread_and_can_be_put_back",),
    ),
    Mutant(
        "unread-job-forgotten",
        OPEN_JOBS,
        "if job_id in unread:",
        "if False:",
        "A job that the process did not take goes back to the front of its queue.",
        (f"{GIVING}test_a_job_that_was_not_taken_goes_back_to_the_front_as_if_it_had_never_left",),
    ),
    Mutant(
        "unread-job-left-as-started",
        OPEN_JOBS,
        "job.set_status(JobStatus.QUEUED, calls)",
        "pass",
        "A job that the process did not take is `queued` again, so the ticker knows that it waits.",
        (f"{GIVING}test_a_job_that_was_not_taken_goes_back_to_the_front_as_if_it_had_never_left",),
    ),
)
