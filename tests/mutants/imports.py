"""Faults in taking another scheduler's entries over, and in giving them back."""

from tests.mutants.mutant import Mutant

TAKE_OVER = "ticker/importing/take_over.py"
SOURCE, ENTRIES = "ticker/importing/sources/rq_scheduler.py", "ticker/importing/sources/rq_entries.py"
MOVES, READS = "tests/importing/test_take_over.py::", "tests/importing/test_rq_scheduler.py::"
RQ_CRON = "ticker/importing/sources/rq_cron.py"
COMPLETES = f"{MOVES}test_a_second_call_completes_what_a_kill_has_left"
GOES_BACK = f"{MOVES}test_entries_go_back_byte_for_byte_with_their_next_times"

IMPORTS = (
    Mutant(
        "entries-move-without-the-lock",
        SOURCE,
        "set(LOCK, self._token, nx=True,",
        "set(LOCK, self._token,",
        "Entries move only while no pass of their scheduler is at work.",
        (f"{MOVES}test_a_lock_that_is_not_given_up_is_named",),
    ),
    Mutant(
        "lock-not-checked-at-the-move",
        "ticker/importing/sources/park.lua",
        "if redis.call('GET', KEYS[1]) ~= ARGV[1] then",
        "if false then",
        "Entries move only while the lock is still ours.",
        (f"{MOVES}test_a_lock_that_was_lost_moves_nothing_and_is_left_to_its_owner",),
    ),
    Mutant(
        "lock-of-others-deleted",
        SOURCE,
        "if redis.call('get', KEYS[1]) == ARGV[1] then",
        "if true then",
        "A lock is deleted only by its owner.",
        (f"{MOVES}test_a_lock_that_was_lost_moves_nothing_and_is_left_to_its_owner",),
    ),
    Mutant(
        "first-left-out",
        ENTRIES,
        '{"every": every, "first": first}',
        '{"every": every}',
        "The first run here is at the next time there.",
        (f"{READS}test_an_interval_becomes_a_task_whose_first_time_is_the_next_one_there",),
    ),
    Mutant(
        "last-run-there-forgotten",
        ENTRIES,
        "max(next_there, last + timedelta(seconds=every))",
        "next_there",
        "The first run here is not before the last one there plus the interval.",
        (f"{READS}test_the_first_time_is_not_before_the_last_run_there_plus_the_interval",),
    ),
    Mutant(
        "old-jobs-not-awaited",
        TAKE_OVER,
        "if free := pending - waiting.ids:",
        "if free := pending:",
        "An entry whose jobs wait or run in RQ is not taken.",
        (f"{MOVES}test_an_entry_is_taken_when_its_last_job_has_run_and_the_others_at_once",),
    ),
    Mutant(
        "parked-entries-forgotten",
        TAKE_OVER,
        "taking.complete(chosen(source.parked(entries.instant(db))))",
        "taking.complete([])",
        "The next call completes what a crash has left parked.",
        (COMPLETES,),
    ),
    Mutant(
        "changed-entries-taken",
        "ticker/importing/sources/park.lua",
        "if #changed > 0 then return changed end",
        "",
        "An entry that has changed since it was read is read again.",
        (f"{MOVES}test_an_entry_that_an_application_changes_meanwhile_is_read_again",),
    ),
    Mutant(
        "last-start-here-forgotten",
        "ticker/db/sql/importing.sql",
        "CASE WHEN kind = 'interval' THEN last_run + every_ms * interval '1 ms' END",
        "NULL",
        "The next run there is not before the last start here plus the interval.",
        (GOES_BACK,),
    ),
    Mutant(
        "job-not-restored",
        "ticker/importing/sources/give_back.lua",
        "if stored ~= '' and",
        "if stored == '' and",
        "A job that Redis has lost meanwhile goes back as it was.",
        (GOES_BACK,),
    ),
    Mutant(
        "paused-entries-given-back",
        TAKE_OVER,
        'return "" if row["runs"] else',
        'return "" if True else',
        "A paused task is not given back: its source would run it.",
        (f"{MOVES}test_tasks_that_are_paused_or_done_are_not_given_back",),
    ),
    Mutant(
        "rq-cron-taken-over-while-it-lives",
        RQ_CRON,
        "if age < ALIVE:",
        "if False:",
        "Nothing is taken over while rq cron lives.",
        ("tests/importing/test_rq_cron.py::test_nothing_may_be_taken_over_while_rq_cron_lives",),
    ),
    Mutant(
        "first-left-out-of-rq-cron",
        RQ_CRON,
        'wanted |= {"first": due} if is_due else {}',
        "pass",
        "The first run is not before the last one there plus the interval.",
        (
            "tests/importing/test_rq_cron.py::test_entries_are_taken_over_when_rq_cron_has_stopped_and_can_be_given_back",
        ),
    ),
    Mutant(
        "shadow-counts-no-starts",
        "ticker/importing/shadow.py",
        "coalesce(started + 1 < max_runs, true)",
        "true",
        "A push of a shadow counts as a start.",
        ("tests/importing/test_shadow.py::test_a_shadow_leaves_nothing_behind_and_touches_none_of_our_tables",),
    ),
)
