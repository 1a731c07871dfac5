"""What a ticker and a worker in another region cost: `python -m tests.bench regions [--trip MS] [--due N] [--jobs N]`.

Proxies delay each packet to and from both servers by half of the trip. Per trip, of 0 ms and of so many: a tick over the due
tasks, and a worker that runs a job for each task, with a function that does nothing.
"""

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tests.bench.figures import Figure, Stage, parser, show, stage
from tests.bench.tick import Rivals
from tests.bench.worker import Jobs
from tests.faults.address import server_of
from tests.faults.proxy import Proxy


def far(on: Stage, trip: float, opened: ExitStack) -> Stage:
    """Returns the same servers, as seen from another region: so many milliseconds to them and back."""
    folder, urls = Path(opened.enter_context(tempfile.TemporaryDirectory())), {}
    for kind, door in (("postgres", ".s.PGSQL.5432"), ("redis", "redis")):
        url = on.database_url if kind == "postgres" else on.redis_url
        proxy = opened.enter_context(Proxy(listen=folder / door, server=server_of(url), kind=kind))
        proxy.delay(trip / 2000)
        urls["database_url" if kind == "postgres" else "redis_url"] = proxy.through(url)
    return replace(on, **urls)


def main() -> None:
    options = parser(__doc__, trip=80, due=10_000, jobs=20).parse_args()
    figures = []
    with stage(max(options.due, 10 * options.jobs)) as on:
        for trip in (0, options.trip):
            with ExitStack() as opened:
                there = far(on, trip, opened)
                on.make_due(options.due)
                rivals = Rivals(there, options.due)
                took = rivals.tick(rivals.push_threads)
                figures.append(Figure(f"{trip} ms: a tick over {options.due:,} due tasks", took, "s"))
                jobs = Jobs(there, options.jobs)
                figures.append(Figure(f"{trip} ms: runs of one worker", jobs.wrapped(), "/s"))
    show(figures, options.json, vars(options))


if __name__ == "__main__":
    main()
