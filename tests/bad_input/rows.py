"""Every row of what cannot be taken, through every door: Python, the command line, and the environment.

A typed error names the field, the value (quoted and cut) and the limit. Nothing is written or pushed: most is refused
before a single statement is sent, which `Silent` proves. Rows that a hand has edited are in `tests/db/test_poison_rows.py`,
forged, truncated and foreign jobs in `tests/worker/test_signed_worker.py` and `tests/worker/test_corrupt_jobs.py`.
"""

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.factories import nested
from ticker import BadInput

SLOWLY = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
ANY_TEXT = st.text(st.characters(), max_size=250)


class Silent:
    """Looks like psycopg's connection, and is never spoken to."""

    pgconn = transaction = None

    @property
    def autocommit(self) -> Any:
        raise StatementSent


class StatementSent(Exception):
    """What was given has passed every check that needs no row."""


# ------------------------------------------------------------------------------------------------------------ the rows


NO_INTERVAL = [0, -1, math.nan, math.inf, -math.inf, 1e308, -1e308, 2**63, 10**400, "٦٠", True, "1e3", "5M", "", " ",
               b"60", "1 fortnight", "0s", "-1s", "999ms", "367d", timedelta(0), timedelta(days=367), 0.0001, "inf",
               "nan", "0x10", "1_000", "60\n", "1h 30m", "P1Y", "PT", "1s1h", "366d1ms", "1.0005s", 1.0005, timedelta(-1), [60], {"every": 60}, print]  # fmt: skip
NO_SPAN = [value for value in NO_INTERVAL if value not in (0, "0s", timedelta(0), "999ms")]
NO_CRON = ["0 0 30 2 *", ",".join(["0"] * 200_000) + " * * * *"]
NO_ZONE = ["../../etc/passwd", "/etc/localtime", "UTC\0", "Mars/Olympus", "x" * 10_000]
NO_NAME = ["", "a\0b", "a\nb", "\x1b[31mred", "\x7f", "\u2028", "\ud800", "\u202egpj.exe", "\u200fab", "\u0085", "x" * 201,
           "x" * 10_000_000, 5, b"x", True, ["x"], print]  # fmt: skip
NO_PROSE = [value for value in NO_NAME if value not in ("", "x" * 201)]
ENDLESS: dict[str, Any] = {}
ENDLESS["a"] = ENDLESS
NO_ARGUMENTS = [[], "x", 5, {1: 2}, {None: 1}, {"a": object()}, {"a": {1}}, {"a": b""}, {"a": math.nan}, {"a": [math.inf]},
                {"a": "\0"}, {"a": "\ud800"}, {"a": "x" * 65_536}, {"a": "x" * 10_000_000}, {"a": [1e308] * 1000},
                {"a": 10**309}, {"a": 10**5000}, {"\0": 1}, {"a": "\\\0"}, {"a": 1e-308, "b": "x" * 65_500}, ENDLESS, nested(251), nested(10_000), print]  # fmt: skip
NO_TIME = [datetime(2026, 1, 1), date(2026, 1, 1), "2026-01-01", 0, datetime.min.replace(tzinfo=UTC),  # noqa: DTZ001
           datetime.max.replace(tzinfo=UTC), datetime.max.replace(tzinfo=timezone(timedelta(hours=-23)))]  # fmt: skip
NO_OWNER = [
    "x",
    5,
    True,
    (),
    ("t",),
    ("", ""),
    ("t", 5),
    ("a\0b", "1"),
    ("t", "x" * 201),
    ("t", "\ud800"),
    object(),
    print,
]
NO_REF = [True, 0, -1, 2**63, 1.5, b"a", "", "a\0b", "a" * 201, "\ud800", object()]

ROWS: dict[str, list[tuple[str, list[Any]]]] = {
    "intervals": [("every", NO_INTERVAL)],
    "tolerances and boxes": [("tolerance", NO_SPAN), ("box", [0, "99ms", *NO_SPAN])],
    "names": [("function", NO_NAME), ("name", NO_NAME), ("queue", NO_NAME), ("subject", NO_PROSE), ("description", NO_PROSE)],
    "arguments": [("args", [{}, "x", 5, b"", {1}, [object()], *([one] for one in NO_ARGUMENTS[5:])]), ("kwargs", [*NO_ARGUMENTS, {"*": 1}]), ("metadata", NO_ARGUMENTS)],
    "owners and times": [("owner", NO_OWNER), ("first", NO_TIME)],
}  # fmt: skip
SHOWN_NOWHERE = {"args", "kwargs", "metadata", "checkpoint"}  # their values may be secrets


def each(*pairs: tuple[str, list[Any]]) -> list[Any]:
    return [pytest.param(field, value, id=f"{field}-{number}") for field, values in pairs for number, value in enumerate(values)]  # fmt: skip


def refused(call: Callable[[], Any], field: str) -> str:
    """The sentence of a refusal that names the field; whatever was given, it is short and can be printed."""
    with pytest.raises(BadInput) as caught:
        call()
    sentence = str(caught.value)
    assert caught.value.field == field or (field == "owner" and caught.value.field in ("owner_type", "owner_id"))
    assert sentence.startswith(f"{caught.value.field}: ")
    assert sentence.isprintable() and len(sentence) < 300
    return sentence
