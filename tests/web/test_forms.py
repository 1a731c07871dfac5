"""The token by which a form of ours is known, and which names are those of this host."""

from typing import Any

import psycopg
import pytest
from starlette.datastructures import Headers
from starlette.testclient import TestClient

from tests.web.asking import TOKEN, rows
from ticker.task import Task
from ticker.web.access import COOKIE, Forms, loopback

Db = psycopg.Connection[Any]


def test_the_token_of_a_form_fits_its_own_cookie_alone() -> None:
    forms = Forms([TOKEN])
    cookie = forms.cookie(Headers({}))
    mine = {"cookie": f"{COOKIE}={cookie}", "x-csrf-token": forms.token(cookie)}
    assert forms.fits(Headers(mine)) and forms.cookie(Headers(mine)) == cookie
    assert Forms([TOKEN]).fits(Headers(mine))  # of another process, with the same token
    for other in (
        mine | {"x-csrf-token": forms.token(forms.cookie(Headers({})))}, mine | {"x-csrf-token": ""},
        {"x-csrf-token": forms.token("")}, {"cookie": f"{COOKIE}=", "x-csrf-token": forms.token("")},
        mine | {"cookie": f"{COOKIE}={cookie[:-1]}x"}, mine | {"cookie": "\x00;;;=\xff"},
    ):  # fmt: skip
        assert not forms.fits(Headers(other))
    assert not Forms([]).fits(Headers(mine)) and not Forms(["another token of ours"]).fits(Headers(mine))


def test_a_form_without_its_token_changes_nothing(client: TestClient, task: Task, db: Db) -> None:
    before = rows(db)
    answer = client.post("/tasks/1/do", data={"action": "delete"})
    assert answer.status_code == 403 and rows(db) == before


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("[::1]", True), ("0.0.0.0", False),
     ("::", False), ("", False), ("example.org", False), ("10.1.1.1", False), ("localhost.", False)],
)  # fmt: skip
def test_which_names_are_those_of_this_host_alone(host: str, expected: bool) -> None:
    assert loopback(host) is expected
