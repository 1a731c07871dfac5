"""Pairs of servers: each host reaches both through proxies of its own, whichever is the primary."""

from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from tests import sentinels
from tests.faults.topology import databases, redises
from ticker.queue.sentinel import Client

pytestmark = pytest.mark.slow


def test_sentinels_name_the_proxies_of_the_host_that_asks(tmp_path: Path) -> None:
    with redises() as servers, ExitStack() as opened:
        way, url = servers.way(tmp_path / "record.jsonl", opened, "secret")
        client = Client.from_url(url)
        client.set("key", "value")
        servers.await_in_step()
        servers.kill()
        servers.start()
        assert Client.from_url(url).get("key") == b"value"
        commands = [proxy.summary()["commands"] for proxy in way.proxies[: len(sentinels.DATA)]]
        assert [[name in counts for name in ("SET", "GET")] for counts in commands] == [[True, False], [False, True]]


@pytest.mark.parametrize("rewind", [True, False], ids=["rewound", "copied"])
def test_an_old_primary_follows_the_new_one_and_may_take_its_place_again(tmp_path: Path, rewind: bool) -> None:
    tmp_path.chmod(0o755)
    with databases() as servers, ExitStack() as opened:
        _, url = servers.way(tmp_path, opened, "secret")
        first = servers.primary
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("CREATE TABLE numbers (n int)")
        for number in (1, 2):
            with psycopg.connect(url, autocommit=True) as db:
                db.execute("INSERT INTO numbers VALUES (%s)", [number])
            servers.kill()
            servers.promote()
            servers.rejoin(rewind=rewind)
        with psycopg.connect(url, autocommit=True) as db:
            assert db.execute("SELECT n FROM numbers ORDER BY n").fetchall() == [(1,), (2,)]
        assert servers.primary is first


def test_what_a_lagging_standby_lacks_is_only_in_the_old_primary() -> None:
    with databases() as servers:
        with psycopg.connect(servers.url, autocommit=True) as db:
            db.execute("CREATE TABLE numbers (n int)")
        servers.await_in_step()
        with servers.behind():
            with psycopg.connect(servers.url, autocommit=True) as db:
                db.execute("INSERT INTO numbers VALUES (1)")
            servers.kill()
        servers.promote()
        with servers.old_primary("--default_transaction_read_only=on") as old:
            found = []
            for url in (old, servers.url):
                with psycopg.connect(url) as db:
                    found += [db.execute("SELECT count(*) FROM numbers").fetchone()]
        assert found == [(1,), (0,)]
        servers.rejoin(rewind=True)
