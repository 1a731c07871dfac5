"""Finds the test that catches each mutant: `python -m tests.mutants [--only NAME] [--jobs N] [--write docs/internals/mutants.md]`."""

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from tests.mutants import table
from tests.mutants.catalogue import CATALOGUE
from tests.mutants.mutant import Mutant, Rotten
from tests.mutants.trial import Unfit, caught_by, check_baseline, checkout


@click.command()
@click.option("--only", multiple=True, type=click.Choice([mutant.name for mutant in CATALOGUE]), metavar="NAME")
@click.option("--jobs", default=1, type=click.IntRange(1), help="How many mutants to try at a time.")
@click.option(
    "--write", type=click.Path(path_type=Path), help="The page to write. With --only, the other rows do not change."
)
def main(only: tuple[str, ...], jobs: int, write: Path | None) -> None:
    """Tries each mutant and prints the table. Exits with 1 if one was not caught or could not be tried."""
    mutants = [mutant for mutant in CATALOGUE if not only or mutant.name in only]
    caught: dict[str, str] = {}
    try:
        for name, found in judged(mutants, jobs):
            click.echo(f"{name}: {found}")
            caught[name] = found
            if write:
                write.write_text(table.page(CATALOGUE, table.read(write) | caught), encoding="utf-8")
    except Unfit as unfit:
        raise click.ClickException(str(unfit)) from None
    click.echo(table.markdown(mutants, caught))
    sys.exit(int(not all(map(table.is_test, caught.values()))))


def judged(mutants: Sequence[Mutant], jobs: int) -> Iterator[tuple[str, str]]:
    """Yields names and verdicts. All mutants use one copy, so the checkout may be edited meanwhile. Raises Unfit."""
    with checkout() as source, ThreadPoolExecutor(jobs) as pool:
        check_baseline(source, sorted({test for mutant in mutants for test in mutant.expected}))
        yield from pool.map(lambda mutant: (mutant.name, verdict(mutant, source)), mutants)


def verdict(mutant: Mutant, source: Path) -> str:
    """Returns the pytest id of the test that caught the mutant, or in capitals why there is none."""
    try:
        return caught_by(mutant, source) or table.NOT_CAUGHT
    except (Rotten, Unfit) as unfit:
        click.echo(f"{mutant.name}: {unfit}")
        return table.NO_TRIAL


if __name__ == "__main__":
    main(prog_name="python -m tests.mutants")
