"""Sets up and removes the demo's servers, tables, processes, mailboxes and their mail.

Servers that you name are left unchanged. The tables have their own schemas. A Redis database that RQ already uses is
refused, because your workers would take the demo's jobs, and its workers would take yours.
"""

import os
import shlex
import signal
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from unittest.mock import patch

from ticker import migrations, settings
from ticker.db import connections
from ticker.demo import application
from ticker.engine import jobs
from ticker.errors import ConfigurationError, Unavailable
from ticker.queue import rq
from ticker.queue.scripts import PREFIX
from wrappers.sandbox import subreaper

SCHEMA = "ticker_demo"
SCHEMAS = (application.SCHEMA, SCHEMA)
RQ_KEYS = f"{PREFIX}:*"
PATIENCE = 4.0  # seconds at pace 1 from SIGTERM to SIGKILL: a worker first lets its run end, within 2.5 s
_LINES = files("ticker.demo").joinpath("Procfile").read_text(encoding="utf-8").splitlines()
PROCFILE = {
    name: line.rpartition(" && exec ")[2]
    for name, _, line in (line.partition(": ") for line in _LINES)
    if name[0] != "#"
}  # the same as the Procfile at the top of the repository, without what `prepared` does
QUIET = 0.08  # maximum seconds that a start takes on a machine of pace 1


def measure_pace(starts: int = 5) -> float:
    """Measures the start of a small Python process. Returns how many times slower it is than on a quiet machine, at least 1."""
    began = time.monotonic()
    for _ in range(starts):  # in a session of its own, which Ctrl-C does not reach
        subprocess.run([sys.executable, "-ISc", "sum(range(1_000_000))"], start_new_session=True, check=False)
    return max((time.monotonic() - began) / starts / QUIET, 1.0)


@contextmanager
def prepared(servers: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Prepares both servers and sets the environment of this process and its children. Yields the changed variables."""
    chosen = {**servers, "TICKER_SCHEMA": SCHEMA, "TICKER_TICK": "0.5s"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TICKER_")}
    with ExitStack() as at_the_end, patch.dict(os.environ, kept | chosen, clear=True):
        given = settings.from_environment()
        urls = given.require_database(), given.require_redis()
        refuse_what_is_in_use(*urls)
        at_the_end.callback(clear, *urls)
        migrations.upgrade(urls[0], SCHEMA)
        application.create()
        yield {name: value for name, value in chosen.items() if kept.get(name) != value}


def refuse_what_is_in_use(database_url: str, redis_url: str) -> None:
    """Raises ConfigurationError if another demo or RQ already uses the servers. Writes nothing."""
    try:
        with connections.translated(), connections.connect(database_url) as db:
            used = db.run("SELECT nspname AS name FROM pg_namespace WHERE nspname = ANY ($1)", [list(SCHEMAS)])
        with rq.translated(), closing(rq.connect(redis_url)) as redis:
            busy = next(redis.scan_iter(RQ_KEYS, count=1000), None) is not None
    except Unavailable as error:
        raise ConfigurationError(str(error)) from None
    if used:
        raise ConfigurationError(
            f"DATABASE_URL: there are schemas from another demo that is running or was killed; if none is running: "
            f"DROP SCHEMA {', '.join(row['name'] for row in used)} CASCADE"
        )
    if busy:
        raise ConfigurationError(
            "REDIS_URL: RQ already uses this database, and its workers and the demo's would take each other's jobs; "
            "name another one, such as redis://localhost:6379/9, or unset it"
        )


def clear(database_url: str, redis_url: str) -> None:
    """Removes everything that the demo created on the servers."""
    application.sessions.cache_clear()
    with connections.connect(database_url) as db:
        db.run(f"DROP SCHEMA IF EXISTS {', '.join(SCHEMAS)} CASCADE", [])
    with closing(rq.connect(redis_url)) as redis:
        for key in [*redis.scan_iter(RQ_KEYS, count=1000), *redis.scan_iter(f"{jobs.LEASE_PREFIX}*", count=1000)]:
            redis.unlink(key)


class Processes:
    """Commands, each with its own log. `close` ends them and all of their children."""

    def __init__(self, logs: Path, patience: float) -> None:
        self._logs, self._patience = logs, patience
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._killed: set[int] = set()
        subreaper.become_subreaper()  # the work-horse of a killed worker becomes our child
        self._others = subreaper.children()

    def start(self, name: str, command: str) -> None:
        """Runs the command in a session of its own, which Ctrl-C does not reach. Our programs come first in PATH."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        with (self._logs / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                shlex.split(command), env=os.environ | {"PATH": path, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def kill(self, pid: int) -> None:
        """Kills one process with SIGKILL. The command that it belongs to may end as well."""
        with suppress(ProcessLookupError):
            self._killed.add(os.getsid(pid))
            os.kill(pid, signal.SIGKILL)

    def check(self) -> None:
        """Raises ChildProcessError if a command ended by itself."""
        for name, process in self._running.items():
            if process.pid not in self._killed and (code := process.poll()) is not None:
                last = (self.log(name).splitlines() or [""])[-1]
                raise ChildProcessError(f"{name} ended unexpectedly with exit code {code}: {last}")

    def close(self) -> None:
        """Ends all commands: with SIGTERM, then with SIGKILL."""
        for process in self._running.values():
            process.terminate()
        deadline = time.monotonic() + self._patience
        for process in self._running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(deadline - time.monotonic(), 0))
        subreaper.kill_new_children(self._others)
        self._running.clear()

    def log(self, name: str) -> str:
        return (self._logs / f"{name}.log").read_text(errors="replace")

    def logs(self) -> str:
        return "\n".join(f"--- {log.stem}\n{self.log(log.stem).rstrip()}" for log in sorted(self._logs.glob("*.log")))


class Post(socketserver.ThreadingTCPServer):
    """A POP3 server with mailboxes in memory (the part of RFC 1939 that a poll needs). Serves inside its `with` block."""

    daemon_threads, block_on_close = True, False
    request_queue_size = 128  # with the default of 5, a burst of polls would wait 1 s for the kernel's second SYN

    def __init__(self, pace: float) -> None:
        super().__init__(("127.0.0.1", 0), Session)
        self.retrieved: list[tuple[str, int]] = []  # mailbox and UID of each message that a client received in full
        self.delays = {"archive": 0.08 * pace, "legacy": 60 * pace}  # seconds per message
        self.stopped: float | None = None  # when the last mail arrived, by time.monotonic(); None while more arrives
        self._pace, self._began = pace, time.monotonic()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def newest(self, mailbox: str) -> int:
        """Returns the UID of the newest message; the oldest is 1. The archive gets six messages while others get one."""
        arrived = int(((self.stopped or time.monotonic()) - self._began) / self._pace)
        return 40 + 6 * arrived if mailbox == "archive" else 1 + arrived


class Session(socketserver.StreamRequestHandler):
    """The connection of a client. A command after RETR shows that the client has received the message."""

    server: Post
    disable_nagle_algorithm = True

    def handle(self) -> None:
        user, newest, sent = "", 0, 0
        with suppress(OSError):  # a client may leave, or be killed
            self.say("+OK the demo's mailboxes")
            for line in self.rfile:
                verb, _, rest = line.decode("ascii", "replace").strip().partition(" ")
                if sent:
                    self.server.retrieved.append((user, sent))
                    sent = 0
                if verb == "USER":
                    user, newest = rest, self.server.newest(rest)
                if verb == "UIDL":
                    self.say("+OK", *(f"{uid} {uid}" for uid in range(1, newest + 1)), ".")
                elif verb == "RETR":
                    sent = int(rest)
                    self.say("+OK", f"Subject: No. {sent}")
                    time.sleep(self.server.delays.get(user, 0))  # in the middle of the message
                    self.say("", "Good day.", ".")
                else:
                    self.say("+OK")

    def say(self, *lines: str) -> None:
        self.connection.sendall("".join(f"{line}\r\n" for line in lines).encode())
