"""Work in pieces: what a `generate` may yield, and the answer of whoever found none."""

from collections.abc import Iterable
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


def collect(generated: Any) -> str | None:
    """All pieces as the text of a JSON array; None where there are none. BadInput for what cannot be kept, or is too much."""
    if generated is NOTHING_TO_DO or generated is None:
        return None
    if isinstance(generated, str | bytes) or not isinstance(generated, Iterable):
        raise BadInput(
            "generate", type(generated).__name__, "is nothing to go through: yield the pieces, or return a list"
        )
    texts: list[str] = []
    size = 0
    for piece in generated:
        texts.append(_text(piece))
        size += len(texts[-1])
        if len(texts) > PIECES_AT_MOST:
            raise BadInput(
                "generate", len(texts), f"is over the limit of {PIECES_AT_MOST:,} pieces of a run; make them larger"
            )
        if size > ALL_AT_MOST:
            raise BadInput(
                "generate",
                size,
                f"is over the limit of {ALL_AT_MOST:,} bytes of all pieces; name the work, do not send it",
            )
    return f"[{','.join(texts)}]" if texts else None


def _text(piece: Any) -> str:
    try:
        return json_text.dumps(piece, most=PIECE_AT_MOST)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput("generate", type(piece).__name__, f"is no piece that can be kept: {error}") from None
