"""rqscheduler at work, with a worker and a ticker, all as processes; and what their polls looked like from outside."""

import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from redis import Redis

from tests.importing.polls import POLLS, poll
from tests.running import ROOT
from ticker.engine.timing import tolerance_by_default
from ticker.schedules.duration import SECOND

IN_PROCESS = ("-w", "rq.worker.SimpleWorker")
FORKING = ()


@dataclass(frozen=True)
class World:
    redis: Redis
    folder: Path
    interval: int = 20  # seconds

    @property
    def nearest_allowed(self) -> float:
        return self.interval - tolerance_by_default(self.interval * SECOND) / SECOND

    def scheduled(self, count: int, seconds: float = 0.0, *, spread: bool = True) -> None:
        """Schedules polls of as many channels, spread over the next interval, or all at once."""
        from rq_scheduler import Scheduler  # only the group `sources` has it

        scheduler, now = Scheduler("polling", connection=self.redis), datetime.now(UTC)
        for channel in range(count):
            scheduler.schedule(
                now + timedelta(seconds=spread * self.interval * channel / count), poll, args=[channel, seconds], interval=self.interval,
                timeout=10, id=f"poll-{channel}", queue_name="polling",
            )  # fmt: skip

    def polls(self) -> Mapping[int, list[float]]:
        """Returns the times of each channel's polls."""
        times = defaultdict[int, list[float]](list)
        for line in self.redis.lrange(POLLS, 0, -1):
            channel, at = line.split()
            times[int(channel)].append(float(at))
        return times

    def polled(self, count: int, since: float) -> bool:
        """Whether each channel was polled since then."""
        return sum(times[-1] > since for times in self.polls().values()) == count

    def imported(self, *words: str, patch: str = "", kill_after: float | None = None) -> int:
        """`ticker import rq-scheduler ...`, or the beginning of it: its process is killed so many seconds after it has begun."""
        program = f"{patch}\nprint(flush=True)\nfrom ticker.cli import main\nmain()"
        command = [
            sys.executable,
            "-c",
            program,
            "import",
            "rq-scheduler",
            "--plan-file",
            str(self.folder / "plan.json"),
            *words,
        ]
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            if kill_after is not None:
                assert process.stdout
                process.stdout.readline()
                try:
                    process.wait(kill_after)
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
            out, _ = process.communicate()
        if kill_after is None and process.returncode:
            print(out)  # noqa: T201 what pytest shows if the test fails
        return process.returncode


@contextmanager
def running(*command: str, **environ: str) -> Iterator[None]:
    """A process, killed with its forks after the block."""
    with subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, env=os.environ | environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def at_work(*worker: str) -> Iterator[None]:
    """rqscheduler, which looks every 0.5 s, and one worker for both schedulers' jobs."""
    url = os.environ["REDIS_URL"]
    scheduler = ("-m", "rq_scheduler.scripts.rqscheduler", "-i", "0.5", "--quiet", "-u", url)
    environ = {"TICKER_FUNCTIONS": "tests.importing.polls", "TICKER_HARD_LIMIT": "off"}
    with (
        running(*scheduler),
        running(
            "-m", "rq.cli", "worker", *worker, "-c", "wrappers.entry", "--quiet", "--url", url, "polling", **environ
        ),
    ):
        yield


def nearest(polls: Mapping[int, Sequence[float]], since: float) -> float:
    """Returns the shortest time between two polls of a channel, of which the later one began since then."""
    return min(later - earlier for times in polls.values() for earlier, later in pairwise(times) if later > since)
