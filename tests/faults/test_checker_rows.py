"""The checker's S6 to S8 against histories by hand: what people forbid, what a start reads, and what a fence keeps."""

from pathlib import Path

import pytest

from tests.faults.by_hand import Book, broken
from tests.faults.checker import check


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "run")


# -------------------------------------------------------------------------------------------- S6 obeys people


def forbidden_start(book: Book, op: str, **column: object) -> int:
    """A task that is forbidden at second 5, and still starts at second 10."""
    task = book.task()
    book.round(task, 0)
    book.client(op, task, 4.9, 5.1)
    book.edit(task, 5, **column) if column else book.delete(task, 5)
    book.end(book.start(task, None, 10, kind="retry", job_id=""), 10.1)
    return task


@pytest.mark.parametrize(
    ("op", "column"),
    [
        ("disable", {"enabled": False}),
        ("owner_inactive", {"owner_active": False}),
        ("pause", {"paused_by": "someone"}),
        ("delete", {}),
        ("delete_owner", {}),
    ],
)
def test_a_start_after_it_was_forbidden_is_found(book: Book, op: str, column: dict[str, object]) -> None:
    forbidden_start(book, op, **column)
    sentences = [str(violation) for violation in check(book.history()) if violation.invariant == "S6"]
    assert len(sentences) == 2  # by the row, and by the client's word
    assert "after its " + op + " was acknowledged at 5.1 s" in sentences[1]


def test_a_run_that_had_begun_before_the_delete_goes_on(book: Book) -> None:
    task = book.task()
    book.push(task, 0, 0)
    book.advance(task, 0, 0)
    run = book.start(task, 0, 1, begins=False)
    book.client("delete", task, 1.0, 1.2)
    book.delete(task, 1.1)
    book.begin(run, 1.5, kwargs={"box": 1})
    book.end(run, 2)
    assert broken(book) == set()


def test_what_the_client_enables_again_may_start(book: Book) -> None:
    task = book.task()
    book.client("disable", task, 1, 1.2)
    book.edit(task, 1.1, enabled=False)
    book.client("enable", task, 2)  # the answer was an error: it may have happened
    book.edit(task, 2.1, enabled=True)
    book.end(book.start(task, None, 3, job_id=""), 3.1)
    assert broken(book) == set()


@pytest.mark.parametrize("op", ["resume", "register"])
def test_another_operation_does_not_enable_a_task(book: Book, op: str) -> None:
    task = book.task()
    book.client("disable", task, 1, 1.2)
    book.client(op, task, 2, 2.1)
    book.end(book.start(task, None, 3, job_id=""), 3.1)
    assert broken(book) == {"S6"}


def test_an_enable_that_was_answered_before_the_disable_was_sent_lifts_nothing(book: Book) -> None:
    task = book.task()
    book.client("enable", task, 0.5, 0.7)
    book.client("disable", task, 1, 1.2)
    book.end(book.start(task, None, 3, job_id=""), 3.1)
    assert broken(book) == {"S6"}


def test_a_disable_that_failed_forbids_nothing(book: Book) -> None:
    task = book.task()
    book.client("disable", task, 1)
    book.end(book.start(task, None, 3, job_id=""), 3.1)
    assert broken(book) == set()


def test_a_manual_run_may_start_while_the_task_is_paused(book: Book) -> None:
    task = book.task()
    book.client("pause", task, 1, 1.2)
    book.edit(task, 1.1, paused_by="someone")
    book.end(book.start(task, None, 3, job_id=""), 3.1)
    assert broken(book) == set()


def test_a_pause_that_is_over_forbids_nothing(book: Book) -> None:
    task = book.task()
    book.client("pause", task, 1, 1.2, change={"until": "soon"})
    book.edit(task, 1.1, paused_by="someone", paused_until=book.wall(2))
    book.end(book.start(task, None, 3, kind="retry", job_id=""), 3.1)
    assert broken(book) == set()


# ------------------------------------------------------------------------------------------- S7 reads its row


def test_an_edit_between_two_starts_gives_each_its_own_arguments(book: Book) -> None:
    task = book.task()
    book.round(task, 0)
    book.edit(task, 5, kwargs={"box": 2}, function="poll.steps")
    book.round(task, 10)
    assert broken(book) == set()


@pytest.mark.parametrize("more", [{"kwargs": {"box": 2}}, {"function": "poll.other"}])
def test_a_function_that_is_handed_something_else_is_found(book: Book, more: dict[str, object]) -> None:
    run = book.start(book.task(), None, 0, begins=False, job_id="")
    book.begin(run, 0.01, **more)
    book.end(run, 1)
    assert broken(book) == {"S7"}


@pytest.mark.parametrize("column", [{"every_ms": 1}, {"tolerance_ms": 1}, {"function": "poll.other"}])
def test_a_record_that_says_something_else_is_found(book: Book, column: dict[str, object]) -> None:
    book.end(book.start(book.task(), None, 0, job_id="", **column), 1)
    assert "S7" in broken(book)


def test_arguments_from_before_an_edit_are_found(book: Book) -> None:
    task = book.task()
    book.edit(task, 0.5, kwargs={"box": 2})
    run = book.start(task, None, 1, begins=False, job_id="")
    book.begin(run, 1.01, kwargs={"box": 1})
    book.end(run, 2)
    assert broken(book) == {"S7"}


# --------------------------------------------------------------------------------------------------- S8 fenced


def test_an_end_of_a_run_that_lost_its_hold_is_found(book: Book) -> None:
    task = book.task(every=2)
    first = book.start(task, None, 0, job_id="")
    book.start(task, None, 5, begins=False, job_id="")
    book.end(first, 6, witnessed=False)
    assert "S8" in broken(book)


def test_an_outcome_without_the_hold_is_found(book: Book) -> None:
    task = book.task(every=2)
    first = book.start(task, None, 0, job_id="")
    second = book.start(task, None, 5, job_id="")
    book.close(first, 5.5, "succeeded")
    book.end(second, 5.6)
    assert "S8" in broken(book)


def test_the_sweep_ends_a_run_that_lost_its_hold_as_lost(book: Book) -> None:
    task = book.task(every=2)
    first = book.start(task, None, 0, job_id="")
    second = book.start(task, None, 2, job_id="")
    book.close(first, 2.5, "lost")
    book.end(second, 2.6)
    assert broken(book) == set()


def test_a_hold_that_is_taken_while_it_lives_is_found(book: Book) -> None:
    task = book.task(every=10)
    first = book.start(task, None, 0, job_id="")
    second = book.start(task, None, 2, job_id="")
    book.close(first, 2.5, "lost")
    book.end(second, 2.6)
    assert broken(book) == {"S8"}


def test_a_cursor_that_is_written_without_the_hold_is_found(book: Book) -> None:
    task = book.task()
    book.round(task, 0)
    book.change(task, 1, cursor=7)
    assert broken(book) == {"S8"}


def test_a_cursor_that_is_written_by_the_run_is_fine(book: Book) -> None:
    task = book.task()
    run = book.start(task, None, 0, job_id="")
    book.change(task, 0.5, cursor=7)
    book.end(run, 1)
    assert broken(book) == set()


@pytest.mark.parametrize(("result", "found"), [("refused", set()), ("accepted", {"S8"})])
def test_a_stale_write_must_be_refused(book: Book, result: str, found: set[str]) -> None:
    book.witness("stale_write", book.round(book.task(), 0), 0.2, result=result)
    assert broken(book) == found


def test_a_run_whose_task_is_gone_still_ends(book: Book) -> None:
    task = book.task()
    run = book.start(task, None, 0, job_id="")
    book.delete(task, 1)
    book.end(run, 2)
    assert broken(book) == set()
