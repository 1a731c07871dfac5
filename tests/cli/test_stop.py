"""`ticker stop`: what it says of what it observed."""

import pytest

import ticker
from tests.cli.answers import answer, refused
from tests.factories import NINE, SECOND, a_run
from tests.harness import command
from tests.sentences import sentence
from ticker.cli import runs

pytestmark = pytest.mark.usefixtures("environ")


@pytest.fixture
def at_work(db, monkeypatch):
    """A run that no worker will stop."""
    monkeypatch.setattr(runs, "PATIENCE", 0.1)
    task = ticker.register(db, "poll", every="1m")
    return a_run(
        db, task, state="running", outcome=None, ended_at=None, started_at=NINE, until=NINE + 31 * SECOND, worker="w1",
        token="00000000-0000-0000-0000-000000000007",
    )  # fmt: skip


@pytest.mark.slow
def test_a_worker_that_does_not_answer_is_named_with_the_end_of_the_box(db, at_work):
    out, _ = command("stop", str(at_work), "--by", "ann", code=1)
    assert (
        sentence("cli.stop_no_answer", run=at_work, worker="w1", patience="0.1 s", until="2026-03-01 09:00:31Z") == out
    )
    assert ticker.get_run(db, at_work).run.stop_requested_by == "ann"


def test_an_end_is_printed(db, at_work, monkeypatch):
    """It ends while the command waits for it."""
    monkeypatch.setattr(runs, "PATIENCE", 60.0)
    awaited = runs.awaited

    def first_its_end(*how):
        db.execute(
            "UPDATE ticker.runs SET state = 'ended', outcome = 'interrupted', reason = 'stopped by ann', ended_at = now()"
        )
        return awaited(*how)

    monkeypatch.setattr(runs, "awaited", first_its_end)
    assert (
        sentence("cli.run_has_ended", run=at_work, outcome="interrupted", reason="stopped by ann")
        == command("stop", str(at_work))[0]
    )


@pytest.mark.slow
def test_what_waits_for_a_tick_or_for_its_pieces_says_so(db, at_work):
    db.execute("UPDATE ticker.runs SET state = 'planned', due_at = now()")
    assert sentence("cli.stop_no_tick", run=at_work, patience="0.1 s") == command("stop", str(at_work), code=1)[0]
    db.execute("UPDATE ticker.runs SET state = 'processing'")
    assert sentence("cli.stop_pieces_open", run=at_work, patience="0.1 s") == command("stop", str(at_work), code=1)[0]


@pytest.mark.slow
def test_the_run_is_printed_as_json(at_work):
    found = answer("stop", str(at_work), "--by", "ann", code=1)
    assert (found["id"], found["state"], found["stop_requested_by"]) == (at_work, "running", "ann")


def test_a_run_that_has_ended_or_is_not_there_is_refused(db, at_work):
    db.execute("UPDATE ticker.runs SET state = 'ended', outcome = 'succeeded', ended_at = now()")
    assert sentence("errors.run_has_ended", run=at_work, outcome="succeeded") == refused("stop", str(at_work))
    assert sentence("errors.unknown_run", run=99) == refused("stop", "99", code=1)
    assert refused("stop", "poll")
