"""The checker's S14, and S9's causes of death, against histories by hand."""

from pathlib import Path

import pytest

from tests.faults.by_hand import Book, broken, excused, judged
from tests.faults.checker import check

WORKER = "worker-1#1"


@pytest.fixture
def book(tmp_path: Path) -> Book:
    book = Book(tmp_path / "run")
    book.process(WORKER, 0)
    return book


def died(book: Book, reason: str, *, at: float = 2.0, outcome: str = "killed", function: str = "poll.plain") -> None:
    """A run of a 10 s task (B + g 5.1 s), whose process, 50, the worker's horse, died."""
    task = book.task(function=function)
    book.push(task, 0, 0)
    book.advance(task, 0, 0)
    run = book.start(task, 0, 0, begins=False, pid=50)
    book.begin(run, 0.01, process=WORKER, pid=50)
    book.end(run, at, outcome, witnessed=False, reason=reason)


# ------------------------------------------------------------------------------------------------------ S9 causes


@pytest.mark.parametrize(("at", "found"), [(5.2, set()), (2.0, {"S9"})])
def test_nothing_is_killed_at_a_limit_before_its_time(book: Book, at: float, found: set[str]) -> None:
    died(book, "killed at its hard limit of 5.1 s", at=at)
    assert broken(book) == found


@pytest.mark.parametrize(("at", "found"), [(5.2, set()), (2.0, {"S9"})])
def test_a_kill_that_was_seen_after_the_limit_may_be_the_limits(book: Book, at: float, found: set[str]) -> None:
    died(book, "killed by SIGKILL, which the worker saw after its hard limit of 5.1 s", at=at)
    assert broken(book) == found


def test_what_the_harness_killed_did_not_reach_its_limit(book: Book) -> None:
    book.signal(WORKER, 1, 9, pid=50)
    died(book, "killed at its hard limit of 5.1 s", at=6)
    assert broken(book) == {"S9"}


@pytest.mark.parametrize(("pid", "process"), [(50, WORKER), (49, WORKER)])
def test_a_kill_by_the_harness_is_one(book: Book, pid: int, process: str) -> None:
    book.signal(process, 1, 9, pid=pid)
    died(book, "killed by SIGKILL")
    assert broken(book) == set()


def test_a_worker_that_is_told_twice_to_end_kills_its_horse(book: Book) -> None:
    book.signal(WORKER, 0.5, 15, pid=49)
    book.signal(WORKER, 1, 15, pid=49)
    died(book, "killed by SIGKILL")
    assert broken(book) == set()


@pytest.mark.parametrize(
    ("at", "number", "pid", "process"), [(1, 9, 51, "worker-2#1"), (30, 9, 50, WORKER), (1, 15, 50, WORKER)]
)
def test_a_kill_of_another_process_or_at_another_time_is_none(
    book: Book, at: float, number: int, pid: int, process: str
) -> None:
    book.signal(process, at, number, pid=pid)
    died(book, "killed by SIGKILL")
    assert broken(book) == {"S9"}


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("poll.falls", "killed by SIGKILL"),
        ("poll.crashes", "died of SIGSEGV"),
        ("poll.vanishes", "exited with status 0"),
        ("poll.exits", "exited with status 3"),
    ],
)
def test_what_a_function_does_to_itself_is_its_cause_and_no_other_functions(
    tmp_path: Path, function: str, reason: str
) -> None:
    for other, found in ((function, set()), ("poll.plain", {"S9"})):
        book = Book(tmp_path / other)
        book.process(WORKER, 0)
        died(book, reason, function=other)
        assert broken(book) == found


def test_no_run_dies_for_want_of_memory(book: Book) -> None:
    book.signal(WORKER, 1, 9, pid=50)
    died(book, "killed by SIGKILL, out of memory")
    assert broken(book) == {"S9"}


def test_a_worker_that_lives_on_is_not_gone(book: Book) -> None:
    died(book, "no end was recorded within its time box: its worker is gone", at=6, outcome="lost")
    assert broken(book) == {"S9"}


@pytest.mark.parametrize(("pid", "found"), [(49, set()), (50, {"S9"})])
def test_a_worker_that_was_killed_is_gone_and_one_whose_horse_was_is_not(book: Book, pid: int, found: set[str]) -> None:
    book.signal(WORKER, 1, 9, pid=pid)
    died(book, "no end was recorded within its time box: its worker is gone", at=6, outcome="lost")
    assert broken(book) == found


# ------------------------------------------------------------------------------------------------------------- S14


def returned(book: Book, *, outcome: str = "lost", recorded: float = 6.0) -> int:
    """It returns at 3 s; the record of its end is written at 6 s."""
    task = book.task()
    book.push(task, 0, 0)
    book.advance(task, 0, 0)
    run = book.start(task, 0, 0, begins=False)
    book.begin(run, 0.01, process=WORKER)
    book.witness("end", run, 3)
    book.end(run, recorded, outcome, witnessed=False)
    return task


def test_a_run_that_returned_and_is_lost_is_found(book: Book) -> None:
    returned(book)
    violations = check(book.history())
    assert [violation.invariant for violation in violations] == ["S14"]
    assert "run 2 returned at 3.0 s, its worker could write that by 9.0 s, and its record says lost" in str(
        violations[0]
    )


@pytest.mark.parametrize(("deleted", "found"), [(True, set()), (False, {"S14"})])
def test_a_run_that_raised_hold_lost_is_recorded_so_where_its_task_was_deleted(
    book: Book, deleted: bool, found: set[str]
) -> None:
    task = book.task()
    book.push(task, 0, 0)
    book.advance(task, 0, 0)
    run = book.start(task, 0, 0, begins=False)
    book.begin(run, 0.01, process=WORKER)
    if deleted:
        book.delete(task, 1)
    book.witness("end", run, 3, task=task)
    book.end(
        run, 3.1, "lost", witnessed=False, reason="HoldLost: run 2 no longer holds task 1: its next run was not changed"
    )
    assert broken(book) == found


def test_a_run_that_returned_and_is_recorded_so_is_judged_and_fine(book: Book) -> None:
    returned(book, outcome="failed")
    assert broken(book) == set()
    assert judged(book, "S14") == 1


def test_an_outage_is_waited_for(book: Book) -> None:
    book.fault("postgres_killed", 2, 12, "postgres_down")
    returned(book)
    assert "its worker could write that by 18.0 s" in str(check(book.history())[0])


def test_a_worker_that_went_before_it_could_write_the_end_is_an_excuse(book: Book) -> None:
    book.fault("postgres_killed", 2, 12, "postgres_down")
    book.signal(WORKER, 14, 15, pid=48)
    returned(book)
    assert judged(book, "S14") == 0


def test_the_end_of_its_horse_is_none(book: Book) -> None:
    book.signal(WORKER, 4, 9, pid=1)  # by_hand's witness
    returned(book)
    assert broken(book) == {"S14"}


def test_a_process_that_nobody_supervised_may_be_gone(book: Book) -> None:
    book.process("worker-1#1", 0, 8)
    returned(book)
    assert judged(book, "S14") == 0


def test_an_outage_of_ten_minutes_is_longer_than_an_end_waits(book: Book) -> None:
    book.fault("postgres_killed", 2, 620, "postgres_down")
    returned(book)
    assert judged(book, "S14") == 0


def test_a_later_start_fences_the_end(book: Book) -> None:
    book.fault("postgres_killed", 2, 20, "postgres_down")
    book.rounds(returned(book), 21)
    assert broken(book) == set()
    assert excused(book, "S14") == ["a later run had started"]


def test_a_later_start_after_it_could_have_been_written_does_not(book: Book) -> None:
    book.rounds(returned(book), 30)
    assert broken(book) == {"S14"}
