"""Fixtures of all tests of notifications."""

import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.notify.stage import Endpoint, Played
from ticker.notify.deliver import Notifier
from ticker.notify.outbox import Outbox


@pytest.fixture
def notifier(database_url: str) -> Iterator[Callable[..., Notifier]]:
    """Makes the notifier of a channel, whose rounds the test makes by hand."""
    made: list[Outbox] = []

    def make(channel: Any, *others: str, stopping: threading.Event | None = None) -> Notifier:
        made.append(Outbox(database_url, "ticker"))
        names = [*others, channel.name] if channel else []
        return Played(channel, names, made[-1], stopping or threading.Event())

    yield make
    for outbox in made:
        outbox.close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    yield endpoint
    endpoint.close()


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server's TLS, with a certificate for localhost that our side trusts by SSL_CERT_FILE."""
    if not shutil.which("openssl"):
        pytest.skip("openssl makes the certificate, and is not installed")
    pem = tmp_path / "server.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", str(pem), "-out", str(tmp_path / "c.pem")],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "c.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "c.pem", pem)
    return context


@pytest.fixture
def pager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """An installed package with entry points `pager`, `broken`, `later` and `thing`; what `pager` was handed."""
    info = tmp_path / "pager-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pager\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[ticker.notices]\npager = pager_of_test:page\nbroken = pager_of_test:nothing\n"
        "later = pager_of_test:later\nthing = pager_of_test:GOT\n"
    )
    (tmp_path / "pager_of_test.py").write_text(
        "GOT = []\ndef page(notice):\n    GOT.append(notice)\nasync def later(notice):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import pager_of_test

    yield pager_of_test.GOT
    del sys.modules["pager_of_test"]
