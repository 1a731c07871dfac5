"""The reader of rq cron: 20 entries, made by its own API, from its record in Redis."""

import json
import os
import pickle
import subprocess
import sys
import zlib
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis import Redis
from rq import Queue
from rq.cron import CronScheduler

import ticker
from tests.harness import command
from tests.importing.golden import check_refusals
from tests.importing.jobs import poll
from tests.importing.kills import Killed, killed_after
from tests.sentences import sentence
from ticker.errors import ConfigurationError
from ticker.importing import plan, take_over
from ticker.importing.found import Found, Where
from ticker.importing.sources import rq_cron

CONFIG = "tests.importing.cron_config"
pytestmark = pytest.mark.slow


def read(text: str = "", zone: str = "UTC") -> list[Found]:
    return rq_cron.opened(Where(text, zone)).read(datetime.now(UTC))


@pytest.fixture
def scheduler(redis: Redis, environ: dict[str, str]) -> CronScheduler:
    """rq cron, which has run one pass."""
    made = CronScheduler(redis, name="here")
    made.load_config_from_file(CONFIG)
    made.register_birth()
    made.enqueue_jobs()
    made.save()
    made.heartbeat()
    return made


@pytest.fixture
def recorded(scheduler: CronScheduler) -> dict[str, Found]:
    return {found.id: found for found in read()}


def test_the_record_has_all_entries_and_refuses_what_it_does_not_hold(recorded: dict[str, Found]) -> None:
    assert Counter(found.verdict for found in recorded.values()) == {
        "same": 12,
        "changed": 2,
        "decide": 1,
        "refused": 5,
    }
    check_refusals("rq_cron", recorded.values(), of="record")


def test_an_entry_keeps_its_function_arguments_queue_time_out_and_next_time(
    recorded: dict[str, Found], scheduler: CronScheduler
) -> None:
    found = recorded["mail-5"]
    [job] = [job for job in scheduler.get_jobs() if job.name == "mail-5"]
    assert job.next_enqueue_time and found.next_there
    assert timedelta(0) <= found.next_there - job.next_enqueue_time < timedelta(seconds=10), (
        "the job is newer than its pass"
    )
    assert found.wanted == {
        "function": "tests.importing.jobs:poll", "name": "mail-5", "queue": "mail", "every": 300, "box": 20,
        "kwargs": {"channel_id": 5}, "metadata": {"team": "mail"}, "first": found.next_there,
    }  # fmt: skip


def test_entries_with_one_name_get_names_of_their_own(recorded: dict[str, Found]) -> None:
    assert [recorded[name].wanted["args"] for name in ("fetch", "fetch-2", "fetch-3")] == [[1], [2], [3]]
    assert recorded["fetch-2"].changes == (sentence("imports.renamed", name="fetch", new="fetch-2"),)


def test_a_note_names_each_time_to_live(recorded: dict[str, Found]) -> None:
    ttls = {"result_ttl": 80, "ttl": 60, "failure_ttl": 70}
    assert recorded["weekdays"].notes == tuple(sentence("imports.ttl", name=name, seconds=ttls[name]) for name in ttls)
    assert recorded["mail-5"].notes == ()


def test_a_cron_text_keeps_its_meaning_and_its_next_time(recorded: dict[str, Found]) -> None:
    assert recorded["second last"].wanted["cron"] == "30 */5 * * * *"
    assert recorded["last day"].wanted["calendar"] == "*-*~01 06:00:00"
    assert all(found.times for found in recorded.values() if found.id in ("weekdays", "either day", "wraps"))


def test_without_its_zone_a_cron_entry_waits_for_a_decision(scheduler: CronScheduler) -> None:
    founds = {found.id: found for found in read(zone="")}
    assert [decision.field for decision in founds["weekdays"].decisions] == ["zone"]


def test_a_zone_in_which_its_next_time_is_none_of_its_times_is_asked_for_again(scheduler: CronScheduler) -> None:
    founds = {found.id: found for found in read(zone="Asia/Kathmandu")}
    wrong_zone = sentence("imports.no_time_in_zone", text="'0 6 * * 1-5'", zone="Asia/Kathmandu")
    assert wrong_zone.within(founds["weekdays"].decisions[0].question)


def test_without_its_record_rq_cron_has_to_be_started_again(scheduler: CronScheduler, redis: Redis) -> None:
    redis.delete("rq:cron_scheduler:here")
    with pytest.raises(ConfigurationError, check=sentence("imports.no_rq_cron").within):
        read()


def test_nothing_may_be_taken_over_while_rq_cron_lives(scheduler: CronScheduler, redis: Redis) -> None:
    lives = sentence("imports.rq_cron_lives", host=scheduler.hostname, pid=os.getpid())
    assert lives.begins(rq_cron.opened(Where()).alive())
    redis.zadd("rq:cron_schedulers", {"here": datetime.now(UTC).timestamp() + 5})
    assert sentence("imports.rq_cron_lives_now", pid=os.getpid()).within(rq_cron.opened(Where()).alive())
    redis.zadd("rq:cron_schedulers", {"here": datetime.now(UTC).timestamp() - 121})
    assert rq_cron.opened(Where()).alive() == ""


@pytest.fixture
def planned(scheduler: CronScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file of a plan for two of the entries."""
    monkeypatch.chdir(tmp_path)
    words = ("import", "rq-cron", "--zone", "UTC", "--only", "mail-*", "--json")
    plan = json.loads(command(*words)[0])
    assert [(entry["id"], entry["verdict"]) for entry in plan["entries"]] == [("mail-4", "same"), ("mail-5", "same")]
    return "ticker-import.json"


@pytest.mark.usefixtures("served")
def test_entries_are_taken_over_when_rq_cron_has_stopped_and_can_be_given_back(
    planned: str, scheduler: CronScheduler, redis: Redis, db: psycopg.Connection[Any]
) -> None:
    _, error = command("import", "rq-cron", "--take-over", code=78)
    assert sentence("imports.rq_cron_lives", host=scheduler.hostname, pid=os.getpid()).within(error)
    scheduler.register_death()
    _, error = command("import", "rq-cron", "--take-over", code=2)
    assert sentence("imports.old_jobs", jobs="2 jobs", wait="wait").within(error)
    [(_, enqueued)] = redis.zrange("rq:cron_job:mail-5:jobs", 0, -1, withscores=True)
    command("import", "rq-cron", "--take-over", "--old-jobs", "remove")
    assert redis.llen("rq:queue:mail") == 0
    taken = {task.name: task for task in ticker.list_tasks(db)}
    assert taken["mail-5"].next_run == datetime.fromtimestamp(enqueued, UTC) + timedelta(seconds=300)
    assert taken["mail-5"].metadata["taken_from"] == {"source": "rq-cron", "id": "mail-5"}
    command("import", "rq-cron", "--give-back")
    assert (ticker.list_tasks(db), redis.exists(rq_cron.TAKEN)) == ([], 0)


@pytest.mark.usefixtures("served")
def test_a_warning_names_what_rq_cron_runs_again(
    planned: str, scheduler: CronScheduler, redis: Redis, db: psycopg.Connection[Any]
) -> None:
    scheduler.register_death()
    command("import", "rq-cron", "--take-over", "--old-jobs", "remove")
    assert [*take_over.remains(rq_cron.opened(Where()), datetime.now(UTC))] == []
    scheduler.register_birth()
    [warning] = take_over.remains(rq_cron.opened(Where()), datetime.now(UTC))
    assert "(mail-4, mail-5)" in warning


@pytest.mark.parametrize(("step", "here"), [("insert", 0), ("park", 0), ("commit", 2), ("note", 2)])
def test_a_take_over_that_is_killed_at_any_step_is_completed_and_goes_back(
    scheduler: CronScheduler, redis: Redis, db: psycopg.Connection[Any], step: str, here: int
) -> None:
    scheduler.register_death()
    started = datetime.now(UTC)
    has_run(redis, "mail-4", started)
    has_run(redis, "mail-5", started)
    assert killed_take_over(db, step) == here
    assert len(source().taken()) == here
    scheduler.heartbeat()
    assert len(source().again(datetime.now(UTC))) == here, "started again, rq cron schedules what became tasks"
    scheduler.register_death()
    moved = take_over.take_over(source(), db, "ticker", mails)
    assert (sorted(moved.moved), moved.left) == (["mail-4", "mail-5"], {})
    assert {task.next_run for task in ticker.list_tasks(db)} == {started + timedelta(seconds=300)}
    assert goes_back(redis, db) == ["mail-4", "mail-5"]


@pytest.mark.parametrize(("step", "here"), [("insert", 0), ("park", 0), ("commit", 2), ("note", 2)])
def test_a_take_over_that_is_killed_at_any_step_goes_back_after_the_record_has_expired(
    scheduler: CronScheduler, redis: Redis, db: psycopg.Connection[Any], step: str, here: int
) -> None:
    scheduler.register_death()
    killed_take_over(db, step)
    redis.delete("rq:cron_scheduler:here")
    assert len(goes_back(redis, db)) == here


@pytest.mark.parametrize("step", ["unpark_at", "give_back"])
def test_a_give_back_that_is_killed_at_any_step_is_completed(
    scheduler: CronScheduler, redis: Redis, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    scheduler.register_death()
    take_over.take_over(source(), db, "ticker", mails, old_jobs="remove")
    dying = source()
    monkeypatch.setattr(dying, step, killed)
    with pytest.raises(Killed):
        take_over.give_back(dying, db, "ticker")
    assert len(source().taken()) == len(ticker.list_tasks(db))
    goes_back(redis, db)


def source() -> rq_cron.RqCron:
    return rq_cron.opened(Where(zone="UTC"))


def killed(*_: Any) -> None:
    raise Killed


def killed_take_over(db: psycopg.Connection[Any], step: str) -> int:
    """Returns how many tasks a take-over leaves that is killed after this step."""
    with pytest.raises(Killed):
        take_over.take_over(killed_after(step, source()), db, "ticker", mails, old_jobs="remove")
    return len(ticker.list_tasks(db))


def goes_back(redis: Redis, db: psycopg.Connection[Any]) -> list[str]:
    """Gives all entries back, and returns them. Nothing is left of them."""
    back = take_over.give_back(source(), db, "ticker")
    assert (back.left, ticker.list_tasks(db), source().taken()) == ({}, [], [])
    assert db.execute("SELECT taken_from FROM ticker.installation").fetchone() == ([],)
    return sorted(back.moved)


def mails(founds: list[Found]) -> list[Found]:
    return [one for one in founds if one.id in ("mail-4", "mail-5")]


def has_run(redis: Redis, name: str, started: datetime, seconds: int = 0) -> None:
    """A worker has run the last job of the entry."""
    [job] = redis.zrange(f"rq:cron_job:{name}:jobs", 0, -1)
    times = {"started_at": started.isoformat(), "ended_at": (started + timedelta(seconds=seconds)).isoformat()}
    redis.hset(f"rq:job:{job.decode()}", mapping={"status": "finished", **times})


def test_a_wait_for_old_jobs_outlives_the_record(
    scheduler: CronScheduler, redis: Redis, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(take_over, "LOOK_EVERY", 0.0)
    scheduler.register_death()
    started, names = datetime.now(UTC), ["mail-4", "mail-5"]

    def expires(_: str) -> None:
        redis.delete("rq:cron_scheduler:here")
        has_run(redis, names.pop(), started)

    source = rq_cron.opened(Where(zone="UTC"))
    moved = take_over.take_over(source, db, "ticker", mails, old_jobs="wait", tell=expires)
    assert sorted(moved.moved) == ["mail-4", "mail-5"]
    assert {task.next_run for task in ticker.list_tasks(db)} == {started + timedelta(seconds=300)}


@pytest.mark.parametrize("step", ["waiting", "read"])
def test_rq_cron_that_is_started_again_during_a_wait_is_named(
    scheduler: CronScheduler, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    scheduler.register_death()
    source = rq_cron.opened(Where(zone="UTC"))
    done, calls = getattr(source, step), []

    def starts_again(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == 2:
            scheduler.register_birth()
        return done(*given)

    monkeypatch.setattr(source, step, starts_again)
    lives = sentence("imports.rq_cron_lives", host=scheduler.hostname, pid=os.getpid())
    with pytest.raises(ConfigurationError, check=lives.within):
        take_over.take_over(source, db, "ticker", mails, old_jobs="remove")
    assert ticker.list_tasks(db) == []


@pytest.mark.parametrize(("enqueued", "makes_up"), [(None, True), (-86400, True), (1, False)])
def test_a_cron_time_between_the_stop_and_the_take_over_is_made_up(
    scheduler: CronScheduler, redis: Redis, db: psycopg.Connection[Any], enqueued: float | None, *, makes_up: bool
) -> None:
    [daily] = [job for job in scheduler.get_jobs() if job.name == "wraps"]
    daily.next_enqueue_time = passed = datetime.now(UTC).replace(
        hour=22, minute=0, second=0, microsecond=0
    ) - timedelta(days=1)
    scheduler.save()
    scheduler.register_death()
    if enqueued is not None:
        redis.zadd("rq:cron_job:wraps:jobs", {"job": passed.timestamp() + enqueued})
        redis.hset("rq:job:job", "started_at", (passed + timedelta(seconds=90)).isoformat())
    take_over.take_over(
        rq_cron.opened(Where(zone="UTC")), db, "ticker", lambda founds: [one for one in founds if one.id == "wraps"]
    )
    [task] = ticker.list_tasks(db)
    assert (task.next_run == passed) is makes_up
    assert makes_up or (task.next_run and task.next_run > datetime.now(UTC))


def test_the_plan_says_how_long_a_wait_takes_by_the_last_runs(scheduler: CronScheduler, redis: Redis) -> None:
    source = rq_cron.opened(Where(zone="UTC"))
    source.read(datetime.now(UTC))
    redis.sadd("rq:workers:mail", "w")
    assert sentence("imports.wait_of_unknown_length", workers="1 worker").within(source.waiting(["mail-5"]).outlook())
    has_run(redis, "mail-5", datetime.now(UTC), seconds=7)
    [mail] = [job for job in scheduler.get_jobs() if job.name == "mail-5"]
    mail.enqueue(redis)
    mail.enqueue(redis)
    assert sentence("imports.wait", lasts="14s", workers="1 worker").within(source.waiting(["mail-5"]).outlook())


def test_jobs_of_entries_that_wait_and_run_are_counted(scheduler: CronScheduler, redis: Redis) -> None:
    source = rq_cron.opened(Where(zone="UTC"))
    source.read(datetime.now(UTC))
    [job] = redis.zrange("rq:cron_job:mail-4:jobs", 0, -1)
    redis.hset(f"rq:job:{job.decode()}", "status", "started")
    waiting = source.waiting(["mail-4", "mail-5"])
    assert (waiting.waiting, waiting.running) == ({"mail-5": 1}, {"mail-4": 1})


def test_jobs_that_the_history_no_longer_has_wait_and_are_removed_too(scheduler: CronScheduler, redis: Redis) -> None:
    [mail] = [job for job in scheduler.get_jobs() if job.name == "mail-5"]
    for _ in range(1001):
        mail.enqueue(redis)
    other = Queue("mail", connection=redis).enqueue(poll, channel_id=6)
    assert redis.zcard("rq:cron_job:mail-5:jobs") == 1000
    source = rq_cron.opened(Where(zone="UTC"))
    source.read(datetime.now(UTC))
    assert source.waiting(["mail-5"]).waiting == {"mail-5": 1002}
    source.remove_waiting(["mail-5"])
    assert redis.lrange("rq:queue:mail", 0, -1) == [other.id.encode()]


class Attack:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_reading_a_record_imports_no_function_and_runs_no_pickle(
    scheduler: CronScheduler, redis: Redis, tmp_path: Path
) -> None:
    attack = zlib.compress(pickle.dumps(("poll", None, (Attack(tmp_path / "attacked"),), {})))
    for key in redis.scan_iter("rq:job:*"):
        redis.hset(key, "data", attack)
    code = """
import sys
from datetime import UTC, datetime
from ticker.importing.found import Where
from ticker.importing.sources import rq_cron
source = rq_cron.opened(Where(zone="UTC"))
founds = source.read(datetime.now(UTC))
sampler = source.sampler(founds)
sampler._since = dict.fromkeys(sampler._named, 0)
print(len(founds), sum(len(one.times) for one in sampler.look().values()))
assert "tests" not in sys.modules
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["20", "14"], "the sampler has read the jobs of the intervals"
    assert not (tmp_path / "attacked").exists()


def test_the_plan_of_the_entries_has_these_verdicts(scheduler: CronScheduler) -> None:
    made = plan.make(plan.Options("rq-cron", Where(zone="UTC")), datetime.now(UTC))
    assert made.counts == {"same": 9, "changed": 1, "decide": 5, "refused": 5}
    decide = [entry.found.id for entry in made.entries if entry.verdict == "decide"]
    inner = "tests.importing.cron_config.inner"  # the record does not tell that no worker offers it
    assert decide == ["fetch", "fetch-2", "fetch-3", "endless", inner], "their boxes do not fit, or have no limit"
