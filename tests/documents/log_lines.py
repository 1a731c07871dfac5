"""Writes docs/reference/logs.md from the log calls of `ticker` and `wrappers`: `python -m tests.documents`."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.documents.markdown import cell, code, table

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs/reference/logs.md"
HEAD = """\
# Log lines

`ticker run`, `ticker worker` and `ticker web` write their log to standard output. Times are in UTC. Each run has one line, which
names the task, its owner (`-` if it has none), the run and the job (wrapped here). If a process died before it learned whether its
run had started, `?` stands for what is unknown.

    2026-03-01T09:00:02.413Z INFO ticker.run run succeeded task=7 name=inbox
    owner=customer:7 run=12 job=k3xq-t7-1772355600000000

A success is logged as INFO, and a failure as WARNING, with its reason. RQ's own INFO lines about such a job are left out, because they
say the same; `--logging_level DEBUG` shows them. With `--log-format` or `--date-format`, RQ writes its other lines in that form.

Text from outside, such as an error, cannot look like another line. Control characters are escaped (`\\n`), so a message takes one
line. The lines of a traceback, and further lines of RQ's messages, begin with two spaces and `|`. A form that you choose for RQ's
lines escapes nothing.

`TICKER_LOG=json` writes one JSON object per line, including RQ's lines:

    {"task": 7, "name": "inbox", "owner": "customer:7", "run": 12,
     "job": "k3xq-t7-1772355600000000", "outcome": "succeeded", "reason": "",
     "time": "2026-03-01T09:00:02.413Z", "level": "INFO",
     "logger": "ticker.run", "event": "run_ended",
     "message": "run succeeded task=7 name=inbox owner=customer:7 run=12 ..."}

`time`, `level`, `logger`, `event` and `message` are always present, and `traceback` if there is one. Values that a message names
(`task=7`) are fields. `tick` also has the counts of the tick as fields. Select lines by `event`: its names are stable, and the words
of messages may change. Lines of RQ have the event `rq`. Errors that keep a process from starting are one sentence on the standard
error output.

The list is generated from the code; `python -m tests.documents` writes this page.

"""
LEVELS = {"debug", "info", "warning", "error", "exception", "log"}


def text() -> str:
    rows: dict[str, tuple[set[str], set[str]]] = {}
    for event, level, message in events():
        levels, messages = rows.setdefault(event, (set(), set()))
        levels.update(level.split())
        messages.update([message] if message else [])
    return HEAD + table(
        ("event", "level", "messages"),
        [
            (code(event), ", ".join(sorted(levels)), "<br>".join(cell(one) for one in sorted(messages)))
            for event, (levels, messages) in sorted(rows.items())
        ],
    )


def events() -> Iterator[tuple[str, str, str]]:
    """Returns the event, the level and the message of each log call; the message is empty if it varies."""
    for call in log_calls():
        [extra] = [one.value for one in call.keywords if one.arg == "extra"]
        assert isinstance(extra, ast.Dict)
        event = ast.literal_eval(dict(zip(map(ast.literal_eval, extra.keys), extra.values, strict=True))["event"])
        assert isinstance(call.func, ast.Attribute)
        level = {"exception": "ERROR", "log": "INFO WARNING"}.get(call.func.attr, call.func.attr.upper())
        message = call.args[1 if call.func.attr == "log" else 0]
        yield event, level, message.value if isinstance(message, ast.Constant) and message.value != "%s" else ""


def log_calls() -> Iterator[ast.Call]:
    for path in sorted([*(ROOT / "ticker").rglob("*.py"), *(ROOT / "wrappers").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name("log"), attr=attr)) if attr in LEVELS:
                    yield node
