"""Reads the integers in the pickle of one of our jobs, without executing the pickle."""

import pickletools
import zlib
from typing import Any

from rq.serializers import DefaultSerializer

from ticker.engine import jobs
from ticker.model import BATCH_AT_MOST

AT_MOST = 40_000  # bytes, packed and unpacked; ours have about 60, or up to 23,000 for a batch of 1,000 tasks

_INTEGERS = {"BININT", "BININT1", "BININT2", "LONG1"}


def unpacked(data: bytes) -> bytes:
    """Unpacks a job's data to at most `AT_MOST` bytes. Raises ValueError if that is not possible."""
    inflater = zlib.decompressobj()
    try:
        payload = inflater.decompress(data, AT_MOST)
    except zlib.error as error:
        raise ValueError(f"its data is not valid zlib: {error}") from None
    if not inflater.eof:
        raise ValueError(f"its data is truncated, or unpacks to over {AT_MOST} bytes")
    return payload


def call(job_id: str, payload: bytes) -> tuple[str, tuple[int, ...]]:
    """Returns the function and its arguments. Raises ValueError if the job is not one of ours.

    The arguments are (task id, occurrence in microseconds) or (task id, 0, run id). A batch has the id and the
    occurrence of each task.
    """
    entry, args = read(payload)
    if not names(job_id, entry, args):
        raise ValueError("its id does not match its arguments")
    return entry, args


def read(payload: bytes) -> tuple[str, tuple[int, ...]]:
    """Returns the call in RQ's pickle of (function, None, (integers), {}), which is compared, never executed."""
    try:
        integers: tuple[Any, ...] = tuple(
            value for code, value, _ in pickletools.genops(payload) if code.name in _INTEGERS
        )
    except Exception as error:
        raise ValueError(f"its payload is not a pickle: {error}") from None
    for entry, at_most in ((jobs.ENTRY, 3), (jobs.BATCH_ENTRY, 2 * BATCH_AT_MOST)):
        if 2 <= len(integers) <= at_most and payload == DefaultSerializer.dumps((entry, None, integers, {})):
            return entry, integers
    raise ValueError("its payload is not a call of the wrapper with only integers")


def names(job_id: str, entry: str, args: tuple[int, ...]) -> bool:
    """Returns whether a ticker of any installation gives this id to a job with these arguments."""
    installation = jobs.installation_of(job_id)
    if entry == jobs.BATCH_ENTRY:
        return len(args) % 2 == 0 and min(args[::2]) > 0 and job_id == jobs.batch_id(installation, args)
    if len(args) == 3:
        task_id, occurrence, planned = args
        is_planned = task_id > 0 and occurrence == 0 and planned > 0
        return is_planned and job_id == jobs.planned_id(installation, planned)
    task_id, occurrence = args
    return task_id > 0 and job_id == f"{installation}-t{task_id}-{occurrence}"
