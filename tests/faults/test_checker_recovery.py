"""The checker's L4 and L5 against histories by hand: what must be well again after faults, and what they excuse."""

from pathlib import Path

import pytest

from tests.faults.by_hand import Book, broken, excused, judged
from tests.faults.checker import check


@pytest.fixture
def book(tmp_path: Path) -> Book:
    """D = 1 s, Q = 2 s, restart = 3 s."""
    return Book(tmp_path / "run")


# ------------------------------------------------------------------------------------------- L4 covered again


def test_what_is_still_due_six_seconds_after_the_faults_is_found(book: Book) -> None:
    task = book.task(0, every=20)
    book.calm(10, 17)  # 3 D + restart = 6 s
    book.round(task, 18)
    found = [str(violation) for violation in check(book.history()) if violation.invariant == "L4"]
    assert found == [
        "L4: task 1: at 16.0 s, 6 s after the faults, it is still due since 0.0 s, and was not pushed",
    ]


@pytest.mark.parametrize(("calm", "found"), [(10, set()), (12, {"L4"})])
def test_what_takes_turns_is_due_until_its_turn_and_no_longer(book: Book, calm: float, found: set[str]) -> None:
    """Alone with its turns, it starts every 10 s; then D and Q."""
    task = book.task(3, every=60, box_ms=500, grace_ms=100)
    book.change(task, 2, alone_until=book.wall(40))
    book.calm(calm, calm + 7)
    book.round(task, calm + 8)
    assert broken(book) == found


def test_what_is_pushed_in_time_is_covered(book: Book) -> None:
    task = book.task(0, every=20)
    book.push(task, 0, 11)
    book.advance(task, 0, 11)
    book.end(book.start(task, 0, 11.5), 12)
    book.calm(10, 17)
    assert broken(book) == set()
    assert judged(book, "L4") == 1


def wiped(book: Book, *, again: bool) -> None:
    """Redis is emptied while an occurrence waits."""
    task = book.task(0, every=100)
    book.push(task, 0, 1)
    book.advance(task, 0, 1)
    book.wipe(5)
    book.calm(10, 17)
    if again:
        book.push(task, 0, 11)
    book.end(book.start(task, 0, 18), 18.1)


def test_an_occurrence_that_waits_and_was_wiped_is_pushed_again(book: Book) -> None:
    wiped(book, again=True)
    assert broken(book) == set()


def test_an_occurrence_that_is_not_pushed_again_is_found(book: Book) -> None:
    wiped(book, again=False)
    assert broken(book) == {"L4"}


@pytest.mark.parametrize(("kind", "found"), [("redis_evicts", set()), ("redis_flushed", {"L4"})])
def test_a_job_that_a_worker_took_may_outlive_an_eviction(book: Book, kind: str, found: set[str]) -> None:
    """The answer was lost on its way to the worker: RQ leaves the job to it for minutes."""
    task = book.task(0, every=100)
    book.push(task, 0, 1)
    book.advance(task, 0, 1)
    book.take(f"t{task}-{book.occurrence(0)}", 2)
    book.fault(kind, 4.9, 5.1, "wipe")
    book.wipe(5)
    book.calm(10, 17)
    book.end(book.start(task, 0, 18), 18.1)
    assert broken(book) == found


def test_a_task_that_is_edited_meanwhile_is_not_judged(book: Book) -> None:
    task = book.task(0, every=20)
    book.calm(10, 16.5)
    book.edit(task, 14, enabled=False)
    assert judged(book, "L4") == 0


# --------------------------------------------------------------------------------------------- L5 ends in time


def ends_late(book: Book, at: float, outcome: str = "lost") -> None:
    """B + g is 5.1 s, so that the limit is second 9.1."""
    book.end(book.start(book.task(next_run=None), None, 0, job_id=""), at, outcome, witnessed=False)


@pytest.mark.parametrize(("at", "found"), [(9.0, set()), (9.2, {"L5"})])
def test_an_outcome_comes_within_the_box_and_two_ticks(book: Book, at: float, found: set[str]) -> None:
    ends_late(book, at)
    assert broken(book) == found


def test_a_run_that_never_ends_is_found_twice(book: Book) -> None:
    book.start(book.task(next_run=None), None, 0, job_id="")
    assert broken(book) == {"S9", "L5"}


def test_a_run_whose_hold_outlives_the_history_may_be_open(book: Book) -> None:
    book.start(book.task(next_run=None), None, 0, job_id="")
    book.calm(1, 5)
    assert broken(book) == set()
    assert excused(book, "L5") == ["running at the end"]


def test_a_ticker_that_has_just_started_gives_the_workers_time(book: Book) -> None:
    book.process("ticker-1#1", 0)
    book.round(book.task(1), 1)
    run = book.start(book.task(next_run=None), None, 2, job_id="")
    book.end(run, 13, "timed_out", witnessed=False)  # 7.1 s, 2 D + 2 s; or 1 s, 10 s for the workers, 2 D + 2 s
    assert broken(book) == set()
    assert excused(book, "L5") == ["PostgreSQL, its row or all tickers were away"]


@pytest.mark.parametrize(("end", "found"), [(12.0, set()), (60.0, {"S9"})])
def test_a_run_may_wait_for_its_pieces_at_the_end(book: Book, end: float, found: set[str]) -> None:
    run = book.start(book.task(next_run=None, kind="cron"), None, 0, job_id="")
    book.close(run, 1, "", state="processing")
    book.change(book._runs[run]["task_id"], 1, xid=book._xid, run_token=None, running_until=None)
    book.calm(1, end)
    assert broken(book) == found


@pytest.mark.parametrize(
    ("kind", "effects"),
    [("postgres_killed", ["postgres_down"]), ("all_tickers_down", ["no_tickers"]), ("row_locked", []),
     ("postgres_backends_terminated", [])],
)  # fmt: skip
def test_an_outcome_may_wait_for_postgres_for_its_row_and_for_a_ticker(
    book: Book, kind: str, effects: list[str]
) -> None:
    book.fault(kind, 4, 20, *effects)
    ends_late(book, 36.5)  # 20 s, 3 s for a restart, 10 s for the workers, 2 D + 2 s
    assert broken(book) == set()
    assert excused(book, "L5") == ["PostgreSQL, its row or all tickers were away"]


def test_and_no_longer_than_that(book: Book) -> None:
    book.fault("postgres_killed", 4, 20, "postgres_down")
    ends_late(book, 37.5)
    assert broken(book) == {"L5"}


@pytest.mark.parametrize(("at", "found"), [(35.4, set()), (35.6, {"L5"})])
def test_the_patience_of_tickers_counts_from_the_first_that_is_back(book: Book, at: float, found: set[str]) -> None:
    other = book.task(every=1, next_run=21.5)
    book.fault("postgres_killed", 4, 20, "postgres_down")
    run = book.start(book.task(next_run=None), None, 0, job_id="")
    book.rounds(other, *(21.5 + n for n in range(18)))
    book.end(run, at, "lost", witnessed=False)
    assert broken(book) == found


def test_another_fault_excuses_nothing(book: Book) -> None:
    book.fault("redis_frozen", 4, 20, "redis_down")
    book.fault("worker_killed", 1)
    ends_late(book, 12)
    assert broken(book) == {"L5"}


@pytest.mark.parametrize(("over", "at", "found"), [(-1, 15.9, set()), (-1, 16.1, {"L5"}), (-14, 9.2, {"L5"})])
def test_after_an_outage_the_tickers_wait_ten_seconds_for_the_ends(
    book: Book, over: float, at: float, found: set[str]
) -> None:
    book.fault("postgres_killed", -20, over, "postgres_down")
    ends_late(book, at)
    assert broken(book) == found


def test_overlapping_faults_may_stop_all_tickers(book: Book) -> None:
    book.fault("ticker_frozen", 2, 12)
    book.fault("host_cut_off", 2, 12)
    ends_late(book, 15)
    assert broken(book) == set()


def test_a_frozen_ticker_is_no_excuse_while_another_one_works(book: Book) -> None:
    other = book.task(every=1)
    book.fault("ticker_frozen", 2, 12)
    run = book.start(book.task(next_run=None), None, 0, job_id="")
    book.rounds(other, *map(float, range(15)))
    book.end(run, 14.5, "lost", witnessed=False)
    assert broken(book) == {"L5"}
