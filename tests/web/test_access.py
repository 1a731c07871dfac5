"""Who may come in, and what is refused before anything is read or written."""

import base64
import logging
import socket
from typing import Any

import psycopg
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.routing import Mount
from starlette.testclient import TestClient

from tests.sentences import sentence
from tests.web.asking import (
    ALL,
    API,
    BEARER,
    FOREIGN,
    HERE,
    JSON,
    TOKEN,
    WITH_BODY,
    WRITES,
    Asking,
    named,
    problem,
    rows,
)
from tests.web.conftest import Serve
from tests.web.serving import in_thread
from ticker import ConfigurationError
from ticker.tasks.fields import Task
from ticker.web import application
from ticker.web.access import BODY_AT_MOST, HEADERS, not_local

pytestmark = pytest.mark.slow

Db = psycopg.Connection[Any]

each = pytest.mark.parametrize("one", ALL, ids=named)
each_that_writes = pytest.mark.parametrize("one", WRITES, ids=named)


FOREIGN_NAMES = (
    "evil.example", "evil.example:8765", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "0.0.0.0",
    "127.0.0.1@evil.example", "localhost:8765:x", "[::2]", "",
)  # fmt: skip
FROM_OTHER_SITES = (
    FOREIGN, {"Origin": "null"}, {"Origin": "http://localhost:9999"}, {"Origin": "http://["}, {"Origin": ""},
    {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
    {"Origin": "null", "Sec-Fetch-Site": "same-origin"}, FOREIGN | {"Sec-Fetch-Site": "cross-site"},
)  # fmt: skip


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


NO_TOKEN = (
    {}, {"Authorization": "Bearer"}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": f"Bearer {TOKEN[:-1]}"},
    {"Authorization": TOKEN}, {"Authorization": f"Digest {TOKEN}"}, {"Authorization": "Basic %%%"}, basic("", ""),
    basic(TOKEN, ""),
)  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- tokens


@each
def test_without_the_token_nothing_is_served_and_nothing_changes(
    one: Asking, with_token: TestClient, task: Task, db: Db
) -> None:
    before = rows(db)
    for headers in NO_TOKEN:
        answer = one.ask(with_token, headers=headers)
        assert "TICKER_WEB_TOKEN" in problem(answer, 401)["detail"]
        assert answer.headers["www-authenticate"].startswith("Basic ")
    assert rows(db) == before


@each
def test_with_the_token_every_operation_does_its_work(one: Asking, with_token: TestClient, task: Task) -> None:
    answer = one.ask(with_token, headers=BEARER)
    assert answer.status_code in one.operation.answers, answer.text
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS


def test_the_token_may_be_the_password_of_any_user(with_token: TestClient) -> None:
    assert with_token.get(f"{API}/tasks", headers=basic("", TOKEN)).status_code == 200
    assert with_token.get(f"{API}/tasks", headers=basic("somebody", TOKEN)).status_code == 200


def test_each_of_several_tokens_opens_and_one_may_hold_any_letters(serve: Serve) -> None:
    client = serve(TICKER_WEB_TOKEN="the new one of some length,ein Schlüssel für alle")
    for token in ("ein Schlüssel für alle", "the new one of some lengt"):
        shown = b"Bearer " + token.encode()
        expected = 200 if token.startswith("ein") else 401
        assert client.get(f"{API}/tasks", headers={"Authorization": shown}).status_code == expected
        assert client.get(f"{API}/tasks", headers=basic("x", token)).status_code == expected


def test_a_token_that_can_be_guessed_opens_nothing(environ: dict[str, str]) -> None:
    for token in ("", "x" * 15):
        with pytest.raises(ConfigurationError, check=sentence("errors.short_token", length=16).within):
            application(tokens=[TOKEN, token])


def test_a_load_balancer_is_told_yes_or_no_and_who_may_come_in_is_told_why(with_token: TestClient) -> None:
    assert with_token.get("/healthz").text == "ok\n"
    assert with_token.get("/readyz").json() == {"healthy": False}
    answer = with_token.get("/readyz", headers=BEARER)
    assert answer.status_code == 503 and answer.json()["problems"]


# ----------------------------------------------------------------------------------------- without a token of the user's


@pytest.mark.parametrize("root", ["", "/ops/ticker"])
def test_where_no_token_is_set_one_is_made_and_logged_and_nothing_opens_without_it(
    root: str, environ: dict[str, str], caplog: pytest.LogCaptureFixture, task: Task, db: Db
) -> None:
    """Of requests that say that they come from this host, which anybody can say."""
    with caplog.at_level(logging.WARNING, "ticker.web"):
        app = application()
    [record] = caplog.records
    token = record.getMessage().rpartition("token=")[2]
    assert len(token) >= 32 and "TICKER_WEB_TOKEN" in record.getMessage()
    client = TestClient(Starlette(routes=[Mount(root, app)]) if root else app, base_url=HERE, client=("127.0.0.1", 1))
    before = rows(db)
    for method, path in (("GET", "/"), ("GET", f"{API}/tasks"), ("POST", f"{API}/tasks/1/run"), ("GET", "/metrics")):
        assert client.request(method, root + path, headers=JSON).status_code == 401
    assert rows(db) == before
    assert client.get(f"{root}{API}/tasks", headers={"Authorization": f"Bearer {token}"}).status_code == 200
    assert client.get(f"{root}/tasks", headers=basic("ticker", token)).status_code == 200


def test_each_application_makes_a_token_of_its_own(environ: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    application(), application(tokens=[])
    assert len({record.getMessage() for record in caplog.records}) == 2


def test_no_token_is_made_where_it_would_open_nothing(
    environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    application(no_token=True), application(tokens=[TOKEN]), application(trusted=True)
    assert caplog.records == []


def test_open_access_and_a_token_exclude_each_other(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="TICKER_WEB_NO_TOKEN"):
        application(tokens=[TOKEN], no_token=True)


@each
def test_open_access_refuses_a_client_that_is_not_on_this_host(
    one: Asking, environ: dict[str, str], task: Task, db: Db
) -> None:
    before, app = rows(db), application(no_token=True)
    for client in (("10.0.0.1", 50_000), ("192.0.2.7", 1), ("2001:db8::1", 1), ("testclient", 1)):
        answer = one.ask(TestClient(app, base_url=HERE, client=client))
        assert client[0] in problem(answer, 403)["detail"]
    assert rows(db) == before


@each
def test_open_access_refuses_what_a_proxy_has_passed_on(one: Asking, client: TestClient, task: Task, db: Db) -> None:
    before = rows(db)
    for name in ("Forwarded", "X-Forwarded-For", "X-Forwarded-Anything", "Via", "X-Real-IP", "CF-Connecting-IP"):
        answer = one.ask(client, headers={name: "127.0.0.1"})
        assert name.lower() in problem(answer, 403)["detail"]
    assert rows(db) == before


def test_open_access_tells_others_no_more_than_whether_all_is_well(environ: dict[str, str]) -> None:
    elsewhere = TestClient(application(no_token=True), base_url=HERE, client=("10.0.0.1", 50_000))
    assert elsewhere.get("/readyz").json() == {"healthy": False}


@pytest.mark.parametrize(
    ("client", "server", "is_local"),
    [
        (("127.0.0.1", 1), ("127.0.0.1", 8765), True), (("::1", 1), ("::1", 8765), True),
        (None, ("/run/ticker.sock", None), True), (None, ("0.0.0.0", 8765), False), (None, None, False),
        (("10.0.0.1", 1), ("/run/ticker.sock", None), False),
    ],
)  # fmt: skip
def test_a_peer_without_an_address_is_local_on_a_unix_socket_alone(client: Any, server: Any, is_local: bool) -> None:
    """A server that asks for the peer's address after the peer has gone is not told one."""
    scope = {"type": "http", "client": client, "server": server}
    assert (not_local(scope, Headers({"host": "localhost"})) == "") is is_local


def test_a_unix_socket_is_served(environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory, task: Task) -> None:
    path = str(tmp_path_factory.mktemp("s") / "s")
    with in_thread(uvicorn.Config(application(no_token=True), uds=path, log_config=None)):
        for host, expected in (("localhost", b"HTTP/1.1 200 "), ("evil.example", b"HTTP/1.1 403 ")):
            with socket.socket(socket.AF_UNIX) as wire:
                wire.connect(path)
                wire.sendall(f"GET {API}/tasks HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                assert wire.recv(65_536).startswith(expected)


# ----------------------------------------------------------------------------------------------------- other sites


@each
def test_open_access_refuses_a_request_under_a_foreign_name(
    one: Asking, client: TestClient, task: Task, db: Db
) -> None:
    before = rows(db)
    for host in FOREIGN_NAMES:
        assert "(Host)" in problem(one.ask(client, headers={"Host": host}), 403)["detail"]
    assert rows(db) == before


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:8765", "[::1]", "[::1]:8765", "127.1.2.3"]
)
def test_open_access_serves_this_host_under_its_names(host: str, client: TestClient) -> None:
    assert client.get(f"{API}/tasks", headers={"Host": host}).status_code == 200


def test_with_a_token_the_name_does_not_matter(with_token: TestClient) -> None:
    assert with_token.get(f"{API}/tasks", headers=BEARER | {"Host": "ticker.example"}).status_code == 200


@each_that_writes
def test_a_page_of_another_site_changes_nothing_here(one: Asking, client: TestClient, task: Task, db: Db) -> None:
    before = rows(db)
    for headers in FROM_OTHER_SITES:
        assert "another site" in problem(one.ask(client, headers=headers), 403)["detail"]
    assert rows(db) == before


@each_that_writes
def test_nor_with_the_password_that_the_browser_adds(
    one: Asking, with_token: TestClient, task: Task, db: Db
) -> None:  # fmt: skip
    before = rows(db)
    problem(one.ask(with_token, headers=basic("", TOKEN) | FOREIGN), 403)
    assert rows(db) == before


@each_that_writes
def test_nor_with_a_bearer_token_that_nobody_checked(one: Asking, serve: Serve, task: Task, db: Db) -> None:
    """The application around a trusted page may accept any `Authorization`, and allow other sites to send it (CORS)."""
    trusted, before = serve(application(trusted=True, tokens=[TOKEN])), rows(db)
    for shown in ("Bearer x", "Bearer", "bearer ", f"Bearer {TOKEN}x", f"Basic {TOKEN}"):
        for headers in FROM_OTHER_SITES:
            problem(one.ask(trusted, headers=headers | {"Authorization": shown}), 403)
    assert rows(db) == before
    assert one.ask(trusted, headers=BEARER | FOREIGN).status_code in one.operation.answers


@each_that_writes
def test_a_page_of_ours_may_and_so_may_a_program_that_names_no_origin(one: Asking, client: TestClient, task: Task) -> None:  # fmt: skip
    ours = {"Origin": "http://localhost:8765", "Sec-Fetch-Site": "same-origin"}
    assert one.ask(client, headers=ours).status_code in one.operation.answers
    assert one.ask(client).status_code in {*one.operation.answers, 404}  # it is gone by now, where it was deleted


def test_behind_a_proxy_that_changes_the_name_the_browser_is_believed(with_token: TestClient, task: Task) -> None:
    said = basic("", TOKEN) | {
        "Host": "10.0.0.7:8765",
        "Origin": "https://ticker.example",
        "Sec-Fetch-Site": "same-origin",
    }
    assert with_token.post(f"{API}/tasks/1/pause", json={}, headers=said).status_code == 200


@pytest.mark.parametrize("one", [one for one in WRITES if one.method == "POST"], ids=named)
def test_what_a_form_can_send_is_no_json_and_changes_nothing(
    one: Asking, client: TestClient, task: Task, db: Db
) -> None:
    before = rows(db)
    for kind in (
        "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx", ""
    ):  # fmt: skip
        headers = {"Content-Type": kind} if kind else {}
        problem(one.ask(client, json=None, content=b'{"function": "x", "every": "1m"}', headers=headers), 415)
        problem(one.ask(client, json=None, headers=headers), 415)
    assert rows(db) == before


def test_a_program_with_the_token_need_not_say_that_nothing_is_json(with_token: TestClient, task: Task) -> None:
    assert with_token.post(f"{API}/tasks/1/run", headers=BEARER).status_code == 202
    wrong = with_token.patch(f"{API}/tasks/1", content=b"{}", headers=BEARER | {"Content-Type": "text/plain"})
    problem(wrong, 415)


def test_no_other_site_is_told_that_it_may_ask(client: TestClient) -> None:
    asked = FOREIGN | {"Access-Control-Request-Method": "DELETE"}
    answer = client.options(f"{API}/tasks/1", headers=asked)
    problem(answer, 405)
    assert not [name for name in answer.headers if name.startswith("access-control")]


# ------------------------------------------------------------------------------------------------- too long, read-only


@pytest.mark.parametrize("one", WITH_BODY, ids=named)
def test_a_megabyte_is_refused_whether_its_length_is_told_or_not(
    one: Asking, client: TestClient, task: Task, db: Db
) -> None:  # fmt: skip
    before = rows(db)
    text = b'{"function": "' + b"x" * 2**20 + b'"}'
    assert "524,288 bytes" in problem(one.ask(client, json=None, content=text, headers=JSON), 413)["detail"]
    pieces = (text[n : n + 65_536] for n in range(0, len(text), 65_536))
    problem(one.ask(client, json=None, content=pieces, headers=JSON), 413)
    assert rows(db) == before


@pytest.mark.parametrize("length", ["524289", "9" * 400, "-1", "1e3", "٣", ""])
def test_a_length_that_cannot_be_right_is_refused(length: str, client: TestClient) -> None:
    said = JSON | {"Content-Length": length.encode()}
    problem(client.post(f"{API}/tasks", content=b"{}", headers=said), 413)


def test_a_body_just_within_the_limit_is_read(client: TestClient) -> None:
    text = b'{"function": "poll"}'
    answer = client.post(f"{API}/tasks", content=text + b" " * (BODY_AT_MOST - len(text)), headers=JSON)
    assert problem(answer, 422)["field"] == "every"


@each
def test_where_it_is_read_only_everything_can_be_read_and_nothing_changes(
    one: Asking, serve: Serve, task: Task, db: Db
) -> None:  # fmt: skip
    client, before = serve(TICKER_WEB_READ_ONLY="on"), rows(db)
    answer = one.ask(client)
    if one in WRITES:
        assert "read-only" in problem(answer, 403)["detail"]
    else:
        assert answer.status_code == 200
    assert rows(db) == before


def test_an_application_can_be_read_only_whatever_the_environment_says(serve: Serve, task: Task) -> None:
    client = serve(application(read_only=True, no_token=True))
    problem(client.delete(f"{API}/tasks/1"), 403)
    assert client.get(f"{API}/stats").json()["read_only"] is True


# --------------------------------------------------------------------------------------------------------- methods


@each
def test_another_method_is_refused_with_those_that_are_taken(
    one: Asking, client: TestClient, task: Task, db: Db
) -> None:
    taken = {other.method for other in ALL if other.operation.path == one.operation.path}
    before = rows(db)
    for method in {"PUT", "TRACE", "OPTIONS", "PROPFIND", "POST", "GET", "DELETE", "PATCH"} - taken:
        answer = client.request(method, one.path, headers=JSON)
        assert sentence("http.method_not_taken").begins(problem(answer, 405)["detail"])
        told = {name.strip() for name in answer.headers["allow"].split(",")}
        assert told - {"HEAD"} == taken
    assert rows(db) == before


@pytest.mark.parametrize(
    "path", ["", "/", "/nothing", "/tasks/", "/tasks/1/", "/tasks/1/nothing", "/tasks/1/why/x", "/v2"]
)
def test_what_is_not_there_is_told_as_a_problem(path: str, client: TestClient) -> None:
    assert problem(client.get(API + path), 404)["detail"] == sentence("http.nothing_at_this_address")


def test_a_head_is_answered_like_a_get_without_its_text(client: TestClient) -> None:
    answer = client.head(f"{API}/tasks")
    assert answer.status_code == 200 and answer.text == ""
