"""What people and autoscalers are told of the workers that a queue needs."""

import json
import re
from datetime import timedelta

import pytest

import ticker
from tests.factories import a_need, ticked
from tests.harness import command
from tests.sentences import sentence
from ticker.read import health, workers

DEMAND = {"mail.fetch": {"starts_per_minute": 200, "concurrency": 1, "mean_ms": 1500, "p95_ms": 30_000}}
UNKNOWN = {"mail.new": {"starts_per_minute": 1, "concurrency": 1, "mean_ms": None, "p95_ms": None}}


def say(db):
    return [need.sentence for need in workers.needs(db)]


def warned(db):
    return [need.queue for need in workers.needs(db) if need.has_too_few]


def test_a_need_is_said_in_one_sentence(environ, db):
    a_need(db, "polling", 5.2, 9)
    a_need(db, "reports", 0.3, 1)
    a_need(db, "other", 0.1, 1)
    ticked(db, crews=[[["polling"], 4, 3], [["reports"], 1, 0]])
    assert say(db) == [
        sentence("workers.need", queue="other", average="0.1", most=1, listen="none listens"),
        sentence("workers.need", queue="polling", average="5.2", most=9, listen="4 listen"),
        sentence("workers.need", queue="reports", average="0.3", most=1, listen="1 listens"),
    ]
    assert warned(db) == ["other", "polling"]
    a_need(db, "seldom", 0.04, 1)
    assert sentence("workers.need_of_a_part", queue="seldom", least="0.1", most=1).begins(say(db)[-1])


def test_the_peak_is_the_largest_need_of_the_last_day(environ, db):
    a_need(db, "polling", 5.2, 9)
    for hours, needed in ((1, 7), (23, 12), (25, 30)):
        db.execute("INSERT INTO ticker.minutes (at, queue, needed) VALUES (clock_timestamp() - %s, 'polling', %s)",
                   [timedelta(hours=hours), needed])  # fmt: skip
    [need] = workers.needs(db)
    assert (need.peak, need.enough) == (12, 9)
    assert say(db) == [sentence("workers.need_alone", queue="polling", average="5.2", most=12)]


def test_workers_of_several_queues_are_shared_by_the_needs(environ, db):
    """Six workers for five and one: enough for both. With five, each queue is short of its share."""
    a_need(db, "polling", 4.5, 5)
    a_need(db, "reports", 0.5, 1)
    ticked(db, crews=[[["polling", "reports"], 6, 0]])
    assert [(need.listening, round(need.available, 2)) for need in workers.needs(db)] == [(6, 5.0), (6, 1.0)]
    assert warned(db) == []
    assert sentence("workers.shared", listening=6, share="5.0").within(say(db)[0])
    db.execute('UPDATE ticker.tickers SET last_report = \'{"crews": [[["polling", "reports"], 5, 0]]}\'')
    assert warned(db) == ["polling", "reports"]


def test_before_a_ticker_has_counted_workers_none_are_said(environ, db):
    a_need(db)
    ticked(db)
    assert say(db) == [sentence("workers.need_alone", queue="polling", average="1.5", most=2)]
    assert warned(db) == []


def test_a_queue_that_no_task_uses_any_more_needs_no_worker(environ, db, settings):
    task = ticker.register(db, "mail.fetch", every="1m")
    a_need(db)
    ticked(db, crews=[])
    assert len(health.look(settings).warnings) == 1
    ticker.unregister(db, task)
    assert health.look(settings).warnings == ()


def test_an_old_need_warns_of_nothing_and_is_no_number(environ, db):
    a_need(db, "polling", 5.2, 9)
    ticked(db, crews=[[["polling"], 4, 3]])
    db.execute(
        "UPDATE ticker.minutes SET demand = demand || jsonb_build_object('at', clock_timestamp() - interval '3 hours')"
    )
    assert warned(db) == []
    out, err = command("workers", "--queue", "polling", code=1)
    assert out == "" and sentence(
        "workers.old", queue="polling", age=re.compile("3 h( [0-9]+ min)?"), remedy="ticker run"
    ).within(err)


def test_a_number_is_printed_alone(environ, db):
    a_need(db, "polling", 5.2, 9)
    assert command("workers", "--queue", "polling") == ("9\n", "")


def test_no_number_is_printed_if_it_is_unknown(environ, db):
    a_need(db, "polling", 0.0, None, json.dumps(UNKNOWN))
    out, err = command("workers", "--queue", "polling", code=1)
    assert out == "" and sentence(
        "workers.unknown", queue="polling", function="mail.new", ago=re.compile("[0-9]+ s")
    ).within(err)
    out, err = command("workers", "--queue", "nobodys", code=1)
    assert out == "" and sentence("workers.unmeasured", queue="nobodys").within(err)


def test_one_worker_is_enough_to_measure_durations_that_are_unknown(environ, db):
    """Without it, no run would ever end, and an autoscaler would stay at none."""
    a_need(db, "polling", 0.0, None, json.dumps(UNKNOWN))
    ticked(db, crews=[])
    assert command("workers", "--queue", "polling") == ("1\n", "")
    ticked(db, crews=[[["polling"], 1, 0]])
    command("workers", "--queue", "polling", code=1)


def test_a_function_with_unknown_durations_is_named(environ, db):
    a_need(db, "polling", 1.0, None, json.dumps(DEMAND | UNKNOWN))
    out, err = command("workers")
    assert sentence("workers.more_needed", queue="polling", average="1.0").begins(out)
    assert "mail.new" in err and "unknown" in out.splitlines()[-1]


def test_as_json_there_is_all_of_it(environ, db):
    a_need(db, "polling", 5.2, 9, json.dumps(DEMAND))
    ticked(db, crews=[[["polling"], 4, 3]])
    [need] = json.loads(command("workers", "--json")[0])
    assert need["functions"] == [{"name": "mail.fetch", **DEMAND["mail.fetch"]}]
    assert {name: need[name] for name in ("queue", "average", "enough", "peak", "listening", "busy", "available")} == {
        "queue": "polling", "average": 5.2, "enough": 9, "peak": 9, "listening": 4, "busy": 3, "available": 4.0,
    }  # fmt: skip


def test_without_any_need_the_command_says_who_measures(environ, db):
    assert sentence("workers.none") == command("workers")[0].rstrip()
    assert command("workers", "--json")[0] == "[]\n"


@pytest.fixture
def short(environ, db):
    """One ticker that ticks, and too few workers."""
    ticker.register(db, "poll", every="1h")
    a_need(db, "polling", 5.2, 9)
    ticked(db, crews=[[["polling"], 4, 3]])
    return sentence(
        "workers.need_and_missing",
        queue="polling",
        average="5.2",
        most=9,
        listen="4 listen",
        more=5,
        remedy="ticker worker --tasks ... polling",
    )


def test_too_few_workers_are_a_warning_and_no_problem(short, settings):
    found = health.look(settings)
    assert (found.warnings, found.problems, found.ok) == ((short,), (), True)
    assert health.data(found)["warnings"] == [short]
    out, err = command("health")
    assert short == err.removeprefix("warning: ").rstrip() and "warning" not in out


def test_the_warning_is_on_the_screen(short):
    assert short.within(command("top", "--once")[0])


def test_a_queue_without_any_worker_is_a_problem_once_jobs_wait_and_no_warning_then(short, settings, db, redis):
    db.execute("UPDATE ticker.tasks SET waiting = ARRAY[next_run]")
    redis.sadd("rq:queues", "rq:queue:polling")
    redis.rpush("rq:queue:polling", "x")
    found = health.look(settings)
    assert found.warnings == () and len(found.problems) == 1
    db.execute("INSERT INTO ticker.functions (name, queues, announced_at) VALUES ('poll', '{pollling}', now())")
    [problem] = health.look(settings).problems
    assert sentence(
        "health.unattended", jobs="1 job waits", queue="polling", remedy="ticker worker --tasks ... polling"
    ).begins(problem)
    mistyped = sentence("warnings.unannounced_queue", queue="'polling'", near="'pollling'", known="pollling")
    assert mistyped.ends(problem)
