"""What docs/guides/recipes shows works as it stands there: the recipes that need nothing but what is here."""

import gzip
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest
from psycopg.types.string import TextLoader

import ticker
from tests.documents.recipes import RECIPES, files, process, run, write
from tests.running import PATIENCE, free_port, until

# -------------------------------------------------------------------------------------------------------- all recipes


@pytest.mark.parametrize("recipe", sorted(path.stem for path in RECIPES.glob("*.md")))
def test_a_recipe_is_in_the_index_says_when_it_was_run_and_its_links_and_programs_are_sound(recipe):
    text = (RECIPES / f"{recipe}.md").read_text(encoding="utf-8")
    if recipe != "README":
        assert f"]({recipe}.md)" in (RECIPES / "README.md").read_text(encoding="utf-8")
        assert re.search(r"2026-11-2\d", text) and files(recipe)
    for target, anchor in re.findall(r"\]\((?!http)([^)#]+)(?:#([^)]+))?\)", text):
        document = (RECIPES / target).read_text(encoding="utf-8")
        assert not anchor or anchor in anchors(document), (target, anchor)
    for path, program in files(recipe).items():
        if path.endswith(".py"):
            compile(program, path, "exec")


def anchors(document: str) -> set[str]:
    """Those that GitHub makes of headings, and those that are written out."""
    headings = re.findall(r"^#+ (.+)$", document, flags=re.MULTILINE)
    made = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a name="([^"]+)">', document))


# ------------------------------------------------------------------------------------------------------------ Django


@pytest.mark.slow
def test_a_connection_that_returns_json_as_text_is_read_all_the_same(environ, db):
    with psycopg.connect(environ["DATABASE_URL"], autocommit=True) as own:
        own.adapters.register_loader("jsonb", TextLoader)
        for number in (1, 2):
            task = ticker.register(own, "poll", every="1m", kwargs={"number": number})
            assert (task.kwargs, ticker.get(own, task).metadata) == ({"number": number}, {})
        [kwargs] = own.execute("SELECT kwargs FROM ticker.tasks").fetchone()
    assert kwargs == '{"number": 2}'  # theirs reads as before


# ------------------------------------------------------------------------------------------------------------ systemd


def unit(name: str, folder: Path) -> str:
    """A unit as it would stand on this machine: with this environment's commands, in that folder."""
    here = files("systemd")[f"etc/systemd/system/{name}"].replace(
        "/srv/myapp/venv/bin", str(Path(sys.executable).parent)
    )
    return here.replace("/srv/myapp", str(folder)).replace("/etc/myapp/environment", str(folder / "environment"))


def commands(name: str, folder: Path) -> list[list[str]]:
    return [line.split() for line in re.findall(r"^ExecStart=(.+)$", unit(name, folder), flags=re.MULTILINE)]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="this machine has no systemd-analyze")
def test_systemd_finds_no_fault_in_the_units(tmp_path):
    units = [path.rpartition("/")[2] for path in files("systemd")]
    assert len(units) == 4
    write(tmp_path, environment="", **{name: unit(name, tmp_path).replace("User=myapp\n", "") for name in units})
    done = subprocess.run(["systemd-analyze", "verify", *units], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_the_unit_of_the_ticker_says_that_it_began_lives_and_ends(environ, tmp_path):
    [command] = commands("ticker.service", tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(PATIENCE)
        told = os.environ | {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "2000000"}
        process = subprocess.Popen(command, cwd=tmp_path, env=told, stdout=subprocess.DEVNULL)
        heard = {"READY=1", "WATCHDOG=1"}
        while heard:
            heard -= set(systemd.recv(4096).decode().splitlines())
        process.terminate()
        while "STOPPING=1" not in systemd.recv(4096).decode():
            pass
        assert process.wait(PATIENCE) == 0


@pytest.mark.slow
def test_the_unit_of_a_deploy_brings_tables_and_tasks_into_step(environ, db, tmp_path):
    db.execute("DROP SCHEMA ticker CASCADE")
    write(tmp_path, **DECLARING)
    for command in commands("ticker-upgrade.service", tmp_path):
        run(tmp_path, *command)
    assert [task.name for task in ticker.list_tasks(db)] == ["reports.daily"]


@pytest.mark.slow
def test_the_unit_of_a_worker_runs_what_is_due(environ, db, tmp_path):
    write(tmp_path, **DECLARING)
    ticker.register(db, "reports.daily", every="1m")
    run(tmp_path, "ticker", "tick")
    [command] = commands("ticker-worker@.service", tmp_path)
    run(tmp_path, *command, "--burst")
    assert [run.result for run in ticker.list_runs(db)] == ["reported"]


DECLARING = {
    "myapp/__init__.py": "",
    "myapp/polls.py": """
from wrappers import task

@task("reports.daily", cron="0 6 * * *")
def report(): return "reported"
""",
}


# -------------------------------------------------------------------------------------------------- Docker and Heroku


@pytest.mark.slow
def test_the_services_of_compose_upgrade_tick_and_are_found_healthy(environ, db, tmp_path):
    yaml = pytest.importorskip("yaml")
    shown = files("docker")
    services = yaml.safe_load(shown["compose.yml"])["services"]
    [default] = re.findall(r"^CMD (\[.+\])$", shown["Dockerfile"], flags=re.MULTILINE)
    write(tmp_path, **DECLARING)
    db.execute("DROP SCHEMA ticker CASCADE")
    run(tmp_path, *services["upgrade"]["command"], TICKER_TASKS="myapp.polls")
    ticker.register(db, "reports.daily", name="now", every="1m")
    health = services["ticker"]["healthcheck"]["test"][1:]
    with process(tmp_path, *json.loads(default)):
        until(lambda: ticker.get(db, "now").waiting, "a job was pushed")
        assert "no worker listens" in run(tmp_path, *health, expected=1)
        run(tmp_path, *services["worker"]["command"], "--burst", TICKER_TASKS="myapp.polls")
        run(tmp_path, *health)
    assert ticker.get(db, "now").last_outcome == "succeeded"


@pytest.mark.slow
def test_the_page_of_compose_is_found_healthy_without_a_token_and_shows_nothing(environ, db, tmp_path):
    yaml = pytest.importorskip("yaml")
    web = yaml.safe_load(files("docker")["compose.yml"])["services"]["web"]
    command = [*web["command"], "--port", "0"]
    with process(tmp_path, *command, TICKER_WEB_TOKEN="opens for operators") as page:
        port = re.search(r":(\d+)/", page.stdout.readline())[1]
        run(tmp_path, *(part.replace("8765", port) for part in web["healthcheck"]["test"][1:]))
        refused = run(tmp_path, sys.executable, "-c", ASK_ONCE, f"http://127.0.0.1:{port}/tasks")
    assert refused.strip() == "401"


ASK_ONCE = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1]).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@pytest.mark.slow
def test_honcho_starts_the_whole_procfile_on_an_empty_database(environ, db, tmp_path):
    db.execute("DROP SCHEMA ticker CASCADE")
    write(tmp_path, **DECLARING, **files("heroku"))
    said = {"TICKER_TASKS": "myapp.polls", "TICKER_WEB_TOKEN": "opens for operators", "TICKER_TICK": "1s"}
    with process(tmp_path, sys.executable, "-m", "honcho", "start", "-p", str(free_port()), **said) as honcho:
        until(lambda: is_synchronized(db), "the release registered what is declared")
        ticker.register(db, "reports.daily", name="now", every="1m")
        until(lambda: ticker.get(db, "now").last_outcome == "succeeded", "the worker ran what the ticker pushed")
        assert honcho.poll() is None


def is_synchronized(db: Any) -> bool:
    if db.execute("SELECT to_regclass('ticker.ticker_version')").fetchone() == (None,):
        return False
    return bool(ticker.list_tasks(db, name="reports.daily"))


@pytest.mark.slow
def test_on_a_platform_the_release_ends_and_the_page_is_served(environ, db, tmp_path):
    db.execute("DROP SCHEMA ticker CASCADE")
    write(tmp_path, **DECLARING, **files("heroku"))
    lines = dict(re.findall(r"^(\w+): (.+)$", files("heroku")["Procfile"], flags=re.MULTILINE))
    run(tmp_path, "sh", "-c", lines["release"], TICKER_TASKS="myapp.polls")
    assert is_synchronized(db)
    with process(tmp_path, "sh", "-c", lines["web"], PORT="0", TICKER_WEB_TOKEN="opens for operators") as page:
        assert "http://0.0.0.0:" in "".join(page.stdout.readline() for _ in range(2))


# ------------------------------------------------------------------------------------------------------------- Sentry


@pytest.fixture
def collected() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A DSN, and the events that are sent there."""
    events: list[dict[str, Any]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            lines = (
                gzip.decompress(body).splitlines() if self.headers["Content-Encoding"] == "gzip" else body.splitlines()
            )
            events.extend(found for found in map(json.loads, lines) if "transaction" in found)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://key@127.0.0.1:{server.server_port}/1", events
        server.shutdown()


@pytest.mark.slow
def test_sentry_hears_of_an_error_from_either_worker_and_of_the_failed_task_from_the_ticker(
    environ, db, collected, tmp_path
):
    dsn, events = collected
    shown = files("sentry")
    write(tmp_path, **shown, **{"myapp/__init__.py": "", "myapp-1.dist-info/METADATA": "Name: myapp\nVersion: 1\n"})
    write(
        tmp_path,
        **{
            "myapp-1.dist-info/entry_points.txt": shown["pyproject.toml"]
            .replace('"', "")
            .replace("project.entry-points.", "")
        },
    )
    ticker.register(db, "mail.fetch", every="1m", kwargs={"host": "mail.example.org"})
    run(tmp_path, "ticker", "tick")
    run(tmp_path, sys.executable, "-m", "wrappers", "--tasks", "myapp.polls", "--burst", "polling", SENTRY_DSN=dsn)
    ticker.run_now(db, "mail.fetch")
    run(tmp_path, "ticker", "tick")
    stock = ["rq", "worker", "--burst", "-c", "myapp.errors", "--url", os.environ["REDIS_URL"], "polling"]
    run(tmp_path, *stock, SENTRY_DSN=dsn, TICKER_TASKS="myapp.polls")
    errors = [event for event in events if "exception" in event]
    assert [(event["transaction"], event["tags"]["ticker.kind"]) for event in errors] == [
        ("mail.fetch", "scheduled"), ("mail.fetch", "manual"),
    ]  # fmt: skip
    events.clear()
    with process(tmp_path, "ticker", "run", SENTRY_DSN=dsn, TICKER_NOTIFY="sentry"):
        until(lambda: events, "the ticker told Sentry")
    assert (events[0]["message"], events[0]["transaction"]) == ("mail.fetch: failed", "mail.fetch")
    assert events[0]["tags"]["ticker.task"] == "1"
    run(tmp_path, "ticker", "notify", "--test", SENTRY_DSN=dsn, TICKER_NOTIFY="sentry")
