"""The fault harness itself, for 20 seconds; the long version is `python -m tests.faults --minutes 30 --seed 1`."""

from pathlib import Path

import pytest

from tests.faults import hosts
from tests.faults.checker import check
from tests.faults.history import load
from tests.faults.nemesis import schedule
from tests.faults.play import play


@pytest.mark.timeout(240)
def test_twenty_seconds_of_faults_break_no_promise(tmp_path: Path) -> None:
    unhealed = play(opened(tmp_path), 20.0, seed=1, load=0.2)
    history = load(tmp_path)
    assert [*unhealed, *map(str, check(history))] == []
    assert len(history.runs) > 20 and len(history.faults) > 3


@pytest.mark.netns
@pytest.mark.timeout(240)
def test_a_minute_on_hosts_of_their_own_with_cables_pulled_breaks_no_promise(tmp_path: Path) -> None:
    if not hosts.possible():
        pytest.skip("network namespaces need root and iproute2")
    unhealed = play(opened(tmp_path), 60.0, seed=3, load=0.4, own_hosts=True)
    history = load(tmp_path)
    assert [*unhealed, *map(str, check(history))] == []
    assert "cable_pulled" in {fault.kind for fault in history.faults}


def test_a_schedule_is_a_function_of_its_seed_and_uses_every_kind() -> None:
    planned = schedule(7, 30 * 60.0)
    assert planned == schedule(7, 30 * 60.0)
    assert planned != schedule(8, 30 * 60.0)
    assert len(planned) >= 500 and len({fault.kind for fault in planned}) >= 25


def opened(folder: Path) -> Path:
    """A folder that the user of the embedded PostgreSQL may pass through."""
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)
    return folder
