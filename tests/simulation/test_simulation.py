"""Whole histories with faults, on a simulated clock. A violation names its seed, and how to play it again."""

from collections import Counter
from dataclasses import replace
from uuid import UUID

import pytest

from tests import doubles, elastic
from tests.doubles import NOW, SECOND, MemoryBatch, MemoryStore, is_due
from tests.simulation import memory
from tests.simulation.__main__ import story
from tests.simulation.history import play
from tests.simulation.memory import MemoryTables
from tests.simulation.postgres import PostgresTables
from tests.slots import Key
from ticker.engine import key_limits
from ticker.engine import tick as pass_
from ticker.engine.tick import tick
from ticker.model import Reason


def judged(seeds, tables_of, **options):
    """Plays all seeds; the counts, or the story of the first one that broke a promise."""
    counts = Counter()
    for seed in seeds:
        result = play(seed, tables_of(), **options)
        assert not result.violations, story(result, pauses=options.get("pauses", False))
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
    assert {
        "drop: too_early",
        "drop: still_running",
        "drop: duplicate",
        "drop: paused",
        "drop: closed",
        "drop: clock",
    } <= set(counts)
    assert counts["people: stop"] > 10
    assert counts["drop: paused"] > 10 and counts["drop: closed"] > 10
    assert counts["tasks let go"] > 50 and counts["ticks that met the budget"] > 10
    assert counts["judged: intervals in force"] > 500 and counts["judged: pushes of tasks with hours"] > 100


@pytest.mark.slow
@pytest.mark.promise("S1", "S4", "S5", "S6", "S9")
@pytest.mark.timeout(300)
def test_histories_over_real_servers_keep_every_promise(postgres):
    counts = judged(range(1_000, 1_005), postgres, size=0.3)
    assert counts["starts"] > 100


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_histories_with_limits_keep_every_promise():
    counts = judged(range(60), MemoryTables, size=0.5, limits=True)
    assert {"drop: no_room", "holds", "people: limit", "people: keys"} <= set(counts)
    assert counts["judged: starts with limits"] > 1_000 and counts["judged: due after a tick, with limits"] > 100


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_histories_with_limits_over_real_servers_keep_every_promise(postgres):
    counts = judged(range(1_000, 1_005), postgres, size=0.3, limits=True)
    assert counts["judged: starts with limits"] > 50 and counts["holds"]


def sizes_without(kind, right=Key.sizes):
    return lambda key: {of: size for of, size in right(key).items() if of != kind}


def changes_but_none_if_limited(self, row, reason, *args, right=MemoryTables._changes):
    return {} if reason is Reason.NO_ROOM else right(self, row, reason, *args)


def chosen_but_the_oldest(tasks, *args, right=key_limits.choose):
    return right(sorted(tasks, key=lambda task: task.next_run)[1:], *args)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_histories_with_many_pauses_keep_every_promise():
    counts = judged(range(80), MemoryTables, size=0.5, pauses=True)
    assert counts["drop: closed"] > 100 and counts["tasks let go"] > 500 and counts["ticks that met the budget"] > 50


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_histories_with_many_pauses_over_real_servers_keep_every_promise(postgres):
    counts = judged(range(1_000, 1_005), postgres, size=0.3, pauses=True)
    counts += judged(range(1_000, 1_003), postgres, size=0.3, pauses=True, limits=True)
    assert counts["drop: closed"] > 5 and counts["tasks let go"] > 20


def loses_what_waits_for_a_gate(self, row, reason, *args, right=MemoryTables._changes):
    return {} if reason is Reason.CLOSED else right(self, row, reason, *args)


def lets_all_go(self, now, limit, right=MemoryBatch.let_go):
    return right(self, now, 1_000)


def ends_the_own_pause(self, now, limit, right=MemoryBatch.let_go):
    went = right(self, now, limit)
    for id_ in [*self._tasks._mine]:
        self._tasks.change(id_, paused_by=None)
    return went


def claims_as_if_nothing_were_paused(self, *args, right=MemoryBatch.claim_waiting):
    return [replace(task, is_closed=False) for task in right(self, *args)]


def takes_off(self, occurrences):
    for id_, due, _ in occurrences:
        self._tasks.change(id_, waiting=tuple(w for w in self._tasks[id_].waiting if w != due))


def broken_by(breaks, **options):
    """Whether one of a few histories breaks this."""
    broken = (
        line
        for size in (0.5, 1)
        for seed in range(60)
        for line in play(seed, MemoryTables(), size=size, steps=False, **options).violations
    )
    return any(breaks in line for line in broken)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("breaks", "of", "name", "wrong"),
    [
        pytest.param("S9", MemoryTables, "_changes", loses_what_waits_for_a_gate, id="what waits for a gate is forgotten"),
        pytest.param("S6: test1234-t", MemoryTables, "_is_paused", lambda *_: False, id="starts ignore pauses"),
        pytest.param("S6: claim_due", MemoryBatch, "is_pushable", lambda self, *args: is_due(*args), id="claims ignore pauses"),
        pytest.param("S6: claim_waiting", MemoryBatch, "claim_waiting", claims_as_if_nothing_were_paused, id="the sweep ignores pauses"),
        pytest.param("S6: claim_planned", doubles, "may_be_pushed", lambda *_: True, id="planned runs ignore pauses"),
        pytest.param("S9", MemoryBatch, "wait_again", takes_off, id="what the sweep finds without a job is forgotten"),
        pytest.param("L4: a task still waits", MemoryStore, "grant_budget", lambda *_: None, id="what waits never goes"),
        pytest.param("the budget is", MemoryBatch, "let_go", lets_all_go, id="the budget is ignored"),
        pytest.param("granted at", doubles, "grant", lambda *_: True, id="each tick grants the budget"),
        pytest.param("which was not let go", doubles, "backlog", lambda *_: None, id="what no tick has at_gate needs no budget"),
        pytest.param("S6", MemoryBatch, "let_go", ends_the_own_pause, id="own pauses end with those of many"),
        pytest.param("L1: task", memory, "leaves_its_pause", lambda *_: False, id="no edit takes a task out of its pause"),
    ],
)  # fmt: skip
def test_a_wrong_variant_of_pauses_breaks_a_promise(breaks, of, name, wrong, monkeypatch):
    monkeypatch.setattr(of, name, wrong)
    assert broken_by(breaks, pauses=True)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("breaks", "of", "name", "wrong"),
    [
        pytest.param("were allowed", Key, "sizes", sizes_without("run"), id="runs take no slots"),
        pytest.param("was start", Key, "sizes", sizes_without("start"), id="starts take no tokens"),
        pytest.param("was closed", Key, "is_held", lambda key, now: False, id="holds are ignored"),
        pytest.param("due after the tick", memory, "give_back", lambda keys, token: [], id="ends free no slot"),
        pytest.param("met a full limit", memory, "take", lambda keys, wanted, *_: not wanted, id="starts never find a slot"),
        pytest.param("due after the tick", key_limits, "choose", chosen_but_the_oldest, id="ticks leave the oldest"),
        pytest.param("S9", MemoryTables, "_changes", changes_but_none_if_limited, id="what has no room is lost"),
    ],
)  # fmt: skip
def test_a_wrong_variant_of_limits_breaks_a_promise(breaks, of, name, wrong, monkeypatch):
    monkeypatch.setattr(of, name, wrong)
    assert broken_by(breaks, limits=True)


def never_short_again(row, outcome, *args, right=elastic.pace):
    return row.pace_ms if outcome in elastic.WORK else right(row, outcome, *args)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("breaks", "of", "name", "wrong"),
    [
        pytest.param("the interval in force was", elastic, "pace", lambda *_: None, id="intervals never grow"),
        pytest.param("L2", elastic, "pace", never_short_again, id="intervals are never short again"),
        pytest.param("L2", elastic, "paced", lambda row, *_: row.next_run, id="ends leave the next run where it is"),
        pytest.param("outside the hours", pass_, "in_hours", lambda task, instant: instant, id="ticks ignore hours"),
    ],
)
def test_a_wrong_variant_of_rhythms_breaks_a_promise(breaks, of, name, wrong, monkeypatch):
    monkeypatch.setattr(of, name, wrong)
    assert broken_by(breaks)


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
def test_many_thousand_histories_with_limits_keep_every_promise():
    judged(range(20_000, 25_000), MemoryTables, limits=True)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_many_thousand_histories_with_many_pauses_keep_every_promise():
    judged(range(30_000, 34_000), MemoryTables, pauses=True)
    judged(range(34_000, 35_000), MemoryTables, pauses=True, limits=True)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_many_histories_over_real_servers_keep_every_promise(postgres):
    judged(range(2_000, 2_300), postgres)
    judged(range(3_000, 3_100), postgres, limits=True)
    judged(range(4_000, 4_100), postgres, pauses=True)
