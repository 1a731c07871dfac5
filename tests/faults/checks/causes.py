"""S9, S14: why a run died, against what the witness saw and the nemesis did; and that a run that returned is recorded so.

`true_causes` is a part of S9.
"""

import re
import signal
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from tests.faults.checks import excuses
from tests.faults.checks.crews import DEAD, crew_of, deed_of, last_activity, pid_of, process_of
from tests.faults.checks.findings import Findings
from tests.faults.facts import FOREVER, History, Run, Signal

HARD_LIMIT = re.compile(r"(at|after) its hard limit of ([0-9.]+) s")
SIGNAL = re.compile(r"(?:died of|killed by) (SIG[A-Z0-9]+)")
STATUS = re.compile(r"exited with status ([0-9]+)")
BECAUSE_OF = re.compile(r" of task ([0-9]+)$")
OUT_OF_MEMORY, WORKER_GONE = "out of memory", "its worker is gone"
NOT_CALLED = re.compile(r"its function (did not (run|start)|was not called)")
BY_ITSELF = {"poll.falls": "SIGKILL", "poll.crashes": "SIGSEGV"}
STATUSES = {"poll.vanishes": 0, "poll.exits": 3}
"""What functions of the cast do to themselves."""
DEEDS = {"crashes": "SIGSEGV", "reads nowhere": "SIGSEGV", "kills": "SIGKILL", "vanishes": 0}
"""How a run of a group ends its process: a signal, or an exit status."""
ROUNDING = 0.1  # seconds: how the limit is written, and when its timer begins
NOTICED = 1.0  # seconds: a worker that reaps a horse so late takes it for one that reached its limit
START_WAITS = 2.0  # seconds: how long the answer to a start may take
QUIET = 6.0  # seconds without a fault, in which an end that waits is written
KEPT = 600.0  # seconds that an end waits at least
DYING = 1.0  # seconds: how long before the supervisor sees it a process may have ended

# ------------------------------------------------------------------------------------------------------------ S9


def true_causes(history: History, found: Findings) -> None:
    for run in history.runs.values():
        if run.started and run.ended and run.outcome in {"lost", *DEAD}:
            for holds, against in _claims(history, run):
                if found.judge(holds):
                    found.blame(
                        run.task,
                        run.ended.at,
                        f"task {run.task}: run {run.id} ({run.function}) says {run.reason[:200]!r}, and {against}",
                    )


def _claims(history: History, run: Run) -> Iterator[tuple[bool, str]]:
    """Each thing that the reason says, whether it can be true, and what speaks against it."""
    limit = HARD_LIMIT.search(run.reason)
    if limit:
        yield from _one_reached_its_limit(history, run, float(limit[2]), is_the_cause=limit[1] == "at")
    if match := SIGNAL.search(run.reason):
        by_us = match[1] == "SIGKILL" and (limit or _kills(history, run) or _is_cold_shutdown(history, run))
        yield bool(by_us) or _does(history, run, match[1]), "it does not do that, and the harness sent none"
    if match := STATUS.search(run.reason):
        is_own = int(match[1]) == STATUSES.get(run.function) or _one_does(history, run, int(match[1]))
        yield is_own or int(match[1]) not in STATUSES.values(), "it does not exit so"
    if OUT_OF_MEMORY in run.reason:
        yield False, "the harness leaves memory to all"
    if WORKER_GONE in run.reason and (process := process_of(history, run)):
        assert run.ended
        gone_at = died(history, process, pid_of(history, run))
        yield gone_at <= run.ended.at + DYING, f"its worker {process} lived until {_told(history, gone_at)}"
    if NOT_CALLED.search(run.reason):
        yield run.id not in history.witnessed, "it was active"


def _one_reached_its_limit(
    history: History, run: Run, limit: float, *, is_the_cause: bool
) -> Sequence[tuple[bool, str]]:
    """Judges the run that the reason names, or any run that was active in the process of an interrupted one, or this one."""
    named = BECAUSE_OF.search(run.reason)
    others = crew_of(history, run).dead if named or run.outcome == "interrupted" else ()
    claims = [
        [*_reached_its_limit(history, other, limit, is_the_cause=is_the_cause)]
        for other in (*others, run)
        if named is None or other.task == int(named[1])
    ]
    return next((one for one in claims if all(holds for holds, _ in one)), (claims or [[(False, "no such run")]])[-1])


def _reached_its_limit(history: History, run: Run, limit: float, *, is_the_cause: bool) -> Iterator[tuple[bool, str]]:
    """The limit may begin to count before the database decides the start: by the function's own word, its box was over no
    sooner than this."""
    assert run.started and run.ended
    one = history.witnessed.get(run.id)
    begin = one.begins[0] if one and one.begins else None
    reached = min(run.started.at + limit, begin.at + begin.box if begin else run.started.at + limit - START_WAITS)
    over = run.ended.at - run.started.at
    yield run.ended.at >= reached - ROUNDING, f"it was over {over:.3f} s after its start"
    if not is_the_cause:
        return
    kill = next((kill.at for kill in _kills(history, run) if kill.pid == pid_of(history, run)), FOREVER)
    yield kill >= reached - NOTICED, f"the harness killed it {kill - run.started.at:.3f} s after its start"


def _does(history: History, run: Run, name: str) -> bool:
    return BY_ITSELF.get(run.function) == name or _one_does(history, run, name)


def _one_does(history: History, run: Run, end: str | int) -> bool:
    """Returns whether a run of its process was about to end the process in this way."""
    return any(DEEDS.get(deed_of(history, other)) == end for other in crew_of(history, run).dead)


def _kills(history: History, run: Run) -> Sequence[Signal]:
    """SIGKILLs while it ran: of its process or of its worker's; of any, where nobody knows which worker that was."""
    assert run.started and run.ended
    pid, process = pid_of(history, run), process_of(history, run)
    return [
        sent
        for sent in _signals_between(history, run.started.at - DYING, run.ended.at)
        if sent.number == signal.SIGKILL and (sent.pid == pid or sent.process == process or not process)
    ]


def _is_cold_shutdown(history: History, run: Run) -> bool:
    """Whether its worker was told twice to end: RQ then kills the horse."""
    assert run.ended
    process = process_of(history, run)
    sent = _signals_between(history, 0.0, run.ended.at)
    return sum(one.process == process and one.number == signal.SIGTERM for one in sent) > 1


def _signals_between(history: History, since: float, until: float) -> Sequence[Signal]:
    first = bisect_left(history.signals, since, key=lambda sent: sent.at)
    return [sent for sent in history.signals[first:] if sent.at <= until]


def died(history: History, process: str, horse: int) -> float:
    """When a worker may have begun to end: it was gone, or the harness told it, or its keeper, to go. A signal to the
    `horse` alone leaves the worker be."""
    life = history.lives.get(process)
    ends = [sent.at for sent in history.signals if sent.process == process and sent.pid != horse]
    return min([life.end - DYING if life else 0.0, *ends])


def _told(history: History, at: float) -> str:
    return "the end" if at == FOREVER else f"{history.seconds(at)} s"


# ----------------------------------------------------------------------------------------------------------- S14


def recorded_as_returned(history: History) -> Findings:
    """A function that returned, or raised, and whose worker lived on into a time without faults, is not lost: unless a later
    run of its task had started before, so that its end was fenced."""
    found = Findings(history)
    for one in history.witnessed.values():
        run = history.runs.get(one.run)
        if run is None or run.started is None or one.returned is None or not one.begins:
            continue
        written = _quiet_since(history, one.returned)
        lived = died(history, one.begins[0].process, one.begins[0].pid) if one.begins[0].process else 0.0
        if written is None or written > min(lived, history.end):
            continue
        is_lost = run.outcome == "lost" or not run.ends or _outlived(history, run, one.returned)
        if is_lost and _later_start(history, run, written):
            found.excuse("a later run had started")
            continue
        if is_lost and excuses.raised_hold_lost(history, run):
            found.excuse("its task was deleted, and it says so")
            continue
        if is_lost and excuses.lost_its_end(history, run):
            found.excuse("its end was lost with a primary")
            continue
        if found.judge(not is_lost):
            found.blame(
                run.task,
                one.returned,
                f"task {run.task}: run {run.id} returned at {history.seconds(one.returned)} s, its worker could write that by"
                f" {history.seconds(written)} s, and its record says {run.outcome or run.state}: {run.reason[:200]!r}",
            )
    return found


def _outlived(history: History, run: Run, returned: float) -> bool:
    """Returns whether its record says `interrupted`, although its process lived for a while after it had returned."""
    return run.outcome == "interrupted" and last_activity(history, crew_of(history, run)) > returned + NOTICED


def _quiet_since(history: History, returned: float) -> float | None:
    """The first instant after it at which no fault had hit for QUIET seconds; None: that came too late."""
    at = returned
    for fault in history.faults:  # in the order of their beginnings
        if fault.end >= at and fault.begin <= at + QUIET:
            at = max(at, fault.end)
    return at + QUIET if at <= returned + KEPT - QUIET else None


def _later_start(history: History, run: Run, until: float) -> bool:
    assert run.started
    return any(
        other.started and other.kind != "piece" and run.started < other.started and other.started.at <= until
        for other in history.starts.get(run.task, ())
    )
