"""The webhook: signed, arrived once, bounded, and a danger to nobody."""

import hashlib
import hmac
import json
import re
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

import ticker
from tests.notify.stage import (
    KEY,
    MINUTE,
    NOTICE,
    NOW,
    OLD_KEY,
    SECRET,
    Kept,
    happens,
    hear,
    notices,
    talking,
)
from tests.running import ROOT
from tests.sentences import sentence
from ticker.db.store import PostgresStore
from ticker.engine.tick import tick
from ticker.notify import wire
from ticker.notify.deliver import AFTER_FAILURE
from ticker.notify.webhook import Webhook
from ticker.queue.rq import RedisQueue
from ticker.settings import Settings


def test_a_webhook_gets_the_notice_as_json_signed_with_each_key(db, notifier, endpoint):
    event = happens(db, "failed")
    notifier(Webhook(endpoint.url, [KEY, OLD_KEY])).round(NOW)
    [(headers, body)] = endpoint.got
    assert json.loads(body)["id"] == event
    assert headers["path"] == f"/{SECRET}?a=b"
    assert (headers["Content-Type"], headers["Idempotency-Key"]) == ("application/json", str(event))
    signed = headers["Ticker-Timestamp"].encode() + b"." + body
    codes = [hmac.new(key.encode(), signed, hashlib.sha256).hexdigest() for key in (KEY, OLD_KEY)]
    assert headers["Ticker-Signature"] == f"sha256={codes[0]},sha256={codes[1]}"


def test_without_a_key_nothing_is_signed(endpoint):
    assert Webhook(endpoint.url).deliver(NOTICE) == "answered 204 No Content"
    assert not {"Ticker-Timestamp", "Ticker-Signature"} & endpoint.got[0][0].keys()


def test_nothing_that_a_task_says_becomes_a_header(endpoint):
    evil = "=?utf-8?q?=0AX-Forged:_yes?= x\r\nX-Forged: yes\r\n\r\nbody"
    for notice in (NOTICE, replace(NOTICE, task_name=evil, owner_id=evil, subject=evil, error=evil, words=evil)):
        Webhook(endpoint.url).deliver(notice)
    [(plain, _), (headers, body)] = endpoint.got
    assert plain | {"Content-Length": str(len(body))} == headers and json.loads(body)["error"] == evil


@pytest.mark.parametrize("status", [500, 503, 429, 404, 301, 307])
def test_an_endpoint_that_refuses_gets_the_notice_once_more_and_once_it_is_back_no_more(status, db, notifier, endpoint):
    """A redirect is a refusal, too: it is not followed."""
    event = happens(db, "failed")
    endpoint.answers = [status]
    one = notifier(Webhook(endpoint.url))
    assert one.round(NOW) == AFTER_FAILURE
    [(error,)] = notices(db, "error")
    assert error.startswith(f"answered {status}")
    for minute in range(1, 5):
        one.round(NOW + minute * MINUTE)
    assert (endpoint.ids, notices(db)) == ([event, event], [])


def test_an_endpoint_that_is_not_there_gets_the_notice_once_when_it_is(db, notifier, endpoint, closed_port):
    event = happens(db, "failed")
    nobody = f"http://127.0.0.1:{closed_port}/"
    assert notifier(Webhook(nobody)).round(NOW) == AFTER_FAILURE
    assert notices(db, "error") == [("[Errno 111] Connection refused",)]
    one = notifier(Webhook(endpoint.url))
    one.round(NOW + MINUTE)
    one.round(NOW + 2 * MINUTE)
    assert endpoint.ids == [event]


@pytest.mark.slow
def test_while_an_endpoint_hangs_ticks_and_other_channels_go_on_and_the_notice_arrives_when_it_is_back(
    db, notifier, endpoint, database_url, redis_url, monkeypatch
):
    monkeypatch.setattr(wire, "SECONDS", 60.0)
    event = happens(db, "failed")
    task = ticker.register(db, "poll", every="1m")
    endpoint.answers = [None]
    store, queue, kept = PostgresStore(database_url), RedisQueue.from_url(redis_url), Kept("kept")
    hanging = notifier(Webhook(endpoint.url), "kept")
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(hanging.round, NOW)
        assert endpoint.held.wait(60)
        for minute in range(2):
            assert tick(store, queue, datetime.now(UTC) + minute * MINUTE).due.due == 1
        notifier(kept).round(NOW)
        assert not under_way.done()
        endpoint.let_go.set()
        assert under_way.result(timeout=60) == AFTER_FAILURE
    assert len(ticker.get(db, task).waiting) == 2
    assert [notice.id for notice in kept.got] == [event]
    hanging.round(NOW + MINUTE)
    hanging.round(NOW + 2 * MINUTE)
    assert endpoint.ids == [event, event]  # the first of the two got no answer
    store.close()
    queue.close()


@pytest.mark.slow
def test_an_endpoint_that_never_answers_is_given_up_in_time(endpoint, monkeypatch):
    monkeypatch.setattr(wire, "SECONDS", 0.5)
    endpoint.answers = [None]
    with pytest.raises(TimeoutError, check=sentence("errors.no_answer_within_span", span="0.5 s").within):
        Webhook(endpoint.url).deliver(NOTICE)


@pytest.mark.slow
def test_an_endpoint_that_sends_a_byte_at_a_time_is_given_up_in_time(monkeypatch):
    """Each byte comes before a socket's own timeout: only the whole is bounded."""
    monkeypatch.setattr(wire, "SECONDS", 0.5)
    stopped = threading.Event()

    def drips(wire: socket.socket) -> None:
        hear(wire)
        wire.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        while not stopped.wait(0.01):
            wire.sendall(b"x")

    with (
        talking(drips) as port,
        pytest.raises(TimeoutError, check=sentence("errors.no_answer_within_span", span="0.5 s").within),
    ):
        Webhook(f"http://127.0.0.1:{port}/").deliver(NOTICE)
    stopped.set()


@pytest.mark.parametrize("answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n"])
def test_an_answer_that_is_no_http_is_a_failure_and_no_more(answer, db, notifier):
    def says(wire: socket.socket) -> None:
        hear(wire)
        wire.sendall(answer)

    happens(db, "failed")
    with talking(says) as port:
        assert notifier(Webhook(f"http://127.0.0.1:{port}/")).round(NOW) == AFTER_FAILURE
    assert notices(db, "error")[0][0].isprintable()


def test_a_body_without_end_is_not_read(endpoint):
    def pours(wire: socket.socket) -> None:
        hear(wire)
        wire.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            wire.sendall(b"x" * 65536)

    with talking(pours) as port:
        assert Webhook(f"http://127.0.0.1:{port}/").deliver(NOTICE) == "answered 200 OK"


def test_no_error_and_no_log_line_shows_the_url_or_a_key(db, notifier, endpoint, caplog, monkeypatch):
    endpoint.answers = [500]
    happens(db, "failed")
    notifier(Webhook(endpoint.url, [KEY])).round(NOW)
    found = Settings(webhook_url=endpoint.url, webhook_keys=(KEY,), smtp_url=f"smtp://u:{SECRET}@h")
    shown = f"{caplog.text} {notices(db, 'error')} {found!r}"
    assert SECRET not in shown and KEY not in shown


def test_https_is_used_and_the_certificate_is_checked(certificate, monkeypatch):
    def answers(wire: socket.socket) -> None:
        with certificate.wrap_socket(wire, server_side=True) as secure:
            hear(secure)
            secure.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")

    with talking(answers) as port:
        assert Webhook(f"https://localhost:{port}/").deliver(NOTICE) == "answered 202 Accepted"
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(ssl.SSLCertVerificationError):
            Webhook(f"https://localhost:{port}/").deliver(NOTICE)


def test_the_resolver_gives_each_address_its_share(monkeypatch, closed_port):
    """The first address is dead, the second one lives."""
    with talking(lambda wire: wire.sendall(b"x")) as port:
        addresses = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", closed_port)),
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port)),
        ]
        monkeypatch.setattr(wire, "SECONDS", 30.0)
        monkeypatch.setattr(wire.socket, "getaddrinfo", lambda *_, **__: addresses)
        with wire.connected("h", port) as (line, _):
            assert line.recv(1) == b"x"


def test_the_check_that_the_documentation_shows_accepts_a_real_request_and_no_other(endpoint):
    shown: dict[str, Any] = {}
    [block] = re.findall(
        r"```python\n(import hashlib.*?)```", (ROOT / "docs/guides/notifications.md").read_text(), flags=re.DOTALL
    )
    exec(block, shown)
    Webhook(endpoint.url, [KEY, OLD_KEY]).deliver(NOTICE)
    [(headers, body)] = endpoint.got
    timestamp, signatures = headers["Ticker-Timestamp"], headers["Ticker-Signature"]
    for key in (KEY, OLD_KEY):
        assert shown["is_genuine"](key, timestamp, signatures, body)
        assert not shown["is_genuine"](key, timestamp, signatures, body + b" ")
        assert not shown["is_genuine"](key, str(int(timestamp) - 1000), signatures, body)
    assert not shown["is_genuine"]("a key of somebody else", timestamp, signatures, body)
