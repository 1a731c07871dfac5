"""The start statement on real connections: one winner, and the right reason for everyone else."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

import ticker
from tests.harness import WORKER, events, finish, start, start_planned
from tests.running import LOCK_AWAITED, until
from tests.sentences import sentence
from ticker import clock
from ticker.db import drivers, sql
from ticker.db.connections import connect
from ticker.engine.tick import tick
from wrappers import HoldLost, Quota, Run
from wrappers.pipeline.database import Database

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def task(environ, db):
    return ticker.register(db, "poll", every="1m", tolerance="5s")


def late_start(other, db, task, occurrence, **given):
    """A start whose view of the tables is older than its locks: it reads no row before the transaction of `other` has ended.

    The row waits for the occurrence.
    """
    other.execute("SELECT pg_advisory_xact_lock(1)")
    text = sql.statements("ticker")["start"]
    late = text.replace("WHERE id = ANY", "WHERE (SELECT pg_advisory_xact_lock(1) IS NOT NULL) AND id = ANY", 1)
    assert late != text
    asked = {
        **WORKER,
        "task_ids": [task.id],
        "occurrences": [occurrence],
        "tokens": [str(uuid4())],
        "job_ids": ["j"],
        **given,
    }
    return drivers.of(db).fetch(late, asked)[0]


def put(db, task, **columns):
    """Puts values into the task's row by hand."""
    assignments = ", ".join(f"{name} = %({name})s" for name in columns)
    db.execute(f"UPDATE ticker.tasks SET {assignments} WHERE id = %(id)s", {**columns, "id": task.id})


def test_a_first_start_takes_the_hold_and_sets_last_run(db, task):
    verdict = start(db, task, NOW - SECOND)
    after = ticker.get(db, task)
    assert verdict["refusal"] is None
    assert (after.last_run, after.last_occurrence) == (NOW, NOW - SECOND)
    assert after.running_until == NOW + 31 * SECOND  # B + g
    [run] = ticker.list_runs(db)
    assert (run.state, run.started_at, run.checked_last_run) == ("running", NOW, None)


@pytest.mark.parametrize(
    ("columns", "occurrence", "reason"),
    [
        ({"enabled": False}, NOW, "paused"),
        ({"owner_active": False}, NOW, "paused"),
        ({"paused_by": "me", "paused_until": NOW}, NOW, None),
        ({"last_run": NOW + SECOND}, NOW, "clock"),
        ({"waiting": [NOW - 11 * MINUTE, NOW]}, NOW - 11 * MINUTE, "expired"),
        ({"waiting": [NOW - 11 * MINUTE]}, NOW - 11 * MINUTE, None),
        ({"waiting": [NOW - 10 * MINUTE, NOW]}, NOW - 10 * MINUTE, None),
        ({"last_occurrence": NOW}, NOW, "duplicate"),
        ({"last_occurrence": NOW}, NOW - SECOND, "duplicate"),
        ({"run_token": uuid4(), "running_until": NOW + SECOND}, NOW, "still_running"),
        ({"run_token": uuid4(), "running_until": NOW}, NOW, None),
        ({"last_run": NOW - 54 * SECOND}, NOW, "too_early"),
        ({"last_run": NOW - 55 * SECOND}, NOW, None),
    ],
)
def test_each_reason_is_found_and_changes_nothing_else(db, task, columns, occurrence, reason):
    put(db, task, **columns)
    before = ticker.get(db, task)
    assert start(db, task, occurrence)["refusal"] == reason
    after = ticker.get(db, task)
    [run] = ticker.list_runs(db)
    if reason is None:
        assert (run.state, run.outcome) == ("running", None)
        return
    assert (run.outcome, run.reason, run.started_at) == ("dropped", reason, None)
    kept = ("next_run", "last_occurrence", "cursor", "last_outcome", "failures") + (
        () if reason == "clock" else ("last_run",)
    )
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert occurrence not in after.waiting


def test_the_reasons_are_judged_in_the_documented_order(db, task):
    put(
        db,
        task,
        function="other",
        enabled=False,
        last_occurrence=NOW,
        last_run=NOW,
        run_token=uuid4(),
        running_until=NOW + MINUTE,
    )
    seen = []
    for columns in [
        {"function": "poll"},
        {"enabled": True},
        {"last_occurrence": None},
        {"running_until": NOW},
        {"last_run": None},
    ]:
        seen.append(start(db, task, NOW - len(seen) * SECOND)["refusal"])
        put(db, task, **columns)
    assert [*seen, start(db, task, NOW - MINUTE)["refusal"]] == [
        "unknown_here", "paused", "duplicate", "still_running", "too_early", None,
    ]  # fmt: skip


def test_a_job_whose_task_is_not_there_is_an_event_of_the_installation_and_no_record(db, task):
    """Its deletion has recorded what waited; an id that was never given must not write a later task's history."""
    ticker.unregister(db, task)
    db.execute("DELETE FROM ticker.events")
    assert start(db, task, NOW)["refusal"] == "gone"
    assert ticker.list_runs(db) == []
    assert events(db, "task_id, what, run_id, words") == [
        (0, "stale", None, sentence("why.stale", job="j", worker="w", task=task.id))
    ]


@pytest.mark.parametrize("last_occurrence", [None, NOW - SECOND])
def test_an_occurrence_that_the_task_does_not_wait_for_is_stale_and_changes_nothing(last_occurrence, db, task):
    """As after the restore of an older dump, where Redis still has later jobs, and ids are given anew."""
    put(db, task, last_occurrence=last_occurrence, waiting=[NOW - MINUTE])
    before = ticker.get(db, task)
    assert start(db, task, NOW, pushed=False)["refusal"] == "stale"
    assert (ticker.get(db, task), ticker.list_runs(db)) == (before, [])
    assert [event[:2] for event in events(db, "task_id, what, run_id, words")] == [(0, "stale")]


def test_a_tick_that_was_killed_before_its_commit_leaves_a_job_that_runs(db, task):
    """The row does not wait for it yet: it is its next run."""
    put(db, task, next_run=NOW)
    assert start(db, task, NOW, pushed=False)["refusal"] is None


@pytest.mark.parametrize("refused", [None, "paused"])
def test_a_job_that_is_delivered_again_is_an_event_on_the_record_whatever_came_of_the_first(refused, db, task):
    put(db, task, enabled=refused is None)
    assert start(db, task, NOW)["refusal"] == refused
    put(db, task, waiting=[NOW], enabled=True)  # the tick that pushed it had died, and the next one pushed it again
    db.execute("DELETE FROM ticker.events")
    assert start(db, task, NOW)["refusal"] == "redelivered"
    [record] = ticker.list_runs(db)
    assert [event[:3] for event in events(db, "task_id, what, run_id, words")] == [(task.id, "redelivered", record.id)]
    after = ticker.get(db, task)
    assert (after.waiting, after.dropped) == ((), 0 if refused is None else 1)


def test_a_job_that_is_delivered_again_after_its_record_was_pruned_starts_nothing_without_an_event(db, task):
    start(db, task, NOW)
    db.execute("DELETE FROM ticker.runs")
    assert start(db, task, NOW, pushed=False)["refusal"] == "stale"
    assert (ticker.list_runs(db), events(db, "task_id, what, run_id, words")) == ([], [])


def test_after_the_clock_was_set_back_one_job_is_dropped_and_spacing_is_kept(db, task):
    put(db, task, last_run=NOW + 60 * MINUTE, last_occurrence=NOW + 60 * MINUTE)
    assert start(db, task, NOW)["refusal"] == "clock"
    assert start(db, task, NOW + SECOND, now=NOW + 54 * SECOND)["refusal"] == "too_early"
    assert start(db, task, NOW + 2 * SECOND, now=NOW + 55 * SECOND)["refusal"] is None


def test_a_manual_run_cannot_overlap_one_that_began_before_the_clock_was_set_back(db, task):
    """The hold is cut to B + g from now, not to now: the run that took it may still be alive that long."""
    put(db, task, last_run=NOW + 60 * MINUTE, run_token=uuid4(), running_until=NOW + 61 * MINUTE)
    assert start(db, task, NOW)["refusal"] == "clock"
    assert ticker.get(db, task).running_until == NOW + 31 * SECOND


@pytest.mark.slow
def test_a_clamp_reads_its_own_clock_so_that_a_tick_that_was_stopped_ends_no_living_hold(
    environ, db, store, queue, task
):
    """Ticker A is stopped in mid-pass, B ticks and writes its heartbeat, A goes on: no clock was set back."""
    running = start(db, task, NOW, now=None)
    before = ticker.get(db, task)
    db.execute("INSERT INTO ticker.tickers (id, pid, started_at, last_tick_at) VALUES (%s, 1, %s, %s)",
               [uuid4(), running["now"], running["now"]])  # fmt: skip
    tick(store, queue, None)
    store.clamp(None, 10)
    after = ticker.get(db, task)
    assert (after.last_run, after.running_until) == (before.last_run, before.running_until)


def test_an_edit_in_mid_run_cannot_cut_its_hold_even_when_the_clock_is_set_back(environ, db, task):
    ticker.edit(db, task, every="10m")
    start(db, task, NOW)  # its box is 5 min
    ticker.edit(db, task, every="10s", tolerance="1s", box="5s")
    assert start(db, task, NOW + SECOND, now=NOW - 60 * MINUTE)["refusal"] == "clock"
    assert ticker.get(db, task).running_until == NOW - 60 * MINUTE + 301 * SECOND


def test_registering_the_same_again_blocks_no_start(environ, db, task, database_url):
    """A deploy's transaction may last for minutes."""
    with connect(database_url) as deploy, deploy.transaction():
        ticker.register(deploy, "poll", every="1m", tolerance="5s")
        assert start(db, task, NOW)["refusal"] is None


def test_last_run_is_read_after_a_wait_for_the_row(db, task, database_url):
    """Two seconds behind a row lock must not make last_run two seconds old."""
    put(db, task, waiting=[NOW])
    with connect(database_url) as other, connect(database_url) as watcher, ThreadPoolExecutor(1) as pool:
        with other.transaction():
            other.execute("SELECT FROM ticker.tasks WHERE id = %s FOR UPDATE", [task.id])
            waiting = pool.submit(late_start, other, db, task, NOW, now=None)
            until(lambda: watcher.execute(LOCK_AWAITED).fetchone(), "the start waits")
            released = other.execute("SELECT clock_timestamp()").fetchone()[0]
        assert waiting.result()["now"] >= released


def test_one_statement_starts_many_and_skips_the_row_that_is_locked(environ, db, task, database_url):
    early, gone, held = (
        ticker.register(db, "poll", name=name, every="1m", tolerance="5s") for name in ("early", "gone", "held")
    )
    tasks = [task, early, gone, held]
    put(db, early, last_run=NOW - 10 * SECOND)
    for each in tasks:
        put(db, each, waiting=[NOW])
    ticker.unregister(db, gone)
    asked = {**WORKER, "task_ids": [each.id for each in tasks], "occurrences": [NOW] * 4, "job_ids": ["j"] * 4,
             "tokens": (tokens := [str(uuid4()) for _ in tasks]), "now": NOW}  # fmt: skip
    with connect(database_url) as other, other.transaction():
        other.execute("SELECT FROM ticker.tasks WHERE id = %s FOR UPDATE", [held.id])
        verdicts = {str(row["token"]): row["refusal"] for row in sql.on(db, "ticker")("start", **asked)}
    assert [verdicts[token] for token in tokens] == [None, "too_early", "gone", "locked"]
    assert {(run.task_id, run.state, run.reason) for run in ticker.list_runs(db) if run.reason != "gone"} == {
        (task.id, "running", ""), (early.id, "ended", "too_early")}  # fmt: skip
    assert start(db, held, NOW, pushed=False)["refusal"] is None


def test_one_statement_ends_many_and_skips_the_row_that_is_locked(environ, db, task, database_url):
    other_task, held = (ticker.register(db, "poll", name=name, every="1m") for name in ("other", "held"))
    tasks, tokens = [task, other_task, held], [str(uuid4()) for _ in range(3)]
    for each, token in zip(tasks, tokens, strict=True):
        assert start(db, each, NOW, token=token)["refusal"] is None
    tokens[1] = str(uuid4())  # it has lost its hold
    ends = {"task_ids": [each.id for each in tasks], "tokens": tokens, "outcomes": ["failed", "succeeded", "succeeded"],
            "reasons": ["it broke", "", ""], "results": [None, None, "7"], "tracebacks": [""] * 3, "outputs": ["a", "b", "c"],
            "error_outputs": [""] * 3, "ages": [0.0] * 3, "pids": [None] * 3,
            "suspect_counts": [0] * 3, "now": NOW + SECOND}  # fmt: skip
    with connect(database_url) as other, other.transaction():
        other.execute("SELECT FROM ticker.tasks WHERE id = %s FOR UPDATE", [held.id])
        rows = {
            str(row["token"]): (row["run_id"] is not None, row["is_locked"])
            for row in sql.on(db, "ticker")("finish", **ends)
        }
    assert [rows[token] for token in tokens] == [(True, False), (False, False), (False, True)]
    assert [ticker.get(db, each).last_outcome for each in tasks] == ["failed", None, None]
    assert finish(db, held, tokens[2])


def test_a_start_that_waits_while_a_ticker_elsewhere_takes_the_run_for_lost_finds_it_at_work(db, task, database_url):
    """The clock was set forward. The statement has locked the newer row of the task, and sees the older one of the run."""
    own = {"boot": "this", "uptime": 1_000_000}
    start(db, task, NOW, **own)
    later, own["uptime"] = NOW + timedelta(hours=1), 2_000_000
    put(db, task, waiting=[later])
    with connect(database_url) as other, connect(database_url) as watcher, ThreadPoolExecutor(1) as pool:
        with other.transaction():
            elsewhere = {"limit": 10, "boot": "elsewhere", "uptime": 1}
            assert len(sql.on(other, "ticker")("end_overdue", now=later, **elsewhere)) == 1
            waiting = pool.submit(late_start, other, db, task, later, now=later, **own)
            until(lambda: watcher.execute(LOCK_AWAITED).fetchone(), "the start waits")
        assert waiting.result()["refusal"] == "still_running"


def test_the_end_is_fenced_by_the_token(db, task):
    start(db, task, NOW)
    stale, _ = str(uuid4()), ticker.get(db, task)
    assert finish(db, task, stale) == []
    assert ticker.get(db, task).running_until is not None
    put(db, task, running_until=NOW, last_run=NOW - MINUTE)
    first = db.execute("SELECT run_token FROM ticker.tasks").fetchone()[0]
    start(db, task, NOW + SECOND)  # the first run's hold is over: a second one takes the task
    assert finish(db, task, str(first)) == []
    second = db.execute("SELECT run_token FROM ticker.tasks").fetchone()[0]
    assert len(finish(db, task, str(second))) == 1
    assert ticker.get(db, task).last_outcome == "succeeded"


def test_a_run_whose_task_is_gone_still_gets_its_outcome(db, task):
    start(db, task, NOW)
    token = db.execute("SELECT run_token FROM ticker.tasks").fetchone()[0]
    ticker.unregister(db, task)
    assert len(finish(db, task, str(token))) == 1
    assert ticker.list_runs(db)[0].outcome == "succeeded"


def race(database_url, task, db, rounds, racers=16):
    """Racers on connections of their own; each round must have one winner, and the right reason for each loser."""
    connections = [connect(database_url) for _ in range(racers)]
    reasons: Counter[str | None] = Counter()
    with ThreadPoolExecutor(racers) as pool:
        for number in range(rounds):
            barrier = threading.Barrier(racers)
            moment = NOW + number * 2 * MINUTE
            spread = SECOND if number % 2 else timedelta(0)  # every other round: one occurrence each
            occurrences = [moment + index * spread for index in range(racers)]
            put(db, task, waiting=sorted(set(occurrences)))

            def one(index):
                barrier.wait()  # noqa: B023  used up within the round
                verdict = start(connections[index], task, occurrences[index], moment + MINUTE, pushed=False)  # noqa: B023
                return verdict["refusal"]

            refusals = list(pool.map(one, range(racers)))
            assert refusals.count(None) == 1, (number, refusals)
            won = occurrences[refusals.index(None)]
            for occurrence, refusal in zip(occurrences, refusals, strict=True):
                same = "redelivered" if occurrence == won else "duplicate"
                assert refusal in (None, same if occurrence <= won else "still_running"), (number, refusals)
            reasons.update(refusals)
            put(db, task, run_token=None, running_until=None)
    for connection in connections:
        connection.close()
    return reasons


@pytest.mark.promise("S4")
def test_of_16_racing_starts_one_wins_and_15_learn_why(database_url, db, task):
    assert sum(race(database_url, task, db, 50).values()) == 800


@pytest.mark.slow
def test_of_16_racing_starts_one_wins_200_times(database_url, db, task):
    assert race(database_url, task, db, 200)[None] == 200


@pytest.mark.long
@pytest.mark.timeout(900)
def test_of_16_racing_starts_one_wins_10000_times(database_url, db, task):
    assert race(database_url, task, db, 10_000)[None] == 10_000


def test_a_planned_run_skips_the_spacing_and_touches_no_schedule(environ, db, task, store, queue):
    start(db, task, NOW - SECOND)
    put(db, task, run_token=None, running_until=None)
    before = ticker.get(db, task)
    [run_id] = ticker.run_now(db, task)
    tick(store, queue)
    planned = start_planned(db, task, run_id, NOW + SECOND)
    after = ticker.get(db, task)
    assert planned["refusal"] is None
    assert (after.last_run, after.last_occurrence) == (before.last_run, before.last_occurrence)
    assert after.running_until == NOW + 32 * SECOND


@pytest.mark.parametrize(
    ("columns", "reason"),
    [({"enabled": False}, "paused"), ({"owner_active": False}, "paused"), ({"paused_by": "me"}, None),
     ({"run_token": uuid4(), "running_until": NOW + SECOND}, "still_running"), ({"function": "x"}, "unknown_here")],
)  # fmt: skip
def test_a_manual_run_obeys_enabled_and_the_hold(db, task, columns, reason):
    [run_id] = ticker.run_now(db, task)
    put(db, task, **columns)
    answer = planned_start(db, task, run_id)
    assert answer == reason
    run = ticker.list_runs(db)[0]
    assert (run.id, run.reason) == (run_id, reason or "")


def test_a_copy_of_a_manual_run_is_an_event_on_its_record(db, task):
    [run_id] = ticker.run_now(db, task)
    assert planned_start(db, task, run_id) is None
    assert planned_start(db, task, run_id) == "redelivered"
    [original] = ticker.list_runs(db)
    assert (original.id, original.state) == (run_id, "running")
    assert [event[:3] for event in events(db, "task_id, what, run_id, words")] == [(task.id, "redelivered", run_id)]


def test_a_planned_job_never_runs_another_tasks_function_under_the_row_of_a_planned_run(environ, db, task):
    """Tables that were made anew give the same ids to other runs."""
    other = ticker.register(db, "poll", name="other", every="1m")
    [run_id] = ticker.run_now(db, other)
    assert planned_start(db, task, run_id) == "stale"
    [planned] = ticker.list_runs(db)
    assert (planned.task_id, planned.state) == (other.id, "planned")
    assert events(db, "task_id, what, run_id, words") == [
        (0, "stale", None, sentence("why.stale_run", job="j", worker="w", task=task.id, run=run_id))
    ]


def planned_start(db, task, run_id):
    return start_planned(db, task, run_id)["refusal"]


def test_an_occurrence_that_has_started_does_not_start_again_although_the_clock_was_set_back_over_it(db, task):
    """What the task keeps of its last occurrence was pulled back with the clock; the record of the start was not."""
    start(db, task, NOW)
    put(db, task, last_run=NOW - 60 * MINUTE, last_occurrence=NOW - 60 * MINUTE, run_token=None, running_until=None)
    assert start(db, task, NOW)["refusal"] == "redelivered"


@pytest.mark.parametrize(("outcome", "reason"), [("dropped", "expired"), ("lost", "it died")])
def test_an_occurrence_that_the_sweep_gave_up_does_not_start_and_one_that_still_waits_does(outcome, reason, db, task):
    """A worker may have the job of either in hand, when Redis was wiped or it was stopped; the records tell."""
    put(db, task, waiting=[NOW - 2 * MINUTE, NOW - MINUTE, NOW])
    settled = {"ids": [task.id], "occurrences": [NOW - MINUTE], "outcomes": [outcome], "reasons": [reason]}
    sql.on(db, "ticker")("settle_waiting", **settled, now=NOW)
    assert start(db, task, NOW - MINUTE)["refusal"] == "redelivered"
    assert start(db, task, NOW - 2 * MINUTE)["refusal"] is None


@pytest.mark.slow
@pytest.mark.parametrize(("outcome", "reason"), [("dropped", "expired"), ("lost", "it died")])
def test_a_start_that_waited_for_the_sweep_sees_what_it_recorded(outcome, reason, db, task, database_url):
    """The statement's own view of the table is from before its wait."""
    put(db, task, waiting=[NOW - 2 * MINUTE, NOW])
    given_up = {"ids": [task.id], "occurrences": [NOW - 2 * MINUTE], "outcomes": [outcome], "reasons": [reason]}
    with connect(database_url) as sweep, connect(database_url) as watcher, ThreadPoolExecutor(1) as pool:
        with sweep.transaction():
            sql.on(sweep, "ticker")("claim_waiting", after=0, limit=10, now=None)
            waiting = pool.submit(late_start, sweep, db, task, NOW - 2 * MINUTE, now=NOW)
            until(lambda: watcher.execute(LOCK_AWAITED).fetchone(), "the start waits")
            sql.on(sweep, "ticker")("settle_waiting", **given_up, now=NOW)
        assert waiting.result()["refusal"] == "redelivered"


def test_a_start_is_handed_the_arguments_of_the_row_and_not_those_of_the_registration(environ, db, task):
    ticker.register(db, "poll", every="1m", tolerance="5s", kwargs={"host": "old"})
    ticker.edit(db, task, kwargs={"host": "new"})
    assert start(db, task, NOW)["kwargs"] == {"host": "new"}


@pytest.mark.promise("S8")
def test_a_run_that_lost_its_hold_writes_no_cursor_and_learns_it(environ, db, task):
    begun = start(db, task, NOW)
    quota = Quota(30, clock.monotonic())
    with closing(Database(environ["DATABASE_URL"], "ticker")) as database:
        run = Run(begun["run_id"], task.id, "poll", "", "", NOW, None, quota, str(uuid4()), database)
        with pytest.raises(HoldLost, check=sentence("errors.hold_lost", run=run.id, task=task.id).within):
            run.checkpoint("stale")
    assert ticker.get(db, task).cursor is None


@pytest.mark.parametrize(
    ("columns", "due"), [({"starts_at": NOW + 9 * MINUTE}, NOW + 9 * MINUTE), ({"ends_at": NOW + SECOND}, None)]
)
def test_a_clock_that_was_set_back_after_the_push_moves_no_next_run_over_the_bounds_of_the_schedule(
    columns, due, db, task
):
    ahead = NOW + 60 * MINUTE
    put(db, task, next_run=ahead + MINUTE, **columns)
    assert start(db, task, ahead, now=NOW)["refusal"] is None
    assert ticker.get(db, task).next_run == due
