"""How it stands: counts, tickers and health, and the functions that workers have announced."""

from ticker.read import formatting, health, overview, tasks
from ticker.web.api import schemas
from ticker.web.api.operation import Answer, Asked, Operation
from ticker.web.site import Site


def stats(site: Site, _: Asked) -> Answer:
    """How many tasks there are, in all and of each state, whether all is well, and what may be seen and done here."""
    with site.database.reading() as db:
        counts = overview.counts(tasks.on(db))
    return Answer({
        "counts": formatting.plain_data(counts), "health": health.data(site.look()),
        "read_only": site.access.read_only, "hides_args": site.settings.hide_args,
    })  # fmt: skip


def functions(site: Site, _: Asked) -> Answer:
    """The functions that workers have announced, by name."""
    with site.database.reading() as db:
        return Answer({"functions": formatting.plain_data(overview.functions(db))})


STATS = schemas.thing(
    counts=schemas.ref("Counts"), health=schemas.ref("Health"), read_only=schemas.FLAG, hides_args=schemas.FLAG
)
FUNCTIONS = schemas.thing(functions=schemas.array(schemas.ref("Function")))

OPERATIONS = (
    Operation("GET", "/stats", stats, {200: STATS}),
    Operation("GET", "/functions", functions, {200: FUNCTIONS}),
)
