"""What the proxy before Redis writes down: every job of every push, what the server answered, and who learnt it; and which
job each worker took.
"""

import json
import os
import re
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rq import Queue
from rq.job import Job

from tests.faults import wire
from wrappers.pipeline import payload

FLUSH_EVERY = 0.2  # seconds: what a killed proxy loses at most
KEY = Job.redis_job_namespace_prefix.encode()
QUEUES = Queue.redis_queues_keys.encode()
BATCH = re.compile(r"((?:[a-z0-9]{8}-)?)b[0-9a-f]{24}")
"""A batch's id, and the prefix of its installation."""
TAKING = frozenset({b"BLPOP", b"LPOP", b"BLMOVE", b"LMOVE"})
"""The commands by which RQ's workers take a job off a queue."""


@dataclass(frozen=True, slots=True)
class PushedJob:
    """`occurrences`: what a batch carries, each by the id that a job of its own would have; of another job its id alone.
    `id` is the one that Redis knows."""

    id: str
    occurrences: tuple[str, ...]
    description: str


def pushed_jobs(words: Sequence[bytes]) -> list[PushedJob]:
    """The jobs of an EVAL or EVALSHA if its arguments are laid out as `ticker.queue.bulk.arguments` does.

    After the fields that all jobs share come the labels, five words each, the third of which is a description. The last word
    has all jobs: the number of a label, from 1 on, then an id, the packed call and a signature, each after its length.
    """
    if words[2:5] != [b"0", QUEUES, KEY] or len(words) < 6:
        return []
    labels, jobs, at = 6 + int(words[5]), words[-1], 0
    found = []
    while at < len(jobs):
        (label,) = struct.unpack_from("<H", jobs, at)
        at, parts = at + 2, []
        for _ in range(3):
            (size,) = struct.unpack_from("<H", jobs, at)
            parts.append(jobs[at + 2 : at + 2 + size])
            at += 2 + size
        id_ = parts[0].decode("utf-8", "replace")
        description = words[labels + 5 * label - 2].decode("utf-8", "replace")
        found.append(PushedJob(id_, carried(id_, parts[1]), description))
    return found


def carried(job: str, data: bytes) -> tuple[str, ...]:
    match = BATCH.fullmatch(job)
    if match is None:
        return (job,)
    _, numbers = payload.read(payload.unpacked(data))
    return tuple(
        f"{match[1]}t{task}-{occurrence}" for task, occurrence in zip(numbers[::2], numbers[1::2], strict=True)
    )


def taken_job(message: bytes) -> str | None:
    """The id that a worker was answered; None where its queues were empty, or refused it."""
    if message[:1] == b"*" and not message.startswith(b"*-1"):
        return wire.texts(message)[-1].decode("utf-8", "replace")
    if message[:1] == b"$" and not message.startswith(b"$-1"):
        return message[message.index(wire.CRLF) + 2 : -2].decode("utf-8", "replace")
    return None


def answers_to(jobs: Sequence[PushedJob], message: bytes) -> list[str | None]:
    """One answer for each job: those that were not stored are numbered, and a script that failed answers all of them."""
    if (error := wire.error(message)) is not None:
        return [error.decode("utf-8", "replace")] * len(jobs)
    if not jobs or message[:1] != b"*":  # the answer to another command
        return [None] * len(jobs)
    answers: list[str | None] = ["stored"] * len(jobs)
    said = wire.texts(message)
    for number, answer in zip(said[::2], said[1::2], strict=True):
        answers[int(number) - 1] = answer.decode("utf-8", "replace")
    return answers


class PushRecord:
    """Appends to a file, whole lines in one write, so that several proxies may share it. Without a path: nothing."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._path = Path(path) if path else None
        self._lines: list[bytes] = []

    @property
    def is_wanted(self) -> bool:
        return self._path is not None

    def write(self, jobs: Sequence[PushedJob], answers: Sequence[str | None], at: float, delivered: bool) -> None:
        """`at` is the monotonic second at which the answer was read, not the one of this call."""
        for job, answer in zip(jobs, answers, strict=True):
            for occurrence in job.occurrences:
                self._note(
                    at=at, event="push", job=occurrence, carrier=job.id, answer=answer, delivered=delivered,
                    description=job.description,
                )  # fmt: skip

    def write_unanswered(self, jobs: Sequence[PushedJob]) -> None:
        """The connection ended, and the server had said nothing: it may have taken them or not."""
        self.write(jobs, [None] * len(jobs), time.monotonic(), False)

    def write_taken(self, job: str | None, at: float) -> None:
        """A worker's job; None: it asked, the connection ended, and the server may have given it any."""
        self._note(at=at, event="take", job=job)

    def _note(self, **event: Any) -> None:
        self._lines.append(json.dumps(event).encode() + b"\n")

    def flush(self) -> None:
        if self._lines and self._path:
            lines, self._lines = self._lines, []
            with self._path.open("ab", buffering=0) as file:
                file.write(b"".join(lines))
