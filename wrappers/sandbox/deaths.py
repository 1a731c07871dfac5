"""Determines how a process died, from its wait status, the clock, and the cgroup's count of out-of-memory kills."""

import signal
from contextlib import suppress
from functools import cache
from pathlib import Path

from wrappers.sandbox import limits, shared_state

CGROUPS = Path("/sys/fs/cgroup")
AT_LIMIT = "killed at "
KILLED = "killed by SIGKILL"
BY_WORKER = "killed by its worker, which got a second signal to stop"
OWN_CGROUP = Path("/proc/self/cgroup")


def cause(code: int | None, oom_kills_before: int | None = None, *, just_now: bool = True) -> str:
    """Returns how the horse ended, in a few words, as far as it was observed.

    `code` is as in `os.waitstatus_to_exitcode`; None if it was not observed. A SIGKILL is attributed to the hard limit
    if its instant has passed and the horse died `just_now`. If it may have died earlier, the text states only that the
    worker saw the death after that limit. A SIGKILL is attributed to memory if this cgroup has counted an out-of-memory
    kill since `oom_kills_before`.
    """
    if code is None:
        return "its process died, and the cause was not observed"
    if code >= 0:
        return f"exited with status {code}"
    if code != -signal.SIGKILL:
        return f"died of {signal_name(-code)}"
    limit = f"its hard limit of {round(shared_state.hard_limit(), 3)} s"
    is_past_limit = bool(shared_state.hard_limit()) and limits.now() >= shared_state.deadline()
    if is_past_limit and just_now:
        return f"{AT_LIMIT}{limit}"
    after = oom_kills()
    if oom_kills_before is not None and after is not None and after > oom_kills_before:
        return f"{KILLED}, out of memory"
    return f"{KILLED}, which the worker saw after {limit}" if is_past_limit else KILLED


def oom_kills() -> int | None:
    """Returns how many processes in this cgroup the kernel has killed for lack of memory; None if that cannot be read."""
    with suppress(OSError, ValueError, UnicodeDecodeError):
        for line in _events_file().read_text(encoding="ascii").splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return None


@cache
def _events_file() -> Path:
    """Returns the path of this process's `memory.events` (cgroup version 2). The path may not exist."""
    for line in OWN_CGROUP.read_text(encoding="utf-8").splitlines():
        if line.startswith("0::/"):
            return CGROUPS / line.removeprefix("0::/") / "memory.events"
    return CGROUPS / "none"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
