"""Reads pickles of other schedulers without running anything, and says which of their values JSON cannot hold.

A pickle names classes and functions to call. Here, every name becomes a stand-in that does nothing, so that a value's place and
type can be reported.
"""

import io
import json
import math
import pickle
import zlib
from collections.abc import Iterator
from typing import Any

from ticker.db.json_text import NESTED_AT_MOST
from ticker.errors import escaped

UNPACKED_AT_MOST = 10_000_000  # bytes
VALUES_AT_MOST = 10_000


class StandIn:
    """Takes the place of an object, and of its class. `named` is the name of its type."""

    named = ""

    def __new__(cls, *args: object, **kwargs: object) -> "StandIn":
        return object.__new__(cls)

    def __setstate__(self, state: object) -> None: ...

    def __setitem__(self, key: object, value: object) -> None: ...

    def append(self, item: object) -> None: ...

    def extend(self, items: object) -> None: ...

    def add(self, item: object) -> None: ...


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return type("StandIn", (StandIn,), {"named": escaped(f"{module}.{name}")})


def load(data: bytes) -> Any:
    """Reads a pickle or a JSON text. Raises ValueError for anything else."""
    try:
        return _Reader(io.BytesIO(data)).load() if data[:1] == b"\x80" else json.loads(data)
    except Exception as error:  # a pickle can raise anything
        raise ValueError(type(error).__name__) from None


def unpacked(data: bytes) -> bytes:
    """Decompresses data with zlib, up to 10 MB. Raises ValueError."""
    try:
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(data, UNPACKED_AT_MOST)
    except zlib.error:
        raise ValueError("it is not compressed with zlib") from None
    if not unpacker.eof:
        raise ValueError(f"it is longer than {UNPACKED_AT_MOST:,} bytes")
    return text


def misfits(value: Any, place: str) -> Iterator[str]:
    """Yields the place and the type of each value that JSON cannot hold, up to the first 10,000 values."""
    waiting, seen = [(value, place, 0)], 0
    while waiting:
        one, where, depth = waiting.pop()
        seen += 1
        if seen > VALUES_AT_MOST or depth > NESTED_AT_MOST:
            yield f"{place} contains over {VALUES_AT_MOST:,} values, or is nested over {NESTED_AT_MOST} levels deep"
            return
        if isinstance(one, dict):
            if any(not isinstance(key, str) for key in one):
                yield f"{where} has a key that is not a text"
            waiting += [
                (item, f"{where}.{escaped(str(key))}", depth + 1) for key, item in one.items() if isinstance(key, str)
            ]
        elif isinstance(one, list | tuple):
            waiting += [(item, f"{where}[{number}]", depth + 1) for number, item in enumerate(one)]
        elif not (one is None or isinstance(one, str | int) or (isinstance(one, float) and math.isfinite(one))):
            yield f"{where} is of type {named(one)}"


def named(value: object) -> str:
    """Returns the name of a value's type, also of a stand-in, and of a class that is itself the value."""
    is_class = isinstance(value, type)
    name = getattr(value, "named", "") or type(value).__name__
    return f"the class {name}" if is_class else name
