"""The application of a fault run: it registers tasks and owners, and edits and deletes some of them without rest.

What it asks for and what it was answered stands in the journal: an operation that was answered by an error may have
happened or not, as in real life.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

import ticker
from tests.faults import keys, wide
from tests.faults.groups import CROWD, DEEDS, SLEEPS
from tests.faults.journal import Journal
from tests.faults.stage import Edits
from ticker import owners
from ticker.db.connections import connect

ARGUMENT_SECRET = "5ecret-of-the-arguments"
OWNERS = """
CREATE TABLE mailboxes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, address text NOT NULL, active boolean NOT NULL DEFAULT true
)"""
# function, interval, how many, more. The first ones are never edited: liveness is judged by them.
STEADY: tuple[tuple[str, str, int, dict[str, Any]], ...] = (
    ("poll.plain", "1s", 8, {}),
    ("poll.plain", "2s", 8, {"tolerance": "1s", "box": "600ms"}),
    ("poll.steps", "3s", 9, {}),
    ("poll.plain", "5s", 10, {}),
    ("poll.plain", "10s", 8, {}),
    ("poll.plain", "1d", 4, {}),
    ("poll.fails", "6s", 3, {}),
    ("poll.several", "4s", 8, {}),
    ("poll.lasts", "30s", 6, {"box": "5s", "queue": "slow"}),
)
GROUPED: dict[str, Any] = {"every": "6s", "tolerance": "1s", "box": "1500ms"}
ATTEMPTED_AGAIN = {"every": "15s", "retries": 1, "backoff": "1s"}
# Half of the crowd is due at the same time, the others are spread over the interval.
CROWDED: dict[str, Any] = {"every": "40s", "tolerance": "2s", "box": "26s", "queue": CROWD}
IN_STEP, SPREAD = 30, 30  # tasks, whatever the load is: they sleep
NEIGHBOURS, WITH_RETRIES = 8, 2  # of each function that runs in groups: they do nothing to others
# With limits: runs that close their key, work in pieces, or fail and are attempted again.
LIMITED: tuple[tuple[str, str, keys.Keys, dict[str, Any]], ...] = (
    ("poll.slows", "3s", (keys.HELD,), {}),
    ("poll.slows", "4s", ("host:a", keys.HELD), {"retries": 1, "backoff": "1s"}),
    ("poll.pieces", "10s", ("host:a",), {"retries": 1, "backoff": "1s"}),
    ("poll.pieces", "15s", ("host:b", keys.HELD), {}),
    ("poll.fails", "8s", ("host:a",), {"retries": 1, "backoff": "1s"}),
    ("poll.fails", "8s", ("host:b", "host:a"), {"retries": 1, "backoff": "1s"}),
)
ELASTIC = (("2s..8s", 4), ("3s..6s", 2), ("5s..1m", 2))
ONCE = 60
NASTY = ("swallows", "computes", "deaf", "leaves", "vanishes", "crashes", "exits", "shouts", "stops")
RESTLESS = 24  # tasks and owners that the client changes all the time


@dataclass
class Cast:
    """The tasks that exist at the start, by what is expected of them."""

    steady: list[int] = field(default_factory=list)
    nasty: list[int] = field(default_factory=list)
    poison: list[int] = field(default_factory=list)
    crowd: list[int] = field(default_factory=list)


def create_owners(db: psycopg.Connection[Any]) -> None:
    db.execute(OWNERS)
    for statement in owners.triggers("mailboxes", active_when="active"):
        db.execute(statement)  # type: ignore[call-overload]


def register_cast(
    db: psycopg.Connection[Any], load: float, seconds: float, *, shared: str = "", limits: bool = False
) -> Cast:
    """`load` 1.0 is some 25 runs a second, which two quiet cores carry. With the name of a function that shares its jobs in
    `shared`, most of them call that one. With `limits`, every second task has keys. Tasks with a single time have it within
    `seconds`."""
    cast, turns = Cast(), keys.in_turn(limits)

    def register(function: str, **fields: Any) -> int:
        return ticker.register(db, function, **fields | limited(next(turns), fields.get("kwargs", {}))).id

    for alone, every, count, more in STEADY:
        function = shared if shared and alone == "poll.plain" else alone
        for number in range(max(1, round(load * count))):
            kwargs = {"number": number, "password": ARGUMENT_SECRET}
            name = f"{function} {every} {number}"
            group = wide.GROUP if number % 2 else None
            cast.steady.append(register(function, name=name, every=every, kwargs=kwargs, group=group, **more))
    for number in range(round(load * ONCE)):
        at = datetime.now(UTC) + timedelta(seconds=seconds * (number + 1) / (load * ONCE + 1))
        cast.steady.append(register("poll.plain", name=f"once {number}", at=at, kwargs={"number": number}))
    for every, count in ELASTIC:
        for number in range(max(1, round(load * count))):
            kwargs = {"number": number, "password": ARGUMENT_SECRET}
            cast.nasty.append(register("poll.quiet", name=f"quiet {every} {number}", every=every, kwargs=kwargs))
    for name in NASTY:
        cast.nasty.append(register(f"poll.{name}", every="12s", box="1s", queue="slow"))
    for number in range(4):
        falls = {"name": f"falls {number}", "kwargs": {"number": number}}
        cast.nasty.append(register("poll.falls", every="12s", box="1s", queue="slow", **falls))
    for function in DEEDS:
        for number in range(max(2, round(load * NEIGHBOURS))):
            fields = GROUPED | (ATTEMPTED_AGAIN if number < WITH_RETRIES else {})
            name, kwargs = f"{function} {number}", {"number": number, "password": ARGUMENT_SECRET}
            cast.nasty.append(register(function, name=name, kwargs=kwargs, **fields))
    for number in range(IN_STEP + SPREAD):
        first = datetime.now(UTC) + timedelta(seconds=40 * max(number - IN_STEP, 0) / SPREAD)
        kwargs = {"number": number, "sleeps": SLEEPS[number % len(SLEEPS)]}
        cast.crowd.append(ticker.register(db, CROWD, name=f"crowd {number}", first=first, kwargs=kwargs, **CROWDED).id)
    for number, (function, every, own, more) in enumerate(LIMITED if limits else ()):
        fields = {"name": f"{function} {number}", "every": every, **limited(own, {"number": number}), **more}
        cast.nasty.append(ticker.register(db, function, **fields).id)
    cast.poison.append(ticker.register(db, "poll.nowhere", every="4s").id)
    cast.poison.append(ticker.register(db, "poll.plain", name="blocked", every="4s", queue="blocked").id)
    return cast


def limited(own: keys.Keys, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields that give a task its keys, besides its kwargs."""
    return {"limits": own, "kwargs": {**kwargs, "keys": own}} if own else {"limits": (), "kwargs": dict(kwargs)}


class Client(threading.Thread):
    """One thread, one connection, one operation after the other, drawn from a seed. With `limits`, half of the tasks that it
    registers or edits get keys."""

    def __init__(
        self, journal: Journal, database_url: str, seed: int, pause: float, edits: Edits, *, limits: bool = False
    ) -> None:
        super().__init__(daemon=True)
        self._limits = limits
        self._edits = edits
        self._restores = edits.restores
        self._journal = journal
        self._url = database_url
        self._draw = random.Random(f"client {seed}")
        self._pause = pause
        self._over = threading.Event()
        self._db: psycopg.Connection[Any] | None = None
        self._tasks: dict[int, int | None] = {}  # task -> owner
        self._operations = 0

    def run(self) -> None:
        choices = (self._register, self._edit, self._edit, self._switch, self._pause_it, self._run_now, self._delete,
                   self._delete_owner, self._switch_owner, self._pardon)  # fmt: skip
        deletes = (self._register, self._delete, self._delete_owner)
        while not self._over.wait(self._draw.expovariate(1 / self._pause)):
            is_deleting = self._edits.deleting.is_set() and self._tasks
            with self._edits.lock:
                try:
                    self._look_around()
                    few = len(self._tasks) < (1 if is_deleting else RESTLESS)
                    operation = self._register if few else self._draw.choice(deletes if is_deleting else choices)
                    operation()
                except (psycopg.Error, ticker.TickerError):
                    self._db = None  # a connection that broke in an operation is not used again

    def stop(self) -> None:
        self._over.set()
        self.join()

    def _look_around(self) -> None:
        """After a restore, the tasks and owners of the dump are there, and no others."""
        if self._restores != self._edits.restores:
            query = "SELECT id, owner_id::bigint FROM ticker.tasks WHERE owner_type = 'mailboxes'"
            self._tasks = dict(self._connected().execute(query).fetchall())
            self._restores = self._edits.restores

    # ------------------------------------------------------------------------------------------------- operations

    def _register(self) -> None:
        function = self._draw.choice(
            ["poll.plain", "poll.steps", "poll.goes", "poll.several", "poll.quiet", *2 * [*DEEDS]]
        )
        every = self._draw.choice(["2s", "3s", "5s"]) if function != "poll.quiet" else "2s..8s"
        kwargs: dict[str, Any] = {"version": self._operations}
        if function in DEEDS:
            kwargs["deed"] = self._draw.choice(DEEDS[function])
        fields = self._limited(kwargs)

        def register(db: psycopg.Connection[Any]) -> tuple[int, int]:
            with db.transaction():
                row = db.execute("INSERT INTO public.mailboxes (address) VALUES ('m') RETURNING id").fetchone()
                assert row is not None
                owner = ("mailboxes", str(row[0]))
                return ticker.register(db, function, every=every, owner=owner, **fields).id, row[0]

        task, owner = self._do("register", None, None, register, function=function, every=every)
        self._tasks[task] = owner

    def _edit(self) -> None:
        change: dict[str, Any] = self._draw.choice([
            {"every": "2s"}, {"every": "20s"}, {"every": "4s"}, {"every": "4s..16s"}, self._limited({"version": self._operations}),
            {"function": "poll.plain"}, {"function": "poll.steps"},
        ])  # fmt: skip
        task = self._some_task()
        self._do("edit", task, None, lambda db: ticker.edit(db, task, **change), change=change)

    def _switch(self) -> None:
        task = self._some_task()
        enabled = self._draw.random() < 0.6
        statement = "UPDATE ticker.tasks SET enabled = %s WHERE id = %s"
        self._do("enable" if enabled else "disable", task, None, lambda db: db.execute(statement, [enabled, task]))

    def _pause_it(self) -> None:
        task = self._some_task()
        if self._draw.random() < 0.5:
            self._do("pause", task, None, lambda db: ticker.pause(db, task, reason="a fault run", until=None))
        else:
            self._do("resume", task, None, lambda db: ticker.resume(db, task))

    def _run_now(self) -> None:
        task = (self._draw.random() < 0.5 and self._busy_task()) or self._some_task()
        within = self._draw.choice([None, "2s"])
        self._do("run_now", task, None, lambda db: ticker.run_now(db, task, once_within=within))

    def _delete(self) -> None:
        task = self._some_task()
        self._do("delete", task, None, lambda db: ticker.unregister(db, task))
        del self._tasks[task]

    def _delete_owner(self) -> None:
        owner = self._tasks[self._some_task()]
        self._do("delete_owner", None, owner, lambda db: db.execute("DELETE FROM mailboxes WHERE id = %s", [owner]))
        self._tasks = {task: of for task, of in self._tasks.items() if of != owner}

    def _switch_owner(self) -> None:
        owner = self._tasks[self._some_task()]
        active = self._draw.random() < 0.6
        statement = "UPDATE mailboxes SET active = %s WHERE id = %s"
        operation = "owner_active" if active else "owner_inactive"
        self._do(operation, None, owner, lambda db: db.execute(statement, [active, owner]))

    def _pardon(self) -> None:
        """Lets tasks that run alone for an hour run in groups again, as an operator would after fixing a function."""
        statement = "UPDATE ticker.tasks SET alone_until = NULL WHERE alone_until < '9999-01-01'"
        self._do("pardon", None, None, lambda db: db.execute(statement))

    def _limited(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Returns these kwargs, with the keys that are drawn for them."""
        drawn = self._draw.choice([keys.NONE, self._draw.choice(keys.CHOICES)]) if self._limits else keys.NONE
        return limited(drawn, kwargs)

    # ---------------------------------------------------------------------------------------------------- and how

    def _some_task(self) -> int:
        return self._draw.choice(sorted(self._tasks))

    def _busy_task(self) -> int | None:
        """Returns a task of the crowd that a run is at work for, as for a webhook that arrives during a poll."""
        query = "SELECT task_id FROM ticker.runs WHERE state = 'running' AND function = %s ORDER BY task_id"
        tasks = [task for (task,) in self._connected().execute(query, [CROWD])]
        return self._draw.choice(tasks) if tasks else None

    def _do(
        self, op: str, task: int | None, owner: int | None, act: Callable[[psycopg.Connection[Any]], Any], **more: Any
    ) -> Any:
        self._operations += 1
        of_owner = [t for t, of in self._tasks.items() if of == owner] if owner is not None else []
        about = {"op": op, "id": self._operations, "task": task, "tasks": of_owner, "owner": owner, **more}
        self._journal.write("client", phase="sent", **about)
        try:
            answer = act(self._connected())
        except BaseException as error:
            self._journal.write("client", phase="failed", error=str(error)[:200], **about)
            self._forget(error, task)
            raise
        if op == "register":
            about["task"] = answer[0]
        self._journal.write("client", phase="acked", **about)
        return answer

    def _forget(self, error: BaseException, task: int | None) -> None:
        """A task that deleted its own owner meanwhile."""
        if isinstance(error, ticker.UnknownTask) and task is not None:
            self._tasks.pop(task, None)

    def _connected(self) -> psycopg.Connection[Any]:
        if self._db is None or self._db.closed:
            self._db = connect(self._url, name="application")
        return self._db


def wait_for(condition: Callable[[], bool], seconds: float, *, pause: float = 0.1) -> bool:
    """Whether it came true in time."""
    end = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < end:
        time.sleep(pause)
    return met
