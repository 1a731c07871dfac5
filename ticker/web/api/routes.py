"""The table of all operations: what is served, and what is described."""

from itertools import groupby
from typing import Any

from starlette.routing import Route, Router

from ticker.web.api import openapi, owners, runs, schedules, state, tasks
from ticker.web.api.endpoint import endpoint
from ticker.web.api.operation import Operation
from ticker.web.site import Site


def description(site: Site) -> dict[str, Any]:
    """This description."""
    return openapi.document(OPERATIONS, site.root, needs_token=bool(site.access.tokens))


OPERATIONS = (
    *tasks.OPERATIONS, *runs.OPERATIONS, *schedules.OPERATIONS, *owners.OPERATIONS, *state.OPERATIONS,
    Operation("GET", "/openapi.json", description, {200: {"type": "object"}}, offline=True),
)  # fmt: skip


def routes() -> list[Route]:
    """One for each path, so that a refused method is told all that the path takes."""
    found = []
    for path, group in groupby(OPERATIONS, key=lambda operation: operation.path):
        by_method = {operation.method: operation for operation in group}
        found.append(Route(path, endpoint(by_method), methods=list(by_method)))
    return found


router = Router(routes(), redirect_slashes=False)
