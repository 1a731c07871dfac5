"""What a fault run plays on: two real servers, a proxy pair for each host, and processes that a supervisor restarts.

A *host* is a group of processes behind a proxy pair of its own, so that it can be cut off alone.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from redis import Redis

from tests import poolers
from tests.faults.address import server_of
from tests.faults.hosts import Cable, network
from tests.faults.journal import Journal
from tests.faults.proxy import Proxy
from tests.faults.topology import Databases, Redises, Way, databases, redises
from tests.running import ROOT
from ticker import embedded, migrations
from ticker.errors import TickerError
from ticker.queue.sentinel import Client
from wrappers.sandbox import subreaper

SECRET = "5ecret-of-the-settings"  # the embedded servers accept every password; none may be seen in a log
TICK = 1.0  # seconds
RESTART = 0.3  # seconds: how long the supervisor waits before it starts a process again
ANSWERED_WITHIN = 60.0  # seconds: longer than any fault of PostgreSQL
DEREGISTERED_WITHIN = 15.0  # seconds from SIGTERM to SIGKILL at the end of a run
ENDING = {signal.SIGKILL, signal.SIGTERM}
TICKERS = {"ticker-1": "host-a", "ticker-2": "host-b", "ticker-3": "host-b"}
HOSTS = ("host-a", "host-b", "host-c", "host-d", "host-app")
WORKER_HOSTS = ("host-c", "host-d")  # half of the workers on each
QUEUES = ("polling slow", "slow polling")  # in turn
CROWD_WORKERS = 3  # on the queue of the large group: one has it, the others listen idly
# Runs its arguments, and dies when the thread that started it does: nothing is left behind a harness that is killed.
LEASH = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])"


class Host:
    """A proxy pair, and the environment of the processes behind it; with a cable, in a network namespace of its own."""

    def __init__(self, name: str, stage: "Stage", cable: Cable | None, opened: ExitStack) -> None:
        own = stage.folder / "hosts" / name
        own.mkdir(mode=0o755, parents=True)
        record = stage.folder / f"redis-{name}.jsonl"
        self.name = name
        self.cable = cable
        self.prefix = cable.prefix if cable else ()
        self.postgres: Proxy | Way
        self.redis: Proxy | Way
        if isinstance(stage.postgres, Databases) and isinstance(stage.valkey, Redises):
            self.postgres, database_url = stage.postgres.way(own, opened, SECRET)
            self.redis, redis_url = stage.valkey.way(record, opened, SECRET)
        else:
            doors = (f"tcp:{cable.address}:0",) * 2 if cable else (own / ".s.PGSQL.5432", own / "redis")
            servers = server_of(stage.way), server_of(stage.valkey.url)
            self.postgres = opened.enter_context(Proxy(listen=doors[0], server=servers[0], kind="postgres"))
            self.redis = opened.enter_context(Proxy(listen=doors[1], server=servers[1], kind="redis", record=record))
            database_url = self.postgres.through(stage.way).replace("postgres@", f"postgres:{SECRET}@")
            redis_url = self.redis.through(stage.valkey.url).replace("://", f"://default:{SECRET}@")
        self.environ = {"DATABASE_URL": database_url, "REDIS_URL": redis_url}

    @property
    def proxies(self) -> "tuple[Proxy | Way, Proxy | Way]":
        return self.postgres, self.redis

    def heal(self) -> None:
        if self.cable:
            self.cable.plug()
        for proxy in self.proxies:
            proxy.heal()


class Process:
    """A command that is started again whenever it ends, unless it is held down."""

    def __init__(
        self, name: str, command: Sequence[str], environ: dict[str, str], logs: Path, journal: Journal
    ) -> None:
        self.name = name
        self._journal = journal
        self._command = command
        self._environ = environ
        self._log = logs / f"{name}.log"
        self._running: subprocess.Popen[bytes] | None = None
        self._start_at = 0.0
        self._lock = threading.Lock()
        self.held = False
        self.starts = 0

    def look(self) -> None:
        """What the supervisor does, several times a second."""
        with self._lock:
            if self._running is not None and self._running.poll() is not None:
                self._running = None
                self._journal.write("process", phase="end", id=self.id, name=self.name)
                self._start_at = time.monotonic() + RESTART
            if self._running is None and not self.held and time.monotonic() >= self._start_at:
                self._start()

    @property
    def id(self) -> str:
        """Of this start: what its runs call themselves."""
        return f"{self.name}#{self.starts}"

    def _start(self) -> None:
        self.starts += 1
        self._journal.write("process", phase="begin", id=self.id, name=self.name)
        more = {"PYTHONUNBUFFERED": "1", "FAULTS_PROCESS": self.id}
        with self._log.open("ab") as log:
            self._running = subprocess.Popen(
                [sys.executable, "-S", "-c", LEASH, *self._command], cwd=ROOT, env=os.environ | self._environ | more,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """0 while there is none."""
        with self._lock:
            return self._running.pid if self._running is not None and self._running.poll() is None else 0

    def send(self, number: signal.Signals, pid: int | None = None) -> None:
        """To its own process, or to the one that is given."""
        target = self.pid if pid is None else pid
        if target:
            if number in ENDING:
                self._journal.write("signal", process=self.id, pid=target, number=int(number))
            with suppress(ProcessLookupError):
                os.kill(target, number)

    @contextmanager
    def down(self, number: signal.Signals = signal.SIGKILL) -> Iterator[None]:
        """Ended, and not started again before the block ends."""
        self.held = True
        self.send(number)
        try:
            yield
        finally:
            self.held = False

    def below(self) -> list[list[int]]:
        """Its descendants, level by level: for a worker [[worker], [horse], [what the horse started], ...]."""
        levels, level = [], [self.pid] if self.pid else []
        while level := [child for pid in level for child in children_of(pid)]:
            levels.append(level)
        return levels

    def level(self, number: int) -> list[int]:
        """One level of `below`: 0 for the worker, 1 for its horse; empty where there is none."""
        return next(iter(self.below()[number : number + 1]), [])

    def end(self) -> None:
        """Asked first, then killed."""
        self.held = True
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)

    def is_gone(self) -> bool:
        return self.pid == 0


def children_of(pid: int) -> list[int]:
    with suppress(OSError):
        return [
            int(child)
            for thread in Path(f"/proc/{pid}/task").iterdir()
            for child in (thread / "children").read_text().split()
        ]
    return []


class Edits:
    """What faults ask of the client. It holds `lock` for each of its operations, and reads anew what there is when the
    number of `restores` has changed; while `deleting` is set it registers and deletes, and does nothing else."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.restores = 0
        self.replaced: set[str] = set()  # prefixes of jobs, of the installations that restores have ended
        self.deleting = threading.Event()


class Stage:
    """Everything that a nemesis can hit. Behind the `with` block of `opened` no process and no server is left."""

    def __init__(
        self, folder: Path, journal: Journal, postgres: embedded.Postgres | Databases, valkey: embedded.Valkey | Redises,
        cables: Mapping[str, Cable], started: ExitStack, way: str, workers: int, crowd: str,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.journal = journal
        self.postgres = postgres
        self.valkey = valkey
        self.way = way  # the URL to which the proxies lead
        if isinstance(postgres, Databases):
            postgres.promoted = lambda: journal.write("promoted")
        self.edits = Edits()
        self.broken: list[str] = []  # what a fault saw and no history shows
        self.servers = subreaper.children()  # the processes behind both, which are nobody's orphans
        # the embedded servers are no objects for several threads
        self.postgres_lock, self.redis_lock = threading.RLock(), threading.RLock()
        self.hosts = {name: Host(name, self, cables.get(name), started) for name in HOSTS}
        self.tickers = [self._process(n, "-m ticker run", self.hosts[h]) for n, h in TICKERS.items()]
        self.workers = [
            self._process(
                f"worker-{n + 1}", f"-m wrappers --tasks tests.faults.groups {QUEUES[n % 2]}",
                self.hosts[WORKER_HOSTS[2 * n // workers]],
            )
            for n in range(workers)
        ]  # fmt: skip
        self.workers += [
            self._process(
                f"worker-{workers + n + 1}", f"-m wrappers --tasks tests.faults.groups {crowd}",
                self.hosts[WORKER_HOSTS[n % 2]],
            )
            for n in range(CROWD_WORKERS if crowd else 0)
        ]  # fmt: skip

    def _process(self, name: str, command: str, host: Host) -> Process:
        environ = host.environ | {"TICKER_TICK": f"{TICK}s", "FAULTS_WITNESS": str(self.folder / "witness")}
        return Process(name, [*host.prefix, sys.executable, *command.split()], environ, self.folder, self.journal)

    @property
    def processes(self) -> list[Process]:
        return [*self.tickers, *self.workers]

    def another_ticker(self, name: str) -> Process:
        """One more, on the host of ticker-1, that nobody supervises."""
        return self._process(name, "-m ticker run", self.hosts["host-a"])

    def another_worker(self, name: str) -> Process:
        """One more, on the first host of workers, that nobody supervises."""
        return self._process(name, f"-m wrappers --tasks tests.faults.groups {QUEUES[0]}", self.hosts[WORKER_HOSTS[0]])

    # ------------------------------------------------------------------------------- the servers, past the proxies

    def insist(self, act: Callable[[psycopg.Connection[Any]], object]) -> None:
        """Does it on a new connection, again and again until that is answered."""
        end = time.monotonic() + ANSWERED_WITHIN
        while time.monotonic() < end:
            with suppress(psycopg.Error, TickerError), self.database() as db:
                act(db)
                return
            time.sleep(0.2)

    def database(self) -> psycopg.Connection[Any]:
        """A connection of the harness itself; it, and only it, is called `harness`."""
        return psycopg.connect(self.postgres.url, autocommit=True, application_name="harness", connect_timeout=10)

    def redis(self) -> Redis:
        return Client.from_url(self.valkey.url, socket_timeout=10)

    # ------------------------------------------------------------------------------------------------- life and end

    @contextmanager
    def playing(self) -> Iterator[None]:
        """The processes run, and are started again when they end."""
        over = threading.Event()
        supervisor = threading.Thread(target=self._supervise, args=(over,), daemon=True)
        supervisor.start()
        try:
            yield
        finally:
            self._end(self.processes)  # first: they die with the supervisor
            over.set()
            supervisor.join()

    @contextmanager
    def ended(self, processes: Sequence[Process]) -> Iterator[None]:
        """Ends further processes after the block."""
        try:
            yield
        finally:
            self._end(processes)

    def _supervise(self, over: threading.Event) -> None:
        while not over.wait(0.1):
            for process in self.processes:
                process.look()

    def _end(self, processes: Sequence[Process]) -> None:
        for process in processes:
            process.end()
        deadline = time.monotonic() + DEREGISTERED_WITHIN
        while not all(process.is_gone() for process in processes) and time.monotonic() < deadline:
            time.sleep(0.05)
        for process in processes:
            process.send(signal.SIGKILL)

    def may_promote(self, domain: str) -> tuple[str, ...]:
        """What a fault of Redis may do besides, where sentinels watch it: they promote the replica when it lasts."""
        return ("wipe",) if domain == "redis" and not self.wipes else ()

    @property
    def wipes(self) -> bool:
        """Whether a Redis that is killed comes back empty."""
        return not isinstance(self.valkey, Redises)

    def heal(self) -> None:
        """Whatever a fault left behind is undone: every network whole, both servers up and answering."""
        for host in self.hosts.values():
            host.heal()
        with self.postgres_lock, self.redis_lock:
            self.postgres.start()
            self.valkey.start()


@contextmanager
def opened(
    folder: Path, journal: Journal, *, own_hosts: bool = False, pooled: bool = False, workers: int = 4, crowd: str = "",
    ha: bool = False,
) -> Iterator[Stage]:  # fmt: skip
    """Servers with the tables; the processes do not run yet. `own_hosts`: each host in a network namespace. `pooled`: all
    reach PostgreSQL through PgBouncer in transaction mode. `crowd`: the queue of the large group, with more workers. `ha`:
    pairs of servers, one of which may take the place of the other."""
    (folder / "witness").mkdir(mode=0o777)
    subreaper.become_subreaper()
    with ExitStack() as started:
        cables = started.enter_context(network(HOSTS)) if own_hosts else {}
        postgres = started.enter_context(databases() if ha else embedded.postgres())
        valkey = started.enter_context(redises() if ha else embedded.valkey())
        way = postgres.url
        if pooled:
            way = poolers.through(started.enter_context(poolers.pooler(postgres.url)), postgres.url)
        others = subreaper.children()
        stage = Stage(folder, journal, postgres, valkey, cables, started, way, workers, crowd)
        migrations.upgrade(postgres.url)
        try:
            yield stage
        finally:
            subreaper.kill_new_children(others)
