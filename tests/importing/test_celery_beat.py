"""The reader of django-celery-beat, with 20 entries made by its own models."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from tests.importing.golden import check_refusals
from tests.sentences import sentence
from ticker.db.connections import Connection
from ticker.errors import ConfigurationError
from ticker.importing import plan
from ticker.importing.found import Found, Where
from ticker.importing.sources import django_celery_beat
from ticker.importing.sources.samplers import Seen

pytestmark = pytest.mark.sources


def read() -> list[Found]:
    return django_celery_beat.opened(Where()).read(datetime.now(UTC))


@pytest.fixture
def founds(beat_db: Connection) -> dict[str, Found]:
    return {found.id: found for found in read()}


def test_an_entry_waits_for_its_box_or_is_refused_with_sentences(founds: dict[str, Found]) -> None:
    assert Counter(found.verdict for found in founds.values()) == {"decide": 11, "refused": 9}
    check_refusals("celery_beat", founds.values(), of="tables")


def test_an_entry_keeps_its_fields_and_its_next_time(founds: dict[str, Found], beat_db: Connection) -> None:
    [(last, changed)] = beat_db.execute(
        "SELECT max(last_run_at), max(date_changed) FILTER (WHERE name = 'each hour')"
        "  FROM django_celery_beat_periodictask"
    ).fetchall()
    minute, hour = founds["each minute"], founds["each hour"]
    assert minute.next_there == last + timedelta(minutes=1)
    assert minute.wanted == {
        "function": "tests.importing.jobs:poll", "name": "each minute", "args": [1], "description": "a mailbox",
        "every": 60.0, "first": minute.next_there,
    }  # fmt: skip
    assert hour.next_there == changed + timedelta(hours=1), "it has never run"
    assert (hour.wanted["kwargs"], hour.wanted["queue"], len(hour.notes)) == ({"channel_id": 2}, "mail", 2)


def test_cron_entries_keep_their_meaning_and_their_zone(founds: dict[str, Found]) -> None:
    friday, office = founds["friday the 13th"].wanted, founds["office hours"].wanted
    assert (friday["calendar"], friday["zone"]) == ("Fri *-*-13 06:00:00", "Europe/Berlin")
    assert (office["cron"], office["zone"]) == ("*/15 8-17 * * 1-5", "America/New_York")
    assert not founds["at night"].enabled


def test_bounds_and_single_times_are_those_of_beat(founds: dict[str, Found]) -> None:
    begins = founds["begins later"]
    assert begins.next_there == begins.wanted["starts"] == begins.wanted["ends"] - timedelta(days=9)
    assert founds["one off"].wanted["max_runs"] == 1
    assert founds["once later"].next_there == founds["once later"].wanted["at"]
    assert [decision.field for decision in founds["once, passed"].decisions] == ["box", "at"]


def test_reading_writes_nothing(founds: dict[str, Found], beat_db: Connection) -> None:
    rows = "SELECT *  FROM django_celery_beat_periodictask ORDER BY id"
    before = beat_db.execute(rows).fetchall()
    read()
    assert beat_db.execute(rows).fetchall() == before


def test_a_database_without_the_tables_is_one_sentence(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, check=sentence("imports.no_beat_tables").within):
        read()


def test_a_shadow_counts_what_beat_has_run_and_knows_the_last_time(
    beat_db: Connection, founds: dict[str, Found]
) -> None:
    sampler = django_celery_beat.opened(Where()).sampler([founds["each minute"], founds["often"]])
    assert sampler.look() == {}
    update = (
        "UPDATE django_celery_beat_periodictask SET total_run_count = 3, last_run_at = %s WHERE name = 'each minute'"
    )
    at = datetime.now(UTC)
    beat_db.execute(update, [at])
    assert sampler.look() == {"each minute": Seen([at], more=2)}
    assert sampler.look() == {}


def test_the_plan_of_the_entries_has_these_verdicts(founds: dict[str, Found]) -> None:
    open_ = plan.make(plan.Options("django-celery-beat"), datetime.now(UTC))
    assert open_.counts == {"same": 0, "changed": 0, "decide": 10, "refused": 10}  # also 0.5 s
    decided = plan.make(
        plan.Options("django-celery-beat", decide=("*:box=1s", "once, passed:at=2099-01-01T00:00:00Z")),
        datetime.now(UTC),
    )
    assert decided.counts == {"same": 9, "changed": 1, "decide": 0, "refused": 10}, "3 s is no multiple of the tick"
