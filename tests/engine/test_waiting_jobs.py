"""While no worker comes, two jobs of each task wait. What is due meanwhile is counted by one event of the task."""

import pytest
from freezegun import freeze_time
from rq import Queue, SimpleWorker

import ticker
from tests.factories import MINUTE, NINE
from tests.sentences import sentence
from ticker import clock
from ticker.engine.jobs import micros
from ticker.engine.tick import TickOptions, tick
from ticker.errors import ConfigurationError
from ticker.settings import from_environment


@pytest.fixture
def outage(environ, monkeypatch, db, store, queue, redis):
    """A task of every minute, whose time is ours."""
    monkeypatch.setenv("TICKER_HARD_LIMIT", "off")
    with freeze_time(NINE) as frozen, clock.use():
        yield Outage(frozen, db, store, queue, redis)


class Outage:
    def __init__(self, frozen, db, store, queue, redis):
        self.frozen, self.db, self.store, self.queue, self.redis = frozen, db, store, queue, redis
        self.task = ticker.register(db, "poll", every="1m")
        db.execute("UPDATE ticker.tasks SET created_at = %s", [NINE])

    def ticks(self, count, **options):
        """A tick every minute."""
        for _ in range(count):
            due = tick(self.store, self.queue, clock.now(), TickOptions(**options)).due
            self.frozen.tick(MINUTE)
        return due

    def work(self):
        SimpleWorker(["polling"], connection=self.redis).work(burst=True, logging_level="ERROR")

    def jobs(self):
        return Queue("polling", connection=self.redis).job_ids

    def enough_jobs(self):
        entries = ticker.journal(self.db, task=self.task.id)
        return [(e.event.count, e.event.at, e.event.until) for e in entries if e.what == "enough_jobs"]


def test_two_jobs_of_a_task_wait_and_one_event_counts_what_was_not_pushed(outage):
    due = outage.ticks(5)
    assert (len(outage.jobs()), due.enqueued, due.enough_jobs) == (2, 0, 1)
    assert outage.enough_jobs() == [(3, NINE + 2 * MINUTE, NINE + 4 * MINUTE)]
    assert ticker.get(outage.db, outage.task.id).next_run == NINE + 5 * MINUTE
    assert [run.id for run in ticker.list_runs(outage.db)] == []


def test_why_says_what_was_not_pushed_then_and_in_the_last_lines(outage):
    outage.ticks(5)
    told = ticker.why(outage.db, outage.task.id, at=NINE + 3 * MINUTE)
    enough_jobs = sentence("why.enough_jobs", count=3, first="09:02:00", last="09:04:00", most=2)
    assert f"then: enough_jobs: {enough_jobs}" in told.then
    [line] = [line for line in ticker.why(outage.db, outage.task.id).lines if line.what == "enough_jobs"]
    assert line.words == enough_jobs


def test_the_task_stays_late_meanwhile(outage):
    outage.ticks(5)
    assert [task.id for task in ticker.list_tasks(outage.db, state="late")] == [outage.task.id]


def test_after_the_outage_a_later_one_has_an_event_of_its_own(outage, function):
    function("poll")(lambda: None)
    outage.ticks(4)
    outage.work()
    outage.ticks(3)
    assert [count for count, *_ in outage.enough_jobs()] == [2, 1]
    assert [run.outcome for run in ticker.list_runs(outage.db)] == [
        "dropped",
        "succeeded",
    ]  # the newer of the two is too early


def test_expired_jobs_leave_redis_and_fresh_ones_take_their_place(outage):
    other = ticker.register(outage.db, "poll", name="daily", every="1d")
    outage.ticks(30)
    ids = outage.jobs()
    assert len(ids) == len(set(ids)) == 3  # two, and one of the daily task
    assert {int(id_.rpartition("-")[0].rpartition("t")[2]) for id_ in ids} == {outage.task.id, other.id}
    assert len(outage.redis.keys("rq:job:*")) == 3


@pytest.mark.parametrize("most", [2, 10])
def test_one_event_counts_what_a_task_that_skips_overlaps_does_not_push(most, outage):
    ticker.edit(outage.db, outage.task, overlap="skip")
    due = outage.ticks(5, waiting_jobs=most)
    assert (len(outage.jobs()), due.missed, due.enough_jobs) == (1, 0, 1)
    assert outage.enough_jobs() == [(4, NINE + MINUTE, NINE + 4 * MINUTE)]
    assert (ticker.list_runs(outage.db), ticker.get(outage.db, outage.task.id).dropped) == ([], 0)
    [line] = [line for line in ticker.why(outage.db, outage.task.id).lines if line.what == "enough_jobs"]
    assert line.words == sentence("why.unpushed_overlap", count=4, first="09:01:00", last="09:04:00")


def test_a_setting_allows_more(outage):
    outage.ticks(5, waiting_jobs=4)
    assert (len(outage.jobs()), [count for count, *_ in outage.enough_jobs()]) == (4, [1])
    assert from_environment({"TICKER_WAITING_JOBS": "4"}).waiting_jobs == 4
    with pytest.raises(ConfigurationError, match="TICKER_WAITING_JOBS"):
        from_environment({"TICKER_WAITING_JOBS": "0"})


def test_a_single_time_is_always_pushed(outage):
    once = ticker.register(outage.db, "poll", name="once", at=NINE + MINUTE)
    outage.db.execute(
        "UPDATE ticker.tasks SET waiting = ARRAY[%s, %s]::timestamptz[] WHERE id = %s",
        [NINE - 2 * MINUTE, NINE - MINUTE, once.id],
    )
    outage.frozen.tick(MINUTE)
    outage.ticks(1)
    assert [id_ for id_ in outage.jobs() if id_.endswith(f"t{once.id}-{micros(NINE + MINUTE)}")] != []
