"""Writes docs/reference/settings.md from `ticker.settings` and the texts in this module: `python -m tests.documents`."""

from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path

from tests.documents.markdown import code, table
from ticker import settings
from ticker.schedules.duration import milliseconds, words

FILE = Path(__file__).parents[2] / "docs/reference/settings.md"
HEAD = """\
# Settings

Every process reads its settings from environment variables. If a value cannot be read or is outside its limits, the process
exits with code 78. Its error names the variable, the value and the limit, but never shows a password or a key. The tables are
generated from `ticker/settings.py`; `python -m tests.documents` writes this page.

A duration is written with units (`30s`, `1h30m`, `PT5M`) or as a plain number of seconds. Lists are comma-separated. To change a
key or a token, set `new,old`: the first one signs, and both are accepted.
"""
GROUPS = {
    "Servers": {
        "DATABASE_URL": ("URL", "PostgreSQL 15 or newer: `postgresql://user@host/name`. It may name a [pooler](../operations/index.md#poolers)."),
        "REDIS_URL": ("URL", "Redis 6.2 or newer, or Valkey: `redis://`, `rediss://`, `unix://`, or `redis+sentinel://` for one with [sentinels](../operations/failover.md#redis-with-sentinel)."),
        "TICKER_SCHEMA": ("name", "The PostgreSQL schema of the tables."),
        "TICKER_ENVIRONMENT": ("name", "The name of the environment, such as `production`. It is stored when the tables are created; [if it differs](../operations/installations.md#ticker_environment), tickers and workers refuse to start."),
        "TICKER_LISTEN_URL": ("URL", "The address of PostgreSQL itself, for `TICKER_WAKE=on` if `DATABASE_URL` names a pooler. Defaults to `DATABASE_URL`."),
        "TICKER_PREPARED_STATEMENTS": ("", "`auto`: no prepared statements through a pooler. `on`: the pooler supports them. `off`: none."),
        "TICKER_STRICT_OWNERS": ("", "`on`: the first task of a type of owner that [no trigger follows](../concepts/owners.md#forgotten-triggers) is refused. `off`: it is registered with a warning."),
    },
    "The ticker": {
        "TICKER_TICK": ("", "The time between two ticks of `ticker run`."),
        "TICKER_BATCH": ("", "The number of rows that are locked, pushed and committed at a time."),
        "TICKER_QUEUE_DEPTH": ("list of `queue=depth`", "The maximum number of waiting jobs in each queue: `polling=10000,reports=500`. The rest [stays due](../operations/scale.md#when-workers-do-not-keep-up) in the table."),
        "TICKER_WAITING_JOBS": ("1 to 1,000", "The maximum number of waiting jobs of a task. What is due meanwhile is [counted](../operations/scale.md#when-no-worker-comes), not pushed."),
        "TICKER_WAKE": ("", "`on`: a change wakes the ticker, which otherwise sleeps until the next task is due, at most one tick. Set it for tickers, applications and workers. A worker wakes the ticker when a run fails, and when a key of a [limit](../guides/limits.md) has room again."),
        "TICKER_KEEP_SUCCESSES": ("", "[How long the records](../guides/retention.md) of successes and drops are kept."),
        "TICKER_KEEP_FAILURES": ("", "How long events and the records of failures are kept."),
        "TICKER_OTEL": ("", "`on`: runs have [traces](../guides/tracing.md) of OpenTelemetry. Set it for tickers, workers and applications."),
    },
    "Jobs and workers": {
        "TICKER_TASKS": ("list of modules", "The modules with the functions, if you cannot pass `--tasks`, as with a stock `rq worker`."),
        "TICKER_FUNCTIONS": ("list of modules and functions", "[Functions without `@task`](../guides/coming-from.md#your-functions-unedited), if you cannot pass `--functions`."),
        "TICKER_LOG": ("", "`json`: tickers, workers and the page write [one JSON object per log line](logs.md)."),
        "TICKER_OUTPUT": ("", "`keep`: [what a function prints and logs](../guides/output.md) is stored with its run. `pass`: it goes to the worker's output."),
        "TICKER_RESULT_TTL": ("", "The number of seconds for which Redis keeps a finished job."),
        "TICKER_FAILURE_TTL": ("", "The number of seconds for which Redis keeps a failed job."),
        "TICKER_HARD_LIMIT": ("", "`auto`: kernel timers end a run at its hard limit. `watchdog`: a separate process ends it. `off`: there is no hard limit, for workers that do not fork."),
        "TICKER_SIGNING_KEY": ("list of keys", "The ticker signs jobs with the first key, and `ticker worker --hardened` runs [only signed jobs](../operations/security.md#the-hardened-worker)."),
    },
    "Notifications": {
        "TICKER_NOTIFY": ("list of channels", f"The channels of [notifications](../guides/notifications.md): {', '.join(map(code, settings.CHANNELS))}, or names of entry points of the group `{settings.CHANNEL_GROUP}`. If empty, no notices are sent."),
        "TICKER_NOTIFY_BY_CAUSE": ("list of channels", "The channels that get [one notice for each cause](../operations/notices-at-scale.md) of failures, instead of one for each task."),
        "TICKER_PAGE_URL": ("URL", "The address of the [page](../operations/page.md), for links in notices of a cause."),
        "TICKER_WEBHOOK_URL": ("URL", "The address for `webhook`: `https://` or `http://`."),
        "TICKER_WEBHOOK_KEY": ("list of keys", "Signs each request to the webhook, with one signature for each key."),
        "TICKER_HEARTBEAT_URL": ("URL", "Called with GET after each good tick, while every queue with jobs has a worker: [a dead man's switch](../guides/alerts.md#when-all-tickers-are-gone)."),
        "TICKER_SMTP_URL": ("URL", "The server for `mail`: `smtp://user:password@host:587` or `smtps://`."),
        "TICKER_MAIL_FROM": ("mail address", "The sender of mails."),
        "TICKER_MAIL_TO": ("list of mail addresses", "The recipients of mails."),
    },
    "The page and the HTTP API": {
        "TICKER_WEB_TOKEN": ("list of keys", "The token of [the page](../operations/page.md#authentication) and [the HTTP API](http.md#authentication). If it is not set, each start generates one, and prints or logs it."),
        "TICKER_WEB_NO_TOKEN": ("", "`on`: clients on this host need no token, and all others are refused."),
        "TICKER_WEB_READ_ONLY": ("", "`on`: the page and the HTTP API reject all changes."),
        "TICKER_HIDE_ARGS": ("", "`on`: the page and the HTTP API hide arguments, cursors and metadata, and the results and output of runs."),
    },
}  # fmt: skip
"""Each variable with its meaning, and with its values if the code does not state them."""
FOOT = """
A key or token must have at least {least} characters.

Some variables are read outside `ticker/settings.py`. `TICKER_DEBUG=1` shows the traceback of an error in a command.
`TICKER_POSTGRES_BIN` (a folder) and `TICKER_REDIS_SERVER` (a program) name the embedded servers. [systemd](metrics.md#systemd) sets
`NOTIFY_SOCKET` and `WATCHDOG_USEC`.
"""


def text() -> str:
    """Returns the whole page."""
    read = dict(settings_read())
    sections = (
        f"\n## {title}\n\n"
        + table(
            ("variable", "values", "default", "meaning"),
            [(code(name), given or read[name][0], code(read[name][1]), says) for name, (given, says) in group.items()],
        )
        for title, group in GROUPS.items()
    )
    return HEAD + "".join(sections) + FOOT.format(least=settings.LEAST_KEY)


def settings_read() -> Iterator[tuple[str, tuple[str, str]]]:
    """Returns each variable that `ticker.settings` reads, with its values and its default, both as text."""
    for field in fields(settings.Settings):
        yield field.metadata["variable"], (values(field.metadata["read"]), field.metadata["default"])


def values(read: settings.Read) -> str:
    """Returns the limits that the declaration of a setting states."""
    limits = read.keywords if isinstance(read, partial) else {}
    if read is settings.switch or read is settings.otel:
        limits = {"choices": ("off", "on")}
    if "choices" in limits:
        return ", ".join(map(code, limits["choices"]))
    if "least" in limits:
        least, most = map(words if read.func is milliseconds else "{:,}".format, (limits["least"], limits["most"]))
        return f"{least} to {most}"
    return "text"
