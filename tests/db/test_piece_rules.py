"""The rules of work in pieces, without a worker: when a piece may start, and what becomes of the run that made it."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

import ticker
from tests.harness import begun, finish, handed_out, start, start_planned
from tests.sentences import sentence
from ticker.db import sql
from ticker.engine.tick import tick
from ticker.errors import BadInput
from ticker.model import PlannedRun, RunKind
from wrappers import Quota, Run
from wrappers.pipeline.database import Database

pytestmark = pytest.mark.slow

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def task(environ, db):
    """Every minute: no run starts sooner than 55 s after the one before."""
    return ticker.register(db, "poll", every="1m", tolerance="5s", box="30s", first=NOW)


def pieces_of(db, run_id):
    return [id_ for (id_,) in db.execute("SELECT id FROM ticker.runs WHERE parent_id = %s ORDER BY id", [run_id])]


def end(db, run_id, *outcomes, now=NOW):
    """The pieces of this run end so."""
    for piece, outcome in zip(pieces_of(db, run_id), outcomes, strict=True):
        db.execute(
            "UPDATE ticker.runs SET state = 'ended', outcome = %s, reason = 'gone', started_at = %s, ended_at = %s"
            " WHERE id = %s", [outcome, now, now, piece],
        )  # fmt: skip


def sum_up(store, now=NOW + MINUTE):
    with store.batch() as rows:
        return rows.sum_up(now, 100)


def run_of(db, run_id):
    return ticker.get_run(db, run_id).run


# --------------------------------------------------------------------------------------------------- when one may start


@pytest.mark.parametrize(
    ("after", "box"),
    [(1, 30), (24, 30), (25, 29), (40, 14), (53, 1), (53.001, None), (54, None), (60, None)],
)
def test_the_box_of_a_piece_shrinks_so_that_it_is_dead_before_the_next_start(db, task, after, box):
    [piece, *_] = pieces_of(db, handed_out(db, task))
    now = NOW + after * SECOND
    verdict = start_planned(db, task, piece, now)
    run = run_of(db, piece)
    if box is None:
        assert (verdict["refusal"], run.outcome, run.reason) == ("no_time", "dropped", "no_time")
        return
    assert (verdict["refusal"], verdict["box_ms"]) == (None, box * 1000)
    assert run.until == now + (box + 1) * SECOND <= NOW + 55 * SECOND


def test_a_box_of_under_a_second_is_no_reason_to_drop_a_piece(db, task):
    db.execute("UPDATE ticker.tasks SET box_ms = 500")
    [piece, *_] = pieces_of(db, handed_out(db, task))
    assert (start_planned(db, task, piece, NOW + SECOND)["refusal"], run_of(db, piece).until) == (
        None,
        NOW + 2.5 * SECOND,
    )


def test_pieces_start_beside_each_other_and_take_no_hold(db, task):
    before = handed_out(db, task)
    verdicts = [start_planned(db, task, piece, NOW + SECOND) for piece in pieces_of(db, before)]
    after = ticker.get(db, task)
    assert [verdict["refusal"] for verdict in verdicts] == [None] * 3
    assert [verdict["item"] for verdict in verdicts] == [1, 2, 3]
    assert {verdict["occurrence"] for verdict in verdicts} == {NOW}
    assert (after.running_until, after.last_run, after.last_occurrence) == (None, NOW, NOW)


def test_a_piece_changes_neither_the_hold_nor_the_outcome_of_its_task(db, task):
    [piece, *_] = pieces_of(db, handed_out(db, task))
    token = str(uuid4())
    start_planned(db, task, piece, NOW + SECOND, token=token)
    start(db, task, NOW + MINUTE, NOW + MINUTE)
    before = ticker.get(db, task)
    assert finish(db, task, token, "failed", NOW + MINUTE)
    assert ticker.get(db, task) == before
    assert run_of(db, piece).outcome == "failed"


def test_a_task_whose_pieces_are_at_work_is_due_and_starts_as_ever_unless_it_wants_one_job_at_a_time(
    db, store, queue, task
):
    db.execute("UPDATE ticker.tasks SET next_run = %s", [NOW + MINUTE])
    run_id = handed_out(db, task)
    assert tick(store, queue, NOW + MINUTE).due.enqueued == 1
    assert start(db, task, NOW + MINUTE, NOW + MINUTE)["refusal"] is None
    assert start_planned(db, task, pieces_of(db, run_id)[0], NOW + MINUTE + SECOND)["refusal"] == "no_time"


@pytest.mark.parametrize(("waiting", "refusal"), [([], None), ([NOW], None), ([NOW, NOW + MINUTE], "no_time")])
def test_a_piece_of_a_task_by_times_does_not_start_where_the_next_run_may_start_at_any_moment(
    db, task, waiting, refusal
):
    db.execute(
        "UPDATE ticker.tasks SET kind = 'cron', expression = '* * * * *', every_ms = 0, tolerance_ms = 0, next_run = %s",
        [NOW + 2 * MINUTE],
    )
    [piece, *_] = pieces_of(db, handed_out(db, task))
    db.execute("UPDATE ticker.tasks SET waiting = %s", [waiting])
    assert start_planned(db, task, piece, NOW + 61 * SECOND)["refusal"] == refusal


def test_a_piece_has_no_cursor():
    run = Run(1, 1, "poll", "", "", NOW, None, Quota(1, 0), str(uuid4()), Database("", "ticker"), RunKind.PIECE)
    with pytest.raises(BadInput) as refused:
        run.checkpoint(7)
    assert str(refused.value) == (sentence("errors.piece_has_no_cursor", field="checkpoint"))


def test_pieces_are_not_made_by_a_run_that_lost_its_hold(db, task):
    token = str(uuid4())
    begun(db, task, NOW, NOW, token)
    start(db, task, NOW + MINUTE, NOW + MINUTE)
    made = sql.on(db, "ticker")(
        "generated",
        task_id=task.id,
        token=token,
        items="[1]",
        made=0,
        output="",
        error_output="",
        pid=None,
        now=NOW + MINUTE,
    )
    assert (made, [run.kind for run in ticker.list_runs(db)]) == ([], [RunKind.SCHEDULED] * 2)


def test_a_push_is_made_for_each_piece_in_their_order(db, store, task):
    made = pieces_of(db, handed_out(db, task))
    with store.batch() as rows:
        assert rows.claim_planned(NOW, 100) == [
            PlannedRun(piece, task.id, "polling", "poll", 30_000, 1_000) for piece in made
        ]


# ------------------------------------------------------------------------------------------------- what becomes of a run


@pytest.mark.parametrize(
    ("outcomes", "outcome", "reason"),
    [
        (["succeeded"] * 3, "succeeded", ""),
        (["succeeded", "nothing_to_do", "nothing_to_do"], "succeeded", ""),
        (["nothing_to_do"] * 3, "nothing_to_do", ""),
        (["succeeded", "partial", "nothing_to_do"], "partial", ""),
        (["succeeded", "partial", "failed"], "failed", "1 of 3 pieces failed"),
        (["timed_out", "killed", "lost"], "failed", "3 of 3 pieces failed"),
        (["succeeded", "dropped", "succeeded"], "failed", "1 of 3 pieces dropped"),
        (["failed", "dropped", "dropped"], "failed", "1 of 3 pieces failed, 2 of 3 pieces dropped"),
    ],
)
def test_the_worst_of_its_pieces_is_the_outcome_of_a_run_and_of_its_task(db, store, task, outcomes, outcome, reason):
    run_id = handed_out(db, task)
    assert sum_up(store) == 0
    end(db, run_id, *outcomes)
    assert (sum_up(store), sum_up(store)) == (1, 0)
    run, after, good = run_of(db, run_id), ticker.get(db, task), outcome != "failed"
    assert (run.state, run.outcome, run.reason, run.ended_at) == ("ended", outcome, reason, NOW + MINUTE)
    assert (after.last_run_id, after.last_outcome, after.last_ended_at) == (run_id, outcome, NOW + MINUTE)
    assert (after.succeeded, after.failed, after.failures) == (int(good), int(not good), int(not good))
    assert after.last_success_at == (NOW + MINUTE if good else None)
    assert after.last_worked_at == (NOW + MINUTE if outcome in ("succeeded", "partial") else None)


def test_a_run_waits_while_an_end_of_a_piece_has_to_be_seen_to(db, store, task):
    run_id = handed_out(db, task)
    end(db, run_id, "succeeded", "succeeded", "failed")
    db.execute("UPDATE ticker.runs SET follow_up = true WHERE id = %s", [pieces_of(db, run_id)[2]])
    assert sum_up(store) == 0


def test_a_run_whose_task_was_deleted_ends_and_so_does_one_whose_pieces_a_hand_has_deleted(db, store, task):
    run_id = handed_out(db, task)
    db.execute("DELETE FROM ticker.runs WHERE parent_id = %s AND item > '1'", [run_id])
    end(db, run_id, "succeeded")
    db.execute("DELETE FROM ticker.tasks")
    assert sum_up(store) == 1
    assert (run_of(db, run_id).outcome, run_of(db, run_id).reason) == ("failed", "2 of 3 pieces failed")


def test_two_runs_of_a_task_that_are_complete_at_once_both_count_and_the_later_one_is_its_last(db, store, task):
    first = handed_out(db, task)
    second = handed_out(db, task, occurrence=NOW + MINUTE, now=NOW + MINUTE)
    end(db, first, "failed", "failed", "succeeded")
    end(db, second, *["succeeded"] * 3)
    assert (sum_up(store), sum_up(store), sum_up(store)) == (1, 1, 0)
    after = ticker.get(db, task)
    assert (after.succeeded, after.failed, after.failures) == (1, 1, 0)
    assert (after.last_run_id, after.last_outcome) == (second, "succeeded")


@pytest.mark.parametrize(("outcome", "late", "failures"), [("succeeded", "failed", 0), ("failed", "succeeded", 1)])
def test_pieces_that_end_behind_a_later_run_leave_the_task_as_that_run_did(db, store, task, outcome, late, failures):
    first = handed_out(db, task, "1")
    token = str(uuid4())
    second = begun(db, task, NOW + MINUTE, NOW + MINUTE, token)
    finish(db, task, token, outcome, NOW + MINUTE + SECOND)
    end(db, first, late)
    assert sum_up(store, NOW + 2 * MINUTE) == 1
    after = ticker.get(db, task)
    assert (after.last_run_id, after.last_outcome, after.failures) == (second, outcome, failures)
    assert (after.last_ended_at, after.succeeded, after.failed) == (NOW + MINUTE + SECOND, 1, 1)


def test_a_single_time_is_not_removed_while_its_pieces_are_at_work(db, store, environ):
    task = ticker.register(db, "poll", at="2126-03-01T12:00:00Z", remove=True)
    run_id = handed_out(db, task)
    db.execute("UPDATE ticker.tasks SET next_run = NULL, last_outcome = 'succeeded'")  # of an earlier run by hand
    assert store.remove_done(10) == 0
    end(db, run_id, *["succeeded"] * 3)
    sum_up(store)
    assert store.remove_done(10) == 1


# ------------------------------------------------------------------------------------------------- very many pieces


def added(db, token, *items):
    return sql.on(db, "ticker")("add_pieces", token=token, items=f"[{','.join(items)}]", now=NOW)


def test_no_tick_looks_at_pieces_before_their_run_has_made_all_of_them(db, store, task):
    token = str(uuid4())
    run_id = begun(db, task, NOW, NOW, token)
    first = [row["id"] for row in added(db, token, "1", "2")]
    with store.batch() as rows:
        assert rows.claim_planned(NOW, 100) == []
    sql.on(db, "ticker")(
        "generated", task_id=task.id, token=token, items="[3]", made=2, output="", error_output="", pid=None, now=NOW
    )
    with store.batch() as rows:
        assert [run.id for run in rows.claim_planned(NOW, 100)][:2] == first
    assert (ticker.get_run(db, run_id).run.pieces, len(pieces_of(db, run_id))) == (3, 3)


def test_a_run_that_lost_its_hold_adds_no_pieces(db, task):
    token = str(uuid4())
    begun(db, task, NOW, NOW, token)
    start(db, task, NOW + MINUTE, NOW + MINUTE)
    assert added(db, token, "1") == []


def test_the_pieces_of_a_run_that_ended_before_it_had_made_all_go(db, store, task):
    token = str(uuid4())
    run_id = begun(db, task, NOW, NOW, token)
    added(db, token, *map(str, range(21)))
    db.execute(
        "UPDATE ticker.runs SET state = 'ended', outcome = 'killed', token = NULL, ended_at = now() WHERE id = %s",
        (run_id,),
    )
    with store.batch() as rows:
        assert rows.claim_planned(NOW, 1) == []
    store.drop_orphaned_plans(NOW, 1)
    assert len(pieces_of(db, run_id)) == 1
    store.drop_orphaned_plans(NOW, 1)
    assert pieces_of(db, run_id) == []
