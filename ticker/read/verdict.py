"""Says in one sentence whether all is well, and if not, what is wrong and what helps. Pure.

The page's first screen with its title, `ticker top` and `ticker doctor` begin with this sentence.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ticker.read import gates
from ticker.read.explain import counted, span
from ticker.read.health import Health
from ticker.read.overview import Counts, Overview
from ticker.schedules.duration import SECOND

BAD, WARN, GOOD = "bad", "warn", "good"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A sentence, and a `short` form for a title. `tone`: somebody must act (`bad`), something is unusual (`warn`), or
    all is well (`good`).

    `command` shows more, and `tasks` are the filters of the list of tasks that it is about. Either may be empty.
    """

    tone: str
    sentence: str
    short: str
    command: str = ""
    tasks: Mapping[str, str] = field(default_factory=dict)


def verdict(look: Health, seen: Overview) -> Verdict:
    """Judges the state. Problems go first, then a pause of all tasks, tasks in trouble, and warnings."""
    if problems := problems_of(look):
        return of_problems(problems)
    for pause in look.pauses:
        if gates.stops_all(pause):
            return Verdict(WARN, gates.sentence(pause), "paused", gates.resume(pause))
    if troubles := [*_troubles(seen)]:
        return Verdict(BAD, "; ".join(troubles), troubles[0].partition(",")[0].partition(" with ")[0], *_help(seen))
    if look.warnings:
        return Verdict(WARN, _more(look.warnings, "warning"), counted(len(look.warnings), "warning"))
    if not seen.counts.tasks:
        return Verdict(GOOD, "There are no tasks yet", "no tasks")
    return Verdict(GOOD, f"All is well: {', '.join(_figures(look, seen))}", "all is well")


def problems_of(look: Health) -> list[str]:
    """Returns why ticks fail, even if another ticker ticks, and then the other problems."""
    return [*dict.fromkeys((*look.failures, *look.problems))]


def of_problems(problems: Sequence[str]) -> Verdict:
    return Verdict(BAD, _more(problems, "problem"), counted(len(problems), "problem"))


def _more(sentences: Sequence[str], word: str) -> str:
    """Returns the first sentence, and how many more there are."""
    more = f"; and {counted(len(sentences) - 1, f'more {word}')}" if len(sentences) > 1 else ""
    return sentences[0] + more


def _troubles(seen: Overview) -> Iterator[str]:
    if seen.counts.failing:
        yield _tasks(seen.counts, "failing", "fails", "fail") + _with_cause(seen)
    if seen.counts.unknown_function:
        yield _tasks(seen.counts, "unknown_function", "has", "have") + " a function that no worker knows"
    if seen.counts.late:
        yield _tasks(seen.counts, "late", "is late", "are late")


def _tasks(counts: Counts, state: str, one: str, many: str) -> str:
    count = counts.said(state)
    return f"1 task {one}" if count == "1" else f"{count} tasks {many}"


def _with_cause(seen: Overview) -> str:
    """Names the cause of most failures, with its host, unless each task fails with another one."""
    failing = seen.counts.failing
    if not seen.causes or seen.causes[0].tasks == 1 < failing:
        return ""
    first = seen.causes[0]
    named = f"{first.cause} ({first.host})" if first.host else first.cause
    return f" with {named}" if first.tasks >= failing else f", {first.tasks:,} of them with {named}"


def _help(seen: Overview) -> tuple[str, dict[str, str]]:
    """Returns the command and the filters for the first of the troubles."""
    counts = seen.counts
    if counts.failing and _with_cause(seen):
        cause = seen.causes[0].cause
        return f"ticker list --cause {shlex.quote(cause)}", {"cause": cause}
    state = "failing" if counts.failing else "unknown_function" if counts.unknown_function else "late"
    return f"ticker list --state {state}", {"state": state}


def _figures(look: Health, seen: Overview) -> Iterator[str]:
    """Yields the number of tasks, of runs a minute, and the age of the last tick, as far as they are known."""
    yield f"{seen.counts.said('tasks')} task{'' if seen.counts.tasks == 1 else 's'}"
    if seen.counts.paused:
        yield f"{seen.counts.said('paused')} paused"
    if seen.per_minute is not None:
        pace = f"{seen.per_minute:,.{0 if seen.per_minute >= 10 else 1}f}".removesuffix(".0")
        yield f"{pace} {'run' if pace == '1' else 'runs'} a minute"
    ages = [one.age_ms for one in look.tickers if one.lives(look.max_age_ms) and one.age_ms is not None]
    if ages:
        yield f"last tick {span(max(min(ages), 0) // SECOND * SECOND)} ago"
