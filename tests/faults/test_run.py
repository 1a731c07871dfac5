"""The fault harness itself, for 20 seconds; the long version is `python -m tests.faults --minutes 30 --seed 1`."""

from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.faults import hosts, keys
from tests.faults.__main__ import main
from tests.faults.checker import check
from tests.faults.history import load, worlds
from tests.faults.kinds import ALONE, KINDS, LIMITS
from tests.faults.nemesis import schedule
from tests.faults.play import play

FAILOVERS = {kind.name for kind in KINDS.values() if kind.ha}


@pytest.mark.slow
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


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_minute_of_failovers_breaks_no_promise(tmp_path: Path) -> None:
    """A lagging standby is promoted among them, so that there are two worlds."""
    unhealed = play(opened(tmp_path), 60.0, seed=1, load=0.1, ha=True, only=FAILOVERS)
    histories = worlds(tmp_path)
    assert [*unhealed, *(str(violation) for history in histories for violation in check(history))] == []
    assert len(histories) > 1 and histories[-1].promotions
    assert {fault.kind for fault in histories[-1].faults} >= FAILOVERS


@pytest.mark.parametrize("option", ["--own-hosts", "--pooler"])
def test_pairs_of_servers_do_not_go_with_other_ways_to_them(option: str) -> None:
    said = CliRunner().invoke(main, ["--topology", "ha", option])
    assert said.exit_code == 2 and "--topology ha does not go with --own-hosts or --pooler" in said.output


def test_failovers_need_pairs_of_servers() -> None:
    assert {fault.kind for fault in schedule(7, 30 * 60.0, ha=True)} >= FAILOVERS
    assert not FAILOVERS & {fault.kind for fault in schedule(7, 30 * 60.0)}


def test_a_schedule_is_a_function_of_its_seed_and_uses_every_kind() -> None:
    planned = schedule(7, 30 * 60.0)
    assert planned == schedule(7, 30 * 60.0)
    assert planned != schedule(8, 30 * 60.0)
    assert len(planned) >= 400 and len({fault.kind for fault in planned}) >= 25


def opened(folder: Path) -> Path:
    """A folder that the user of the embedded PostgreSQL may pass through."""
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)
    return folder


def test_what_needs_a_storm_for_itself_has_one_in_a_long_run_and_none_in_a_short_one() -> None:
    alone = {kind.name for kind in KINDS.values() if kind.domain == ALONE}
    long = schedule(seed=1, seconds=1800)
    storms = [{fault.kind for fault in long if fault.storm == number} for number in {fault.storm for fault in long}]
    assert sorted(name for storm in storms for name in storm & alone) == sorted(alone)
    assert all(len(storm) == 1 for storm in storms if storm & alone)
    assert {fault.seconds for fault in long if fault.kind == "backlog"} == {300.0}
    assert not {fault.kind for fault in schedule(seed=1, seconds=60)} & alone


def test_a_run_of_chosen_kinds_has_no_others() -> None:
    assert {fault.kind for fault in schedule(1, 60, only=("backlog",))} == {"backlog"}
    assert {fault.kind for fault in schedule(1, 60, only=("backlog", "redis_flushed"))} == {"backlog", "redis_flushed"}


def test_limits_change_only_in_a_run_with_limits() -> None:
    kinds = {kind.name for kind in KINDS.values() if kind.domain == LIMITS}
    assert kinds <= {fault.kind for fault in schedule(7, 30 * 60.0, limits=True)}
    assert not kinds & {fault.kind for fault in schedule(7, 30 * 60.0)}


def test_every_second_task_has_keys_in_a_run_with_limits() -> None:
    assert [*islice(keys.in_turn(False), 3)] == [(), (), ()]
    turns = [*islice(keys.in_turn(True), 2 * len(keys.CHOICES))]
    assert turns[::2] == [()] * len(keys.CHOICES) and turns[1::2] == [*keys.CHOICES]
