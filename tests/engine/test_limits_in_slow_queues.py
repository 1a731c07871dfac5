"""A key's starts come at the pace of its limit, however long its jobs wait in their queue. Played in the database's own time."""

from collections import deque
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from types import SimpleNamespace
from uuid import uuid4

import pytest

import ticker
from tests.doubles import MemoryQueue
from tests.harness import WORKER, finish
from ticker.db import sql
from ticker.engine.jobs import instant
from ticker.engine.passes import Room
from ticker.engine.tick import Pass, TickOptions, push_keyed

SECOND = timedelta(seconds=1)
BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)
TICK = 30 * SECOND
PATIENCE = SECOND / 2  # a start that meets a full limit holds its worker for as long


class Line:
    """A queue whose jobs each reach a worker `delay` after their push. Its runs take `took`."""

    def __init__(self, db, store, *, delay, took):
        self._db, self._store, self._queue = db, store, MemoryQueue()
        self._delay, self._took = delay * SECOND, took * SECOND
        self._start = sql.on(db, "ticker")
        self._numbers, self._events = count(), []
        self._in_line = deque()  # when each job was pushed
        self.started, self.sent_back = [], 0

    def play(self, seconds):
        """Ticks as `ticker run` does, and starts the jobs when their time has come."""
        end, look, regular = BEGAN + seconds * SECOND, BEGAN, BEGAN
        while look < end:
            while self._events and self._events[0][0] <= look:
                at, _, act, *arguments = heappop(self._events)
                act(at, *arguments)
            delays = {"polling": (look - self._in_line[0]).total_seconds()} if self._in_line else {}
            work = Pass(self._store, Room(self._queue, {}), look, TickOptions(ahead=300, delays=delays))
            report = push_keyed(work, {})
            self._store.heartbeat("00000000-0000-0000-0000-000000000001", "host", 1, look, {})
            self._take_off(look)
            regular += TICK if look >= regular else timedelta(0)
            look = min(regular, *([report.look_at] if report.look_at else []))

    def _take_off(self, now):
        names = self._queue.waiting()
        for name in names:
            task, occurrence = name.split("-t")[1].split("-")
            self._in_line.append(now)
            heappush(
                self._events, (now + self._delay, next(self._numbers), self._reach, int(task), instant(int(occurrence)))
            )
        self._queue.forget(names, ["polling"])

    def _reach(self, now, task, occurrence):
        self._in_line.popleft()
        self._ask(now, task, occurrence, now + PATIENCE)

    def _ask(self, now, task, occurrence, give_up_at):
        token, given = str(uuid4()), {**WORKER, "now": now, "waits": now < give_up_at}
        given.pop("job_id")
        [verdict] = self._start(
            "start", task_ids=[task], occurrences=[occurrence], tokens=[token], job_ids=["j"], **given
        )
        if verdict["refusal"] is None:
            self.started.append(now)
            heappush(self._events, (now + self._took, next(self._numbers), self._end, task, token))
        elif now < give_up_at:
            heappush(self._events, (now + SECOND / 10, next(self._numbers), self._ask, task, occurrence, give_up_at))
        else:
            self.sent_back += verdict["refusal"] == "no_room"

    def _end(self, now, task, token):
        assert finish(self._db, SimpleNamespace(id=task), token, now=now)


@pytest.fixture
def line(environ, db, store):
    def play(*, tasks=300, delay, took=0.1, seconds=120, **limit):
        ticker.register(db, "poll", every="1m", tolerance="5s", limits=["api"])
        ticker.limit(db, "api", **limit)
        names = "name, function, kind, every_ms, tolerance_ms, box_ms, grace_ms, queue, limits, next_run"
        db.execute(
            f"INSERT INTO ticker.tasks ({names}) SELECT {names.replace('name', 'n::text', 1)} FROM ticker.tasks, generate_series(2, %s) n",
            [tasks],
        )
        db.execute(
            "UPDATE ticker.tasks SET next_run = %s::timestamptz + id * interval '1 microsecond'", [BEGAN - SECOND]
        )
        played = Line(db, store, delay=delay, took=took)
        played.play(seconds)
        return played

    return play


@pytest.mark.slow
@pytest.mark.parametrize(
    ("delay", "allowed", "limit"),
    [(0.3, 5, {"rate": "5/1s"}), (2, 5, {"rate": "5/1s"}), (30, 5, {"rate": "5/1s"}), (2, 6, {"concurrency": 3})],
)
def test_starts_come_at_the_pace_of_the_limit_however_long_their_queue_is(line, delay, allowed, limit):
    since, until = delay + 8, delay + 20
    played = line(delay=delay, took=0.5, seconds=until, **limit)
    started = sum(at >= BEGAN + since * SECOND for at in played.started)
    assert 0.85 <= started / (until - since) / allowed <= 1.1
    assert played.sent_back <= len(played.started) / 5


@pytest.mark.slow
def test_a_queue_without_workers_gets_no_more_jobs_of_a_key_than_start_within_half_a_minute(environ, db, line):
    played = line(delay=600, seconds=40, rate="5/1s")
    assert played.started == []
    [(waiting,)] = db.execute("SELECT count(*) FROM ticker.tasks WHERE waiting <> '{}'").fetchall()
    assert 100 <= waiting <= 5 * 30 + 5
