"""Tests the checker's S16, and S9 and S14 on groups, with histories written by hand."""

from pathlib import Path
from typing import Any

import pytest

from tests.faults.by_hand import EPOCH, Book, broken, judged
from tests.faults.checks.neighbours import UNTIL_IT_ENDED
from tests.faults.groups import LOOP, THREADS

WORKER = "worker-1#1"
LIMIT = "killed at its hard limit of 5.1 s"
AT_WORK = "its process ended while 2 runs were active in it: "
JOB = "bfeed"


@pytest.fixture
def book(tmp_path: Path) -> Book:
    book = Book(tmp_path / "run")
    book.process(WORKER, 0)
    return book


def starts(book: Book, at: float = 0.0, *, function: str = LOOP, pid: int = 50, deed: str = "", **columns: Any) -> int:
    """Starts a run of a new 10 s task (B + g 5.1 s) in process 50."""
    task = book.task(at, function=function, **columns)
    book.push(task, at, at, carrier=JOB)
    book.advance(task, at, at)
    run = book.start(task, at, at, begins=False, pid=pid, job_id=JOB)
    book.begin(run, at + 0.01, process=WORKER, pid=pid)
    if deed:
        book.witness("does", run, at + 0.02, deed=deed, pid=pid)
    return run


def ends(book: Book, run: int, at: float, outcome: str, reason: str = "", **columns: Any) -> None:
    """Ends a run. If the cause is unknown, its task runs alone next time."""
    book.end(run, at, outcome, witnessed=False, reason=reason, **columns)
    if reason.startswith("its process ended while"):
        book.change(run - 1, at, xid=book._xid, alone_until=book.wall(3600))


def die(book: Book, first: tuple[str, str], second: tuple[str, str], *, at: float, deeds: Any = ("", "")) -> None:
    """Adds two runs of a process, each with its outcome and its reason."""
    runs = [starts(book, deed=deed) for deed in deeds]
    for run, (outcome, reason) in zip(runs, (first, second), strict=True):
        ends(book, run, at, outcome, reason)


def told(run: int) -> str:
    return f"its process was killed because of task {run - 1}"


# ------------------------------------------------------------------------------------------------- who is killed


def test_whoever_reached_its_limit_is_killed_and_its_neighbour_is_interrupted(book: Book) -> None:
    guilty, other = starts(book, deed="swallows"), starts(book)
    ends(book, guilty, 5.2, "killed", LIMIT)
    ends(book, other, 5.2, "interrupted", told(guilty))
    assert broken(book) == set()
    assert judged(book, "S16") > 4


def test_a_neighbour_is_not_killed_as_well(book: Book) -> None:
    die(book, ("killed", LIMIT), ("killed", LIMIT), at=5.2, deeds=("swallows", "hangs"))
    assert broken(book) == {"S16"}


def test_whoever_is_killed_for_another_cause_had_no_neighbours(book: Book) -> None:
    die(book, ("killed", "died of SIGSEGV"), ("interrupted", AT_WORK + "died of SIGSEGV"), at=1, deeds=("crashes", ""))
    assert broken(book) == {"S16"}


UNANSWERED = "the answer to its start never came, so its function did not run"


@pytest.mark.parametrize(("active", "found"), [(False, set()), (True, {"S9"})])
def test_what_did_not_run_is_no_neighbour_of_what_was_killed(book: Book, active: bool, found: set[str]) -> None:
    """One process asked for both starts, and died when it had noted the answer to the first."""
    first = starts(book)
    task = book.task(0, function=LOOP)
    book.push(task, 0, 0, carrier=JOB)
    book.advance(task, 0, 0)
    other = book.start(task, 0, 0, begins=False, pid=50, job_id=JOB)
    if active:
        book.begin(other, 0.01, process=WORKER, pid=50)
    book.signal(WORKER, 0.05, 9, pid=50)
    ends(book, first, 0.1, "killed", "killed by SIGKILL")
    ends(book, other, 0.1, "interrupted", UNANSWERED)
    assert broken(book) == found


def test_alone_in_its_process_it_is_killed_for_any_cause(book: Book) -> None:
    ends(book, starts(book), 1, "succeeded")
    ends(book, starts(book, 2, deed="crashes"), 3, "killed", "died of SIGSEGV")
    assert broken(book) == set()


@pytest.mark.parametrize(("fault", "found"), [("", {"S16"}), ("horse_frozen", set()), ("lost", set())])
def test_nobody_is_killed_for_what_its_neighbour_did_unless_all_stood_still_or_nobody_saw_it(
    book: Book, fault: str, found: set[str]
) -> None:
    if fault:
        book.fault(fault, 1, 5)
    die(book, ("killed", LIMIT), ("interrupted", AT_WORK + LIMIT), at=5.2, deeds=("", "blocks"))
    assert broken(book) == found


def test_a_run_that_went_on_until_the_end_of_its_box_may_be_killed(book: Book) -> None:
    guilty, other = starts(book), starts(book)
    book.witness("beat", guilty, 4.95, pid=50)
    ends(book, guilty, 5.2, "killed", LIMIT)
    ends(book, other, 5.2, "interrupted", told(guilty))
    assert broken(book) == set()


def test_a_thread_that_holds_the_lock_of_the_interpreter_is_seen_by_nobody(book: Book) -> None:
    guilty, other = starts(book, function=THREADS), starts(book, function=THREADS, deed="blocks")
    ends(book, guilty, 5.2, "killed", LIMIT)
    ends(book, other, 5.2, "interrupted", told(guilty))
    assert broken(book) == set()


@pytest.mark.parametrize(("at", "found"), [(5.2, set()), (3.0, {"S9"})])
def test_a_run_that_blocked_the_loop_is_killed_at_the_limit_of_a_neighbour(
    book: Book, at: float, found: set[str]
) -> None:
    other = starts(book)
    guilty = starts(book, 2, deed="blocks")
    ends(book, guilty, at, "killed", f"it blocked the event loop, and was {LIMIT}, the limit of task {other - 1}")
    ends(book, other, at, "interrupted", told(guilty))
    assert broken(book) == found


# ---------------------------------------------------------------------------------------------- who is interrupted


def test_a_run_that_is_alone_is_not_interrupted(book: Book) -> None:
    ends(book, starts(book), 1, "succeeded")
    ends(book, starts(book, 4, deed="crashes"), 5, "interrupted", "its process ended: died of SIGSEGV")
    assert broken(book) == {"S16"}


def test_more_runs_at_work_than_there_were_are_found(book: Book) -> None:
    reason = "its process ended while 3 runs were active in it: died of SIGSEGV"
    die(book, ("interrupted", reason), ("interrupted", reason), at=1, deeds=("crashes", ""))
    assert broken(book) == {"S16"}


def test_a_neighbour_that_lives_is_not_named_as_the_cause(book: Book) -> None:
    guilty, other, third = starts(book, deed="hangs"), starts(book), starts(book)
    ends(book, guilty, 5.2, "killed", LIMIT)
    ends(book, other, 5.2, "interrupted", told(third))
    ends(book, third, 5.2, "interrupted", told(guilty))
    assert broken(book) == {"S16"}


@pytest.mark.parametrize(
    ("reason", "deed", "found"),
    [
        ("died of SIGSEGV", "crashes", set()),
        ("died of SIGSEGV", "", {"S9"}),
        ("killed by SIGKILL", "kills", set()),
        ("killed by SIGKILL", "crashes", {"S9"}),
        ("exited with status 0", "vanishes", set()),
        ("exited with status 0", "swallows", {"S9"}),
        ("killed by SIGKILL, out of memory", "kills", {"S9"}),
        (LIMIT, "swallows", {"S9"}),
    ],
)
def test_what_ended_their_process_is_what_one_of_them_did(book: Book, reason: str, deed: str, found: set[str]) -> None:
    same = ("interrupted", AT_WORK + reason)
    die(book, same, same, at=1, deeds=("", deed))
    assert broken(book) == found


@pytest.mark.parametrize(("failures", "found"), [(0, set()), (1, {"S16"})])
def test_an_interrupted_run_is_no_failure(book: Book, failures: int, found: set[str]) -> None:
    first, second = starts(book, deed="crashes"), starts(book)
    reason = AT_WORK + "died of SIGSEGV"
    ends(book, first, 1, "interrupted", reason)
    ends(book, second, 1, "interrupted", reason)
    book.change(second - 1, 1, xid=book._xid, failures=failures)
    assert broken(book) == found


def test_a_worker_that_kills_its_process_when_it_is_told_to_stop_at_once_suspects_no_task(book: Book) -> None:
    first, second = starts(book), starts(book)
    for run in (first, second):
        book.end(
            run, 1, "interrupted", witnessed=False, reason=AT_WORK + "killed by its worker, which got a second signal"
        )
    assert broken(book) == set()


def test_a_task_that_was_interrupted_without_a_culprit_runs_alone_next_time(book: Book) -> None:
    first, second = starts(book, deed="crashes"), starts(book)
    ends(book, first, 1, "interrupted", AT_WORK + "died of SIGSEGV")
    book.end(second, 1, "interrupted", witnessed=False, reason=AT_WORK + "died of SIGSEGV")
    assert broken(book) == {"S16"}


@pytest.mark.parametrize(("retries", "found"), [(1, set()), (0, {"S16"})])
def test_an_interrupted_run_has_no_second_attempt_that_its_task_did_not_allow(
    book: Book, retries: int, found: set[str]
) -> None:
    first, second = starts(book, deed="crashes"), starts(book, retries=retries)
    for run in (first, second):
        ends(book, run, 1, "interrupted", AT_WORK + "died of SIGSEGV")
    again = book.start(second - 1, None, 3, kind="retry", attempt=2, parent_id=second, job_id="")
    book.end(again, 4)
    assert broken(book) == found


def test_a_repeatable_function_has_a_second_attempt_and_no_third(tmp_path: Path) -> None:
    for attempt, found in ((2, set[str]()), (3, {"S16"})):
        book = Book(tmp_path / str(attempt), repeatable=[LOOP])
        book.process(WORKER, 0)
        first, second = starts(book, deed="crashes"), starts(book)
        for run in (first, second):
            ends(book, run, 1, "interrupted", AT_WORK + "died of SIGSEGV", attempt=attempt - 1)
        again = book.start(second - 1, None, 3, kind="retry", attempt=attempt, parent_id=second, job_id="")
        book.end(again, 4)
        assert broken(book) == found


@pytest.mark.parametrize(("alone", "pid", "found"), [(True, 50, {"S16"}), (True, 51, set()), (False, 50, set())])
def test_a_task_whose_row_says_so_runs_alone(book: Book, alone: bool, pid: int, found: set[str]) -> None:
    task = book.task(2, function=LOOP, alone_until=book.wall(3600) if alone else None)
    other = starts(book, 4)
    book.push(task, 2, 4)
    book.advance(task, 2, 4)
    run = book.start(task, 2, 4.1, begins=False)
    book.begin(run, 4.2, process=WORKER, pid=pid)
    book.witness("beat", run, 4.5, pid=pid)
    book.witness("beat", other, 4.6, pid=50)
    for one in (run, other):
        ends(book, one, 5, "succeeded")
    assert broken(book) == found


SUSPECT, GUILTY = UNTIL_IT_ENDED + 3600, EPOCH + 3600


@pytest.mark.parametrize(
    ("one", "other", "became", "found"),
    [(SUSPECT, SUSPECT, SUSPECT, set()), (SUSPECT, SUSPECT, None, set()), (SUSPECT, SUSPECT, GUILTY, set()),
     (SUSPECT, None, None, {"S16"}), (SUSPECT, GUILTY, GUILTY, {"S16"}), (GUILTY, GUILTY, GUILTY, {"S16"})],
)  # fmt: skip
def test_suspects_may_run_with_each_other_and_with_nobody_else(
    book: Book, one: float, other: float | None, became: float | None, found: set[str]
) -> None:
    """If an earlier job clears one between its push and its start, or finds it guilty, it still runs with the others."""
    tasks = [book.task(2, function=LOOP, alone_until=until) for until in (one, other)]
    for task in tasks:
        book.push(task, 2, 4, carrier=JOB)
        book.advance(task, 2, 4)
    if became != other:
        book.change(tasks[1], 4.05, alone_until=became)
    runs = [book.start(task, 2, 4.1, begins=False, pid=50, job_id=JOB) for task in tasks]
    for run in runs:
        book.begin(run, 4.2, process=WORKER, pid=50)
    for run in runs:
        book.witness("beat", run, 4.5, pid=50)
        ends(book, run, 5, "succeeded")
    assert broken(book) == found


@pytest.mark.parametrize(("last", "found"), [(3.2, set()), (4.5, {"S14"})])
def test_a_run_that_returned_long_before_its_process_died_is_recorded_so(
    book: Book, last: float, found: set[str]
) -> None:
    """If it returned only a moment before, the order is unknown."""
    first, second = starts(book, deed="hangs"), starts(book)
    book.witness("end", second, 3, pid=50)
    book.witness("beat", first, last, pid=50)
    book.signal(WORKER, 4.6, 9, pid=50)
    for run in (first, second):
        ends(book, run, 4.7, "interrupted", AT_WORK + "killed by SIGKILL")
    assert broken(book) == found


@pytest.mark.parametrize(("last", "found"), [(0.9, set()), (1.5, {"S16"})])
def test_no_run_is_active_after_its_end_was_recorded(book: Book, last: float, found: set[str]) -> None:
    run = starts(book)
    ends(book, run, 1, "failed", "RuntimeError: can't start new thread")
    book.witness("beat", run, last, pid=50)
    assert broken(book) == found


def test_what_did_not_run_was_not_active(book: Book) -> None:
    ends(book, starts(book), 1, "lost", UNANSWERED)
    assert broken(book) == {"S9"}


# ------------------------------------------------------------------------------------------------ who had not begun


def die_before_a_third_begins(book: Book) -> int:
    """At 11 s, in a calm. The task of the third."""
    book.calm(0, 40)
    task = book.task(10, every=100)
    book.push(task, 10, 10, carrier=JOB)
    book.advance(task, 10, 10)
    first, second = starts(book, 10, every=100, deed="crashes"), starts(book, 10, every=100)
    for run in (first, second):
        ends(book, run, 11, "interrupted", AT_WORK + "died of SIGSEGV")
    return task


@pytest.mark.parametrize(("again", "found"), [(13.0, set()), (24.0, {"S16"})])
def test_what_had_not_begun_when_its_process_died_is_pushed_again(book: Book, again: float, found: set[str]) -> None:
    task = die_before_a_third_begins(book)
    book.push(task, 10, again)
    book.end(book.start(task, 10, again), again + 0.1)
    assert broken(book) == found


def test_what_is_never_pushed_again_is_found(book: Book) -> None:
    die_before_a_third_begins(book)
    assert broken(book) == {"S16"}


def test_what_was_disabled_meanwhile_need_not_be_pushed(book: Book) -> None:
    book.edit(die_before_a_third_begins(book), 12, enabled=False)
    assert broken(book) == set()


@pytest.mark.parametrize(("cleared", "found"), [(False, {"S16"}), (True, set())])
def test_a_task_that_need_not_run_alone_when_it_was_pushed_may_have_neighbours(
    book: Book, cleared: bool, found: set[str]
) -> None:
    until, due = book.wall(3600), book.wall(10)
    one, other = (book.task(0, function=LOOP, next_run=due, alone_until=alone) for alone in (until, None))
    if cleared:
        book.change(one, 9.8, alone_until=None)
    for task in (one, other):
        book.push(task, 10, 10, carrier=JOB)
        book.advance(task, 10, 10)
    book.change(one, 10.5, alone_until=until)
    runs = [book.start(task, 10, 11, begins=False, pid=50, job_id=JOB) for task in (one, other)]
    for run in runs:
        book.begin(run, 11.01, process=WORKER, pid=50)
    for run in runs:
        book.witness("beat", run, 11.5, pid=50)
    for run in runs:
        ends(book, run, 12, "succeeded")
    assert broken(book) == found
