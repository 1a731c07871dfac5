"""Slots of limits: a start takes one of each of its keys, or none, and its end or the time gives them back."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from unittest.mock import Mock
from uuid import uuid4

import pytest

import ticker
from tests.harness import WORKER, finish, handed_out, start, start_planned
from tests.running import until
from ticker import clock
from ticker.db import sql
from ticker.db.connections import connect
from ticker.errors import DatabaseUnavailable
from wrappers.pipeline import start as pipeline_start
from wrappers.pipeline.context import Call
from wrappers.pipeline.start import NoRoom

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
RACERS = 16


@pytest.fixture
def limit(environ, db):
    """Declares limits of keys."""

    def declare(key, concurrency=None, rate=None, period=timedelta(minutes=1), burst=None):
        db.execute(
            "INSERT INTO ticker.limits (key, concurrency, rate, period_ms, burst) VALUES (%s, %s, %s, %s, %s)",
            [key, concurrency, rate, period and rate and period // timedelta(milliseconds=1), burst],
        )

    return declare


@pytest.fixture
def poll(environ, db):
    """Registers tasks, each with its keys."""
    made = []

    def register(*keys, **fields):
        made.append(
            ticker.register(db, "poll", name=f"task {len(made)}", **{"every": "1m", "tolerance": "5s", **fields})
        )
        put(db, made[-1], limits=[*keys])
        return made[-1]

    return register


def put(db, task, **columns):
    assignments = ", ".join(f"{name} = %({name})s" for name in columns)
    db.execute(f"UPDATE ticker.tasks SET {assignments} WHERE id = %(id)s", {**columns, "id": task.id})


def rooms(db, key):
    """The slots of the key that a run holds, or whose token is used up: of which kind, and until when."""
    query = "SELECT kind, until FROM ticker.slots WHERE key = %s AND until IS NOT NULL ORDER BY kind, until"
    return db.execute(query, [key]).fetchall()


def row(db, task, *columns):
    return db.execute(f"SELECT {', '.join(columns)} FROM ticker.tasks WHERE id = %s", [task.id]).fetchone()


def key(db, name, *columns):
    return db.execute(f"SELECT {', '.join(columns)} FROM ticker.limited_keys WHERE key = %s", [name]).fetchone()


class Race:
    """Racers with connections of their own start and end runs of their own tasks. Counts those that are active at a time."""

    def __init__(self, url, tasks, rounds):
        self.active = self.most = 0
        self._turn, self._rounds = threading.Lock(), rounds
        with ThreadPoolExecutor(len(tasks)) as pool:
            list(pool.map(lambda task: self._run(url, task), tasks))

    def _run(self, url, task):
        with connect(url) as db:
            for number in range(self._rounds):
                put(db, task, waiting=[NOW + number * MINUTE], last_run=None)
                token = str(uuid4())
                given = {"now": None, "pushed": False, "waits": True, "token": token}
                if start(db, task, NOW + number * MINUTE, **given)["refusal"] is not None:
                    continue
                with self.counted():
                    db.execute("SELECT pg_sleep(0.005)")
                assert finish(db, task, token, now=None)

    @contextmanager
    def counted(self):
        with self._turn:
            self.active += 1
            self.most = max(self.most, self.active)
        yield
        with self._turn:
            self.active -= 1


@pytest.mark.slow
def test_a_task_that_waits_for_its_other_key_keeps_out_none_that_can_start(db, limit, poll):
    limit("host", concurrency=1)
    limit("account", concurrency=1)
    holder, blocked, free = poll("account"), poll("host", "account"), poll("host")
    assert start(db, holder, NOW)["refusal"] is None
    for waiting, at in ((blocked, NOW), (free, NOW + SECOND)):
        put(db, waiting, waiting=[at])
    given = {**WORKER, "waits": True, "now": NOW + 2 * SECOND, "job_ids": ["j", "j"]}
    given.pop("job_id")
    answers = sql.on(db, "ticker")(
        "start", task_ids=[blocked.id, free.id], occurrences=[NOW, NOW + SECOND],
        tokens=[str(uuid4()), str(uuid4())], **given,
    )  # fmt: skip
    assert {answer["name"]: (answer["refusal"], answer["full_key"]) for answer in answers} == {
        blocked.name: ("no_room", "account"), free.name: (None, None),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.promise("S15")
def test_of_racers_with_two_keys_no_more_run_at_once_and_no_more_start_than_the_limits_allow(
    database_url, db, limit, poll
):
    limit("host", concurrency=5)
    limit("account", rate=200, period=SECOND, burst=4)
    race = Race(database_url, [poll(*keys) for keys in [("host", "account"), ("account", "host")] * (RACERS // 2)], 40)
    query = "SELECT started_at FROM ticker.runs WHERE state = 'ended' AND outcome = 'succeeded' ORDER BY 1"
    starts = [at for (at,) in db.execute(query).fetchall()]
    assert 1 < race.most <= 5
    assert len(starts) > 20
    assert all(
        later - first + 1 <= 200 * (starts[later] - starts[first]).total_seconds() + 4 + 1e-3
        for first in range(len(starts))
        for later in range(first, len(starts))
    )
    assert [kind for kind, _ in rooms(db, "host")] == []


def test_a_start_takes_a_slot_of_each_of_its_keys_and_its_end_gives_back_all_but_the_token(db, limit, poll):
    limit("host", concurrency=2)
    limit("account", concurrency=1, rate=60, burst=3)
    task, token = poll("host", "account"), str(uuid4())
    assert start(db, task, NOW, token=token)["refusal"] is None
    hold = NOW + 31 * SECOND
    assert rooms(db, "host") == [("run", hold)]
    assert rooms(db, "account") == [("run", hold), ("start", NOW + 3 * SECOND)]
    assert not finish(db, task, str(uuid4()))
    assert rooms(db, "host") == [("run", hold)]
    assert finish(db, task, token)
    assert (rooms(db, "host"), rooms(db, "account")) == ([], [("start", NOW + 3 * SECOND)])


@pytest.mark.slow
def test_what_has_no_room_for_one_of_its_keys_takes_no_slot_of_the_other(db, limit, poll):
    limit("host", concurrency=1)
    start(db, poll("host"), NOW)
    limit("account", concurrency=1)
    for keys in [("account", "host"), ("host", "account")]:
        verdict = start(db, poll(*keys), NOW, waits=True)
        assert (verdict["refusal"], verdict["full_key"]) == ("no_room", "host")
    assert rooms(db, "account") == []


def test_a_start_waits_for_no_slot_that_another_transaction_has_locked(database_url, db, limit, poll):
    limit("host", concurrency=1)
    task = poll("host")
    with connect(database_url) as other, other.transaction():
        other.execute("SELECT FROM ticker.slots FOR NO KEY UPDATE")
        assert start(db, task, NOW, waits=True)["refusal"] == "no_room"


@pytest.mark.slow
def test_a_start_does_not_wait_for_another_that_makes_slots(database_url, db, limit, poll):
    """Two starts that make slots of two keys in different orders would wait for each other."""
    limit("host", concurrency=20)
    for _ in range(10):
        assert start(db, poll("host"), NOW)["refusal"] is None
    one, two = poll("host"), poll("host")
    with connect(database_url) as other, other.transaction():
        assert start(other, one, NOW, waits=True)["refusal"] == "no_room"
        db.execute("SET lock_timeout = '2s'")
        assert start(db, two, NOW, waits=True)["refusal"] == "no_room"
    assert [start(db, task, NOW, waits=True)["refusal"] for task in (one, two)] == [None, None]


@pytest.mark.slow
@pytest.mark.parametrize("table", ["tasks", "runs"])
def test_a_planned_start_does_not_judge_by_holds_from_before_a_wait_for_a_row(table, database_url, db, limit, poll):
    limit("host", concurrency=2)
    holder, task = poll("host"), poll("host")
    [planned] = ticker.run_now(db, task)
    started = start(db, holder, NOW)["run_id"]
    asked = {**WORKER, "task_id": task.id, "run_id": planned, "token": str(uuid4()), "now": NOW}
    with connect(database_url) as other, connect(database_url) as third, other.transaction():
        other.execute(
            f"SELECT FROM ticker.{table} WHERE id = %s FOR NO KEY UPDATE", [(task.id, planned)[table == "runs"]]
        )
        db.execute("SET lock_timeout = '5s'")
        assert [row["refusal"] for row in sql.on(db, "ticker")("start_planned", **asked)] == ["locked"]
        close_key(third, "host", started)
    assert [run.state for run in ticker.list_runs(db, task=task)] == ["planned"]
    assert start_planned(db, task, planned)["refusal"] == "no_room"
    assert db.execute("SELECT count(*) FROM ticker.events WHERE what = 'stale'").fetchone() == (0,)


@pytest.mark.slow
def test_the_same_start_asked_again_takes_no_further_slot(db, limit, poll):
    limit("host", concurrency=2, rate=60, burst=2)
    task, token = poll("host"), str(uuid4())
    first, again = start(db, task, NOW, token=token), start(db, task, NOW, token=token)
    assert (again["refusal"], again["has_begun"], again["run_id"]) == (None, True, first["run_id"])
    assert [kind for kind, _ in rooms(db, "host")] == ["run", "start"]


def test_the_end_of_a_run_frees_its_slot_although_its_task_has_no_limits_any_more(db, limit, poll):
    limit("host", concurrency=1)
    task, token = poll("host"), str(uuid4())
    start(db, task, NOW, token=token)
    put(db, task, limits=None)
    assert finish(db, task, token) and rooms(db, "host") == []


def test_a_slot_whose_run_never_ended_is_free_after_its_hold(db, limit, poll):
    limit("host", concurrency=1)
    start(db, poll("host"), NOW)
    assert start(db, poll("host"), NOW, now=NOW + 30.999 * SECOND)["refusal"] == "no_room"
    assert start(db, poll("host"), NOW, now=NOW + 31 * SECOND)["refusal"] is None


@pytest.mark.slow
def test_an_end_that_waits_for_a_start_does_not_free_the_slot_that_the_start_takes(database_url, db, limit, poll):
    limit("host", concurrency=1)
    late, next_one, token = poll("host"), poll("host"), str(uuid4())
    start(db, late, NOW, token=token)
    with connect(database_url) as other, connect(database_url) as third, ThreadPoolExecutor(1) as pool:
        with other.transaction():
            after = NOW + 31 * SECOND  # the time of the slot is over, and no end was recorded
            assert start(other, next_one, NOW, now=after)["refusal"] is None
            ended = pool.submit(finish, third, late, token)
            until(lambda: is_waiting(db, third.info.backend_pid), "the end to wait for the start")
        assert ended.result(30)
    assert start(db, poll("host"), NOW, now=after, waits=True)["refusal"] == "no_room"


def is_waiting(db, pid):
    query = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s"
    return db.execute(query, [pid]).fetchone()[0]


@pytest.mark.slow
def test_after_the_clock_was_set_forward_a_slot_is_held_by_the_uptime_of_its_host(db, limit, poll):
    limit("host", concurrency=1)
    start(db, poll("host"), NOW, boot="this", uptime=1_000_000)
    later = NOW + HOUR
    assert start(db, poll("host"), later, now=later, boot="this", uptime=31_000_000)["refusal"] == "no_room"
    assert start(db, poll("host"), later, now=later, boot="this", uptime=32_000_001)["refusal"] is None


@pytest.mark.slow
def test_a_run_that_is_recorded_as_lost_after_the_clock_was_set_back_keeps_no_slot(db, limit, poll):
    limit("host", concurrency=1)
    start(db, poll("host"), NOW, boot="this", uptime=1_000_000)
    for uptime, left in [(32_000_000, 1), (33_000_001, 0)]:
        sql.on(db, "ticker")("end_overdue", now=NOW - HOUR, limit=10, boot="this", uptime=uptime)
        assert len(rooms(db, "host")) == left


@pytest.mark.slow
def test_a_lowered_limit_ends_no_run_and_lets_none_start_above_it(db, limit, poll):
    limit("host", concurrency=3)
    runs = {str(uuid4()): poll("host") for _ in range(3)}
    for token, task in runs.items():
        assert start(db, task, NOW, token=token)["refusal"] is None
    [(first,)] = db.execute("SELECT token::text FROM ticker.slots WHERE n = 1").fetchall()
    db.execute("UPDATE ticker.limits SET concurrency = 1")
    late = poll("host")
    for token in sorted(runs, key=lambda token: token == first):
        assert start(db, late, NOW, waits=True)["refusal"] == "no_room"
        assert finish(db, runs[token], token)
    assert start(db, late, NOW)["refusal"] is None
    assert start(db, poll("host"), NOW)["refusal"] == "no_room"


def asked_together(db, tasks):
    """The parameters of a request for many starts, of which the first is due last; and its tokens."""
    tokens = [str(uuid4()) for _ in tasks]
    occurrences = [NOW - n * SECOND for n, _ in enumerate(tasks)]
    for task, occurrence in zip(tasks, occurrences, strict=True):
        put(db, task, waiting=[occurrence])
    asked = {**WORKER, "task_ids": [task.id for task in tasks], "occurrences": occurrences, "tokens": tokens,
             "job_ids": ["j"] * len(tasks), "waits": True, "back": None, "now": NOW}  # fmt: skip
    return asked, tokens


def test_a_statement_for_many_starts_the_oldest_of_each_key_that_have_room(db, limit, poll):
    limit("host", concurrency=3)
    tasks = [poll("host") for _ in range(5)] + [poll("other"), ticker.register(db, "poll", name="free", every="1m")]
    asked, tokens = asked_together(db, tasks)
    refusals = {str(one["token"]): one["refusal"] for one in sql.on(db, "ticker")("start", **asked)}
    assert [refusals[token] for token in tokens] == ["no_room", "no_room", None, None, None, None, None]


def test_of_many_a_task_that_is_late_for_one_key_takes_no_slot_of_the_other(db, limit, poll):
    limit("account", concurrency=2)
    limit("host", concurrency=1)
    asked, tokens = asked_together(db, [poll("account", "host") for _ in range(2)])
    refusals = {str(one["token"]): one["refusal"] for one in sql.on(db, "ticker")("start", **asked)}
    assert [refusals[token] for token in tokens] == ["no_room", None]
    assert len(rooms(db, "account")) == len(rooms(db, "host")) == 1


def test_the_answer_says_when_a_token_falls_due_or_the_hold_of_a_key_ends(db, limit, poll):
    limit("host", rate=60, burst=1)
    start(db, poll("host"), NOW)
    verdict = start(db, poll("host"), NOW, waits=True)
    assert (verdict["full_key"], verdict["retry_at"]) == ("host", NOW + SECOND)
    db.execute("UPDATE ticker.limited_keys SET closed_until = %s", [NOW + MINUTE])
    assert start(db, poll("host"), NOW, waits=True)["retry_at"] == NOW + MINUTE


# ------------------------------------------------------------------------------------------------- what has no room


@pytest.mark.slow
def test_a_job_that_waits_for_room_changes_nothing(db, limit, poll):
    limit("host", concurrency=1)
    start(db, poll("host"), NOW)
    task = poll("host")
    put(db, task, waiting=[NOW])
    before = ticker.get(db, task)
    assert start(db, task, NOW, waits=True)["refusal"] == "no_room"
    assert ticker.get(db, task) == before
    assert ticker.list_runs(db, task=task) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "schedule", [{}, {"every": None, "tolerance": None, "at": "2100-01-01T00:00:00Z"}], ids=["interval", "once"]
)
def test_a_job_that_cannot_wait_for_room_goes_back_to_its_row_and_is_due_again(schedule, db, limit, poll):
    limit("host", concurrency=1)
    holder, token = poll("host"), str(uuid4())
    start(db, holder, NOW, token=token)
    task = poll("host", **schedule)
    put(db, task, waiting=[NOW], next_run=None if schedule else NOW + MINUTE)
    assert start(db, task, NOW, pushed=False)["refusal"] == "no_room"
    assert row(db, task, "waiting", "next_run", "dropped", "started") == ([], NOW, 0, 0)
    assert ticker.list_runs(db, task=task) == []
    finish(db, holder, token)
    assert start(db, task, NOW, pushed=False)["refusal"] is None


@pytest.mark.slow
@pytest.mark.parametrize("newer", ["waits", "is due"])
def test_only_the_newest_occurrence_goes_back_and_an_older_one_is_superseded(newer, db, limit, poll):
    limit("host", concurrency=1)
    later = NOW + MINUTE
    start(db, poll("host"), later, later)
    task = poll("host")
    put(db, task, waiting=[NOW, *([later] if newer == "waits" else [])], next_run=later + (newer == "waits") * MINUTE)
    before = ticker.get(db, task)
    assert start(db, task, NOW, later, pushed=False)["refusal"] == "superseded"
    [run] = ticker.list_runs(db, task=task)
    assert (run.outcome, run.reason) == ("dropped", "superseded")
    assert row(db, task, "next_run", "dropped") == (before.next_run, 1)


@pytest.mark.parametrize(
    ("columns", "refusal", "waits"),
    [
        ({}, "no_slot", "no_slot"), ({"waiting": [NOW, NOW + MINUTE]}, "superseded", None),
        ({"paused_by": "anna"}, "closed", "closed"), ({"last_occurrence": NOW}, "duplicate", None),
    ],
    ids=["alone", "a newer one waits", "paused", "a newer one has started"],
)  # fmt: skip
def test_what_a_group_gives_back_goes_back_to_its_row_unless_it_must_not_start(columns, refusal, waits, environ, db):
    """What may start, does not: it goes back for the reason of the group. Other refusals stay what they are."""
    task = ticker.register(db, "poll", every="1m")
    put(db, task, **{"waiting": [NOW], "next_run": NOW + 2 * MINUTE} | columns)
    given = {**WORKER, "now": NOW + SECOND, "back": "no_slot", "job_ids": ["j"]}
    [verdict] = sql.on(db, "ticker")("start", task_ids=[task.id], occurrences=[NOW], tokens=[str(uuid4())], **given)
    assert verdict["refusal"] == refusal
    reason, next_run, token = row(db, task, "wait_reason", "next_run", "run_token")
    assert (reason, next_run == NOW, token) == (waits, waits is not None, None)
    assert [run.reason for run in ticker.list_runs(db)] == [refusal] * (waits is None)


@pytest.mark.slow
def test_pieces_take_slots_that_the_run_that_made_them_has_given_back(db, limit, poll):
    limit("host", concurrency=1)
    task = poll("host")
    run_id = handed_out(db, task, "1", "2")
    assert rooms(db, "host") == []
    query = "SELECT id FROM ticker.runs WHERE parent_id = %s ORDER BY id"
    first, second = (one for (one,) in db.execute(query, [run_id]).fetchall())
    token = str(uuid4())
    assert start_planned(db, task, first, NOW, token=token)["refusal"] is None
    assert start_planned(db, task, second, NOW)["refusal"] == "no_room"
    state, due_at, pushed_at, outcome = db.execute(
        "SELECT state, due_at, pushed_at, outcome FROM ticker.runs WHERE id = %s", [second]
    ).fetchone()
    assert (state, due_at <= NOW, pushed_at, outcome) == ("planned", True, None, None)
    assert finish(db, task, token)
    assert start_planned(db, task, second, NOW + 5 * SECOND)["refusal"] is None


@pytest.mark.parametrize(("seconds", "asked"), [(0.1, [True, True]), (9, [True, False]), (None, [True, True])])
def test_a_job_waits_for_room_that_it_may_get_in_a_moment(seconds, asked, monkeypatch):
    begun, found, slept = Mock(spec=Call, start=Mock(names=("polls", "-"), run_id=1)), [], []

    def ask_all(calls, tokens, give_up_at, when_it_waits, *, waits, first):
        found.append(waits)
        return [begun if slept else NoRoom("a", seconds) if waits else "limited: 'a' has no room"]

    monkeypatch.setattr(pipeline_start, "ask_all", ask_all)
    monkeypatch.setattr(pipeline_start.time, "sleep", slept.append)
    call = Mock(task_id=1)
    assert pipeline_start.ask(call) == (begun if all(asked) else "limited: 'a' has no room")
    assert call.database.wake_tickers.called == (not all(asked))
    assert (found, slept) == (asked, [seconds or pipeline_start.LOOK_AGAIN] if all(asked) else [])


def test_a_job_waits_for_20_seconds_in_all_for_a_server_and_a_locked_row(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    monkeypatch.setattr(pipeline_start.time, "sleep", lambda seconds: now.append(now.pop() + seconds))

    def open_() -> None:
        if not 5 < now[0] < 15:
            raise DatabaseUnavailable("the server is away")

    def locked(calls, tokens, first, *, waits):
        return [pipeline_start.Asked(0.0, 0.0, now[0], {"token": token, "refusal": "locked"}) for token in tokens]

    monkeypatch.setattr(pipeline_start, "decide_all", locked)
    call = Mock(task_id=1)
    call.database.open = open_
    with pytest.raises(DatabaseUnavailable, match="the server is away"):
        pipeline_start.ask(call)
    assert now[0] <= pipeline_start.PATIENCE + pipeline_start.PAUSE


# -------------------------------------------------------------------------------------------------------------- holds


def close_key(db, name, run_id, now=NOW, for_ms=None):
    [answer] = sql.on(db, "ticker")("close_key", key=name, run_id=run_id, for_ms=for_ms, age=0.0, now=now)
    return answer


@pytest.mark.slow
def test_a_hold_without_a_time_doubles_from_a_minute_to_an_hour_and_a_success_forgets_it(db, limit, poll):
    limit("host", concurrency=3)
    at, spans = NOW, []
    for _ in range(8):
        task, token = poll("host", every="1d"), str(uuid4())
        run_id = start(db, task, at, at, token=token)["run_id"]
        spans.append((close_key(db, "host", run_id, at)["closed_until"] - at) // MINUTE)
        assert finish(db, task, token, "slowed_down", now=at)
        at += spans[-1] * MINUTE
    assert spans == [1, 2, 4, 8, 16, 32, 60, 60]
    task, token = poll("host"), str(uuid4())
    assert start(db, task, at, at, token=token)["refusal"] is None
    assert finish(db, task, token, now=at)
    assert key(db, "host", "closed_step", "allowed") == (0, 2)


def test_runs_that_were_active_when_a_key_was_held_do_not_double_its_hold(db, limit, poll):
    limit("host", concurrency=3)
    runs = [start(db, poll("host"), NOW)["run_id"] for _ in range(3)]
    assert [close_key(db, "host", run, NOW + SECOND)["closed_until"] for run in runs] == [NOW + 61 * SECOND] * 3
    assert key(db, "host", "closed_step") == (1,)


def test_nothing_of_a_key_starts_before_its_hold_ends_and_a_longer_hold_wins(db, limit, poll):
    limit("host", concurrency=3)
    task, token = poll("host"), str(uuid4())
    run_id = start(db, task, NOW, token=token)["run_id"]
    close_key(db, "host", run_id, for_ms=5_000)
    close_key(db, "host", run_id, for_ms=1_000)
    assert finish(db, task, token)
    assert start(db, poll("host"), NOW, NOW + 4.999 * SECOND, waits=True)["refusal"] == "no_room"
    assert start(db, poll("host"), NOW, NOW + 5 * SECOND, waits=True)["refusal"] is None


@pytest.mark.slow
@pytest.mark.parametrize(("concurrency", "allowed"), [(5, [1, 2, 4, None]), (None, [1, 2, 4, 8, 16, 32, None])])
def test_after_a_hold_one_run_starts_first_and_each_success_doubles_the_number(concurrency, allowed, db, limit, poll):
    limit("host", concurrency=concurrency, rate=None if concurrency else 10_000, burst=None if concurrency else 1000)
    before, token = poll("host"), str(uuid4())
    run_id = start(db, before, NOW - SECOND, NOW - SECOND, token=token)["run_id"]
    close_key(db, "host", run_id, NOW - SECOND, for_ms=1_000)
    db.execute(
        "INSERT INTO ticker.slots (key, kind, n) SELECT key, 'start', generate_series(11, burst) FROM ticker.limited_keys"
    )
    assert finish(db, before, token)  # it had started before the hold ended, so its success does not count
    seen = []
    while len(seen) < 9:
        seen.append(key(db, "host", "allowed")[0])
        if seen[-1] is None:
            break
        pairs = [(poll("host"), str(uuid4())) for _ in range(seen[-1] + 1)]
        verdicts = [start(db, task, NOW, token=token)["refusal"] for task, token in pairs]
        assert verdicts == [None] * seen[-1] + ["no_room"]
        (first, token), *others = pairs[:-1]
        for task, other in others:
            assert finish(db, task, other, "failed")
        assert finish(db, first, token)
    assert seen == allowed


def test_a_hold_from_ahead_of_the_clock_begins_again_with_the_next_one(db, limit, poll):
    """The clock was set back by a day, and no tick has seen it yet. Afterwards, none could: the time of the last hold is not ahead."""
    limit("host", concurrency=3)
    run_id = start(db, poll("host"), NOW)["run_id"]
    close_key(db, "host", run_id, NOW, for_ms=60_000)
    earlier = NOW - timedelta(days=1)
    assert close_key(db, "host", run_id, earlier, for_ms=1_000)["closed_until"] == earlier + MINUTE
    assert close_key(db, "host", run_id, earlier + SECOND, for_ms=90_000)["closed_until"] == earlier + 91 * SECOND


def test_a_held_off_end_is_no_failure_and_has_no_follow_up(db, limit, poll):
    limit("host", concurrency=3)
    task, token = poll("host", retries=3), str(uuid4())
    start(db, task, NOW, token=token)
    assert finish(db, task, token, "slowed_down")
    assert row(db, task, "last_outcome", "failures", "failed", "run_token") == ("slowed_down", 0, 0, None)
    assert db.execute("SELECT follow_up FROM ticker.runs").fetchall() == [(False,)]


def test_a_key_that_another_transaction_has_locked_is_held_later(database_url, db, limit, poll):
    limit("host", concurrency=1)
    run_id = start(db, poll("host"), NOW)["run_id"]
    with connect(database_url) as other, other.transaction():
        other.execute("UPDATE ticker.limits SET concurrency = 2")
        assert close_key(db, "host", run_id) == {"is_locked": True, "closed_until": None}
    assert close_key(db, "host", run_id) == {"is_locked": False, "closed_until": NOW + MINUTE}


# ------------------------------------------------------------------------------------------------------- rows of slots


@pytest.mark.slow
def test_a_limit_takes_few_rows_until_runs_need_more(db, limit):
    """1,000 places for each of 20,000 keys took 2.7 GB in a second; `application` may declare both."""
    ticker.register(db, "poll", every="1h", limits=["account:0"])
    limit("account:*", concurrency=1000, rate=1000, burst=1000)
    for number in range(1, 20):
        ticker.register(db, "poll", name=f"poll {number}", every="1h", limits=[f"account:{number}"])
    assert db.execute("SELECT count(*), count(DISTINCT key) FROM ticker.slots").fetchone() == (400, 20)
    db.execute("UPDATE ticker.limits SET concurrency = 2000, rate = 2000, burst = 2000")
    assert db.execute("SELECT count(*) FROM ticker.slots").fetchone() == (400,)


@pytest.mark.slow
@pytest.mark.parametrize("declared", [{"concurrency": 25}, {"rate": 25, "burst": 25}], ids=["runs", "starts"])
def test_a_limit_above_the_first_rows_lets_exactly_so_many_start(declared, db, limit, poll):
    limit("host", **declared)
    asked = [(task, start(db, task, NOW, waits=True)) for task in [poll("host") for _ in range(30)]]
    again = [(task, start(db, task, NOW, waits=True)) for task, answer in asked if answer["refusal"]]
    known = [answer["retry_at"] is not None for _, answer in asked if answer["refusal"]]
    assert known == [False, False, *["rate" in declared] * 3]  # twice, more rows were made
    assert [answer["refusal"] for _, answer in again] == ["no_room"] * 5
    assert db.execute("SELECT count(*), max(n) FROM ticker.slots").fetchone() == (25, 25)
    with clock.use(lambda: NOW):
        assert [one.tokens for one in ticker.list_limits(db)] == [0 if "rate" in declared else None]


@pytest.mark.slow
def test_a_limit_of_very_many_keys_is_declared_without_slots_which_their_starts_make(db, limit, poll):
    with db.transaction():
        names = [f"account:{number}" for number in range(1001)]
        db.execute("SELECT set_config('ticker.keys', %s, true)", [",".join(names)])
        task = poll(names[0])
    limit("account:*", concurrency=3, rate=3, burst=3)
    assert db.execute("SELECT count(*) FROM ticker.slots").fetchone() == (0,)
    for refusal in ("no_room", None):
        answer = start(db, task, NOW, waits=True)
        assert (answer["refusal"], answer["retry_at"]) == (refusal, None)
    assert db.execute("SELECT kind, count(*) FROM ticker.slots GROUP BY kind ORDER BY kind").fetchall() == [
        ("run", 3), ("start", 3),
    ]  # fmt: skip
