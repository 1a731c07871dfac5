"""Says how a process died: by its wait status, the clock, and the cgroup's count of processes killed for their memory."""

import signal
from contextlib import suppress
from functools import cache
from pathlib import Path

from wrappers import limits, page

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


def cause(code: int | None, oom_kills_before: int | None = None, *, just_now: bool = True) -> str:
    """How the horse ended, in a few words; only what was seen. `code` as in `os.waitstatus_to_exitcode`, None: not seen.

    A SIGKILL is that of the hard limit where its instant has passed and the horse died `just_now`, and one for its memory
    where this cgroup has counted one since `oom_kills_before`.
    """
    if code is None:
        return "its process died, and how was not observed"
    if code >= 0:
        return f"exited with status {code}"
    if code != -signal.SIGKILL:
        return f"died of {_name(-code)}"
    if just_now and page.hard_limit() and limits.now() >= page.deadline():
        return f"killed at its hard limit of {round(page.hard_limit(), 3)} s"
    after = oom_kills()
    is_counted = oom_kills_before is not None and after is not None and after > oom_kills_before
    return "killed by SIGKILL, out of memory" if is_counted else "killed by SIGKILL"


def oom_kills() -> int | None:
    """How many processes of this cgroup the kernel has killed for their memory; None where that cannot be read."""
    with suppress(OSError, ValueError, UnicodeDecodeError):
        for line in _events_file().read_text(encoding="ascii").splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return None


@cache
def _events_file() -> Path:
    """Of the second version of cgroups; in a file that is not there where this process has none."""
    for line in OWN_CGROUP.read_text(encoding="utf-8").splitlines():
        if line.startswith("0::/"):
            return CGROUPS / line.removeprefix("0::/") / "memory.events"
    return CGROUPS / "none"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
