"""Entries of django-celery-beat become tasks and go back, and a living beat runs none of them at the same time."""

import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import ticker
from tests.importing.conftest import PROGRAM
from tests.importing.witness import monitored
from tests.running import Ticking, until
from tests.sentences import sentence
from ticker.db.connections import Connection, connect
from ticker.errors import ConfigurationError
from ticker.importing import take_over
from ticker.importing.found import Found, Where
from ticker.importing.sources import django_celery_beat
from ticker.importing.sources.django_celery_beat import DjangoCeleryBeat
from ticker.importing.take_over import Moved
from ticker.tasks.fields import Task

pytestmark = pytest.mark.sources
ENABLED = "SELECT name FROM public.django_celery_beat_periodictask WHERE enabled ORDER BY name"
GOOD = {"each hour", "each minute", "begins later", "friday the 13th", "office hours", "often", "once later", "one off"}
"""The enabled entries that can be taken."""


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What happens while the take-over waits for beat, one after another; later, nothing does."""
    happens: list[Callable[[], None]] = []
    monkeypatch.setattr(django_celery_beat, "pause", lambda: happens.pop(0)() if happens else None)
    return happens


def chosen(founds: list[Found]) -> list[Found]:
    """All that is not refused, or past; the box is the usual one."""
    return [one for one in founds if not one.refusals and one.id not in ("too often", "once, passed")]


def taken(db: Connection, source: DjangoCeleryBeat | None = None) -> Moved:
    return take_over.take_over(source or opened(), db, "ticker", chosen)


def opened() -> DjangoCeleryBeat:
    return django_celery_beat.opened(Where())


def enabled(db: Connection) -> set[str]:
    return {name for (name,) in db.execute(ENABLED)}


def tasks(db: Connection) -> dict[str, Task]:
    return {task.name: task for task in ticker.list_tasks(db)}


def test_an_entry_is_disabled_when_its_task_is_inserted(beat_db: Connection, pauses: list[Callable[[], None]]) -> None:
    before = enabled(beat_db)
    assert {*taken(beat_db).moved} == GOOD | {"at night"}
    assert before - enabled(beat_db) == GOOD
    assert tasks(beat_db).keys() == GOOD | {"at night"}
    assert not tasks(beat_db)["at night"].enabled
    assert tasks(beat_db)["each minute"].next_run >= datetime.now(UTC) + timedelta(seconds=50), "after the change-over"
    assert taken(beat_db).moved == []


def test_nothing_changes_if_the_process_dies_before_the_commit(
    beat_db: Connection, pauses: list[Callable[[], None]]
) -> None:
    before, source = enabled(beat_db), opened()
    park = source.park

    def die(*given: Any) -> list[str]:
        assert park(*given) == []
        source._disabled.clear()
        raise KeyboardInterrupt

    source.park = die  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        taken(beat_db, source)
    assert (enabled(beat_db), tasks(beat_db)) == (before, {})


def writes_back(name: str, ran: int) -> Callable[[], None]:
    """Beat writes a whole row back, as it was before it was disabled, and counts the runs since."""

    def write() -> None:
        with connect(os.environ["DATABASE_URL"]) as beat:
            beat.execute(WRITE_BACK, [not ran, ran, name])

    return write


WRITE_BACK = """
UPDATE public.django_celery_beat_periodictask SET enabled = enabled OR %s, total_run_count = total_run_count + %s, last_run_at = now() WHERE name = %s
"""


def test_a_row_that_beat_writes_back_is_disabled_again(beat_db: Connection, pauses: list[Callable[[], None]]) -> None:
    pauses += [lambda: None, writes_back("each hour", 0)]
    taken(beat_db)
    assert ("each hour" in enabled(beat_db), pauses) == (False, [])


def test_what_beat_has_run_meanwhile_runs_an_interval_later(
    beat_db: Connection, pauses: list[Callable[[], None]]
) -> None:
    pauses += [lambda: None, writes_back("each hour", 1)]
    at = datetime.now(UTC)
    taken(beat_db)
    assert (tasks(beat_db)["each hour"].next_run >= at + timedelta(hours=1), pauses) == (True, [])
    taken_from = tasks(beat_db)["each hour"].metadata["taken_from"]
    assert taken_from.items() > {"source": "django-celery-beat", "id": "each hour", "runs": 1}.items()


def interrupted() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("goes_back", [False, True], ids=["taken", "given-back"])
def test_what_beat_ran_before_an_interrupted_call_saw_it_is_not_run_too_early(
    beat_db: Connection, pauses: list[Callable[[], None]], goes_back: bool
) -> None:
    pauses += [lambda: None, interrupted]
    at = datetime.now(UTC)
    with pytest.raises(KeyboardInterrupt):
        taken(beat_db)
    with connect(os.environ["DATABASE_URL"]) as beat:
        beat.execute(ONCE, [0, "one off"])
    writes_back("each hour", 1)()
    if goes_back:
        take_over.give_back(opened(), beat_db, "ticker")
        there = {one.id: one.next_there for one in opened().read(datetime.now(UTC)) if one.enabled}
        assert "one off" not in there
        assert there["each hour"] >= at + timedelta(hours=1)
    else:
        taken(beat_db)
        assert {name for name, task in tasks(beat_db).items() if task.enabled} == GOOD - {"one off"}
        assert tasks(beat_db)["each hour"].next_run >= at + timedelta(hours=1)


ONCE = """
UPDATE public.django_celery_beat_periodictask SET enabled = false, total_run_count = %s, last_run_at = now() WHERE name = %s
"""


@pytest.mark.parametrize("name", ["one off", "once later"])
@pytest.mark.parametrize("counts", [(1,), (0,), (1, 0)], ids=["ran", "ran-and-disabled", "ran-then-disabled"])
def test_what_beat_has_run_meanwhile_and_runs_once_does_not_run_again(
    beat_db: Connection, pauses: list[Callable[[], None]], name: str, counts: tuple[int, ...]
) -> None:
    def runs(count: int) -> Callable[[], None]:
        def run() -> None:
            with connect(os.environ["DATABASE_URL"]) as beat:
                beat.execute(ONCE, [count, name])

        return run

    pauses += [lambda: None, *map(runs, counts)]
    assert {*taken(beat_db).moved} == GOOD | {"at night"}
    assert (tasks(beat_db).keys(), pauses) == (GOOD - {name} | {"at night"}, [])


def test_what_beat_runs_before_it_is_disabled_is_read_again(
    beat_db: Connection, pauses: list[Callable[[], None]]
) -> None:
    source, at = opened(), datetime.now(UTC)
    park, once = source.park, [writes_back("each hour", 1)]
    source.park = lambda *given: ([beat() for beat in once], once.clear(), park(*given))[2]  # type: ignore[method-assign]
    taken(beat_db, source)
    assert tasks(beat_db)["each hour"].next_run >= at + timedelta(hours=1)


def test_a_beat_that_goes_on_is_named(beat_db: Connection, pauses: list[Callable[[], None]]) -> None:
    pauses += [lambda: None, *[writes_back("each minute", 1)] * 3]
    with pytest.raises(ConfigurationError, check=sentence("imports.beat_runs_on", entry="each minute").within):
        taken(beat_db)


def test_an_entry_that_is_enabled_again_is_named_and_taken_again(
    beat_db: Connection, pauses: list[Callable[[], None]]
) -> None:
    taken(beat_db)
    assert list(take_over.remains(opened(), datetime.now(UTC))) == []
    writes_back("each hour", 0)()
    [warning] = take_over.remains(opened(), datetime.now(UTC))
    assert "(each hour)" in warning
    taken(beat_db)
    assert "each hour" not in enabled(beat_db)


def test_a_task_that_has_run_here_keeps_its_row(beat_db: Connection, pauses: list[Callable[[], None]]) -> None:
    taken(beat_db)
    beat_db.execute("UPDATE ticker.tasks SET last_run = now() WHERE name = 'each minute'")
    before = tasks(beat_db)["each minute"].id
    writes_back("each minute", 0)()
    pauses += [lambda: None, writes_back("each minute", 1)]
    assert taken(beat_db).moved == ["each minute"]
    assert tasks(beat_db)["each minute"].id == before


def test_entries_go_back_with_their_next_times(beat_db: Connection, pauses: list[Callable[[], None]]) -> None:
    before = enabled(beat_db)
    taken(beat_db)
    due = {name: task.next_run for name, task in tasks(beat_db).items()}
    assert {*take_over.give_back(opened(), beat_db, "ticker").moved} == GOOD
    assert enabled(beat_db) == before
    assert tasks(beat_db).keys() == {"at night"}, "beat had disabled it, too"
    back = {one.id: one.next_there for one in opened().read(datetime.now(UTC))}
    for name in ("each minute", "each hour", "often"):
        assert timedelta(0) <= back[name] - due[name] <= timedelta(seconds=1)


def test_an_entry_that_beat_no_longer_has_keeps_its_task(beat_db: Connection, pauses: list[Callable[[], None]]) -> None:
    taken(beat_db)
    beat_db.execute("DELETE FROM public.django_celery_beat_periodictask WHERE name = 'each hour'")
    result = take_over.give_back(opened(), beat_db, "ticker")
    assert {*result.moved} == GOOD - {"each hour"}
    assert sentence("imports.not_there").within(result.left["each hour"])
    assert tasks(beat_db).keys() == {"at night", "each hour"}


def test_what_was_taken_is_forgotten_and_does_not_go_back(
    beat_db: Connection, pauses: list[Callable[[], None]]
) -> None:
    taken(beat_db)
    before = enabled(beat_db)
    assert {*take_over.forget_old(opened(), beat_db, "ticker")} == GOOD | {"at night"}
    assert take_over.give_back(opened(), beat_db, "ticker").moved == []
    assert (enabled(beat_db), tasks(beat_db).keys()) == (before, GOOD | {"at night"})
    assert [task.metadata for task in tasks(beat_db).values()] == [{}] * 9
    edits = beat_db.execute(
        "SELECT DISTINCT by FROM ticker.events WHERE what = 'edited' AND words = 'metadata changed'"
    )
    assert edits.fetchall() == [("ticker import",)]


def test_tables_in_another_database_are_not_taken_over(
    beat_db: Connection, database_url: str, pauses: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = django_celery_beat.opened(Where(os.environ["DATABASE_URL"]))
    monkeypatch.setenv("DATABASE_URL", database_url)
    with (
        connect(database_url) as ours,
        pytest.raises(ConfigurationError, check=sentence("imports.other_database").within),
    ):
        taken(ours, source)
    assert enabled(beat_db) > GOOD


def test_a_living_beat_and_the_ticker_never_enqueue_an_entry_too_early(
    beat_db: Connection, beat_python: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(django_celery_beat, "MAX_INTERVAL", 1.0)
    monkeypatch.setattr(django_celery_beat, "CHANGE_OVER", timedelta(seconds=8))
    subprocess.run([beat_python, PROGRAM, "quick"], check=True)
    url = environ["REDIS_URL"]
    with monitored(url) as commands, Ticking() as _:

        def there() -> dict[str, list[float]]:
            seen = defaultdict(list)
            for at, words in commands:
                if words.startswith("LPUSH celery "):
                    seen[json.loads(words.removeprefix("LPUSH celery "))["headers"]["periodic_task_name"]].append(at)
            return seen

        def here() -> dict[str, list[float]]:
            names, seen = {str(task.id): name for name, task in tasks(beat_db).items()}, defaultdict(list)
            for at, words in commands:
                if words.startswith("RPUSH rq:queue:polling "):
                    for job in words.split()[2:]:
                        seen[names[job.split("-")[1].removeprefix("t")]].append(at)
            return seen

        with subprocess.Popen([beat_python, PROGRAM, "beat"]) as beat:
            try:
                until(lambda: len(there()) == 8 and all(len(at) > 2 for at in there().values()), "beat's runs")
                assert len(taken(beat_db).moved) == 8
                until(lambda: len(here()) == 8 and all(len(at) > 1 for at in here().values()), "our runs")
            finally:
                beat.kill()
        last, first = there(), here()
    for number in range(8):
        name, every = f"quick-{number}", 3 + number % 3
        gaps = [b - a for a, b in pairwise(sorted(last[name] + first[name]))]
        assert min(gaps) >= every * 0.75, (name, last[name], first[name])
        assert max(last[name]) < min(first[name])
