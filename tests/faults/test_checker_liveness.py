"""The checker's L1 to L3 against histories by hand: what is promised in calms, and only there."""

from pathlib import Path

import pytest

from tests.faults.by_hand import Book, broken, excused, judged
from tests.faults.checker import check


@pytest.fixture
def book(tmp_path: Path) -> Book:
    """D = 1 s, Q = 2 s, restart = 3 s."""
    return Book(tmp_path / "run")


def seconds(first: int, last: int, step: int) -> list[float]:
    return [float(at) for at in range(first, last, step)]


# ----------------------------------------------------------------------------------------- L1 pushed in time


def pushed_late(book: Book, due: float, at: float) -> int:
    """A task whose first push comes at `at`, and that runs every 20 s from then on."""
    task = book.task(due, every=20)
    book.push(task, due, at)
    book.advance(task, due, at)
    book.end(book.start(task, due, at), at + 0.1)
    return task


@pytest.mark.parametrize(("late", "found"), [(1.9, set()), (2.2, {"L1"})])
def test_a_due_task_is_pushed_within_a_tick_and_a_second(book: Book, late: float, found: set[str]) -> None:
    book.calm(0, 20)
    pushed_late(book, 10, 10 + late)
    assert broken(book) == found
    assert judged(book, "L1") > 0


def test_outside_of_calms_nothing_need_be_pushed(book: Book) -> None:
    book.calm(30, 31)
    pushed_late(book, 0, 20)
    assert broken(book) == set()
    assert judged(book, "L1") == 0


def test_what_became_due_before_the_calm_counts_from_three_seconds_into_it(book: Book) -> None:
    book.calm(10, 18)
    pushed_late(book, 0, 14.9)  # 10 + D + 2 s, and D + 1 s more
    assert broken(book) == set()


def test_a_task_that_nobody_ever_pushes_is_found(book: Book) -> None:
    book.task(5, every=60)
    book.calm(0, 20)
    violations = check(book.history())
    assert {violation.invariant for violation in violations} == {"L1"}
    assert "due since 5.0 s, it was not pushed for 15.000 s of a calm; the limit is D + 1 = 2 s" in str(violations[0])


@pytest.mark.parametrize("column", [{"enabled": False}, {"paused_by": "someone"}, {"owner_active": False}])
def test_a_task_that_may_not_run_need_not_be_pushed(book: Book, column: dict[str, object]) -> None:
    book.task(5, every=20, **column)
    book.calm(0, 60)
    assert broken(book) == set()


@pytest.mark.parametrize(
    ("until", "late", "found"), [(30, 22, set()), (30, 24, {"L1"}), (9, 4, {"L1"}), (None, 4, {"L1"})]
)
def test_a_task_with_which_a_process_died_waits_for_its_turn_and_no_longer(
    book: Book, until: float | None, late: float, found: set[str]
) -> None:
    """Two take turns, with boxes of less than a second. So the turn comes within 20 s, D and Q."""
    book.calm(0, 60)
    for _ in range(2):
        task = book.task(10, every=60, box_ms=500, grace_ms=100)
        book.change(task, 8, alone_until=book.wall(until) if until else None)
    book.push(task, 10, 10 + late)
    book.advance(task, 10, 10 + late)
    book.end(book.start(task, 10, 10 + late), 10.1 + late)
    book.change(task - 1, 10.5, enabled=False)
    assert broken(book) == found


def test_a_task_whose_push_failed_may_wait_as_long_as_its_row_says(book: Book) -> None:
    task = book.task(5, every=20)
    book.push(task, 5, 5, "WRONGTYPE")
    book.change(task, 5, push_errors=1, push_after=book.wall(35))
    book.calm(0, 36)
    assert broken(book) == set()


def test_a_push_whose_commit_failed_counts(book: Book) -> None:
    task = book.task(10, every=20)
    book.push(task, 10, 10.5)
    book.push(task, 10, 14, "held")
    book.advance(task, 10, 14)
    book.end(book.start(task, 10, 14), 14.1)
    book.calm(0, 20)
    assert broken(book) == set()


def test_poison_need_not_be_pushed(tmp_path: Path) -> None:
    book = Book(tmp_path / "run", poison=[1])
    book.task(0, every=2)
    book.calm(0, 60)
    assert broken(book) == set()


# ---------------------------------------------------------------------------------------- L2 starts often


def test_starts_every_interval_are_often_enough(book: Book) -> None:
    book.rounds(book.task(every=5), *seconds(0, 60, 5))
    book.calm(0, 60)
    assert broken(book) == set()
    assert judged(book, "L2") > 10


def missed(book: Book) -> int:
    """A task of 5 s whose occurrence of second 20 is lost without a word: 8 s are allowed between two starts."""
    task = book.task(every=5)
    book.rounds(task, *seconds(0, 20, 5))
    book.push(task, 20, 20)
    book.advance(task, 20, 20)
    return task


def test_a_gap_of_two_intervals_is_found(book: Book) -> None:
    task = missed(book)
    book.change(task, 21, waiting=[])
    book.rounds(task, *seconds(25, 60, 5))
    book.calm(0, 60)
    sentences = [str(violation) for violation in check(book.history()) if violation.invariant == "L2"]
    assert sentences == [
        "L2: task 1: no start from 15.0 s to 25.0 s, 10.000 s of a calm; the limit is I + D + Q = 8 s",
    ]


@pytest.mark.parametrize(("most", "found"), [(20_000, set()), (10_000, {"L2"})])
def test_an_elastic_task_starts_within_its_upper_bound(book: Book, most: int, found: set[str]) -> None:
    task = book.task(every=5, every_most_ms=most)
    book.rounds(task, *seconds(0, 20, 5))
    book.change(task, 16, pace_ms=most, next_run=book.wall(36))
    book.rounds(task, *seconds(36, 60, 5))
    book.calm(0, 60)
    assert broken(book) == found


@pytest.mark.parametrize("reason", ["too_early", "paused", "still_running", "clock"])
def test_a_drop_by_a_rule_of_the_guard_excuses_a_gap(book: Book, reason: str) -> None:
    task = missed(book)
    book.drop(task, 20, 21, reason)
    book.rounds(task, *seconds(25, 60, 5))
    book.calm(0, 60)
    assert broken(book) == set()
    assert excused(book, "L2") == [f"dropped {reason}"]


@pytest.mark.parametrize("reason", ["expired", "unknown_function"])
def test_another_drop_does_not(book: Book, reason: str) -> None:
    task = missed(book)
    book.drop(task, 20, 21, reason)
    book.rounds(task, *seconds(25, 60, 5))
    book.calm(0, 60)
    assert broken(book) == {"L2"}


@pytest.mark.parametrize(("spare", "is_excused"), [(0.05, True), (0.2, False)])
def test_a_machine_that_had_nothing_left_excuses_a_gap(book: Book, spare: float, is_excused: bool) -> None:
    task = missed(book)
    book.change(task, 21, waiting=[])
    book.rounds(task, *seconds(25, 60, 5))
    book.calm(0, 60)
    for at in seconds(14, 27, 1):
        book.event("clocks", at, wall=book.wall(at), spare=spare)
    assert ("L2" not in broken(book)) is is_excused
    assert excused(book, "L2") == (["under 10% of the processors were left"] if is_excused else [])


def test_a_push_that_failed_excuses_a_gap(book: Book) -> None:
    task = book.task(every=5)
    book.rounds(task, *seconds(0, 20, 5))
    book.push(task, 20, 20, "WRONGTYPE")
    book.change(task, 20, push_errors=1, push_after=book.wall(25))
    book.push(task, 20, 25)
    book.change(task, 25, push_errors=0, push_after=None, next_run=book.wall(30), waiting=[book.wall(20)])
    book.end(book.start(task, 20, 25), 25.1)
    book.rounds(task, *seconds(30, 60, 5))
    book.calm(0, 60)
    assert broken(book) == set()
    assert excused(book, "L2") == ["push failed"]


def test_an_edit_begins_a_new_count(book: Book) -> None:
    task = book.task(every=5)
    book.rounds(task, *seconds(0, 20, 5))
    book.edit(task, 18, enabled=False)
    book.edit(task, 28, enabled=True)
    book.round(task, 30)
    book.calm(0, 31)
    assert broken(book) == set()


def test_a_first_time_in_the_future_is_waited_for(book: Book) -> None:
    task = book.task(0, every=5, next_run=book.wall(40))
    book.round(task, 40)
    book.calm(0, 44)
    assert broken(book) == set()


def test_a_gap_in_a_storm_is_not_judged(book: Book) -> None:
    task = book.task(every=5)
    book.rounds(task, *seconds(0, 20, 5))
    book.calm(0, 18)
    book.round(task, 40)
    book.calm(38, 44)
    assert broken(book) == set()


# --------------------------------------------------------------------------------------------- L3 keeps its rate

LATE = (20.0, 60.0, 100.0, 140.0)


def steady(tmp_path: Path, *misses: float) -> Book:
    """A steady task of 2 s over a calm of 200 s, which leaves out some starts."""
    book = Book(tmp_path / "run", steady=[1], queue_delay=4.0)
    task = book.task(every=2, tolerance_ms=1000, box_ms=800)
    for at in seconds(0, 200, 2):
        if at not in misses:
            book.change(task, at, next_run=book.wall(at))
            book.round(task, at)
    book.calm(0, 200)
    return book


def test_a_steady_task_that_misses_one_start_of_a_hundred_keeps_its_rate(tmp_path: Path) -> None:
    book = steady(tmp_path, 100.0)
    assert "L3" not in broken(book)
    assert judged(book, "L3") == 1


def test_a_steady_task_that_misses_three_does_not(tmp_path: Path) -> None:
    assert "L3" in broken(steady(tmp_path, 50.0, 100.0, 150.0))


def test_a_drop_behind_a_start_that_waited_too_long_for_a_worker_is_no_start_that_was_missed(tmp_path: Path) -> None:
    assert "L3" not in broken(late_starts(tmp_path, 1.5))


@pytest.mark.slow
def test_a_drop_behind_a_start_in_time_is_one(tmp_path: Path) -> None:
    assert "L3" in broken(late_starts(tmp_path, 0.5))


def late_starts(tmp_path: Path, seconds_late: float) -> Book:
    """A steady task as above, which starts so late four times, and whose next job is dropped as too early each time."""
    book = steady(tmp_path, *(at + skipped for at in LATE for skipped in (0.0, 2.0)))
    for at in LATE:
        book.change(1, at, next_run=book.wall(at))
        book.push(1, at, at)
        book.advance(1, at, at)
        book.end(book.start(1, at, at + seconds_late), at + seconds_late + 0.1)
        book.push(1, at + 2, at + 2)
        book.advance(1, at + 2, at + 2)
        book.drop(1, at + 2, at + 2.01, "too_early")
    return book


def test_a_short_calm_gives_no_rate(tmp_path: Path) -> None:
    book = Book(tmp_path / "run", steady=[1])
    book.rounds(book.task(every=2, tolerance_ms=1000, box_ms=800), *seconds(0, 90, 2))
    book.calm(0, 90)
    assert judged(book, "L3") == 0
