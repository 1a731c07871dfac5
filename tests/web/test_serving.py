"""`ticker web`, a process of its own: where it listens, whom it refuses to serve, and how it ends."""

import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from click.testing import CliRunner

from tests.running import until
from tests.sentences import Sentence, sentence
from tests.web.asking import BEARER, TOKEN
from tests.web.conftest import Serve
from tests.web.serving import in_thread, refused, serving
from ticker import clock
from ticker.cli import main
from ticker.cli.web import prepared
from ticker.errors import EXIT_CONFIGURATION
from ticker.read import health
from ticker.read.health import Health
from ticker.settings import from_environment
from ticker.web import access, application, protocol

SECRET = "s3cr3t-word"


def asked(address: str, headers: Mapping[str, str] = {}, *, data: bytes | None = None) -> tuple[int, Any]:
    request = urllib.request.Request(address, data, headers=dict(headers))
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.slow
def test_it_prints_one_address_that_opens_and_serves_until_sigterm(environ: dict[str, str]) -> None:
    with serving() as served:
        assert served.address.startswith("http://127.0.0.1:") and served.token is not None and len(served.token) >= 32
        assert asked(f"{served.address}api/v1/tasks")[0] == 401
        shown = {"Authorization": f"Bearer {served.token}"}
        assert asked(f"{served.address}api/v1/tasks", shown) == (
            200,
            {"tasks": [], "next": None, "looked_through": None},
        )
    assert served.code == 0
    url = served.address.replace("http://", f"http://ticker:{served.token}@")
    assert served.said == sentence("cli.web_address", address=url)


@pytest.mark.slow
@pytest.mark.parametrize(("words", "variables"), [(("--no-token",), {}), ((), {"TICKER_WEB_NO_TOKEN": "on"})])
def test_open_access_has_to_be_asked_for(
    words: tuple[str, ...], variables: dict[str, str], environ: dict[str, str]
) -> None:
    with serving(*words, **variables) as served:
        assert asked(f"{served.address}api/v1/tasks")[0] == 200
        assert asked(f"{served.address}api/v1/tasks", {"X-Forwarded-For": "127.0.0.1"})[0] == 403
    assert served.said == sentence("cli.web_address", address=served.address)


@pytest.mark.slow
def test_an_interruption_ends_it_as_well(environ: dict[str, str]) -> None:
    with serving() as served:
        served.process.send_signal(signal.SIGINT)
        served.process.wait(60)
    assert served.code == 0


@pytest.mark.slow
def test_read_only_nothing_can_be_changed(environ: dict[str, str]) -> None:
    with serving("--read-only", "--no-token") as served:
        said = b'{"function": "poll", "every": "1m"}'
        code, found = asked(f"{served.address}api/v1/tasks", {"Content-Type": "application/json"}, data=said)
    assert code == 403 and "--read-only" in found["detail"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.org", "10.1.2.3", ""])
def test_open_access_does_not_listen_elsewhere(host: str, environ: dict[str, str]) -> None:
    result = CliRunner().invoke(main, ["web", "--no-token", "--host", host, "--port", "0"])
    assert (result.exit_code, result.stdout) == (EXIT_CONFIGURATION, "")
    assert result.stderr.startswith("error: --host ") and result.stderr.count("\n") == 1
    assert "--no-token" in result.stderr


@pytest.mark.slow
def test_elsewhere_it_asks_for_the_token_that_it_made(environ: dict[str, str]) -> None:
    with serving("--host", "0.0.0.0") as served:
        address = served.address.replace("0.0.0.0", "127.0.0.1")
        assert asked(f"{address}api/v1/tasks")[0] == 401
        assert asked(f"{address}api/v1/tasks", {"Authorization": f"Bearer {served.token}"})[0] == 200


@pytest.mark.slow
def test_with_a_token_it_listens_anywhere_and_asks_for_it(environ: dict[str, str]) -> None:
    with serving("--host", "0.0.0.0", TICKER_WEB_TOKEN=TOKEN) as served:
        address = served.address.replace("0.0.0.0", "127.0.0.1")
        assert asked(f"{address}api/v1/tasks")[0] == 401
        assert asked(f"{address}api/v1/tasks", BEARER)[0] == 200
    assert TOKEN not in served.said


@pytest.mark.slow
def test_a_body_of_a_megabyte_is_refused_on_the_wire(environ: dict[str, str]) -> None:
    with serving("--no-token") as served:
        host, port = served.address.removeprefix("http://").rstrip("/").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as wire:
            wire.sendall(
                b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: 1048576\r\n\r\n"
            )
            assert wire.recv(65_536).startswith(b"HTTP/1.1 413 ")


@pytest.mark.slow
def test_an_answer_on_a_connection_that_stays_does_not_wait_for_the_other_side(environ: dict[str, str]) -> None:
    """Nagle's algorithm and a delayed acknowledgement would take 40 ms of each."""
    took = []
    with serving() as served, closing(HTTPConnection(urlsplit(served.address).netloc)) as connection:
        for _ in range(10):
            began = clock.monotonic()
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            took.append(clock.monotonic() - began)
    assert min(took[1:]) < 0.03


@pytest.mark.slow
def test_a_port_that_is_taken_is_told_in_one_sentence(environ: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, said = refused("--port", str(taken.getsockname()[1]))
    assert code == EXIT_CONFIGURATION
    assert sentence("cli.cannot_listen", host="--host 127.0.0.1", port="--port ").begins(said) and said.count("\n") == 1


@pytest.mark.parametrize(
    ("variables", "said"),
    [({"DATABASE_URL": ""}, sentence("errors.is_not_set", setting="DATABASE_URL")), ({"REDIS_URL": ""}, sentence("errors.is_not_set", setting="REDIS_URL")),
     ({"TICKER_WEB_TOKEN": "short"}, sentence("errors.key_is_short", setting="TICKER_WEB_TOKEN", length=16)),
     ({"TICKER_WEB_NO_TOKEN": "yes"}, sentence("errors.about", field="TICKER_WEB_NO_TOKEN")),
     ({"TICKER_WEB_TOKEN": TOKEN, "TICKER_WEB_NO_TOKEN": "on"}, sentence("errors.tokens_exclude", no_token="TICKER_WEB_NO_TOKEN=on", token="TICKER_WEB_TOKEN"))],
)  # fmt: skip
def test_a_setting_that_does_not_fit_ends_it_at_once(
    variables: dict[str, str], said: Sentence, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(main, ["web", "--port", "0"])
    assert result.exit_code == EXIT_CONFIGURATION and said.within(result.stderr)
    assert "short;" not in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["starlette", "jinja2", "uvicorn"])
def test_without_the_extra_it_says_what_to_install(missing: str, environ: dict[str, str]) -> None:
    hide = f"import sys; sys.modules[{missing!r}] = None; from ticker.cli import main; main(['web', '--port', '0'])"
    ended = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True, timeout=60)
    assert ended.returncode == EXIT_CONFIGURATION
    assert ended.stderr == sentence("cli.web_needs", missing=missing, remedy='pip install "rq-ticker[web]"')


@pytest.mark.slow
def test_nothing_that_it_says_holds_a_secret(environ: dict[str, str]) -> None:
    url = f"postgresql://somebody:{SECRET}@127.0.0.1:1/nothing"
    with serving(DATABASE_URL=url, TICKER_WEB_TOKEN=TOKEN) as served:
        for path in ("api/v1/tasks", "api/v1/stats", "readyz", "api/v1/nothing", f"api/v1/tasks?search={TOKEN[:1]}"):
            code, found = asked(served.address + path, BEARER)
            assert code in (404, 503) and SECRET not in str(found) and TOKEN not in str(found)
    assert SECRET not in served.said and TOKEN not in served.said


@pytest.fixture
def quick_server(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[uvicorn.Server]:
    """A server of this process that waits for headers half a second, instead of ten."""
    monkeypatch.setattr(protocol, "HEADERS_WITHIN", 0.5)
    config = uvicorn.Config(application(tokens=[TOKEN]), http=protocol.Protocol, port=0, log_config=None)
    with in_thread(config) as server:
        yield server


@pytest.fixture
def quick(quick_server: uvicorn.Server) -> Any:
    """Its address."""
    return quick_server.servers[0].sockets[0].getsockname()


@pytest.mark.slow
def test_a_request_whose_headers_do_not_end_is_cut_off_though_bytes_arrive(quick: Any) -> None:
    with socket.create_connection(quick, timeout=60) as wire:
        wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        wire.settimeout(0.05)
        began = clock.monotonic()
        assert until_closed(wire) == b""
    assert clock.monotonic() - began < 30


@pytest.mark.slow
def test_so_is_a_second_request_and_an_answer_that_takes_longer_is_not(
    quick: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = threading.Event()

    def slow(*_: Any, **__: Any) -> Health:
        answer.wait(60)
        return Health("away", "away")

    monkeypatch.setattr(health, "look", slow)
    with socket.create_connection(quick, timeout=60) as wire:
        wire.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wire.settimeout(4 * protocol.HEADERS_WITHIN)
        with pytest.raises(TimeoutError):
            wire.recv(1)
        answer.set()
        wire.settimeout(60)
        assert wire.recv(65_536).startswith(b"HTTP/1.1 503 ")
        wire.sendall(b"GET /healthz HTTP/1.1\r\n")
        wire.settimeout(0.05)
        assert b"HTTP/1.1" not in until_closed(wire)


@pytest.mark.slow
def test_a_client_that_reads_no_answer_is_cut_off(quick: Any, quick_server: uvicorn.Server) -> None:
    connections = quick_server.server_state.connections
    with socket.create_connection(quick, timeout=60) as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.sendall(400 * b"GET /static/htmx.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: connections, "it is connected")
        until(lambda: not connections, "it is cut off")


each_door = pytest.mark.parametrize(
    ("path", "kind"), [("/api/v1/tasks", "application/json"), ("/tasks/create", "application/x-www-form-urlencoded")]
)


def begin(wire: socket.socket, path: str, kind: str, length: str) -> None:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", length]
    wire.sendall("\r\n".join([*lines, f"Authorization: Bearer {TOKEN}", "", ""]).encode())


@pytest.mark.slow
@each_door
@pytest.mark.parametrize("piece", [b"", b" "], ids=["silence", "a byte at a time"])
@pytest.mark.parametrize("length", ["Content-Length: 100", "Transfer-Encoding: chunked"])
def test_a_request_whose_body_does_not_end_is_answered_with_408(
    length: str, path: str, kind: str, piece: bytes, quick: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "BODY_WITHIN", 0.5)
    monkeypatch.setattr(protocol, "HEADERS_WITHIN", 60)
    with socket.create_connection(quick, timeout=60) as wire:
        begin(wire, path, kind, length)
        wire.settimeout(0.05 if piece else 60)
        answer = first_answer(wire, piece if "Length" in length else b"1\r\n%b\r\n" % piece)
    assert answer.status == 408
    assert json.load(answer)["detail"] == sentence("http.body_late", limit="0.5 s")


@pytest.mark.slow
@each_door
def test_a_client_that_leaves_before_its_body_is_no_error(
    path: str, kind: str, quick: Any, quick_server: uvicorn.Server, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = quick_server.server_state.tasks
    with socket.create_connection(quick, timeout=60) as wire:
        begin(wire, path, kind, "Content-Length: 100")
        until(lambda: tasks, "it is served")
    until(lambda: not tasks, "it is given up")
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def first_answer(wire: socket.socket, piece: bytes) -> HTTPResponse:
    """The answer to a request of which one piece after the other is sent until then."""
    while True:
        with suppress(TimeoutError):
            wire.recv(1, socket.MSG_PEEK)
            break
        wire.sendall(piece)
    wire.settimeout(60)
    answer = HTTPResponse(wire, method="POST")
    answer.begin()
    return answer


def until_closed(wire: socket.socket) -> bytes:
    """What it receives until the other side closes, while it sends one header after the other."""
    received = b""
    while True:
        try:
            piece = wire.recv(65_536)
            received += piece
            if not piece:
                return received
        except TimeoutError:
            wire.sendall(b"X: y\r\n")
        except ConnectionError:
            return received


def test_ticker_web_waits_for_headers_ten_seconds_and_for_a_body_as_long(environ: dict[str, str]) -> None:
    _, server = prepared(from_environment(), "127.0.0.1")
    assert server.config.http is protocol.Protocol and protocol.HEADERS_WITHIN == access.BODY_WITHIN == 10


@pytest.mark.slow
def test_many_who_ask_whether_all_is_well_have_the_servers_asked_once_a_second(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, now = list[float](), [100.0]

    def look(*_: Any, **__: Any) -> Health:
        looks.append(now[0])
        return Health("", "")

    client = serve(TICKER_WEB_TOKEN=TOKEN)
    monkeypatch.setattr(health, "look", look)
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda _: client.get("/readyz"), range(100)))
    assert looks == [100.0]
    now[0] += 0.9
    client.get("/readyz")
    now[0] += 0.1
    client.get("/readyz"), client.get("/readyz")
    assert looks == [100.0, 101.0]


def test_pages_are_compressed_for_those_who_accept_it(client):
    assert client.get("/tasks/new").headers["content-encoding"] == "gzip"
    assert "content-encoding" not in client.get("/tasks/new", headers={"accept-encoding": "identity"}).headers
    assert "content-encoding" not in client.get("/healthz").headers
