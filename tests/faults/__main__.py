"""`python -m tests.faults --minutes N --seed S`: tries to break the promises, then judges what happened.

`--folder` keeps the history (events, witnesses, logs); without it, it goes when nothing is wrong.
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from tests.faults import history
from tests.faults.checker import Violation, check
from tests.faults.groups import LOOP
from tests.faults.kinds import KINDS
from tests.faults.play import play
from tests.faults.summary import summarise

SHOWN = 60  # violations; all are in what `python -m tests.faults.checker FOLDER` says


@click.command()
@click.option("--minutes", default=5.0, show_default=True, type=click.FloatRange(min=0.2), help="How long it lasts.")
@click.option("--seed", default=1, show_default=True, help="What the faults, and the client's edits, are drawn from.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the history is written and kept.")
@click.option(
    "--load", "amount", default=1.0, show_default=True, help="1.0 is 25 runs a second: what two quiet cores carry."
)
@click.option(
    "--batches", "shared", flag_value="poll.several", default="", help="Most tasks share their jobs with others."
)
@click.option("--groups", "shared", flag_value=LOOP, help="Most tasks run at the same time as others in one process.")
@click.option(
    "--only", multiple=True, type=click.Choice(sorted(KINDS)), help="This kind of fault, and the others that are named."
)
@click.option(
    "--pooler", "pooled", is_flag=True, help="All reach PostgreSQL through PgBouncer, which pools transactions."
)
@click.option("--workers", default=4, show_default=True, type=click.IntRange(2), help="How many, on two hosts.")
@click.option("--limits", is_flag=True, help="Half of the tasks share keys with limits, and the limits change.")
@click.option(
    "--topology",
    default="plain",
    type=click.Choice(["plain", "ha"]),
    show_default=True,
    help="ha: PostgreSQL with a standby, Redis with a replica and three sentinels.",
)
@click.option("--own-hosts", is_flag=True, help="Each host in a network namespace of its own (root, iproute2).")
def main(minutes: float, seed: int, folder: Path | None, amount: float, topology: str, **options: Any) -> None:
    """Runs tickers, workers and a client on real servers, injects faults, and judges the history."""
    ha = topology == "ha"
    if ha and (options["own_hosts"] or options["pooled"]):
        raise click.UsageError("--topology ha does not go with --own-hosts or --pooler")
    place = folder or Path(tempfile.mkdtemp(prefix="ticker-faults-"))
    place.mkdir(parents=True, exist_ok=True)
    place.chmod(0o755)
    unhealed = play(place, minutes * 60, seed, load=amount, ha=ha, **options)
    violations: list[Violation] = []
    for found in history.worlds(place):
        violations += check(found)
        click.echo(str(summarise(found)))
    for sentence in (*unhealed, *map(str, violations))[:SHOWN]:
        click.echo(f"VIOLATION {sentence}")
    click.echo(f"{len(unhealed) + len(violations)} violations (seed {seed}, {minutes:g} minutes)")
    if unhealed or violations:
        click.echo(f"history kept in {place}")
        sys.exit(1)
    if folder is None:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
