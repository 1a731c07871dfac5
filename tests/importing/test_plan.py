"""What a plan proves: the times of a source's own rule, compared with ours."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.sentences import sentence
from ticker.errors import BadInput
from ticker.importing import dialects, plan, proof
from ticker.importing.found import Decision, Found, Source
from ticker.model import Kind
from ticker.schedules import kinds

NOW = datetime(2026, 11, 22, 13, 30, tzinfo=UTC)


class Entries(Source):
    def __init__(self, *founds):
        self.founds = founds

    def read(self, now):
        return [*self.founds]


@pytest.fixture
def planned(monkeypatch):
    """Plans the import of these entries, and returns them."""

    def make(*founds, **options):
        monkeypatch.setattr(plan.Options, "opened", lambda self: Entries(*founds))
        return plan.make(plan.Options("rq-scheduler", **options), NOW).entries

    return make


def found(text, zone="UTC", **more):
    read = dialects.translate("rq-scheduler", text, zone)
    return Found("rq-scheduler", "e", {"function": "poll", "box": "1m", **read.wanted}, times=read.times, **more)


def test_a_translation_with_equal_times_is_the_same(planned):
    [entry] = planned(found("0 6 13 * 5"))
    assert (entry.verdict, entry.schedule, entry.reasons) == ("same", "calendar Fri *-*-13 06:00:00", ())
    assert entry.next_here == datetime(2027, 8, 13, 6, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "there", "here"),
    [
        ("30 2 * * *", "2027-03-28 03:30:00+02:00", "2027-03-28 03:00:00+02:00"),
        ("*/30 2 * * *", "2027-03-28 03:00:00+02:00", "2027-03-29 02:00:00+02:00"),
        ("0 * * * *", "2027-10-31 03:00:00+01:00", "2027-10-31 02:00:00+01:00"),
    ],
)
def test_days_when_clocks_change_differ_and_are_shown(planned, monkeypatch, text, there, here):
    monkeypatch.setitem(dialects.DIALECTS, "rq-scheduler", dialects.DIALECTS["rq-cron"])
    [entry] = planned(found(text, "Europe/Berlin"))
    said = sentence("imports.clocks", there=there, here=here)
    assert (entry.verdict, entry.reasons) == ("changed", (said,))


def test_another_difference_is_shown_as_such():
    every_five = dialects.translate("rq-cron", "*/5 * * * *", "UTC").times
    said = proof.difference(every_five, Kind.CRON, "*/10 * * * *", "UTC", NOW)
    assert sentence("imports.differs", there="2026-11-22 13:35:00+00:00", here="2026-11-22 13:40:00+00:00") == said


def test_the_clock_changes_of_two_years_are_compared():
    """The times of one day a year are beyond the next 100 of a daily schedule."""
    berlin = ZoneInfo("Europe/Berlin")

    def there(after, count):
        times = kinds.times(kinds.detect("30 2 * * *", "Europe/Berlin"), after, count)
        return [at + timedelta(minutes=at.astimezone(berlin).date() == datetime(2028, 3, 26).date()) for at in times]  # noqa: DTZ001

    said = proof.difference(there, Kind.CRON, "30 2 * * *", "Europe/Berlin", NOW)
    assert sentence("imports.clocks", there="2028-03-26 03:01:00+02:00", here="2028-03-26 03:00:00+02:00") == said


def test_an_interval_is_changed_if_it_is_due_at_once_or_not_a_multiple_of_the_tick(planned):
    wanted = {"function": "poll", "every": 300, "box": 60}
    soon = NOW + timedelta(minutes=3)
    at_once, in_time, rounded = planned(
        Found("rq-scheduler", "a", {**wanted, "name": "a"}, soon),
        Found("rq-scheduler", "b", {**wanted, "name": "b", "first": soon}, soon),
        Found("rq-scheduler", "c", {**wanted, "name": "c", "every": 45, "box": 9, "first": soon}, soon),
    )
    assert [entry.verdict for entry in (at_once, in_time, rounded)] == ["changed", "same", "changed"]
    assert (in_time.next_here, in_time.schedule) == (soon, "every 5m")


def test_a_zone_is_decided_for_all_and_proved_then(planned):
    [entry] = planned(found("0 6 * * *", decisions=(Decision("zone", "which?"),)))
    assert (entry.verdict, entry.reasons) == ("decide", ("which? (--zone ZONE)",))


@pytest.mark.parametrize("pattern", ["e", "*"])
def test_a_decision_that_only_refused_entries_would_get_is_refused(planned, pattern):
    refused = sentence("imports.decides_refused", text=f"'{pattern}:box=9s'", entry="e")
    with pytest.raises(BadInput, check=refused.within):
        planned(found("0 0 L2 * *"), decide=(f"{pattern}:box=9s",))
    planned(found("0 0 L2 * *"), replace(found("0 6 * * *"), id="f"), decide=("*:box=9s",))


@pytest.mark.parametrize(
    ("decided", "first"),
    [(["every=60s"], 60), (["every=5s"], 15), (["every=60s", f"first={NOW.isoformat()}"], 0)],
)
def test_the_first_time_is_not_before_the_last_run_there_plus_the_decided_interval(planned, decided, first):
    wanted = {"function": "poll", "name": "e", "every": 15, "box": 2, "first": NOW + timedelta(seconds=15)}
    asks = Found("rq-scheduler", "e", wanted, wanted["first"], stored={"last": NOW})
    [entry] = planned(asks, decide=tuple(f"e:{text}" for text in decided))
    assert entry.next_here == NOW + timedelta(seconds=first)


def test_only_some_entries_and_other_queues(planned):
    entries = [
        Found("rq-scheduler", id_, {"function": "poll", "name": id_, "every": 60, "queue": "low"}) for id_ in "ab"
    ]
    [entry] = planned(*entries, only="b", queues={"low": "polling"})
    assert (entry.found.id, entry.found.wanted["queue"]) == ("b", "polling")
