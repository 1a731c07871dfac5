"""Schemathesis asks a real `ticker web` whatever its description allows, and what it forbids.

`python -m tests.web.schemathesis_run [--examples N] [--seed N]` makes servers of its own, or takes those of DATABASE_URL (whose
database it fills) and REDIS_URL.

One check is left out: that whatever fits the description is taken. That a task has one schedule, that an expression is cron, that
tolerance, box and grace fit into the interval is beyond what JSON Schema can say; the tests in this folder are for that.
"""

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import ticker
from tests.running import servers_or_given
from tests.web.serving import serving
from ticker import migrations
from ticker.db import connections

LEFT_OUT = "positive_data_acceptance"
TASKS = 5
PATIENCE = 1800.0  # seconds: of 2,000 requests on a loaded machine


@dataclass(frozen=True)
class Asked:
    """How many requests were made, what Schemathesis said of them, and what the server did."""

    requests: int
    complete: bool
    failed: bool
    words: str
    server: str


def ask(database_url: str, *, examples: int, seed: int, phases: str = "examples,coverage,fuzzing,stateful") -> Asked:
    """Of a server with a few tasks, that a token opens."""
    fill(database_url)
    token = secrets.token_urlsafe(32)
    with tempfile.TemporaryDirectory() as folder, serving(TICKER_WEB_TOKEN=token) as served:
        report = Path(folder, "report.json")
        ended = subprocess.run(
            [sys.executable, "-m", "schemathesis.cli", "run", f"{served.address}api/v1/openapi.json", "--no-color",
             "--header", f"Authorization: Bearer {token}", "--exclude-checks", LEFT_OUT, "--phases", phases,
             "--max-examples", str(examples), "--seed", str(seed), "--warnings", "off",
             "--report", "json", "--report-json-path", str(report)],
            cwd=folder, capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
        found = json.loads(report.read_text())
    assert token not in served.said
    cases, complete = found["test_cases"], found["complete"]
    failed = ended.returncode != 0 or bool(cases["unique_failures"] or cases["errored"])
    return Asked(cases["generated"], complete, failed, ended.stdout + ended.stderr, served.said)


def fill(database_url: str) -> None:
    with connections.connect(database_url) as db:
        for number in range(TASKS):
            ticker.register(db, "mail.fetch", owner=f"mail_channels:{number}", every="1m")
        ticker.run_now(db, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=20, help="requests of each operation in each phase")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with servers_or_given() as servers:
        os.environ |= {"DATABASE_URL": servers.database_url, "REDIS_URL": servers.redis_url}
        migrations.upgrade(servers.database_url)
        found = ask(servers.database_url, examples=options.examples, seed=options.seed)
    sys.stdout.write(
        f"{found.words}\n{found.requests} requests, {'failed' if found.failed else 'all as described'}\n{found.server}"
    )
    sys.exit(found.failed)


if __name__ == "__main__":
    main()
