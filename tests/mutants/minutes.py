"""Faults in the count of minutes, and in the number of workers that is needed."""

from tests.mutants.mutant import Mutant

SQL = "ticker/db/sql/minutes.sql"
MINUTES_TEST = "tests/daemon/test_minutes.py"
NEEDS = "ticker/daemon/needs.py"
NEEDS_TEST = "tests/daemon/test_needs.py"

MINUTES = (
    Mutant(
        "minute-is-counted-on-top",
        SQL,
        "DELETE FROM {schema}.minutes m USING next n WHERE m.at = n.at AND",
        "DELETE FROM {schema}.minutes m USING next n WHERE m.at < n.at - interval '1 year' AND",
        "A minute that is counted again replaces its first count.",
        (f"{MINUTES_TEST}::test_what_is_written_or_corrected_within_twelve_minutes_counts",),
    ),
    Mutant(
        "late-end-is-lost",
        SQL,
        "s.second <= h.newest - interval '12 minutes' AS is_second",
        "s.second <= h.newest - interval '1 day' AS is_second",
        "An end that is written late counts, if that is within twelve minutes.",
        (f"{MINUTES_TEST}::test_what_is_written_or_corrected_within_twelve_minutes_counts",),
    ),
    Mutant(
        "two-tickers-count-a-minute",
        SQL,
        "FROM {schema}.installation FOR NO KEY UPDATE SKIP LOCKED",
        "FROM {schema}.installation",
        "A ticker neither counts a minute that another is counting, nor waits for it.",
        (f"{MINUTES_TEST}::test_one_ticker_counts_a_minute_and_another_one_does_not_wait_for_it",),
    ),
    Mutant(
        "minutes-ahead-stay-counted",
        SQL,
        "least(greatest(h.counted_until, s.second), h.newest + interval '1 minute') AS first",
        "greatest(h.counted_until, s.second) AS first",
        "After the clock was set back, minutes are counted again when they are over again.",
        (f"{MINUTES_TEST}::test_after_the_clock_was_set_back_minutes_are_counted_again_when_they_are_over_again",),
    ),
    Mutant(
        "hour-keeps-its-first-sum",
        SQL,
        "DELETE FROM {schema}.hours o USING next n WHERE o.at = date_trunc('hour', n.at, 'UTC') AND n.completes_hour",
        "DELETE FROM {schema}.hours o USING next n WHERE false",
        "An hour is added up again when its last minute is counted again.",
        (f"{MINUTES_TEST}::test_an_hour_adds_up_its_minutes_when_the_last_one_is_counted_and_counted_again",),
    ),
    Mutant(
        "uncounted-record-is-pruned",
        "ticker/db/sql/prune.sql",
        "least(n.now - interval '2 hours', (SELECT counted_twice_until FROM {schema}.installation)) AS over",
        "least(n.now - interval '2 hours', (SELECT counted_until FROM {schema}.installation)) AS over",
        "No record is pruned before its minute was counted twice.",
        (f"{MINUTES_TEST}::test_no_record_is_pruned_before_its_minute_was_counted_twice",),
    ),
    Mutant(
        "every-function-has-its-rows",
        SQL,
        "sum(count) DESC, function LIMIT 200) f",
        "sum(count) DESC, function) f",
        "The functions beyond the 200 with most ends are added up as `(other)`.",
        (f"{MINUTES_TEST}::test_functions_beyond_the_first_200_count_as_others",),
    ),
    Mutant(
        "work-of-a-limit-is-demand",
        NEEDS,
        "part = min((parts[key] for key in one.limits if key in parts), default=1.0)",
        "part = 1.0",
        "Work that a limit holds back does not count as demand for workers.",
        (f"{NEEDS_TEST}::test_a_limit_holds_work_back",),
    ),
    Mutant(
        "work-of-a-pause-is-demand",
        "ticker/db/sql/needs.sql",
        "NOT {kept_waiting t}",
        "t.paused_by IS NULL",
        "Work that a pause of many tasks holds back does not count as demand for workers.",
        (f"{NEEDS_TEST}::test_a_task_that_a_pause_of_many_will_hold_back_is_no_demand",),
    ),
    Mutant(
        "what-waits-is-no-demand",
        NEEDS,
        "return self.starts + self.waiting",
        "return self.starts",
        "What waits counts as demand for workers: without workers, nothing starts.",
        (f"{NEEDS_TEST}::test_what_waits_of_other_work_is_demand",),
    ),
    Mutant(
        "what-is-due-at-once-is-spread",
        NEEDS,
        "enough[queue] = max(enough[queue], workers)",
        "enough[queue] = max(enough[queue], 0.0)",
        "So many workers are enough that what is due at once starts within two ticks.",
        (f"{NEEDS_TEST}::test_what_is_due_at_once_starts_within_two_ticks",),
    ),
    Mutant(
        "group-has-one-slot",
        NEEDS,
        "workers[one.queue] += part * one.rate * one.seconds / share / one.concurrency",
        "workers[one.queue] += part * one.rate * one.seconds / share",
        "A worker runs as many tasks of a group at the same time as its function allows.",
        (f"{NEEDS_TEST}::test_the_slots_of_an_announced_function_count",),
    ),
    Mutant(
        "unknown-durations-are-nothing",
        NEEDS,
        "None if enough - least[queue] > 1 else math.ceil",
        "math.ceil",
        "If functions without any measured duration may need more than one worker, no number of workers is given.",
        (f"{NEEDS_TEST}::test_a_task_whose_durations_are_unknown_has_no_number",),
    ),
    Mutant(
        "unknown-durations-end-at-once",
        NEEDS,
        'known.mean if known else row["longest"]',
        "known.mean if known else 0.0",
        "A duration that was never measured counts as the longest that the box allows.",
        (f"{NEEDS_TEST}::test_an_unknown_duration_that_needs_at_most_one_worker_counts_as_its_box",),
    ),
    Mutant(
        "no-worker-measures-durations",
        "ticker/read/workers.py",
        "if enough is None and listening == 0:",
        "if enough is None and listening is None:",
        "A queue with unknown durations and without any worker needs one.",
        ("tests/read/test_workers.py::test_one_worker_is_enough_to_measure_durations_that_are_unknown",),
    ),
    Mutant(
        "shared-workers-count-twice",
        "ticker/read/workers.py",
        "sum(share * crew[1] for share, crew in zip(shares, crews, strict=True)) if known else None",
        "sum(crew[1] for share, crew in zip(shares, crews, strict=True)) if known else None",
        "A worker that listens to several queues counts for its share of each.",
        ("tests/read/test_workers.py::test_workers_of_several_queues_are_shared_by_the_needs",),
    ),
)
