"""Reads a crontab. Its commands are for a shell, so that one function of yours, `--command-task`, gets each as an argument.

The dialect is ours. What cron itself still runs afterwards is printed, and not changed.
"""

import pwd
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from ticker.importing import dialects
from ticker.importing.found import Decision, Draft, Found, Source, Where, unique
from ticker.importing.sources import json_lines

SYSTEM = ("/etc/crontab", "/etc/cron.d/")  # files whose lines name a user before the command
BUILTINS = {"cd", "test", "export", "set", "umask", "exec", "eval", "if", "for", "while", "source"}
NAME_AT_MOST = 60
_VARIABLE = re.compile(r"""\s*["']?([A-Za-z_][A-Za-z0-9_]*)["']?\s*=\s*(.*?)\s*""")
_USER = re.compile(r"([A-Za-z_][\w.-]*\$?)\s+\S.*", re.DOTALL)
_PERCENT = re.compile(r"(?<!\\)%")


class Line(NamedTuple):
    number: int
    schedule: str
    user: str
    command: str
    zone: str
    mailto: str


def opened(where: Where) -> "Crontab":
    return Crontab(where)


class Crontab(Source):
    """The lines of a file, or of standard input."""

    name = "crontab"

    def __init__(self, where: Where) -> None:
        self.where = where

    def read(self, now: datetime) -> list[Found]:
        given = self.where.user_column
        has_users = self.where.text.startswith(SYSTEM) if given is None else given
        lines = [*entries(json_lines.lines_of(self.where.text), has_users)]
        asks = (
            given is None
            and not has_users
            and all(may_begin_with_a_user(line.command) for line in lines if line.command)
        )
        return [self._found(line, name, asks) for line, name in zip(lines, names(lines), strict=True)]

    def take_over(self, db: Any, founds: Sequence[Found]) -> list[str]:
        sentences = json_lines.registered(db, founds)
        numbers = ", ".join(str(found.stored["line"]) for found in founds)
        return (
            [*sentences, f"cron still runs these lines of {self.where.text} until you remove them: {numbers}"]
            if founds
            else sentences
        )

    def _found(self, line: Line, name: str, asks: bool) -> Found:
        zone, task = line.zone or self.where.zone, self.where.command_task
        read = dialects.translate("crontab", line.schedule, zone or "UTC")
        kwargs = {"command": line.command.replace("\\%", "%")}
        draft = Draft({**read.wanted, "function": task, "name": name, "kwargs": kwargs})
        if not line.command:
            draft.refusals.append(f"line {line.number} has no command after its five fields")
        elif read.refusal:
            draft.refusals.append(read.refusal)
        if line.command and not task:
            draft.refusals.append(
                "its command is for a shell; name your function that runs it: --command-task FUNCTION"
            )
        if _PERCENT.search(line.command):
            draft.refusals.append("its command has %, after which cron passes input to it; put the input into a script")
        draft.decisions.append(Decision("box", "cron sets no time limit; how long may a run last?"))
        if asks:
            question = "each command begins with a word that is a user on this host, or at least not a program; is it a user, as in /etc/crontab?"
            draft.decisions.append(Decision("user", question))
        if not zone:
            question = "cron uses the time zone of its host, which no crontab names; which zone is it?"
            draft.decisions.append(Decision("zone", question))
        if line.user:
            draft.notes.append(f"cron runs it as {line.user}, and a worker as its own user")
        if line.mailto:
            draft.notes.append("cron sends its output by mail (MAILTO); the ticker only notifies of failures")
        return draft.found("crontab", name, stored={"line": line.number})


def entries(lines: Sequence[str], has_users: bool) -> Iterator[Line]:
    """Yields the lines that name a command, with the variables that were set before them."""
    variables: dict[str, str] = {}
    for number, text in enumerate(lines, 1):
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        if variable := _VARIABLE.fullmatch(text):
            variables[variable[1]] = variable[2].strip("\"'")
            continue
        fields = 1 if text.lstrip().startswith("@") else 5
        parts = text.split(None, fields + has_users)
        schedule, rest = " ".join(parts[:fields]), parts[fields:]
        user = rest.pop(0) if has_users and rest else ""
        zone, mailto = (variables.get(name, "") for name in ("CRON_TZ", "MAILTO"))
        yield Line(number, schedule, user, rest[0].strip() if rest else "", zone, mailto)


def may_begin_with_a_user(command: str) -> bool:
    """Returns whether the first of several words is a user of this host, or at least not a program.

    The file is then probably a copy of one in /etc/cron.d.
    """
    match = _USER.fullmatch(command)
    if match is None or match[1] in BUILTINS:
        return False
    with suppress(KeyError):
        return bool(pwd.getpwnam(match[1]))
    return shutil.which(match[1]) is None


def names(lines: Sequence[Line]) -> list[str]:
    """Returns a name for each command: its words, and a number if another line has the same."""
    return unique(
        re.sub(r"[^A-Za-z0-9.]+", "-", line.command)[:NAME_AT_MOST].strip("-.") or f"line-{line.number}"
        for line in lines
    )
