"""Where a worker stands with the job that it took."""

from enum import Enum, auto


class Phase(Enum):
    """A worker goes from IDLE to TAKEN, from there to STARTED or FORGOTTEN, and back to IDLE.

    While it waits for a job's process, it leaves TAKEN or STARTED for WAITED, and returns to it.
    """

    IDLE = auto()
    """Between two jobs."""
    TAKEN = auto()
    """A job came from the queue. Another application's job stays here, as RQ alone handles it."""
    STARTED = auto()
    """The job is ours, and RQ knows it as started: its process does not tell RQ again."""
    FORGOTTEN = auto()
    """The job is ours, may not run, and is no longer in Redis: it gets no process."""
    WAITED = auto()
    """The worker waits for the job's process. A signal handler of RQ may wait for it again meanwhile."""
