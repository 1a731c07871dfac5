"""How the tests ask: every operation of the table with something that it takes, and what is in the tables."""

import re
from dataclasses import dataclass
from typing import Any

import psycopg
from starlette.testclient import TestClient

from ticker.web.api.operation import OPERATIONS, Operation

HERE = "http://localhost:8765"
API = "/api/v1"
SCREENS = (
    "/",
    "/tasks",
    "/tasks/1",
    "/tasks/1/edit",
    "/tasks/new",
    "/tasks/all?action=pause",
    "/tasks/grid",
    "/tasks/due",
    "/tasks/spread",
    "/owners",
    "/owners/one?owner=mail_channels:5",
    "/limits",
    "/runs",
    "/runs?by=reason",
    "/processes",
    "/api",
)
TOKEN = "a token of 24 characters"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
JSON = {"Content-Type": "application/json"}
SCRIPT = {"HX-Request": "true"}
"""What the page's script sends with each request, and no form of another site can."""
FOREIGN = {"Origin": "https://evil.example"}
TABLES = (
    "tasks",
    "runs",
    "events",
    "tickers",
    "functions",
    "templates",
    "notices",
    "limits",
    "limited_keys",
    "slots",
    "pauses",
)


@dataclass(frozen=True)
class Asking:
    """An operation, and a request that it takes where there are a task 1 of mail_channels:5 with a run 1, and a limit."""

    operation: Operation

    @property
    def method(self) -> str:
        return self.operation.method

    @property
    def path(self) -> str:
        path = self.operation.path.replace("{id}", "1").replace("{owner:path}", "mail_channels:5")
        return API + path.replace("{key:path}", "imap.gmail.com")

    @property
    def body(self) -> dict[str, Any] | None:
        return None if self.operation.body is None else dict(self.operation.example or {})

    @property
    def fields(self) -> list[str]:
        """The names of the fields that the body may have."""
        return list((self.operation.body or {"properties": {}})["properties"])

    def ask(self, client: TestClient, **more: Any) -> Any:
        return client.request(self.method, self.path, **({"json": self.body} | more))


PREPARED = """
INSERT INTO ticker.limited_keys (key, closed_until) VALUES ('imap.gmail.com', '2100-01-01Z');
INSERT INTO ticker.pauses (scope, value, by, reason) VALUES ('group', 'news', 'ann', 'upgrade');
"""
"""A key to release, and a pause of no task to end."""
ALL = [Asking(operation) for operation in OPERATIONS]
WRITES = [one for one in ALL if one.method != "GET" and one.operation.name != "validate_schedule"]
WITH_BODY = [one for one in ALL if one.body is not None]


def named(one: Asking) -> str:
    return one.operation.name


def rows(db: psycopg.Connection[Any]) -> list[Any]:
    """All that the tables hold."""
    return [db.execute(f"SELECT t::text FROM ticker.{name} t ORDER BY 1").fetchall() for name in TABLES]  # type: ignore[arg-type]


def problem(answer: Any, status: int) -> dict[str, Any]:
    """The problem details of an answer, which are what they should be."""
    assert answer.status_code == status, (answer.status_code, answer.text)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    found: dict[str, Any] = answer.json()
    assert found["status"] == status and found["type"] == "about:blank" and found["title"]
    assert found["detail"].isprintable() and 5 < len(found["detail"]) < 500, found
    return found


def text_of(page: Any) -> str:
    """Returns the text of a page, without its elements."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.text))
