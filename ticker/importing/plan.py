"""Plans an import: reads a source, applies the operator's decisions, checks and proves each entry, and judges it.

Planning writes nothing but its file. `chosen` selects from the same source, read again, what the file promises to take.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any

from ticker import clock, settings
from ticker.db import connections, sql
from ticker.errors import BadInput, ConfigurationError, did_you_mean
from ticker.importing import proof
from ticker.importing.found import Decision, Found, LeftOver, Source, Verdict, Where, matched
from ticker.model import Kind
from ticker.schedules import once
from ticker.schedules.duration import is_plain, milliseconds
from ticker.tasks import checks, definition, fields, identity, operations, rows, sync

SOURCES = {
    "rq-scheduler": "rq_scheduler",
    "rq-cron": "rq_cron",
    "django-celery-beat": "django_celery_beat",
    "crontab": "crontab",
    "json": "json_lines",
}
FILE = "ticker-import.json"
REFUSED = "it is refused, as the plan says; it stays where it is"
FORMAT = 1
DECIDABLE = (*fields.SETTINGS, "function", "name", "owner", "first")
TEXTS = ("crontab", "json")
"""The sources whose entries are registered. Those of the others move, and are found again by the names of their tasks."""
_DECISION = re.compile(r"(.+):([a-z_]+)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Options:
    """The operator's options of an import. `decide` holds texts such as `nightly:box=10m`, or `*:box=10m`."""

    source: str
    where: Where = field(default_factory=Where)
    only: str = "*"
    queues: Mapping[str, str] = field(default_factory=dict)
    decide: tuple[str, ...] = ()

    def opened(self) -> Source:
        """Opens the source, whose module is imported only now."""
        module = import_module(f"ticker.importing.sources.{SOURCES[self.source]}")
        source: Source = module.opened(self.where)
        return source


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry with its verdict. `found` includes the decisions."""

    found: Found
    verdict: Verdict
    schedule: str
    next_here: datetime | None
    reasons: tuple[str, ...]
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Plan:
    options: Options
    entries: Sequence[Entry]
    outlook: str = ""  # how long the change-over takes

    @property
    def counts(self) -> dict[str, int]:
        found = Counter(entry.verdict for entry in self.entries)
        return {verdict.value: found[verdict] for verdict in Verdict}

    @property
    def data(self) -> dict[str, Any]:
        """Returns the plan as JSON data, without the entries' arguments."""
        return {
            "format": FORMAT,
            "source": self.options.source,
            "entries": [
                {
                    "id": entry.found.id, "verdict": entry.verdict.value, "schedule": entry.schedule,
                    "next_there": entry.found.next_there, "next_here": entry.next_here, "reasons": entry.reasons,
                    "wanted": {name: value for name, value in entry.found.wanted.items() if name not in ("args", "kwargs")},
                }
                for entry in self.entries
            ],
            "counts": self.counts,
            "outlook": self.outlook,
        }  # fmt: skip

    def write(self, path: Path) -> None:
        """Writes the options and the entries' fingerprints, readable only by this user: `--from` may hold a password."""
        stored = {
            "format": FORMAT, "options": asdict(self.options), "counts": self.counts,
            "entries": {entry.found.id: [entry.verdict.value, entry.fingerprint] for entry in self.entries},
        }  # fmt: skip
        part = path.with_name(f"{path.name}.part")
        with suppress(FileNotFoundError):
            part.unlink()
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(stored, file, indent=1)
        part.replace(path)


@dataclass(frozen=True, slots=True)
class Promised:
    """A plan as it is stored in its file: the entries that may be taken over. `now` is when the file was read."""

    options: Options
    entries: Mapping[str, tuple[str, str]]
    now: datetime

    @property
    def undecided(self) -> list[str]:
        return [id_ for id_, (verdict, _) in self.entries.items() if verdict == Verdict.DECIDE]

    def changed(self, founds: Iterable[Found]) -> list[str]:
        """Returns the entries that differ from those in the plan, or ask for a decision that the plan does not have.

        Entries that no longer exist may have been taken over.
        """
        return [
            entry.found.id for entry in self._known(founds) if entry.verdict == Verdict.DECIDE or not self._has(entry)
        ]

    def left(self, founds: Iterable[Found]) -> dict[str, str]:
        """Returns the entries that stay in their source, and why: those that are not in the plan, or refused by it."""
        found = {one.id: self.entries.get(one.id) for one in founds if fnmatchcase(one.id, self.options.only)}
        new = {id_: "it is new since the plan; plan again to take it over" for id_, known in found.items() if not known}
        refused = {id_: REFUSED for id_, known in found.items() if known and known[0] == Verdict.REFUSED}
        return new | refused

    def chosen(self, founds: list[Found]) -> list[Found]:
        """Returns the entries that match the plan and are to be taken over, with their decisions."""
        return [
            entry.found for entry in self._known(founds)
            if entry.verdict in (Verdict.SAME, Verdict.CHANGED) and self._has(entry)
        ]  # fmt: skip

    def _known(self, founds: Iterable[Found]) -> list[Entry]:
        return _planned(self.options, [one for one in founds if one.id in self.entries], self.now)

    def _has(self, entry: Entry) -> bool:
        return self.entries[entry.found.id][1] == entry.fingerprint


def make(options: Options, now: datetime) -> Plan:
    """Reads the source and judges each entry.

    Raises BadInput for a decision that applies to no entry, or only to refused entries.
    """
    source = options.opened()
    founds = source.read(now)
    noted = _noted(founds, [one for one in source.taken() if not one.is_parked])
    entries = _planned(options, noted, now, proves=True)
    for text in options.decide:
        pattern, _, _ = decision(text, options.source)
        if not any(_names(pattern, found) for found in founds):
            near = did_you_mean(pattern, (found.id for found in founds))
            raise BadInput("--decide", text, f"names no entry of {options.source}{near}")
        named = [entry for entry in entries if _names(pattern, entry.found)]
        if named and all(entry.verdict == Verdict.REFUSED for entry in named):
            raise BadInput("--decide", text, f"decides {named[0].found.id}, which is refused: {named[0].reasons[0]}")
    return Plan(options, entries, source.waiting([entry.found.id for entry in entries]).outlook())


def _names(pattern: str, found: Found) -> bool:
    """Returns whether the ENTRY of a decision is this one, or a pattern that matches it."""
    return pattern == found.id or fnmatchcase(found.id, pattern)


def _noted(founds: Iterable[Found], gone: Sequence[LeftOver]) -> list[Found]:
    """Adds a note to each entry that is in the source again: which task it, or an entry like it, became."""
    became = [*matched(founds, gone)]
    there = _existing({was.name for _, was in became if was})
    return [replace(one, notes=(_note(one, was, there), *one.notes)) if was else one for one, was in became]


def _note(found: Found, was: LeftOver, there: Collection[str]) -> str:
    observed = (
        "it was taken over before, and"
        if was.id == found.id
        else f"its function, arguments and schedule are those of {was.id}, which"
    )
    stays = (
        "that task stays as it is" if was.name in there else "that task no longer exists, and a new one is registered"
    )
    return f"{observed} became the task {was.name}: {stays}"


def _existing(names: Collection[str]) -> set[str]:
    """Returns the names that tasks without an owner have. Does not connect for no names."""
    if not names:
        return set()
    config = settings.current()
    with connections.translated(), closing(connections.connect(config.require_database(), name="ticker-import")) as db:
        return {row["name"] for row in sql.on(db, config.schema)("tasks_taken", names=[*names])}


def load(path: Path) -> Promised:
    """Reads a plan's file. Raises ConfigurationError."""
    try:
        stored = json.loads(path.read_text())
        given = stored["options"]
        options = Options(**{**given, "where": Where(**given["where"]), "decide": tuple(given["decide"])})
        fits = stored["format"] == FORMAT and options.source in SOURCES
        entries = {id_: (verdict, fingerprint) for id_, (verdict, fingerprint) in stored["entries"].items()}
    except FileNotFoundError:
        raise ConfigurationError(f"--plan-file: {path} does not exist; plan first, without --take-over") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        fits = False
    if not fits:
        raise ConfigurationError(f"--plan-file: {path} is not a plan of this version; plan again")
    return Promised(options, entries, clock.python_utc())


def decision(text: str, source: str) -> tuple[str, str, str]:
    """Splits `ENTRY:FIELD=VALUE`. Raises BadInput."""
    match = _DECISION.fullmatch(text)
    if match is None:
        raise BadInput("--decide", text, "is not a decision; write ENTRY:FIELD=VALUE, such as nightly:box=10m")
    pattern, field, value = match.groups()
    if field == "zone":
        raise BadInput("--decide", text, "decides a zone, which all entries of a source share; use --zone")
    if field == "owner" and source not in TEXTS:
        raise BadInput(
            "--decide", text,
            f"decides an owner, which no task has that can go back to {source}; take it over, and register it for its owner then",
        )  # fmt: skip
    fields.check_names("--decide", [field], DECIDABLE)
    return pattern, field, value


def _planned(options: Options, founds: Iterable[Found], now: datetime, *, proves: bool = False) -> list[Entry]:
    chosen = [one for one in founds if fnmatchcase(one.id, options.only)]
    decided = [(_fingerprint(one), _fitted(_decided(_fitted(one, now), options), now)) for one in chosen]
    names = Counter(_key(one) for _, one in decided)
    return [
        _judged(one, fingerprint, now, proves=proves, is_twice=names[_key(one)] > 1) for fingerprint, one in decided
    ]


def _fingerprint(found: Found) -> str:
    """Returns a hash that changes if the entry is edited, but not as time passes."""
    stays = {name: value for name, value in found.wanted.items() if name not in ("first", "at", "max_runs")}
    at = found.next_there if "at" in found.wanted else None
    parts = stays, at, found.enabled
    return blake2b(json.dumps(parts, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()


def _key(found: Found) -> tuple[str, str]:
    return str(found.wanted.get("owner")), str(found.wanted.get("name", found.wanted.get("function")))


def _decided(found: Found, options: Options) -> Found:
    """Applies --queue and --decide. A pattern decides only what is open; an entry's own id also replaces a value.

    With a decided interval, the first time is not before the last run there plus this interval, unless it is decided, too.
    """
    wanted, decisions = dict(found.wanted), list(found.decisions)
    if (queue := options.queues.get(wanted.get("queue", ""))) is not None:
        wanted["queue"] = queue
    for text in options.decide:
        pattern, field, value = decision(text, options.source)
        is_open = any(one.field == field for one in decisions)
        if pattern == found.id or (is_open and fnmatchcase(found.id, pattern)):
            if field in checks.NAMES.values():
                wanted = {name: value for name, value in wanted.items() if name not in checks.NAMES.values()}
            wanted[field] = _value(field, value)
            decisions = [one for one in decisions if one.field != field]
    first, last = wanted.get("first"), found.stored.get("last")
    if first and last and first == found.wanted.get("first") and "every" in wanted:
        with suppress(BadInput):  # `_fitted` names the fault
            wanted["first"] = max(first, last + timedelta(milliseconds=milliseconds("every", wanted["every"])))
    return replace(found, wanted=wanted, decisions=tuple(decisions))


def _value(field: str, text: str) -> Any:
    kind = fields.FIELDS[field].kind if field in fields.FIELDS else "text"
    if field == "first":
        return once.instant(field, text, clock.python_utc)
    if kind == "json":
        return checks.json_value(field, text)
    if kind == "number":
        return int(text) if is_plain(text) else text
    return {"true": True, "false": False}.get(text, text) if kind == "flag" else text


def _fitted(found: Found, now: datetime) -> Found:
    """Returns the entry with a limit that does not fit as a decision, and with any other fault as a refusal."""
    try:
        if not found.refusals:
            _values(found.wanted, now)
    except BadInput as error:
        if error.field not in ("box", "tolerance"):
            return replace(found, refusals=(str(error),))
        wanted = {name: value for name, value in found.wanted.items() if name != error.field}
        kept = [one for one in found.decisions if one.field != error.field]
        return replace(found, wanted=wanted, decisions=(*kept, Decision(error.field, str(error))))
    return found


def _judged(found: Found, fingerprint: str, now: datetime, *, proves: bool, is_twice: bool) -> Entry:
    schedule, next_here = "", None
    if not found.refusals:
        values = _values(found.wanted, now)
        schedule, next_here = sync.in_words(values), found.wanted.get("first") or definition.first_run(values, now)
        if proves:
            found = replace(found, changes=tuple(filter(None, _changes(found, values, now))))
        if is_twice:
            taken = Decision("name", f"another entry has the name {_key(found)[1]}, too; which name does this one get?")
            found = replace(found, decisions=(*found.decisions, taken))
    asked = [f"{one.question} ({_answer(one.field)})" for one in found.decisions]
    reasons = found.refusals or (*asked, *found.changes, *(f"note: {note}" for note in found.notes))
    return Entry(found, found.verdict, schedule, next_here, tuple(reasons), fingerprint)


def _answer(field: str) -> str:
    of_all = {"zone": "--zone ZONE", "user": "--user-column or --no-user-column"}
    return of_all.get(field, f"--decide ENTRY:{field}=VALUE")


def _values(wanted: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
    """Returns the columns of the task that `register` would make. Raises BadInput."""
    said = {name: value for name, value in wanted.items() if value is not None}
    identity.identify(said.pop("owner", None))
    first = operations.aware("first", said.pop("first", None))
    if "function" not in said:
        raise BadInput("function", None, "is missing")
    task = definition.Wanted(**said)
    task.task_name()
    given = {column: value for column, value in task.given().items() if column not in rows.OWN}
    values = _columns(json.dumps(given, sort_keys=True), now)
    if first is not None:
        definition.check_first(first, values)
    return values


@lru_cache(maxsize=10_000)  # most entries of a source differ in a few columns only
def _columns(given: str, now: datetime) -> Mapping[str, Any]:
    """Returns the columns of a task with these checked fields. Raises BadInput, also if it is never due."""
    values = definition.applied(json.loads(given), None, now=now)
    definition.first_run(values, now)
    return values


def _changes(found: Found, values: Mapping[str, Any], now: datetime) -> Iterator[str]:
    """Yields the changes that the source names, and the differences in the schedule."""
    yield from found.changes
    if values["kind"] == Kind.INTERVAL:
        if found.source != "json":  # ours, which had a tick as well
            yield definition.rounded_up(values["every_ms"], settings.current().tick_ms)
        if found.next_there and "first" not in found.wanted:
            yield "it is due at once here; for another time, decide the field first"
    elif found.times is not None and not any(one.field == "zone" for one in found.decisions):
        yield proof.difference(found.times, Kind(values["kind"]), values["expression"], values["zone"], now)
