"""The probes of a real ticker over HTTP, and the heartbeat that it sends."""

import os
import re
import signal
import threading
from dataclasses import replace

import pytest

import ticker
from tests.harness import command
from tests.notify.stage import Endpoint
from tests.running import Ticking, answer, until
from tests.sentences import sentence
from ticker import settings
from ticker.daemon import tick_job
from ticker.errors import DatabaseUnavailable


@pytest.fixture
def endpoint():
    endpoint = Endpoint()
    yield endpoint
    endpoint.close()


@pytest.mark.slow
def test_a_ticker_is_alive_and_ready_after_a_tick(environ, db):
    with Ticking("--health-port", "0") as ticking:
        ticking.says("tick due=0")
        [url] = re.findall(r"probes at (\S+)/livez and /readyz", "".join(ticking.lines))
        assert answer(f"{url}/livez") == answer(f"{url}/readyz") == (200, "ok\n")
        assert answer(f"{url}/")[0] == 404
        assert ticking.stop() == 0


@pytest.mark.slow
def test_a_ticker_whose_ticks_fail_is_alive_and_not_ready(own_servers):
    _, redis = own_servers
    with Ticking("--health-port", "0") as ticking:
        ticking.says("tick due=0")
        [url] = re.findall(r"probes at (\S+)/livez and /readyz", "".join(ticking.lines))
        os.kill(redis.pid, signal.SIGKILL)
        ticking.says("tick failed")
        status, text = answer(f"{url}/readyz")
        assert status == 503 and text.startswith("tick failed: ")
        assert answer(f"{url}/livez") == (200, "ok\n")


def test_a_ticker_that_hangs_is_not_alive(store, queue):
    beat = tick_job.TickJob(store, queue, settings.from_environment(), threading.Event())
    assert (beat.live(), beat.ready()) == ("", "no tick yet")
    beat._moved -= 1000
    assert beat.live() == tick_job.HANGING


def test_the_options_are_checked(environ):
    _, said = command("run", "--health-host", "0.0.0.0", code=2)
    assert said == sentence(
        "cli.error_host_without_port", option="--health-host", host="'0.0.0.0'", remedy="--health-port"
    )


def beating(store, queue, endpoint):
    own = replace(settings.from_environment(), heartbeat_url=f"http://{endpoint.url.partition('//')[2]}")
    return tick_job.TickJob(store, queue, own, threading.Event())


@pytest.mark.slow
def test_a_good_tick_calls_the_heartbeat(db, store, queue, endpoint):
    beating(store, queue, endpoint)()
    until(lambda: endpoint.got, "the heartbeat")
    assert endpoint.got[0][0]["User-Agent"] == "rq-ticker"


@pytest.mark.slow
def test_a_queue_with_jobs_and_no_worker_keeps_the_heartbeat_back(db, store, queue, redis, endpoint):
    ticker.register(db, "poll", every="1m")
    beat = beating(store, queue, endpoint)
    beat()  # pushes the job
    beat()
    assert not beat._heartbeat._calling.locked() and endpoint.got == []
    redis.sadd("rq:workers:polling", "rq:worker:w")
    redis.set("rq:worker:w", 1)
    beat()
    until(lambda: endpoint.got, "the heartbeat")


@pytest.mark.slow
def test_a_failed_tick_calls_nothing_and_a_heartbeat_that_fails_harms_no_tick(
    db, store, queue, endpoint, monkeypatch, caplog
):
    beat = beating(store, queue, endpoint)
    endpoint.close()
    beat()
    until(lambda: "was not reached" in caplog.text and not beat._heartbeat._calling.locked(), "the heartbeat fails")
    beat()
    until(lambda: not beat._heartbeat._calling.locked(), "it fails again")
    [line] = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert sentence("logs.heartbeat_failed", setting="TICKER_HEARTBEAT_URL").begins(line)
    assert endpoint.url not in line
    assert beat.failures == 0

    def unavailable(*_args, **_kwargs):
        raise DatabaseUnavailable("PostgreSQL (DATABASE_URL) does not answer")

    monkeypatch.setattr(tick_job, "tick", unavailable)
    monkeypatch.setattr(beat._heartbeat, "beat", lambda: pytest.fail("called after a failed tick"))
    beat()
    assert beat.failures == 1
