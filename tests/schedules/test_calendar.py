"""Calendar events, compared with what systemd says of them.

`scenarios/systemd-calendar.jsonl` was recorded with `systemd-analyze calendar --iterations=6 --base-time=...` of systemd
252 (Debian 12), with TZ=UTC: 57 expressions, from one instant in March and one before Berlin's autumn change.
"""

from datetime import datetime

import pytest

from tests.schedules.expressions import RECORDED
from tests.sentences import sentence
from ticker.errors import BadInput
from ticker.schedules import calendar
from ticker.schedules.kinds import times


@pytest.mark.parametrize("record", RECORDED, ids=lambda r: f"{r['expression']} {r['base'][:10]}")
def test_normal_form_and_times_are_those_of_systemd(record):
    if "error" in record:
        with pytest.raises(BadInput):
            calendar.parse(record["expression"], None)
        return
    schedule = calendar.parse(record["expression"], None)
    written = schedule.text + (f" {schedule.zone.key}" if schedule.zone.key != "UTC" else "")
    found = [x.isoformat().replace("+00:00", "Z") for x in times(schedule, datetime.fromisoformat(record["base"]), 6)]
    assert (written, found) == (record["normalized"], record["times"])


def test_the_normal_form_reads_back_to_itself():
    for record in RECORDED:
        if "error" not in record:
            schedule = calendar.parse(record["expression"], None)
            assert calendar.parse(schedule.text, schedule.zone) == schedule


def test_a_zone_beside_another_in_the_text_is_refused():
    from ticker.schedules.zones import zone

    with pytest.raises(BadInput, check=sentence("errors.zone_of_its_own", zone="Europe/Paris").within):
        calendar.parse("02:30 Europe/Berlin", zone("zone", "Europe/Paris"))
    assert calendar.parse("02:30 Europe/Berlin", zone("zone", "Europe/Berlin")).zone.key == "Europe/Berlin"
