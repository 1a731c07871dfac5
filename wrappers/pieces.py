"""Work in pieces: what a `generate` may yield, and the answer of whoever found none."""

from collections.abc import AsyncIterable, Iterable, Mapping
from enum import Enum
from typing import Any, Final

from ticker import json_text
from ticker.errors import BadInput

PIECE_AT_MOST = 16 * 1024  # bytes of JSON text
PIECES_AT_MOST = 10_000
ALL_AT_MOST = 8 * 1024 * 1024  # bytes of JSON text of all pieces of a run: one statement stores them


class NothingToDo(Enum):
    """A single value, equal to nothing that a function returns by chance."""

    NOTHING_TO_DO = "nothing_to_do"

    def __repr__(self) -> str:
        return self.name


NOTHING_TO_DO: Final = NothingToDo.NOTHING_TO_DO
"""Returned by a function that found no work: an outcome of its own, which is a success and does not count as work."""


class Pieces:
    """Pieces of work as they come, each looked at before the next one is asked for."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._size = 0

    def add(self, piece: Any) -> None:
        """BadInput for what cannot be kept, or is too much."""
        text = _text(piece)
        self._texts.append(text)
        self._size += len(text.encode())
        if len(self._texts) > PIECES_AT_MOST:
            problem = f"is over the limit of {PIECES_AT_MOST:,} pieces of a run; make them larger"
            raise BadInput("generate", len(self._texts), problem)
        if self._size > ALL_AT_MOST:
            problem = f"is over the limit of {ALL_AT_MOST:,} bytes of all pieces; name the work, do not send it"
            raise BadInput("generate", self._size, problem)

    def text(self) -> str | None:
        """All of them as the text of a JSON array; None where there are none."""
        return f"[{','.join(self._texts)}]" if self._texts else None


def collect(generated: Any) -> str | None:
    """What a `generate` returned, or yields, as the text of a JSON array; None where there is nothing to do. BadInput."""
    if generated is NOTHING_TO_DO or generated is None:
        return None
    if isinstance(generated, str | bytes | Mapping) or not isinstance(generated, Iterable):
        kind = type(generated).__name__
        raise BadInput("generate", kind, "is no series of pieces: yield them one by one, or return a list")
    found = Pieces()
    for piece in generated:
        found.add(piece)
    return found.text()


async def collect_async(generated: AsyncIterable[Any]) -> str | None:
    """The same of an `async def generate` that yields."""
    found = Pieces()
    async for piece in generated:
        found.add(piece)
    return found.text()


def _text(piece: Any) -> str:
    try:
        return json_text.dumps(piece, most=PIECE_AT_MOST)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput("generate", type(piece).__name__, f"is no piece that can be kept: {error}") from None
