"""Hypothesis at every reader of text and bytes: it returns a value, or raises the error that it names.

Durations have theirs in `test_duration.py`, whole environments in `bad_input/test_environment.py`, arguments of `register`
in `bad_input/test_python.py`, requests in `web/test_bad_requests.py`.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ticker import owners
from ticker import settings as environment
from ticker.cli import options
from ticker.daemon import systemd
from ticker.engine import jobs
from ticker.engine.timing import Backoff
from ticker.errors import BadInput, ConfigurationError
from ticker.queue import inspect
from ticker.read.journal import past
from ticker.schedules import calendar, cron, kinds, once, zones
from ticker.schedules.duration import whole
from ticker.settings import Settings
from ticker.tasks import checks, identity, preview
from ticker.testing import table
from ticker.web import access
from ticker.web.api import operation as http
from ticker.web.pages import screen
from ticker.web.pages import tasks as forms
from wrappers.pipeline import payload
from wrappers.rq import corrupt_jobs, signed_worker

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ZONE = ZoneInfo("Europe/Berlin")
KEY = "a key of enough length"
EVENTS = (
    "tick enqueues M1, A2 and A1 is dropped: expired",
    "A1 is forced to end",
    "A1 is dropped: too_early",
    "run now",
)
FIELDS = (
    "data",
    "created_at",
    "timeout",
    "ttl",
    "status",
    "origin",
    "exc_info",
    "dependency_ids",
    "retry_intervals",
    "meta",
)

Reader = tuple[Callable[[str], Any], tuple[str, ...]]
"""Reads a text; texts that it takes, or nearly takes."""

SCHEDULES = ("5m", "1h30m", "PT5M", "0 9 * * 1-5", "*/7 0 0 1,15 JAN-MAR MON 2030", "@daily", "TZ=UTC 0 0 * * *", "daily",
             "Mon..Fri *-*-* 09:00:00", "*-*~01/3 *:0/15 Europe/Berlin", "2027-01-01T00:00:00Z", "0 0 30 2 *",
             "1800000000\x1f")  # fmt: skip
TIMES = ("2026-05-01T09:00:00+02:00", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-W01-1", "1800000000",
         "1800000000\x1f", "09:30Z", "2h ago", "P1D", "20260501T090000Z")  # fmt: skip
OWNERS = ("mail_channels:5", "1-mail_channels:5", "public.t:[1, 2]")

TEXTS: dict[str, Reader] = {
    "cron": (lambda text: cron.parse(text, ZONE).next_after(NOW), SCHEDULES),
    "calendar": (lambda text: calendar.parse(text, None).next_after(NOW), SCHEDULES),
    "any schedule": (lambda text: preview.validate(text, count=2, now=NOW), SCHEDULES),
    "its kind": (lambda text: kinds.detect(text, "Europe/Berlin").words(), SCHEDULES),
    "once": (lambda text: once.parse(text, ZONE).words(), TIMES),
    "a time of HTTP": (lambda text: http.instant_in("at", text), TIMES),
    "a time or a span": (lambda text: once.instant("until", text, lambda: NOW), TIMES),
    "a time that was": (lambda text: past("since", text, NOW), TIMES),
    "zone": (lambda text: zones.zone("zone", text), ("Europe/Berlin", "Etc/GMT+1", "../UTC", "posix/UTC", "America/")),
    "back-off": (lambda text: Backoff.parse("backoff", text).text, ("10s..5m", "1ms", "..", "1h..366d")),
    "whole number": (lambda text: whole("limit", text, 1, 10), ("5", "-5", "\u0665", "1_0")),
    "queue depth": (lambda text: environment.queue_depth("X", text), ("polling=10000,reports=500", "=5", "a==1", "a=\x1f5")),
    "keys": (lambda text: environment.keys("X", text), (f"{KEY},another key as long", "short")),
    "channels": (lambda text: environment.channels("X", text), ("log,webhook,mail", "a.b-c")),
    "mailboxes": (lambda text: environment.mailboxes("X", text, most=3), ("a@example.org,b.c+d@e-f.org", "a@[::1]")),
    "web address": (lambda text: environment.web_address("X", text), ("https://h.example:443/a?b=c", "http://[::1]:99999/")),
    "mail server": (lambda text: environment.mail_server("X", text), ("smtp://u:p%40@h:587", "smtps://[::1]:1/")),
    "schema": (lambda text: environment.schema_name("X", text), ("ticker", "pg_x", "_1")),
    "environment name": (lambda text: environment.environment_name("X", text), ("production", "a.b")),
    "modules": (environment.modules, ("myapp.polls, myapp.reports",)),
    "DATABASE_URL": (lambda text: environment.psycopg_url(text), ("postgresql+psycopg://u:p%41@h,i:5432/n?a=b", "postgres://")),
    "REDIS_URL": (lambda text: Settings(redis_url=text).require_redis(), ("redis://:p@h:6379/0?a=b", "unix:///s#", "valkeys://[::1]")),
    "owner": (lambda text: identity.identify(text), OWNERS),
    "owner of HTTP": (lambda text: http.owner_in("owner", text), OWNERS),
    "condition": (lambda text: owners.triggers("channels", active_when=text),
                  ("enabled and not paused", "state = E'a\\'b' or \"x\" is null", "a::text = $1", "--", "$$")),
    "task": (lambda text: options.ref(text, None), ("17", "0", "mail.fetch", "9" * 19)),
    "id": (http.id_in, ("17", "9" * 19)),
    "job id": (jobs.installation_of, ("test1234-t5-1767225600000000", "test1234-r7", "test1234-b" + "0f" * 12)),
    "bookmark of tasks": (lambda text: http.text_in("after", http.AFTER_ID, text), ("17", "9" * 18)),
    "bookmark of records": (lambda text: http.text_in("after", http.BEFORE_KEY, text), ("1767225600000000-run-17", "9" * 17 + "-event-1")),
    "bookmark of owners": (lambda text: http.text_in("after", http.AFTER_OWNER, text), OWNERS),
    "what a form showed": (lambda text: forms.shown({"was": [text]}), ('{"queue": "0f"}', "[]", "1e999", "NaN")),
    "JSON": (lambda text: checks.json_object("kwargs", checks.json_value("kwargs", text)), ('{"a": [1.5e3, "\\u0000", null]}', "[" * 999)),
    "systemd's watchdog": (lambda text: systemd.half_of_watchdog({"WATCHDOG_USEC": text}), ("30000000", "0", "²")),
    "event of a table": (lambda text: [*table.read([("01:30", text)])], EVENTS),
    "time of a table": (lambda text: [*table.read([(text, "run now", text)])], ("01:30.5", "99999:59:59.999")),
}  # fmt: skip
TEXTS |= {
    f"a form's {one.name}": (
        partial(screen.value_of, None, one.name, one.schema),
        ("yes", "5", "-1", "2h", "{}", '{"a": 1}', *TIMES),
    )
    for one in forms.ARGUMENTS
    if one is not forms.FIRST  # which is a time or a span
}

JOB_ID = "test1234-t5-1767225600000000"
CALL = b"\x80\x05\x95#\0\0\0\0\0\0\0(\x8c\x0cwrappers.run\x94NK\x05\x8a\x07\0\0\xb0\x84VG\x06\x86\x94}\x94t\x94."
PACKED = b"x\x01\x01\x2e\0\xd1\xff" + CALL

BYTES: dict[str, tuple[Callable[[bytes], Any], type[Exception], tuple[bytes, ...]]] = {
    "packed data": (lambda data: payload.unpacked(data), ValueError, (PACKED,)),
    "payload": (lambda data: payload.call(JOB_ID, data), ValueError, (CALL, b"\x8b\xff\xff\xff\xff", b"\x8a\xff", b"I9\n")),
    "form": (screen.read, BadInput, (b"a=b&c=%C3%A4&a=+", b"%ff", b"&" * 2001)),
    "what inflates": (lambda data: corrupt_jobs.inflates_within(data, 10), corrupt_jobs.Poison, (PACKED,)),
    "data of a job": (lambda data: restored(corrupt_jobs.Job, {b"data": data}), corrupt_jobs.Poison, (PACKED,)),
    "signature": (lambda data: restored(signed_worker.Job, {b"data": PACKED, b"signature": data}), corrupt_jobs.Poison, (b"0" * 16,)),
    "Authorization": (lambda data: access._shown(data.decode("latin-1")), ConfigurationError, (b"Basic dTpw", b"Bearer x")),
}  # fmt: skip

A_FEW, MANY = settings(max_examples=15), settings(max_examples=2000)


def restored(kind: type[corrupt_jobs.Job], found: Mapping[bytes, bytes]) -> None:
    """Reads a job's hash as a worker does."""
    with corrupt_jobs.unreadable_is_poison(JOB_ID):
        kind(JOB_ID, connection=SimpleNamespace()).restore(found)


def like(examples: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Returns any texts, and the parts of those that are taken, in any order, with anything between them."""
    parts = [part for example in examples for part in (example, *re.split(r"(\W)", example)) if part]
    return st.text(max_size=1000) | st.lists(st.sampled_from(parts) | st.text(max_size=5), max_size=12).map("".join)


def like_bytes(examples: tuple[bytes, ...]) -> st.SearchStrategy[bytes]:
    cuts = st.tuples(st.sampled_from(examples), st.integers(0, 60), st.integers(0, 4), st.binary(max_size=4))
    return st.binary(max_size=1000) | cuts.map(lambda c: c[0][: c[1]] + c[3] + c[0][c[1] + c[2] :])


def check_text(name: str, examples: settings) -> None:
    read, taken = TEXTS[name]

    def check(text: str) -> None:
        try:
            read(text)
        except (BadInput, ConfigurationError) as refused:
            assert str(refused).isprintable() and len(str(refused)) < 500

    for text in taken:
        check(text)
    examples(given(like(taken))(check))()


def check_bytes(name: str, examples: settings) -> None:
    read, refusal, taken = BYTES[name]

    def check(data: bytes) -> None:
        try:
            read(data)
        except refusal as refused:
            assert type(refused) is not UnicodeDecodeError

    for data in taken:
        check(data)
    examples(given(like_bytes(taken))(check))()


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_any_text_is_read_or_refused_in_a_sentence(name: str) -> None:
    check_text(name, A_FEW)


@pytest.mark.parametrize("name", BYTES)
def test_any_bytes_are_read_or_refused(name: str) -> None:
    check_bytes(name, A_FEW)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", TEXTS)
def test_thousands_of_texts_are_read_or_refused_in_a_sentence(name: str) -> None:
    check_text(name, MANY)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", BYTES)
def test_thousands_of_bytes_are_read_or_refused(name: str) -> None:
    check_bytes(name, MANY)


@given(st.dictionaries(st.sampled_from(FIELDS).map(str.encode) | st.binary(max_size=5), st.binary(max_size=50)))
@A_FEW
def test_any_hash_of_a_job_is_read_or_poison(found: dict[bytes, bytes]) -> None:
    for kind in (corrupt_jobs.Job, signed_worker.Job):
        try:
            restored(kind, {b"data": PACKED} | found)
        except corrupt_jobs.Poison as refused:
            assert refused.job_id == JOB_ID


@given(st.dictionaries(st.sampled_from(["last_heartbeat", "pid", "queues", "state", "hostname"]), st.text(max_size=30)))
@A_FEW
def test_any_hash_of_a_worker_is_shown(found: dict[str, str]) -> None:
    assert inspect._worker("x", found, 1).name == "x"
