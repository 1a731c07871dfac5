"""Whole histories with faults, on a simulated clock. A violation names its seed, and how to play it again."""

from collections import Counter
from uuid import UUID

import pytest

from tests.doubles import NOW, SECOND
from tests.simulation.__main__ import story
from tests.simulation.history import play
from tests.simulation.memory import MemoryTables
from tests.simulation.postgres import PostgresTables
from ticker.engine.tick import tick


def judged(seeds, tables_of, **options):
    """Plays all seeds; the counts, or the story of the first one that broke a promise."""
    counts = Counter()
    for seed in seeds:
        result = play(seed, tables_of(), **options)
        assert not result.violations, story(result)
        counts += result.counts
    return counts


@pytest.fixture
def postgres(environ, database_url, redis):
    """Makes empty tables over real servers, again and again."""
    made = []

    def tables():
        while made:
            made.pop().close()
        made.append(PostgresTables(database_url, redis))
        return made[0]

    yield tables
    while made:
        made.pop().close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_histories_with_faults_keep_every_promise():
    counts = judged(range(150), MemoryTables, size=0.5)
    assert len([name for name in counts if name.startswith("fault: ")]) >= 40
    assert {"drop: too_early", "drop: still_running", "drop: duplicate", "drop: paused", "drop: clock"} <= set(counts)


@pytest.mark.promise("S1", "S4", "S5", "S6", "S9")
@pytest.mark.timeout(300)
def test_histories_over_real_servers_keep_every_promise(postgres):
    counts = judged(range(1_000, 1_005), postgres, size=0.3)
    assert counts["starts"] > 100


@pytest.mark.slow
def test_the_same_seed_gives_the_same_history():
    assert play(7, MemoryTables()).history.lines == play(7, MemoryTables()).history.lines


@pytest.mark.slow
def test_a_job_in_a_workers_hands_has_one_record_though_redis_was_wiped(postgres):
    tables, now = postgres(), NOW
    store = tables.another_store()
    tables.register(now, "it", every=10)
    tick(store, tables.queue, now)
    job = tables.take()
    tick(store, tables.queue, now + 10 * SECOND)
    tables.wipe()
    tick(store, tables.queue, now + 11 * SECOND)
    tables.start(now + 12 * SECOND, job, str(UUID(int=1)))
    assert [run.reason for run in tables.run_rows() if run.occurrence == job.occurrence] == ["expired"]


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_many_thousand_histories_keep_every_promise():
    judged(range(10_000, 20_000), MemoryTables)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_many_histories_over_real_servers_keep_every_promise(postgres):
    judged(range(2_000, 2_300), postgres)
