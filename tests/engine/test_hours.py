"""Tasks with hours (`during`), on real servers: a tick pushes nothing outside them, and no task is late there."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

import ticker
from tests.doubles import MemoryQueue, MemoryStore
from tests.harness import command
from tests.sentences import sentence
from ticker.db.store import PostgresStore
from ticker.engine import tick as pass_
from ticker.errors import BadInput
from ticker.read import forecast, overview
from ticker.read.formatting import details, schedule

SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
WEDNESDAY = datetime(2100, 1, 6, tzinfo=UTC)  # ahead of the server's clock, by which triggers write
OPENS, CLOSES = 9 * 3600, 17 * 3600  # seconds
TOMORROW = 86_400 + OPENS


@pytest.fixture
def day(play):
    """A Wednesday that begins at 0 s."""
    play.begin = play.now = WEDNESDAY
    return play


def register(day, at, every="1m", **said):
    day.at(at)
    with day.clock():
        return ticker.register(day.db, "poll", every=every, **{"during": "9-17 mon-fri", **said})


def due(day):
    return day.since_begin(day.task().next_run)


@pytest.mark.slow
def test_a_task_that_is_registered_outside_its_hours_is_due_after_they_begin(day):
    task = register(day, 3 * 3600)
    assert OPENS <= day.since_begin(task.next_run) < OPENS + 60
    assert day.column("next_run") == task.next_run == day.task().next_run
    assert day.tick().due.due == 0


@pytest.mark.slow
def test_nothing_is_pushed_outside_and_the_first_push_is_in_the_first_interval(day):
    register(day, CLOSES - 90)
    day.run(CLOSES - 90, "succeeded")
    day.run(CLOSES - 30, "succeeded")
    assert TOMORROW <= due(day) < TOMORROW + 60
    for hour in range(17, 33):
        day.at(hour * 3600)
        assert day.tick().enqueued == 0
    day.at(due(day))
    assert day.tick().enqueued == 1
    assert len(day.runs()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("says", ["next_run", "resume", "enable", "again"])
def test_what_is_due_outside_its_hours_for_any_reason_is_put_off_without_a_record(says, day):
    task = register(day, CLOSES - 60)
    [taken] = [day.run(CLOSES - 60, "succeeded")]
    day.at(CLOSES + 600)
    match says:
        case "next_run":
            day.put(next_run=day.now)
        case "resume":
            ticker.pause(day.db, task)
            with day.clock():
                ticker.resume(day.db, task)
        case "enable":
            ticker.edit(day.db, task, enabled=False)
            day.put(next_run=day.at(CLOSES + 500))
            day.at(CLOSES + 600)
            with day.clock():
                ticker.edit(day.db, task, enabled=True)
        case "again":
            day.put(next_run=day.now, again_at=day.now)
    day.put(push_errors=2, push_error="Redis was full")
    report = day.tick()
    assert (report.due.enqueued, report.due.missed, report.errors) == (0, 0, 0)
    assert TOMORROW <= day.since_begin(day.column("next_run")) < TOMORROW + 60
    assert (day.column("waiting"), day.column("push_errors"), day.column("push_after")) == ([], 0, None)
    assert [run.id for run in day.runs()] == [taken.run_id]
    assert overview.counts(day.db).late == 0


@pytest.mark.slow
def test_a_task_that_waited_for_a_pause_until_its_hours_had_ended_is_put_off(day):
    register(day, CLOSES - 120)
    day.run(CLOSES - 120, "succeeded")
    with day.clock():
        ticker.pause_all(day.db)
    day.at(CLOSES - 60)
    day.tick()
    assert day.column("pause_id") is not None
    day.at(CLOSES + 600)
    with day.clock():
        ticker.resume_all(day.db)
    assert day.tick().enqueued == 0
    day.at(CLOSES + 630)
    assert day.tick().enqueued == 0
    assert TOMORROW <= due(day) < TOMORROW + 60
    assert (len(day.runs()), day.column("pause_id")) == (1, None)


def test_many_that_are_due_outside_are_put_off_in_one_pass_and_share_the_interval_after_the_beginning():
    """The double is enough here. The pass goes on until it finds less than a batch."""
    store, queue = MemoryStore(), MemoryQueue()
    for _ in range(60):
        store.add_task(during="9-17", next_run=WEDNESDAY)
    pushed = pass_.tick(store, queue, WEDNESDAY + HOUR, pass_.TickOptions(batch=10)).due
    assert (pushed.due, pushed.enqueued) == (60, 0)
    seconds = sorted((task.next_run - WEDNESDAY).total_seconds() - OPENS for task in store.tasks.values())
    assert all(number - 2 <= second <= number + 2 for number, second in enumerate(seconds))


def test_a_look_ahead_does_not_put_off_what_is_due_at_the_beginning():
    store, queue = MemoryStore(), MemoryQueue()
    for ms in (0 * SECOND, SECOND / 2):
        store.add_task(during="9-17", next_run=WEDNESDAY + 9 * HOUR + ms)
    last = store.add_task(during="9-17", next_run=WEDNESDAY + 17 * HOUR)
    options = pass_.TickOptions(look_ahead=1000)
    assert pass_.tick(store, queue, WEDNESDAY + 9 * HOUR - SECOND / 4, options).enqueued == 2
    assert store.task(last).next_run == WEDNESDAY + 17 * HOUR
    pass_.tick(store, queue, WEDNESDAY + 17 * HOUR - SECOND / 2, options)
    assert store.task(last).waiting == () and store.task(last).next_run > WEDNESDAY + DAY


@pytest.mark.slow
def test_a_row_with_hours_that_were_damaged_by_hand_backs_off_and_is_shown(day):
    register(day, OPENS)
    other = ticker.register(day.db, "poll", name="other", every="1m")
    day.db.execute("UPDATE ticker.tasks SET during = 'now and then', next_run = %s WHERE id <> %s", [day.now, other.id])
    day.db.execute("UPDATE ticker.tasks SET next_run = %s WHERE id = %s", [day.now, other.id])
    assert (day.tick().errors, len(day.take())) == (1, 1)
    broken, _ = ticker.list_tasks(day.db)
    assert "during: 'now and then' has 'now' for its days" in broken.push_error
    assert any("pushing it failed" in line for line in ticker.why(day.db, broken).next)


@pytest.mark.slow
def test_tasks_with_limits_have_hours_too(day):
    ticker.limit(day.db, "host", concurrency=5)
    register(day, OPENS, limits=["host"])
    day.put(next_run=day.at(CLOSES + 60))
    assert day.tick().enqueued == 0
    assert TOMORROW <= due(day) < TOMORROW + 60


@pytest.mark.slow
def test_an_elastic_task_that_finds_work_shortly_before_the_end_is_polled_again_before_it(day):
    register(day, CLOSES - 1200, every="1m..30m")
    day.put(pace_ms=1_800_000)
    day.run(CLOSES - 1200, "succeeded")
    assert due(day) == CLOSES - 1200 + 60


@pytest.mark.slow
def test_a_quiet_task_shows_when_it_is_due_before_a_tick_puts_it_off(day):
    register(day, CLOSES - 900, every="1m..30m")
    day.put(pace_ms=900_000)
    day.run(CLOSES - 900, "nothing_to_do")
    assert day.since_begin(day.column("next_run")) == CLOSES - 900 + 1800
    shown = due(day)
    assert TOMORROW <= shown < TOMORROW + 1800
    day.at(CLOSES + 900)
    day.tick()
    assert day.since_begin(day.column("next_run")) == shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "after"), [({"during": ""}, 60), ({"during": "9-20"}, 60), ({"zone": "America/New_York"}, 60)]
)
def test_new_hours_are_in_force_at_once(said, after, day):
    task = register(day, CLOSES - 60)
    day.run(CLOSES - 60, "succeeded")
    day.at(CLOSES + 3600)
    with day.clock():
        task = ticker.edit(day.db, task, **said)
    assert day.since_begin(task.next_run) == CLOSES + 3600 + after


@pytest.mark.slow
def test_hours_that_a_task_gets_put_it_off_at_once_and_never_delay_it_inside(day):
    task = register(day, CLOSES - 60, during=None)
    day.run(CLOSES - 60, "succeeded")
    day.at(CLOSES - 30)
    with day.clock():
        assert day.since_begin(ticker.edit(day.db, task, during="9-18").next_run) == CLOSES
        assert TOMORROW <= day.since_begin(ticker.edit(day.db, task, during="9-17").next_run) < TOMORROW + 60


def test_a_new_interval_keeps_the_hours_and_their_zone(day):
    task = register(day, OPENS, zone="Europe/Berlin")
    changed = ticker.edit(day.db, task, every="5m")
    assert (changed.during, changed.zone, changed.every_ms) == ("9-17 mon-fri", "Europe/Berlin", 300_000)


def test_it_is_registered_again_without_a_change(day):
    register(day, OPENS, zone="Europe/Berlin")
    before = day.task()
    assert register(day, OPENS + 600, zone="Europe/Berlin", during="09:00-17:00 FRI,mon-thu") == before
    assert (before.during, schedule(before)) == ("9-17 mon-fri", "every 1m during 9-17 mon-fri Europe/Berlin")


def test_a_schedule_of_another_kind_has_no_hours_and_they_return_with_the_interval(day):
    register(day, OPENS, zone="Europe/Berlin")
    with day.clock():
        daily = ticker.register(day.db, "poll", cron="0 6 * * *", zone="Asia/Tokyo")
        assert (daily.during, daily.zone) == ("", "Asia/Tokyo")
    again = register(day, OPENS, zone="Europe/Berlin")
    assert (again.during, again.zone) == ("9-17 mon-fri", "Europe/Berlin")


def test_a_changed_zone_of_hours_that_an_operator_removed_is_no_error(day):
    task = register(day, OPENS, zone="Europe/Berlin")
    ticker.edit(day.db, task, during="")
    changed = register(day, OPENS, zone="Europe/Paris", subject="mail")
    assert (changed.during, changed.zone, changed.subject) == ("", "UTC", "mail")
    with pytest.raises(BadInput, match="zone"):
        ticker.edit(day.db, task, zone="Europe/Paris")


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"every": "1m", "zone": "Europe/Berlin"}, "zone"),
        ({"every": "1d", "during": "9-17"}, "during"),
        ({"cron": "0 6 * * *", "during": "9-17"}, "during"),
        ({"at": "2100-02-01T00:00:00Z", "during": "9-17"}, "during"),
        ({"every": "1m", "during": "9-17", "zone": "Berlin"}, "zone"),
        ({"every": "1m", "during": "17"}, "during"),
        ({"every": "1m", "during": "9-17", "starts": "2100-01-06T18:00:00Z", "ends": "2100-01-07T08:00:00Z"}, "ends"),
    ],
)
def test_what_does_not_fit_writes_nothing(said, field, day):
    with day.clock(), pytest.raises(BadInput) as error:
        ticker.register(day.db, "poll", **said)
    assert error.value.field == field
    assert ticker.list_tasks(day.db) == []


@pytest.mark.slow
def test_a_success_is_missed_after_due_times_and_not_at_night(day):
    register(day, CLOSES - 60, dead_man=3)
    day.run(CLOSES - 60, "succeeded")
    day.put(enabled=False)
    missed = []
    for seconds in (CLOSES + 600, 86_400, TOMORROW, TOMORROW + 120, TOMORROW + 240):
        day.at(seconds)
        day.put(enabled=True, alarm_at=day.begin, resumed_at=None, next_run=day.begin + 30 * DAY)
        day.tick()
        missed.append("dead_man" in day.events())
    assert missed == [False, False, False, False, True]
    [words] = [words for (words,) in day.db.execute("SELECT words FROM ticker.events WHERE what = 'dead_man'")]
    assert words.startswith("no success for 3 intervals of 1m during 9-17 mon-fri; ")


@pytest.mark.slow
def test_an_alarm_in_the_minute_after_the_end_waits_for_the_first_interval(day):
    """The last tick before the end may have been too early for the last due time."""
    register(day, CLOSES - 62, dead_man=1)
    day.run(CLOSES - 62, "succeeded")
    day.at(CLOSES + 120)
    day.put(alarm_at=day.begin, next_run=day.begin + 30 * DAY)
    day.tick()
    assert "dead_man" not in day.events()
    assert TOMORROW + 31 <= day.since_begin(day.column("alarm_at")) < TOMORROW + 60 + 32


# ------------------------------------------------------------------------------------------------- clocks that are set back


@pytest.mark.slow
def test_a_ticker_that_starts_leaves_a_task_that_waits_for_its_hours(environ, day):
    register(day, CLOSES - 60)
    day.run(CLOSES - 60, "succeeded")
    before = day.column("next_run")
    day.at(CLOSES + 3600)
    PostgresStore(environ["DATABASE_URL"]).clamp(day.now, 1000)  # a ticker that starts looks at every row
    assert day.column("next_run") == before


@pytest.mark.slow
def test_after_the_clock_was_set_back_a_task_does_not_wait_for_hours_of_a_later_day(day):
    register(day, CLOSES - 60)
    day.run(CLOSES - 60, "succeeded")
    assert due(day) >= TOMORROW
    day.at(CLOSES - 3 * 86_400)
    pass_.bring_forward(day.store, day.now, 100)
    assert OPENS - 2 * 86_400 <= due(day) < OPENS - 2 * 86_400 + 60


# --------------------------------------------------------------------------------------------------------------- what is shown


def following(day):
    return [line for line in ticker.why(day.db, day.task()).next if "ticker" not in line]


@pytest.mark.slow
def test_why_and_next_and_show_say_when_it_is_due(day):
    task = register(day, CLOSES - 60, zone="UTC")
    day.run(CLOSES - 60, "succeeded")
    first = day.task().next_run
    day.at(CLOSES - 30)
    at = forecast.time_of_day(first, day.now)
    shown = list(forecast.schedule(day.task(), day.now, ticks=True))
    assert shown[0] == sentence("why.hours_end_before", hours="9-17 mon-fri", ends="17:00:00")
    assert shown[1].startswith(f"due at {at}, in 16 h")
    day.at(CLOSES + 3600)
    shown = list(forecast.schedule(day.task(), day.now, ticks=True))
    assert shown[0] == sentence("why.hours_begin", hours="9-17 mon-fri", begins="2100-01-07 09:00:00")
    assert shown[1].startswith(f"due at {at}, in 15 h")
    overdue = replace(day.task(), next_run=day.now - MINUTE)  # as long as no tick has put it off
    assert list(forecast.schedule(overdue, day.now, ticks=True)) == shown
    assert details(day.task())["schedule"] == "every 1m during 9-17 mon-fri"
    times = forecast.next_times(overdue, day.now, 481).times
    assert (times[0], times[-1] - times[0]) == (first, DAY)
    assert task.id == day.task().id


def test_inside_its_hours_why_does_not_mention_them(day):
    register(day, OPENS + 60)
    assert "hours" not in " ".join(forecast.schedule(day.task(), day.at(OPENS + 120), ticks=True))


@pytest.mark.slow
def test_commands_take_hours(environ, play):
    command("add", "poll", "--every", "5m", "--during", "9-17 MON-fri", "--zone", "Europe/Berlin")
    out, _ = command("list", "poll")
    assert "every 5m during 9-17 mon-fri Europe/Berlin" in out
    command("edit", "poll", "--during", "", "--zone", "UTC")
    assert play.task().during == ""
    out, _ = command("next", "4h", "--during", "9-17 mon-fri", "--zone", "Asia/Tokyo", "-n", "4")
    assert "Every 4h, during 9-17 mon-fri" in out and "09:00:00 JST" in out
    out, _ = command("next", "4h", "--during", "0-24", "--json")
    assert '"words": "Every 4h"' in out
    _, err = command("next", "0 9 * * *", "--during", "9-17", code=2)
    assert sentence("errors.during_needs_every").within(err)
    _, err = command("next", "poll", "--during", "9-17", code=2)
    assert sentence("schedules.no_schedule", text="'poll'").within(err)
