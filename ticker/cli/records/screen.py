"""What `ticker top` shows, as lines that fit. Nothing is asked and no clock is read here."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from itertools import chain, islice

from ticker.cli import fit
from ticker.cli.fit import Line, Row, row
from ticker.cli.render import colour
from ticker.model import GOOD
from ticker.read import explain, formatting, health
from ticker.read.entries import JournalEntry
from ticker.read.health import Health
from ticker.read.journal import Drops
from ticker.read.overview import Counts, Overview
from ticker.read.tasks import RunRecord, TickerStatus
from ticker.schedules.duration import words
from ticker.tasks.fields import Task

TENTH = timedelta(milliseconds=100)
SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class View:
    """One look: the overview, how the tasks that fail did so last, by their ids, and what `ticker health` finds."""

    overview: Overview
    failures: Mapping[int, RunRecord]
    health: Health


@dataclass(frozen=True, slots=True)
class Section:
    """`count` says how many there are, or nothing; with all of them it would have `most` rows."""

    title: str
    count: str
    most: int
    rows: Sequence[Row]


# ------------------------------------------------------------------------------------------------------ the screen


def top(view: View, width: int, height: int) -> list[Line]:
    """At most `height` lines: the head, then each section with as many rows as there is room for."""
    above = [fit.line(sentence, width, style) for sentence, style in head(view)]
    found = sections(view)
    given = fit.shares([len(section.rows) for section in found], height - len(above) - len(found))
    titles = [fit.line(titled(section, count), width, "bold") for section, count in zip(found, given, strict=True)]
    chosen = [section.rows[:count] for section, count in zip(found, given, strict=True)]
    bodies = [*aligned(chosen[:-1], width), fit.lines(chosen[-1], width)]
    return [*above, *chain.from_iterable([title, *body] for title, body in zip(titles, bodies, strict=True))][:height]


def aligned(groups: Sequence[Sequence[Row]], width: int) -> Iterator[list[Line]]:
    """The lines of each, with columns that stand below each other in all of them."""
    lines = iter(fit.lines([*chain.from_iterable(groups)], width))
    for group in groups:
        yield [*islice(lines, len(group))]


def head(view: View) -> Iterator[tuple[str, str]]:
    """Sentences, each with its style: the counts, who ticks, and all that is wrong."""
    found, most = view.overview, view.health.max_age_ms
    yield f"{formatting.moment(found.now)} UTC  {counted(found.counts)}", "bold"
    alive = [ticker for ticker in found.tickers if health.ticks([ticker], most)]
    if alive:
        who = "1 ticker" if len(alive) == 1 else f"{len(alive)} tickers; the last one"
        said = f"{who}, pid {alive[0].pid} on {alive[0].host}, {health.last_tick(alive[0])}"
        yield said + silent(found.tickers, most), ""
    for problem in view.health.problems:
        yield f"problem: {problem}", "bold red"


def silent(tickers: Iterable[TickerStatus], most: int) -> str:
    """Those beside the living ones, with the one that was heard of last."""
    found = [ticker for ticker in tickers if health.silent_ms(ticker, most)]
    if not found:
        return ""
    who = "1 is silent" if len(found) == 1 else f"{len(found)} are silent, the last one"
    lasts = words(health.silent_ms(found[0], most) // 1000 * 1000)
    return f"; {who}, pid {found[0].pid} on {found[0].host}, for {lasts}"


def counted(counts: Counts) -> str:
    """The states that tasks or runs are in; those that none is in are left out."""
    states = ("late", "failing", "paused", "inactive", "waiting", "running", "planned")
    parts = [f"{counts.said(state)} {state}" for state in states if getattr(counts, state)]
    return f"{counts.said('tasks')} task{'' if counts.tasks == 1 else 's'}" + (f": {', '.join(parts)}" if parts else "")


def sections(view: View) -> list[Section]:
    found, counts = view.overview, view.overview.counts
    dropped_jobs = sum(drop.count for drop in found.drops)
    return [
        _section("late", counts, [late(task, view) for task in found.late]),
        _section("failing", counts, [failing(task, view) for task in found.failing]),
        _section("running", counts, [running(run, view) for run in found.running]),
        Section("Next", "", 0, [ahead(task, view) for task in found.next]),
        Section("Dropped in the last hour", str(dropped_jobs), len(found.drops), [*map(dropped, found.drops)]),
    ]


def _section(state: str, counts: Counts, rows: Sequence[Row]) -> Section:
    """They are counted a moment before they are read."""
    count: int = getattr(counts, state)
    said = counts.said(state) if count >= len(rows) else str(len(rows))
    return Section(state.capitalize(), said, max(count, len(rows)), rows)


def titled(section: Section, shown: int) -> str:
    if not section.rows:
        return f"{section.title}: none"
    count = f": {section.count}" if section.count else ""
    return section.title + count + (f", the first {shown}" if 0 < shown < section.most else "")


# -------------------------------------------------------------------------------------------------------- the rows


def late(task: Task, view: View) -> Row:
    assert task.next_run is not None
    cause = formatting.state_in_words(task) if task.push_errors else pushed(view)
    said = f"for {_short(view.overview.now - task.next_run)}: {cause}"
    return row(task.id, task.name, task.owner, said, style="yellow")


def pushed(view: View) -> str:
    """Who pushes what is due."""
    ticks = health.ticks(view.overview.tickers, view.health.max_age_ms)
    return "the next tick pushes it" if ticks else "no ticker ticks"


def failing(task: Task, view: View) -> Row:
    """How often, and how last; and what else there is to say of its state."""
    last = view.failures.get(task.id)
    parts = [f"{task.failures} in a row"]
    if last is not None:
        parts.append(f"{explain.what(last)}: {last.reason}" if last.reason else explain.what(last))
    elif task.last_outcome and task.last_outcome not in GOOD:
        parts.append(task.last_outcome)
    said = ", ".join(parts)
    state = (
        "" if formatting.state(task) == "failing" else f"; {formatting.state_in_words(task).partition(', failing')[0]}"
    )
    return row(task.id, task.name, task.owner, said + state, style="red")


def running(run: RunRecord, view: View) -> Row:
    assert run.started_at is not None
    age = max(view.overview.now - run.started_at, timedelta(0))  # it may have started after that was read
    lasted = f"for {_short(age)}{explain.of_its_box(run, None)}"
    began = f"started {explain.lateness(run.started_at, explain.planned_for(run))}"
    which = explain.identity(run, run.attempt)
    said = "; ".join(part for part in (lasted, which, began) if part)
    return row(run.task_id, run.task_name, formatting.owner_of(run), said)


def ahead(task: Task, view: View) -> Row:
    assert task.next_run is not None
    now, state = view.overview.now, formatting.state(task)
    at = explain.time_of_day(task.next_run.replace(microsecond=0), now)
    if task.next_run > now:
        when = f"in {_short(task.next_run - now)}, at {at}"
    else:
        when = f"due since {at}" + ("" if task.push_errors else f": {pushed(view)}")
    said = f"{when}, {formatting.in_words(task) or formatting.schedule(task)}"
    return row(task.id, task.name, task.owner, said + ("" if state == "ok" else f"; {formatting.state_in_words(task)}"))


def dropped(drop: Drops) -> Row:
    """With the newest as an example, whose task may be gone."""
    said = "" if drop.example is None else f"{_whose(drop.example)}: {drop.example.words.removeprefix(f'{drop.key}: ')}"
    return row(drop.count, drop.key, f"{drop.newest.astimezone(UTC):%H:%M:%S}", said, style=colour("dropped"))


def _whose(line: JournalEntry) -> str:
    return (line.task_name or f"task {line.task_id}") + (f" of {line.owner}" if line.owner else "")


def _short(span: timedelta) -> str:
    """Finer than a second only where there are few of them."""
    unit = TENTH if abs(span) < 10 * SECOND else SECOND
    return explain.span(span // unit * unit)
