"""Faults in the notices of a cause."""

from tests.mutants.mutant import Mutant

NOTIFY, RULES = "ticker/db/sql/notify.sql", "ticker/db/sql/rules.sql"
TESTS = "tests/notify/test_causes.py::"

CAUSES = (
    Mutant(
        "single-notices-as-well",
        NOTIFY,
        "AND NOT (c.channel = ANY (%(by_cause)s::text[]) AND",
        "AND NOT (false AND c.channel = ANY (%(by_cause)s::text[]) AND",
        "A channel with notices by cause gets none of each task.",
        (f"{TESTS}test_one_failing_task_is_notified_in_the_words_of_a_single_notice",),
    ),
    Mutant(
        "cause-notified-again-at-once",
        NOTIFY,
        "due_at = CASE WHEN %(fails)s THEN {now} + interval '1 hour'",
        "due_at = CASE WHEN %(fails)s THEN {now}",
        "Tasks that fail with a cause are notified once an hour at most.",
        (f"{TESTS}test_a_provider_that_is_away_for_ten_thousand_tasks_makes_three_mails_in_two_hours",),
    ),
    Mutant(
        "cause-forgotten-with-its-recovery",
        NOTIFY,
        "ELSE coalesce(n.sent_at <= i.now - interval '1 hour', true) END",
        "ELSE true END",
        "A cause that comes and goes is notified once an hour.",
        (f"{TESTS}test_a_cause_that_comes_and_goes_is_notified_once_an_hour",),
    ),
    Mutant(
        "disabled-tasks-keep-a-cause-failing",
        RULES,
        "(t.cause <> '' AND t.enabled AND t.owner_active AND",
        "(t.cause <> '' AND",
        "A task that does not run keeps no cause failing.",
        (f"{TESTS}test_tasks_that_are_gone_or_do_not_run_keep_no_cause_failing",),
    ),
    Mutant(
        "failed-notice-of-a-cause-lost",
        NOTIFY,
        "AND (n.tries > 0 OR {has_grown n} OR",
        "AND ({has_grown n} OR",
        "A delivery that failed is repeated.",
        (f"{TESTS}test_a_delivery_that_failed_is_repeated_and_nothing_is_lost_or_doubled",),
    ),
    Mutant(
        "cause-that-stays-after-a-success",
        "ticker/engine/follow_up.py",
        'return replace(state, told="", cause="", alarm_at=alarm_at), notes',
        'return replace(state, told="", alarm_at=alarm_at), notes',
        "A success clears the cause.",
        (f"{TESTS}test_ticks_store_the_cause_with_the_task_until_it_succeeds",),
    ),
    Mutant(
        "hosts-stay-in-a-cause",
        "ticker/errors.py",
        r'_VARIABLE = re.compile(r"\d|[@/\\]|\w\.\w")',
        r'_VARIABLE = re.compile(r"[@/\\]|\w\.\w")',
        "The cause leaves out what differs among tasks.",
        (f"{TESTS}test_the_cause_of_an_error_leaves_out_what_differs_among_tasks",),
    ),
)
