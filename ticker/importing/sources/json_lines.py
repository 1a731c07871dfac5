"""Reads tasks as JSON Lines, as `ticker export json` writes them: on each line the arguments of `register`, and a state."""

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ticker.db import steps
from ticker.errors import BadInput, ConfigurationError
from ticker.importing.found import BY, Found, Source, Where
from ticker.read import tasks as read_tasks
from ticker.schedules import once
from ticker.tasks import identity, many, operations, rows
from ticker.tasks.fields import Task

FORMAT = 1
STATE = ("format", "enabled", "next_run", "paused")

Line = Mapping[str, Any]


def opened(where: Where) -> "JsonLines":
    return JsonLines(where)


class JsonLines(Source):
    """The lines of a file, or of standard input."""

    name = "json"

    def __init__(self, where: Where) -> None:
        self.where = where

    def read(self, now: datetime) -> list[Found]:
        founds = dict[str, Found]()
        for number, text in enumerate(lines_of(self.where.text), 1):
            if text.strip():
                found = _found(_line(number, text), number, now)
                if found.id in founds:
                    found = replace(found, id=f"{found.id} (line {number})")
                founds[found.id] = found
        return [*founds.values()]

    def take_over(self, db: Any, founds: Sequence[Found]) -> list[str]:
        return registered(db, founds)


def lines_of(path: str) -> list[str]:
    """Returns the lines of a file, or of standard input if the path is `-`. Raises ConfigurationError."""
    if not path:
        raise BadInput("--from", None, "is missing; pass a file, or - for standard input")
    try:
        return (sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"--from: {path} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None


def registered(db: Any, founds: Sequence[Found]) -> list[str]:
    """Registers all entries in the caller's transaction. New tasks are disabled or paused if they were. Leaves out subjects that the
    triggers of an owners' table set. Returns sentences.
    """
    types = {identity.identify(found.wanted.get("owner")).type for found in founds if "subject" in found.wanted}
    kept = {type_ for type_ in types if steps.run(db, rows.keeps_subject(type_))}
    wanted = [_without_subject(found.wanted, kept) for found in founds]
    states = [found for found in founds if (found.stored.get("paused") or not found.enabled) and not _tasks(db, found)]
    done = many.register_many(db, wanted, by=BY)
    for found in states:
        [task] = _tasks(db, found)
        if not found.enabled:
            operations.edit(db, task, enabled=False, by=BY)
        if paused := found.stored.get("paused"):
            operations.pause(db, task, by=paused["by"], reason=paused["reason"], until=paused["until"])
    same = len(founds) - done.added - done.changed
    counts = f"{done.added} added, {done.changed} changed, {same} already as they were"
    return [counts, *(f"warning: {warning}" for warning in done.warnings)]


def _without_subject(wanted: Line, types: Collection[str]) -> Line:
    is_kept = identity.identify(wanted.get("owner")).type in types
    return {name: value for name, value in wanted.items() if not (is_kept and name == "subject")}


def _tasks(db: Any, found: Found) -> list[Task]:
    """Returns the task of this name and owner, if it exists."""
    wanted = found.wanted
    owner = identity.identify(wanted.get("owner"))
    return read_tasks.list_tasks(db, name=wanted.get("name", wanted["function"]), owner=owner)


def _line(number: int, text: str) -> Line:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"--from line {number}", None, f"is not JSON: {error}") from None
    if not isinstance(line, dict) or line.get("format") != FORMAT:
        raise BadInput(
            f"--from line {number}", None, f'is not a JSON object with "format": {FORMAT}, as ticker export json writes'
        )
    return line


def _found(line: Line, number: int, now: datetime) -> Found:
    wanted = {name: value for name, value in line.items() if name not in STATE}
    name = str(wanted.get("name") or wanted.get("function") or f"line {number}")
    owner = wanted.get("owner")
    stored, refusals = dict[str, Any](), list[str]()
    try:
        next_run, paused = _time("next_run", line.get("next_run"), now), line.get("paused") or {}
        until = _time("paused", paused.get("until"), now)
        if paused and (until is None or until > now):
            stored["paused"] = {"by": str(paused["by"]), "reason": str(paused.get("reason", "")), "until": until}
        if "next_run" in line and next_run is None and not paused:
            refusals.append("it has had its last run, so there is nothing to schedule")
        elif next_run and "at" not in wanted:
            wanted["first"] = next_run
    except (BadInput, AttributeError, KeyError) as error:
        refusals.append(
            str(error) if isinstance(error, BadInput) else 'paused is not an object with "by", "reason" and "until"'
        )
        next_run = None
    if not isinstance(enabled := line.get("enabled", True), bool):
        refusals.append("enabled is not true or false")
    return Found(
        "json", f"{owner} {name}" if owner else name, wanted, next_run, enabled=bool(enabled),
        refusals=tuple(refusals), stored=stored,
    )  # fmt: skip


def _time(field: str, value: object, now: datetime) -> datetime | None:
    return None if value is None else once.instant(field, str(value), lambda: now)
