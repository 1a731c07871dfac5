"""Enforces the soft and the hard limit of one run, in the process that runs it (RQ's forked work-horse).

    limits = Limits(soft=30.5, hard=31, since=now())
    limits.arm()
    try:
        with limits.interrupting():
            function()          # SoftLimit is raised in here, or nowhere
    finally:
        limits.cancel()         # last of all: until then the hard limit guards our own code, too

Where `timer_create` exists (Linux), two kernel timers enforce the limits. Elsewhere, a watchdog process does. Both use
instants, not durations: a process that was stopped for a while still reaches its limits on time.

Neither limits a child that the function forks, because timers are not inherited (see `subreaper`). An exec deletes the
timers, so the new program is limited only by the supervisor (see `supervisor`). The watchdog survives an exec.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import Literal

# Not SIGALRM, which RQ and the function may use. RQ itself uses SIGRTMIN + 0 (its HerokuWorker).
SOFT_SIGNAL: int = signal.SIGRTMIN + 6 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2
STOP_SIGNAL: int = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR1
"""Sent by the worker, after it has noted which run of this process somebody stops."""

How = Literal["auto", "timers", "watchdog"]


class SoftLimit(BaseException):
    """The run reached its soft limit. `except Exception` does not catch it."""


def soft_limit(seconds: float) -> type[SoftLimit]:
    """Returns the error of a run at its soft limit: a class, because nothing else can be raised in another thread."""
    text = f"interrupted after {round(seconds, 3):g} s, because its time box was over"
    return type(SoftLimit.__name__, (SoftLimit,), {"__module__": __name__, "__str__": lambda _: text})


class Stopped(SoftLimit):
    """The run was stopped before its soft limit."""

    def __str__(self) -> str:
        return "the run was stopped"


class Limits:
    """Interrupts the function `soft` seconds after `since`, and kills the process `hard` seconds after it.

    `since` is an instant of `now` and defaults to the moment when the limits are armed. A limit whose instant has
    already passed takes effect at once. `how="auto"` uses the timers where they exist.

    If `is_stopped` says so when the block begins, or when STOP_SIGNAL comes, the function is interrupted at once.
    """

    def __init__(
        self, soft: float, hard: float, *, since: float | None = None, how: How = "auto",
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        if not soft < hard:
            raise ValueError(f"the hard limit ({hard} s) must be later than the soft limit ({soft} s)")
        self._soft, self._hard, self._since, self._how = soft, hard, since, how
        self._gate = _Gate(soft, is_stopped)
        self._stop: Callable[[], None] | None = None
        self._process = 0

    @property
    def passed(self) -> bool:
        """Whether the soft limit was reached, inside the block or not, even if the function swallowed SoftLimit."""
        return self._gate.passed

    @property
    def stopped(self) -> bool:
        """Whether the function was interrupted because its run was stopped."""
        return self._gate.stopped

    def arm(self) -> None:
        """Starts both limits. Raises RuntimeError outside the main thread, and OSError if the system lacks resources."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("limits work only in the main thread, where Python runs signal handlers")
        if self._stop is not None:
            raise RuntimeError("these limits are already armed: make a new Limits for every run")
        signal.signal(SOFT_SIGNAL, self._gate.signalled)
        signal.signal(STOP_SIGNAL, self._gate.stop_signalled)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {SOFT_SIGNAL, STOP_SIGNAL})
        self._process = os.getpid()
        self._stop = self._start()

    def cancel(self) -> None:
        """Stops both limits. Does nothing if called again, or in a fork of the armed process."""
        if self._stop is None or os.getpid() != self._process:
            return
        # Drops a pending signal, and one that the watchdog is about to send, even if the function changed the handler:
        # by default, a real-time signal kills.
        signal.signal(SOFT_SIGNAL, signal.SIG_IGN)
        signal.signal(STOP_SIGNAL, signal.SIG_IGN)
        self._stop()
        self._stop = None

    def interrupting(self) -> AbstractContextManager[None]:
        """Returns the context manager of the block in which the soft limit raises SoftLimit. It is never raised
        elsewhere.

        A soft limit that is reached outside the block interrupts nothing. A block that is entered later raises at once.
        """
        return self._gate

    def _start(self) -> Callable[[], None]:
        since = now() if self._since is None else self._since
        soft_at, hard_at = since + self._soft, since + self._hard
        if self._how != "watchdog":
            try:
                return _start_timers(soft_at, hard_at)
            except OSError:  # no such call, refused by seccomp, or RLIMIT_SIGPENDING used up
                if self._how == "timers":
                    raise
        return _start_watchdog(soft_at, hard_at)


class _Gate:
    """A gate that is open only inside the block. A signal may arrive before any bytecode of this class.

    It is a class, not a `@contextmanager`, so that only these few lines run at the edge of the block.
    """

    def __init__(self, seconds: float, is_stopped: Callable[[], bool]) -> None:
        self.passed = self.stopped = False
        self._open = False
        self._seconds, self._is_stopped = seconds, is_stopped

    def signalled(self, _signum: int, _frame: FrameType | None) -> None:
        self.passed = True
        self._raise_if_open()

    def stop_signalled(self, _signum: int = 0, _frame: FrameType | None = None) -> None:
        """Interrupts the function if its run is the one that is stopped: another run of this process may have ended
        meanwhile.
        """
        if self._open and self._is_stopped():
            self._open, self.stopped = False, True
            raise Stopped

    def __enter__(self) -> None:
        self._open = True  # before `passed` is read: a signal between the two must not be lost
        self.stop_signalled()
        if self.passed:
            self._raise_if_open()

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._open = False

    def _raise_if_open(self) -> None:
        if self._open:
            self._open = False  # here, because __exit__ is not called after an error in __enter__
            raise soft_limit(self._seconds)


# --- Two kernel timers ---------------------------------------------------------------------------------------

# BOOTTIME includes the time in suspend, as the database's clock does. Some sandboxes have only MONOTONIC.
_CLOCKS = (getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC), time.CLOCK_MONOTONIC)
_SIGEV_SIGNAL, _SIGEV_THREAD_ID = 0, 4
_TIMER_ABSTIME = 1


class _Event(ctypes.Structure):
    """struct sigevent: 64 bytes in glibc and musl. A longer struct does no harm, because the kernel reads only 64."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("rest", ctypes.c_int * 12),
    )


class _Spec(ctypes.Structure):
    """struct itimerspec: an interval (0: fires once) and a value, each in seconds and nanoseconds."""

    _fields_ = (
        ("interval", ctypes.c_long * 2),
        ("value", ctypes.c_long * 2),
    )


def prepare() -> None:
    """Loads the C library before the fork, so that no horse has to look for it."""
    with suppress(OSError):
        _library()


def _start_timers(soft_at: float, hard_at: float) -> Callable[[], None]:
    """Starts both timers and returns the function that deletes them. The hard one is created first and deleted last."""
    with ExitStack() as timers:
        _start_timer(timers, hard_at, signal.SIGKILL, _SIGEV_SIGNAL)
        # Sent to this very thread. Since Linux 6.4, a timer's signal prefers a thread that is on a CPU. So the main
        # thread would stay asleep while another one is busy.
        _start_timer(timers, soft_at, SOFT_SIGNAL, _SIGEV_THREAD_ID)
        return timers.pop_all().close


def _start_timer(timers: ExitStack, at: float, signum: int, notify: int) -> None:
    timer, clock = _new_timer(signum, notify)
    timers.callback(_library().timer_delete, timer)
    _set_timer(timer, clock, at)


def _new_timer(signum: int, notify: int) -> tuple[ctypes.c_void_p, int]:
    """Creates a timer that is not set yet, and returns it with its clock. Raises OSError if the system has no such
    timer.
    """
    timer = ctypes.c_void_p()
    event = _Event(signo=signum, notify=notify, thread=threading.get_native_id())
    for clock in _CLOCKS:
        if _library().timer_create(clock, ctypes.byref(event), ctypes.byref(timer)) == 0:
            return timer, clock
    raise OSError(ctypes.get_errno(), "timer_create failed")


def _set_timer(timer: ctypes.c_void_p, clock: int, at: float) -> None:
    """Sets when the timer fires. Infinity stops it."""
    nanoseconds = 0 if at == math.inf else max(1, round(_instant_on(clock, at) * 1e9))
    spec = _Spec(value=divmod(nanoseconds, 1_000_000_000))
    if _library().timer_settime(timer, _TIMER_ABSTIME, ctypes.byref(spec), None) != 0:
        raise OSError(ctypes.get_errno(), "timer_settime failed")


class KillTimer:
    """Kills this process at an instant, which may be set again. Raises OSError if the system has no such timer."""

    def __init__(self) -> None:
        self._timer, self._clock = _new_timer(signal.SIGKILL, _SIGEV_SIGNAL)

    def set(self, at: float) -> None:
        """Sets when the process is killed, an instant of `now`. Infinity stops the timer."""
        _set_timer(self._timer, self._clock, at)

    def close(self) -> None:
        _library().timer_delete(self._timer)


def _instant_on(clock: int, at: float) -> float:
    """Converts an instant of `now` to another clock. A pause between the two readings makes it earlier, never later."""
    return at if clock == _CLOCKS[0] else time.clock_gettime(clock) + (at - now())


@cache
def _library() -> ctypes.CDLL:
    for name in (None, "librt.so.1"):  # librt: glibc before 2.34
        library = ctypes.CDLL(name, use_errno=True)
        if hasattr(library, "timer_create"):
            return library
    raise OSError(errno.ENOSYS, "this system has no timer_create")


# --- A watchdog process --------------------------------------------------------------------------------------


def _start_watchdog(soft_at: float, hard_at: float) -> Callable[[], None]:
    """Starts the watchdog and returns the function that dismisses it.

    The watchdog is forked twice. So it is not a child of the horse, and a function that calls `os.wait()` does not reap
    it.
    """
    horse = os.getpid()
    far, near = os.pipe()  # both are closed on exec
    child = os.fork()
    if child == 0:
        _fork_watchdog(far, horse, soft_at, hard_at)
    os.close(far)
    with suppress(ChildProcessError):  # SIGCHLD is ignored, so there is nothing to wait for
        if os.waitpid(child, 0)[1] != 0:
            os.close(near)
            raise OSError(errno.EAGAIN, "the watchdog process could not be started")

    def dismiss() -> None:
        with suppress(OSError):  # the watchdog is gone, or the function closed the pipe
            os.write(near, b".")
        with suppress(OSError):
            os.close(near)

    return dismiss


def _fork_watchdog(pipe: int, horse: int, soft_at: float, hard_at: float) -> None:
    """Runs in the intermediate child. Never returns, so that no code of the horse runs twice."""
    status = 1
    try:
        os.setsid()  # out of the horse's process group, which RQ kills as a whole
        if os.fork() == 0:
            _keep_only(pipe)
            for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
                signal.signal(signum, signal.SIG_IGN)
            _watch(horse, [(soft_at, SOFT_SIGNAL), (hard_at, signal.SIGKILL)])
        status = 0
    finally:
        os._exit(status)


def _keep_only(pipe: int) -> None:
    """Makes `pipe` descriptor 0 and closes all others. An inherited one would keep a socket or a lock of the run open."""
    os.dup2(pipe, 0)
    try:
        opened = [int(entry.name) for entry in Path("/dev/fd").iterdir()]
    except OSError:
        opened = list(range(4096))
    for file in opened:
        if file != 0:
            with suppress(OSError):
                os.close(file)


def _watch(horse: int, due: list[tuple[float, int]]) -> None:
    """Sends each signal to the horse at its time. Returns early if the horse dismisses the watchdog or is gone.

    The end of file on the pipe proves nothing by itself: an exec closes it, and a child that the function forked keeps
    it open.
    """
    files, look = [0], 1.0
    with suppress(ProcessLookupError):
        for at, signum in due:
            while (left := at - now()) > 0:
                if select.select(files, [], [], min(left, look))[0]:
                    if os.read(0, 1):
                        return
                    files, look = [], 0.02
                os.kill(horse, 0)
            os.kill(horse, signum)


def now() -> float:
    """Returns the time on the clock of the limits, in seconds. All processes of this host share that clock."""
    return time.clock_gettime(_CLOCKS[0])
