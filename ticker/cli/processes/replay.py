"""`ticker replay`: plays timing tables through the real tick and the real start, with a frozen clock."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ticker.cli import pictures, render
from ticker.cli.connection import configured
from ticker.errors import BadInput, escaped
from ticker.read.explain import counted

if TYPE_CHECKING:
    from ticker.replay.play import Played
    from ticker.replay.table import Table

LARGEST = 1_000_000  # bytes of a file


@click.command()
@click.argument("file", required=False)
@click.option(
    "--svg", metavar="FILE", type=click.Path(dir_okay=False, writable=True), help="Write the charts to FILE as SVG."
)
@click.option("--list", "only_list", is_flag=True, help="List the tables without playing them.")
def replay(file: str | None, svg: str | None, only_list: bool) -> None:
    """Play timing tables and report the lines that differ.

    Without FILE, or with seed-003 as FILE, plays the tables that come with the package. Starts its own PostgreSQL, or
    uses DATABASE_URL, where it creates a separate schema and removes it at the end. Exits with 0 if all lines agree, otherwise with
    1. docs/guides/replay.md has the details.
    """
    if svg is not None and only_list:
        raise click.UsageError("--list plays nothing, so there is no chart; leave out --svg")
    if svg is not None:
        pictures.check(svg)
    tables = {source: read(source) for source in sources(file)}
    if only_list:
        print_names(tables)
        return
    played = play_all([table for group in tables.values() for table in group])
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
    """Returns the text of a file. Raises BadInput if it cannot be read as UTF-8."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise BadInput(
            "FILE", path, f"cannot be read: {pictures.reason(error)}; ticker replay --list names the available tables"
        ) from None
    if len(data) > LARGEST:
        raise BadInput("FILE", path, f"is over the limit of {LARGEST} bytes; split the tables into smaller files")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BadInput(f"{path}: line {line}", None, "is not UTF-8; save the file in that encoding") from None


def print_names(tables: "dict[str, list[Table]]") -> None:
    grid = render.columns("file", "table", "settings", "rows")
    for source, group in tables.items():
        for table in group:
            render.add(grid, source, table.name, table.timing, len(table.rows))
    render.print_table(grid)


def play_all(tables: "list[Table]") -> "list[Played]":
    """Plays the tables and prints each one."""
    configured()  # reports an invalid setting before a server is started
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
            grid, number, table.clock(line.at), line.says, line.actual, verdict, style="red" if line.differences else ""
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
    """Prints that all lines agree, or else raises ClickException with the first difference."""
    lines, differing = (sum(map(len, each)) for each in ([p.lines for p in played], [p.differing for p in played]))
    if not differing:
        render.say(f"{counted(len(played), 'table')}, {counted(lines, 'line')}: all agree")
        return
    first = next(one for one in played if one.differing)
    of_which = f" ({first.table.name})" if len(played) > 1 else ""
    sentence = f"{differing} of {counted(lines, 'line')} differ{'s' if differing == 1 else ''}; the first{of_which} is "
    raise click.ClickException(escaped(sentence + first.first_difference()))
