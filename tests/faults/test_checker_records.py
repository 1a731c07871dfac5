"""The checker's S9 and S13 against histories by hand: one record for each occurrence, which is true, and nothing that a row
did not ask for.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.by_hand import Book, broken, excused
from tests.faults.checker import check


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "run")


def pushed(book: Book, at: float = 0) -> int:
    """A new task whose first occurrence was pushed, and committed."""
    task = book.task(at)
    book.push(task, at, at)
    book.advance(task, at, at)
    return task


# ------------------------------------------------------------------------------------------- S9 exactly one record


def test_a_job_without_a_record_is_found(book: Book) -> None:
    book.change(pushed(book), 5, waiting=[])
    violations = check(book.history())
    assert [violation.invariant for violation in violations] == ["S9"]
    assert "was stored at 0.0 s, and there is no record of it" in violations[0].sentence


@pytest.mark.parametrize(("reason", "outcome"), [("too_early", "dropped"), ("its job ended before its start", "lost")])
def test_a_drop_or_a_loss_is_a_record(book: Book, reason: str, outcome: str) -> None:
    book.drop(pushed(book), 0, 1, reason, outcome)
    assert broken(book) == set()


def test_a_job_that_still_waits_at_the_end_is_not_lost(book: Book) -> None:
    pushed(book)
    assert broken(book) == set()
    assert excused(book, "S9") == ["waiting at the end"]


def test_a_push_that_the_end_found_uncommitted_is_still_due(book: Book) -> None:
    book.push(book.task(), 0, 0)
    assert "S9" not in broken(book)
    assert excused(book, "S9") == ["due at the end"]


@pytest.mark.parametrize("reason", ["too_early", "duplicate"])
def test_a_second_record_is_found_whatever_it_says(book: Book, reason: str) -> None:
    task = book.task()
    book.round(task, 0)
    book.drop(task, 0, 1, reason)
    assert broken(book) == {"S9"}


def test_a_job_that_was_stored_twice_has_one_record_too(book: Book) -> None:
    task = book.task()
    book.push(task, 0, 0)
    book.drop(task, 0, 0.5, "too_early")
    book.push(task, 0, 0.6)
    book.advance(task, 0, 0.6)
    book.drop(task, 0, 1, "too_early")
    assert broken(book) == {"S9"}


def test_each_occurrence_of_a_batch_needs_its_record(book: Book) -> None:
    one, other = book.task(), book.task()
    for task in (one, other):
        book.push(task, 0, 0, prefix="a1b2c3d4-", carrier="a1b2c3d4-b" + 24 * "0")
        book.advance(task, 0, 0)
    book.end(book.start(one, 0, 1, job_id="a1b2c3d4-b" + 24 * "0"), 2)
    book.change(other, 3, waiting=[])
    violations = check(book.history())
    assert [(violation.invariant, violation.task) for violation in violations] == [("S9", other)]


def test_a_wipe_excuses_no_job_of_a_task_that_is_there(book: Book) -> None:
    task = pushed(book)
    book.wipe(2)
    book.change(task, 5, waiting=[])
    assert broken(book) == {"S9"}


def test_a_push_that_was_never_committed_may_be_wiped(book: Book) -> None:
    task = book.task()
    book.push(task, 0, 0)
    book.wipe(1)
    book.edit(task, 2, next_run=book.wall(30))
    assert broken(book) == set()
    assert excused(book, "S9") == ["never committed, lost in a fault"]


def test_a_push_that_was_never_committed_may_be_refused_as_stale(book: Book) -> None:
    task = book.task()
    book.push(task, 0, 0, prefix="a1b2c3d4-")
    book.edit(task, 2, next_run=book.wall(30))
    job = f"a1b2c3d4-t{task}-{book.occurrence(0)}"
    book.note("stale", 3, words=f"job {job} reached worker x, and task {task} does not wait for it")
    assert broken(book) == set()
    assert excused(book, "S9") == ["never committed, refused as stale"]


def test_a_push_that_was_never_committed_needs_a_reason_for_what_became_of_it(book: Book) -> None:
    task = book.task()
    book.push(task, 0, 0)
    book.edit(task, 2, next_run=book.wall(30))
    book.note("stale", 3, words="job t77-1 reached worker x, and task 77 does not wait for it")
    assert broken(book) == {"S9"}


def test_a_push_that_was_committed_is_not_excused_by_a_stale_event(book: Book) -> None:
    task = pushed(book)
    book.change(task, 2, waiting=[])
    book.note(
        "stale", 3, words=f"job t{task}-{book.occurrence(0)} reached worker x, and task {task} does not wait for it"
    )
    assert broken(book) == {"S9"}


# ------------------------------------------------------------------------------------------------- S9 deleted tasks


def test_a_deletion_records_what_waits(book: Book) -> None:
    book.delete(pushed(book), 1)
    assert broken(book) == set()
    assert excused(book, "S9") == []


@pytest.mark.parametrize(
    "do", [lambda book: book.wipe(2), lambda book: book.fault("worker_killed", 2), lambda book: book.calm(0.5, 3)]
)
def test_a_deletion_that_leaves_no_record_is_found_whatever_came_of_the_job(
    book: Book, do: Callable[[Book], None]
) -> None:
    book.delete(pushed(book), 1, recorded=False)
    do(book)
    assert broken(book) == {"S9"}


def test_a_record_that_comes_after_the_deletion_is_not_of_its_transaction(book: Book) -> None:
    task = pushed(book)
    book.delete(task, 1, recorded=False)
    book.drop(task, 0, 2, "gone")
    assert broken(book) == {"S9"}


def test_a_push_that_a_deletion_found_uncommitted_needs_no_record(book: Book) -> None:
    task = book.task()
    book.push(task, 0, 0)
    book.delete(task, 1)
    assert broken(book) == set()
    assert excused(book, "S9") == ["task deleted before the commit of its push"]


# ------------------------------------------------------------------------------------- S9 duplicates, and outcomes


def test_a_duplicate_of_what_no_newer_start_has_overtaken_is_found(book: Book) -> None:
    book.drop(pushed(book), 0, 1, "duplicate")
    assert broken(book) == {"S9"}


def test_an_older_occurrence_that_comes_after_a_newer_one_is_a_duplicate(book: Book) -> None:
    task = pushed(book)
    book.round(task, 10)
    book.drop(task, 0, 11, "duplicate")
    assert broken(book) == set()


def test_an_outcome_that_is_written_twice_is_found(book: Book) -> None:
    run = book.round(book.task(), 0)
    book.close(run, 5, "lost")
    assert broken(book) == {"S9"}


def lost_for_a_while(book: Book) -> int:
    """A run that was declared lost, and whose end came late."""
    task = pushed(book)
    run = book.start(task, 0, 0)
    book.end(run, 6, "lost", witnessed=False)
    book.close(run, 8, "succeeded")
    return run


def test_a_late_end_may_make_good_what_was_lost_and_says_so(book: Book) -> None:
    run = lost_for_a_while(book)
    book.note("end_recorded_late", 8, 1, run)
    assert "S9" not in broken(book)


def test_a_lost_run_that_becomes_another_without_an_event_is_found(book: Book) -> None:
    lost_for_a_while(book)
    assert "S9" in broken(book)


def test_an_event_of_a_late_end_that_changed_nothing_is_found(book: Book) -> None:
    run = book.round(book.task(), 0)
    book.note("end_recorded_late", 8, 1, run)
    assert broken(book) == {"S9"}


def test_a_planned_run_that_is_forgotten_is_found(book: Book) -> None:
    book.plan(book.task(), 0)
    assert broken(book) == {"S9"}


def test_a_planned_run_that_is_dropped_is_accounted_for(book: Book) -> None:
    book.close(book.plan(book.task(), 0), 1, "dropped", reason="paused")
    assert broken(book) == set()


# ------------------------------------------------------------------------------------- S9 what is said about Redis


def expired(book: Book, at: float = 20, *, carrier: str | None = None) -> tuple[int, str]:
    """Its job is in the queue, and a sweep says that it is not."""
    task = book.task()
    job = carrier or f"t{task}-{book.occurrence(0)}"
    book.push(task, 0, 0, carrier=job)
    book.advance(task, 0, 0)
    book.drop(task, 0, at, "expired", by_sweep=True)
    return task, job


@pytest.mark.parametrize("carrier", [None, "b" + 24 * "0"])
def test_a_record_that_its_job_was_gone_is_false_where_redis_held_it(book: Book, carrier: str | None) -> None:
    expired(book, carrier=carrier)
    violations = check(book.history())
    assert [violation.invariant for violation in violations] == ["S9"]
    assert "its job was gone, and Redis held it" in violations[0].sentence


def test_a_record_that_its_job_died_is_false_where_no_worker_took_it(book: Book) -> None:
    book.drop(pushed(book), 0, 20, "its job ended before its start", "lost", by_sweep=True)
    assert broken(book) == {"S9"}


@pytest.mark.parametrize(
    "do",
    [
        lambda book, job: book.take(job, 5),
        lambda book, job: book.take(None, 5),
        lambda book, job: book.wipe(5),
        lambda book, job: book.fault("redis_evicts", 4, 6, "wipe"),
    ],
)
def test_a_job_that_may_be_gone_is_not_known_to_be_held(book: Book, do: Callable[[Book, str], None]) -> None:
    _, job = expired(book)
    do(book, job)
    assert broken(book) == set()


def test_a_job_that_another_worker_took_says_nothing(book: Book) -> None:
    expired(book)
    book.take("t77-1", 5)
    assert broken(book) == {"S9"}


@pytest.mark.parametrize("carrier", [None, "b" + 24 * "0"])
def test_a_record_that_redis_lost_a_job_is_false_where_a_worker_gave_it_back(book: Book, carrier: str | None) -> None:
    book.process("worker-1#1", -5)
    _, job = expired(book, carrier=carrier)
    book.take(job, 5)
    violations = check(book.history())
    assert [violation.invariant for violation in violations] == ["S9"]
    assert "its job was gone, and a worker had taken it, which lived on and gave it back" in violations[0].sentence


@pytest.mark.parametrize(
    "do",
    [
        lambda book: book.process("worker-2#1", -5, 8),
        lambda book: book.wipe(8),
        lambda book: book.fault("worker_killed", 8, 8),
        lambda book: book.close(book.start(book.task(4), 4, 4), 8, "interrupted"),
    ],
)
def test_a_job_that_may_have_died_with_its_worker_was_not_certainly_given_back(
    book: Book, do: Callable[[Book], object]
) -> None:
    book.process("worker-1#1", -5)
    _, job = expired(book)
    book.take(job, 5)
    do(book)
    assert not [one for one in check(book.history()) if "its job was gone" in one.sentence]


def test_a_drop_by_age_says_nothing_about_redis(book: Book) -> None:
    expired(book, at=700)
    assert broken(book) == set()


def test_a_worker_that_drops_an_old_job_had_it_in_its_hands(book: Book) -> None:
    book.drop(pushed(book), 0, 20, "expired")
    assert broken(book) == set()


# ---------------------------------------------------------------------------------------------------- S9 the events


def test_a_redelivery_is_an_event_of_its_record(book: Book) -> None:
    run = book.round(book.task(), 0)
    book.note("redelivered", 5, 1, run)
    assert broken(book) == set()


@pytest.mark.parametrize(("task", "run"), [(1, 77), (5, 2)])
def test_a_redelivery_of_what_is_no_record_of_the_task_is_found(book: Book, task: int, run: int) -> None:
    assert book.round(book.task(), 0) == 2
    book.note("redelivered", 5, task, run)
    assert broken(book) == {"S9"}


def test_a_redelivery_before_there_was_a_record_is_found(book: Book) -> None:
    task = book.task(5)
    book.note("redelivered", 1, task, book.round(task, 5))
    assert broken(book) == {"S9"}


def test_a_refusal_as_stale_of_what_is_waited_for_is_found(book: Book) -> None:
    task = pushed(book)
    book.note(
        "stale", 3, words=f"job t{task}-{book.occurrence(0)} reached worker x, and task {task} does not wait for it"
    )
    assert broken(book) == {"S9"}


def test_a_refusal_as_stale_in_the_history_of_a_task_is_found(book: Book) -> None:
    book.note("stale", 3, book.task())
    assert broken(book) == {"S9"}


# -------------------------------------------------------------------------------------------------------------- S13


def test_a_start_that_the_row_did_not_wait_for_is_found(book: Book) -> None:
    task = book.task(500)
    book.push(task, 0, 0)
    book.end(book.start(task, 0, 1), 2)
    assert broken(book) == {"S13"}


def test_a_start_of_what_is_due_needs_no_commit_of_its_push(book: Book) -> None:
    task = book.task()
    book.push(task, 0, 0)
    book.end(book.start(task, 0, 1), 2)
    assert "S13" not in broken(book)
