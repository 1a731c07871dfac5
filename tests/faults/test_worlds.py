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


@pytest.mark.parametrize(("at", "found"), [(33.0, set()), (40.0, {"S8"})])
def test_adopt_alone_gives_back_the_holds_of_runs_that_were_in_the_copy(
    tmp_path: Path, at: float, found: set[str]
) -> None:
    book = Book(tmp_path / "run")
    task = book.task()
    book.push(task, 0, 0)
    book.advance(task, 0, 0)
    run = book.start(task, 0, 19)
    dump = book.copy()
    book.end(run, 21)
    book.put_away("database-0.jsonl", dump)
    book.event("restored", BACK, dumped=DUMPED, stopped=STOPPED)
    book.close(run, 33, "lost")
    book.change(task, 33, last_run_id=run)
    book.change(task, at, run_token=None, running_until=None)
    book.history()
    before, after = worlds(tmp_path / "run")
    assert check(before) == []
    assert {violation.invariant for violation in check(after)} == found
