"""Measures what processes and servers use: CPU, memory, sessions and write-ahead log. Reads /proc, so needs Linux."""

import os
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from redis import Redis

from tests.bench.figures import Stage
from tests.running import ROOT
from ticker.embedded.programs import postgres_programs

KEEPS_LOG = "--wal_keep_size=30GB"  # PostgreSQL's option for a stage: the log is read after what wrote it
SAMPLE = 1.0  # seconds
SESSIONS = "SELECT application_name, count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' GROUP BY 1"
POSITION = "SELECT pg_current_wal_lsn()::text"
TOTAL = re.compile(r"^Total\s+\d+\s+(\d+) \[.*?\]\s+(\d+) \[", re.MULTILINE)


@contextmanager
def running(*commands: Sequence[str], **environ: str) -> Iterator[list[int]]:
    """Runs programs, and yields their process ids. After the block, kills them and all their descendants.

    Their output goes to the file that BENCH_LOG names.
    """
    with ExitStack() as opened:
        log = opened.enter_context(Path(os.environ.get("BENCH_LOG", os.devnull)).open("a"))
        pids = []
        try:
            for command in commands:
                process = subprocess.Popen(command, cwd=ROOT, env=os.environ | environ, stdout=log, stderr=log)
                opened.callback(process.wait)
                pids.append(process.pid)
            yield pids
        finally:
            while left := [pid for pid, (_, _, state) in tree(*pids).items() if state != "Z"]:
                for pid in left:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.05)


def tree(*roots: int) -> dict[int, tuple[int, float, str]]:
    """Returns the roots and all living processes below them: the parent, seconds of CPU, and state of each.

    The CPU includes that of its ended children.
    """
    everyone = dict(_processes())
    found = {pid: everyone[pid] for pid in roots if pid in everyone}
    while more := {pid: one for pid, one in everyone.items() if one[0] in found and pid not in found}:
        found |= more
    return found


def _processes() -> Iterator[tuple[int, tuple[int, float, str]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                state, parent, *fields = (entry / "stat").read_text().rpartition(")")[2].split()
                yield int(entry.name), (int(parent), sum(map(int, fields[9:13])) / os.sysconf("SC_CLK_TCK"), state)


def cpu(roots: Sequence[int]) -> float:
    """Returns the seconds of CPU that the processes and all processes below them have used."""
    return sum(seconds for _, seconds, _ in tree(*roots).values())


def memory(roots: Sequence[int]) -> float:
    """Returns MB: each page is divided by the number of processes that share it."""
    kilobytes = 0
    for pid in tree(*roots):
        with suppress(OSError):
            kilobytes += int(re.findall(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)[0])
    return kilobytes / 1000


def postmaster(on: Stage) -> int:
    """Returns the process id of PostgreSQL, whose sessions are below it."""
    [(file,)] = on.db.execute("SELECT pg_read_file('postmaster.pid')").fetchall()
    return int(file.split()[0])


@dataclass
class Used:
    """What was used within a block: seconds, seconds of CPU by role, bytes of log, and the largest sampled numbers."""

    seconds: float = 0.0
    cpu: dict[str, float] = field(default_factory=dict)
    log: float = 0.0
    images: float = 0.0
    """Bytes of full-page images in the log, which `log` does not contain."""
    by_name: Counter[str] = field(default_factory=Counter)
    """Sessions of PostgreSQL by application."""
    connections: int = 0
    """Connections of Redis."""
    memory: dict[str, float] = field(default_factory=dict)
    """MB of memory by role."""
    redis: float = 0.0
    """MB of data in Redis."""

    @property
    def sessions(self) -> int:
        return self.by_name.total()


class Meter:
    """Measures servers, and further processes by role. Does not count sessions and connections that existed before."""

    def __init__(self, on: Stage) -> None:
        self.roots: dict[str, list[int]] = {}
        [(self._data,)] = on.db.execute("SHOW data_directory").fetchall()
        self._servers = {"PostgreSQL": [postmaster(on)], "Redis": [on.redis.info("server")["process_id"]]}
        self._db = psycopg.connect(on.database_url, autocommit=True)
        self._redis = Redis.from_url(on.redis_url)
        self._before = self._connected()

    def close(self) -> None:
        self._db.close()
        self._redis.close()

    def _connected(self) -> tuple[Counter[str], int]:
        return Counter(dict(self._db.execute(SESSIONS).fetchall())), int(
            self._redis.info("clients")["connected_clients"]
        )

    @contextmanager
    def measured(self) -> Iterator[Used]:
        """Measures the block. What it yields is complete after the block."""
        used, ended = Used(), threading.Event()
        sampler = threading.Thread(target=self._sample, args=(used, ended))
        began, before, start = time.perf_counter(), self._cpu(), self._position()
        sampler.start()
        try:
            yield used
        finally:
            ended.set()
            sampler.join()
        used.seconds, end = time.perf_counter() - began, self._position()
        used.cpu = {role: seconds - before[role] for role, seconds in self._cpu().items()}
        used.log, used.images = self._log(start, end)

    def _sample(self, used: Used, ended: threading.Event) -> None:
        while not ended.wait(SAMPLE):
            sessions, connections = self._connected()
            used.by_name |= sessions - self._before[0]
            used.connections = max(used.connections, connections - self._before[1])
            used.redis = max(used.redis, self._redis.info("memory")["used_memory"] / 1e6)
            for role, pids in self.roots.items():
                used.memory[role] = max(used.memory.get(role, 0.0), memory(pids))

    def _cpu(self) -> Mapping[str, float]:
        return {role: cpu(pids) for role, pids in (self._servers | self.roots).items()}

    def _position(self) -> str:
        return str(self._db.execute(POSITION).fetchall()[0][0])

    def _log(self, start: str, end: str) -> tuple[float, float]:
        """Returns the bytes of the records, and of the full-page images in them."""
        program = postgres_programs(os.environ) / "pg_waldump"
        command = [str(program), "--stats", f"--path={self._data}/pg_wal", f"--start={start}", f"--end={end}"]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        found = TOTAL.findall(told.stdout)
        if (
            not found and "could not find a valid record" not in told.stderr
        ):  # that error means that nothing was written
            raise AssertionError(f"pg_waldump from {start} to {end}: {told.stderr}")
        records, images = found[0] if found else (0, 0)
        return float(records), float(images)
