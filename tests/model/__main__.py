"""`python -m tests.model`: every search and every variant, as a table. Exit code 1 where something is not as expected."""

import sys

import click

from tests.model.explore import LIVENESS, Found, explore
from tests.model.variants import LIMITS, NIGHTLY, SEARCHES, WRONG, Variant

COLUMNS = "{:<44} {:>9} {:>11} {:>5} {:>7}  {}"


@click.command()
@click.option("--nightly", is_flag=True, help="The larger bounds: over 1,000,000 distinct states.")
@click.option("--traces/--no-traces", default=True, help="The steps of each counterexample.")
def main(nightly: bool, traces: bool) -> None:
    """Visits every state of the protocol within small bounds; then every wrong variant, until it breaks."""
    held = searched(nightly)
    caught = [
        shown(title, variants, traces)
        for title, variants in (
            ("Wrong variants: each has to break what it names", WRONG),
            ("Beyond what is promised", LIMITS),
        )
    ]
    sys.exit(0 if held and all(caught) else 1)


def searched(nightly: bool) -> bool:
    click.echo(COLUMNS.format("configuration", "states", "transitions", "depth", "seconds", "invariants"))
    results = []
    for bounds in NIGHTLY if nightly else SEARCHES:
        results.append(explore(bounds))
        click.echo(row(results[-1]))
    click.echo(
        f"{sum(r.states for r in results):,} distinct states, {sum(r.transitions for r in results):,} transitions"
    )
    return not any(result.broken for result in results)


def row(found: Found) -> str:
    verdict = f"{found.broken} BROKEN" if found.broken else f"held; longest wait {found.worst_wait}"
    verdict += "" if found.complete or found.broken else f"; to depth {found.depth} only"
    lines = [COLUMNS.format(
        found.name, f"{found.states:,}", f"{found.transitions:,}", found.depth, f"{found.seconds:.1f}", verdict
    )]  # fmt: skip
    return "\n".join(lines + steps(found))


def shown(title: str, variants: tuple[Variant, ...], traces: bool) -> bool:
    click.echo(f"\n{title}")
    as_expected = [show(variant, traces) for variant in variants]  # all of them, also after one that is not
    return all(as_expected)


def show(variant: Variant, traces: bool) -> bool:
    found = explore(variant.bounds, variant.rules(), liveness=variant.breaks in LIVENESS)
    expected = found.broken == variant.breaks
    word = "" if expected else f"  UNEXPECTED, {variant.breaks} was"
    click.echo(f"- {variant.name}: {found.broken or 'nothing'} breaks after {len(found.trace)} steps{word}")
    if traces:
        click.echo("\n".join(steps(found)))
    return expected


def steps(found: Found) -> list[str]:
    """The trace on a few lines."""
    return [f"    {'; '.join(found.trace[n : n + 6])}" for n in range(0, len(found.trace), 6)]


if __name__ == "__main__":
    main()
