"""Whatever is wrong with a setting that holds a secret, no message, traceback or log line shows it."""

import importlib
import inspect
import logging
import os
import pkgutil
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from types import ModuleType
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from redis import Redis

import ticker
import wrappers
from tests.notify.stage import NOTICE
from tests.refusals import SECRET
from ticker.db import connections
from ticker.errors import QueueUnavailable, TickerError
from ticker.notify.deliver import in_words
from ticker.notify.mail import Mail
from ticker.notify.message import Channel, NotDelivered
from ticker.notify.webhook import Webhook
from ticker.queue import rq
from ticker.settings import from_environment

ODD = st.text("@:/?#[]%&=+,;.\\ \"'\t\u00e9\u2028\udc80aA1~", max_size=4)
"""What may stand around it: what a URL gives a meaning, blanks, what is not ASCII, and a byte that is no UTF-8."""


def callables(module: ModuleType) -> Iterator[Callable[..., object]]:
    """Yields the functions and classes of a module, and the methods of its classes."""
    for _, value in inspect.getmembers(module, lambda value: inspect.isfunction(value) or inspect.isclass(value)):
        if value.__module__ == module.__name__:
            yield value
            yield from (method for _, method in inspect.getmembers(value, inspect.isfunction))


@pytest.mark.slow
def test_no_signature_shows_the_environment() -> None:
    """`help(embedded.servers)` printed all of it."""
    names = [
        one.name
        for package in (ticker, wrappers)
        for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    names = [name for name in names if not re.search(r"__main__|\.migrations\.|\.django\.", name)]
    every = [one for name in names for one in callables(importlib.import_module(name))]
    assert len(every) > 1000
    defaults = [(one, parameter.default) for one in every for parameter in parameters(one)]
    assert [one for one, default in defaults if default is os.environ] == []


def parameters(one: Callable[..., object]) -> Iterable[inspect.Parameter]:
    try:
        return inspect.signature(one).parameters.values()
    except ValueError:
        return ()  # a class in C


def ask_postgresql(url: str) -> None:
    with connections.translated():
        connections.connect(from_environment({"DATABASE_URL": url}).require_database()).close()


def ask_redis(url: str) -> None:
    found = from_environment({"REDIS_URL": url}).require_redis()
    with rq.translated(), closing(rq.connect(found, retries=0)) as connection:
        connection.ping()


def deliver(channel: Channel) -> None:
    """As the thread of a channel, which shows nothing else of an error."""
    try:
        channel.deliver(NOTICE)
    except Exception as error:
        raise NotDelivered(in_words(error)) from None


def send_mail(url: str) -> None:
    deliver(Mail(from_environment({"TICKER_SMTP_URL": url}).smtp_url, "a@x.org", ["b@x.org"]))


def post(url: str) -> None:
    deliver(Webhook(from_environment({"TICKER_WEBHOOK_URL": url}).webhook_url))


def read_keys(text: str) -> None:
    for name in ("TICKER_SIGNING_KEY", "TICKER_WEBHOOK_KEY", "TICKER_WEB_TOKEN"):
        from_environment({name: text})


DATABASES = (
    "postgresql://u:{}@127.0.0.1:{port}/app", "postgresql://u:{}@127.0.0.1:99999/app", "mysql://u:{}@127.0.0.1/app",
    "postgresql://127.0.0.1:{port}/app?password={}", "postgresql://u:{}@127.0.0.1:{port}/app?sslmode=odd",
    "postgresql://u:{}@h..x:{port}/app", "host=127.0.0.1 port={port} password={}", "{}",
)  # fmt: skip
QUEUES = (
    "redis://u:{}@127.0.0.1:{port}/0", "redis://:{}@127.0.0.1:99999/0", "http://:{}@127.0.0.1/0", "valkeys://:{}@127.0.0.1:{port}",
    "redis://127.0.0.1:{port}/0?password={}", "redis://:{}@127.0.0.1:{port}/0?option=1", "unix://:{}@/no/such/socket",
    "redis://:{}@127.0.0.1:{port}/0?db=one", "redis://:{}@h1,h2/0", "redis://:{}@h..x:{port}/0", "{}",
)  # fmt: skip
MAILS = (
    "smtp://u:{}@127.0.0.1:{port}", "smtps://u:{}@127.0.0.1:{port}", "smtp://u:{}@127.0.0.1:99999", "http://u:{}@127.0.0.1",
    "smtp://{}@127.0.0.1:{port}", "smtp://u:{}@h..x:{port}", "{}",
)  # fmt: skip
WEBHOOKS = (
    "http://127.0.0.1:{port}/{}", "https://127.0.0.1:{port}/?a={}", "ftp://127.0.0.1/{}", "http://127.0.0.1:99999/{}",
    "http://u:{}@127.0.0.1:{port}/", "http://h..x:{port}/{}", "{}",
)  # fmt: skip
KEYS = ("{}", "{},another key of length", " {} ")


@pytest.mark.promise("S12")
@pytest.mark.parametrize(
    ("use", "form"),
    [(use, form) for use, forms in ((ask_postgresql, DATABASES), (ask_redis, QUEUES), (send_mail, MAILS),
                                    (post, WEBHOOKS), (read_keys, KEYS)) for form in forms],
    ids=lambda value: getattr(value, "__name__", value),
)  # fmt: skip
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(before="", after="")
@example(before="a%", after="")
@example(before="a@", after="/")
@example(before="", after="%zz")
@example(before="\u00e9", after="")
@example(before="", after="://")
@given(before=ODD, after=ODD)
def test_no_error_of_a_setting_shows_its_secret(
    use: Callable[[str], None], form: str, before: str, after: str, closed_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    text = form.replace("{port}", str(closed_port)).replace("{}", f"{before}{SECRET}{after}")
    shown = ""
    with caplog.at_level(logging.DEBUG):
        try:
            use(text)
        except (TickerError, NotDelivered) as error:
            shown = "".join(traceback.format_exception(error))
    assert SECRET not in shown + caplog.text


def test_a_password_that_redis_refuses_is_not_shown(redis: Redis, redis_url: str) -> None:
    user = f"test-{uuid4().hex[:8]}"
    redis.execute_command("ACL", "SETUSER", user, "on", ">another", "allkeys", "+@all")
    scheme, _, rest = redis_url.partition("://")
    try:
        with pytest.raises(QueueUnavailable, match="invalid username-password pair") as error:
            ask_redis(f"{scheme}://{user}:{SECRET}@{rest.rpartition('@')[2]}")
    finally:
        redis.acl_deluser(user)
    assert SECRET not in "".join(traceback.format_exception(error.value))
