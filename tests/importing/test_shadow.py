"""A shadow sees what MONITOR sees, pushes nothing, and needs no right to write to Redis."""

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis import Redis
from rq.cron import CronScheduler

from tests.harness import command
from tests.importing.rq_schedule import schedule
from tests.importing.witness import monitored
from tests.running import ROOT, until
from tests.sentences import sentence
from ticker.embedded import Postgres, Valkey
from ticker.errors import BadInput, ConfigurationError
from ticker.importing import shadow
from ticker.importing.found import Where
from ticker.importing.shadow import Compared
from ticker.importing.sources import crontab, rq_cron
from ticker.importing.sources.rq_scheduler import RqScheduler
from ticker.importing.sources.samplers import Seen

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
pytestmark = pytest.mark.slow


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts from the first second, and ticks twice a second."""
    monkeypatch.setattr(shadow, "WARM_UP", 0.0)
    monkeypatch.setenv("TICKER_TICK", "0.5s")


@pytest.fixture
def reader(own_servers: tuple[Postgres, Valkey], quick: None) -> str:
    """The URL of a Redis user who may only read."""
    with Redis.from_url(own_servers[1].url) as redis:
        redis.acl_setuser("reader", enabled=True, passwords=["+not-a-secret"], categories=["+@read"], keys=["*"])
    return own_servers[1].url.replace("://", "://reader:not-a-secret@")


def watched(source: Any, founds: list[Any], seconds: int, run: Callable[[], None]) -> dict[str, Compared]:
    """Compares for these seconds. `run` is called after the first look, and ends before the last one."""
    looked, sampler = threading.Event(), source.sampler(founds)
    look = sampler.look
    sampler.look = lambda: (look(), looked.set())[0]
    source.sampler = lambda _: sampler
    with ThreadPoolExecutor(1) as pool:
        comparing = pool.submit(shadow.shadow, source, founds, seconds * 1000, lambda _: None)
        until(lambda: looked.is_set() or comparing.done(), "the first look")
        run()
        return {one.id: one for one in comparing.result()}


def test_rq_cron_is_seen_as_monitor_sees_it(own_servers: tuple[Postgres, Valkey], reader: str) -> None:
    url = own_servers[1].url
    recorded = CronScheduler(Redis.from_url(url), name="before")
    recorded.load_config_from_file(SHORT)
    recorded.save()
    source = rq_cron.opened(Where(reader))
    founds = source.read(datetime.now(UTC))
    before = Redis.from_url(url).dbsize()
    with monitored(url) as commands:

        def pushes() -> Counter[str]:
            names = [words.split()[1] for _, words in commands if words.startswith("ZADD rq:cron_job:")]
            return Counter(name.split(":")[2] for name in names)

        def run() -> None:
            with subprocess.Popen([sys.executable, "-m", "rq.cli", "cron", SHORT, "--url", url], cwd=ROOT) as scheduler:
                until(lambda: pushes()["two"] >= 5, "five jobs of an entry")
                scheduler.terminate()

        seen = watched(source, founds, 25, run)
    assert before == 1
    told_apart = seen["twin"].there + seen["twin-2"].there
    assert {"two": seen["two"].there, "three": seen["three"].there, "twin": told_apart} == pushes()
    assert abs(seen["twin"].there - 2 * seen["twin-2"].there) <= 2, "one runs every 2 s, the other every 4 s"
    assert seen["two"].every_there == pytest.approx(2, abs=0.5)


SHORT = "tests.importing.short_cron_config"


@pytest.mark.sources
def test_rq_scheduler_is_seen_as_monitor_sees_it(own_servers: tuple[Postgres, Valkey], reader: str) -> None:
    url = own_servers[1].url
    with Redis.from_url(url) as redis:
        for every in (2, 3, 5):
            schedule(redis, f"every-{every}", datetime.now(UTC) + timedelta(seconds=every), interval=every, timeout=1)
        schedule(redis, "twice", datetime.now(UTC) + timedelta(seconds=2), interval=2, repeat=2, timeout=1)
    source = RqScheduler(reader)
    founds = source.read(datetime.now(UTC))
    with monitored(url) as commands:

        def pushes() -> Counter[str]:
            return Counter(words.split()[2] for _, words in commands if words.startswith("RPUSH rq:queue:polling "))

        def run() -> None:
            command = [sys.executable, "-m", "rq_scheduler.scripts.rqscheduler", "-i", "1", "--url", url]
            with subprocess.Popen(command, cwd=ROOT) as scheduler:
                until(lambda: pushes()["every-2"] >= 6, "six jobs of an entry")
                scheduler.terminate()

        seen = watched(source, founds, 30, run)
    assert {id_: one.there for id_, one in seen.items()} == pushes()
    assert seen["twice"].here == pushes()["twice"], "a push counts as a start"


@pytest.mark.long
@pytest.mark.sources
@pytest.mark.timeout(900)
def test_twenty_entries_of_rq_scheduler_are_seen_as_monitor_sees_them_for_minutes(
    own_servers: tuple[Postgres, Valkey], reader: str
) -> None:
    url, seconds = own_servers[1].url, int(os.environ.get("TICKER_TEST_SHADOW", "600"))
    with Redis.from_url(url) as redis:
        for every in range(5, 45, 2):
            schedule(redis, f"every-{every}", datetime.now(UTC) + timedelta(seconds=every), interval=every, timeout=1)
    source = RqScheduler(reader)
    founds = [replace(one, decisions=()) for one in source.read(datetime.now(UTC))]
    with monitored(url) as commands:

        def pushes() -> Counter[str]:
            return Counter(words.split()[2] for _, words in commands if words.startswith("RPUSH rq:queue:polling "))

        def run() -> None:
            command = [sys.executable, "-m", "rq_scheduler.scripts.rqscheduler", "-i", "5", "--url", url]
            with subprocess.Popen(command, cwd=ROOT) as scheduler:
                until(lambda: pushes()["every-43"] >= seconds // 50, "the slowest entry", patience=seconds)
                scheduler.terminate()

        seen = watched(source, founds, seconds + 30, run)
    assert {id_: one.there for id_, one in seen.items()} == pushes()


def test_a_shadow_leaves_nothing_behind_and_touches_none_of_our_tables(
    environ: dict[str, str], quick: None, db: psycopg.Connection[Any], redis: Redis
) -> None:
    schedule(redis, "poll", datetime.now(UTC), interval=1, timeout=20)
    schedule(redis, "twice", datetime.now(UTC), interval=1, repeat=2, timeout=20)
    source = RqScheduler(environ["REDIS_URL"])
    founds = source.read(datetime.now(UTC))
    keys = redis.keys()
    seen, twice = shadow.shadow(source, founds, 5000, lambda _: None)
    assert twice.here == 2, "a push counts as a start"
    assert (seen.there, seen.here > 1, seen.verdict) == (0, True, "differs")
    assert redis.keys() == keys
    assert db.execute("SELECT count(*) FROM ticker.tasks").fetchone() == (0,)
    assert db.execute("SELECT to_regnamespace('ticker_shadow')").fetchone() == (None,)


def test_what_a_killed_shadow_has_left_is_dropped_and_what_others_made_is_not(
    environ: dict[str, str], db: psycopg.Connection[Any]
) -> None:
    db.execute(f"CREATE SCHEMA ticker_shadow; COMMENT ON SCHEMA ticker_shadow IS '{shadow.MADE_BY}'")
    with shadow.own_tables(), pytest.raises(ConfigurationError, match="another shadow uses"), shadow.own_tables():
        pass
    db.execute("CREATE SCHEMA ticker_shadow")
    foreign = sentence("imports.foreign_schema", schema="ticker_shadow")
    with pytest.raises(ConfigurationError, check=foreign.within), shadow.own_tables():
        pass


def times(*seconds: float) -> list[datetime]:
    return [NOW + timedelta(seconds=one) for one in seconds]


@pytest.mark.parametrize(
    ("there", "here", "longest", "why"),
    [
        (times(0, 60, 120), times(5, 65, 125), 1, ()),
        (times(0, 60, 120), times(5, 65), 1, ()),
        (times(0, 60, 120, 180), times(0, 120), 1, ("enqueued 4 times there and 2 times here",)),
        (times(0), times(200), 1, (sentence("imports.apart", seconds=200),)),
        (times(0, 60), times(0, 60), 40, (sentence("imports.too_long", took="40.0 s", box="30 s"),)),
    ],
)
def test_an_entry_differs_by_count_time_or_a_run_that_takes_too_long(
    there: list[datetime], here: list[datetime], longest: float, why: tuple[object, ...]
) -> None:
    seen = Seen(there, longest=longest)
    assert [*shadow.compared("poll", seen, here, 30.0, 0, 30.0, NOW).differences] == [*why]


@pytest.mark.parametrize(
    ("there", "here", "verdict"),
    [((0,), (5,), "same"), ((), (5,), "too short"), ((5,), (), "too short"), ((), (), "not due")],
)
def test_what_only_one_side_has_done_is_not_called_the_same(
    there: tuple[int, ...], here: tuple[int, ...], verdict: str
) -> None:
    assert shadow.compared("poll", Seen(times(*there)), times(*here), 30.0, 0, 30.0, NOW).verdict == verdict


def test_the_warm_up_is_not_counted() -> None:
    one = shadow.compared("poll", Seen(times(-60, 0, 60)), times(0, 60), 30.0, 0, 30.0, NOW)
    assert (one.there, one.here, one.every_there, one.verdict) == (2, 2, 60, "same")


def test_a_source_without_a_record_of_its_runs_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(BadInput, check=sentence("imports.keeps_no_record").within):
        shadow.shadow(crontab.opened(Where("-")), [], 1000, lambda _: None)


def test_the_table_of_the_command_gives_reasons_only_where_entries_differ() -> None:
    same = shadow.compared("poll", Seen(times(0, 60), longest=1.5), times(2, 62), 30.0, 0, 30.0, NOW)
    names, [line] = shadow.table([same])
    assert dict(zip(names, line, strict=True)) == {
        "entry": "poll", "verdict": "same", "there": 2, "here": 2, "every there": "60 s", "every here": "60 s",
        "apart": "2 s", "longest": "1.5 s", "box": "30 s",
    }  # fmt: skip
    names, [_, line] = shadow.table([same, shadow.compared("late", Seen(times(0, 1, 2)), [], 30.0, 0, 30.0, NOW)])
    assert (names[-1], line[-1]) == ("why", "enqueued 3 times there and 0 times here")


def test_the_command_compares_what_the_plan_has_and_exits_with_1_if_an_entry_differs(
    environ: dict[str, str], quick: None, redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    schedule(redis, "poll", datetime.now(UTC), interval=2, timeout=1)
    schedule(redis, "refused", datetime.now(UTC), interval=2, timeout=1, args=(b"",))
    command("import", "rq-scheduler", "--decide", "*:every=2s", code=1)
    out, _ = command("import", "rq-scheduler", "--shadow", "4s", code=1)
    assert ("poll   differs" in out, "refused" in out) == (True, False)
