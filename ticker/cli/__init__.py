"""The command `ticker`. Exit codes: 0; 1 it is not so; 2 bad input; 78 configuration; 130 interrupted (`exits`).

Each command is imported when it is called, and imports what is large in its own body.
"""

import click

from ticker.cli.exits import Commands
from ticker.cli.lazy import LazyCommand

COMMANDS = {
    "run": ("processes.run:run", "Run the ticker, until SIGTERM or SIGINT."),
    "tick": ("processes.run:tick", "Make one pass by hand, and report it."),
    "worker": (
        "processes.worker:worker",
        "Run a worker; it takes every option of rq worker.",
    ),
    "health": ("processes.run:health", "Exit 0 if all is well, else 1."),
    "doctor": ("processes.doctor:doctor", "Say whether all is well, and if not, what to do."),
    "db": ("database.db:db", "Create, print or check the tables, or take over those of another installation."),
    "add": ("tasks.commands:add", "Register a task that runs FUNCTION."),
    "edit": ("tasks.commands:edit", "Change TASK as an operator."),
    "list": ("tasks.commands:list_", "List tasks."),
    "show": ("tasks.commands:show", "Show all of TASK."),
    "pause": ("tasks.commands:pause", "Pause TASK, or all tasks of --owner."),
    "resume": ("tasks.commands:resume", "End the pause of TASK, or of all of --owner."),
    "run-now": ("tasks.commands:run_now", "Run TASK, or all tasks of --owner, once."),
    "remove": ("tasks.commands:remove", "Delete TASK, or all tasks of --owner."),
    "notify": (
        "processes.notify:notify",
        "Send a test notice through each channel of TICKER_NOTIFY, and print what it answered.",
    ),
    "notices": ("processes.notify:notices", "List the notices that have not arrived yet, the oldest first, and why."),
    "sync": (
        "tasks.sync:sync",
        'Bring tasks into step with what is declared beside the functions: @task("reports.daily", cron="0 6 * * *").',
    ),
    "next": ("tasks.schedules:next_", "Show the next times of EXPRESSION, or of TASK."),
    "validate": ("tasks.schedules:validate", "Say what EXPRESSION means."),
    "runs": ("records.runs:runs", "List runs and drops, the newest first; or with --id, one of them in full."),
    "top": ("records.top:top", "Show what goes on now: late, failing, running, next, dropped; each with its cause."),
    "timeline": (
        "records.timeline:timeline",
        "Draw when TASK was due, waited, ran and was dropped, and when it is due next.",
    ),
    "why": ("records.why:why", "Say why TASK ran, or did not, and what happens next."),
    "journal": ("records.journal:journal", "List what ended and what happened, the newest last."),
    "drops": ("records.journal:drops", "Count the jobs that were dropped, the most first."),
    "owners": ("tasks.owners:owners", "List owners with the counts of their tasks."),
    "prune": ("database.prune:prune", "Delete old records of runs, drops and events."),
    "spread": ("tasks.spread:spread", "Give interval tasks places of their own in their interval."),
    "replay": ("processes.replay:replay", "Play the timing tables of FILE.md, and say which line differs."),
    "web": ("processes.web:web", "Serve the page and the HTTP API, until SIGTERM or SIGINT."),
    "demo": ("processes.demo:demo", "Poll mailboxes, and watch it."),
}
"""Each with its module, its function, and the first paragraph of its help."""


@click.group(
    cls=Commands, name="ticker", former_names={"tell": "notify"},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)  # fmt: skip
@click.version_option(package_name="rq-ticker", prog_name="ticker")
def main() -> None:
    """Rows in your PostgreSQL say what must run; the ticker puts the due ones on your RQ queues.

    DATABASE_URL and REDIS_URL name the servers. A TASK is its id, or its name: with --owner for an owner's task.
    Durations are written as 90, 90s, 5m, 1h30m, 1d or PT5M; times as 2026-07-01T12:00:00Z.
    """


for name, (home, summary) in COMMANDS.items():
    main.add_command(LazyCommand(name, f"ticker.cli.{home}", summary))
