"""The checker's S5, S9 and S10 against histories by hand: what is pushed, what becomes of it, and how much waits."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.by_hand import Book, broken, excused
from tests.faults.checker import check


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


# ------------------------------------------------------------------------------------------------ S9 accounted for


def test_a_job_without_a_record_is_found(book: Book) -> None:
    task = book.task()
    book.push(task, 0, 0)
    book.advance(task, 0, 0)
    book.change(task, 5, waiting=[])
    violations = check(book.history())
    assert [violation.invariant for violation in violations] == ["S9"]
    assert "was stored at 0.0 s, and there is no record of it" in violations[0].sentence


@pytest.mark.parametrize(("reason", "outcome"), [("too_early", "dropped"), ("its job ended before its start", "lost")])
def test_a_drop_or_a_loss_is_a_record(book: Book, reason: str, outcome: str) -> None:
    task = book.task()
    book.push(task, 0, 0)
    book.advance(task, 0, 0)
    book.drop(task, 0, 1, reason, outcome)
    assert broken(book) == set()


def test_a_job_that_still_waits_at_the_end_is_not_lost(book: Book) -> None:
    task = book.task()
    book.push(task, 0, 0)
    book.advance(task, 0, 0)
    assert broken(book) == set()
    assert excused(book, "S9") == ["waiting at the end"]


def deleted_with_its_job(book: Book) -> None:
    task = book.task()
    book.push(task, 0, 0)
    book.advance(task, 0, 0)
    book.delete(task, 1)


def test_a_job_of_a_deleted_task_needs_a_record_too(book: Book) -> None:
    deleted_with_its_job(book)
    assert broken(book) == {"S9"}


@pytest.mark.parametrize(
    ("do", "why"),
    [
        (lambda book: book.wipe(2), "deleted task, job wiped"),
        (lambda book: book.fault("worker_killed", 2), "deleted task, job lost in a fault"),
        (lambda book: book.calm(0.5, 3), "deleted task, end of the run"),
    ],
)
def test_a_job_of_a_deleted_task_may_go_with_redis_with_a_worker_and_at_the_end(
    book: Book, do: Callable[[Book], None], why: str
) -> None:
    deleted_with_its_job(book)
    do(book)
    assert broken(book) == set()
    assert excused(book, "S9") == [why]


def test_a_job_of_a_deleted_task_may_still_stand_behind_one_that_waits_at_the_end(book: Book) -> None:
    first = book.task()
    book.push(first, 0, 0)
    book.advance(first, 0, 0)
    deleted_with_its_job(book)
    assert broken(book) == set()
    assert set(excused(book, "S9")) == {"waiting at the end", "deleted task, end of the run"}


def test_a_wipe_before_the_push_excuses_nothing(book: Book) -> None:
    book.wipe(-1)
    deleted_with_its_job(book)
    assert broken(book) == {"S9"}


def test_a_wipe_excuses_no_job_of_a_task_that_is_there(book: Book) -> None:
    task = book.task()
    book.push(task, 0, 0)
    book.advance(task, 0, 0)
    book.wipe(2)
    book.change(task, 5, waiting=[])
    assert broken(book) == {"S9"}


def test_a_push_that_was_never_committed_may_be_wiped(book: Book) -> None:
    task = book.task()
    book.push(task, 0, 0)
    book.wipe(1)
    book.edit(task, 2, paused_by="someone")
    book.edit(task, 3, paused_by=None, next_run=book.wall(3))
    book.round(task, 3)
    assert broken(book) == set()
    assert excused(book, "S9") == ["pushed, not committed, lost in a fault"]


def test_copies_of_a_job_are_duplicates(book: Book) -> None:
    task = book.task()
    book.round(task, 0)
    book.drop(task, 0, 1, "duplicate")
    book.drop(task, 0, 2, "duplicate")
    assert broken(book) == set()


def test_a_second_record_that_is_no_duplicate_is_found(book: Book) -> None:
    task = book.task()
    book.round(task, 0)
    book.drop(task, 0, 1, "too_early")
    assert broken(book) == {"S9"}


def test_a_job_that_was_stored_twice_may_be_dropped_twice(book: Book) -> None:
    task = book.task()
    book.push(task, 0, 0)
    book.drop(task, 0, 0.5, "too_early")
    book.round(task, 0)
    assert broken(book) == set()


def test_a_duplicate_of_what_never_ran_is_found(book: Book) -> None:
    task = book.task()
    book.push(task, 0, 0)
    book.advance(task, 0, 0)
    book.drop(task, 0, 1, "duplicate")
    assert broken(book) == {"S9"}


def test_an_older_occurrence_that_comes_after_a_newer_one_is_a_duplicate(book: Book) -> None:
    task = book.task()
    book.push(task, 0, 0)
    book.advance(task, 0, 0)
    book.round(task, 10)
    book.drop(task, 0, 11, "duplicate")
    assert broken(book) == set()


def test_an_outcome_that_is_written_twice_is_found(book: Book) -> None:
    run = book.round(book.task(), 0)
    book.close(run, 5, "lost")
    assert broken(book) == {"S9"}


def test_a_planned_run_that_is_forgotten_is_found(book: Book) -> None:
    book.plan(book.task(), 0)
    assert broken(book) == {"S9"}


def test_a_planned_run_that_is_dropped_is_accounted_for(book: Book) -> None:
    book.close(book.plan(book.task(), 0), 1, "dropped", reason="paused")
    assert broken(book) == set()


# ------------------------------------------------------------------------------------------ S10 bounded


@pytest.mark.parametrize(("count", "found"), [(63, set()), (64, {"S10"})])
def test_more_waiting_than_expiry_allows_is_found(book: Book, count: int, found: set[str]) -> None:
    task = book.task(every=10)  # 600 s / 10 s + 3
    for number in range(count):
        book.push(task, number, number)
    book.change(task, count, waiting=[book.wall(number) for number in range(count)])
    assert broken(book) == found


def test_what_waited_under_a_shorter_interval_is_not_too_much_under_a_longer_one(book: Book) -> None:
    task = book.task(every=10)
    for number in range(60):
        book.push(task, number, number)
    book.change(task, 60, waiting=[book.wall(number) for number in range(60)])
    book.edit(task, 61, every_ms=100000)
    assert broken(book) == set()
