"""Returns the current state: counts, tickers and health, and the functions that workers have announced."""

from typing import Any

from ticker.read import formatting, health, overview
from ticker.web.api.operation import Operation
from ticker.web.api.schemas import object_of
from ticker.web.site import Site


def stats(site: Site) -> dict[str, Any]:
    """Returns the number of tasks, in total and by state, the health, and whether the API is read-only or hides arguments."""
    with site.database.reading() as db:
        counts = overview.counts(db)
    return {
        "counts": formatting.plain_data(counts), "health": health.data(site.look()),
        "read_only": site.access.read_only, "hides_args": site.settings.hide_args,
    }  # fmt: skip


def functions(_: Site, db: Any) -> dict[str, Any]:
    """Lists the functions that workers have announced, by name."""
    return {"functions": formatting.plain_data(overview.functions(db))}


STATS = object_of(counts=overview.Counts, health=health.Health, read_only=bool, hides_args=bool)

OPERATIONS = (
    Operation("GET", "/stats", stats, {200: STATS}, offline=True),
    Operation("GET", "/functions", functions, {200: object_of(functions=list[overview.Function])}),
)
