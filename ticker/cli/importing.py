"""`ticker import | export`: brings the schedules of other schedulers over, and writes tasks for other programs."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ticker import clock, settings
from ticker.cli import options, render
from ticker.cli.connection import connected, database
from ticker.cli.exits import NOT_SO
from ticker.cli.fit import row
from ticker.errors import BadInput, ConfigurationError, TickerError, not_announced
from ticker.importing import export as exporting
from ticker.importing import plan as planning
from ticker.importing.found import EXAMPLES, Verdict, Where
from ticker.queue.rq import RedisQueue
from ticker.read import overview
from ticker.read.formatting import moment
from ticker.schedules.duration import milliseconds
from ticker.tasks.fields import DEFAULTS

if TYPE_CHECKING:
    from ticker.importing.plan import Entry, Plan, Promised

STYLES = {Verdict.CHANGED: "yellow", Verdict.DECIDE: "yellow", Verdict.REFUSED: "red"}
PLANS = ("where", "zone", "only", "queues", "decide", "command_task", "user_column")
"""The options of a plan: its file holds them for the later steps."""
BACK, REPLACED = ("give-back", "forget-old"), ("where", "only")
"""The steps that also work without a plan, and the options that they take instead."""


@click.command("import")
@click.argument("source", type=click.Choice([*planning.SOURCES]))
@click.option(
    "--from",
    "where",
    metavar="WHERE",
    help="The source's Redis or database URL, or a file. Defaults to REDIS_URL or DATABASE_URL.",
)
@click.option("--zone", metavar="ZONE", help="The time zone of the source's host, for entries that do not name one.")
@click.option("--only", metavar="GLOB", help="Only entries whose ids match, such as 'mail.*'.")
@click.option(
    "--queue", "queues", metavar="OLD=NEW", multiple=True, help="Use queue NEW for entries of queue OLD. Repeatable."
)
@click.option(
    "--decide", metavar="ENTRY:FIELD=VALUE", multiple=True,
    help="Decide a field of an entry, or of all entries that ask for it: '*:box=30s'. Repeatable.",
)  # fmt: skip
@click.option("--command-task", metavar="FUNCTION", help="crontab: the function that gets each command as an argument.")
@click.option(
    "--user-column/--no-user-column",
    default=None,
    help="crontab: whether a user stands before each command, as in /etc/crontab.",
)
@click.option(
    "--plan-file", metavar="FILE", default=planning.FILE, show_default=True, help="Where the plan is written and read."
)
@click.option("--take-over", "step", flag_value="take-over", help="Take over the entries of the plan file.")
@click.option("--give-back", "step", flag_value="give-back", help="Give back the entries that were taken over.")
@click.option("--forget-old", "step", flag_value="forget-old", help="Forget these entries: no warnings, no way back.")
@click.option(
    "--old-jobs", type=click.Choice(["wait", "remove"]), help="Wait for the old scheduler's jobs in RQ, or remove them."
)
@click.option("--without-worker", is_flag=True, help="Take over even if no ticker worker serves a task.")
@click.option(
    "--shadow",
    metavar="DURATION",
    help="Push nothing. For this long, compare what is enqueued with what would be pushed.",
)
@options.as_json
@click.pass_context
def import_(
    context: click.Context,
    /,
    source: str,
    plan_file: str,
    step: str | None,
    old_jobs: str | None,
    without_worker: bool,
    shadow: str | None,
    **given: Any,
) -> None:
    """Plan the import of SOURCE, or carry the plan out.

    Planning writes only the plan file. It prints each entry's schedule in rq-ticker, its next times in SOURCE ("there")
    and in rq-ticker ("here"), and a verdict: same, changed, decide or refused. Exits with 0 if all entries are the same,
    otherwise with 1.
    """
    path = Path(plan_file)
    if step is not None and shadow is not None:
        raise click.UsageError(f"--shadow cannot be combined with --{step}")
    if step != "take-over" and (old_jobs or without_worker):
        raise click.UsageError(f"{'--old-jobs' if old_jobs else '--without-worker'} applies only to --take-over")
    if step is None and shadow is None:
        plan = planning.make(_options(source, **given), clock.python_utc())
        plan.write(path)
        context.exit(_print_plan(plan, path))
    is_back = step in BACK
    if named := [
        name for name in PLANS if (given[name] or given[name] is False) and not (is_back and name in REPLACED)
    ]:
        raise click.UsageError(f"--{_option(named[0])} is stored in the plan file; plan again to change it")
    if is_back:
        context.exit(_go_back(source, str(step), path, given["where"], given["only"]))
    promised = planning.load(path)
    if promised.options.source != source:
        raise BadInput("source", source, f"is not the source of {path}, which is {promised.options.source}; plan again")
    if shadow:
        code = _shadow(promised, shadow)
    else:
        code = _carry_out(promised, path, old_jobs or "", needs_worker=not without_worker)
    context.exit(code)


def _option(name: str) -> str:
    return {"where": "from", "queues": "queue"}.get(name, name.replace("_", "-"))


def _options(
    source: str, *, where: str | None, zone: str | None, only: str | None, queues: Sequence[str], decide: Sequence[str],
    command_task: str | None, user_column: bool | None,
) -> planning.Options:  # fmt: skip
    pairs = [text.partition("=") for text in queues]
    for old, sign, new in pairs:
        if not (old and sign and new):
            raise BadInput("--queue", f"{old}{sign}{new}", "is not OLD=NEW, such as default=polling")
    return planning.Options(
        source,
        Where(where or "", zone or "", command_task or "", user_column),
        only or "*",
        {old: new for old, _, new in pairs},
        tuple(decide),
    )


def _print_plan(plan: "Plan", path: Path) -> int:
    counts = plan.counts
    if render.is_json():
        render.print_json(plan.data)
    else:
        _print_entries(plan.entries)
        said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        render.say(f"{_entries(len(plan.entries))}: {said}; the plan is in {path}")
        if plan.outlook:
            render.say(plan.outlook)
    return 0 if counts[Verdict.SAME] == len(plan.entries) else NOT_SO


def _print_entries(entries: "Sequence[Entry]") -> None:
    """Prints a line for each entry, and then each reason with the number of its entries, and examples."""
    lines, whys = [], defaultdict[tuple[str, str], list[str]](list)
    for entry in entries:
        found, verdict = entry.found, entry.verdict
        task = f"{found.wanted.get('function') or ''} {entry.schedule}".strip()
        times = moment(found.next_there), moment(entry.next_here)
        lines.append(row(verdict, found.id, *times, task, style=STYLES.get(verdict, "")))
        for reason in entry.reasons:
            whys[verdict, reason].append(found.id)
    if lines:
        there = "next there (UTC)" if any(entry.found.next_there for entry in entries) else ""
        here = "next here (UTC)"
        heads = ("verdict", "entry", there, here, "task here")
        render.print_table(heads, lines, spare=[here, there] if there else [here])
    if whys:
        groups = (row(verdict, len(ids), ", ".join(ids[:EXAMPLES]), why) for (verdict, why), ids in whys.items())
        render.print_table(("verdict", "entries", "such as", "why"), groups)


def _go_back(name: str, step: str, path: Path, where: str | None, only: str | None) -> int:
    """Gives entries back, or forgets them, and prints what was done. `where` and `only` replace the options of the plan."""
    try:
        options = planning.load(path).options
    except ConfigurationError:
        options = planning.Options("")
    if options.source != name:
        if where is None:
            raise BadInput(
                "--plan-file", str(path),
                f"is no plan of {name}: pass --from, the URL from which the entries were taken",
            )  # fmt: skip
        options = planning.Options(name)
    if where is not None:
        options = replace(options, where=Where(where))
    if only is not None:
        options = replace(options, only=only)
    source, schema = options.opened(), settings.current().schema
    with connected() as db:
        if step == "give-back":
            code = _print_moved("gave back", _take_over().give_back(source, db, schema, options.only))
        else:
            forgotten, code = _take_over().forget_old(source, db, schema, options.only), 0
            render.answer({"forgotten": forgotten}, f"forgot {_entries(len(forgotten))}")
    if stay := [one.id for one in source.taken() if not fnmatchcase(one.id, options.only)]:
        render.say(
            f"{_entries(len(stay))} that were taken over do not match {options.only!r}, and stay as they are", err=True
        )
    return code


def _carry_out(promised: "Promised", path: Path, old_jobs: str, *, needs_worker: bool) -> int:
    """Takes entries over, and prints what was done. Nothing changes if the source does not match the plan."""
    source = promised.options.opened()
    schema = settings.current().schema
    if promised.undecided:
        raise BadInput(
            "--plan-file",
            str(path),
            f"leaves {_entries(len(promised.undecided))} to decide; plan again with --decide",
        )
    founds = source.read(clock.python_utc())
    if changed := promised.changed(founds):
        raise NotAsPlanned(f"{_entries(len(changed))} changed since the plan, such as {changed[0]!r}; plan again")
    left = promised.left(founds)
    if promised.options.source in planning.TEXTS:
        chosen = promised.chosen(founds)
        with database() as db:
            sentences = source.take_over(db, chosen)
        render.answer({"done": sentences, "left": left}, *sentences, *_left(left))
        return NOT_SO if left else 0
    with connected() as db:
        if needs_worker:
            _check_workers(db, [one.wanted for one in promised.chosen(founds)])
        moved = _take_over().take_over(
            source, db, schema, promised.chosen, old_jobs=old_jobs, tell=lambda text: render.say(text, err=True)
        )
    moved.left |= left
    return _print_moved("took over", moved)


def _check_workers(db: Any, wanted: Sequence[Mapping[str, Any]]) -> None:
    """Raises BadInput if no worker of ours listens to the queue of a task, or if workers have announced functions, but
    not its own. RQ's workers announce nothing.
    """
    with closing(RedisQueue.from_settings(settings.current())) as queue:
        served = queue.attended(ours=True)
    announced = [function.name for function in overview.functions(db)]
    whys = Counter(
        f"no ticker worker listens to the queue {name}"
        if (name := one.get("queue", DEFAULTS["queue"])) not in served
        else not_announced("function", one["function"], announced)
        for one in wanted
    )
    for why, count in whys.items():
        if why:
            raise BadInput(
                "--take-over", None,
                f"would leave {_entries(count)} waiting: {why}; start one: ticker worker --functions ..., or pass --without-worker",
            )  # fmt: skip


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


class NotAsPlanned(TickerError):
    """The source does not match the plan. Nothing was written."""


def _take_over() -> Any:
    """Returns the module, which sources that are texts do not need."""
    return import_module("ticker.importing.take_over")


def _print_moved(verb: str, moved: Any) -> int:
    render.answer(moved, f"{verb} {_entries(len(moved.moved))}", *_left(moved.left))
    return NOT_SO if moved.left else 0


def _left(left: Mapping[str, str]) -> list[str]:
    return [f"left {id_}: {why}" for id_, why in left.items()]


def _shadow(promised: "Promised", duration: str) -> int:
    """Compares what would be pushed with what is, and prints a line for each entry."""
    module, source = import_module("ticker.importing.shadow"), promised.options.opened()
    founds = [one for one in promised.chosen(source.read(clock.python_utc())) if one.enabled]
    if not founds:
        raise NotAsPlanned("no enabled entry of the source matches the plan; plan again")
    compared = module.shadow(
        source, founds, milliseconds("--shadow", duration), lambda text: render.say(text, err=True)
    )
    if render.is_json():
        render.print_json([{**asdict(one), "verdict": one.verdict} for one in compared])
    else:
        names, lines = module.table(compared)
        render.print_table(names, [row(*line) for line in lines])
        differ, late = sum(one.verdict == "differs" for one in compared), sum(one.missed for one in compared)
        render.say(f"{_entries(len(compared))}: {differ} differ; looks that came too late: {late}")
    return NOT_SO if any(one.verdict == "differs" for one in compared) else 0


@click.command()
@click.argument("format_", metavar="json|crontab", type=click.Choice(["json", "crontab"]))
@click.option("--only", metavar="GLOB", default="*", help="Only tasks whose names match, such as 'mail.*'.")
@click.option(
    "--command", metavar="TEXT", default="ticker run-now {id}", show_default=True,
    help="crontab: the command, with {id}, {name}, {function}, {queue}, {args} and {kwargs}.",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Exit with 1 if anything is lost.")
@click.pass_context
def export(context: click.Context, format_: str, only: str, command: str, strict: bool) -> None:
    """Print all tasks for another program.

    json: one line per task, which `ticker import json` can read. crontab: one line per task, after a comment that names
    what cron cannot express.
    """
    loses = False
    with database() as db:
        for task in exporting.tasks(db, only):
            if format_ == "json":
                click.echo(exporting.as_json(task))
                continue
            line, lost = exporting.as_crontab(task, command)
            loses = loses or bool(lost)
            name = re.sub(r"\s+", " ", f"{task.name} of {task.owner}" if task.owner else task.name)
            click.echo("\n".join([f"# {name}: {sentence}" for sentence in lost] + [line] * bool(line)))
    context.exit(NOT_SO if strict and loses else 0)
