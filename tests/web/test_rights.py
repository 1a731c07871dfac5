"""The rights in PostgreSQL that docs/operations/security.md names for the page are enough, and a viewer's change nothing."""

from typing import Any

import psycopg
import pytest

from tests.rights import with_user
from tests.web.asking import ALL, SCREENS, SCRIPT, WRITES, problem, rows
from tests.web.conftest import Serve
from ticker.tasks.fields import Task

Db = psycopg.Connection[Any]
ACTIONS = ("pause", "resume", "run", "disable", "enable", "delete")


@pytest.mark.slow
def test_a_viewers_rights_suffice_for_whatever_is_read(
    serve: Serve, task: Task, environ: dict[str, str], roles: dict[str, str]
) -> None:
    client = serve(DATABASE_URL=with_user(environ["DATABASE_URL"], roles["viewer"]), TICKER_WEB_READ_ONLY="on")
    for one in ALL:
        if one not in WRITES:
            assert one.ask(client).status_code == 200, one.path
    for path in (*SCREENS, "/metrics"):
        assert client.get(path).status_code == 200, path
    assert "permission" not in client.get("/readyz").text


@pytest.mark.slow
def test_a_viewers_rights_change_nothing(
    serve: Serve, task: Task, environ: dict[str, str], roles: dict[str, str], db: Db
) -> None:
    client, before = serve(DATABASE_URL=with_user(environ["DATABASE_URL"], roles["viewer"])), rows(db)
    answers = {one.operation.name: one.ask(client) for one in WRITES}
    assert rows(db) == before
    for name in (
        "delete_task",
        "pause_task",
        "run_task",
        "pause_owner",
        "run_owner",
        "declare_limit",
        "remove_limit",
    ):  # the others had nothing to write
        assert "permission denied" in problem(answers[name], 503)["detail"]


@pytest.mark.slow
@pytest.mark.parametrize("one", WRITES, ids=lambda one: one.operation.name)
def test_the_rights_of_the_page_suffice_for_each_operation(
    one: Any, serve: Serve, task: Task, environ: dict[str, str], roles: dict[str, str]
) -> None:
    client = serve(DATABASE_URL=with_user(environ["DATABASE_URL"], roles["page"]))
    assert one.ask(client).status_code in one.operation.answers


@pytest.mark.slow
def test_the_rights_of_the_page_suffice_for_its_forms_and_buttons(
    serve: Serve, task: Task, environ: dict[str, str], roles: dict[str, str], db: Db
) -> None:
    client = serve(DATABASE_URL=with_user(environ["DATABASE_URL"], roles["page"]))
    made = client.post("/tasks/create", data={"function": "poll", "schedule": "1m"}, headers=SCRIPT)
    changed = client.post("/tasks/1/change", data={"schedule": "5m"}, headers=SCRIPT)
    assert (made.status_code, changed.status_code) == (204, 204), made.text + changed.text
    for path, said in (("set", {"key": "a", "concurrency": "1"}), ("remove", {"key": "a"}), ("release", {"key": "a"})):
        assert client.post(f"/limits/{path}", data=said, headers=SCRIPT).status_code == 204
    assert client.post("/tasks/all?action=pause", headers=SCRIPT).status_code == 204
    for action in ACTIONS:
        assert client.post("/tasks/1/do", data={"action": action}, headers=SCRIPT).status_code == 204, action
    assert db.execute("SELECT name FROM ticker.tasks").fetchall() == [("poll",)]
