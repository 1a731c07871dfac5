"""The integers that a job of ours carries, read from its pickle without executing it."""

import pickletools
import zlib

from ticker.engine import jobs
from ticker.model import BATCH_AT_MOST

AT_MOST = 4096  # bytes, packed and unpacked: ours have some 60, and up to 2,300 where one job carries 100 tasks

_FRAMING = {"PROTO", "FRAME", "MEMOIZE", "STOP"}
_INTEGERS = {"BININT", "BININT1", "BININT2", "LONG1"}


def unpacked(data: bytes, at_most: int) -> bytes:
    """What a job's packed data becomes, of so many bytes at most; else ValueError."""
    inflater = zlib.decompressobj()
    try:
        payload = inflater.decompress(data, at_most)
    except zlib.error as error:
        raise ValueError(f"its data is no zlib: {error}") from None
    if not inflater.eof:
        raise ValueError(f"its data is truncated, or unpacks to over {at_most} bytes")
    return payload


def call(job_id: str, payload: bytes) -> tuple[str, tuple[int, ...]]:
    """The function and its arguments; ValueError where it is no job of ours.

    (task id, occurrence in microseconds), or (task id, 0, run id); of a batch the id and the occurrence of each task.
    """
    entry, args = read(payload)
    if not names(job_id, entry, args):
        raise ValueError("its id is another than that of its arguments")
    return entry, args


def read(payload: bytes) -> tuple[str, tuple[int, ...]]:
    """The call in the pickle of (function, None, (integers), {}), which is read, never executed."""
    try:
        steps = [(code.name, value) for code, value, _ in pickletools.genops(payload) if code.name not in _FRAMING]
    except Exception as error:
        raise ValueError(f"its payload is no pickle: {error}") from None
    inner = [(name, value) for name, value in steps if name in _INTEGERS]
    many = len(inner) > 3
    entry = jobs.BATCH_ENTRY if many else jobs.ENTRY
    expected = [
        ("MARK", None), ("SHORT_BINUNICODE", entry), ("NONE", None),
        *[("MARK", None)] * many, *inner, ("TUPLE" if many else f"TUPLE{len(inner)}", None),
        ("EMPTY_DICT", None), ("TUPLE", None),
    ]  # fmt: skip
    if steps != expected or len(inner) < 2 or len(inner) > 2 * BATCH_AT_MOST:
        raise ValueError("its payload is no call of the wrapper with integers alone")
    return entry, tuple(int(value or 0) for _, value in inner)


def names(job_id: str, entry: str, args: tuple[int, ...]) -> bool:
    """Whether a ticker of any installation gives this id to a job with these arguments."""
    installation = jobs.installation_of(job_id)
    if entry == jobs.BATCH_ENTRY:
        return len(args) % 2 == 0 and min(args[::2]) > 0 and job_id == jobs.batch_id(installation, args)
    if len(args) == 3:
        task_id, occurrence, planned = args
        is_planned = task_id > 0 and occurrence == 0 and planned > 0
        return is_planned and job_id == jobs.planned_id(installation, planned)
    task_id, occurrence = args
    return task_id > 0 and job_id == f"{installation}-t{task_id}-{occurrence}"
