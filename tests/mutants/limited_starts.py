"""Faults in the slots of limits: exact numbers, all keys or none, holds, and what has no room."""

from tests.mutants.mutant import Mutant

SQL = "ticker/db/sql/start.sql"
SLOTS = "ticker/migrations/versions/0001_tables/6_limits.sql"
END = "ticker/db/sql/end.sql"
TESTS = "tests/db/test_limited_starts.py::"
KEYS = "tests/tasks/test_limits.py::"
FIRST = "ORDER BY s.n LIMIT 1"

LIMITED_STARTS = (
    Mutant(
        "slot-read-without-a-lock",
        SLOTS,
        f"{FIRST} FOR NO KEY UPDATE SKIP LOCKED",
        FIRST,
        "Never more runs of a key at once than its limit. Counting without a lock would let two racers take the same slot.",
        (f"{TESTS}test_of_racers_with_two_keys_no_more_run_at_once_and_no_more_start_than_the_limits_allow",),
    ),
    Mutant(
        "start-waits-for-a-slot",
        SLOTS,
        f"{FIRST} FOR NO KEY UPDATE SKIP LOCKED",
        f"{FIRST} FOR NO KEY UPDATE",
        "A start waits for no slot, so two keys in different orders cannot deadlock.",
        (f"{TESTS}test_a_start_waits_for_no_slot_that_another_transaction_has_locked",),
    ),
    Mutant(
        "one-key-of-two",
        SLOTS,
        "FROM unnest(keys) AS u (key)",
        "FROM unnest(keys[:1]) AS u (key)",
        "A run needs a slot of each of its keys.",
        (f"{TESTS}test_what_has_no_room_for_one_of_its_keys_takes_no_slot_of_the_other",),
    ),
    Mutant(
        "slot-of-the-other-key-taken",
        SLOTS,
        " AND NOT EXISTS (SELECT FROM found WHERE n IS NULL)",
        "",
        "What has no room for one of its keys takes no slot of the other.",
        (f"{TESTS}test_of_many_a_task_that_is_late_for_one_key_takes_no_slot_of_the_other",),
    ),
    Mutant(
        "token-free-too-soon",
        SLOTS,
        "k.token_us * interval '1 microsecond')) AS s",
        "k.token_us / 2 * interval '1 microsecond')) AS s",
        "Never more starts of a key in any window than its rate and its burst.",
        (f"{TESTS}test_a_start_takes_a_slot_of_each_of_its_keys_and_its_end_gives_back_all_but_the_token",),
    ),
    Mutant(
        "slot-by-the-clock-alone",
        SLOTS,
        "AND r.boot = take_slots.boot",
        "AND r.boot <> take_slots.boot",
        "After the clock was set forward, a run on this host keeps its slot.",
        (f"{TESTS}test_after_the_clock_was_set_forward_a_slot_is_held_by_the_uptime_of_its_host",),
    ),
    Mutant(
        "older-occurrence-goes-back",
        SQL,
        "WHEN g.goes_back AND {outlived j}",
        "WHEN g.goes_back AND answer <> 'limited' AND {outlived j}",
        "Of the occurrences without room, only the newest goes back to the table.",
        (f"{TESTS}test_only_the_newest_occurrence_goes_back_and_an_older_one_is_superseded",),
    ),
    Mutant(
        "held-key-starts",
        SLOTS,
        "CASE WHEN k.held_until > at THEN 0 ELSE s.most END AS most",
        "s.most",
        "Nothing of a key starts before its hold ends.",
        (f"{TESTS}test_nothing_of_a_key_starts_before_its_hold_ends_and_a_longer_hold_wins",),
    ),
    Mutant(
        "room-not-waited-for",
        "wrappers/pipeline/start.py",
        "if waits := clock.monotonic() + pause < began + MOMENT:",
        "if waits := False:",
        "A job waits for room that it may get in a moment.",
        (f"{TESTS}test_a_job_waits_for_room_that_it_may_get_in_a_moment",),
    ),
    Mutant(
        "slot-kept-after-the-end",
        END,
        "WHERE x.token = e.token OFFSET 0) x",
        "WHERE x.token = e.token AND false OFFSET 0) x",
        "The end of a run frees its slots.",
        (f"{TESTS}test_a_start_takes_a_slot_of_each_of_its_keys_and_its_end_gives_back_all_but_the_token",),
    ),
    Mutant(
        "slot-kept-by-the-run-of-pieces",
        END,
        "FROM parent p WHERE s.token = p.token",
        "FROM parent p WHERE s.token = p.token AND false",
        "A run that has made its pieces frees its slots for them.",
        (f"{TESTS}test_pieces_take_slots_that_the_run_that_made_them_has_given_back",),
    ),
    Mutant(
        "ramp-by-runs-from-before-the-hold",
        END,
        "coalesce(s.started_at >= k.held_until, true)",
        "true",
        "After a hold, one run starts first. Only the successes of runs that started after it count.",
        (f"{TESTS}test_after_a_hold_one_run_starts_first_and_each_success_doubles_the_number",),
    ),
    Mutant(
        "hold-doubled-by-each-run",
        END,
        "CASE WHEN r.started_at < h.held_until THEN greatest(h.held_step - 1, 0) ELSE h.held_step END",
        "h.held_step",
        "Runs that were active together when their key was held hold it for one minute together.",
        (f"{TESTS}test_runs_that_were_active_when_a_key_was_held_do_not_double_its_hold",),
    ),
    Mutant(
        "group-asks-for-full-keys",
        "wrappers/group/full_keys.py",
        "if limits.now() < key.again_at or chosen[name] >= key.number:",
        "if chosen[name] >= key.number:",
        "A group does not request starts of a full key before there may be room.",
        (
            "tests/worker/test_limited_groups.py::test_a_full_key_is_asked_for_one_task_first_and_then_for_twice_as_many",
        ),
    ),
    Mutant(
        "slot-of-a-later-run-freed",
        END,
        " AND s.token = e.token",
        "",
        "An end that waited for a start does not free the slot that this start took.",
        (f"{TESTS}test_an_end_that_waits_for_a_start_does_not_free_the_slot_that_the_start_takes",),
    ),
    Mutant(
        "lost-runs-keep-slots",
        "ticker/db/sql/sweep.sql",
        "FROM ended e WHERE s.token = e.token",
        "FROM ended e WHERE s.token = e.token AND false",
        "After the clock was set back, runs that are recorded as lost free their slots.",
        (f"{TESTS}test_a_run_that_is_recorded_as_lost_after_the_clock_was_set_back_keeps_no_slot",),
    ),
    Mutant(
        "planned-start-waits-for-its-task",
        SQL,
        "WHERE id = %(task_id)s FOR NO KEY UPDATE SKIP LOCKED",
        "WHERE id = %(task_id)s FOR NO KEY UPDATE",
        "A planned start does not wait for a row: it would not see the holds that were written meanwhile.",
        (f"{TESTS}test_a_planned_start_does_not_judge_by_holds_from_before_a_wait_for_a_row",),
    ),
    Mutant(
        "room-of-a-waiting-job-taken-twice",
        "ticker/engine/key_limits.py",
        "if key in rooms and not task.has_job)",
        "if key in rooms)",
        "A task whose earlier job waits in the queue takes the room of its key once.",
        (
            "tests/engine/test_key_limits.py::test_a_task_whose_job_waits_takes_no_further_room_and_needs_that_of_its_job",
        ),
    ),
    Mutant(
        "key-deleted-while-its-run-is-active",
        "ticker/db/sql/prune.sql",
        "AND NOT EXISTS (SELECT FROM {schema}.slots s WHERE s.key = t.key AND s.until > {now})",
        "",
        "A key is deleted only once none of its slots is taken.",
        (f"{KEYS}test_keys_that_no_task_has_are_deleted_with_their_slots_once_they_are_free",),
    ),
    Mutant(
        "key-deleted-though-a-task-got-it",
        "ticker/db/sql/prune.sql",
        "WHERE key = ANY (%(keys)s::text[]) AND {unused k}",
        "WHERE key = ANY (%(keys)s::text[])",
        "A key that a task got before it was locked is not deleted.",
        (f"{KEYS}test_a_key_that_a_task_got_before_it_was_locked_is_not_deleted",),
    ),
)
