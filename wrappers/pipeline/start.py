"""Asks the database whether a job may run. The database decides, records, and sets `last_run` in one atomic statement."""

import logging
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

from ticker import clock
from ticker.db import sql
from ticker.db.connections import refuses_writes
from ticker.engine import timing
from ticker.errors import DatabaseUnavailable, RowLocked, unknown_here
from ticker.model import TEXT_AT_MOST, Kind, Outcome, Reason, RunKind
from ticker.schedules.duration import words
from wrappers.pipeline import registry
from wrappers.pipeline.context import Call, Start, log_end, names
from wrappers.pipeline.database import LOCK_PAUSE, LOCKED, while_locked
from wrappers.sandbox import limits, shared_state
from wrappers.sandbox.handoff import End, PendingEnd

T = TypeVar("T")

log = logging.getLogger("ticker.run")

PATIENCE = 20.0  # seconds for an unavailable server and a locked row together; RQ's own timeout leaves 30
PAUSE = 0.5  # seconds
STILL_EXECUTING = 0.5  # seconds, at most, after its connection was lost; those that begin meanwhile wait for it, too
MOMENT = 0.5  # seconds, at most, for which a job waits for room
LOOK_AGAIN = 0.05  # seconds, if it is unknown when there is room
SLOWEST_ANSWER = 2.0  # seconds, and never more than the box; after a longer wait, the hold may be over


_SAME_NAMES = {field.name for field in fields(Start)} - {"token", "kind", "piece", "limits"}


class Asked(NamedTuple):
    """An answer of the start statement, the times of both clocks when it was requested, and when it came."""

    began: float
    since: float
    answered: float
    row: sql.Row


Request = tuple[float, float]  # the times of both clocks
Requests = dict[str, Request]  # of each token, the first request without an answer


class NoRoom(NamedTuple):
    """A refusal of a start that may be requested again: a key of the task is full. `seconds` until there may be room,
    if known.
    """

    key: str
    seconds: float | None


def ask(call: Call, when_it_waits: Callable[[], object] = lambda: None) -> Call | str:
    """Returns the call with its start if the job may run, or else the text for RQ: dropped, with the reason, or lost.

    Calls `when_it_waits` if there is no answer at once. If the database does not answer, nothing runs and this raises
    DatabaseUnavailable. If a key has no room, this waits up to half a second, because ticks count on runs that end soon.
    After that, the run goes back to its row.
    """
    token = str(uuid4())
    shared_state.write(call.task_id, token)
    began, waits, first = clock.monotonic(), True, dict[str, Request]()
    give_up_at = began + PATIENCE

    def answered() -> Call | NoRoom | str:
        [answer] = ask_all([call], [token], give_up_at, when_it_waits, waits=waits, first=first)
        if answer is None:
            raise RowLocked(LOCKED)
        return answer

    while True:
        answer = patiently(lambda: while_locked(answered), RowLocked, give_up_at, when_it_waits)
        if not isinstance(answer, NoRoom):
            break
        pause = LOOK_AGAIN if answer.seconds is None else answer.seconds
        if waits := clock.monotonic() + pause < began + MOMENT:
            time.sleep(pause)
    if isinstance(answer, str):
        shared_state.clear()
        if not waits:
            call.database.wake_tickers()
        return answer
    assert answer.start is not None
    shared_state.write_names(call.job_id, *answer.start.names)
    shared_state.write(call.task_id, token, answer.start.run_id)
    return answer


def ask_all(
    calls: Sequence[Call],
    tokens: Sequence[str],
    give_up_at: float | None = None,
    when_it_waits: Callable[[], object] = lambda: None,
    *,
    waits: bool = True,
    first: Requests | None = None,
) -> list[Call | NoRoom | str | None]:
    """Does the same for calls of different tasks, in one statement. None means that another transaction has locked the
    row.

    The calls share a database. The caller has stored their tokens where they outlive this process. `give_up_at` is an
    instant of `clock.monotonic`, by default 20 s from now. Without `waits`, a run without room goes back to its row at
    once. `first` keeps the requests without an answer for the next call with the same tokens.
    """
    give_up_at = clock.monotonic() + PATIENCE if give_up_at is None else give_up_at
    asked, first = dict(zip(tokens, calls, strict=True)), {} if first is None else first
    verdicts = _verdicts(asked, first, give_up_at, when_it_waits, waits)
    back = {token: call for token, call in asked.items() if _waits_long(call, verdicts[token].row)} if waits else {}
    if back:
        verdicts |= {str(one.row["token"]): one for one in decide_all([*back.values()], [*back], first, waits=False)}
    returned_at = clock.monotonic()
    answers: list[Call | NoRoom | str | None] = []
    late: list[PendingEnd] = []
    for token, call in asked.items():
        began, since, answered, verdict = verdicts[token]
        if verdict["refusal"] == Reason.NO_ROOM and waits and token not in back:
            retry_at, now = verdict["retry_at"], verdict["now"]
            answers.append(NoRoom(verdict["full_key"], retry_at and (retry_at - now).total_seconds()))
        elif verdict["refusal"]:
            answers.append(None if verdict["refusal"] == "locked" else drop(call, verdict))
        elif (waited := answered - began) > (limit := SLOWEST_ANSWER) or (
            (waited := returned_at - began) > (limit := verdict["box_ms"] / 1000)
        ):
            reason = too_late(waited, limit)
            log_end(Outcome.LOST, reason, call.task_id, names_in(verdict), verdict["run_id"], call.job_id)
            late.append(PendingEnd(call.task_id, verdict["run_id"], token, End(Outcome.LOST, reason)))
            answers.append(f"lost: {reason}")
        else:
            answers.append(replace(call, began=began, start=_start(verdict, token), since=since))
    if late:
        with suppress(DatabaseUnavailable):  # the ticker's sweep ends them
            calls[0].database.finish_all(late)
    return answers


def _verdicts(
    asked: Mapping[str, Call], first: Requests, give_up_at: float, when_it_waits: Callable[[], object], waits: bool
) -> dict[str, Asked]:
    """Requests the starts, by their tokens. If an answer is lost, requests it once more with the same token."""
    database, verdicts = next(iter(asked.values())).database, dict[str, Asked]()

    def add() -> None:
        """Requests the starts that have no verdict yet. An error keeps the verdicts that came before it."""
        left = {token: call for token, call in asked.items() if token not in verdicts}
        for one in decide_all([*left.values()], [*left], first, waits=waits):
            verdicts[str(one.row["token"])] = one

    patiently(database.open, DatabaseUnavailable, give_up_at, when_it_waits)
    try:
        patiently(add, RowLocked, give_up_at, when_it_waits)
    except DatabaseUnavailable as error:
        number = len(asked) - len(verdicts)
        log.warning("%s starts are requested once more: %s", number, error, extra={"event": "start_delayed"})
        patiently(database.open, DatabaseUnavailable, give_up_at, when_it_waits)
        add()
        # The server may still be executing the first request, with its rows locked. A request with a new token would lose
        # the run that it starts.
        still_executing = clock.monotonic() + STILL_EXECUTING
        while locked := [token for token, verdict in verdicts.items() if verdict.row["refusal"] == "locked"]:
            if clock.monotonic() > still_executing:
                break
            for token in locked:
                del verdicts[token]
            time.sleep(LOCK_PAUSE)
            add()
    return verdicts


def give_back(calls: Sequence[Call], reason: Reason, if_idle: bool = False) -> list[Call]:
    """Lets runs go back to their rows for this reason, the first of each task, and wakes tickers to push them again.

    If a newer occurrence of a task waits, the older one is dropped instead. With `if_idle`, does nothing unless another
    worker is idle. Returns the calls that are no longer this process's: all but those whose rows are locked.
    """
    database, calls = calls[0].database, [*{call.task_id: call for call in reversed(calls)}.values()]
    if if_idle and not database.execute("idle_worker", task_ids=[call.task_id for call in calls])[0]["is_idle"]:
        return []
    planned = [call for call in calls if call.planned is not None]
    if planned:
        database.execute("wait_again_planned", ids=[call.planned for call in planned], reason=reason)
    asked = {str(uuid4()): call for call in calls if call.planned is None}
    answers = decide_all([*asked.values()], [*asked], {}, waits=False, back=reason)
    decided = [(asked[str(row["token"])], row) for *_, row in answers if row["refusal"] != "locked"]
    for call, row in decided:
        if row["refusal"] != reason:
            drop(call, row)
    database.wake_tickers()
    if back := [*planned, *(call for call, _ in decided)]:
        log.info("%s tasks were given back: %s", len(back), reason, extra={"event": "tasks_given_back"})
    return back


def _waits_long(call: Call, verdict: sql.Row) -> bool:
    """Returns whether the call has no room for longer than a tick, as while a key is closed. It goes back to its row at once."""
    if verdict["refusal"] != Reason.NO_ROOM or not verdict["retry_at"]:
        return False
    return bool(verdict["retry_at"] - verdict["now"] > timedelta(milliseconds=call.settings.tick_ms))


def patiently(
    step: Callable[[], T], trouble: type[DatabaseUnavailable], give_up_at: float, when_it_waits: Callable[[], object]
) -> T:
    """Repeats the step until `give_up_at` while there is this trouble, or the server is a standby. Nothing was written
    then.
    """
    while True:
        try:
            return step()
        except DatabaseUnavailable as error:
            if clock.monotonic() > give_up_at or not (isinstance(error, trouble) or refuses_writes(error)):
                raise
            when_it_waits()
            log.warning("the start waits: %s", error, extra={"event": "start_delayed"})
            time.sleep(PAUSE)


def decide_planned(call: Call, token: str, common: Mapping[str, Any], *, waits: bool) -> sql.Row:
    """Runs the start statement of one planned run."""
    planned = {
        "task_id": call.task_id,
        "run_id": call.planned,
        "token": token,
        "job_id": call.job_id[:TEXT_AT_MOST],
    }
    [verdict] = call.database.execute("start_planned", **planned, **common, waits=waits)
    return {**verdict, "token": token}


def decide_all(
    calls: Sequence[Call], tokens: Sequence[str], first: Requests, *, waits: bool, back: Reason | None = None
) -> Iterator[Asked]:
    """Runs the start statement of runs of different tasks, and yields its answers as they come.

    Planned runs, which are rarer, are decided one by one, after the others.

    With `waits`, what meets a full limit stays as it is, and the caller requests it again. Otherwise it goes back to
    its row. With `back`, all that may start go back for this reason.
    """

    asked = [(call, token) for call, token in zip(calls, tokens, strict=True) if call.planned is None]
    planned = [(call, token) for call, token in zip(calls, tokens, strict=True) if call.planned is not None]
    if asked:
        request, common = _asked(calls[0], [token for _, token in asked], first)
        sets = {
            "task_ids": [call.task_id for call, _ in asked],
            "occurrences": [call.occurrence for call, _ in asked],
            "tokens": [token for _, token in asked],
            "job_ids": [call.job_id[:TEXT_AT_MOST] for call, _ in asked],
        }
        yield from _answers(
            calls[0].database.execute("start", **sets, **common, waits=waits, back=back), request, first
        )
    for call, token in planned:
        request, common = _asked(call, [token], first)
        yield from _answers([decide_planned(call, token, common, waits=waits)], request, first)


def _asked(call: Call, tokens: Iterable[str], first: Requests) -> tuple[Request, dict[str, Any]]:
    """Returns both clocks' times now, and the parameters that all calls of a start statement share."""
    call.database.open()
    request = clock.monotonic(), limits.now()
    for token in tokens:
        first.setdefault(token, request)
    boot, uptime = clock.uptime()
    return request, {
        "functions": list(registry.functions()), "worker": call.worker[:TEXT_AT_MOST], "host": socket.gethostname(),
        "pid": call.pid, "boot": boot, "uptime": uptime,
    }  # fmt: skip


def _answers(rows: Iterable[sql.Row], request: Request, first: Requests) -> list[Asked]:
    """Returns the answers that have just come. The limits of a run count from the request that started it, whose answer
    may be lost.
    """
    answered, answers = clock.monotonic(), list[Asked]()
    for row in rows:
        token = str(row["token"])
        answers.append(Asked(*(first[token] if row["has_begun"] else request), answered, row))
        if first[token] is request:
            del first[token]
    return answers


def drop(call: Call, verdict: Mapping[str, Any]) -> str:
    """Logs a refused job, which RQ sees as a success. A drop has a record, unless its task is gone; what has a word of its
    own here has none.
    """
    reason = Reason(verdict["refusal"])
    detail = explain(reason, verdict)
    shown = reason, call.task_id, *names_in(verdict), call.job_id, detail
    waits_for_end = reason is Reason.STILL_RUNNING and (call.planned or verdict["kind"] != Kind.INTERVAL)
    if reason in (Reason.NO_ROOM, Reason.CLOSED) or waits_for_end:
        log.info("%s task=%s name=%s owner=%s job=%s: %s", *shown, extra={"event": "run_waits"})
        return f"{reason}: {detail}"
    if reason in (Reason.REDELIVERED, Reason.STALE, Reason.UNKNOWN_HERE):
        log.warning("%s task=%s name=%s owner=%s job=%s: %s", *shown, extra={"event": "job_refused"})
        return f"{reason}: {detail}"
    log.warning(
        "dropped reason=%s task=%s name=%s owner=%s last_run=%s interval=%s tolerance=%s job=%s: %s",
        *shown[:4], verdict["last_run"], words(verdict["every_ms"] or 0), words(verdict["tolerance_ms"] or 0), *shown[4:],
        extra={"event": "run_dropped"},
    )  # fmt: skip
    return f"dropped: {reason}, {detail}"


def names_in(verdict: Mapping[str, Any]) -> tuple[str, str]:
    return names(verdict["name"], verdict["owner_type"], verdict["owner_id"])


_SAID = {
    Reason.GONE: "the task was deleted",
    Reason.STALE: "the task is not waiting for this job",
    Reason.PAUSED: "the task is disabled, or its owner is inactive",
    Reason.DONE: "the task has had all its runs",
    Reason.CLOSED: "the task is paused; it is pushed again after the pause",
    Reason.SUPERSEDED: "it was kept waiting until the task was due at another time",
    Reason.NO_TIME: "it could not end before the next start",
    Reason.EXPIRED: "it waited too long, and a newer occurrence waits",
    Reason.DUPLICATE: "a newer occurrence of the task has started",
}


def explain(reason: Reason, verdict: Mapping[str, Any]) -> str:
    """Returns the details of a refusal, in a few words."""
    now, last_run = verdict["now"], verdict["last_run"]
    match reason:
        case Reason.TOO_EARLY:
            early = timing.earliest_start(last_run, verdict["every_ms"], verdict["tolerance_ms"]) - now
            return f"{_span(early)} early, {_span(now - last_run)} after the last start"
        case Reason.STILL_RUNNING:
            return f"another run holds the task for {_span(verdict['running_until'] - now)} more"
        case Reason.CLOCK:
            return f"the clock was set back by {_span(last_run - now)} or more"
        case Reason.UNKNOWN_FUNCTION | Reason.UNKNOWN_HERE:
            return unknown_here(verdict["function"])
        case Reason.REDELIVERED:
            return f"run {verdict['run_id']} is its record"
        case Reason.NO_ROOM:
            return f"{verdict['full_key']!r} has no room, and the next tick with room pushes it again"
        case _:
            return _SAID[reason]


def too_late(waited: float, limit: float) -> str:
    """Returns the reason of a run that ends before its function is called, because the answer to its start came too
    late.
    """
    return f"the start statement took {waited:.1f} s, over the limit of {limit:g} s: its function was not called"


def _start(verdict: Mapping[str, Any], token: str) -> Start:
    known = {name: verdict[name] for name in _SAME_NAMES if name in verdict}
    keys = tuple(verdict["limits"] or ())
    return Start(**known, token=token, kind=RunKind(verdict["run_kind"]), piece=verdict["item"], limits=keys)


def _span(delta: timedelta) -> str:
    """Formats a duration for people: `27 s`."""
    return f"{delta.total_seconds():.3f}".rstrip("0").rstrip(".") + " s"
