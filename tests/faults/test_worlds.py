"""A restore of an older dump ends one world and begins another, each judged by itself."""

from pathlib import Path

import pytest

from tests.faults.by_hand import Book
from tests.faults.checker import check
from tests.faults.facts import History
from tests.faults.history import worlds

DUMPED, STOPPED, BACK = 20.0, 30.0, 35.0


def two_worlds(folder: Path, *, prefix: str = "newworld-", again: bool = True) -> list[History]:
    """A task of 10 s: what it did at 20 s and later, until it was stopped, was never, for the database that came back. That one
    waits for the occurrence of 10 s, and pushes it `again`, under its own installation's `prefix`."""
    book = Book(folder)
    task = book.task()
    book.round(task, 0)
    book.push(task, 10, 10, prefix="oldworld-")
    book.advance(task, 10, 10)
    dump = book.copy()
    run = book.start(task, 10, 21, job_id=f"oldworld-t{task}-{book.occurrence(10)}")
    book.end(run, 22)
    book.put_away("database-0.jsonl", dump)
    book.event("restored", BACK, dumped=DUMPED, stopped=STOPPED)
    if again:
        book.push(task, 10, 36, prefix=prefix)
    run = book.start(task, 10, 37, job_id=f"{prefix}t{task}-{book.occurrence(10)}")
    book.end(run, 38)
    book.history()
    return worlds(folder)


def test_each_world_has_the_runs_of_its_own_database(tmp_path: Path) -> None:
    before, after = two_worlds(tmp_path / "run")
    assert [run.started.at for run in before.runs.values() if run.started] == pytest.approx([0, 21])
    assert [run.started.at for run in after.runs.values() if run.started] == pytest.approx([0, 37])
    assert [before.runs.keys(), after.runs.keys()] == [{2, 3}, {2, 3}]  # the ids are given again
    assert (before.end, before.last) == (STOPPED, STOPPED)


def test_nothing_is_wrong_with_either(tmp_path: Path) -> None:
    assert [str(violation) for world in two_worlds(tmp_path / "run") for violation in check(world)] == []


def test_what_the_witness_saw_in_the_gap_is_of_the_world_that_ended(tmp_path: Path) -> None:
    before, after = two_worlds(tmp_path / "run")
    assert (before.witnessed[3].first, after.witnessed[3].first) == pytest.approx((21.01, 37.01))


def test_a_job_of_the_world_that_ended_must_not_start_in_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    two_worlds(folder, prefix="newworld-")
    lines = (folder / "database.jsonl").read_text().replace("newworld-", "oldworld-")
    (folder / "database.jsonl").write_text(lines)
    before, after = worlds(folder)
    assert check(before) == []
    assert [violation.invariant for violation in check(after)] == ["S13"]


def test_a_job_that_the_restored_database_waits_for_and_nobody_pushed_again_is_found(tmp_path: Path) -> None:
    _, after = two_worlds(tmp_path / "run", again=False)
    assert [violation.invariant for violation in check(after)] == ["S13"]


def lost_at_33(folder: Path, event: str) -> tuple[Book, int]:
    """Of a run that has ended after the copy, the database that is back has no end, and declares it lost."""
    book = Book(folder)
    task = book.task()
    book.push(task, 0, 0)
    book.advance(task, 0, 0)
    run = book.start(task, 0, 19)
    dump = book.copy()
    book.end(run, 21)
    book.put_away("database-0.jsonl", dump)
    book.event(event, BACK, dumped=DUMPED, stopped=STOPPED)
    book.close(run, 33, "lost")
    book.change(task, 33, last_run_id=run)
    return book, task


@pytest.mark.parametrize(("at", "found"), [(33.0, set()), (40.0, {"S8"})])
def test_adopt_alone_gives_back_the_holds_of_runs_that_were_in_the_copy(
    tmp_path: Path, at: float, found: set[str]
) -> None:
    book, task = lost_at_33(tmp_path / "run", "restored")
    book.change(task, at, run_token=None, running_until=None)
    book.history()
    before, after = worlds(tmp_path / "run")
    assert check(before) == []
    assert {violation.invariant for violation in check(after)} == found


# --------------------------------------------------------------------------- the promotion of a standby that lagged


def promoted(folder: Path, *, again: float = 47.0) -> Book:
    """The standby lacks what its primary wrote after 20 s. A run began at 21 s, and is active until 36 s; nothing of it is known
    to the promoted one, which starts the occurrence of 10 s at 37 s, and another one `again`."""
    book = Book(folder)
    task = book.task()
    book.round(task, 0)
    book.push(task, 10, 10)
    book.advance(task, 10, 10)
    dump = book.copy()
    lost = book.start(task, 10, 21)
    book.put_away("database-0.jsonl", dump)
    book.event("failed_over", BACK, dumped=DUMPED, stopped=STOPPED)
    book.witness("beat", lost, 36, task=task)
    book.witness("beat", lost, 36, task=task, child=True)
    book.push(task, 10, 36.5)
    book.end(book.start(task, 10, 37), 38)
    book.edit(task, again, next_run=book.wall(again))
    book.push(task, again, again)
    book.advance(task, again, again)
    book.end(book.start(task, again, again), again + 1)
    return book


def found_after(book: Book) -> set[str]:
    before, after = worlds(book.history().folder)
    assert check(before) == []
    return {violation.invariant for violation in check(after)}


def test_a_run_whose_start_was_lost_is_of_the_world_that_ended(tmp_path: Path) -> None:
    assert found_after(promoted(tmp_path / "run")) == set()
    before, after = worlds(tmp_path / "run")
    assert (before.witnessed[3].first, after.witnessed[3].first) == pytest.approx((21.01, 37.01))


def test_a_lost_run_that_goes_on_in_a_process_is_not_taken_for_one_with_its_number(tmp_path: Path) -> None:
    book = Book(tmp_path / "run")
    tasks = [book.task(), book.task()]
    for task in tasks:
        book.round(task, 0)
        book.push(task, 10, 10)
        book.advance(task, 10, 10)
    dump = book.copy()
    lost = book.start(tasks[0], 10, 29)
    book.put_away("database-0.jsonl", dump)
    book.event("failed_over", BACK, dumped=DUMPED, stopped=STOPPED)
    run = book.start(tasks[1], 10, 36)
    book.end(run, 37)
    assert run == lost
    book.witness("beat", lost, 38, task=tasks[0])
    book.history()
    assert worlds(tmp_path / "run")[1].witnessed[run].last == pytest.approx(37, abs=0.01)


def test_a_promise_that_is_broken_after_the_promotion_is_found(tmp_path: Path) -> None:
    assert found_after(promoted(tmp_path / "run", again=40.0)) == {"S1"}


def test_a_job_that_was_pushed_before_the_promotion_may_start_after_it(tmp_path: Path) -> None:
    """Redis and the installation are the same: it is no job of another one."""
    book = promoted(tmp_path / "run")
    assert "S13" not in found_after(book)


@pytest.mark.parametrize(("lost", "found"), [(True, set()), (False, {"S14"})])
def test_a_run_is_lost_although_it_returned_if_the_standby_lacked_its_end(
    tmp_path: Path, lost: bool, found: set[str]
) -> None:
    book = Book(tmp_path / "run")
    task = book.task(every=100)
    book.process("worker-1#1", 0)
    book.push(task, 0, 0)
    book.advance(task, 0, 0)
    run = book.start(task, 0, 19, begins=False)
    book.begin(run, 19.01, process="worker-1#1")
    book.witness("end", run, 19.5)
    dump = book.copy()
    book.end(run, 21)
    book.put_away("database-0.jsonl", dump)
    book.event("failed_over", BACK, dumped=DUMPED, stopped=STOPPED, ends=[run] if lost else [])
    book.end(run, 71, "lost", witnessed=False)
    assert found_after(book) == found


@pytest.mark.parametrize(("outage", "found"), [((22, 27), set()), ((5, 10), {"L5", "S9"})])
def test_what_was_due_when_the_primary_was_killed_has_its_outcome(
    tmp_path: Path, outage: tuple[float, float], found: set[str]
) -> None:
    """A run of 19 s is over at 24.1 s; tickers that had no PostgreSQL give its worker 10 s more."""
    book = Book(tmp_path / "run")
    task = book.task(18.9)
    book.push(task, 18.9, 18.9)
    dump = book.copy()
    book.advance(task, 18.9, 18.9)
    book.start(task, 18.9, 19)
    book.fault("postgres_killed", *outage, "postgres_down")
    book.put_away("database-0.jsonl", dump)
    book.event("failed_over", BACK, dumped=18.85, stopped=STOPPED)
    book.history()
    assert {violation.invariant for violation in check(worlds(tmp_path / "run")[0])} == found


def test_a_promotion_gives_back_no_hold(tmp_path: Path) -> None:
    book, task = lost_at_33(tmp_path / "run", "failed_over")
    book.change(task, 33, run_token=None, running_until=None)
    assert "S8" in found_after(book)
