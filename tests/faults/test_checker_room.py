"""Tests the checker's L6 with histories written by hand, and that L1 to L4 leave tasks with keys to it."""

from pathlib import Path

import pytest

from tests.faults.by_hand import Book, broken, excused, judged
from tests.faults.checker import check


@pytest.fixture
def book(tmp_path: Path) -> Book:
    """D = 1 s, Q = 2 s: a key with room and due tasks has a start every 8 s. Calms are judged without their first 3 s."""
    book = Book(tmp_path / "run")
    book.limit("host", 0, concurrency=1)
    return book


def task(book: Book, due: float, *keys: str, every: float = 60.0) -> int:
    return book.task(due, every=every, kwargs={"box": 1, "keys": keys or ("host",)})


def occupied(book: Book, begin: float, end: float, *keys: str) -> None:
    """A run by hand with these keys."""
    other = book.task(0, every=200, next_run=None, kwargs={"box": 1, "keys": keys or ("host",)})
    book.end(book.start(other, None, begin, job_id=""), end)


def starts(book: Book, task: int, due: float, at: float) -> None:
    book.push(task, due, at)
    book.advance(task, due, at)
    book.end(book.start(task, due, at), at + 0.1)


def of_room(book: Book) -> list[str]:
    return [str(violation) for violation in check(book.history()) if violation.invariant == "L6"]


# ------------------------------------------------------------------------------------------------ a key with room


@pytest.mark.parametrize(("at", "found"), [(17.9, set()), (18.2, {"L6"})])
def test_a_key_with_room_has_a_start_in_time(book: Book, at: float, found: set[str]) -> None:
    starts(book, task(book, 10), 10, at)
    book.calm(0, 30)
    assert broken(book) == found
    assert judged(book, "L6") > 0


def test_a_key_that_starves_is_found(book: Book) -> None:
    task(book, 10)
    book.calm(0, 30)
    [sentence] = of_room(book)
    assert "from 10.0 s to 30.0 s of a calm, and none started for 20.000 s; the limit is 5 s + D + Q = 8 s" in sentence


def test_a_job_that_waits_counts_as_a_due_task(book: Book) -> None:
    one = task(book, 10)
    book.push(one, 10, 10)
    book.advance(one, 10, 10)
    book.calm(0, 30)
    assert "L6" in broken(book)


def test_a_full_key_starves_no_task(book: Book) -> None:
    occupied(book, 1, 29)
    task(book, 10)
    book.calm(0, 30)
    assert broken(book) == set()


def test_a_run_that_died_uses_its_place_until_its_hold_is_over(book: Book) -> None:
    """The run of a task of 200 s holds its place for 100.1 s."""
    occupied(book, 1, 150)
    task(book, 10)
    book.calm(0, 108)
    assert "L6" not in broken(book)


def test_after_that_hold_the_key_has_room(book: Book) -> None:
    occupied(book, 1, 150)
    task(book, 10)
    book.calm(0, 110)
    assert "L6" in broken(book)


def test_both_keys_must_have_room(book: Book) -> None:
    book.limit("account", 0.1, concurrency=1)
    occupied(book, 1, 29, "account")
    task(book, 10, "host", "account")
    book.calm(0, 30)
    assert broken(book) == set()


def test_a_token_that_is_used_up_leaves_no_room(tmp_path: Path) -> None:
    book = Book(tmp_path / "run")
    book.limit("host", 0, count=1, seconds=60, burst=1)
    occupied(book, 1, 1.1)
    task(book, 10)
    book.calm(0, 61)
    assert broken(book) == set()


def test_a_key_that_is_held_off_has_no_room(book: Book) -> None:
    one = book.task(0, next_run=None, kwargs={"box": 1, "keys": ["host"]})
    run = book.start(one, None, 1, job_id="")
    book.witness("holds", run, 1.5, key="host", seconds=28)
    book.end(run, 2, "slowed_down")
    task(book, 10)
    book.calm(0, 30)
    assert broken(book) == set()


def test_after_a_hold_a_key_surely_has_room_only_for_the_first_run(book: Book) -> None:
    book.limit("host", 0.5, concurrency=5)
    one = book.task(0, next_run=None, kwargs={"box": 1, "keys": ["host"]})
    run = book.start(one, None, 1, job_id="")
    book.witness("holds", run, 1.5, key="host", seconds=1)
    book.end(run, 2, "slowed_down")
    occupied(book, 4, 29)
    task(book, 10)
    book.calm(0, 30)
    assert broken(book) == set()


def test_a_storm_is_not_judged(book: Book) -> None:
    task(book, 10)
    book.calm(25, 30)
    assert broken(book) == set()


def test_a_task_that_may_not_run_wants_no_room(book: Book) -> None:
    book.task(10, every=60, kwargs={"box": 1, "keys": ["host"]}, enabled=False)
    book.calm(0, 30)
    assert judged(book, "L6") == 0


def test_a_machine_without_idle_processors_excuses_a_wait(book: Book) -> None:
    task(book, 10)
    book.calm(0, 30)
    for at in range(1, 30):
        book.event("clocks", at, wall=book.wall(at), spare=0.01)
    assert "L6" not in broken(book)
    assert excused(book, "L6") == ["under 10% of the processors were left"]


# ----------------------------------------------------------------------------------------------------- the oldest first


@pytest.mark.parametrize(("number", "found"), [(8, set()), (9, {"L6"})])
def test_a_task_that_many_others_overtake_is_found(book: Book, number: int, found: set[str]) -> None:
    task(book, 10)
    for other in range(number):
        starts(book, task(book, 12 + 2 * other), 12 + 2 * other, 12 + 2 * other)
    book.calm(0, 14 + 2 * number)
    assert broken(book) == found


@pytest.mark.parametrize(("until", "found"), [(60, set()), (9, {"L6"})])
def test_a_task_with_which_a_process_died_is_overtaken_until_its_turn(
    book: Book, until: float, found: set[str]
) -> None:
    one = task(book, 10)
    book.change(one, 8, alone_until=book.wall(until))
    for due in range(12, 30, 2):
        starts(book, task(book, due), due, due)
    book.calm(0, 32)
    assert broken(book) == found


def test_tasks_with_other_keys_overtake_nothing(book: Book) -> None:
    book.limit("account", 0.1, concurrency=1)
    occupied(book, 1, 60, "account")
    task(book, 10, "host", "account")
    for due in range(12, 40, 2):
        starts(book, task(book, due), due, due)
    book.calm(0, 40)
    assert broken(book) == set()


# -------------------------------------------------------------------------------------------------- the other promises


def test_what_waits_for_room_is_not_late(book: Book) -> None:
    """Neither L1, L2 nor L4 blame it."""
    one = task(book, 10, every=2)
    occupied(book, 1, 59)
    book.calm(20, 60)
    starts(book, one, 10, 59.5)
    assert broken(book) == set()


def test_an_occurrence_that_met_a_full_limit_and_went_with_its_task_needs_no_record(book: Book) -> None:
    one = task(book, 10)
    book.push(one, 10, 10)
    book.advance(one, 10, 10)
    book.change(one, 11, waiting=[], next_run=book.wall(10))
    book.delete(one, 12)
    assert broken(book) == set()
    assert excused(book, "S9") == ["given back by a full limit or a pause, and edited or deleted before the next push"]


def test_an_occurrence_that_was_not_given_back_needs_one(book: Book) -> None:
    one = task(book, 10)
    book.push(one, 10, 10)
    book.advance(one, 10, 10)
    book.change(one, 11, waiting=[], next_run=book.wall(70))
    book.delete(one, 12)
    assert "S9" in broken(book)


# -------------------------------------------------------------------------------------------------------------- pieces


def generated(book: Book, *, generates_until: float = 1.0) -> tuple[int, int]:
    """A task, and its run that waits for its pieces."""
    one = book.task(0, next_run=None)
    run = book.start(one, None, 0.5, job_id="")
    book.witness("end", run, generates_until)
    book.close(run, 1.1, "", state="processing")
    book.change(one, 1.1, xid=book._xid, run_token=None, running_until=None)
    return one, run


def piece(book: Book, task: int, begin: float, end: float) -> None:
    """A start of a piece does not change its task."""
    row = book._tasks.pop(task)
    run = book.start(task, None, begin, kind="piece", job_id="", begins=False)
    book._tasks[task] = row
    book.begin(run, begin + 0.01, kwargs=row["kwargs"], box=1)
    book.witness("end", run, end - 0.01)
    book.close(run, end, "succeeded")


def test_pieces_run_next_to_each_other_and_their_run_ends_when_they_have(book: Book) -> None:
    one, run = generated(book)
    piece(book, one, 2, 4)
    piece(book, one, 3, 5)
    book.close(run, 100, "succeeded")
    book.change(one, 100, xid=book._xid, last_run_id=run, last_outcome="succeeded")
    assert broken(book) == set()


def test_a_piece_does_not_run_next_to_another_run(book: Book) -> None:
    one, run = generated(book, generates_until=2.5)
    piece(book, one, 2, 4)
    book.close(run, 5, "succeeded")
    assert "S2" in broken(book)
