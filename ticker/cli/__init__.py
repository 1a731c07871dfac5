"""Defines the command `ticker`. `exits` lists its exit codes.

A command's module is imported when the command is called. Large dependencies are imported in function bodies.
"""

import logging
import warnings

import click

from ticker.cli.exits import Commands, LazyCommand
from ticker.errors import TickerWarning

GROUPS = {
    "Processes": {
        "run": ("run:run", "Run the ticker until SIGTERM or SIGINT."),
        "tick": ("run:tick", "Run one tick and report it."),
        "worker": ("run:worker", "Run a worker. Accepts every option of `rq worker`."),
        "web": ("web:web", "Serve the page and the HTTP API until SIGTERM or SIGINT."),
        "demo": ("run:demo", "Poll simulated mailboxes and show what happens."),
    },
    "Tasks": {
        "add": ("tasks:add", "Register a task that runs FUNCTION."),
        "edit": ("tasks:edit", "Change TASK, or many tasks, as an operator."),
        "list": ("tasks:list_", "List tasks, or show TASK with all its fields."),
        "remove": ("tasks:remove", "Delete TASK, all tasks of --owner, or many tasks."),
        "sync": ("sync:sync", "Synchronize tasks and limits with their declarations in code."),
        "owners": ("owners:owners", "List owners with their task counts."),
        "spread": ("schedules:spread", "Give each interval task its own phase within its interval."),
        "next": ("schedules:next_", "Explain EXPRESSION or TASK, and show its next times."),
    },
    "Runs": {
        "run-now": ("tasks:run_now", "Run TASK, all tasks of --owner, or many tasks once."),
        "stop": ("runs:stop", "Stop RUN, and wait up to 5 s for its end."),
        "runs": ("runs:runs", "List runs, drops and events, or show one run in full."),
        "why": ("runs:why", "Explain why TASK ran or did not run, and what happens next."),
        "top": ("top:top", "Show late, failing, running and coming tasks, and drops."),
    },
    "Pauses and limits": {
        "pause": ("pauses:pause", "Pause TASK, all tasks of --owner, or many tasks at once."),
        "resume": ("pauses:resume", "Resume TASK, all tasks of --owner, or many paused tasks."),
        "limit": ("limits:limit", "List limited keys, or limit the runs of tasks that have KEY."),
    },
    "Operation": {
        "health": ("health:health", "Exit with 0 if all is well, otherwise with 1."),
        "doctor": ("doctor:doctor", "Check whether all is well, and if not, say what to do."),
        "workers": ("health:workers", "Show how many workers each queue needs, and why."),
        "notify": ("notify:notify", "List undelivered notices, or send a test notice."),
        "prune": ("db:prune", "Delete old records of runs, drops and events."),
        "import": ("importing:import_", "Plan the import of SOURCE, or carry the plan out."),
        "export": ("importing:export", "Print all tasks for another program."),
        "db": ("db:db", "Create, upgrade, check or adopt the tables, or print SQL."),
    },
}
"""Maps each command to its module and function, and to its summary, which fits 80 columns."""


@click.group(
    cls=Commands,
    name="ticker",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="rq-ticker", prog_name="ticker")
def main() -> None:
    """Rows in your PostgreSQL define what must run; the ticker puts due tasks on your RQ queues.

    DATABASE_URL and REDIS_URL name the servers. TASK is a task's id or name; if the task has an owner, its name needs
    --owner. Durations are written as 90, 90s, 5m, 1h30m, 1d or PT5M, and times as 2026-07-01T12:00:00Z.
    """
    warnings.simplefilter("ignore", TickerWarning)  # commands print what a task's `warnings` say
    logging.getLogger("ticker.tasks").addHandler(logging.NullHandler())


for title, commands in GROUPS.items():
    for name, (home, summary) in commands.items():
        main.add_command(LazyCommand(name, f"ticker.cli.{home}", summary, title))
