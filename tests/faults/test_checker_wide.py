"""The checker's S6 and S9 against histories by hand: pauses of many tasks."""

from pathlib import Path
from typing import Any

import pytest

from tests.faults.by_hand import Book, broken


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "run")


def wide(book: Book, op: str, scope: str, value: str, at: float, until: float | None = None, **more: Any) -> None:
    change = {"scope": scope, "value": value, "until": None if until is None else book.wall(until)}
    book.event("client", at, phase="sent", op=op, id=f"{op} {at}", task=None, tasks=[], owner=None, change=change)
    book.event("client", at + 0.1, phase="acked", op=op, id=f"{op} {at}", task=None, tasks=[], owner=None, **more)


def started(book: Book, at: float, *, manual: bool = False, **columns: Any) -> None:
    """A task that starts at second 0, and again at `at`."""
    task = book.task(**columns)
    book.round(task, 0)
    if manual:
        book.end(book.start(task, None, at, job_id=""), at + 0.1)
    else:
        book.round(task, at)


@pytest.mark.parametrize(
    ("scope", "value", "columns"),
    [
        ("all", "", {}),
        ("function", "poll.plain", {}),
        ("queue", "slow", {"queue": "slow"}),
        ("group", "odd", {"group_name": "odd"}),
        ("owner_type", "mailboxes", {"owner_type": "mailboxes"}),
        ("limit", "host:*", {"limits": ["host:a"]}),
    ],
)
def test_a_start_in_a_pause_of_its_scope_is_found(book: Book, scope: str, value: str, columns: dict[str, Any]) -> None:
    wide(book, "pause_all", scope, value, 10)
    started(book, 20, **columns)
    assert broken(book) == {"S6"}


def test_other_tasks_and_times_are_free(book: Book) -> None:
    wide(book, "pause_all", "queue", "slow", 1)
    wide(book, "pause_all", "all", "", 5, until=12)  # over by itself
    wide(book, "pause_all", "function", "poll.plain", 13)
    wide(book, "resume_all", "function", "poll.plain", 15)
    started(book, 20)
    assert broken(book) == set()


def test_a_manual_run_waits_only_if_all_are_paused(book: Book) -> None:
    wide(book, "pause_all", "function", "poll.plain", 10)
    started(book, 20, manual=True)
    assert broken(book) == set()


def test_a_manual_run_while_all_are_paused_is_found(book: Book) -> None:
    wide(book, "pause_all", "all", "", 10)
    started(book, 20, manual=True)
    assert broken(book) == {"S6"}


def test_a_single_time_that_was_dropped_is_found(tmp_path: Path) -> None:
    def history(name: str, reason: str, **edit: Any) -> set[str]:
        book = Book(tmp_path / name, steady=[1])
        task = book.task(kind="once", every=0, every_ms=0)
        book.push(task, 0, 0)
        book.change(task, 0, waiting=[book.wall(0)], next_run=None)
        if edit:
            book.edit(task, 4, **edit)
        book.drop(task, 0, 5, reason)
        return broken(book)

    assert history("once", "superseded") == {"S9"}
    assert history("disabled at the end", "paused", enabled=False) == set()
