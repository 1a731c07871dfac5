"""The command `ticker`. Exit codes: 0; 1 it is not so; 2 bad input; 78 configuration; 130 interrupted (`exits`).

Each command imports what it needs in its own body, so that `ticker --help` is there at once.
"""

import click

from ticker.cli import (
    db,
    demo,
    ledger,
    notify,
    owners,
    processes,
    prune,
    replay,
    runs,
    schedules,
    spread,
    sync,
    tasks,
    timeline,
    top,
    web,
)  # fmt: skip
from ticker.cli.exits import Commands


@click.group(
    cls=Commands, name="ticker", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="rq-ticker", prog_name="ticker")
def main() -> None:
    """Rows in your PostgreSQL say what must run; the ticker puts the due ones on your RQ queues.

    DATABASE_URL and REDIS_URL name the servers. A TASK is its id, or its name: with --owner for an owner's task.
    Durations are written as 90, 90s, 5m, 1h30m, 1d or PT5M; times as 2026-07-01T12:00:00Z.
    """


for command in (
    processes.run, processes.tick, processes.health, db.db,
    tasks.add, tasks.edit, tasks.list_, tasks.show, tasks.pause, tasks.resume, tasks.run_now, tasks.remove,
    notify.notify, notify.notices, sync.sync, schedules.next_, schedules.validate, runs.runs,
    top.top, timeline.timeline, ledger.why, ledger.journal, ledger.drops, owners.owners, prune.prune, spread.spread,
    replay.replay, web.web, demo.demo,
):  # fmt: skip
    main.add_command(command)
