"""Each test forks a horse and looks at how it ended and at what it said, never at how long that took."""

import asyncio
import ctypes
import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Self, cast
from uuid import UUID

import pytest

from tests.sentences import sentence
from tests.worker.horses import NEVER, Say, horse, in_fork, sleep, stop_itself, until
from ticker.settings import Settings
from wrappers.layers.time_box import limited
from wrappers.pipeline.context import Call
from wrappers.sandbox import limits as module
from wrappers.sandbox.limits import SOFT_SIGNAL, STOP_SIGNAL, How, Limits, SoftLimit, Stopped, now
from wrappers.sandbox.subreaper import become_subreaper, children

pytestmark = pytest.mark.slow

KILLED = -signal.SIGKILL
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs timer_create and /proc")
both = pytest.mark.parametrize("how", [pytest.param("timers", marks=on_linux), "watchdog"])


def armed(soft: float, hard: float, how: How = "auto") -> Limits:
    limits = Limits(soft, hard, how=how)
    limits.arm()
    return limits


# --- The hard limit ------------------------------------------------------------------------------------------


def swallow_everything() -> None:
    while True:
        with suppress(BaseException):
            time.sleep(NEVER)


def hold_the_gil_in_sum() -> None:
    sum(range(10**14))


def hold_the_gil_in_sleep() -> None:
    while True:
        with suppress(SoftLimit):  # the soft signal ends a sleep of C, too
            ctypes.PyDLL(None).sleep(int(NEVER))


def match_catastrophically() -> None:
    re.match(r"(a+)+$", "a" * 64 + "b")


def match_again() -> None:
    with suppress(SoftLimit):  # `re` looks at signals now and then
        match_catastrophically()
    match_catastrophically()


def block_all_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    time.sleep(NEVER)


def ignore_all_signals() -> None:
    for signum in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError):
            signal.signal(signum, signal.SIG_IGN)
    time.sleep(NEVER)


def let_a_fork_cancel(limits: Limits) -> None:
    in_fork(limits.cancel)
    os.wait()
    swallow_everything()


@both
@pytest.mark.parametrize(
    "function",
    [
        swallow_everything,
        hold_the_gil_in_sum,
        hold_the_gil_in_sleep,
        match_again,
        stop_itself,
        block_all_signals,
        ignore_all_signals,
    ],
)
def test_the_hard_limit_kills(how: How, function: Callable[[], None]) -> None:
    def body(say: Say) -> None:
        limits = armed(0.1, 0.2, how)
        while True:
            with suppress(SoftLimit), limits.interrupting():
                function()
                say("survived")

    assert horse(body) == (KILLED, "")


@both
def test_a_fork_of_the_horse_cannot_cancel_its_limits(how: How) -> None:
    assert horse(lambda say: let_a_fork_cancel(armed(0.1, 0.2, how))) == (KILLED, "")


@both
def test_a_hard_limit_that_is_due_already_kills_at_once(how: How) -> None:
    def body(say: Say) -> None:
        armed(-1, 0, how)
        time.sleep(NEVER)

    assert horse(body) == (KILLED, "")


@both
def test_limits_count_from_since_and_not_from_when_they_are_armed(how: How) -> None:
    def body(say: Say) -> None:
        Limits(NEVER / 2, NEVER, since=now() - 2 * NEVER, how=how).arm()
        swallow_everything()

    assert horse(body) == (KILLED, "")


@on_linux
def test_a_stop_before_the_timers_are_armed_puts_nothing_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The box, stopped when it has worked out its limits, goes on when they are over: its function does not begin."""
    arm = Limits.arm
    call = SimpleNamespace(settings=Settings(), since=now(), task_id=1, start=SimpleNamespace(token=str(UUID(int=1))))

    def stopped_arm(limits: Limits) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)
        arm(limits)

    def body() -> None:
        with limited(cast(Call, call), box_ms=1000, grace_ms=200):
            time.sleep(0.8)

    monkeypatch.setattr(Limits, "arm", stopped_arm)
    pid = in_fork(body)
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    until(lambda: now() > call.since + 1.2)
    os.kill(pid, signal.SIGCONT)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) in (KILLED, -SOFT_SIGNAL)


@on_linux
def test_where_the_timers_know_another_clock_they_are_due_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a sandbox without CLOCK_BOOTTIME for timers."""
    monkeypatch.setattr(module, "_CLOCKS", (-1, time.CLOCK_MONOTONIC))
    monkeypatch.setattr(module, "now", lambda: time.monotonic() + 1000)

    def body(say: Say) -> None:
        armed(0.1, 0.2, "timers")
        swallow_everything()

    assert horse(body) == (KILLED, "")


# --- The soft limit ------------------------------------------------------------------------------------------


def wait_for_bytes() -> None:
    one, _other = socket.socketpair()
    one.recv(1)


def wait_for_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def wait_for_a_child() -> None:
    subprocess.run(["sleep", "2"], check=True)
    time.sleep(NEVER)


def loop() -> None:
    while True:
        pass


def await_for_ever() -> None:
    asyncio.run(asyncio.sleep(NEVER))


def sleep_beside_a_busy_thread() -> None:
    compute = threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha256", b"", b"", 10**9), daemon=True)
    compute.start()
    time.sleep(NEVER)


@both
@pytest.mark.parametrize(
    "function",
    [
        sleep,
        wait_for_bytes,
        wait_for_a_lock,
        wait_for_a_child,
        loop,
        match_catastrophically,
        await_for_ever,
        sleep_beside_a_busy_thread,
    ],
)
def test_the_soft_limit_interrupts(how: How, function: Callable[[], None]) -> None:
    def body(say: Say) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {SOFT_SIGNAL})  # as a parent may have left it
        limits = armed(0.1, NEVER, how)
        try:
            with limits.interrupting():
                try:
                    function()
                except Exception:
                    say("swallowed")
        except SoftLimit as limit:
            say(str(limit))
        limits.cancel()
        say(f"passed={limits.passed}")

    assert horse(body) == (0, sentence("why.soft_limit_reached", limit="0.1 s"))


@both
def test_a_soft_limit_that_is_due_already_is_raised_at_once(how: How) -> None:
    def body(say: Say) -> None:
        limits = armed(-1, NEVER, how)
        with pytest.raises(SoftLimit), limits.interrupting():
            time.sleep(NEVER)
        limits.cancel()

    assert horse(body) == (0, "")


@both
def test_outside_of_the_block_nothing_is_raised_and_a_later_block_raises_at_its_start(how: How) -> None:
    def body(say: Say) -> None:
        limits = armed(0.05, NEVER, how)
        until(lambda: limits.passed)
        say("outside")
        with pytest.raises(SoftLimit), limits.interrupting():
            say("inside")
        os.kill(os.getpid(), SOFT_SIGNAL)
        limits.cancel()

    assert horse(body) == (0, "outside")


@both
def test_after_the_block_nothing_is_raised(how: How) -> None:
    def body(say: Say) -> None:
        limits = armed(0.05, NEVER, how)
        with suppress(SoftLimit), limits.interrupting():
            pass
        until(lambda: limits.passed)
        limits.cancel()

    assert horse(body) == (0, "")


class SignalAtStep:
    """A trace function: sends the soft signal at the n-th step (call, line, return) of one method of the gate."""

    def __init__(self, method: str, step: int) -> None:
        self.method, self.step, self.sent = method, step, False

    def __call__(self, frame: FrameType, _event: str, _arg: object) -> Self | None:
        if frame.f_code.co_qualname != f"_Gate.{self.method}":
            return None
        self.step -= 1
        if self.step == 0:
            self.sent = True
            os.kill(os.getpid(), SOFT_SIGNAL)
        return self


@pytest.mark.parametrize("method", ["__enter__", "__exit__"])
def test_a_signal_at_the_edge_comes_out_of_the_block_and_nowhere_else(method: str) -> None:
    """At every step of the edge. Raised anywhere else, it ends the process with a traceback."""

    def body(say: Say) -> None:
        for step in count(1):
            limits, raised = armed(NEVER / 2, NEVER), False
            sys.settrace(edge := SignalAtStep(method, step))
            try:
                with limits.interrupting():
                    pass
            except SoftLimit:
                raised = True
            sys.settrace(None)
            limits.cancel()
            if not edge.sent:
                return
            assert limits.passed
            if step == 1 or method == "__enter__":  # there it must not get lost; after an exit it may be late
                assert raised
            say("sent")

    status, said = horse(body)
    assert status == 0, said
    assert said.count("sent") >= 3


# --- After the run, and beside it ----------------------------------------------------------------------------


@both
def test_after_cancel_neither_limit_comes(how: How) -> None:
    def body(say: Say) -> None:
        limits = armed(0.9, 1, how)
        limits.cancel()
        limits.cancel()
        time.sleep(1.2)

    assert horse(body) == (0, "")


@on_linux
def test_cancel_leaves_no_timer() -> None:
    def body(say: Say) -> None:
        def timers() -> int:
            return Path("/proc/self/timers").read_text().count("ClockID:")

        limits = armed(NEVER / 2, NEVER, "timers")
        say(f"{timers()}")
        limits.cancel()
        say(f"{timers()}")

    if not Path("/proc/self/timers").exists():
        pytest.skip("a kernel without CONFIG_CHECKPOINT_RESTORE")
    assert horse(body) == (0, "2 0")


@both
def test_a_soft_signal_that_was_blocked_does_not_kill_after_cancel(how: How) -> None:
    def body(say: Say) -> None:
        limits = armed(0.05, NEVER, how)
        signal.pthread_sigmask(signal.SIG_BLOCK, {SOFT_SIGNAL})
        signal.signal(SOFT_SIGNAL, signal.SIG_DFL)
        until(
            lambda: SOFT_SIGNAL in signal.sigpending() or limits.passed
        )  # passed: on a slow machine, before the block
        limits.cancel()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {SOFT_SIGNAL})

    assert horse(body) == (0, "")


@both
def test_the_alarm_stays_what_it_was(how: How) -> None:
    def body(say: Say) -> None:
        def ring(_signum: int, _frame: object) -> None:
            raise TimeoutError

        signal.signal(signal.SIGALRM, ring)
        signal.alarm(int(NEVER))
        limits = armed(NEVER / 2, NEVER, how)
        with pytest.raises(TimeoutError), limits.interrupting():
            assert signal.setitimer(signal.ITIMER_REAL, 0.05)[0] > 0
            time.sleep(NEVER)
        signal.alarm(int(NEVER))
        limits.cancel()
        assert signal.alarm(0) > 0
        assert signal.getsignal(signal.SIGALRM) is ring

    assert horse(body) == (0, "")


def test_only_the_main_thread_may_arm() -> None:
    problems: list[BaseException] = []

    def arm() -> None:
        try:
            Limits(1, 2).arm()
        except RuntimeError as error:
            problems.append(error)

    thread = threading.Thread(target=arm)
    thread.start()
    thread.join()
    assert "main thread" in str(problems)


def test_limits_are_armed_once() -> None:
    def body(say: Say) -> None:
        with pytest.raises(RuntimeError, match="already armed"):
            armed(NEVER / 2, NEVER).arm()

    assert horse(body) == (0, "")


@pytest.mark.parametrize(("soft", "hard"), [(2, 2), (2, 1), (float("nan"), 1)])
def test_the_hard_limit_is_the_later_one(soft: float, hard: float) -> None:
    with pytest.raises(ValueError, match="must be later"):
        Limits(soft, hard)


# --- The watchdog --------------------------------------------------------------------------------------------


def test_without_timers_the_watchdog_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_soft: float, _hard: float) -> None:
        raise OSError("no such call")

    monkeypatch.setattr(module, "_start_timers", refuse)

    def body(say: Say) -> None:
        with pytest.raises(OSError, match="no such call"):
            armed(-1, 0.1, "timers")
        armed(-1, 0.1)
        swallow_everything()

    assert horse(body) == (KILLED, "")


def test_the_watchdog_is_no_child_of_the_horse() -> None:
    def body(say: Say) -> None:
        limits = armed(NEVER / 2, NEVER, "watchdog")
        with pytest.raises(ChildProcessError):
            os.wait()
        limits.cancel()

    assert horse(body) == (0, "")


@on_linux
def test_the_watchdog_keeps_no_file_but_its_pipe_and_outlives_the_group_but_not_the_horse() -> None:
    def body(say: Say) -> None:
        become_subreaper()
        inner = in_fork(leader)
        until(lambda: len(children()) == 2 and watched(*(children() - {inner})))
        (watchdog,) = children() - {inner}
        os.killpg(inner, signal.SIGKILL)
        say(f"{os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])}")
        say(f"{os.waitstatus_to_exitcode(os.waitpid(watchdog, 0)[1])}")

    def leader() -> None:
        os.setpgrp()
        armed(NEVER / 2, NEVER, "watchdog")
        time.sleep(NEVER)

    def watched(watchdog: int) -> bool:
        return os.listdir(f"/proc/{watchdog}/fd") == ["0"]  # noqa: PTH208

    assert horse(body) == (0, "-9 0")


@on_linux
def test_cancel_sends_the_watchdog_away() -> None:
    def body(say: Say) -> None:
        become_subreaper()
        limits = armed(NEVER / 2, NEVER, "watchdog")
        (watchdog,) = children()
        limits.cancel()
        say(f"{os.waitstatus_to_exitcode(os.waitpid(watchdog, 0)[1])}")

    assert horse(body) == (0, "0")


def test_the_watchdog_outlasts_an_exec_and_closed_files() -> None:
    def replace(say: Say) -> None:
        armed(0.2, 0.3, "watchdog")
        signal.signal(SOFT_SIGNAL, signal.SIG_IGN)  # which an exec keeps
        os.execvp("sleep", ["sleep", str(NEVER)])

    def close(say: Say) -> None:
        armed(0.2, 0.3, "watchdog")
        os.closerange(3, 100)
        swallow_everything()

    assert horse(replace) == (KILLED, "")
    assert horse(close) == (KILLED, "")


# --- A stop --------------------------------------------------------------------------------------------------


def stoppable(stopped: list[bool]) -> Limits:
    limits = Limits(NEVER, NEVER + 1, is_stopped=lambda: bool(stopped))
    limits.arm()
    return limits


def test_a_stop_interrupts_the_function_only_if_it_is_meant_for_its_run() -> None:
    def body(say: Say) -> None:
        stopped: list[bool] = []
        limits = stoppable(stopped)
        try:
            with limits.interrupting():
                os.kill(os.getpid(), STOP_SIGNAL)  # for the run before this one
                say("goes on")
                stopped.append(True)
                os.kill(os.getpid(), STOP_SIGNAL)
                say("never")
        except Stopped as error:
            say(f"{type(error).__name__} {limits.stopped} {limits.passed}")
        limits.cancel()
        os.kill(os.getpid(), STOP_SIGNAL)

    assert horse(body) == (0, "goes on Stopped True False")


def test_a_stop_that_came_before_the_function_keeps_it_from_being_called() -> None:
    def body(say: Say) -> None:
        limits = stoppable([True])
        with suppress(Stopped), limits.interrupting():
            say("never")
        say(f"{limits.stopped}")

    assert horse(body) == (0, "True")


def test_a_stop_after_the_function_has_returned_changes_nothing() -> None:
    def body(say: Say) -> None:
        stopped: list[bool] = []
        limits = stoppable(stopped)
        with limits.interrupting():
            pass
        stopped.append(True)
        os.kill(os.getpid(), STOP_SIGNAL)
        say(f"{limits.stopped}")

    assert horse(body) == (0, "False")
