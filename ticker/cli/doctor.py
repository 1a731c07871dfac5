"""`ticker doctor`: checks whether all is well, and if not, says what to do. Writes nothing."""

import os
import platform
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields
from importlib import metadata

import click

from ticker import notify
from ticker.cli import options, render
from ticker.cli.connection import configured, database
from ticker.cli.run import scheduled_again
from ticker.db import checks, installation, listener, sql
from ticker.engine.follow_up import unknown
from ticker.errors import ConfigurationError, Unavailable, did_you_mean, load_function
from ticker.queue import inspect
from ticker.queue.rq import RedisQueue
from ticker.read import gates, health, overview
from ticker.read.explain import counted
from ticker.read.health import Health
from ticker.read.overview import Cause, Counts, Overview
from ticker.read.verdict import Verdict, of_problems, verdict
from ticker.settings import Settings
from ticker.tasks import owner_checks
from wrappers.rq import compatibility

WELL, FINDING, WARNING, UNCHECKED = "well", "finding", "warning", "not checked"
NEARLY_FULL = 0.9
FIRST = {"tables": 0, "health": 1}  # where the cause of the others is found
CAUSES = 2  # of failing tasks that are named
UPGRADE = "run: ticker db upgrade"
ALIKE = 0.9  # from 0 to 1: below it, a variable is one of another program, not a misspelt setting


class Advice(str):
    """A sentence about tasks that do not run as planned, although nothing is wrong with the installation."""

    __slots__ = ()


@dataclass(slots=True)
class Diagnosis:
    """The notes of the checks: a status, a check and a sentence each. The checks wait for a hanging server only once.

    `look` and `seen` are what the checks of the health and of the tasks have read, if they could. `none_succeeds` is
    the finding that no task succeeds, if there is one. `unanswered` has the errors of servers that no finding explains.
    """

    settings: Settings
    versions: dict[str, str | None]
    notes: list[tuple[str, str, str]] = field(default_factory=list)
    servers: health.CircuitBreaker = field(default_factory=health.CircuitBreaker)
    look: Health | None = None
    seen: Overview | None = None
    none_succeeds: str = ""
    unanswered: list[str] = field(default_factory=list)

    def check(self, name: str) -> None:
        """Runs one of CHECKS. An error that follows from an earlier finding does not count as a finding."""
        try:
            for sentence in CHECKS[name](self, self.settings):
                self.notes.append((WARNING if isinstance(sentence, Advice) else FINDING, name, sentence))
        except (Unavailable, ConfigurationError) as error:
            follows = any(note[1] == "tables" or note[2] == str(error) for note in self.notes if note[0] == FINDING)
            # a ticker needs no rights on the tables of owners
            is_unknown = follows or name == "owners" or isinstance(error, Unavailable)
            self.notes.append((UNCHECKED if is_unknown else FINDING, name, str(error)))
            if isinstance(error, Unavailable) and not follows:
                self.unanswered.append(str(error))
        if all(note[1] != name for note in self.notes):
            self.notes.append((WELL, name, ""))

    @property
    def problems(self) -> list[str]:
        """Returns what the checks have found or, if that is nothing, why a server did not answer one of them."""
        findings = [note for note in self.notes if note[0] == FINDING]
        findings.sort(key=lambda note: FIRST.get(note[1], len(FIRST)))
        return [sentence for _, _, sentence in findings] or self.unanswered

    @property
    def verdict(self) -> Verdict:
        """Judges what the checks have read, unless there are problems."""
        problems = [problem for problem in self.problems if problem != self.none_succeeds]
        if problems or self.look is None or self.seen is None:
            return of_problems(problems or self.unanswered)
        return verdict(self.look, self.seen)


def misconfigured(_: Diagnosis, config: Settings) -> Iterator[str]:
    known = [declared.metadata["variable"] for declared in fields(Settings)]
    for name in sorted({*os.environ} - {*known}):
        if name.startswith("TICKER_") and (near := did_you_mean(name, known, ALIKE)):
            yield Advice(f"{name} is not a setting{near} and has no effect")
    notify.channels(config)  # an error is one that `ticker run` ends with


def unfit(diagnosis: Diagnosis, config: Settings) -> Iterable[str]:
    with diagnosis.servers.asking(health.POSTGRESQL):
        if checks.are_as_frozen(config.require_database(), config.schema):
            return ()
        from ticker import migrations

        return migrations.problems(config.database_url, config.schema)


def working(diagnosis: Diagnosis, config: Settings) -> tuple[str, ...]:
    diagnosis.look = look = health.look(config, breaker=diagnosis.servers)
    findings = (*look.problems, *(one for one in look.warnings if one not in look.hints))
    return *findings, *map(Advice, (*look.hints, *look.lateness))


def unable(diagnosis: Diagnosis, config: Settings) -> Iterator[str]:
    with diagnosis.servers.asking(health.POSTGRESQL), database() as db:
        execute = sql.on(db, config.schema)
        sources = installation.read(execute).taken_from
        announced = [function.name for function in overview.functions(db)]
        for row in execute("missing_functions"):
            cause = unknown(row["function"], announced)
            told = f"{cause}; {remedy(row['function'], row['declared_in'])}"
            yield Advice(told) if row["is_new"] else told  # in a deployment, an old worker may be the cause
        yield from (Advice(gates.told(pause)) for pause in gates.list_pauses(db))
        if alone := execute("paused_one_by_one", most=overview.COUNTED_AT_MOST):
            authors = [*(f"{row['tasks']} by {row['by']}" for row in alone[:3]), *["..."] * (len(alone) > 3)]
            yield Advice(
                f"tasks paused one by one: {sum(row['tasks'] for row in alone)} ({', '.join(authors)}); to resume them "
                "together: ticker resume --each --state paused, and then with --apply"
            )
        diagnosis.seen = seen = overview.overview(db, limit=CAUSES)
        counts = seen.counts
        if counts.failing:
            told = failing(counts, seen.causes)
            is_paused = diagnosis.look is not None and any(map(gates.stops_all, diagnosis.look.pauses))
            if not is_paused and execute("none_succeeds")[0]["none_succeeds"]:
                diagnosis.none_succeeds = told = f"no task succeeds; {told}"
                yield told
            else:
                yield Advice(told)
        if counts.no_room:
            yield Advice(
                f"due tasks with limits that no tick has pushed: {counts.said('no_room')}; ticker limit lists the keys without room"
            )
        for row in execute("failing_pushes"):
            yield f"pushing {counted(row['count'], 'task')} failed; the first is {row['id']} ({row['name']}): {row['error']}"
    with diagnosis.servers.asking(health.REDIS):
        yield from scheduled_again(sources)


def failing(counts: Counts, causes: Sequence[Cause]) -> str:
    """Says how many tasks fail, and names the most frequent causes."""
    named = "".join(f"; {one.tasks:,} with {one.cause}" for one in causes)
    return f"failing tasks: {counts.said('failing')}{named}; ticker top gives the causes"


def remedy(function: str, module: str) -> str:
    """Says what to do about a function that no worker has announced. `module` has declared a task of it, or is empty."""
    if module:
        gone = f"ticker sync --tasks ... --prune-modules, if {module} is gone"
        return f"module {module} declares it: start a worker with that module, or remove its tasks ({gone})"
    listed = f"ticker list --function {shlex.quote(function)}"
    return f"correct the name (ticker edit), or {load_function()}; its tasks: {listed}"


def ownerless(diagnosis: Diagnosis, config: Settings) -> Iterator[str]:
    with diagnosis.servers.asking(health.POSTGRESQL), database() as db:
        db.execute("SET TRANSACTION READ ONLY")
        yield from owner_checks.problems(db, config.schema)
        yield from owner_checks.outlived(db, config.schema)
        yield from map(Advice, owner_checks.external(db, config.schema))


def postgresql(diagnosis: Diagnosis, config: Settings) -> Iterator[str]:
    with diagnosis.servers.asking(health.POSTGRESQL), database() as db:
        diagnosis.versions["postgresql"] = overview.server_version(db).split()[0]
        yield from filter(None, checks.check_database(config)[1:])
        yield from checks.missing_rights(db, config.schema, checks.RIGHTS_OF_TICKER)
    if config.wake:
        with database(config.require_listen(), "TICKER_LISTEN_URL") as db:
            yield from [listener.POOLER] * bool(db.has_pooler)


def redis(diagnosis: Diagnosis, config: Settings) -> Iterator[str]:
    with diagnosis.servers.asking(health.REDIS), closing(RedisQueue.from_settings(config)) as queue:
        diagnosis.versions["redis"] = queue.check()
        if refused := queue.refused(inspect.queues_of_tasks(config)):
            yield f"REDIS_URL: its user may not call {', '.join(refused)}; give it the rights in docs/operations/security.md"
        else:
            yield from capacity(*queue.memory(), queue.refused_write())
        if aside := queue.put_aside():
            yield Advice(
                f"in the last hour, workers put aside {counted(aside, 'job')} of other installations without a lease of the "
                "queue; give each installation its own queues, or its own Redis"
            )


def capacity(used: int, most: int, refused: str) -> Iterator[str]:
    """Yields a sentence if Redis refuses writes, or is nearly full."""
    uses = f"it uses {used:,} of {most:,} bytes (maxmemory)"
    if refused and used >= most > 0:
        yield f"REDIS_URL: Redis refuses writes: {refused}; {uses}: raise maxmemory, or delete data"
    elif refused:
        yield f"REDIS_URL: Redis refuses writes: {refused}"
    elif used >= NEARLY_FULL * most > 0:
        yield Advice(f"REDIS_URL: {uses}, and once it is full, refuses jobs: raise maxmemory, or delete data")


def untried(diagnosis: Diagnosis, _: Settings) -> Iterator[str]:
    if compatibility.is_untried():
        rq, tried = diagnosis.versions["rq"], compatibility.TRIED
        yield f"RQ {rq} is newer than {tried}, the newest version that was tested; if it fails: pip install 'rq<={tried}'"


CHECKS: dict[str, Callable[[Diagnosis, Settings], Iterable[str]]] = {
    "settings": misconfigured,
    "tables": unfit,  # before those whose error may follow from what it finds
    "health": working, "tasks": unable, "postgresql": postgresql, "redis": redis, "owners": ownerless,
    "packages": untried,
}  # fmt: skip


@click.command()
@options.as_json
def doctor() -> None:
    """Check whether all is well, and if not, say what to do.

    Runs the checks of `health` and `db upgrade --check`, and more. Run it with the same environment as `ticker run`. It
    writes nothing. Exits with 1 if there is a problem, otherwise with 0.
    """
    packages = {name: metadata.version(name) for name in ("rq", "sqlalchemy", "psycopg")}
    versions = {"python": platform.python_version(), **packages, "postgresql": None, "redis": None}
    diagnosis = Diagnosis(configured(), versions)
    diagnosis.settings.require_database()
    for name in CHECKS:
        diagnosis.check(name)
    problems, verdict = diagnosis.problems, diagnosis.verdict
    notes = [{"status": status, "check": name, "sentence": text} for status, name, text in diagnosis.notes]
    data = {"well": not problems, "verdict": verdict.sentence, "notes": notes, "versions": diagnosis.versions}
    running = ", ".join(f"{name} {version or 'unknown'}" for name, version in diagnosis.versions.items())
    render.answer(data, verdict.sentence, *lines(diagnosis.notes), running)
    if problems:
        raise click.ClickException(f"{counted(len(problems), 'problem')} found")


def lines(notes: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    """Yields the notes as text. Checks that the same cause prevented share a line. Each cause is printed once."""
    reported = {cause(sentence): name for status, name, sentence in notes if status == FINDING}
    unchecked: dict[str, list[str]] = {}
    for status, name, sentence in notes:
        if status == UNCHECKED:
            unchecked.setdefault(cause(sentence), []).append(name)
    for status, name, sentence in sorted(notes, key=lambda note: note[0] != FINDING):  # what is wrong comes first
        if status == WELL:
            yield f"ok: {name}"
        elif status == FINDING:
            yield f"problem: {name}: {sentence}"
        elif status == WARNING:
            yield f"warning: {name}: {sentence}"
        elif names := unchecked.pop(cause(sentence), None):
            check = reported.get(cause(sentence))
            yield f"not checked: {', '.join(names)}: {f'see {check}' if check else sentence}"


def cause(sentence: str) -> str:
    """Returns a key of the cause. Tables that do not fit have a different error in each check, but the same remedy."""
    return UPGRADE if sentence.endswith(UPGRADE) else sentence
