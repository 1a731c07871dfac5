"""The part of the smoke list that no other test shows: one task, by commands and processes alone.

The other tests with the marker `smoke` stand in their rooms. `pytest -m smoke` runs the list, `.ci/lanes` runs it with
other versions.
"""

import subprocess
import sys
from urllib.request import Request, urlopen

import pytest

import ticker
from tests.running import PATIENCE, ROOT, Ticking, until, working
from tests.web.serving import serving

POLL = """
from wrappers import task

@task("poll")
def poll(run):
    print("attempt", run.attempt)
    if run.attempt == 1:
        raise OSError("no route")
"""


def command(*words: str) -> str:
    process = [sys.executable, "-m", "ticker", *words]
    return subprocess.run(process, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, timeout=PATIENCE).stdout


@pytest.mark.slow
@pytest.mark.smoke
def test_a_failure_and_its_retry_are_told_by_health_why_top_and_the_page(environ, db):
    db.execute("DROP SCHEMA ticker CASCADE")
    command("db", "upgrade")
    command("add", "poll", "--every", "10m", "--retries", "1", "--backoff", "1ms")
    with Ticking(), working(patch=POLL):
        until(lambda: ticker.get(db, "poll").last_outcome == "succeeded", "the retry")
        command("health")
    assert [(run.attempt, run.outcome) for run in ticker.list_runs(db)] == [(2, "succeeded"), (1, "failed")]
    assert "OSError: no route" in command("why", "poll")
    assert "poll" in command("top")
    with serving() as page:
        shown = Request(f"{page.address}tasks/1", headers={"Authorization": f"Bearer {page.token}"})
        with urlopen(shown, timeout=PATIENCE) as answer:
            assert "OSError: no route" in answer.read().decode()
