"""Redis behind sentinels: addresses, mistakes, and a failover under a ticker and a worker that run."""

import os
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import psycopg
import pytest
from redis import SSLConnection, exceptions
from redis.sentinel import MasterNotFoundError, SentinelConnectionPool

import ticker
from tests.cli.answers import answer
from tests.refusals import SECRET
from tests.running import Ticking, until, working
from tests.sentences import Sentence, sentence
from tests.sentinels import Watched, watched
from ticker.errors import ConfigurationError, QueueUnavailable
from ticker.queue import rq, sentinel
from ticker.settings import from_environment

Db = psycopg.Connection[Any]
URL = "redis+sentinel://poll%40er:p%2Fw@one,two:7000,[::1]/jobs/3"


@pytest.fixture(scope="module")
def sentinels() -> Iterator[Watched]:
    with watched(os.environ) as started:
        yield started


def settings(url: str) -> Any:
    return from_environment({"DATABASE_URL": "postgresql:///db", "REDIS_URL": url})


# ----------------------------------------------------------------------------------------------------------- addresses


def test_a_url_names_sentinels_service_database_and_options() -> None:
    pool: Any = rq.connect(URL + "?sentinel_password=s&health_check_interval=5").connection_pool
    assert isinstance(pool, SentinelConnectionPool)
    assert pool.service_name == "jobs"
    told = pool.connection_kwargs
    assert (told["username"], told["password"], told["db"], told["health_check_interval"]) == ("poll@er", "p/w", 3, 5)
    places = [one.connection_pool.connection_kwargs for one in pool.sentinel_manager.sentinels]
    assert [(one["host"], one["port"], one["password"]) for one in places] == [
        ("one", 26379, "s"), ("two", 7000, "s"), ("::1", 26379, "s")
    ]  # fmt: skip
    assert told["socket_timeout"] == rq.SOCKET_TIMEOUT


@pytest.mark.parametrize(
    ("scheme", "option", "primary", "sentinels"),
    [
        ("redis", "", False, False), ("redis", "&sentinel_ssl=yes", False, True),
        ("rediss", "", True, True), ("rediss", "&sentinel_ssl=no", True, False),
    ],
)  # fmt: skip
def test_with_rediss_the_sentinels_use_tls_too_unless_the_url_says_otherwise(
    scheme: str, option: str, primary: bool, sentinels: bool
) -> None:
    certificate = "?ssl_ca_certs=ca.pem" if primary else "?db=0"
    pool: Any = sentinel.Client.from_url(f"{scheme}+sentinel://one/jobs/0{certificate}{option}").connection_pool
    [one] = pool.sentinel_manager.sentinels
    assert issubclass(pool.connection_class, SSLConnection) == primary
    assert issubclass(one.connection_pool.connection_class, SSLConnection) == sentinels
    if primary and sentinels:
        assert one.connection_pool.connection_kwargs["ssl_ca_certs"] == "ca.pem"


@pytest.mark.parametrize("path", ["", "/", "/0", "/jobs/x", "//0", "?db=3"])
def test_a_url_without_a_service_or_with_a_database_that_is_no_number_is_refused(path: str) -> None:
    if path == "/0":  # the name of a service may be a number
        assert settings(f"redis+sentinel://one{path}").require_redis()
        return
    with pytest.raises(ConfigurationError, check=sentence("errors.sentinel_without_service").__eq__):
        settings(f"redis+sentinel://one{path}").require_redis()


# ------------------------------------------------------------------------------------------------------------ mistakes


@pytest.mark.slow
def test_a_url_of_a_sentinel_a_replica_or_a_wrong_service_is_one_sentence(sentinels: Watched) -> None:
    said = []
    names = {"x": "127.0.0.1:{}", "b": "127.0.0.1:{}/0"}
    for name, place in names.items():
        with pytest.raises(ConfigurationError) as caught:
            rq.RedisQueue.from_url(f"redis://{place.format(sentinels.ports[name])}").check()
        said.append(str(caught.value))
    assert said == [sentence("errors.redis_is_a_sentinel"), sentence("errors.replica", setting="REDIS_URL")]
    with pytest.raises(QueueUnavailable, check=sentence("errors.no_primary").__eq__):
        rq.RedisQueue.from_url(sentinels.url.replace("/jobs/", "/other/")).check()
    refused = sentence("errors.no_primary_because", error=re.compile(r"[^<]*AuthenticationError.*"))
    with pytest.raises(QueueUnavailable, check=refused.__eq__):
        rq.RedisQueue.from_url(f"{sentinels.url}?sentinel_username=nobody&sentinel_password={SECRET}").check()


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (sentence("errors.redis_unusable", setting="REDIS_URL"), "The previous master is now a slave"),
        (sentence("errors.redis_refuses_as", setting="REDIS_URL"), "Connection closed by server"),
    ],
)
def test_only_an_error_without_an_answer_says_that_there_was_none(said: Sentence, error: str) -> None:
    with pytest.raises(QueueUnavailable, check=said.begins), rq.translated():
        raise exceptions.ConnectionError(error)


@pytest.mark.slow
def test_an_interrupted_answer_is_not_read_by_the_next_call(
    sentinels: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    client = sentinel.Client.from_url(sentinels.url)
    client.set("key", "value")
    connection: Any = client.connection_pool.get_connection()
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        connection.send_command("GET", "key")
        patched.setattr(connection._parser, "read_response", interrupted)
        connection.read_response()
    connection.send_command("PING")
    assert connection.read_response() == b"PONG"


@pytest.mark.parametrize("retries", [0, 1])
def test_a_silent_sentinel_is_asked_once_in_each_attempt(retries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentinel, "ANSWERS_WITHIN", 0.05)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        url = f"redis+sentinel://127.0.0.1:{silent.getsockname()[1]}/jobs/0"
        with pytest.raises(MasterNotFoundError):
            rq.connect(url, retries=retries).ping()
        assert waiting(silent) == 1 + retries


def waiting(server: socket.socket) -> int:
    """Counts the connections that were not accepted yet."""
    server.setblocking(False)
    count = 0
    with suppress(BlockingIOError):
        while True:
            server.accept()[0].close()
            count += 1
    return count


# ------------------------------------------------------------------------------------------------------------ failover


@pytest.mark.slow
@pytest.mark.usefixtures("traced")
def test_after_a_failover_ticks_and_runs_go_on_and_all_processes_name_the_same_redis(
    db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watched(os.environ) as servers:
        monkeypatch.setenv("REDIS_URL", servers.url)
        ticker.register(db, "plain", every="1s")

        def starts() -> int:
            [count] = db.execute("SELECT count(*) FROM ticker.runs WHERE outcome = 'succeeded'").fetchone() or (0,)
            return int(count)

        with Ticking() as ticking, ExitStack() as block:
            workers = [block.enter_context(working())]

            def more_than(known: int) -> bool:
                if workers[-1].poll() is not None:  # a worker may end with its Redis; a process manager starts another
                    workers.append(block.enter_context(working()))
                return starts() >= known + 2

            ticking.says("ticker started")
            until(lambda: more_than(0), "runs through the first primary")
            before = servers.primary
            servers.kill("a")
            until(lambda: servers.primary != before, "a promotion")
            known = starts()
            until(lambda: more_than(known), "runs through the promoted replica")
            assert answer("doctor")["well"]
