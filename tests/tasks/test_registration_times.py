"""Tasks by cron, calendar event or a single time: what is stored, when they are due, and what a change does."""

from datetime import UTC, datetime, timedelta

import pytest

import ticker
from tests.sentences import sentence
from ticker import clock
from ticker.engine import timing
from ticker.errors import BadInput
from ticker.model import Kind

pytestmark = pytest.mark.slow

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)  # a Sunday
MILLISECOND = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def frozen():
    """The statements' clock stands at NOW."""
    with clock.use(lambda: NOW):
        yield


def test_a_task_by_cron_is_due_at_its_first_time_and_keeps_what_was_written(db):
    task = ticker.register(db, "reports.daily", cron="0  6 * * mon-fri", zone="Europe/Berlin")
    assert (task.kind, task.expression, task.zone) == (Kind.CRON, "0 6 * * 1-5", "Europe/Berlin")
    assert task.next_run == NOW + 17 * HOUR
    assert (task.every_ms, task.tolerance_ms, task.box_ms, task.grace_ms) == (0, 0, 300_000, 1000)


@pytest.mark.parametrize(
    ("said", "box", "grace"),
    [
        ({"cron": "* * * * *"}, 30_000, 1000), ({"cron": "*/5 * * * * *"}, 2_500, 500),
        ({"cron": "0,1 6 * * *"}, 30_000, 1000), ({"calendar": "hourly"}, 300_000, 1000),
        ({"at": NOW + HOUR}, 300_000, 1000), ({"cron": "* * * * *", "box": "50s"}, 50_000, 1000),
    ],
)  # fmt: skip
def test_the_box_is_half_the_shortest_gap_and_at_most_five_minutes(said, box, grace, db):
    task = ticker.register(db, "poll", **said)
    assert (task.box_ms, task.grace_ms) == (box, grace)


@pytest.mark.parametrize("at", [NOW + HOUR, "2026-03-01T14:00:00+01:00", 1772370000, "1772370000000"])
def test_a_single_time_may_be_said_in_four_ways(at, db):
    task = ticker.register(db, "poll", at=at)
    assert (task.kind, task.expression, task.next_run) == (Kind.ONCE, "2026-03-01T13:00:00Z", NOW + HOUR)


def test_a_calendar_event_brings_its_zone(db):
    task = ticker.register(db, "poll", calendar="Mon 9:00 America/New_York")
    assert (task.expression, task.zone) == ("Mon *-*-* 09:00:00", "America/New_York")
    assert task.next_run == NOW + 26 * HOUR


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            {"every": "1m", "cron": "* * * * *"},
            sentence("errors.stands_beside_another_schedule", field="cron", value="'* * * * *'", other="every"),
        ),
        ({"cron": "* * * * *", "at": NOW + HOUR}, sentence("errors.one_schedule")),
        ({}, sentence("errors.schedule_is_missing", field="every", example="1m")),
        ({"zone": "Europe/Berlin"}, sentence("errors.field_is_missing", field="every")),
        ({"every": "1m", "zone": "Europe/Berlin"}, sentence("errors.no_meaning_beside", other="every")),
        ({"cron": "* * * * *", "zone": "Mars/Olympus"}, sentence("errors.no_zone_of_the_iana_database")),
        ({"cron": "* * * * *", "tolerance": "5s"}, sentence("errors.for_intervals", field="tolerance", value="'5s'")),
        ({"cron": 5}, sentence("errors.is_no_text", field="cron", value=5)),
        ({"cron": "0 0 30 2 *"}, sentence("errors.never_fires")),
        ({"cron": "0 0 0 1 1 * 2026"}, sentence("errors.never_fires_again")),
        ({"at": NOW - HOUR}, sentence("errors.in_the_past")),
        ({"at": "tomorrow"}, sentence("errors.is_no_time")),
        ({"every": "1m", "ends": NOW - HOUR}, sentence("errors.before_the_first_time")),
        ({"cron": "0 6 * * *", "ends": NOW + HOUR}, sentence("errors.before_the_first_time")),
        ({"every": "1m", "ends": "soon"}, sentence("errors.no_time", field="ends", value="'soon'")),
        ({"every": "1m", "max_runs": -1}, sentence("errors.whole_number_or_no_limit", first=0, last="1,000,000,000")),
        ({"every": "1m", "max_runs": True}, sentence("errors.is_no_whole_number")),
        ({"every": "1m", "catch_up": "all"}, sentence("errors.is_none_of", values="one (a single late run), none")),
        ({"every": "1m", "remove": "no"}, sentence("errors.neither_true_nor_false")),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_in_one_sentence_and_nothing_is_written(said, words, db):
    with pytest.raises(BadInput) as caught:
        ticker.register(db, "poll", **said)
    assert words.within(caught.value)
    assert ticker.list_tasks(db) == []


# ------------------------------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize(
    ("said", "first"),
    [
        ({"every": "1m", "starts": NOW + DAY}, NOW + DAY),
        ({"every": "1m", "starts": NOW - DAY}, NOW),
        ({"every": "1m", "ends": NOW + DAY}, NOW),
        ({"cron": "0 * * * *", "starts": NOW + DAY}, NOW + DAY),
        ({"cron": "0 * * * *", "starts": NOW + DAY + MINUTE}, NOW + DAY + HOUR),
        ({"cron": "0 * * * *"}, NOW + HOUR),
    ],
    ids=str,
)
def test_a_schedule_begins_at_its_start(said, first, db):
    assert ticker.register(db, "poll", **said).next_run == first


def test_a_bound_is_taken_away_by_an_empty_text_and_a_limit_by_zero(db):
    task = ticker.register(db, "poll", every="1m", starts=NOW + DAY, ends=NOW + 2 * DAY, max_runs=5)
    assert (task.starts_at, task.ends_at, task.max_runs) == (NOW + DAY, NOW + 2 * DAY, 5)
    task = ticker.edit(db, task, starts="", ends="", max_runs=0)
    assert (task.starts_at, task.ends_at, task.max_runs) == (None, None, None)


# ------------------------------------------------------------------------------------------------------ changes


def test_registering_again_writes_nothing_and_moves_nothing(db):
    said = {"cron": "0 6 * * *", "zone": "Asia/Tokyo", "starts": NOW, "ends": "2027-01-01T00:00:00Z", "max_runs": 9}
    first = ticker.register(db, "poll", **said)
    with clock.use(lambda: NOW + 3 * DAY):
        assert ticker.register(db, "poll", **said) == first


def test_a_single_time_that_has_passed_may_be_registered_again_at_each_deploy(db):
    first = ticker.register(db, "poll", at=NOW + HOUR)
    with clock.use(lambda: NOW + DAY):
        assert ticker.register(db, "poll", at=NOW + HOUR) == first


def test_a_changed_kind_is_due_at_its_next_time_behind_now(db):
    ticker.register(db, "poll", every="1m")
    task = ticker.register(db, "poll", cron="0 * * * *")
    assert (task.kind, task.next_run, task.every_ms, task.tolerance_ms) == (Kind.CRON, NOW + HOUR, 0, 0)
    task = ticker.register(db, "poll", every="10m")
    assert (task.kind, task.next_run, task.every_ms) == (Kind.INTERVAL, NOW + 10 * MINUTE, 600_000)
    assert (task.expression, task.tolerance_ms, task.box_ms) == ("", 30_000, 300_000)


def test_a_changed_expression_or_zone_is_due_at_its_next_time(db):
    task = ticker.register(db, "poll", cron="0 6 * * *", zone="Europe/Berlin")
    assert task.next_run == NOW + 17 * HOUR
    assert ticker.edit(db, task, zone="America/New_York").next_run == NOW + 23 * HOUR
    assert ticker.edit(db, task, cron="0 7 * * *").next_run == NOW + DAY  # the zone stays


def test_resuming_a_task_by_cron_waits_for_its_time(db):
    task = ticker.register(db, "poll", cron="0 6 * * *")
    ticker.pause(db, task)
    [resumed] = ticker.resume(db, task)
    assert resumed.next_run == task.next_run


def test_an_end_that_moves_out_wakes_a_task_that_was_done(db):
    task = ticker.register(db, "poll", cron="0 * * * *", ends=NOW + HOUR)
    db.execute("UPDATE ticker.tasks SET next_run = NULL")
    with clock.use(lambda: NOW + 90 * MINUTE):
        assert ticker.edit(db, task, ends=NOW + DAY).next_run == NOW + 2 * HOUR


def test_a_time_that_passes_in_a_pause_makes_one_late_run(db, store):
    ticker.register(db, "poll", cron="0 * * * *")
    ticker.register(db, "poll", name="by itself", cron="0 * * * *")
    ticker.pause(db, "poll")
    ticker.pause(db, "by itself", until=NOW + DAY)
    with clock.use(lambda: NOW + DAY + MINUTE):
        [resumed] = ticker.resume(db, "poll")
        store.wake(NOW + DAY + MINUTE, 10)
        assert resumed.next_run == ticker.get(db, "by itself").next_run == NOW + HOUR


@pytest.mark.parametrize(("every", "tolerance"), [("1d", "72m"), ("60s", "5s"), ("4s", "1s")])
def test_no_ticker_that_looks_ahead_pushes_a_resumed_task_before_it_may_run(db, store, every, tolerance):
    for name in ("by hand", "by itself"):
        ticker.register(db, "poll", name=name, every=every, tolerance=tolerance)
    db.execute("UPDATE ticker.tasks SET last_run = %s, next_run = %s + every_ms * interval '1 ms'", [NOW, NOW])
    with clock.use(lambda: NOW + SECOND):
        ticker.pause(db, "by hand")
        [resumed] = ticker.resume(db, "by hand")
        ticker.pause(db, "by itself", until=NOW + 2 * SECOND)
    store.wake(NOW + 2 * SECOND, 10)
    assert ticker.get(db, "by itself").next_run == resumed.next_run
    may_start = timing.earliest_start(NOW, resumed.every_ms, resumed.tolerance_ms)
    with store.batch() as rows:
        assert rows.claim_due(may_start - MILLISECOND, timing.LOOK_AHEAD, 10) == []
        claimed = rows.claim_due(may_start, timing.LOOK_AHEAD, 10)
    assert len(claimed) == 2


def test_a_task_by_cron_that_is_enabled_again_waits_for_its_time(db):
    task = ticker.register(db, "poll", cron="0 * * * *")
    ticker.edit(db, task, enabled=False)
    with clock.use(lambda: NOW + DAY + MINUTE):
        assert ticker.edit(db, task, enabled=True).next_run == NOW + DAY + HOUR


def test_nothing_brings_an_interval_before_its_start(db, store):
    task = ticker.register(db, "poll", every="1h", starts=NOW + DAY)
    ticker.pause(db, task)
    assert ticker.resume(db, task)[0].next_run == NOW + DAY
    assert ticker.edit(db, task, every="30m").next_run == NOW + DAY
    db.execute("UPDATE ticker.tasks SET last_run = %s, last_occurrence = %s", [NOW, NOW])
    store.clamp(NOW, 10)  # the first pass, which looks at every row
    assert ticker.get(db, task).next_run == NOW + DAY


def test_a_task_that_is_resumed_behind_its_end_is_done(db):
    task = ticker.register(db, "poll", every="1h", ends=NOW + HOUR)
    ticker.pause(db, task)
    with clock.use(lambda: NOW + DAY):
        assert ticker.resume(db, task)[0].next_run is None


def test_a_calendar_event_with_utc_behind_it_is_in_utc(db):
    task = ticker.register(db, "poll", calendar="*-*-* 09:00", zone="Europe/Berlin")
    assert ticker.edit(db, task, calendar="*-*-* 09:00 UTC").zone == "UTC"
    assert ticker.edit(db, task, calendar="*-*-* 10:00 Europe/Paris").zone == "Europe/Paris"


def test_a_box_that_an_operator_set_stays_when_the_times_change(db):
    task = ticker.register(db, "poll", cron="*/2 * * * *")
    assert task.box_ms == 60_000
    ticker.edit(db, task, box="10s")
    assert ticker.edit(db, task, cron="*/4 * * * *").box_ms == 10_000
    assert ticker.register(db, "poll", cron="*/6 * * * *").box_ms == 10_000


def test_a_tolerance_comes_back_with_the_interval(db):
    ticker.register(db, "poll", every="1m", tolerance="10s")
    ticker.register(db, "poll", cron="* * * * *")
    assert ticker.register(db, "poll", every="1m", tolerance="10s").tolerance_ms == 10_000


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"at": NOW + HOUR, "first": NOW + MINUTE}, sentence("errors.stands_beside", other="at")),
        ({"at": NOW - HOUR, "first": NOW + MINUTE}, sentence("errors.in_the_past")),
        ({"every": "1m", "starts": NOW + DAY, "first": NOW + HOUR}, sentence("errors.not_between_starts_and_ends")),
        (
            {"cron": "* * * * *", "ends": NOW + DAY, "first": NOW + 2 * DAY},
            sentence("errors.not_between_starts_and_ends"),
        ),
    ],
    ids=str,
)
def test_a_first_time_is_within_what_was_said(said, words, db):
    with pytest.raises(BadInput, check=words.within):
        ticker.register(db, "poll", **said)
    assert ticker.list_tasks(db) == []


def test_a_list_with_a_time_in_the_past_changes_nothing(db):
    owner = ("channels", "1")
    ticker.register(db, "old", every="1m", owner=owner)
    with pytest.raises(BadInput, check=sentence("errors.in_the_past").within):
        ticker.reconcile(db, owner, [{"function": "a", "every": "1m"}, {"function": "z", "at": NOW - HOUR}])
    assert [task.name for task in ticker.list_tasks(db)] == ["old"]
