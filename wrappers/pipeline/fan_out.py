"""Collects the pieces of work that a `generate` yields, and defines the answer when there is no work."""

from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final

from ticker.db import json_text
from ticker.errors import BadInput, of_type

PIECE_AT_MOST = 16 * 1024  # bytes of JSON text
PIECES_AT_MOST = 1_000_000
ALL_AT_MOST = 128 * 1024 * 1024  # bytes of JSON text of all pieces of a run
KEPT_AT_MOST = 2_000  # pieces in memory, before a statement records them
BYTES_AT_MOST = 1024 * 1024  # bytes of JSON text in memory, before a statement records it


class NothingToDo(Enum):
    """A single value, equal to nothing else that a function may return."""

    NOTHING_TO_DO = "nothing_to_do"

    def __repr__(self) -> str:
        return self.name


NOTHING_TO_DO: Final = NothingToDo.NOTHING_TO_DO
"""Returned by a function that found no work. It is a success with its own outcome, and does not count as work."""


class Pieces:
    """Collects pieces of work, and checks each before it requests the next one.

    `keep` records a JSON array of pieces whenever enough are collected. `last` returns an array of the remaining ones.
    """

    def __init__(self, keep: Callable[[str], None]) -> None:
        self._keep = keep
        self._texts: list[str] = []
        self._size = self._size_in_all = 0
        self.made = 0

    def collect(self, generated: Any) -> None:
        """Collects the pieces that a `generate` returns or yields. Raises BadInput."""
        if generated is NOTHING_TO_DO or generated is None:
            return
        if isinstance(generated, str | bytes | Mapping) or not isinstance(generated, Iterable):
            problem = "is not a series of pieces: yield them one by one, or return a list"
            raise BadInput("generate", None, f"{of_type(generated)} {problem}")
        for piece in generated:
            self.add(piece)

    async def collect_async(self, generated: AsyncIterable[Any]) -> None:
        """Collects the pieces that an `async def generate` yields. Raises BadInput."""
        async for piece in generated:
            self.add(piece)

    def add(self, piece: Any) -> None:
        """Adds a piece. Raises BadInput if it cannot be stored, or if there are too many."""
        text = _text(piece)
        size, count = len(text.encode()), self.made + len(self._texts) + 1
        if count > PIECES_AT_MOST:
            raise BadInput(
                "generate", count, f"is over the limit of {PIECES_AT_MOST:,} pieces per run; make the pieces larger"
            )
        if self._size_in_all + size > ALL_AT_MOST:
            problem = f"is over the limit of {ALL_AT_MOST:,} bytes for all pieces; yield references to the work"
            raise BadInput("generate", self._size_in_all + size, problem)
        if len(self._texts) == KEPT_AT_MOST or self._size + size > BYTES_AT_MOST:
            self._keep(self._array())
            self.made += len(self._texts)
            self._texts, self._size = [], 0
        self._texts.append(text)
        self._size += size
        self._size_in_all += size

    def last(self) -> str | None:
        """Returns the pieces that are not recorded yet, as the text of a JSON array; None if there are none."""
        return self._array() if self._texts else None

    def _array(self) -> str:
        return f"[{','.join(self._texts)}]"


def _text(piece: Any) -> str:
    try:
        return json_text.dumps(piece, most=PIECE_AT_MOST)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput("generate", None, f"{of_type(piece)} cannot be stored as a piece: {error}") from None
