"""The checker's S5 and S10 against histories by hand: what is pushed, and how much waits."""

from pathlib import Path

import pytest

from tests.faults.by_hand import Book, broken


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "run")


# ------------------------------------------------------------------------------------------- S5 push, then commit


def test_an_advance_without_a_push_is_found(book: Book) -> None:
    task = book.task()
    book.advance(task, 0, 0)
    book.end(book.start(task, 0, 0.5), 1)
    assert broken(book) == {"S5"}


def test_a_push_that_comes_after_its_advance_is_too_late(book: Book) -> None:
    task = book.task()
    book.advance(task, 0, 0)
    book.push(task, 0, 0.2)
    book.end(book.start(task, 0, 0.5), 1)
    assert broken(book) == {"S5"}


@pytest.mark.parametrize("answer", ["OOM command not allowed", None])
def test_an_advance_on_an_error_is_found(book: Book, answer: str | None) -> None:
    task = book.task()
    book.push(task, 0, 0, answer)
    book.advance(task, 0, 0)
    book.end(book.start(task, 0, 0.5), 1)
    assert broken(book) == {"S5"}


def test_an_advance_on_an_answer_that_was_swallowed_is_found(book: Book) -> None:
    task = book.task()
    book.push(task, 0, 0, "stored", delivered=False)
    book.advance(task, 0, 0)
    book.end(book.start(task, 0, 0.5), 1)
    assert broken(book) == {"S5"}


def test_a_push_that_is_repeated_and_still_held_is_good_enough(book: Book) -> None:
    task = book.task()
    book.push(task, 0, 0, "stored", delivered=False)
    book.push(task, 0, 1, "held")
    book.advance(task, 0, 1)
    book.end(book.start(task, 0, 1.5), 2)
    assert broken(book) == set()


@pytest.mark.parametrize("columns", [{"pace_ms": 20_000}, {"again_at": 1.0}])
def test_a_run_may_move_the_next_one_without_a_push(book: Book, columns: dict[str, object]) -> None:
    task = book.task(every_most_ms=20_000)
    book.change(task, 1, next_run=book.wall(11), **columns)
    assert broken(book) == set()


def test_an_advance_that_notes_nothing_needs_a_push_too(book: Book) -> None:
    task = book.task()
    book.change(task, 1, next_run=book.wall(11))
    assert broken(book) == {"S5"}


def test_people_and_clamps_move_the_next_run_without_a_push(book: Book) -> None:
    task = book.task(5, every=10)
    book.edit(task, 6, paused_by="someone")
    book.edit(task, 7, paused_by=None, next_run=book.wall(7))
    book.edit(task, 8, every_ms=20000, next_run=book.wall(28))
    book.change(task, 9, next_run=book.wall(9))
    assert broken(book) == set()


# ------------------------------------------------------------------------------------------ S10 bounded


@pytest.mark.parametrize(("count", "found"), [(2, set()), (3, {"S10"})])
def test_more_waiting_than_allowed_is_found(book: Book, count: int, found: set[str]) -> None:
    task = book.task(every=10)
    for number in range(count):
        book.push(task, number, number)
    book.change(task, count, waiting=[book.wall(number) for number in range(count)])
    assert broken(book) == found


def test_what_was_counted_as_unpushed_needs_no_push(book: Book) -> None:
    task = book.task(every=10)
    book.change(task, 1, next_run=book.wall(11), enough_jobs_event=1)
    assert broken(book) == set()
