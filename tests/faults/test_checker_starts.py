"""The checker's S1 to S4 against histories by hand: when runs start, and when they are dead."""

from pathlib import Path

import pytest

from tests.faults.by_hand import Book, broken, excused
from tests.faults.checker import check, summarise


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "run")


# ------------------------------------------------------------------------------------------------------- S1 spacing


def test_two_starts_closer_than_the_interval_less_its_tolerance_are_found(book: Book) -> None:
    book.rounds(book.task(every=10), 0, 9.49)
    violations = check(book.history())
    assert [violation.invariant for violation in violations] == ["S1"]
    assert "started at 9.49 s, only 9.490000 s after run 2; at least I - T = 9.5 s" in violations[0].sentence
    assert (violations[0].task, violations[0].at) == (1, 9.49)


def test_a_start_at_the_tolerance_itself_is_allowed(book: Book) -> None:
    book.rounds(book.task(every=10), 0, 9.5)
    assert broken(book) == set()


def test_after_an_edit_the_interval_of_the_later_run_counts(book: Book) -> None:
    task = book.task(every=10)
    book.round(task, 0)
    book.edit(task, 1, every_ms=2000, tolerance_ms=100)
    book.round(task, 2)
    assert broken(book) == set()


def test_after_an_edit_to_a_longer_interval_the_old_spacing_is_too_short(book: Book) -> None:
    task = book.task(every=2)
    book.round(task, 0)
    book.edit(task, 1, every_ms=10000, tolerance_ms=500)
    book.round(task, 2)
    assert broken(book) == {"S1"}


def test_manual_runs_and_retries_need_no_spacing(book: Book) -> None:
    task = book.task(every=10)
    book.round(task, 0)
    book.end(book.start(task, None, 1), 1.1)
    book.end(book.start(task, 0, 2, kind="retry", attempt=2, job_id=""), 2.1)
    assert broken(book) == set()


@pytest.mark.parametrize(("after", "found"), [(10, set()), (4, {"S1"})])
def test_across_a_clock_that_was_set_back_the_monotonic_clock_counts(book: Book, after: float, found: set[str]) -> None:
    task = book.task(every=10)
    book.round(task, 0)
    book.clocks(1)
    book.fault("database_clock", 2, 2)
    book.clocks(2.5, shift=-3600)
    book.change(task, 2.6, next_run=book.wall(after), last_run=book.wall(2.6), last_occurrence=book.wall(2.6))
    book.round(task, after)
    assert broken(book) == found


def test_a_clock_that_was_set_forward_excuses_and_is_counted(book: Book) -> None:
    task = book.task(every=10)
    book.round(task, 0)
    book.clocks(1)
    book.fault("database_clock", 2, 2)
    book.clocks(2.5, shift=3600)
    due = 10 - 3600
    book.push(task, due, 3)
    book.advance(task, due, 3)
    book.end(book.start(task, due, 3), 3.1)
    assert broken(book) == set()
    assert excused(book, "S1") == ["the clock was set forward"]


# ------------------------------------------------------------------------------------- S2 no overlap, S3 dead in time


def test_a_run_that_is_active_when_the_next_one_begins_overlaps(book: Book) -> None:
    task = book.task()
    run = book.round(task, 0)
    book.round(task, 10)
    book.witness("beat", run, 10.02)
    assert broken(book) == {"S2", "S3"}


def test_a_child_of_a_run_counts_for_overlap(book: Book) -> None:
    task = book.task(every=2, box_ms=1800)
    run = book.round(task, 0)
    book.round(task, 2)
    book.witness("beat", run, 2.02, child=True)
    assert broken(book) == {"S2"}


def test_children_do_not_count_where_nobody_kills_them(tmp_path: Path) -> None:
    book = Book(tmp_path / "run", strict_children=False)
    task = book.task()
    book.witness("beat", book.round(task, 0), 60, child=True)
    book.round(task, 10)
    assert broken(book) == set()


def test_a_third_run_is_compared_with_the_one_that_was_active_longest(book: Book) -> None:
    task = book.task()
    run = book.round(task, 0)
    book.rounds(task, 10, 20)
    book.witness("beat", run, 20.05, child=True)
    assert sum(violation.invariant == "S2" for violation in check(book.history())) == 2


def test_a_run_may_be_active_for_a_second_after_its_box_and_grace(book: Book) -> None:
    run = book.round(book.task(every=20), 0)  # B + g = 10.1 s
    book.witness("beat", run, 11.05)
    assert broken(book) == set()
    assert summarise(book.history()).overshoot == pytest.approx(0.94)


@pytest.mark.parametrize("child", [False, True])
def test_activity_later_than_that_is_found(book: Book, child: bool) -> None:
    run = book.round(book.task(every=20), 0)
    book.witness("beat", run, 11.2, child=child)
    assert broken(book) == {"S3"}


def test_the_box_counts_from_the_start_and_not_from_a_function_that_began_late(book: Book) -> None:
    run = book.start(book.task(every=20), None, 0, begins=False, job_id="")
    book.begin(run, 1.9)
    book.witness("beat", run, 12)
    book.end(run, 12.1)
    assert broken(book) == {"S3"}


def test_a_box_that_was_granted_shorter_is_the_limit(book: Book) -> None:
    run = book.start(book.task(every=20), None, 0, begins=False, job_id="")
    book.begin(run, 0.01, box=2.0)
    book.end(run, 4)
    assert broken(book) == {"S3"}


# ------------------------------------------------------------------------------------------------------ S4 one start


def test_two_runs_with_one_token_are_found(book: Book) -> None:
    task = book.task()
    book.end(book.start(task, None, 0, token="same", job_id=""), 0.1)
    book.end(book.start(task, None, 1, token="same", job_id=""), 1.1)
    assert "S4" in broken(book)


def test_an_occurrence_that_starts_twice_is_found(book: Book) -> None:
    task = book.task(every=2)
    book.round(task, 0)
    book.push(task, 0, 2)
    book.end(book.start(task, 0, 2), 2.1)
    assert broken(book) == {"S4", "S9", "S13"}


def test_a_retry_is_a_further_attempt_and_no_second_start(book: Book) -> None:
    task = book.task()
    book.round(task, 0)
    book.end(book.start(task, 0, 1, kind="retry", attempt=2, job_id=""), 1.1)
    assert broken(book) == set()


def test_a_run_that_begins_twice_is_found(book: Book) -> None:
    book.begin(book.round(book.task(), 0), 1)
    assert broken(book) == {"S4"}


def test_a_function_that_begins_with_another_token_is_found(book: Book) -> None:
    run = book.start(book.task(), None, 0, begins=False, job_id="")
    book.begin(run, 0.01, token="another")
    book.end(run, 1)
    assert broken(book) == {"S4"}
