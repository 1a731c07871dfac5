"""Asks to stop a run. It joins the caller's transaction."""

from ticker import clock
from ticker.db.steps import Steps, writes
from ticker.errors import BadInput, UnknownRun
from ticker.tasks import checks
from ticker.tasks import rows as task_rows
from ticker.tasks.queries import query
from ticker.tasks.reference import run_id


@writes
def stop(run: int, *, by: str | None = None) -> Steps[None]:
    """Asks to stop a run that has not ended. After the transaction has committed, a tick carries out the request.

    An active run is interrupted: its function receives SoftLimit, and its process is killed if it continues. The run
    ends as `interrupted`, with the reason `stopped by NAME`. This is not a failure, and the run is not retried. A run
    that has not started is dropped (`stopped`). If a run has pieces, those that have not ended are stopped.

    `by` is the name, as in `register`. The first request is kept. Raises UnknownRun, or BadInput if the run has ended.
    """
    author = None if by is None else checks.plain("by", by)
    ref = run_id(run)
    found = yield query("request_stop", id=ref, by=author, now=clock.now())
    if not found:
        raise UnknownRun(f"there is no run {ref}; it may have been pruned")
    if found[0]["state"] == "ended":
        raise BadInput(
            "run", ref, f"has already ended ({found[0]['outcome']}); only a run that has not ended can be stopped"
        )
    yield from task_rows.wake_up()
