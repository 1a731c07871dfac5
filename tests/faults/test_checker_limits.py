"""Tests the checker's S15 with histories written by hand: how many runs of a key are active, and how many start."""

from pathlib import Path

import pytest

from tests.faults.by_hand import Book, broken, excused, judged
from tests.faults.checker import check
from tests.faults.facts import FOREVER


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "run")


def starts(book: Book, at: float, *keys: str, every: float = 10.0, begins: bool = True) -> int:
    """Starts a run by hand, of a new task with these keys. B + g is 5.1 s."""
    task = book.task(at, every=every, next_run=None, kwargs={"box": 1, "keys": keys or ("host",)})
    return book.start(task, None, at, job_id="", begins=begins)


def lasts(book: Book, begin: float, end: float, *keys: str) -> int:
    run = starts(book, begin, *keys)
    book.end(run, end)
    return run


def of_limits(book: Book) -> list[str]:
    return [str(violation) for violation in check(book.history()) if violation.invariant == "S15"]


# ------------------------------------------------------------------------------------------------ at the same time


def test_as_many_runs_as_the_limit_allows_are_active(book: Book) -> None:
    book.limit("host", 0, concurrency=2)
    for begin, end in ((1, 3), (2, 4), (3.1, 5), (4.1, 6)):
        lasts(book, begin, end)
    assert broken(book) == set()
    assert judged(book, "S15") == 8


def test_one_run_more_is_found(book: Book) -> None:
    book.limit("host", 0, concurrency=2)
    runs = [lasts(book, begin, 5) for begin in (1, 2, 3)]
    told = ", ".join(f"{run} (2 allowed)" for run in runs)
    assert of_limits(book) == [f"S15: key host: 3 runs were active at 3.01 s, when run {runs[2]} began: {told}"]


def test_each_key_has_its_own_places(book: Book) -> None:
    book.limit("host", 0, concurrency=1)
    book.limit("account", 0.1, concurrency=1)
    lasts(book, 1, 5, "host")
    lasts(book, 2, 5, "account")
    assert broken(book) == set()


@pytest.mark.parametrize("keys", [("host", "account"), ("account", "host")])
def test_a_run_takes_a_place_of_both_keys_in_either_order(book: Book, keys: tuple[str, str]) -> None:
    book.limit("host", 0, concurrency=1)
    lasts(book, 1, 5, *keys)
    lasts(book, 2, 4, "host")
    assert broken(book) == {"S15"}


def test_a_pattern_limits_each_key_by_itself(book: Book) -> None:
    book.limit("account:*", 0, concurrency=1)
    for key in ("account:1", "account:2"):
        lasts(book, 1, 5, key)
    assert broken(book) == set()
    lasts(book, 2, 4, "account:2")
    assert broken(book) == {"S15"}


def test_the_own_limit_of_a_key_and_the_longest_pattern_take_precedence(book: Book) -> None:
    for number, (key, most) in enumerate({"*": 1, "account:*": 2, "account:vip": 3}.items()):
        book.limit(key, number / 10, concurrency=most)
    for key, most in {"account:vip": 3, "account:1": 2}.items():
        for number in range(most):
            lasts(book, 1 + number / 10, 5, key)
    assert broken(book) == set()
    lasts(book, 2, 4, "account:1")
    assert broken(book) == {"S15"}


def test_a_key_without_a_limit_limits_nothing(book: Book) -> None:
    for number in range(5):
        lasts(book, 1 + number / 10, 4, "other")
    assert broken(book) == set()


def test_a_child_that_lives_on_counts_as_its_run(book: Book) -> None:
    book.limit("host", 0, concurrency=1)
    first = lasts(book, 1, 2)
    book.witness("beat", first, 2.5, child=True)
    lasts(book, 2.2, 3)
    assert broken(book) == {"S15"}


@pytest.mark.parametrize(("at", "is_excused"), [(6.5, True), (6.0, False)])
def test_a_run_that_outlives_its_hold_is_for_another_check(book: Book, at: float, is_excused: bool) -> None:
    book.limit("host", 0, concurrency=1)
    first = starts(book, 1)
    book.witness("beat", first, 6.9)  # B + g is over at 6.1 s
    book.close(first, 7, "lost")
    lasts(book, at, 8)
    assert ("S15" in broken(book)) is not is_excused
    assert bool(excused(book, "S15")) is is_excused


# ---------------------------------------------------------------------------------------------- a limit that changes


def test_runs_above_a_lowered_limit_may_go_on(book: Book) -> None:
    book.limit("host", 0, concurrency=4)
    for number in range(4):
        lasts(book, 1 + number / 10, 5)
    book.limit("host", 2, concurrency=2)
    lasts(book, 5.1, 6)
    lasts(book, 5.2, 6)
    assert broken(book) == set()


def test_a_run_may_have_any_place_below_the_limit_that_it_met(book: Book) -> None:
    """Two older runs may have the places 3 and 4, so that two places are free after the limit was lowered to 2."""
    book.limit("host", 0, concurrency=4)
    lasts(book, 1, 5)
    lasts(book, 1.1, 5)
    book.limit("host", 2, concurrency=2)
    lasts(book, 3, 5)
    lasts(book, 3.1, 5)
    assert broken(book) == set()
    lasts(book, 3.2, 5)
    assert broken(book) == {"S15"}


def test_a_start_while_the_runs_above_a_lowered_limit_go_on_is_found(book: Book) -> None:
    book.limit("host", 0, concurrency=4)
    for number in range(4):
        lasts(book, 1 + number / 10, 5)
    book.limit("host", 2, concurrency=2)
    lasts(book, 3, 4)
    assert broken(book) == {"S15"}


def test_the_new_runs_alone_keep_a_lowered_limit(book: Book) -> None:
    book.limit("host", 0, concurrency=4)
    book.limit("host", 2, concurrency=1)
    lasts(book, 3, 5)
    lasts(book, 3.1, 5)
    assert broken(book) == {"S15"}


@pytest.mark.parametrize(("at", "found"), [(2.2, set()), (2.3, {"S15"})])
def test_a_lowered_limit_counts_a_quarter_of_a_second_after_its_answer(book: Book, at: float, found: set[str]) -> None:
    book.limit("host", 0, concurrency=2)
    book.limit("host", 1.5, 2, concurrency=1)
    lasts(book, at, 5)
    lasts(book, at + 0.01, 5)
    assert broken(book) == found


def test_a_declaration_without_an_answer_may_apply_or_not(book: Book) -> None:
    book.limit("host", 0, concurrency=1)
    book.limit("host", 1, FOREVER, concurrency=2)
    lasts(book, 2, 5)
    lasts(book, 3, 5)
    assert broken(book) == set()
    lasts(book, 4, 5)
    assert broken(book) == {"S15"}


def test_a_fault_of_postgres_may_hold_a_start_that_has_read_the_old_limit(book: Book) -> None:
    book.limit("host", 0, concurrency=2)
    lasts(book, 1, 9)
    book.fault("row_locked", 1.4, 4)
    book.limit("host", 1.5, concurrency=1)
    lasts(book, 4.1, 9)
    assert "S15" not in broken(book)


# ----------------------------------------------------------------------------------------------------- in a window


def at(book: Book, *ats: float) -> None:
    for one in ats:
        lasts(book, one, one + 0.05)


def test_a_burst_and_then_as_many_as_the_rate_allows(book: Book) -> None:
    book.limit("host", 0, count=2, seconds=1, burst=2)
    at(book, 1, 1.001, 1.5, 2, 2.5, 3, 6, 6.001)
    assert broken(book) == set()
    assert judged(book, "S15") == 24


def test_one_start_more_than_the_burst_is_found(book: Book) -> None:
    book.limit("host", 0, count=2, seconds=1, burst=2)
    at(book, 1, 1.001, 1.002)
    told = "3 starts from 1.0 s to 1.002 s; the limit is 2 per second, with a burst of 2"
    assert of_limits(book) == [f"S15: key host: {who} {told}" for who in ("the audit trigger saw", "the records say")]


def test_a_rate_that_is_a_little_too_high_is_found_in_a_long_window(book: Book) -> None:
    book.limit("host", 0, count=2, seconds=1, burst=1)
    at(book, *(1 + 0.45 * number for number in range(20)))
    assert broken(book) == {"S15"}


def test_by_the_clock_of_the_database_a_rate_is_exact(book: Book) -> None:
    book.limit("host", 0, count=2, seconds=1, burst=1)
    at(book, 1, 1.49)
    [sentence] = of_limits(book)
    assert "the records say" in sentence


def test_starts_count_whose_functions_never_began(book: Book) -> None:
    book.limit("host", 0, count=1, seconds=1, burst=1)
    book.end(starts(book, 1, begins=False), 1.1, "killed", witnessed=False)
    book.end(starts(book, 1.2, begins=False), 1.3, "killed", witnessed=False)
    assert broken(book) == {"S15"}


def test_each_limit_has_its_own_windows(book: Book) -> None:
    book.limit("host", 0, count=4, seconds=1, burst=4)
    at(book, 1, 1.001, 1.002, 1.003)
    book.limit("host", 1.5, count=1, seconds=1, burst=1)
    at(book, 2)
    assert broken(book) == set()
    at(book, 2.4)
    assert broken(book) == {"S15"}


@pytest.mark.parametrize("delay", [0.0, 0.5])
def test_a_trigger_that_was_held_up_says_nothing_of_the_rate(book: Book, delay: float) -> None:
    """Two starts a second apart, the first of which PostgreSQL wrote late."""
    book.limit("host", 0, count=1, seconds=1, burst=1)
    task = book.task(0, next_run=None, kwargs={"box": 1, "keys": ["host"]})
    first = book.start(task, None, 1 + delay, job_id="", started_at=book.wall(1))
    book.end(first, 1.8)
    at(book, 2)
    assert broken(book) == set()
    assert bool(excused(book, "S15")) is bool(delay)


def test_a_function_that_is_active_before_its_start_is_found(book: Book) -> None:
    task = book.task(0, next_run=None, kwargs={"box": 1, "keys": ["host"]})
    run = book.start(task, None, 2, job_id="", started_at=book.wall(2), begins=False)
    book.begin(run, 1.9)
    book.end(run, 3)
    assert broken(book) == {"S15"}


# ------------------------------------------------------------------------------------------------------- while held


def held(book: Book, until: float, *, by_call: bool = True) -> int:
    """A run that starts at second 1, and holds its key off from second 2."""
    run = starts(book, 1)
    book.witness("holds", run, 2, key="host", seconds=until - 2)
    if by_call:
        book.witness("held", run, 2.1, key="host")
    book.end(run, 2.2, "succeeded" if by_call else "slowed_down")
    return run


@pytest.mark.parametrize("by_call", [True, False])
@pytest.mark.parametrize(("at", "found"), [(2.3, set()), (2.6, {"S15"}), (9.9, {"S15"}), (10.1, set())])
def test_no_run_starts_while_its_key_is_held(book: Book, by_call: bool, at: float, found: set[str]) -> None:
    held(book, 10, by_call=by_call)
    lasts(book, at, at + 1)
    assert broken(book) == found


def test_a_run_that_was_under_way_goes_on(book: Book) -> None:
    other = starts(book, 1.5)
    held(book, 10)
    book.end(other, 5)
    assert broken(book) == set()
    assert judged(book, "S15") > 0


def test_another_key_is_not_held(book: Book) -> None:
    held(book, 10)
    lasts(book, 5, 6, "other")
    assert broken(book) == set()


def test_a_hold_that_was_never_committed_holds_nothing(book: Book) -> None:
    run = starts(book, 1)
    book.witness("holds", run, 2, key="host", seconds=8)
    book.end(run, 3, "failed")
    lasts(book, 4, 5)
    assert broken(book) == set()


@pytest.mark.parametrize(("second", "found"), [(11.1, set()), (10.2, {"S15"})])
def test_after_a_hold_one_run_starts_first(book: Book, second: float, found: set[str]) -> None:
    book.limit("host", 0, concurrency=5)
    held(book, 10)
    lasts(book, 10.1, 11)
    lasts(book, second, 12)
    assert broken(book) == found


def test_each_success_doubles_the_number_up_to_the_limit(book: Book) -> None:
    book.limit("host", 0, concurrency=3)
    held(book, 10)
    lasts(book, 10.1, 11)
    lasts(book, 11.1, 13)
    lasts(book, 11.2, 12)
    lasts(book, 12.1, 14)
    lasts(book, 12.2, 14)
    assert broken(book) == set()
    lasts(book, 12.3, 14)
    assert broken(book) == {"S15"}


# ------------------------------------------------------------------------------------------------------- at the end


def test_a_place_of_a_run_that_has_ended_is_free_at_the_end(book: Book) -> None:
    run = lasts(book, 1, 2)
    book.slot("host", run, 6.1)
    assert broken(book) == set()


def test_a_place_that_an_ended_run_still_has_at_the_end_is_found(book: Book) -> None:
    run = lasts(book, 1, 2)
    book.slot("host", run, 1010)
    assert of_limits(book) == [
        f"S15: key host: place 1 is taken until 1010.0 s by run {run}, which is ended at the end"
    ]


def test_a_run_that_ended_just_now_may_still_have_its_place(book: Book) -> None:
    run = lasts(book, 998.5, 999)
    book.slot("host", run, 1003)
    assert broken(book) == set()


def test_a_run_that_is_active_at_the_end_has_its_place(book: Book) -> None:
    run = starts(book, 998)
    book.slot("host", run, 1003.1)
    assert "S15" not in broken(book)


# -------------------------------------------------------------------------------------------------------- in general


def test_a_history_without_keys_judges_nothing(book: Book) -> None:
    book.round(book.task(), 0)
    assert broken(book) == set()
    assert (judged(book, "S15"), judged(book, "L6")) == (0, 0)
