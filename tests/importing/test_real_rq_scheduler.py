"""20 entries, made by rq-scheduler's own API: each is taken or refused as listed, and what is here made by hand is the same."""

import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.importing.golden import check_refusals
from tests.importing.rq_schedule import NOON, Mailbox, poll, schedule
from ticker.importing.sources.rq_scheduler import RqScheduler

Scheduler = pytest.importorskip("rq_scheduler").Scheduler

pytestmark = pytest.mark.sources
LATER = datetime(2099, 1, 31, 6, tzinfo=UTC)


@pytest.fixture
def scheduler(redis, monkeypatch) -> Iterator[Scheduler]:
    """rq-scheduler on a host in Berlin."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield Scheduler("polling", connection=redis)
    monkeypatch.undo()
    time.tzset()


def test_twenty_entries_are_the_same_or_changed_or_ask_or_are_refused(scheduler, redis_url):
    def every(id_, interval=600, **given):
        return scheduler.schedule(LATER, given.pop("func", poll), id=id_, interval=interval, **given)

    def cron(id_, text, **given):
        scheduler.cron(text, poll, id=id_, timeout=30, **given)

    every("every-10-minutes", kwargs={"channel": 5})
    every("by-position", args=[5], description="support", meta={"team": "mail"}, at_front=True)
    every("three-more", repeat=3, queue_name="reports", result_ttl=500)
    every("each-minute-with-the-usual-timeout", 60)
    every("without-a-timeout", timeout=-1)
    every("each-15-s", 15, timeout=5)
    every("more-than-a-year", 86400 * 400)
    cron("at-six", "0 6 * * *")
    cron("with-the-zone-of-the-host", "0 6 * * 1-5", use_local_timezone=True)
    cron("Friday-the-13th", "0 6 13 * 5")
    cron("the-last-day", "0 6 L * *")
    cron("with-a-year", "*/5 * * * * *")
    cron("daily", "@daily")
    scheduler.enqueue_at(LATER, poll, 5, job_id="once")
    scheduler.enqueue_at(NOON, poll, 5, job_id="once-and-late")
    every("a-method", func=Mailbox().poll)
    every("with-a-callback", on_success=poll)
    every("depends", depends_on=every("every-10-minutes", kwargs={"channel": 5}))
    every("a-time", args=[{"since": NOON}])
    every("bytes", kwargs={"body": b"secret"})
    founds = RqScheduler(redis_url, "Europe/Berlin").read(datetime.now(UTC))
    assert len(founds) == 20
    assert Counter(str(one.verdict) for one in founds) == {"same": 11, "changed": 1, "decide": 3, "refused": 5}
    check_refusals("rq_scheduler", founds, of="entries")


def test_an_entry_made_by_hand_is_stored_as_rq_scheduler_stores_it(scheduler, redis):
    scheduler.schedule(NOON, poll, id="theirs", interval=60, timeout=20, queue_name="polling", kwargs={"channel": 5})
    schedule(redis, "ours", interval=60, kwargs={"channel": 5})
    theirs, ours = (redis.hgetall(f"rq:job:{id_}") for id_ in ("theirs", "ours"))
    assert {**theirs, b"created_at": b""} == {**ours, b"created_at": b""}


def test_after_a_give_back_rqscheduler_pushes_on(scheduler, redis, redis_url, db):
    from ticker.importing import take_over

    scheduler.schedule(NOON - timedelta(days=1), poll, id="poll-5", interval=60, timeout=20)
    source = RqScheduler(redis_url)
    take_over.take_over(source, db, "ticker", list)
    scheduler.enqueue_jobs()
    assert redis.llen("rq:queue:polling") == 0
    take_over.give_back(source, db, "ticker")
    assert redis.zscore("rq:scheduler:scheduled_jobs", "poll-5") == (NOON - timedelta(days=1)).timestamp()
    for job in scheduler.get_jobs_to_queue():
        scheduler.enqueue_job(job)
    assert redis.lrange("rq:queue:polling", 0, -1) == [b"poll-5"]
    assert redis.zscore("rq:scheduler:scheduled_jobs", "poll-5") > time.time()
