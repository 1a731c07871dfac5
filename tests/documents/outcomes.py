"""Writes docs/reference/outcomes.md from the enums of `ticker.model` and the texts in this module: `python -m tests.documents`."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from tests.documents.markdown import code, table
from ticker.model import GOOD, EventKind, Outcome, Reason, RunKind

FILE = Path(__file__).parents[2] / "docs/reference/outcomes.md"
HEAD = """\
# Outcomes and reasons

Every pushed occurrence ends in one record. This page lists the words that records use in the tables, on the command line, in the
HTTP API and in metrics. The lists are generated from `ticker/model.py`; `python -m tests.documents` writes this page.
[Why was my mailbox not polled at nine?](../guides/why.md) shows how to read records, and the [rules](../concepts/semantics.md) explain
their causes.
"""
KINDS = {
    RunKind.SCHEDULED: "an occurrence of the task's schedule",
    RunKind.MANUAL: "requested with `run_now` or `ticker run-now`, or on the page",
    RunKind.RETRY: "a further attempt of an occurrence that failed",
    RunKind.PIECE: "one of the [pieces](../guides/pieces.md) that another run created",
}
OUTCOMES = {
    Outcome.SUCCEEDED: "the function returned",
    Outcome.PARTIAL: "the function returned after its quota had reported that no time is left",
    Outcome.NOTHING_TO_DO: "the function returned `NOTHING_TO_DO`: a success that does not count as work",
    Outcome.FAILED: "the function raised, or a piece of its work failed",
    Outcome.TIMED_OUT: "`SoftLimit` stopped the function after its time box",
    Outcome.KILLED: "the process of the run died before the function had ended",
    Outcome.LOST: "no end was recorded in time, or the function never ran",
    Outcome.INTERRUPTED: "it was stopped (`ticker stop`), and is never retried; or its process died because of another run of its group, or from an unknown cause while several runs were active, and it is retried only with `retries`, or if its function is `repeatable`. Not a failure",
    Outcome.SLOWED_DOWN: "the function raised `SlowDown`: its key is closed for a while. Not a failure; not retried",
    Outcome.DROPPED: "the job was not run, for one of the reasons below",
}
REASONS = {
    Reason.GONE: "the task was deleted",
    Reason.REDELIVERED: "the occurrence, or the planned run, already has a record: an event on that record, not a drop",
    Reason.STALE: "the task neither waits for the occurrence nor has it as its next run: an event of the installation, not a drop ([one record](../concepts/semantics.md#one-record))",
    Reason.UNKNOWN_FUNCTION: "no worker has started [the function](../guides/failing.md#functions-that-no-worker-knows) for ten minutes",
    Reason.UNKNOWN_HERE: "this worker has no function of that name: the job ends, its occurrence starts on a worker that has it, and there is no record; not a drop",
    Reason.PAUSED: "the task is disabled, or its owner is inactive",
    Reason.DONE: "the task has had all its runs (`max_runs`)",
    Reason.CLOCK: "the last start is in the future of the database's clock, [which was set back](../concepts/semantics.md#clock)",
    Reason.EXPIRED: "a newer occurrence waits, and this one is older than both two intervals and ten minutes, or its job is gone",
    Reason.DUPLICATE: "a newer occurrence has started; or, for a retry, the earlier attempt [had succeeded](../concepts/semantics.md#late-ends)",
    Reason.STILL_RUNNING: "a run holds the task. Only an occurrence of an interval task is dropped: [others start after that run](../concepts/semantics.md#held-tasks)",
    Reason.TOO_EARLY: "the last start was less than interval - tolerance ago; interval tasks only",
    Reason.NO_ROOM: "a key of the task has no room: the job ends, its occurrence starts later, and there is no record; not a drop",
    Reason.CLOSED: "the task is paused: the job ends, its occurrence starts after the pause, and there is no record; not a drop",
    Reason.NO_SLOT: "its [group](../guides/many-at-once.md#rules-for-groups) has no free slot, or its process starts no further runs: its occurrence starts later, and there is no record; not a drop",
    Reason.SUPERSEDED: "a limit, a pause, a lack of slots, an unknown function or a run keeps it waiting until the task is due at another time, or not at all",
    Reason.MISSED: "`catch_up` is `none`, and a later occurrence has also passed; the ticker drops the occurrence before any push",
    Reason.NO_TIME: "a retry, or a piece, could not end before the next start",
    Reason.ADOPTED: "`ticker db adopt` dropped the occurrence, since its job belongs to [another installation](../operations/installations.md)",
    Reason.STOPPED: "a planned run or a piece was stopped before it started (`ticker stop`)",
}
EVENTS = {
    EventKind.PAUSED: "a user or an application paused the task; for a pause of many tasks, such as that of `ticker db adopt`, its `task_id` is 0",
    EventKind.AUTO_PAUSED: "the ticker paused it, after `pause_after` failures in a row",
    EventKind.RESUMED: "its pause ended; for a pause of many tasks, its `task_id` is 0",
    EventKind.DISABLED: "it was disabled",
    EventKind.ENABLED: "it was enabled",
    EventKind.OWNER_INACTIVE: "its owner's condition (`active_when`) is no longer true",
    EventKind.OWNER_ACTIVE: "its owner's condition is true again",
    EventKind.EDITED: "fields were changed, with their old and new values",
    EventKind.DELETED: "the task was deleted",
    EventKind.SLOWED: "its interval was doubled after a failure (`stretch`)",
    EventKind.RESTORED: "its interval was restored after a success",
    EventKind.FAILED: "an occurrence failed, and no retry is left",
    EventKind.RECOVERED: "it succeeded again",
    EventKind.DEAD_MAN: "it has had no success for `dead_man` intervals",
    EventKind.REDELIVERED: "a job of an occurrence that already has a record was delivered again",
    EventKind.ENOUGH_JOBS: "occurrences got no job because [enough jobs of the task waited](../operations/scale.md#when-no-worker-comes), or because the task skips overlaps; one event counts them, from its time until `until`",
    EventKind.END_RECORDED_LATE: "the end of a run that was `lost` arrived, and corrected its record",
    EventKind.STALE: "a job that belongs to another state of the tables was refused; its `task_id` is 0",
    EventKind.ADOPTED: "`ticker db adopt` took over the tables; its `task_id` is 0",
    EventKind.EXPIRED: "jobs of a function ended or were gone before their start, and newer occurrences waited; one event for each function and minute counts them. The third within an hour sends a notice, if no run of the function started in between",
    EventKind.UNKNOWN_FUNCTION: "no worker has announced the function of the task for a minute, or a worker did not know it; one event for each function",
    EventKind.HOST_LOST: "runs of several tasks on one host were lost together, which is not a failure of their tasks; one event for each host and hour; its `task_id` is 0",
    EventKind.GROUP_TOO_LARGE: "full [groups](../guides/many-at-once.md#rules-for-groups) of a function died, but smaller ones did not, and are halved for an hour; its `task_id` is 0",
}
NOTIFIED = {
    EventKind.FAILED,
    EventKind.RECOVERED,
    EventKind.AUTO_PAUSED,
    EventKind.DEAD_MAN,
    EventKind.UNKNOWN_FUNCTION,
    EventKind.EXPIRED,
    EventKind.HOST_LOST,
    EventKind.GROUP_TOO_LARGE,
}


def text() -> str:
    """Returns the whole page. KeyError if a word of the code is missing here."""
    good = [(code(one), OUTCOMES[one], "yes" if one in GOOD else "no") for one in Outcome]
    notified = [(code(one), EVENTS[one], "yes" if one in NOTIFIED else "") for one in EventKind]
    return (
        f"{HEAD}\n## Outcomes\n\n{table(('outcome', 'meaning', 'a success'), good)}"
        f"\n## Reasons\n\nThe start of a job and the ticker check the reasons in this order.\n\n{two_columns('reason', Reason, REASONS)}"
        "\nThe reason of a run that failed, was killed or lost is a sentence: its error, or what the worker observed.\n"
        f"\n## Kinds of run\n\n{two_columns('kind', RunKind, KINDS)}"
        "\n## Events\n\nAn event records what happened to a task apart from its runs. Some events send a [notice](../guides/notifications.md), but only once until the"
        f" task works again.\n\n{table(('event', 'meaning', 'a notice'), notified)}"
    )


def two_columns(name: str, enum: type[StrEnum], words: Mapping[Any, str]) -> str:
    return table((name, "meaning"), [(code(one), words[one]) for one in enum])
