"""Defines the command `ticker`. `exits` lists its exit codes.

A command's module is imported when the command is called. Large dependencies are imported in function bodies.
"""

import click

from ticker.cli.exits import Commands
from ticker.cli.lazy import LazyCommand

COMMANDS = {
    "run": ("processes.run:run", "Run the ticker until SIGTERM or SIGINT."),
    "tick": ("processes.run:tick", "Run one tick and report it."),
    "worker": (
        "processes.worker:worker",
        "Run a worker. Accepts every option of `rq worker`.",
    ),
    "workers": ("processes.workers:workers", "Show how many workers each queue needs, and why."),
    "scale": ("processes.workers:scale", "Print how many workers a queue needs now, as one integer."),
    "health": ("processes.run:health", "Exit with 0 if all is well, otherwise with 1."),
    "doctor": ("processes.doctor:doctor", "Check whether all is well, and if not, say what to do."),
    "db": ("database.db:db", "Create, print, check or adopt the tables."),
    "add": ("tasks.commands:add", "Register a task that runs FUNCTION."),
    "edit": ("tasks.commands:edit", "Change TASK as an operator."),
    "list": ("tasks.commands:list_", "List tasks."),
    "show": ("tasks.commands:show", "Show all fields of TASK, and why its last run failed, if it did."),
    "pause": ("tasks.commands:pause", "Pause TASK, all tasks of --owner, or many tasks at once."),
    "resume": ("tasks.commands:resume", "Resume TASK, all tasks of --owner, or many paused tasks."),
    "pauses": ("tasks.pauses:pauses", "List pauses of many tasks."),
    "drain": ("tasks.pauses:drain", "Pause all tasks, and wait until no run is active."),
    "run-now": ("tasks.commands:run_now", "Run TASK, or all tasks of --owner, once."),
    "stop": ("records.stop:stop", "Stop RUN, and wait up to 5 s for its end."),
    "remove": ("tasks.commands:remove", "Delete TASK, or all tasks of --owner."),
    "limit": ("tasks.limits:limit", "Limit the runs of tasks that have KEY, on all workers together."),
    "limits": ("tasks.limits:limits", "List limited keys and their use, most due tasks first."),
    "notify": (
        "processes.notify:notify",
        "Send a test notice through each channel and print the answers.",
    ),
    "notices": ("processes.notify:notices", "List undelivered notices, oldest first, each with the reason."),
    "sync": ("tasks.sync:sync", "Synchronize tasks and limits with their declarations in code."),
    "next": ("tasks.schedules:next_", "Show the next times of EXPRESSION or TASK."),
    "validate": ("tasks.schedules:validate", "Explain what EXPRESSION means."),
    "runs": ("records.runs:runs", "List runs and drops, newest first, or show one in full."),
    "top": ("records.top:top", "Show late, failing, running and coming tasks, and drops."),
    "timeline": ("records.timeline:timeline", "Draw when TASK was due, waited and ran, and when it is due next."),
    "why": ("records.why:why", "Explain why TASK ran or did not run, and what happens next."),
    "journal": ("records.journal:journal", "List ended runs, drops and events, newest last."),
    "drops": ("records.journal:drops", "Count dropped jobs, largest groups first."),
    "owners": ("tasks.owners:owners", "List owners with their task counts."),
    "prune": ("database.prune:prune", "Delete old records of runs, drops and events."),
    "spread": ("tasks.spread:spread", "Give each interval task its own phase within its interval."),
    "web": ("processes.web:web", "Serve the page and the HTTP API until SIGTERM or SIGINT."),
    "demo": ("processes.demo:demo", "Poll simulated mailboxes and show what happens."),
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


for name, (home, summary) in COMMANDS.items():
    main.add_command(LazyCommand(name, f"ticker.cli.{home}", summary))
