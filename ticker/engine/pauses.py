"""Applies pauses of many tasks: due tasks wait for a pause, and go when it is over, within a budget in each tick."""

from collections.abc import Callable
from datetime import datetime

from ticker.engine.ports import Store
from ticker.engine.timing import USUAL_TICK


def apply(store: Store, now: datetime, look_ahead: int, period: int, batch: int, stop: Callable[[], bool]) -> None:
    """Makes due tasks wait for the pauses that are in force for them. Lets those go whose pause is over, oldest first.

    A budget keeps the end of a pause from being a burst: see `Store.grant_budgets`. What it leaves waits for the next tick.
    """
    while not stop() and store.withhold(now, look_ahead, batch) == batch:
        pass
    for pause_id, budget in store.grant_budgets(now, look_ahead, period, period or USUAL_TICK):
        let_go(store, pause_id, budget, now, batch, stop)


def let_go(store: Store, pause_id: int, budget: int, now: datetime, batch: int, stop: Callable[[], bool]) -> None:
    while budget > 0 and not stop():
        most = min(budget, batch)
        if store.let_go(pause_id, now, most) < most:
            return
        budget -= most
