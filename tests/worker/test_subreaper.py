"""Each test plays a worker in a fork, with horses under it. Whoever is left alive holds the worker's pipe open, so
that a test which ends has shown that all are dead."""

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.running import is_alive
from tests.worker.horses import NEVER, Say, horse, in_fork, sleep, stop_itself, until
from wrappers.sandbox import subreaper
from wrappers.sandbox.subreaper import become_subreaper, children, kill_new_children

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper and /proc")


def worker(body: Callable[[Say], object]) -> tuple[int, str]:
    def as_subreaper(say: Say) -> None:
        assert become_subreaper()
        body(say)

    return horse(as_subreaper)


def run_horse(function: Callable[[], object], ends_by: signal.Signals = signal.SIGKILL) -> None:
    """A horse in its own process group, as RQ's are, runs `function` and dies; it is reaped, as RQ does."""

    def lead() -> None:
        os.setpgrp()
        function()
        os.kill(os.getpid(), ends_by)

    os.waitpid(in_fork(lead), 0)


def ignore_signals_and_sleep() -> None:
    for signum in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError):
            signal.signal(signum, signal.SIG_IGN)
    sleep()


def daemonise() -> None:
    os.setsid()
    in_fork(sleep)


def family() -> None:
    """Three generations, every member in a group of its own."""

    def branch(depth: int) -> None:
        os.setpgrp()
        for _ in range(2 if depth else 0):
            in_fork(branch, depth - 1)
        sleep()

    branch(2)


@pytest.mark.parametrize(
    "child", [sleep, ignore_signals_and_sleep, pytest.param(stop_itself, id="stop"), daemonise, family]
)
def test_nothing_that_a_horse_left_stays_alive(child: Callable[[], None]) -> None:
    def body(say: Say) -> None:
        before = children()
        run_horse(lambda: in_fork(child))
        until(lambda: children() - before)  # a daemon's parent may still be on its way out
        say("killed" if kill_new_children(before) else "none")
        assert children() == before

    assert worker(body) == (0, "killed")


def hop() -> None:
    """A process that always runs away into a new one, in the same group."""
    while os.fork() == 0:
        pass


def hop_out() -> None:
    while os.fork() == 0:
        os.setsid()


def multiply() -> None:
    """Each process makes more of them, each in its own session: 300 in all."""
    tokens, purse = os.pipe()
    os.write(purse, b"." * 300)
    while os.read(tokens, 1):
        if os.fork() == 0:
            os.setsid()


@pytest.mark.slow
@pytest.mark.parametrize("child", [hop, hop_out, multiply])
def test_it_catches_a_process_that_keeps_forking(child: Callable[[], None]) -> None:
    def bounded() -> None:
        """No danger to the machine if we fail: every generation ends at the same time."""
        end = time.monotonic() + 10

        def watch_the_clock() -> None:
            if time.monotonic() > end:
                os._exit(0)

        os.register_at_fork(after_in_child=watch_the_clock)
        child()

    def body(say: Say) -> None:
        run_horse(lambda: in_fork(bounded))
        kill_new_children(set(), patience=NEVER)
        say("all" if not children() else f"{len(children())} left")

    assert worker(body) == (0, "all")


@pytest.mark.slow
def test_a_whole_group_dies_in_one_stroke(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subreaper, "_kill", lambda pid: True)

    def body(say: Say) -> None:
        run_horse(lambda: (in_fork(sleep), in_fork(sleep)))
        say(f"{kill_new_children(set(), patience=NEVER)}")

    assert worker(body) == (0, "2")


@pytest.mark.slow
def test_children_from_before_are_left_alone() -> None:
    def body(say: Say) -> None:
        alive, ended = in_fork(sleep), in_fork(int)
        until(lambda: os.waitid(os.P_PID, ended, os.WEXITED | os.WNOHANG | os.WNOWAIT))
        before = children()
        assert before == {alive, ended}
        run_horse(lambda: in_fork(sleep))
        say(f"{kill_new_children(before)}")
        assert os.waitpid(alive, os.WNOHANG) == (0, 0)
        assert os.waitpid(ended, 0) == (ended, 0)  # its owner waits for it
        os.kill(alive, signal.SIGKILL)

    assert worker(body) == (0, "1")


def test_a_child_in_the_group_of_the_worker_dies_alone() -> None:
    def body(say: Say) -> None:
        neighbour = in_fork(sleep)
        before = children()
        in_fork(sleep)
        say(f"{kill_new_children(before)}")
        assert os.waitpid(neighbour, os.WNOHANG) == (0, 0)
        os.kill(neighbour, signal.SIGKILL)

    assert worker(body) == (0, "1")


def test_a_child_that_ended_by_itself_is_reaped_and_not_counted() -> None:
    def body(say: Say) -> None:
        ended = in_fork(int)
        os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)
        say(f"{kill_new_children(set())}")
        with pytest.raises(ChildProcessError):
            os.waitpid(ended, 0)

    assert worker(body) == (0, "0")


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child in the kernel's deepest sleep does not die; here, one whose kill is lost."""
    monkeypatch.setattr(subreaper, "_kill", lambda pid: True)

    def body(say: Say) -> None:
        survivor = in_fork(sleep)
        say(f"{kill_new_children(set(), patience=0.1)}")
        assert children() == {survivor}
        os.kill(survivor, signal.SIGKILL)

    assert worker(body) == (0, "0")


def test_a_child_that_we_may_not_kill_costs_no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subreaper, "_kill", lambda pid: False)

    def body(say: Say) -> None:
        setuid = in_fork(sleep)
        kill_new_children(set(), patience=NEVER)
        os.kill(setuid, signal.SIGKILL)

    assert worker(body) == (0, "")


def test_a_process_knows_whether_it_has_children() -> None:
    def body(say: Say) -> None:
        assert not subreaper.has_children()
        ended = in_fork(int)
        os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)
        assert subreaper.has_children()
        os.waitpid(ended, 0)
        assert not subreaper.has_children()

    assert worker(body) == (0, "")


@pytest.mark.slow
def test_the_groups_under_a_worker_die_with_what_they_hand_on_to_it_while_it_is_stopped() -> None:
    """The daemon of a horse that is a subreaper is no child of the worker, until that horse is dead."""

    ready, tell = os.pipe()

    def horse_with_a_daemon() -> None:
        os.setpgrp()
        become_subreaper()
        in_fork(daemonise)
        os.wait()  # the daemon's first parent
        os.write(tell, b".")
        sleep()

    def a_worker() -> None:
        os.setpgrp()
        become_subreaper()
        in_fork(horse_with_a_daemon)
        sleep()

    def body(say: Say) -> None:
        stopped = in_fork(a_worker)
        os.read(ready, 1)
        os.kill(stopped, signal.SIGSTOP)
        os.waitpid(stopped, os.WUNTRACED)
        [leader] = children(stopped)
        [daemon] = children(leader)
        until(lambda: subreaper.kill_groups_under(stopped) or not is_alive(daemon))
        kill_new_children(set())

    assert worker(body) == (0, "")


def test_the_scan_finds_what_the_kernel_lists() -> None:
    def body(say: Say) -> None:
        pids = {in_fork(sleep) for _ in range(3)}
        assert subreaper._scanned_children(os.getpid()) == subreaper._listed_children(os.getpid()) == pids
        kill_new_children(set())

    assert worker(body) == (0, "")


def test_without_the_kernels_list_it_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_parent: int) -> set[int]:
        raise FileNotFoundError

    monkeypatch.setattr(subreaper, "_listed_children", missing)
    test_nothing_that_a_horse_left_stays_alive(daemonise)
