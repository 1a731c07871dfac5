"""Tests the checker's L7, and L1 and L2 of a large group, with histories written by hand."""

from pathlib import Path

import pytest

from tests.faults.by_hand import Book, broken, excused, judged
from tests.faults.checker import check
from tests.faults.checks.neighbours import UNTIL_IT_ENDED

KILL = 50.0  # the process of the group dies, and the calm begins


@pytest.fixture
def book(tmp_path: Path) -> Book:
    """D = 1 s, Q = 2 s, restart = 3 s, and polls of up to 5 s: 11 s for L7. Task 1 is in the group."""
    return Book(tmp_path / "run", crowd=[1], longest_poll=5.0)


def started(book: Book, *ats: float, calm: float = 60.0) -> int:
    """A task of 20 s that started at these times."""
    task = book.task(every=20)
    book.rounds(task, *ats)
    book.calm(KILL, KILL + calm)
    return task


@pytest.mark.parametrize(("late", "found"), [(10.5, set()), (11.5, {"L7"})])
def test_what_was_due_when_the_group_died_starts_within_three_ticks_a_restart_and_a_poll(
    book: Book, late: float, found: set[str]
) -> None:
    started(book, 20, KILL + late, KILL + late + 20, KILL + late + 40, calm=late + 42)
    assert broken(book) == found
    assert judged(book, "L7") == 3


def test_a_task_whose_run_died_is_due_an_interval_after_its_start(book: Book) -> None:
    started(book, 45, 75.5, 96, calm=50)
    assert broken(book) == set()


def test_a_task_that_does_not_start_again_is_found(book: Book) -> None:
    started(book, 20, calm=14)
    [violation] = check(book.history())
    assert str(violation) == (
        "L7: task 1: due at 50.0 s of a calm, it did not start until 64.0 s; the limit is 3 D + restart + the longest poll of"
        " its group = 11 s"
    )


def test_a_task_that_never_started_is_found(book: Book) -> None:
    book.task(20, every=20)
    book.calm(KILL, KILL + 20)
    assert broken(book) == {"L7"}


def test_after_a_start_the_next_one_counts_too(book: Book) -> None:
    """From 90.5 s on, L2 finds it, too: an interval, a tick and Q are 23 s."""
    started(book, 20, 51, 71, 106, 126, calm=78)
    assert broken(book) == {"L2", "L7"}


def test_once_the_group_has_recovered_a_late_start_breaks_l2(book: Book) -> None:
    started(book, 20, 55, 75, 99, 119, calm=80)
    assert broken(book) == {"L2"}


def test_a_calm_that_ends_before_the_limit_shows_nothing(book: Book) -> None:
    started(book, 20, calm=10)
    assert broken(book) == set()
    assert judged(book, "L7") == 0


def test_outside_of_the_large_group_nothing_is_judged(tmp_path: Path) -> None:
    book = Book(tmp_path / "run", crowd=[2])
    book.rounds(book.task(every=20), 0, 60)
    book.calm(KILL, KILL + 20)
    assert judged(book, "L7") == 0


def test_a_task_that_was_paused_when_the_calm_began_need_not_start(book: Book) -> None:
    task = started(book, 20, calm=40)
    book.edit(task, 45, paused_by="someone")
    assert broken(book) == set()


@pytest.mark.parametrize(("reason", "found"), [("still_running", set()), ("expired", {"L7"})])
def test_a_rule_of_spacing_excuses_a_late_start_and_an_expiry_does_not(
    book: Book, reason: str, found: set[str]
) -> None:
    task = book.task(every=20)
    book.round(task, 20)
    book.push(task, 40, 40)
    book.advance(task, 40, 40)
    book.drop(task, 40, 49, reason)
    book.rounds(task, 62, 82)
    book.calm(KILL, KILL + 34)
    assert broken(book) - {"S9"} == found
    assert bool(excused(book, "L7")) is not bool(found)


def test_a_machine_that_had_nothing_left_excuses_a_late_start(book: Book) -> None:
    started(book, 20, 62, calm=20)
    for at in range(50, 64):
        book.event("clocks", float(at), wall=book.wall(at), spare=0.05)
    assert broken(book) == set()


def test_what_a_group_cannot_begin_need_not_be_pushed(book: Book) -> None:
    """As L1 and L4 would demand of another task."""
    started(book, 20, 60, 80, calm=32)
    assert broken(book) == set()
    assert judged(book, "L1") == 0


@pytest.mark.parametrize(("late", "found"), [(15.5, set()), (16.5, {"L7"})])
def test_many_suspects_need_as_many_polls_as_their_jobs_need_rounds(
    tmp_path: Path, late: float, found: set[str]
) -> None:
    """16 suspects run in four jobs, and three workers need two rounds for them: 6 s and two polls of 5 s."""
    book = Book(tmp_path / "run", crowd=[*range(1, 17)], longest_poll=5.0)
    tasks = [book.task(every=20) for _ in range(16)]
    for task in tasks:
        book.rounds(task, 20)
        book.change(task, KILL - 1, alone_until=UNTIL_IT_ENDED + 3600)
        book.rounds(task, KILL + late, KILL + late + 20)
    book.calm(KILL, KILL + late + 22)
    assert broken(book) == found
