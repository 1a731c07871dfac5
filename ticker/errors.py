"""Defines the errors that reach a user, in one tree.

TickerError
├── BadInput             a value that is not accepted (also a ValueError); nothing was written
├── UnknownTask          no such task (also a LookupError)
├── UnknownRun           no such run (also a LookupError)
├── UnknownOwner         the owner's row is not in its table (also a LookupError)
├── ConfigurationError   a wrong setting or an unsuitable server; exit code 78
└── Unavailable          a server does not answer now; the next pass tries again
    ├── DatabaseUnavailable
    │   └── RowLocked    another transaction has locked the row; nothing was written
    ├── BulkStopped      a step of `bulk` failed; the steps before it are committed
    └── QueueUnavailable
"""

import re
from collections.abc import Collection, Iterable

QUOTED_AT_MOST = 60
ANNOUNCED_AT_MOST = 10  # functions or queues named in a warning, the most similar first
KNOWS_NO_FUNCTION = "this worker knows no function "
NO_ANSWER = (
    "refused|reset by peer|timeout|timed out|unreachable|no route|no answer|closed (the connection|by server)"
    "|(on socket|unix socket|connecting to /).*no such file"
)
CAUSE_AT_MOST, CAUSE_READS_AT_MOST = 200, 500  # characters

_QUOTED_OR_URL = re.compile(r"""(?<!\w)(['"]).*?\1(?!\w)|\b\w{1,20}://[^\s,;()<>"']+""")
_WORD = re.compile(r"""[^\s,;()\[\]{}<>"'=|]+""")
_VARIABLE = re.compile(r"\d|[@/\\]|\w\.\w")
_HOST = re.compile(
    r"(?<![\w.-])(?<![^/]/)(?:(?:[a-z0-9][a-z0-9-]*\.)+[a-z][a-z0-9-]+|\d+\.\d+\.\d+\.\d+)(?![\w-]|\.\w)"
)
_ASTERISKS = re.compile(r"\*(?:[^\w()\[\]{}]*\*)+")

FRAMEWORK_NAMES: dict[str, str] = {}
"""The names of variables in the settings of a framework. Errors show these instead."""

EXIT_CONFIGURATION = 78
"""The exit code (EX_CONFIG of sysexits.h) of every command that meets a wrong setting or a missing server."""


def escaped(text: str) -> str:
    """Returns the text with unprintable characters (newlines, ANSI, NUL) escaped, so that it is one line and safe to
    show.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def quoted(value: object) -> str:
    """Returns `value` in the form for an error message: escaped, and cut to 60 characters."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a number of {value.bit_length()} bits"
    try:
        text = repr(value)
    except Exception:  # a user's value: its repr may fail
        text = of_type(value)
    if not text.isprintable():  # a repr of several lines
        text = repr(text)
    return text if len(text) <= QUOTED_AT_MOST else f"{text[:QUOTED_AT_MOST]}…"


def of_type(value: object) -> str:
    """Names a value that is not shown: it may be a secret, or very long."""
    return f"a value of type {type(value).__name__}"


def cause(error: str) -> str:
    """Returns what this error has in common with those of other tasks: its first line, with hosts, addresses, paths,
    quoted texts, numbers and ids replaced by asterisks. It has at most 200 characters.

    A record has the class and the text of an exception, as in the last line of its traceback.
    """
    masked = _WORD.sub(_masked, _QUOTED_OR_URL.sub("*", _first_line(error)))
    return _ASTERISKS.sub("*", masked)[:CAUSE_AT_MOST].strip()


def _masked(found: re.Match[str]) -> str:
    word = found[0].rstrip(":.!?")
    is_class = found.start() == 0 and found[0].endswith(":") and word.isidentifier()
    return found[0] if is_class or not _VARIABLE.search(word) else "*" + found[0][len(word) :]


def hosts(error: str) -> set[str]:
    """Returns the names that look like hosts, and the IPv4 addresses, in the part of this error that `cause` reads."""
    return set(_HOST.findall(_first_line(error)))


def _first_line(error: str) -> str:
    return escaped((error.strip().splitlines() or [""])[0])[:CAUSE_READS_AT_MOST]


def symptom(text: str) -> str:
    """Returns what an error of a client says of its server: that no answer came, or just that it cannot be used."""
    return "does not answer" if re.search(NO_ANSWER, text, re.IGNORECASE) else "cannot be used"


def did_you_mean(name: object, known: Iterable[str], alike: float = 0.6) -> str:
    """Returns ` (did you mean 'every'?)` for a misspelt name, or an empty string if no known name is close."""
    from difflib import get_close_matches  # imported here, because a work-horse does not need it

    near = get_close_matches(str(name), list(known), 1, alike)
    return f" (did you mean {near[0]!r}?)" if near else ""


def not_announced(what: str, name: str, announced: Collection[str]) -> str:
    """Returns a warning if workers have announced names of functions or queues, but not this one; else an empty text.

    `what` is `function` or `queue`.
    """
    if not announced or name in announced:
        return ""
    from difflib import get_close_matches  # as above

    nearest = ", ".join(get_close_matches(name, announced, ANNOUNCED_AT_MOST, cutoff=0.0))
    more = f" and {len(announced) - ANNOUNCED_AT_MOST} more" if len(announced) > ANNOUNCED_AT_MOST else ""
    near = did_you_mean(name, announced)
    return f"no worker has announced the {what} {quoted(name)}{near}; announced {what}s: {nearest}{more}"


def start_worker(queue: str) -> str:
    """Returns the command that starts a worker for the queue."""
    return f"ticker worker --tasks ... {queue}"


def unknown_here(function: str) -> str:
    """Returns why a worker does not start a run of this function."""
    return f"{KNOWS_NO_FUNCTION}{function!r}; {load_function()}"


def load_function(queue: str = "") -> str:
    """Returns how workers get to know a function: those of this queue, or of the queue of its tasks."""
    return f"start the workers of {f'the queue {queue}' if queue else 'its queue'} with its module in --tasks or --functions"


class TickerWarning(UserWarning):
    """A task was registered with a value that is allowed, but perhaps not what was meant."""


class TickerError(Exception):
    """The root of the tree: catch this to catch everything that ticker raises on purpose."""

    def __str__(self) -> str:
        text = super().__str__()
        for variable, name in FRAMEWORK_NAMES.items():
            text = re.sub(rf"\b{variable}\b", name, text)
        return text


class BadInput(TickerError, ValueError):
    """A value that is not accepted, or is missing (None). Has `field`, `value` and `problem`. The message is one
    sentence.
    """

    def __init__(self, field: str, value: object, problem: str) -> None:
        super().__init__(f"{field}: {problem}" if value is None else f"{field}: {quoted(value)} {problem}")
        self.field = field
        self.value = value
        self.problem = problem


class UnknownTask(TickerError, LookupError):
    """There is no such task."""


class UnknownRun(TickerError, LookupError):
    """There is no such run, or it is no longer kept."""


class UnknownOwner(TickerError, LookupError):
    """The owner has no row in its table, so its task would be an orphan."""


class ConfigurationError(TickerError):
    """A setting is wrong, or a server that it names is unsuitable. The message names it and the remedy. Exit code 78."""


class Unavailable(TickerError):
    """A server does not answer now. Nothing was lost; the next pass tries again."""


class DatabaseUnavailable(Unavailable):
    """PostgreSQL does not answer, or the connection broke."""


class RowLocked(DatabaseUnavailable):
    """Another transaction has locked the row, changed it meanwhile, or waits for this one (a deadlock). Nothing was
    written.
    """


class BulkStopped(Unavailable):
    """A step of `bulk` failed. `done` is what the steps before it did, which is committed."""

    def __init__(self, sentence: str, done: object) -> None:
        super().__init__(sentence)
        self.done = done


class QueueUnavailable(Unavailable):
    """Redis does not answer, or refused a whole batch."""
