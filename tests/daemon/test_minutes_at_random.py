"""Random ends, corrections, transactions, closings by two tickers, clock steps and prunings: the minutes equal a plain count.

Time is simulated, and lies in the past of the real clock. So the triggers take every end for a late one. An end that would not be
late is written without triggers, as it would be at its time.
"""

import random
from collections import Counter
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import ticker
from ticker import clock
from ticker.daemon.minutes import KEPT_MS, apply_changes, closed, sum_hour
from ticker.daemon.prune import lap
from ticker.db.connections import connect
from ticker.db.store import PostgresStore
from ticker.errors import RowLocked
from ticker.model import Outcome, Reason
from ticker.settings import Settings

BEGIN = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
SETTINGS = Settings()
Key = tuple[datetime, str, str, str]

pytestmark = pytest.mark.slow


class World:
    """Sessions with open transactions, two tickers, and a list of all ends that were committed."""

    def __init__(self, db: Any, url: str, seed: int, stack: ExitStack) -> None:
        self.chance, self.db, self.now = random.Random(seed), db, BEGIN
        self.sessions = [stack.enter_context(connect(url)) for _ in range(3)]
        self.pending: list[dict[int, Any] | None] = [None] * 3  # by session: the ends in its open transaction
        self.tickers = [PostgresStore(url) for _ in range(2)]
        for one in self.tickers:
            stack.callback(one.close)
        self.held: tuple[Any, Any, datetime, int] | None = None  # a ticker that has begun to close a minute
        self.ends: dict[int, tuple[datetime, str, str, int, int]] = {}
        self.task = ticker.register(db, "poll", every="1m", keep="none").id
        self.number = self.steps = 0
        with clock.use(lambda: self.now):
            [*closed(self.tickers[0], SETTINGS)]

    def step(self) -> None:
        name = self.chance.choices(
            ["pass_time", "end", "correct", "commit", "close", "half_close", "prune", "set_back"],
            [5, 8, 3, 4, 3, 2, 1, 0.2],
        )[0]
        self.steps += 1
        if self.held and self.steps - self.held[3] > 4:  # PostgreSQL ends a transaction that is idle for 10 s
            self.half_close()
        getattr(self, name)()

    # what happens

    def pass_time(self) -> None:
        """Hours pass only without open transactions: a minute is not counted again after two hours."""
        hours = self.chance.random() < 0.1 and not any(self.pending) and not self.held
        self.now += 3 * HOUR if hours else self.chance.choice([5, 20, 40, 90]) * SECOND

    def set_back(self) -> None:
        """A ticker sees that within a minute."""
        if self.held:
            self.half_close()
        self.now -= self.chance.choice([20, 90, 400]) * SECOND
        self.tickers[0].execute("reopen_minutes", now=self.now)

    def end(self) -> None:
        is_late = self.chance.random() < 0.4
        age = self.chance.uniform(10, 600) if is_late else self.chance.uniform(0, 9.9)
        self.number += 1
        self._write(self.number, is_late, "INSERT INTO ticker.runs (task_id, function, kind, occurrence, state, outcome, reason,"
            " started_at, ended_at, queue, worker) VALUES (%(task)s, %(function)s, 'scheduled', %(due)s, 'ended', %(outcome)s,"
            " %(reason)s, %(started)s, %(at)s, 'mail', %(id)s)", self._values(self.now - age * SECOND))  # fmt: skip

    def correct(self) -> None:
        """Changes a committed end: its outcome, and mostly its time. It is skipped if its record is gone, or in a transaction."""
        open_ = {id_ for ends in self.pending for id_ in ends or {}}
        ids = {int(id_) for (id_,) in self.db.execute("SELECT worker FROM ticker.runs")} & self.ends.keys() - open_
        if ids:
            id_ = self.chance.choice(sorted(ids))
            at, function, outcome = self.ends[id_][:3]
            values = {**self._values(at - self.chance.choice([0, 30, 300]) * SECOND, but=outcome), "function": function}
            self._write(id_, True, "UPDATE ticker.runs SET outcome = %(outcome)s, reason = %(reason)s,"
                " occurrence = %(due)s, started_at = %(started)s, ended_at = %(at)s WHERE worker = %(id)s", values)  # fmt: skip

    def commit(self) -> None:
        number = self.chance.randrange(3)
        if (ends := self.pending[number]) is not None:
            is_kept = self.chance.random() < 0.8
            self.sessions[number].execute("COMMIT" if is_kept else "ROLLBACK")
            self.ends |= ends if is_kept else {}
            self.pending[number] = None

    def close(self) -> None:
        with (
            clock.use(lambda: self.now),
            suppress(RowLocked),
        ):  # by the other ticker, which the real one would not wait for so long
            for _ in zip(range(self.chance.randrange(1, 6)), closed(self.tickers[0], SETTINGS), strict=False):
                pass

    def half_close(self) -> None:
        """The other ticker begins to close a minute, and later does so."""
        if self.held is None:
            transaction = self.tickers[1].transaction()
            execute = transaction.__enter__()
            rows = execute("next_minute", now=self.now, keep_ms=KEPT_MS)
            if rows:
                self.held = transaction, execute, rows[0]["at"], self.steps
            else:
                transaction.__exit__(None, None, None)
        else:
            transaction, execute, at, _ = self.held
            execute("close_minute", at=at, outcomes=[*Outcome], reasons=[*Reason])
            transaction.__exit__(None, None, None)
            self.held = None

    def prune(self) -> None:
        with clock.use(lambda: self.now), suppress(RowLocked):
            [*lap(self.tickers[0], SETTINGS)]

    # how it is written

    def _values(self, at: datetime, but: str = "") -> dict[str, Any]:
        outcome = self.chance.choice([one for one in ("succeeded", "failed", "lost", "dropped") if one != but])
        started = None if outcome == "dropped" else at - self.chance.uniform(0, 20) * SECOND
        return {"task": self.task, "function": self.chance.choice(["one", "two"]), "outcome": outcome, "at": at, "started": started,
                "reason": self.chance.choice(["paused", "gone"]) if outcome == "dropped" else "",
                "due": at - self.chance.uniform(20, 90) * SECOND}  # fmt: skip

    def _write(self, id_: int, is_late: bool, statement: str, values: dict[str, Any]) -> None:
        key = (values["at"], values["function"], values["outcome"], values["reason"])
        late, took = (milliseconds(values["started"], values["due"]), milliseconds(values["at"], values["started"]))
        number = self.chance.randrange(4)
        session = self.db if number == 3 else self.sessions[number]
        if number < 3 and self.pending[number] is None:
            session.execute("BEGIN")
            self.pending[number] = {}
        has_triggers = is_late or values["reason"] == "gone"
        session.execute(f"SET session_replication_role TO {'origin' if has_triggers else 'replica'}")
        session.execute(statement, {**values, "id": str(id_)})
        end = {id_: (*key, late, -1 if values["outcome"] == "lost" else took)}
        if number == 3:
            self.ends |= end
        else:
            self.pending[number] |= end  # type: ignore[operator]

    def settle(self) -> None:
        """All transactions end, and all minutes are closed."""
        if self.held:
            self.half_close()
        for number in range(3):
            while self.pending[number] is not None:
                self.commit()
        self.now = max([self.now, *(end[0] for end in self.ends.values())]) + 5 * MINUTE
        with clock.use(lambda: self.now):
            [*closed(self.tickers[0], SETTINGS)]


def milliseconds(later: datetime | None, earlier: datetime | None) -> int:
    """-1 for none."""
    return -1 if later is None or earlier is None else max(round((later - earlier) / timedelta(milliseconds=1)), 0)


def expected(world: World) -> tuple[Counter[Any], Counter[Any]]:
    """Counts and sums by minute, as a plain count gives them."""
    counts: Counter[Any] = Counter()
    sums: Counter[Any] = Counter()
    for at, function, outcome, reason, late, took in world.ends.values():
        key = at.replace(second=0, microsecond=0), function, outcome, reason
        counts[key] += 1
        sums[key, "started"] += late >= 0
        sums[key, "late"] += max(late, 0)
        sums[key, "took"] += max(took, 0)
        sums[key, "timed"] += took >= 0
    return counts, sums


@pytest.mark.parametrize("seed", range(8))
def test_the_minutes_are_what_a_plain_count_of_all_ends_gives(seed, db, database_url):
    with ExitStack() as stack:
        world = World(db, database_url, seed, stack)
        for _ in range(350):
            world.step()
        world.settle()
        counts, sums = expected(world)
        found = db.execute(
            "SELECT at, function, outcome, reason, count, started, late_ms, took_ms, took FROM ticker.minutes WHERE count <> 0"
        )
        assert world.ends
        rows = {tuple(row[:4]): row[4:] for row in found}
        assert {key: row[0] for key, row in rows.items()} == counts
        for key, (_, started, late_ms, took_ms, took) in rows.items():
            assert (started, sum(took)) == (sums[key, "started"], sums[key, "timed"])
            assert abs(late_ms - sums[key, "late"]) <= counts[key] and abs(took_ms - sums[key, "took"]) <= counts[key]
        assert db.execute("SELECT count(*) FROM ticker.minute_changes").fetchone() == (0,)
        hours = db.execute("SELECT at, sum(count) FROM ticker.hours GROUP BY at ORDER BY at").fetchall()
        of_minutes = db.execute(
            "SELECT hour, sum(count) FROM ticker.minutes, LATERAL (SELECT date_trunc('hour', at, 'UTC') AS hour) h WHERE count <> 0 AND"
            " EXISTS (SELECT FROM ticker.closed_minutes c WHERE c.at = hour + interval '59 minutes') GROUP BY 1 ORDER BY 1"
        ).fetchall()
        assert hours == of_minutes


def test_nothing_is_left_to_do_behind_it(db, database_url):
    with ExitStack() as stack:
        world = World(db, database_url, 1, stack)
        for _ in range(100):
            world.step()
        world.settle()
        with clock.use(lambda: world.now):
            assert [*closed(world.tickers[1], SETTINGS)] == []
        assert not apply_changes(world.tickers[1], SETTINGS) and not sum_hour(world.tickers[1], SETTINGS)
