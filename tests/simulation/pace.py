"""The interval in force of an elastic task, from what its runs found. Only what the actors saw counts here; no row is read.

At the beginning of the calm it is unknown, so there are two bounds. They are equal after the first run that finds work.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tests.simulation.actors import Spec
from tests.simulation.record import Activity, History
from tests.simulation.world import SECOND
from ticker.model import Outcome

WORK = (Outcome.SUCCEEDED, Outcome.PARTIAL)


def after(run: Activity, spec: Spec, runs: Sequence[Activity], history: History) -> tuple[float, float]:
    """Returns the bounds of the interval in force right after the end of a run, in seconds."""
    least, most = spec.every, spec.longest
    ended = sorted((one for one in runs if one.recorded and history.calm_from <= one.recorded <= (run.recorded or run.started)),
                   key=lambda one: one.recorded or 0)  # fmt: skip
    for one in ended:
        if one.outcome in WORK:
            least = most = spec.every
        elif one.outcome is Outcome.NOTHING_TO_DO and one.job.run_id is None:
            least, most = min(2 * least, spec.longest), min(2 * most, spec.longest)
    return least, most


def too_soon(spec: Spec, runs: Sequence[Activity], history: History) -> Iterator[str]:
    """Yields the runs that were pushed before the interval in force had passed, although no other run had an end meanwhile."""
    pushed = {advance.job_id: advance.t for advance in history.advances if advance.task_id == spec.id}
    scheduled = [
        run for run in runs if run.job.run_id is None and run.job.id in pushed and run.started > history.calm_from
    ]
    for one, two in pairwise(scheduled):
        begin, end = pushed[one.job.id], pushed[two.job.id]
        others = any(run is not one and one.started <= (run.recorded or 0) <= end for run in runs)
        asked = any(task == spec.id and begin <= t <= end for t, task in history.asked)
        if one.recorded is None or not begin < one.recorded < end or others or asked or begin < history.calm_from:
            continue
        least = after(one, spec, runs, history)[0]
        if (end - begin) / SECOND < least - LOOK_AHEAD:
            yield f"{two.job.id} was pushed {(end - begin) / SECOND:.3f} s after {one.job.id}; the interval in force was {least:g} s"


LOOK_AHEAD = 1.05  # seconds, with a little slack
