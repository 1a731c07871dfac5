"""Work in pieces: what `generate` yields is recorded at once, each piece is a run of its own, and their run sums them up."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

import ticker
from tests.doubles import INSTALLATION
from tests.factories import let_time_pass
from tests.running import work
from tests.sentences import sentence
from ticker import owners
from ticker.engine import jobs
from ticker.engine.tick import tick
from ticker.model import PlannedRun, RunKind

pytestmark = pytest.mark.slow

SECOND = timedelta(seconds=1)


@pytest.fixture
def of_channels(db):
    """A table of owners, whose tasks go with them."""
    db.execute("CREATE TABLE mail_channels (id int PRIMARY KEY)")
    for statement in owners.triggers("mail_channels"):
        db.execute(statement)
    db.execute("INSERT INTO mail_channels VALUES (1), (2)")


def in_pieces(db, *pieces, function="pieces", **options):
    """A task whose run makes these."""
    return ticker.register(db, function, every="10m", kwargs={"pieces": list(pieces)}, **options)


def rounds(store, queue, count=2):
    """As a ticker and a worker take turns: the first round generates, the second one processes."""
    for _ in range(count):
        tick(store, queue)
        work()
    tick(store, queue)


def parent(db):
    return next(run for run in ticker.list_runs(db) if run.pieces is not None)


def made(db):
    """(piece, attempt, outcome or state, reason) of all pieces, as they were made."""
    runs = [run for run in reversed(ticker.list_runs(db)) if run.kind is RunKind.PIECE]
    return [(run.item, run.attempt, str(run.outcome or run.state), run.reason) for run in runs]


def ended(run):
    return str(run.outcome or run.state), run.reason


def test_each_piece_has_a_run_of_its_own_and_their_run_succeeds_when_all_have(traced, db, store, queue):
    task = in_pieces(db, {"uid": 1}, [2], None)
    tick(store, queue)
    work()
    first = parent(db)
    assert (first.state, first.pieces, ticker.get(db, task).running_until) == ("processing", 3, None)
    assert made(db) == [({"uid": 1}, 1, "planned", ""), ([2], 1, "planned", ""), (None, 1, "planned", "")]
    tick(store, queue)
    work()
    assert (ended(parent(db)), ticker.get(db, task).last_outcome) == (("processing", ""), None)
    tick(store, queue)
    whole, after = ticker.get_run(db, first.id), ticker.get(db, task)
    assert (ended(whole.run), whole.output) == (("succeeded", ""), "found 3\n")
    assert [piece.result for piece in whole.pieces] == [{"uid": 1}, [2], None]
    assert {piece.occurrence for piece in whole.pieces} == {first.occurrence}
    assert (after.last_run_id, after.last_outcome, after.succeeded, after.failures) == (first.id, "succeeded", 1, 0)
    assert after.last_success_at == after.last_worked_at == after.last_ended_at == whole.run.ended_at


def test_two_workers_process_pieces_at_the_same_time(traced, db, store, queue, tmp_path):
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    in_pieces(db, {"makes": one, "waits for": two}, {"makes": two, "waits for": one}, 3, 4, 5)
    tick(store, queue)
    work()
    tick(store, queue)
    with ThreadPoolExecutor(2) as workers:
        list(workers.map(lambda _: work(), range(2)))
    tick(store, queue)
    pieces = ticker.get_run(db, parent(db).id).pieces
    assert len({piece.worker for piece in pieces}) == 2
    assert ended(parent(db)) == ("succeeded", "")


def test_one_piece_that_fails_makes_its_run_fail_and_the_others_succeed(traced, db, store, queue):
    task = in_pieces(db, 1, "fails", 3)
    rounds(store, queue)
    assert made(db) == [
        (1, 1, "succeeded", ""),
        ("fails", 1, "failed", "ValueError: no such feed"),
        (3, 1, "succeeded", ""),
    ]
    assert ended(parent(db)) == ("failed", "1 of 3 pieces failed")
    after = ticker.get(db, task)
    assert (after.last_outcome, after.failures, after.failed, after.last_success_at) == ("failed", 1, 1, None)
    [(run_id, words)] = db.execute("SELECT run_id, words FROM ticker.events WHERE what = 'failed'").fetchall()
    assert (run_id, words) == (parent(db).id, sentence("why.pieces_failed", failed=1, pieces=3))


@pytest.mark.smoke
def test_a_piece_is_attempted_again_by_itself_and_its_run_succeeds(traced, db, store, queue):
    task = in_pieces(db, "fails.once", "dies.once", 3, retries=1, backoff="1ms")
    rounds(store, queue, 3)
    pieces = ticker.get_run(db, parent(db).id).pieces
    assert [(piece.item, piece.attempt, str(piece.outcome), piece.retried) for piece in pieces] == [
        ("fails.once", 1, "failed", True), ("dies.once", 1, "killed", True), (3, 1, "succeeded", False),
        ("fails.once", 2, "succeeded", False), ("dies.once", 2, "succeeded", False),
    ]  # fmt: skip
    assert ended(parent(db)) == ("succeeded", "")
    after = ticker.get(db, task)
    assert (after.failures, after.succeeded, after.failed) == (0, 1, 0)
    assert db.execute("SELECT count(*) FROM ticker.events").fetchone() == (0,)


def test_a_piece_whose_last_attempt_fails_counts_once(traced, db, store, queue):
    task = in_pieces(db, "fails", "dies", 3, retries=1, backoff="1ms")
    rounds(store, queue, 3)
    assert [(item, attempt, outcome) for item, attempt, outcome, _ in made(db)] == [
        ("fails", 1, "failed"), ("dies", 1, "killed"), (3, 1, "succeeded"), ("fails", 2, "failed"), ("dies", 2, "killed"),
    ]  # fmt: skip
    assert ended(parent(db)) == ("failed", "2 of 3 pieces failed")
    assert (ticker.get(db, task).failures, ticker.get(db, task).failed) == (1, 1)
    assert len(ticker.list_runs(db)) == 6  # their run itself is not attempted again


def test_the_pieces_of_an_occurrence_know_it_and_have_the_time_that_is_left_before_the_next_start(
    traced, db, store, queue
):
    task = ticker.register(db, "pieces", every="1m", tolerance="5s", box="50s", kwargs={"pieces": [1]})
    tick(store, queue)
    work()
    let_time_pass(db, 10)  # 60 s less tolerance and grace: 44 s are left, less what the worker takes to begin
    tick(store, queue)
    work()
    [[_, attempt, left, occurrence]] = traced("piece")
    assert (attempt, 0 < left < 44) == (1, True)
    assert occurrence == parent(db).occurrence.isoformat()
    [piece] = [run for run in ticker.list_runs(db) if run.kind is RunKind.PIECE]
    assert piece.until <= ticker.get(db, task).last_run + 55 * SECOND


def test_async_functions_generate_and_process(traced, db, store, queue):
    for name in ("pieces.async", "pieces.stream"):
        ticker.register(db, name, every="10m")
    rounds(store, queue)
    assert sorted(traced("async.piece")) == [1, 2, 3, 4]
    assert {task.last_outcome for task in ticker.list_tasks(db)} == {"succeeded"}


# ----------------------------------------------------------------------------------------------------- nothing to do


def test_to_find_no_work_is_a_success_and_no_work(traced, db, store, queue):
    tasks = [ticker.register(db, "has.nothing", every="10m"), in_pieces(db),
             ticker.register(db, "pieces.wrong", every="10m", kwargs={"what": "none"})]  # fmt: skip
    tick(store, queue)
    work()
    for task in tasks:
        after = ticker.get(db, task)
        assert (after.last_outcome, after.last_worked_at, after.succeeded) == ("nothing_to_do", None, 1)
        assert after.last_success_at == after.last_ended_at is not None


# ------------------------------------------------------------------------------------------- what cannot be handed out


WRONG = {
    "raises": "OSError: the list broke off",
    "too large": sentence("why.large_piece", type="str", bytes=17002, limit=16384),
    "no JSON": (sentence("why.no_piece", type="object", error="Object of type object is not JSON serializable")),
    "a text": sentence("why.no_series", type="str"),
    "a mapping": sentence("why.no_series", type="dict"),
}


def test_where_generate_fails_no_piece_of_it_is_made(traced, db, store, queue):
    for what in WRONG:
        ticker.register(db, "pieces.wrong", name=what, every="10m", kwargs={"what": what})
    rounds(store, queue, 1)
    assert {run.task_name: ended(run) for run in ticker.list_runs(db)} == {
        what: ("failed", said) for what, said in WRONG.items()
    }
    assert traced("wrong") == []


def test_thousands_of_pieces_are_all_recorded_once(traced, db, store, queue):
    task = ticker.register(db, "pieces.many", every="10m", box="5m", kwargs={"count": 4_500})
    tick(store, queue)
    work()
    assert db.execute("SELECT state, pieces FROM ticker.runs WHERE kind = 'scheduled'").fetchall() == [
        ("processing", 4_500)
    ]
    assert ticker.get(db, task).running_until is None
    [(count, least, most)] = db.execute(
        "SELECT count(DISTINCT item::text), min(item::int), max(item::int) FROM ticker.runs WHERE kind = 'piece'"
    )
    assert (count, least, most) == (4_500, 0, 4_499)


def test_where_generate_fails_after_thousands_none_of_them_stays(traced, db, store, queue):
    ticker.register(db, "pieces.many", every="10m", box="5m", kwargs={"count": 4_500, "fails": True})
    rounds(store, queue)
    [run] = ticker.list_runs(db)
    assert (ended(run), run.kind, traced("piece")) == (("failed", "ValueError: no more"), RunKind.SCHEDULED, [])


def test_a_generate_that_failed_is_attempted_again_as_a_whole(traced, db, store, queue):
    ticker.register(db, "pieces.wrong", every="10m", kwargs={"what": "raises"}, retries=1, backoff="1ms")
    rounds(store, queue)
    assert [(run.kind, run.attempt, str(run.outcome)) for run in ticker.list_runs(db)] == [
        ("retry", 2, "failed"), ("scheduled", 1, "failed"),
    ]  # fmt: skip


# ----------------------------------------------------------------------------------------------- stopped in the middle


def test_the_pieces_of_a_deleted_owner_vanish_wherever_they_are(traced, of_channels, db, store, queue):
    waiting = in_pieces(db, {"deletes": 1}, 2, 3, owner=("mail_channels", "1"))
    tick(store, queue)
    work()
    rounds(store, queue, 1)
    assert made(db)[1:] == [(2, 1, "dropped", "gone"), (3, 1, "dropped", "gone")]
    assert made(db)[0][2] == "succeeded"
    assert ended(parent(db)) == ("failed", "2 of 3 pieces dropped")
    planned = in_pieces(db, 4, owner=("mail_channels", "2"))
    tick(store, queue)
    work()
    db.execute("DELETE FROM mail_channels WHERE id = 2")
    for _ in range(2):
        tick(store, queue)
    assert made(db)[3:] == [(4, 1, "dropped", "gone")]
    assert {run.state for run in ticker.list_runs(db)} == {"ended"}
    assert ticker.list_tasks(db) == [] and waiting.id != planned.id


def test_a_run_that_deletes_its_owner_before_its_pieces_are_recorded_ends(traced, of_channels, db, store, queue):
    ticker.register(db, "pieces.of.nobody", every="10m", owner=("mail_channels", "1"), kwargs={"channel_id": 1})
    rounds(store, queue, 1)
    tick(store, queue)
    assert ended(parent(db)) == ("failed", "1 of 1 pieces dropped")
    assert traced("of nobody") == []


def test_pieces_of_a_task_that_is_disabled_meanwhile_are_dropped_and_their_run_ends(traced, db, store, queue):
    task = in_pieces(db, 1, 2)
    tick(store, queue)
    work()
    tick(store, queue)
    db.execute("UPDATE ticker.tasks SET enabled = false")
    work()
    tick(store, queue)
    assert made(db) == [(1, 1, "dropped", "paused"), (2, 1, "dropped", "paused")]
    assert ended(parent(db)) == ("failed", "2 of 2 pieces dropped")
    after = ticker.get(db, task)
    assert (after.failures, after.failed, after.dropped) == (1, 1, 0)  # the run counts, and not each of its pieces


def test_two_jobs_of_a_piece_are_one_start(traced, db, store, queue):
    task = in_pieces(db, 1)
    tick(store, queue)
    work()
    tick(store, queue)
    [piece] = [run for run in ticker.list_runs(db) if run.kind is RunKind.PIECE]
    job = jobs.for_planned(
        INSTALLATION, PlannedRun(piece.id, task.id, task.queue, task.function, task.box_ms, task.grace_ms)
    )
    queue.push([job._replace(job_id="copy")])
    work()
    tick(store, queue)
    assert len(traced("piece")) == 1
    assert [ended(run) for run in ticker.list_runs(db)] == [("succeeded", ""), ("succeeded", "")]
    assert db.execute("SELECT what, run_id FROM ticker.events").fetchall() == [("redelivered", piece.id)]


def test_the_pieces_of_a_run_by_hand_are_processed_and_the_schedule_stays(traced, db, store, queue):
    task = ticker.register(db, "pieces", cron="0 6 1 1 *", kwargs={"pieces": [1, 2]})
    ticker.run_now(db, task)
    rounds(store, queue)
    assert ended(parent(db)) == ("succeeded", "")
    after = ticker.get(db, task)
    assert (after.last_outcome, after.last_run, after.next_run) == ("succeeded", None, task.next_run)
    assert [value[3] for value in traced("piece")] == [None, None]
