"""Entries of rq-scheduler are read as they are stored, and become tasks or are refused by name."""

import os
import pickle
import zlib
from datetime import UTC, datetime, timedelta

import pytest
from rq.serializers import JSONSerializer

from tests.importing.rq_schedule import NOON, Mailbox, poll, schedule
from tests.sentences import sentence
from ticker.importing.found import Verdict
from ticker.importing.sources.rq_scheduler import RqScheduler

FUNCTION = f"{poll.__module__}:poll"


@pytest.fixture
def read(redis, redis_url):
    """Returns the only entry, as the reader finds it an hour before noon."""

    def read(zone="", now=NOON - timedelta(hours=1)):
        [found] = RqScheduler(redis_url, zone).read(now)
        return found

    return read


def test_an_interval_becomes_a_task_whose_first_time_is_the_next_one_there(redis, read):
    schedule(redis, "poll-5", kwargs={"channel": 5}, interval=60, repeat=3, description="the mailbox of support")
    found = read()
    assert found.verdict is Verdict.SAME
    assert found.wanted == {
        "name": "poll-5", "function": FUNCTION, "kwargs": {"channel": 5}, "queue": "polling", "every": 60, "first": NOON,
        "max_runs": 3, "box": 20, "description": "the mailbox of support",
    }  # fmt: skip


def test_the_first_time_is_not_before_the_last_run_there_plus_the_interval(redis, read):
    job = schedule(redis, "poll-5", interval=60)
    redis.hset(job.key, "started_at", (NOON - timedelta(seconds=2)).isoformat())
    found = read()
    assert found.wanted["first"] == NOON + timedelta(seconds=58)
    assert found.stored["last"] == NOON - timedelta(seconds=2)


def test_a_single_time_that_has_passed_is_due_at_once_as_it_is_there(redis, read):
    schedule(redis, "once")
    assert read().wanted["at"] == NOON
    late = read(now=NOON + timedelta(hours=1))
    assert late.verdict is Verdict.CHANGED
    assert NOON + timedelta(hours=1) < late.wanted["at"] < NOON + timedelta(hours=1, minutes=1)


@pytest.mark.parametrize(
    ("timeout", "interval", "box"), [(20, 60, 20), (54, 60, 54), (55, 60, None), (-1, 86400, None), (180, 600, 180)]
)
def test_the_timeout_becomes_the_box_if_it_fits_and_else_a_decision(redis, read, timeout, interval, box):
    schedule(redis, "poll-5", timeout=timeout, interval=interval)
    found = read()
    assert found.wanted.get("box") == box
    assert [one.field for one in found.decisions] == ["box"] * (box is None)


def test_a_decision_about_the_box_says_how_long_the_last_run_took(redis, read):
    job = schedule(redis, "poll-5", timeout=180, interval=60)
    redis.hset(
        job.key, mapping={"started_at": "2026-11-22T11:00:00.000000Z", "ended_at": "2026-11-22T11:00:40.500000Z"}
    )
    [decision] = read().decisions
    assert sentence("imports.took_less", took="41 s").within(decision.question)


def test_a_note_names_each_time_to_live(redis, read):
    schedule(redis, "poll-5", interval=60, result_ttl=80, ttl=60, failure_ttl=70)
    said = [
        sentence("imports.ttl", name=name, seconds=n)
        for name, n in (("result_ttl", 80), ("ttl", 60), ("failure_ttl", 70))
    ]
    assert [*read().notes] == said


def test_positional_arguments_and_those_of_another_serializer_are_read(redis, read):
    schedule(redis, "poll-5", args=(5, ["a", ("b", None)]), interval=60, serializer=JSONSerializer)
    assert read().wanted["args"] == [5, ["a", ["b", None]]]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"func": Mailbox().poll}, sentence("imports.method", type="tests.importing.rq_schedule.Mailbox")),
        ({"func": (lambda: None)}, sentence("imports.nested")),
        ({"args": ({"ids": [1, NOON]},)}, "args[0].ids[1] is of type datetime.datetime"),
        ({"kwargs": {"body": b"secret"}}, "kwargs.body is of type bytes"),
        ({"kwargs": {"by": {5: "secret"}}}, sentence("imports.key", place="kwargs.by")),
        ({"on_success": poll}, "one for success"),
        ({"meta": {"queue_class_name": "myapp.Queue"}}, "queue_class"),
        ({"cron_string": "0 6 * *"}, "4 fields"),
    ],
)
def test_what_a_task_cannot_do_is_refused_with_its_place_and_not_its_value(redis, read, fields, problem):
    schedule(redis, "poll-5", **{"interval": 60} | fields if "cron_string" not in fields else fields)
    found = read()
    assert found.verdict is Verdict.REFUSED
    said = "; ".join(found.refusals)
    assert problem in said if isinstance(problem, str) else problem.within(said)
    assert "secret" not in repr(found)


def test_a_job_that_depends_on_another_is_refused(redis, read):
    first = schedule(redis, "first", interval=60)
    redis.zrem("rq:scheduler:scheduled_jobs", "first")
    schedule(redis, "second", interval=60, depends_on=first)
    assert "depends_on" in read().refusals[0]


def test_an_unreadable_meta_refuses_its_entry_only(redis, redis_url):
    job = schedule(redis, "broken", interval=60)
    redis.hset(job.key, "meta", b"\x80no pickle")
    schedule(redis, "poll-5", interval=60)
    schedule(redis, "gone", interval=60).delete()
    redis.zadd("rq:scheduler:scheduled_jobs", {"gone": 1})
    found = {one.id: one.verdict for one in RqScheduler(redis_url).read(NOON)}
    assert found == {"broken": Verdict.REFUSED, "gone": Verdict.REFUSED, "poll-5": Verdict.SAME}


def test_nothing_that_a_pickle_names_is_called(redis, read, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/made",)

    job = schedule(redis, "evil", interval=60)
    redis.hset(job.key, "data", zlib.compress(pickle.dumps(("os.path.join", None, (Evil(),), {}))))
    redis.hset(job.key, "meta", pickle.dumps({"interval": 60, "own": Evil()}))
    found = read()
    assert "args[0] is of type posix.system" in found.refusals[0]
    assert "meta.own is of type posix.system" in found.changes[0]
    assert list(tmp_path.iterdir()) == []


def test_a_cron_text_asks_for_the_zone_of_the_host_and_says_whether_utc_fits(redis, read):
    schedule(redis, "daily", datetime(2026, 7, 1, 4, tzinfo=UTC), cron_string="0 6 * * *")
    [decision] = read().decisions
    assert (decision.field, decision.question.endswith("does not fit UTC")) == ("zone", True)
    berlin = read("Europe/Berlin")
    assert (berlin.verdict, berlin.wanted["zone"], berlin.wanted["cron"]) == (
        Verdict.SAME,
        "Europe/Berlin",
        "0 6 * * *",
    )
    assert "check --zone" in read("Europe/London").changes[0]


def test_a_cron_text_for_each_hour_needs_no_zone(redis, read):
    schedule(redis, "hourly", cron_string="0 * * * *")
    assert (read().verdict, read().wanted["zone"]) == (Verdict.SAME, "UTC")


@pytest.mark.parametrize(("interval", "fields"), [(15, ["every"]), (60, []), (90, ["every"]), (120, [])])
def test_an_interval_that_the_scheduler_would_round_up_asks_which_one_is_in_force(redis, read, interval, fields):
    schedule(redis, "poll-5", interval=interval, timeout=5)
    assert [one.field for one in read().decisions] == fields
