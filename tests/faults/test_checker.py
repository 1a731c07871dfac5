"""The checker against histories by hand, where each promise is once kept and once broken. Here: whether the history is
whole, what the summary and the command say, S11 and S12. The other promises stand in test_checker_*.py.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.by_hand import Book, broken, judged
from tests.faults.checker import INVARIANTS, check, load, main, summarise
from tests.running import ROOT


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "run")


def test_a_history_of_good_runs_breaks_nothing(book: Book) -> None:
    book.rounds(book.task(), 0, 10, 20, 30)
    assert broken(book) == set()


@pytest.mark.parametrize("name", ["S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "H"])
def test_a_good_history_gives_each_check_something_to_judge(book: Book, name: str) -> None:
    book.rounds(book.task(), 0, 10)
    assert judged(book, name) > 0


# -------------------------------------------------------------------------------------- S11 harm, S12 secrets


def test_a_job_of_another_task_is_found(book: Book) -> None:
    book.end(book.start(book.task(), None, 0, job_id="t99-1790000000000000"), 1)
    assert broken(book) == {"S11"}


def test_a_record_of_a_job_that_was_planned_belongs_to_its_parent(book: Book) -> None:
    task = book.task()
    run = book.plan(task, 0)
    book.close(run, 1, "succeeded")
    book.end(book.start(task, None, 2, job_id=f"r{run}", parent_id=run), 3)
    assert broken(book) == set()


def test_a_healthy_task_that_starves_beside_poison_is_found(tmp_path: Path) -> None:
    book = Book(tmp_path / "run", poison=[2])
    book.task(every=2)
    book.task(every=2)
    book.calm(0, 60)
    assert broken(book) >= {"S11", "L1", "L2"}
    assert {violation.task for violation in check(book.history())} == {1}


@pytest.mark.parametrize("secret", ["pa ss", "pa%20ss"])
def test_a_secret_in_a_log_is_found_in_each_of_its_forms(tmp_path: Path, secret: str) -> None:
    book = Book(tmp_path / "run", secrets=["pa ss"])
    book.line("worker-1.log", "ready")
    book.line("worker-1.log", f"redis://:{secret}@host")
    violations = check(book.history())
    assert [str(violation) for violation in violations] == ["S12: secret 0 stands in worker-1.log, line 2"]


def test_a_secret_in_a_description_or_a_traceback_is_found(tmp_path: Path) -> None:
    book = Book(tmp_path / "run", secrets=["pass"])
    task = book.task()
    book.push(task, 0, 0, description="poll(password='pass')")
    book.advance(task, 0, 0)
    book.end(book.start(task, 0, 0), 1, "failed", traceback="in pass")
    assert [violation.invariant for violation in check(book.history())] == ["S12", "S12"]


def test_logs_without_secrets_are_judged_and_fine(tmp_path: Path) -> None:
    book = Book(tmp_path / "run", secrets=["pass"])
    book.line("ticker-1.log", "tick")
    assert judged(book, "S12") == 1
    assert broken(book) == set()


# ------------------------------------------------------------------------------------------ H, and the whole of it


def test_a_torn_last_line_is_passed_over(book: Book) -> None:
    book.round(book.task(), 0)
    folder = book.history().folder
    with (folder / "witness" / "1.jsonl").open("a") as file:
        file.write('{"at": 3, "eve')
    history = load(folder)
    assert check(history) == []
    assert summarise(history).torn == 1


def test_a_torn_line_in_the_middle_is_a_hole(book: Book) -> None:
    book.line("events.jsonl", '{"at": 3, "eve')
    assert broken(book) == {"H"}


def test_a_run_that_no_record_knows_is_a_hole(book: Book) -> None:
    book.witness("beat", 77, 1.0, task=5)
    assert broken(book) == {"H"}


def test_a_harness_that_did_not_come_to_its_end_is_a_hole(book: Book) -> None:
    book.never_ends()
    assert broken(book) == {"H"}


def test_a_trail_that_misses_a_change_is_a_hole(book: Book) -> None:
    book.round(book.task(), 0)
    path = book.history().folder / "database.jsonl"
    kept = [line for line in path.read_text().splitlines() if '"op": "U"' not in line or '"runs"' not in line]
    path.write_text("\n".join(kept) + "\n")
    assert "H" in {violation.invariant for violation in check(load(path.parent))}


def test_a_folder_without_a_setup_is_no_history(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="setup"):
        load(tmp_path)


def test_the_summary_counts_for_people(book: Book) -> None:
    task = book.task()
    book.rounds(task, 0, 10)
    book.fault("worker_killed", 12)
    book.push(task, 20, 20, "OOM command not allowed")
    book.drop(task, 10, 21, "duplicate")
    summary = summarise(book.history())
    assert (summary.runs, summary.faults, summary.drops) == (2, {"worker_killed": 1}, {"duplicate": 1})
    assert summary.pushes == {"stored": 2, "error OOM": 1}
    assert summary.spacing == pytest.approx(0.5)
    assert summary.after_box == pytest.approx(-4.911)
    assert "S10" in str(summary) and "NOTHING JUDGED" in str(summary)


def test_every_promise_has_a_sentence_and_a_check() -> None:
    assert list(INVARIANTS) == [f"S{n}" for n in range(1, 17)] + [f"L{n}" for n in range(1, 9)] + ["H"]
    assert all(sentence and check.__name__ for sentence, check in INVARIANTS.values())


@pytest.mark.slow
def test_the_command_prints_violations_and_fails(book: Book) -> None:
    book.rounds(book.task(), 0, 5)
    command = [sys.executable, "-m", "tests.faults.checker", str(book.history().folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    assert "VIOLATION S1: task 1" in done.stdout


def test_the_command_is_content_with_a_good_history(book: Book, capsys: pytest.CaptureFixture[str]) -> None:
    book.rounds(book.task(), 0, 10)
    assert main([str(book.history().folder)]) == 0
    assert capsys.readouterr().out.endswith("0 violations\n")


def test_the_pairs_of_clocks_place_the_rows_even_if_one_was_read_late(book: Book) -> None:
    task = book.task()
    for at in range(1, 9):
        book.clocks(at)
    book.event("clocks", 9, wall=book.wall(9 + 30))  # PostgreSQL was frozen for 30 s
    for at in range(10, 20):
        book.clocks(at)
    book.round(task, 9)
    history = book.history()
    assert history.tasks[task].versions[-1].at == pytest.approx(9.1)
    assert json.dumps(history.seconds(9.1)) == "9.1"
