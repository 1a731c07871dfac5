"""The verdict: one sentence, with what is worst first, and what helps."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from tests.factories import MINUTE, NINE
from tests.sentences import sentence
from ticker.model import Pause
from ticker.read.health import Health
from ticker.read.overview import Cause, Counts, Overview
from ticker.read.tasks import TickerStatus
from ticker.read.verdict import verdict

TICKER = TickerStatus(UUID(int=1), "here", 7, NINE, NINE, {}, 4_200, "", 0, NINE, 4_200, 90_000)
WELL = Health("", "", (TICKER,))
REFUSED = "ConnectionRefusedError: *"
PAUSE = Pause(1, "all", "", "all tasks", "ann", "upgrade", NINE, None, None, "", None, True, 12)
FAILS = replace(TICKER, failure="PostgreSQL refuses writes", failing_ms=60_000)


def seen(*causes: int, per_minute: float | None = 42.4, **counts: int) -> Overview:
    all_counts = dict.fromkeys(Counts.__dataclass_fields__, 0) | {"tasks": 603} | counts
    groups = [
        Cause(REFUSED if number == 0 else f"E{number}", tasks, NINE, (), (), {}) for number, tasks in enumerate(causes)
    ]
    return Overview(NINE + MINUTE, Counts(**all_counts), [], [], [], groups, {}, per_minute, [], [], [TICKER])


@pytest.mark.parametrize(
    ("health", "overview", "tone", "said"),
    [
        (WELL, seen(), "good", sentence("verdict.well")),
        (WELL, seen(per_minute=0.97, paused=15), "good", sentence("verdict.well_with_paused")),
        (WELL, seen(per_minute=None, tasks=1), "good", sentence("verdict.well_without_a_pace")),
        (WELL, seen(tasks=0), "good", sentence("verdict.no_tasks")),
        (WELL, seen(6, 2, failing=9), "bad", f"9 tasks fail, 6 of them with {REFUSED}"),
        (WELL, seen(9, failing=9), "bad", f"9 tasks fail with {REFUSED}"),
        (WELL, seen(1, failing=1), "bad", f"1 task fails with {REFUSED}"),
        (WELL, seen(1, 1, failing=2), "bad", "2 tasks fail"),
        (WELL, seen(failing=2, late=1, unknown_function=3), "bad",
         sentence("verdict.several_kinds")),
        (replace(WELL, held={"imap": 2}), seen(), "warn",
         sentence("verdict.limit_waits")),
        (replace(WELL, pauses=(PAUSE,)), seen(9, failing=9), "warn",
         sentence("verdict.all_paused")),
        (Health("PostgreSQL does not answer", "Redis does not answer"), seen(9, failing=9), "bad",
         sentence("verdict.no_servers")),
        (replace(WELL, tickers=(FAILS,)), seen(9, failing=9), "bad",
         sentence("verdict.ticks_fail")),
        (replace(WELL, tickers=(FAILS, TICKER), redis_error="Redis does not answer"), seen(), "bad",
         sentence("verdict.ticks_fail_and_more")),
    ],
)  # fmt: skip
def test_the_worst_is_said_first_and_once(health: Health, overview: Overview, tone: str, said: object) -> None:
    found = verdict(health, overview)
    assert (found.tone, found.sentence) == (tone, said)


@pytest.mark.parametrize(
    ("overview", "short", "command", "tasks"),
    [
        (seen(6, failing=9), "9 tasks fail", f"ticker list --cause '{REFUSED}'", {"cause": REFUSED}),
        (seen(1, 1, failing=2), "2 tasks fail", "ticker list --state failing", {"state": "failing"}),
        (seen(late=2), "2 tasks are late", "ticker list --state late", {"state": "late"}),
        (seen(), "all is well", "", {}),
    ],
)
def test_it_names_what_helps(overview: Overview, short: str, command: str, tasks: dict[str, Any]) -> None:
    found = verdict(WELL, overview)
    assert (found.short, found.command, found.tasks) == (short, command, tasks)


@pytest.mark.parametrize(
    ("tasks", "hosts", "named"),
    [
        (2, {"imap.acme.example": 2}, f"{REFUSED} (imap.acme.example)"),
        (2, {"imap.acme.example": 1}, REFUSED),
        (2, {"imap.acme.example": 2, "mail.example.org": 2}, REFUSED),
        (3, {"imap.acme.example": 2}, REFUSED),  # the error of the third one was not read
    ],
)
def test_the_host_of_a_cause_is_named_if_all_of_its_errors_name_only_that(
    tasks: int, hosts: dict[str, int], named: str
) -> None:
    overview = seen(tasks, failing=tasks)
    overview = replace(overview, causes=[replace(overview.causes[0], ids=(1, 2), hosts=hosts)])
    assert verdict(WELL, overview).sentence == f"{tasks} tasks fail with {named}"
