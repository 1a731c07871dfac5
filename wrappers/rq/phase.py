"""The phases of a worker's current job."""

from enum import Enum, auto


class Phase(Enum):
    """A worker goes from IDLE to TAKEN, then to STARTED or FORGOTTEN, and back to IDLE.

    While it waits for a job's process, it is in WAITED, and then returns to TAKEN or STARTED.
    """

    IDLE = auto()
    """Between jobs."""
    TAKEN = auto()
    """A job was taken from the queue. Another application's job stays in this phase, because only RQ handles it."""
    STARTED = auto()
    """The job is ours, and RQ knows that it started. Its process does not report that again."""
    FORGOTTEN = auto()
    """The job is ours, may not run, and is no longer in Redis. It gets no process."""
    WAITED = auto()
    """The worker waits for the job's process. Meanwhile, a signal handler of RQ may wait for it as well."""
