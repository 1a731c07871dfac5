"""Finds the test that catches each mutant: `python -m tests.mutants [--only NAME] [--jobs N]`, or `--list`.

Each mutant is one deliberate fault: a change to our own code that breaks a rule. This program applies them one at a time to a
copy of the checkout, and runs the tests that the mutant lists, which pass without it. A change that only breaks an import or the
syntax of a statement is refused as a mutant.
"""

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from tests.mutants.catalogue import CATALOGUE
from tests.mutants.mutant import Mutant, Rotten
from tests.mutants.trial import Unfit, caught_by, check_baseline, checkout

NOT_CAUGHT = "NOT CAUGHT"
NO_TRIAL = "NO TRIAL"


@click.command()
@click.option("--only", multiple=True, type=click.Choice([mutant.name for mutant in CATALOGUE]), metavar="NAME")
@click.option("--jobs", default=1, type=click.IntRange(1), help="How many mutants to try at a time.")
@click.option("--list", "is_list", is_flag=True, help="Print the rule and the tests of each, and try nothing.")
def main(only: tuple[str, ...], jobs: int, is_list: bool) -> None:
    """Tries each mutant and prints which test caught it. Exits with 1 if one was not caught or could not be tried."""
    mutants = [mutant for mutant in CATALOGUE if not only or mutant.name in only]
    if is_list:
        for mutant in mutants:
            click.echo(f"{mutant.name}: {mutant.breaks}")
            for test in mutant.expected:
                click.echo(f"    {test}")
        return
    is_caught = True
    try:
        for name, found in judged(mutants, jobs):
            click.echo(f"{name}: {found}")
            is_caught = is_caught and found not in (NOT_CAUGHT, NO_TRIAL)
    except Unfit as unfit:
        raise click.ClickException(str(unfit)) from None
    sys.exit(int(not is_caught))


def judged(mutants: Sequence[Mutant], jobs: int) -> Iterator[tuple[str, str]]:
    """Yields names and verdicts. All mutants use one copy, so the checkout may be edited meanwhile. Raises Unfit."""
    with checkout() as source, ThreadPoolExecutor(jobs) as pool:
        check_baseline(source, sorted({test for mutant in mutants for test in mutant.expected}))
        yield from pool.map(lambda mutant: (mutant.name, verdict(mutant, source)), mutants)


def verdict(mutant: Mutant, source: Path) -> str:
    """Returns the pytest id of the test that caught the mutant, or in capitals why there is none."""
    try:
        return caught_by(mutant, source) or NOT_CAUGHT
    except (Rotten, Unfit) as unfit:
        click.echo(f"{mutant.name}: {unfit}")
        return NO_TRIAL


if __name__ == "__main__":
    main(prog_name="python -m tests.mutants")
