"""`ticker replay`: your own timing tables, played through the real tick and the real start on a clock that stands still."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ticker.cli import pictures, render
from ticker.cli.connection import configured
from ticker.cli.fit import shown
from ticker.errors import BadInput

if TYPE_CHECKING:
    from ticker.replay.play import Played
    from ticker.replay.table import Table

LARGEST = 1_000_000  # bytes of a file


@click.command()
@click.argument("file", required=False)
@click.option("--svg", metavar="FILE", type=click.Path(dir_okay=False, writable=True), help="Write the charts there.")
@click.option("--list", "only_list", is_flag=True, help="List the tables, and play none.")
def replay(file: str | None, svg: str | None, only_list: bool) -> None:
    """Play the timing tables of FILE.md, and say which line differs.

    Without FILE, those that come with the package; seed-003 names them, too. On a PostgreSQL of its own, or in a schema
    of its own of DATABASE_URL, which is removed at the end. Exit 0 if all lines agree, else 1. docs/guides/replay.md has more.
    """
    if svg is not None and only_list:
        raise click.UsageError("--list plays nothing, so there is no chart; leave --svg out")
    if svg is not None:
        pictures.check(svg)
    tables = {source: read(source) for source in sources(file)}
    if only_list:
        print_names(tables)
        return
    played = play_all([table for found in tables.values() for table in found])
    if svg is not None:
        write(svg, played)
    judge(played)


def sources(file: str | None) -> list[str]:
    from ticker.replay import shipped

    return shipped.names() if file is None else [file]


def read(source: str) -> "list[Table]":
    from ticker.replay import shipped, table

    text = shipped.text(source) if source in shipped.names() else content(source)
    try:
        return table.read(text)
    except BadInput as error:
        raise BadInput(f"{source}: {error.field}", error.value, error.problem) from None


def content(path: str) -> str:
    """A file's text; BadInput where it is none."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise BadInput(
            "FILE", path, f"cannot be read: {pictures.reason(error)}; ticker replay --list has the ones that are there"
        ) from None
    if len(data) > LARGEST:
        raise BadInput("FILE", path, f"is over the limit of {LARGEST} bytes; write the tables into smaller files")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BadInput(f"{path}: line {line}", None, "is not in UTF-8; write the file in that encoding") from None


def print_names(tables: "dict[str, list[Table]]") -> None:
    grid = render.columns("file", "table", "settings", "rows")
    for source, found in tables.items():
        for table in found:
            render.add(grid, source, table.name, table.timing, len(table.rows))
    render.print_table(grid)


def play_all(tables: "list[Table]") -> "list[Played]":
    """Plays and prints one after the other."""
    configured()  # a setting that cannot be read is told before a server is started
    from ticker.db.connections import translated
    from ticker.replay import chart, play, scratch

    played = []
    with translated(), scratch.scratch() as there:
        for table in tables:
            played.append(play.play(table, there))
            print_played(played[-1])
    click.echo(f"{chart.LEGEND}\n")
    return played


def print_played(played: "Played") -> None:
    from ticker.replay import chart

    table = played.table
    render.say(f"{table.name}: {table.timing}")
    grid = render.columns("line", "at", "the file says", "what happened", "")
    for line in played.lines:
        verdict = f"differs: {'; '.join(map(str, line.differences))}" if line.differences else "ok"
        number = "-" if line.number is None else line.number
        render.add(
            grid, number, table.clock(line.at), line.says, line.found, verdict, style="red" if line.differences else ""
        )
    render.print_table(grid)
    click.echo()
    drawn = render.columns("", "")
    for name, cells in chart.text(played):
        render.add(drawn, name, cells)
    render.print_table(drawn)
    click.echo()


def write(path: str, played: "list[Played]") -> None:
    from ticker.replay import chart

    pictures.write(path, chart.svg(played))


def judge(played: "list[Played]") -> None:
    """The last sentence, and the exit code."""
    lines, differing = (
        sum(len(found) for found in each) for each in ([p.lines for p in played], [p.differing for p in played])
    )
    if not differing:
        render.say(f"{count(len(played), 'table')}, {count(lines, 'line')}: all agree")
        return
    first = next(one for one in played if one.differing)
    of_which = f" ({first.table.name})" if len(played) > 1 else ""
    told = f"{differing} of {count(lines, 'line')} differ{'s' if differing == 1 else ''}; the first{of_which} is "
    raise click.ClickException(shown(told + first.first_difference()))


def count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
