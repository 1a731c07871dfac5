"""Reports functions of tasks that no worker has announced, or that a worker did not know."""

from collections.abc import Collection
from datetime import datetime
from difflib import get_close_matches

from ticker.engine.ports import Store
from ticker.errors import did_you_mean, quoted
from ticker.model import EventKind, Note

NAMED = 10  # functions or queues named in a warning, the most similar first


def report_unknown(store: Store, now: datetime) -> int:
    """Records an event for each function of tasks that no worker knows, once. Returns how many it found."""
    with store.batch() as rows:
        if unreported := rows.unreported_functions(now):
            known = rows.announced_functions()
            rows.record_events(
                [
                    Note(id_, EventKind.UNKNOWN_FUNCTION, unknown_function(name, known) or not_known(name))
                    for id_, name in unreported
                ],
                now,
            )
    return len(unreported)


def not_known(function: str) -> str:
    return f"a worker took a job of the function {quoted(function)}, which it does not know; see --tasks"


def unknown_function(function: str, announced: Collection[str]) -> str:
    """Returns a warning if workers have announced functions, but not this one. Otherwise, the text is empty."""
    return _unknown("function", function, announced)


def unknown_queue(queue: str, announced: Collection[str]) -> str:
    """Returns a warning if workers have announced queues, but not this one. Otherwise, the text is empty."""
    return _unknown("queue", queue, announced)


def _unknown(what: str, name: str, announced: Collection[str]) -> str:
    if not announced or name in announced:
        return ""
    nearest = get_close_matches(name, announced, NAMED, cutoff=0.0)
    more = f" and {len(announced) - NAMED} more" if len(announced) > NAMED else ""
    near = did_you_mean(name, announced)
    return f"no worker has announced the {what} {quoted(name)}{near}; announced {what}s: {', '.join(nearest)}{more}"
