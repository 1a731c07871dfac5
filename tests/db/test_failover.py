"""PostgreSQL with a standby: after a promotion, a ticker and a worker that run go on by themselves."""

from typing import Any

import psycopg
import pytest

import ticker
from tests.factories import create_trace
from tests.running import Ticking, until, working
from tests.standbys import with_standby
from ticker import embedded, migrations

pytestmark = [pytest.mark.slow, pytest.mark.promise("L1")]


@pytest.mark.parametrize("synchronous", [True, False], ids=["synchronous", "asynchronous"])
def test_ticks_and_runs_go_on_after_the_promotion_of_a_standby(
    monkeypatch: pytest.MonkeyPatch, synchronous: bool
) -> None:
    with embedded.valkey() as valkey, with_standby(synchronous=synchronous) as (primary, standby, url):
        monkeypatch.setenv("DATABASE_URL", url)
        monkeypatch.setenv("REDIS_URL", valkey.url)
        migrations.upgrade(url)
        with psycopg.connect(url, autocommit=True) as db:
            create_trace(db)
            task = ticker.register(db, "plain", every="1s")

        def runs(server: str) -> list[Any]:
            with psycopg.connect(server, autocommit=True) as db:
                return db.execute(
                    "SELECT occurrence, outcome FROM ticker.runs WHERE task_id = %s", [task.id]
                ).fetchall()

        with Ticking(), working():
            until(lambda: len(runs(primary.url)) >= 2, "runs on the primary")
            known = runs(primary.url)
            if not synchronous:
                until(lambda: len(runs(standby.url)) >= len(known), "a standby that has them, too")
            primary.kill()
            standby.promote()
            until(lambda: len(runs(url)) >= len(known) + 3, "runs on the promoted standby")
        after = runs(url)
        assert {occurrence for occurrence, _ in known} <= {occurrence for occurrence, _ in after}
        assert len({occurrence for occurrence, _ in after}) == len(after)
