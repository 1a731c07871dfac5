"""`ticker top`: shows on one screen what is late, failing, running, next and dropped, and why."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, timedelta
from itertools import chain, islice
from typing import Any

import click

from ticker.cli import fit, render, watching
from ticker.cli.connection import configured, database
from ticker.cli.fit import Line, Row, row
from ticker.cli.render import colour
from ticker.model import NO_FAILURE
from ticker.read import explain, formatting, gates, health, overview
from ticker.read.entries import JournalEntry
from ticker.read.health import Health
from ticker.read.journal import Drops
from ticker.read.overview import Cause, Counts, Overview
from ticker.read.tasks import RunRecord, TickerStatus, late_since
from ticker.read.verdict import Verdict, problems_of, verdict
from ticker.tasks.fields import Task

ON_A_SCREEN = 100  # maximum number of rows of a section; a screen has fewer
AT_ONCE = 10
BY_CAUSE = 10  # more failing tasks are shown by cause
STYLES = {"bad": "bold red", "warn": "bold yellow", "good": "bold green"}
IN_WORDS = {
    "no_room": "without room", "queue_full": "with a full queue", "waits_for_its_turn": "waiting for their turn",
    "unknown_function": "with an unknown function",
}  # fmt: skip
TENTH = timedelta(milliseconds=100)
SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class View:
    """The overview, and the result of `ticker health`."""

    overview: Overview
    health: Health


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the screen. `count` is the number of entries as text, or empty. `most` is the total number of rows."""

    title: str
    count: str
    most: int
    rows: Sequence[Row]


@click.command()
@watching.interval
@click.option("--once", is_flag=True, help="Print once as plain text. This is the default in a pipe.")
def top(every_ms: int, once: bool) -> None:
    """Show late, failing, running and coming tasks, and drops.

    Redraws the screen every two seconds, until you press q or Ctrl-C.
    """
    if render.is_screen() and not once:
        watching.watch(look, draw, every_ms)
        return
    with database() as db:
        view = look(db, AT_ONCE)
    for line in draw(view, render.WIDE, render.WIDE):
        click.echo(line.plain.rstrip())


def look(db: Any, limit: int = ON_A_SCREEN) -> View:
    """Queries both servers."""
    return View(overview.overview(db, limit=limit), health.look(configured()))


# ------------------------------------------------------------------------------------------------------ the screen


def draw(view: View, width: int, height: int) -> list[Line]:
    """Returns at most `height` lines: the head, then each section with as many rows as fit."""
    above = [fit.line(sentence, width, style) for sentence, style in head(view)]
    parts = sections(view)
    counts = fit.shares([len(section.rows) for section in parts], height - len(above) - len(parts))
    titles = [fit.line(titled(section, count), width, "bold") for section, count in zip(parts, counts, strict=True)]
    chosen = [section.rows[:count] for section, count in zip(parts, counts, strict=True)]
    bodies = [*aligned(chosen[:-1], width), fit.lines(chosen[-1], width)]
    return [*above, *chain.from_iterable([title, *body] for title, body in zip(titles, bodies, strict=True))][:height]


def aligned(groups: Sequence[Sequence[Row]], width: int) -> Iterator[list[Line]]:
    """Yields the lines of each group, with columns aligned across all groups."""
    lines = iter(fit.lines([*chain.from_iterable(groups)], width))
    for group in groups:
        yield [*islice(lines, len(group))]


def head(view: View) -> Iterator[tuple[str, str]]:
    """Yields sentences and their styles: the verdict, the counts, the running tickers, and all problems and warnings."""
    seen, most = view.overview, view.health.max_age_ms
    told = verdict(view.health, seen)
    yield told.sentence + (f": {told.command}" if told.command else ""), STYLES[told.tone]
    yield f"{formatting.moment(seen.now)} UTC  {counted(seen.counts)}", "bold"
    alive = [ticker for ticker in view.health.tickers if ticker.ticks(most)]
    if alive:
        subject = "1 ticker" if len(alive) == 1 else f"{len(alive)} tickers; the last one"
        sentence = f"{subject}, pid {alive[0].pid} on {alive[0].host}, {health.last_tick(alive[0])}"
        yield sentence + silent(view.health.tickers, most), ""
    problems = problems_of(view.health)
    lines = [
        *((gates.told(pause), "", "warn") for pause in view.health.pauses if not said(gates.sentence(pause), told)),
        *((problem, "problem: ", "bad") for problem in problems),
        *((warning, "warning: ", "warn") for warning in view.health.warnings if warning not in problems),
    ]
    yield from ((word + sentence, STYLES[tone]) for sentence, word, tone in lines if not said(sentence, told))


def said(sentence: str, told: Verdict) -> bool:
    """Returns whether the verdict begins with the sentence."""
    return told.sentence.startswith(sentence)


def silent(tickers: Iterable[TickerStatus], most: int | None) -> str:
    """Counts the silent tickers and describes the last one. Returns an empty string if no ticker is silent."""
    quiet = [ticker for ticker in tickers if ticker.silent_ms(most)]
    if not quiet:
        return ""
    subject = "1 is silent" if len(quiet) == 1 else f"{len(quiet)} are silent, the last one"
    lasts = explain.span(quiet[0].silent_ms(most) // 1000 * 1000)
    return f"; {subject}, pid {quiet[0].pid} on {quiet[0].host}, for {lasts}"


def counted(counts: Counts) -> str:
    """Returns the counts of tasks and runs by state. Omits states with a count of 0."""
    _, *states = (field.name for field in fields(counts))  # after `tasks`
    parts = [f"{counts.said(state)} {IN_WORDS.get(state, state)}" for state in states if getattr(counts, state)]
    return f"{counts.said('tasks')} task{'' if counts.tasks == 1 else 's'}" + (f": {', '.join(parts)}" if parts else "")


def sections(view: View) -> list[Section]:
    seen, counts = view.overview, view.overview.counts
    dropped_jobs = sum(drop.count for drop in seen.drops)
    return [
        _section("late", counts, [late(task, view) for task in seen.late]),
        of_failing(view),
        _section("running", counts, [running(run, view) for run in seen.running]),
        Section("Next", "", 0, [ahead(task, view) for task in seen.next]),
        Section("Dropped in the last hour", str(dropped_jobs), len(seen.drops), [*map(dropped, seen.drops)]),
    ]


def of_failing(view: View) -> Section:
    seen, counts = view.overview, view.overview.counts
    if counts.failing > BY_CAUSE and seen.causes:
        return Section("Failing", f"{counts.said('failing')}, by cause", 0, [*map(cause, seen.causes)])
    return _section("failing", counts, [failing(task, view) for task in seen.failing])


def _section(state: str, counts: Counts, rows: Sequence[Row]) -> Section:
    """Builds a section. The count is read a moment before the rows, so it may be too small."""
    count: int = getattr(counts, state)
    total = counts.said(state) if count >= len(rows) else str(len(rows))
    return Section(state.capitalize(), total, max(count, len(rows)), rows)


def titled(section: Section, shown: int) -> str:
    if not section.rows:
        return f"{section.title}: none"
    count = f": {section.count}" if section.count else ""
    return section.title + count + (f", the first {shown}" if 0 < shown < section.most else "")


# -------------------------------------------------------------------------------------------------------- the rows


def late(task: Task, view: View) -> Row:
    now = view.overview.now
    since = late_since(task, now) or task.next_run or now
    text = f"for {_short(now - since)}: {health.cause(task, view.health)}"
    return row(task.subject, task.id, task.name, task.owner, text, style="yellow")


def pushed(task: Task, view: View) -> str:
    """Says whether the next tick pushes a due task, unless its state says why it waits."""
    if task.push_errors or task.waits_because:
        return ""
    return f": {view.health.why_no_tick or 'the next tick pushes it'}"


def failing(task: Task, view: View) -> Row:
    """Says how often and how the task failed, and adds its state if that is not 'failing'."""
    last = view.overview.failures.get(task.id)
    parts = [f"{task.failures} in a row"]
    if last is not None:
        parts.append(f"{explain.what(last)}: {last.reason}" if last.reason else explain.what(last))
    elif task.last_outcome and task.last_outcome not in NO_FAILURE:
        parts.append(task.last_outcome)
    failed = ", ".join(parts)
    state = (
        "" if formatting.state(task) == "failing" else f"; {formatting.state_in_words(task).partition(', failing')[0]}"
    )
    return row(task.subject, task.id, task.name, task.owner, failed + state, style="red")


def cause(one: Cause) -> Row:
    """Shows a cause with its number of tasks, since when they fail, examples, and the hosts that their errors name."""
    names = [task.subject or task.name + (f" of {task.owner}" if task.owner else "") for task in one.examples]
    since = f"since {formatting.at(one.since)}, " if one.since else ""
    hosts = "".join(f", {host} ({tasks})" for host, tasks in one.hosts.items())
    named = f"; {one.errors} name {hosts[2:]}" if hosts else ""
    return row("", f"{one.tasks:,}", one.cause, "", f"{since}such as {', '.join(names)}{named}", style="red")


def running(run: RunRecord, view: View) -> Row:
    assert run.started_at is not None
    age = max(view.overview.now - run.started_at, timedelta(0))  # the run may have started after `now` was read
    lasted = f"for {_short(age)}{explain.of_its_box(run, None)}"
    began = f"started {explain.lateness(run.started_at, explain.planned_for(run))}"
    which = explain.identity(run, run.attempt)
    text = "; ".join(part for part in (lasted, which, began) if part)
    return row(run.subject, run.task_id, run.task_name, run.owner, text)


def ahead(task: Task, view: View) -> Row:
    assert task.next_run is not None
    now, state = view.overview.now, formatting.state(task)
    at = explain.time_of_day(task.next_run.replace(microsecond=0), now)
    if task.runs_next is None:
        when = f"waits {'from' if task.next_run > now else 'since'} {at}"
    elif task.next_run > now:
        when = f"in {_short(task.next_run - now)}, at {at}"
    else:
        when = f"due since {at}{pushed(task, view)}"
    text = f"{when}, {formatting.in_words(task) or formatting.schedule_now(task)}"
    return row(
        task.subject,
        task.id,
        task.name,
        task.owner,
        text + ("" if state == "ok" else f"; {formatting.state_in_words(task)}"),
    )


def dropped(drop: Drops) -> Row:
    """Shows the newest drop as an example. Its task may have been deleted."""
    text = "" if drop.example is None else f"{_whose(drop.example)}: {drop.example.words.removeprefix(f'{drop.key}: ')}"
    return row(drop.count, drop.key, f"{drop.newest.astimezone(UTC):%H:%M:%S}", text, style=colour("dropped"))


def _whose(line: JournalEntry) -> str:
    named = (line.task_name or f"task {line.task_id}") + (f" of {line.owner}" if line.owner else "")
    return f"{line.subject}, {named}" if line.subject else named


def _short(span: timedelta) -> str:
    """Rounds down to whole seconds, or to tenths of a second below ten seconds."""
    unit = TENTH if abs(span) < 10 * SECOND else SECOND
    return explain.span(span // unit * unit)
