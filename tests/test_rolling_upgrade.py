"""An upgrade while others work: two builds of the package, old and new tickers and workers on the same tables."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis import Redis

import ticker
from tests import next_release
from tests.db.freeze import FOLDER
from tests.running import PATIENCE, ROOT, until
from ticker.db import checks
from ticker.db.connections import connect

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

POLLS = """
import os
import psycopg
import ticker, wrappers
from wrappers import task

assert ticker.__file__.startswith(os.environ["SITE"]) and wrappers.__file__.startswith(os.environ["SITE"])

def note(run):
    with psycopg.connect(os.environ["DATABASE_URL"]) as db:
        db.execute("INSERT INTO noted VALUES (%s, %s, %s, %s)", [run.task_id, run.occurrence, os.environ["BUILD"], run.name])

@task("single")
def single(run):
    note(run)

@task("grouped", batch=20, concurrency=4)
def grouped(run):
    note(run)
"""
SINGLE, GROUPED = 6, 40
PACKAGE = ("ticker", "wrappers", "rq_ticker_pytest.py", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE")


def run(*command: str | Path, cwd: Path, **environ: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def build(source: Path, folder: Path) -> Path:
    """Returns a folder that contains the installed wheel, without what it depends on."""
    uv = os.environ.get("UV") or shutil.which("uv")
    assert uv, "uv is not installed"
    run(uv, "build", "-q", "--wheel", "-o", folder / "dist", source, cwd=folder)
    [wheel] = (folder / "dist").glob("*.whl")
    run(
        uv,
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--python",
        sys.executable,
        "--target",
        folder / "site",
        wheel,
        cwd=folder,
    )
    return folder / "site"


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The builds of this tree, and of one with the revisions of a next release."""
    found = {}
    for name in ("old", "new"):
        folder = tmp_path_factory.mktemp(name)
        listed = run("git", "ls-files", "-z", *PACKAGE, cwd=ROOT).split("\0")
        for path in filter(None, listed):
            (folder / "source" / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, folder / "source" / path)
        if name == "new":
            next_release.add(folder / "source" / "ticker" / "migrations" / "versions")
        found[name] = build(folder / "source", folder)
    return found


class Fleet:
    """Tickers and workers of two builds, each in its own process."""

    def __init__(self, sites: dict[str, Path], folder: Path) -> None:
        self.sites, self.folder = sites, folder
        self.running: dict[subprocess.Popen[bytes], str] = {}
        (folder / "polls.py").write_text(POLLS)

    def environ(self, build: str) -> dict[str, str]:
        return {"PYTHONPATH": f"{self.sites[build]}:{self.folder}", "BUILD": build, "SITE": f"{self.sites[build]}/"}

    def command(self, build: str, *words: str) -> str:
        return run(sys.executable, "-m", "ticker", *words, cwd=self.folder, **self.environ(build))

    def start(self, build: str, *words: str, name: str = "") -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *words], cwd=self.folder, stdout=log, stderr=log, start_new_session=True,
                env=os.environ | self.environ(build) | {"BUILD": name or build},
            )  # fmt: skip
        self.running[process] = name or build
        return process

    def ticker(self, build: str) -> subprocess.Popen[bytes]:
        return self.start(build, "ticker", "run", "--tick", "0.5s")

    def worker(self, build: str, name: str = "") -> subprocess.Popen[bytes]:
        return self.start(build, "wrappers", "--tasks", "polls", "polling", name=name)

    def stop(self, *processes: subprocess.Popen[bytes]) -> None:
        """Ends them as a process manager does, and waits for the jobs at work."""
        for process in processes:
            process.terminate()
        for process in processes:
            assert process.wait(PATIENCE) == 0, (self.folder / "log").read_text()[-2000:]
            del self.running[process]


@pytest.fixture
def fleet(sites: dict[str, Path], tmp_path: Path) -> Iterator[Fleet]:
    found = Fleet(sites, tmp_path)
    yield found
    for process in found.running:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def frozen(
    new_database: Callable[[], str], environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, fleet: Fleet
) -> str:
    """A database of the newest revision that is frozen, or else one of this tree. Its revision."""
    url = new_database()
    monkeypatch.setenv("DATABASE_URL", url)
    with connect(url) as db:
        if dumps := sorted(FOLDER.glob("*.sql")):
            db.execute(dumps[-1].read_text(encoding="utf-8"))
            fleet.command("old", "db", "adopt", "--resume")
            db.execute("DELETE FROM ticker.tasks; DELETE FROM ticker.runs")
        fleet.command("old", "db", "upgrade")
        return checks.revision(db, "ticker").name


@pytest.mark.filterwarnings("ignore:every 4 s is not")
def test_old_and_new_processes_share_the_work_before_during_and_after_an_upgrade(
    frozen: str, fleet: Fleet, redis: Redis
) -> None:
    with connect(os.environ["DATABASE_URL"]) as db:
        db.execute("CREATE TABLE noted (task bigint, occurrence timestamptz, build text, name text)")
        for number in range(SINGLE + GROUPED):
            function = "single" if number < SINGLE else "grouped"
            ticker.register(db, function, name=f"{function} {number}", every="4s", box="2.5s")

        def more(*builds: str) -> None:
            """Waits until each of these builds has run functions of both kinds since now."""
            [(begin,)] = db.execute("SELECT clock_timestamp()").fetchall()
            noted = "SELECT DISTINCT build, split_part(name, ' ', 1) FROM noted WHERE occurrence > %s"
            wanted = {(build, kind) for build in builds for kind in ("single", "grouped")}
            until(lambda: wanted <= set(db.execute(noted, [begin])), f"runs of {builds}")

        old = [fleet.ticker("old"), fleet.ticker("old"), fleet.worker("old"), fleet.worker("old")]
        more("old")
        fleet.command("new", "db", "upgrade")
        assert checks.revision(db, "ticker").name > frozen
        more("old")
        new_ticker, new_worker = fleet.ticker("new"), fleet.worker("new")
        more("old", "new")
        fleet.stop(*old)
        assert checks.revision(db, "ticker").name in fleet.command("old", "db", "upgrade")
        restarted = [fleet.ticker("old"), fleet.worker("old", name="old, restarted")]
        more("old, restarted", "new")
        fleet.stop(*restarted)
        more("new")
        fleet.stop(new_ticker)
        until(lambda: redis.llen("rq:queue:polling") == 0 and is_done(db), "all jobs have run")
        fleet.stop(new_worker)
        check_records(db)
    assert "Traceback" not in (fleet.folder / "log").read_text()


def is_done(db: psycopg.Connection[Any]) -> bool:
    open_ = "SELECT FROM ticker.tasks WHERE waiting <> '{}' OR run_token IS NOT NULL"
    return db.execute(f"{open_} UNION ALL SELECT FROM ticker.runs WHERE state <> 'ended'").fetchone() is None


def check_records(db: psycopg.Connection[Any]) -> None:
    """Every run that has a record ran once, and every run has a record."""
    noted = db.execute("SELECT task, occurrence FROM noted ORDER BY 1, 2").fetchall()
    assert len(set(noted)) == len(noted)
    succeeded = "SELECT task_id, occurrence FROM ticker.runs WHERE outcome = 'succeeded' ORDER BY 1, 2"
    assert db.execute(succeeded).fetchall() == noted
    together = (
        "SELECT max(count) FROM (SELECT count(*) FROM ticker.runs WHERE function = 'grouped' GROUP BY job_id) AS job"
    )
    others = "SELECT outcome, reason, count(*) FROM ticker.runs WHERE outcome <> 'succeeded' GROUP BY 1, 2"
    assert {outcome for outcome, _, _ in db.execute(others)} <= {"dropped"}, db.execute(others).fetchall()
    together = (
        "SELECT max(count) FROM (SELECT count(*) FROM ticker.runs WHERE function = 'grouped' GROUP BY job_id) AS job"
    )
    assert db.execute(together).fetchone() > (1,)
    assert {task for task, _ in noted} == {task.id for task in ticker.list_tasks(db)}
