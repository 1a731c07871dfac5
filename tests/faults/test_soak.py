"""What the soak sums up."""

import json
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
from redis import Redis

from tests.faults.gauges import forgotten, grown, leftovers
from tests.faults.soak import Sum, stored


def wrong(stored: set[tuple[int, int]], records: dict[tuple[int, int], int], waiting: set[tuple[int, int]]) -> set[str]:
    found = Sum(frozenset(stored), Counter(records), frozenset(waiting), Counter())
    return {what for what, occurrences in found.wrong.items() if occurrences}


def test_a_sum_that_comes_out_even_has_nothing_wrong() -> None:
    assert wrong({(1, 1), (1, 2)}, {(1, 1): 1}, {(1, 2)}) == set()


def test_each_kind_of_wrong_occurrence_is_named() -> None:
    assert wrong({(1, 1)}, {(1, 1): 2}, set()) == {"with two records"}
    assert wrong({(1, 1)}, {}, set()) == {"without a record"}
    assert wrong({(1, 1)}, {(1, 1): 1}, {(1, 1)}) == {"with a record, and waiting"}
    assert wrong(set(), {(1, 1): 1}, set()) == {"with a record, and never stored"}
    assert wrong(set(), {}, {(1, 1)}) == {"waiting, and never stored"}


def test_what_was_stored_is_read_from_all_proxies_whatever_installation_pushed_it(tmp_path: Path) -> None:
    lines = [
        {"event": "push", "job": "a1b2c3d4-t1-5", "answer": "stored"},
        {"event": "push", "job": "t2-6", "answer": "held"},
        {"event": "push", "job": "a1b2c3d4-r7", "answer": "stored"},
        {"event": "take", "job": "a1b2c3d4-t1-5"},
    ]
    for number, line in enumerate(lines):
        (tmp_path / f"redis-{number}.jsonl").write_text(json.dumps(line) + "\n")
    assert set(stored(tmp_path)) == {(1, 5)}


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([10, 10, 50, 50, 50, 50, 50, 50], []),  # it warmed up
        ([50, 50, 50, 50, 60, 60, 90, 90], ["memory of ticker, MB grew from 50.0 to 90.0"]),
        ([5, 5, 5, 5, 20, 20, 20, 20], []),  # a few MB are no growth
        ([50, 50, 50, 50, 900, 50, 50, 50], []),  # nor is a moment
        ([1, 2, 300], []),
    ],
)
def test_what_is_larger_at_the_end_than_after_a_quarter_of_the_time_has_grown(
    values: list[float], found: list[str]
) -> None:
    assert grown([{"memory of ticker, MB": value} for value in values]) == found


def test_a_key_of_a_job_that_never_expires_is_forgotten() -> None:
    keys = Counter({"rq:job:*, stays": 2, "rq:job:*": 3, "rq:workers:*, stays": 4})
    assert forgotten(keys) == ["2 keys rq:job:* never expire"]


def test_a_job_that_never_expires_is_forgotten_unless_rq_takes_it_for_begun(redis: Redis) -> None:
    for job in ("expires", "begun", "left"):
        redis.hset(f"rq:job:{job}", "status", "started")
    redis.expire("rq:job:expires", 3600)
    redis.zadd("rq:wip:polling", {"begun:1f": 1})
    keys = leftovers(Mock(redis=lambda: nullcontext(redis)))
    assert keys == {"rq:job:*": 2, "rq:job:*, stays": 1, "rq:wip:*, stays": 1}
    assert forgotten(keys) == ["1 keys rq:job:* never expire"]
