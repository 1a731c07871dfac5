"""The page over many rows: `python -m tests.bench web [--tasks N] [--runs N] [--rounds N] [--crowds 1]`.

Each screen, and each list of the HTTP API, asked for again and again over so many tasks and runs: the time from the request to
the whole answer, without a network. One task in a hundred fails, one run in fifty was dropped. With `--crowds 1` once more with
all tasks late, then failing, waiting, paused, disabled; and with a task of 20 runs that made 10,000 pieces each.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from tests.bench.figures import Figure, Stage, parser, show, stage

SPREAD = """
UPDATE ticker.tasks SET next_run = clock_timestamp() + id % 300 * interval '1 s', failures = CASE WHEN id % 100 = 0 THEN 3 ELSE 0 END,
    owner_id = (id / 5)::text, name = 'poll ' || id % 5, last_run = clock_timestamp() - id % 300 * interval '1 s'"""
RUNS = """
INSERT INTO ticker.runs (task_id, task_name, function, owner_type, owner_id, kind, occurrence, state, outcome, reason, started_at,
    ended_at, created_at, checked_at, checked_last_run, every_ms, tolerance_ms, worker, host, pid, job_id)
SELECT t.id, t.name, t.function, t.owner_type, t.owner_id, 'scheduled', w.at, 'ended',
    CASE WHEN n %% 50 = 0 THEN 'dropped' WHEN n %% 51 = 0 THEN 'failed' ELSE 'succeeded' END,
    CASE WHEN n %% 50 = 0 THEN 'too_early' WHEN n %% 51 = 0 THEN 'OSError: no route to host' ELSE '' END,
    CASE WHEN n %% 50 <> 0 THEN w.at + interval '2 s' END, w.at + interval '3 s', w.at, w.at, w.at - interval '1 minute', 300000, 15000,
    'worker', 'host', 1, 'j' || n
FROM generate_series(1, %(runs)s) n
    JOIN ticker.tasks t ON t.id = n %% %(tasks)s + 1, LATERAL (
    SELECT clock_timestamp() - (%(runs)s - n) * interval '3 milliseconds' - interval '10 s' AS at) w"""
TICKER = """
INSERT INTO ticker.tickers (id, host, pid, started_at, last_tick_at, last_report)
VALUES (gen_random_uuid(), 'host', 1, clock_timestamp(), clock_timestamp(), '{}')"""

CROWDS = {
    "all late": "next_run = clock_timestamp() - interval '1 hour' - id %% 300 * interval '1 s'",
    "all failing": "failures = 1 + id %% 100", "all waiting": "waiting = ARRAY[clock_timestamp()]",
    "all paused": "paused_by = 'ann'", "all disabled": "enabled = false",
    "a tenth late, the newest": "next_run = clock_timestamp() - interval '1 hour' * CASE WHEN id > %(tasks)s * 0.9 THEN 1 ELSE -1 END",
}  # fmt: skip
WELL = """
UPDATE ticker.tasks SET next_run = clock_timestamp() + interval '1 hour', failures = 0, waiting = '{}', paused_by = NULL, enabled = true"""
PIECES = """
WITH parent AS (
    INSERT INTO ticker.runs (task_id, kind, occurrence, state, outcome, started_at, ended_at, pieces)
    SELECT 5, 'scheduled', at, 'ended', 'succeeded', at, at + interval '30 s', 10000
    FROM generate_series(1, 20) n, LATERAL (SELECT clock_timestamp() - (21 - n) * interval '1 minute' AS at) w RETURNING id, occurrence)
INSERT INTO ticker.runs (task_id, kind, parent_id, item, state, outcome, due_at, started_at, ended_at)
SELECT 5, 'piece', id, to_jsonb(n), 'ended', 'succeeded', occurrence, occurrence, occurrence + n * interval '1 ms'
FROM parent, generate_series(1, 10000) n ORDER BY id, n"""

SCREENS = (
    "/", "/tasks", "/tasks?after=50000", "/tasks?state=failing", "/tasks?state=late", "/tasks?search=poll+4",
    "/tasks?search=found+nowhere", "/tasks?owner=mail_channels:77", "/tasks/77", "/tasks/77/edit", "/tasks/new",
    "/tasks/preview?schedule=5m", "/owners", "/owners?state=failing", "/owners/one?owner=mail_channels:77",
    "/tasks/grid", "/tasks/grid?span=30d", "/tasks/grid?queue=polling", "/tasks/due", "/tasks/spread", "/tasks/spread/plan", "/?span=7d", "/?span=30d",
    "/runs", "/runs?outcome=failed", "/runs?reason=too_early", "/runs?function=nowhere&search=refused",
    "/runs?owner=mail_channels:77", "/runs?task=77", "/runs/77", "/runs?by=reason", "/runs?by=owner", "/processes",
    "/api/v1/tasks", "/api/v1/tasks?search=found+nowhere", "/api/v1/runs", "/api/v1/runs?outcome=failed", "/api/v1/owners",
    "/api/v1/stats", "/api/v1/tasks/77/why", "/metrics",
)  # fmt: skip
CROWDED = (
    "/", "/tasks", *(f"/tasks?state={state}" for state in ("late", "failing", "paused", "inactive", "waiting")),
    "/tasks?state=late&search=nowhere", "/api/v1/tasks?search=found+nowhere", "/api/v1/tasks?function=nowhere",
    "/api/v1/tasks?queue=nowhere", "/owners", "/owners?state=failing", "/owners?state=late", "/owners?state=paused",
    "/api/v1/stats",
)  # fmt: skip
OF_PIECES = (
    "/tasks/5", "/runs?task=5", "/api/v1/tasks/5/why", "/runs/{parent}", "/api/v1/runs/{parent}", "/runs/{piece}",
)  # fmt: skip


def main() -> None:
    options = parser(__doc__, tasks=100_000, runs=1_000_000, rounds=7, crowds=0).parse_args()
    with stage(options.tasks) as on:
        on.db.execute(SPREAD)
        on.db.execute(RUNS, {"tasks": options.tasks, "runs": options.runs})
        on.db.execute(TICKER)
        on.db.execute("VACUUM ANALYZE ticker.tasks, ticker.runs")
        os.environ.update(DATABASE_URL=on.database_url, REDIS_URL=on.redis_url)
        figures = asked(options.rounds, SCREENS)
        if options.crowds:
            figures += crowded(on, options.rounds)
        show(figures, options.json, {"tasks": options.tasks, "runs": options.runs})


def crowded(on: Stage, rounds: int) -> list[Figure]:
    figures = []
    for name, crowd in CROWDS.items():
        on.db.execute(WELL)
        on.db.execute(f"UPDATE ticker.tasks SET {crowd}", {"tasks": on.tasks})
        on.db.execute("VACUUM ANALYZE ticker.tasks")
        figures += [replace(one, what=f"{name}: {one.what}") for one in asked(rounds, CROWDED)]
    on.db.execute(PIECES)
    on.db.execute("VACUUM ANALYZE ticker.runs")
    [(parent, piece)] = on.db.execute("SELECT max(parent_id), max(id) FROM ticker.runs WHERE kind = 'piece'").fetchall()
    screens = [screen.format(parent=parent, piece=piece) for screen in OF_PIECES]
    return figures + [replace(one, what=f"10,000 pieces: {one.what}") for one in asked(rounds, screens)]


def asked(rounds: int, screens: Sequence[str]) -> list[Figure]:
    from starlette.testclient import TestClient

    from ticker.web import application

    figures = []
    with TestClient(application(trusted=True), base_url="http://localhost") as client:
        for screen in screens:
            took = []
            for _ in range(rounds):
                began = time.perf_counter()
                answer = client.get(screen)
                took.append(1000 * (time.perf_counter() - began))
            assert answer.status_code == 200, (screen, answer.status_code, answer.text[:300])
            figures.append(Figure(screen, median(took), "ms", max(took)))
    return figures


if __name__ == "__main__":
    main()
