"""Faults in what a million tasks need: phases in the interval, bounded queues, and jobs for several tasks."""

from tests.mutants.mutant import Mutant

PHASE = "ticker/schedules/phase.py"

CROWDS = (
    Mutant(
        "phase-at-any-price",
        PHASE,
        "return in_phase if was_moved else in_an_interval",
        "return in_phase",
        "A task never waits for its phase for longer than its interval, except once after something has moved it.",
        ("tests/schedules/test_phase.py::test_a_spread_task_runs_at_least_as_often_as_one_that_is_not",),
    ),
    Mutant(
        "phase-drifts",
        PHASE,
        "return in_phase if was_moved else in_an_interval",
        "return in_an_interval",
        "A task that an outage has moved waits for its phase once, so tasks do not stay bunched up.",
        ("tests/schedules/test_phase.py::test_an_outage_leaves_no_herd_behind",),
    ),
    Mutant(
        "phase-taken-for-a-clock-set-back",
        "ticker/db/sql/sweep.sql",
        "greatest(t.every_ms * CASE WHEN t.phase_ms IS NULL THEN 1 ELSE 2 END, t.stretched_ms)",
        "greatest(t.every_ms, t.stretched_ms)",
        "A task may wait for its phase for up to two intervals, which does not mean that the clock was set back.",
        ("tests/schedules/test_phase.py::test_a_ticker_that_starts_leaves_a_task_that_waits_for_its_phase_as_it_is",),
    ),
    Mutant(
        "depth-ignored",
        "ticker/db/sql/push.sql",
        "  AND {due} AND queue <> ALL (%(without)s::text[])",
        "  AND {due} AND (true OR queue <> ALL (%(without)s::text[]))",
        "A queue with a limit gets no more jobs than it has room for.",
        ("tests/engine/test_queue_limits.py::test_a_full_queue_gets_no_more_and_the_rest_stays_due_for_the_next_tick",),
    ),
    Mutant(
        "oldest-first-where-room-is-short",
        "ticker/db/sql/push.sql",
        "SELECT * FROM due ORDER BY turn, next_run LIMIT %(limit)s",
        "SELECT * FROM due ORDER BY next_run LIMIT %(limit)s",
        "If room is short, owners take turns.",
        ("tests/engine/test_queue_limits.py::test_when_room_is_short_no_owner_takes_all_of_it",),
    ),
    Mutant(
        "room-not-counted-down",
        "ticker/engine/queue_limit.py",
        "                self.left[spec.queue] -= 1\n",
        "                pass\n",
        "The jobs that one batch pushes reduce the room for the next one.",
        ("tests/engine/test_queue_limits.py::test_a_full_queue_gets_no_more_and_the_rest_stays_due_for_the_next_tick",),
    ),
    Mutant(
        "limited-tasks-beyond-their-room",
        "ticker/engine/key_limits.py",
        "(key, rooms[key] - 1)",
        "(key, rooms[key])",
        "A tick pushes no more tasks of a key than it has room for.",
        ("tests/engine/test_key_limits.py::test_the_oldest_go_first_as_far_as_their_key_has_room",),
    ),
    Mutant(
        "one-key-of-two-has-room",
        "ticker/engine/key_limits.py",
        "if any(rooms.get(key, 1) <= 0 for key in task.keys):",
        "if all(rooms.get(key, 1) <= 0 for key in task.keys):",
        "A tick pushes a task only if both of its keys have room.",
        ("tests/engine/test_key_limits.py::test_a_task_goes_only_if_both_of_its_keys_have_room",),
    ),
    Mutant(
        "waiting-jobs-leave-their-room",
        "ticker/db/sql/push.sql",
        "END) - coalesce(w.count, 0) END AS room",
        "END) END AS room",
        "Jobs that wait for a worker take room of their keys.",
        (
            "tests/engine/test_limited_tasks.py"
            "::test_of_a_hundred_due_tasks_of_a_key_twenty_are_pushed_and_others_are_not_delayed",
        ),
    ),
    Mutant(
        "blocked-tasks-hide-other-keys",
        "ticker/engine/tick.py",
        "if (pushed.due < options.batch and not more) or options.stop():",
        "if pushed.due < options.batch or options.stop():",
        "Tasks of a key without room do not delay tasks of other keys.",
        ("tests/engine/test_limited_tasks.py::test_no_key_starves_behind_many_that_have_no_room",),
    ),
    Mutant(
        "re-push-beyond-the-limit",
        "ticker/engine/sweep.py",
        "packed = queue.fitting(jobs.packed(store.installation, again))",
        "packed = jobs.packed(store.installation, again)",
        "The limit of a queue also applies to jobs that Redis lost.",
        ("tests/engine/test_queue_limits.py::test_jobs_that_redis_lost_come_again_only_as_there_is_room",),
    ),
    Mutant(
        "pieces-before-all-are-made",
        "ticker/db/sql/push.sql",
        "    WHERE p.state = 'processing'\n      AND CASE WHEN %(queue)s",
        "    WHERE true\n      AND CASE WHEN %(queue)s",
        "No tick reads pieces before their run has created all of them.",
        ("tests/db/test_piece_rules.py::test_no_tick_looks_at_pieces_before_their_run_has_made_all_of_them",),
    ),
    Mutant(
        "batch-job-forgotten",
        "ticker/engine/tick.py",
        "batch_jobs = {task.id: job.batch_job_id for job in packed for task in job.tasks}",
        "batch_jobs: dict[int, str | None] = {}",
        "A row names the job that contains its occurrence, so an occurrence whose job waits is not pushed again.",
        (
            "tests/worker/test_batches.py::test_a_job_that_waits_is_not_pushed_again_and_one_that_is_lost_is_with_a_job_for_each",
        ),
    ),
    Mutant(
        "batch-time-of-one",
        "ticker/engine/jobs.py",
        "timing.batch_timeout([task.box_ms + task.grace_ms for task in tasks]",
        "timing.batch_timeout([task.box_ms + task.grace_ms for task in tasks[:1]]",
        "The timeout of a batch covers all of its tasks.",
        ("tests/worker/test_batches.py::test_a_job_of_several_names_what_it_carries_and_has_the_time_of_all_of_them",),
    ),
    Mutant(
        "batch-ends-with-a-failure",
        "wrappers/entry.py",
        'call.task_id, call.job_id)\n            return "failed"\n',
        "call.task_id, call.job_id)\n            raise\n",
        "A task that fails does not affect the others of its batch.",
        ("tests/worker/test_batches.py::test_each_task_has_its_own_outcome",),
    ),
)
