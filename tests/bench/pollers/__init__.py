"""What `python -m tests.bench polls` compares: functions of our own, and other libraries.

Each other library has a module here, and `python -m MODULE N` enqueues so many polls.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ours:
    """A function of our own, in `tests.bench.polled`, and how many polls run at the same time."""

    function: str
    concurrency: int


@dataclass(frozen=True)
class Peer:
    """Another library: its package, the arguments of its worker, and how many polls run at the same time."""

    package: str
    worker: Sequence[str]
    concurrency: int
    record: bool

    @property
    def module(self) -> str:
        return f"{__name__}.{self.package}_polls"


OURS = {
    "job each": Ours("polls.one", 1), "batch of 50": Ours("polls.batch", 1), "group of 50": Ours("polls.group50", 50),
    "group of 100": Ours("polls.group100", 100), "group of 500": Ours("polls.group500", 500),
    "group of 1000": Ours("polls.group1000", 1000), "20 threads": Ours("polls.threads", 20),
}  # fmt: skip

CELERY = f"celery -A {__name__}.celery_polls worker --loglevel ERROR --without-mingle"
HUEY = f"gevent.monkey --module huey.bin.huey_consumer {__name__}.huey_polls.huey -k greenlet -w 100 -q -n"
TASKIQ = f"taskiq worker {__name__}.taskiq_polls:broker --workers 1 --max-async-tasks 100"
PROCRASTINATE = f"procrastinate --app {__name__}.procrastinate_polls.app worker --concurrency 100 --delete-jobs"

_WORKERS = {
    "celery prefork": ("celery", 20, f"{CELERY} --concurrency 20"),
    "celery gevent": ("celery", 100, f"{CELERY} --pool gevent --concurrency 100"),
    "huey greenlets": ("huey", 100, HUEY),
    "taskiq": ("taskiq", 100, TASKIQ),
    "procrastinate": ("procrastinate", 100, f"{PROCRASTINATE} never"),
}
PEERS = {
    name: Peer(package, worker.split(), concurrency, True) for name, (package, concurrency, worker) in _WORKERS.items()
} | {
    f"{name}, no record": Peer(package, worker.replace(" never", " always").split(), concurrency, False)
    for name, (package, concurrency, worker) in _WORKERS.items()
}
