"""Writes the one log line that each end of a run has."""

import logging

from ticker.model import NO_FAILURE

log = logging.getLogger("ticker.run")


def ended(
    outcome: str, reason: str, *, task_id: int, names: tuple[str, str], run_id: int, job_id: str = "?"
) -> None:  # fmt: skip
    """Logs the end of a run, as a warning if it is a failure. `names` are the task's name and owner."""
    level = logging.INFO if outcome in {*NO_FAILURE, "processing"} else logging.WARNING
    log.log(
        level, "run %s task=%s name=%s owner=%s run=%s job=%s%s",
        outcome, task_id, *names, run_id, job_id, f": {reason}" if reason else "",
        extra={"event": "run_ended", "fields": {"outcome": str(outcome), "reason": reason}},
    )  # fmt: skip
