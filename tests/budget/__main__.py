"""`python -m tests.budget` prints the size of the project beside its budget. `--write` makes that size the budget."""

import sys

import click

from tests.budget import measure


def main() -> None:
    rooms = measure.rooms()
    totals, allowed = measure.totals(rooms), measure.budget()["totals"]
    if sys.argv[1:] == ["--write"]:
        measure.BUDGET.write_text(text(rooms, totals))
        return
    for name, size in totals.items():
        click.echo(f"{size:>9,} of {allowed.get(name, 0):>9,}  {name}")
    for name, sizes in rooms.items():
        click.echo(f"{name:28} " + ", ".join(f"{size:,} {kind}" for kind, size in sizes.items()))


def text(rooms: dict[str, measure.Size], totals: measure.Size) -> str:
    lines = [*HEAD, "[totals]", *(f'"{name}" = {size}' for name, size in totals.items()), "", "[rooms]"]
    for name, sizes in rooms.items():
        lines.append(f'"{name}" = {{ {", ".join(f"{kind} = {size}" for kind, size in sorted(sizes.items()))} }}')
    return "\n".join(lines) + "\n"


HEAD = [
    "# What the project may at most weigh. A change that makes a room larger moves its budget in the same commit, and says why.",
    "# Written by: python -m tests.budget --write",
]

if __name__ == "__main__":
    main()
