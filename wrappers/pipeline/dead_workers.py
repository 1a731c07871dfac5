"""Writes the ends that a dead worker could not write. The supervisor loads only this module until there are any."""

from contextlib import closing
from typing import TYPE_CHECKING

from wrappers.sandbox import handoff, limits, shared_state

if TYPE_CHECKING:
    from wrappers.pipeline.waiting_ends import WaitingEnds


def close_record(kept: "WaitingEnds | None", cause: str | None) -> "WaitingEnds | None":
    """Writes the ends that the horse left, and returns those that must wait.

    A `cause` means that the horse is dead. Then this also ends the run that the horse left open, and gives up the
    ends that cannot be written soon.
    """
    if not (kept or handoff.left() or (cause and shared_state.open_runs())):
        return kept
    from wrappers.pipeline import database, finish, waiting_ends

    kept = kept or waiting_ends.WaitingEnds()
    with closing(database.Database.from_environment()) as own:
        if cause is None:
            finish.take_left(own, kept)
        else:
            finish.close_record(own, kept, cause)
            kept.drain(own, limits.now() + waiting_ends.LAST_WORD)
    return kept
