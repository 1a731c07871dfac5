"""Faults in what people are told before they ask: enough_jobs occurrences, unknown functions, owners that nothing follows."""

from tests.mutants.mutant import Mutant

PUSH, FUNCTIONS = "ticker/db/sql/push.sql", "ticker/db/sql/functions.sql"
TYPES = "ticker/tasks/owner_types.py"
WAITING, UNKNOWN, OWNERS = (
    "tests/engine/test_waiting_jobs.py::",
    "tests/read/test_unknown_functions.py::",
    "tests/tasks/test_owner_types.py::",
)
TWO_WAIT = f"{WAITING}test_two_jobs_of_a_task_wait_and_one_event_counts_what_was_not_pushed"
REFUSED = "tests/engine/test_unknown_functions.py::"
TRIED = "test_one_task_of_each_function_and_queue_is_tried_in_a_tick_and_a_start_lets_the_others_go"
ONE_NOTICE = f"{UNKNOWN}test_one_notice_for_each_function_a_minute_after_the_last_change_of_its_task"

SILENCE = (
    Mutant(
        "failure-kept-from-those-who-look",
        "ticker/daemon/signs.py",
        "(self._to_redis, self._to_row) if is_of_postgresql",
        "(self._to_row, self._to_row) if is_of_postgresql",
        "A failed tick is published through the server that lives.",
        (
            "tests/daemon/test_signs.py::test_if_postgresql_takes_no_writes_all_begin_with_what_the_ticker_has_published_in_redis",
        ),
    ),
    Mutant(
        "any-number-of-waiting-jobs",
        "ticker/engine/tick.py",
        "return (task.busy or task.waiting >= most) and",
        "return False and",
        "At most two jobs of a task wait.",
        (TWO_WAIT,),
    ),
    Mutant(
        "single-time-never-pushed",
        "ticker/engine/tick.py",
        "return (task.busy or task.waiting >= most) and task.kind is not Kind.ONCE",
        "return task.busy or task.waiting >= most",
        "A single time is always pushed: nothing comes after it.",
        (f"{WAITING}test_a_single_time_is_always_pushed",),
    ),
    Mutant(
        "event-for-each-enough_jobs-occurrence",
        PUSH,
        "SET enough_jobs_event = e.id FROM",
        "SET enough_jobs_event = NULL FROM",
        "One event counts the occurrences that were not pushed, with the first and the last time.",
        (TWO_WAIT,),
    ),
    Mutant(
        "overlap-pushed",
        "ticker/engine/tick.py",
        "return (task.busy or task.waiting >= most) and",
        "return task.waiting >= most and",
        "A task that skips overlaps gets no job while one waits or runs: its event counts the occurrence.",
        (f"{WAITING}test_one_event_counts_what_a_task_that_skips_overlaps_does_not_push",),
    ),
    Mutant(
        "event-of-enough_jobs-stays-open",
        PUSH,
        "push_after = NULL, enough_jobs_event = NULL\n",
        "push_after = NULL\n",
        "A push ends the event that counts enough_jobs occurrences; a later outage has its own.",
        (f"{WAITING}test_after_the_outage_a_later_one_has_an_event_of_its_own",),
    ),
    Mutant(
        "expired-ids-stay-in-redis",
        "ticker/queue/shorten.lua",
        "if #kept < #oldest then",
        "if false then",
        "Expired jobs leave Redis while no worker comes, also their ids.",
        (f"{WAITING}test_expired_jobs_leave_redis_and_fresh_ones_take_their_place",),
    ),
    Mutant(
        "notice-before-the-workers-are-deployed",
        FUNCTIONS,
        "o.updated_at < {now} - interval '1 minute'",
        "true",
        "A function that no worker knows is reported a minute after the last change of its task: a deployment may start workers last.",
        (ONE_NOTICE,),
    ),
    Mutant(
        "unmentioned-owner-without-trigger",
        TYPES,
        'if row["standing"] == "known":',
        'if row["standing"] in ("known", "table"):',
        "The first task of a type of owner that no trigger follows is registered with a warning.",
        (
            f"{OWNERS}test_the_first_task_of_a_table_without_triggers_is_warned_about_with_the_statement_that_installs_them",
        ),
    ),
    Mutant(
        "strict-owners-only-warn",
        TYPES,
        "    if config.strict_owners:\n        raise refusal\n",
        "",
        "With TICKER_STRICT_OWNERS, such a registration is refused.",
        (f"{OWNERS}test_strict_owners_make_it_an_error_and_nothing_is_written",),
    ),
    Mutant(
        "unknown-function-dropped-at-once",
        "ticker/db/sql/start.sql",
        "('no_room', 'closed', 'unknown_here', 'no_slot')\n",
        "('no_room', 'closed', 'no_slot')\n",
        "What a worker does not know goes back: another worker may know it.",
        (f"{REFUSED}test_a_single_time_that_an_old_worker_refuses_starts_in_a_new_one",),
    ),
    Mutant(
        "all-tasks-are-probes",
        "ticker/db/sql/pauses.sql",
        "({covered t} OR {gated t} OR (SELECT EXISTS",
        "({covered t} OR (SELECT EXISTS",
        "While no worker of its queue knows a function, one of its tasks is pushed in each tick.",
        (f"{REFUSED}{TRIED}",),
    ),
    Mutant(
        "start-ends-no-wait",
        "ticker/migrations/versions/0001_tables/7_pauses.sql",
        "IF knows_it THEN",
        "IF knows_it THEN RETURN;",
        "The first start of a function lets its tasks go.",
        (f"{REFUSED}{TRIED}",),
    ),
    Mutant(
        "single-time-of-an-unknown-function-is-done",
        "ticker/engine/tick.py",
        "    if task.kind is not Kind.ONCE:\n        return Settled(",
        "    if True:\n        return Settled(",
        "A single time that no worker knew has failed.",
        (f"{REFUSED}test_after_ten_minutes_without_a_start_it_is_dropped_and_a_single_time_has_failed",),
    ),
)
