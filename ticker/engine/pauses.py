"""Applies pauses of many tasks: due tasks wait for a pause, and go when it is over, within a budget in each tick.

So do tasks whose function a worker did not know. One of them goes in each tick, and its start ends their wait.
"""

from typing import TYPE_CHECKING

from ticker.engine.timing import USUAL_TICK

if TYPE_CHECKING:
    from ticker.engine.tick import Pass

STEPS_IN_VAIN = 20  # batches of tasks that need no budget, at most; the next tick continues


def apply(work: "Pass") -> None:
    """Makes due tasks wait for the pauses that are in force for them, and lets those go whose pauses are over."""
    pauses = work.store.open_pauses(work.now)
    if pauses.in_force or pauses.over:
        withhold(work)
    if pauses.in_force:
        work.store.probe(work.now, work.options.period)
    if pauses.over:
        let_go(work)


def withhold(work: "Pass") -> None:
    """Examines each due task once, in order, so that many of them cost a pass only one walk."""
    after = None
    while not work.options.stop():
        after = work.store.withhold(work.now, work.options.look_ahead, work.options.batch, after)
        if after is None:
            return


def let_go(work: "Pass") -> None:
    """Lets tasks go that have waited for longest, within the budget of this tick. The others wait for the next one."""
    options, full = work.options, [name for name, room in work.queue.left.items() if room <= 0]
    budget = work.store.grant_budget(work.now, options.look_ahead, options.period, options.period or USUAL_TICK, full)
    left, in_vain = budget or 0, 0
    while left > 0 and in_vain < STEPS_IN_VAIN and not options.stop():
        most = min(left, options.batch)
        found, gone = work.store.let_go(work.now, most)
        left, in_vain = left - gone, in_vain + (gone == 0)
        if found < most:
            break
    if budget is not None:
        work.store.close_pauses(work.now)
