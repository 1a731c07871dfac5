"""Tests the checker's L8 with histories written by hand: runs that were asked for while another one was at work."""

from pathlib import Path

import pytest

from tests.faults.by_hand import Book, broken, judged
from tests.faults.checker import check


@pytest.fixture
def book(tmp_path: Path) -> Book:
    """D = 1 s, Q = 2 s: a run starts within 3 s after nothing is at work."""
    book = Book(tmp_path / "run")
    book.calm(0, 40)
    return book


def at_work(book: Book, begin: float, end: float) -> int:
    """A task of 60 s with a run from `begin` to `end`."""
    task = book.task(begin, every=60)
    book.push(task, begin, begin)
    book.advance(task, begin, begin)
    run = book.start(task, begin, begin)
    book.witness("end", run, end - 0.001)
    return task


def asked_for(book: Book, begin: float = 5, end: float = 15, *, at: float = 8) -> tuple[int, int]:
    """A task with a run at work, and a manual run that is asked for meanwhile."""
    task = at_work(book, begin, end)
    run = task + 1
    manual = book.plan(task, at)
    book.end(run, end, witnessed=False)
    return task, manual


def starts(book: Book, manual: int, at: float) -> None:
    """The planned run starts, and ends."""
    book.again(manual, at)
    book.end(manual, at + 0.1)


@pytest.mark.parametrize(("late", "found"), [(2.5, set()), (3.5, {"L8"})])
def test_a_run_that_was_asked_for_starts_after_the_run_at_work(book: Book, late: float, found: set[str]) -> None:
    _, manual = asked_for(book)
    starts(book, manual, 15 + late)
    assert broken(book) == found
    assert judged(book, "L8") == 3


def test_one_that_never_starts_is_found(book: Book) -> None:
    asked_for(book)
    [sentence] = [str(violation) for violation in check(book.history()) if violation.invariant == "L8"]
    assert sentence == (
        "L8: task 1: manual run 3, asked for at 8.0 s, did not start for 25.000 s after nothing was at work; the limit is"
        " D + Q = 3 s"
    )


@pytest.mark.parametrize(("reason", "found"), [("still_running", {"L8"}), ("gone", set())])
def test_it_is_not_dropped_for_the_run_at_work(book: Book, reason: str, found: set[str]) -> None:
    task = at_work(book, 5, 15)
    manual = book.plan(task, 8)
    book.close(manual, 9, "dropped", reason=reason)
    book.end(task + 1, 15, witnessed=False)
    assert broken(book) == found


@pytest.mark.parametrize(("first", "found"), [(8.0, {"L8"}), (4.0, set())])
def test_a_second_one_joins_the_first_that_waits_for_the_same_run(book: Book, first: float, found: set[str]) -> None:
    """The one that was asked for before the run began is another one."""
    task = book.task(0, every=60)
    earlier = book.plan(task, first) if first < 5 else 0
    book.push(task, 0, 5)
    book.advance(task, 0, 5)
    run = book.start(task, 0, 5)
    earlier = earlier or book.plan(task, first)
    later = book.plan(task, 9)
    book.end(run, 15)
    starts(book, earlier, 15.5)
    starts(book, later, 16)
    assert broken(book) - {"L1"} == found


def test_a_further_one_after_the_start_of_the_first_is_another_run(book: Book) -> None:
    task, manual = asked_for(book)
    starts(book, manual, 15.5)
    starts(book, book.plan(task, 16), 16.5)
    assert broken(book) == set()


def test_what_people_forbid_meanwhile_need_not_start(book: Book) -> None:
    task, _ = asked_for(book)
    book.edit(task, 16, enabled=False)
    assert "L8" not in broken(book)


def test_outside_of_a_calm_it_may_take_longer(tmp_path: Path) -> None:
    book = Book(tmp_path / "run")
    book.calm(20, 40)
    _, manual = asked_for(book)
    starts(book, manual, 25)
    assert broken(book) == set()
