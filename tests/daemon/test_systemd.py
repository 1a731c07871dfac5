"""What systemd hears, on a real socket, of a real ticker: that it has begun, lives and ends, and nothing of one that hangs."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from math import inf
from uuid import uuid4

import pytest

from tests.running import PATIENCE, ROOT
from tests.sentences import sentence
from ticker import clock, embedded, migrations
from ticker.daemon import tick_job
from ticker.daemon.systemd import Systemd, address, half_of_watchdog
from ticker.daemon.tick_job import TickJob

HANGS = """
import threading
from ticker.daemon import loop, tick_job
tick_job.STUCK, loop.LAST_WORD = 0.2, 0.1
tick_job.tick = lambda *_, **__: threading.Event().wait()
from ticker.cli import main
main(["run"])
"""


class Heard:
    """A socket as systemd has it."""

    def __init__(self, name: str) -> None:
        self.environ = {"NOTIFY_SOCKET": name}
        self._wire = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._wire.bind(name.replace("@", "\0"))

    def all(self) -> list[str]:
        """What has come by now, and was not asked for before."""
        self._wire.settimeout(0)
        found = []
        while True:
            try:
                found.append(self._wire.recv(65536).decode())
            except BlockingIOError:
                return found

    def until(self, beginning: str, count: int = 1) -> list[str]:
        """Waits for so many messages that begin so; all that came up to the last of them."""
        self._wire.settimeout(PATIENCE)
        found: list[str] = []
        while sum(message.startswith(beginning) for message in found) < count:
            found.append(self._wire.recv(65536).decode())
        return found

    def close(self) -> None:
        self._wire.close()


@pytest.fixture(params=["path", "abstract"])
def heard(request):
    with tempfile.TemporaryDirectory() as folder:
        found = Heard(f"{folder}/notify" if request.param == "path" else f"@ticker-{uuid4()}")
        yield found
        found.close()


@contextmanager
def running(environ, *command):
    process = subprocess.Popen(
        [sys.executable, *(command or ("-m", "ticker", "run", "--tick", "0.2s"))], cwd=ROOT, env=os.environ | environ,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def stopped(process):
    process.send_signal(signal.SIGTERM)
    return process.wait(timeout=PATIENCE)


# ------------------------------------------------------------------------------------------------------- the messages


def test_a_service_says_that_it_has_begun_and_that_it_ends(heard):
    systemd = Systemd(heard.environ)
    systemd.begun()
    systemd.ends()
    assert heard.all() == ["READY=1", "STOPPING=1\nSTATUS=stopping"]


def test_a_status_is_said_once_and_on_one_line(heard):
    systemd = Systemd(heard.environ)
    for status in ("tick due=0", "tick due=0", "tick failed:\n no\troute"):
        systemd.report(True, status)
    assert heard.all() == ["STATUS=tick due=0", "STATUS=tick failed: no route"]


def test_nothing_is_said_where_nobody_listens():
    systemd = Systemd({"WATCHDOG_USEC": "1000000"})
    systemd.begun()
    assert systemd.report(True, "tick due=0") == inf


def test_it_pings_at_half_of_what_the_watchdog_waits(heard, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    systemd = Systemd({**heard.environ, "WATCHDOG_USEC": "30000000"})
    assert systemd.report(True, "") == 15
    now += 14
    assert systemd.report(True, "") == 1
    assert heard.all() == ["WATCHDOG=1"]
    now += 1
    assert systemd.report(True, "") == 15
    assert heard.all() == ["WATCHDOG=1"]


def test_it_does_not_ping_for_a_ticker_that_hangs(heard):
    systemd = Systemd({**heard.environ, "WATCHDOG_USEC": "2"})
    assert systemd.report(False, "hangs") == inf
    assert heard.all() == ["STATUS=hangs"]
    systemd.report(True, "hangs")
    assert heard.all() == ["WATCHDOG=1"]


@pytest.mark.parametrize(
    "environ",
    [{}, {"WATCHDOG_USEC": ""}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "9" * 19},
     {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}],
)  # fmt: skip
def test_nobody_waits_for_pings_of_ours(environ):
    assert half_of_watchdog(environ) is None


def test_a_watchdog_that_names_this_process_waits_for_its_pings():
    assert half_of_watchdog({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}) == 1.5


def test_what_is_no_socket_of_this_host_is_passed_over():
    assert [address(text) for text in ("", "vsock:2:1234", "/run/x", "@x")] == [None, None, "/run/x", "\0x"]


def test_a_systemd_that_is_away_is_warned_of_once_and_heard_again_later(caplog):
    with tempfile.TemporaryDirectory() as folder:
        systemd = Systemd({"NOTIFY_SOCKET": f"{folder}/notify"})
        systemd.begun()
        systemd.report(True, "tick due=0")
        assert [record.getMessage() for record in caplog.records] == [
            sentence("logs.systemd_does_not_hear", setting="NOTIFY_SOCKET", error="No such file or directory")
        ]
        heard = Heard(f"{folder}/notify")
        systemd.report(True, "tick due=1")
        assert heard.all() == ["STATUS=tick due=1"]
        heard.close()


# --------------------------------------------------------------------------------------------- whether a ticker lives


@pytest.fixture
def beat(store, queue, settings):
    return TickJob(store, queue, settings, threading.Event())


@pytest.fixture
def later(monkeypatch):
    """Makes the monotonic clock stand so many seconds from now."""
    now = clock.monotonic()
    return lambda seconds: monkeypatch.setattr(clock, "monotonic", lambda: now + seconds)


def test_a_ticker_lives_as_long_as_its_next_tick_is_not_long_overdue(beat, later):
    beat()
    later(60 + tick_job.STUCK - 1)  # two ticks of 30 s
    assert beat.moves()
    later(60 + tick_job.STUCK + 1)
    assert not beat.moves()


def test_a_tick_that_does_nothing_for_long_hangs(beat, later):
    beat.busy = True
    later(tick_job.STUCK - 1)
    assert beat.moves()
    later(tick_job.STUCK + 1)
    assert not beat.moves()


def test_a_long_tick_lives_as_long_as_it_takes_connections(beat, store, later):
    beat.busy = True
    for seconds in (100, 200, 300):
        later(seconds)
        with store.pool.connection():
            later(seconds + 1)
            assert beat.moves()
            later(seconds + tick_job.STUCK + 1)
            assert not beat.moves()  # none of them is kept so long
        later(seconds + 1)


def test_a_tick_that_fails_is_one_that_moves(beat, later, monkeypatch):
    monkeypatch.setattr(tick_job, "tick", lambda *_args, **_options: 1 / 0)
    later(1000)
    beat()
    assert beat.moves()
    assert beat.last_line == sentence("logs.tick_failed_on_its_own")


# --------------------------------------------------------------------------------------------------- a real process


@pytest.mark.slow
def test_a_ticker_tells_what_it_does_from_its_beginning_to_its_end(environ, heard):
    with running({**heard.environ, "WATCHDOG_USEC": "1000000"}) as process:
        assert heard.until("READY=1") == ["READY=1"]
        heard.until("STATUS=tick due=0 enqueued=0 errors=0 took=")
        heard.until("WATCHDOG=1", count=2)
        assert stopped(process) == 0
    assert heard.all()[-1] == "STOPPING=1\nSTATUS=stopping"


@pytest.mark.slow
def test_a_database_that_is_away_stops_no_pings(heard):
    with embedded.postgres() as postgres, embedded.valkey() as valkey:
        migrations.upgrade(postgres.url)
        servers = {"DATABASE_URL": postgres.url, "REDIS_URL": valkey.url}
        with running({**servers, **heard.environ, "WATCHDOG_USEC": "1000000"}) as process:
            heard.until("STATUS=tick due=0")
            postgres.kill()
            heard.until("STATUS=tick failed: PostgreSQL (DATABASE_URL) does not answer")
            heard.until("WATCHDOG=1", count=2)
            assert stopped(process) == 0


@pytest.mark.slow
def test_the_pings_end_when_a_tick_hangs(environ, heard):
    with running({**heard.environ, "WATCHDOG_USEC": "100000"}, "-c", HANGS) as process:
        heard.until("STATUS=a tick hangs")
        assert stopped(process) == 0
    assert heard.all() == ["STOPPING=1\nSTATUS=stopping"]
