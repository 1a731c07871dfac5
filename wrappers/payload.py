"""The integers that a job of ours carries, read from its pickle without executing it."""

import pickletools
import zlib

from ticker import envelope

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


def arguments(job_id: str, payload: bytes) -> tuple[int, ...]:
    """(task id, occurrence in microseconds), or (task id, 0, run id); ValueError where it is no job of ours."""
    args = integers(payload)
    if not names(job_id, args):
        raise ValueError("its id is another than that of its arguments")
    return args


def integers(payload: bytes) -> tuple[int, ...]:
    """The arguments in the pickle of ("wrappers.run", None, (two or three integers), {}), which is read, never executed."""
    try:
        steps = [(code.name, value) for code, value, _ in pickletools.genops(payload) if code.name not in _FRAMING]
    except Exception as error:
        raise ValueError(f"its payload is no pickle: {error}") from None
    inner = [(name, value) for name, value in steps if name in _INTEGERS]
    expected = [
        ("MARK", None), ("SHORT_BINUNICODE", envelope.ENTRY), ("NONE", None),
        *inner,
        (f"TUPLE{len(inner)}", None), ("EMPTY_DICT", None), ("TUPLE", None),
    ]  # fmt: skip
    if steps != expected or len(inner) not in (2, 3):
        raise ValueError("its payload is no call of wrappers.run with two or three integers")
    return tuple(int(value or 0) for _, value in inner)


def names(job_id: str, args: tuple[int, ...]) -> bool:
    """Whether the ticker gives this id to a job with these arguments."""
    if len(args) == 3:
        task_id, occurrence, planned = args
        return task_id > 0 and occurrence == 0 and planned > 0 and job_id == f"r{planned}"
    task_id, occurrence = args
    return task_id > 0 and job_id == f"t{task_id}-{occurrence}"
