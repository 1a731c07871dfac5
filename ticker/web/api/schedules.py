"""Explains a schedule before it is used."""

from typing import Any

from ticker import clock, numbers
from ticker.errors import BadInput
from ticker.model import Kind
from ticker.read import formatting
from ticker.schedules import kinds
from ticker.tasks import checks, definition, fields, preview
from ticker.tasks.preview import MOST_TIMES, Preview
from ticker.web.api.fields import TEXT, body, doc, limit
from ticker.web.api.operation import Operation
from ticker.web.site import Site

TIMES = 5
NAMES = tuple(checks.NAMES.values())


def validate_schedule(_: Site, *, count: Any = TIMES, **given: Any) -> Any:
    """Explains a schedule: its kind, its stored form, a description in words, its next times, and warnings."""
    return formatting.plain_data(looked_at(given, numbers.whole("count", count, 1, MOST_TIMES)))


def looked_at(given: dict[str, Any], count: int) -> Preview:
    """Returns the meaning of an expression of any kind, or of a schedule field of `register`. Raises BadInput."""
    named = [name for name in ("expression", *NAMES) if name in given]
    if not named:
        raise BadInput("expression", None, "is missing; write 15m, 0 9 * * 1-5, Mon..Fri 09:00 or 2027-01-01T00:00:00Z")
    if named[0] == "expression":
        if named[1:]:
            raise BadInput(named[1], given[named[1]], "cannot be combined with expression; give one of them")
        of_interval = {name: given.get(name) for name in ("zone", "during")}
        return preview.validate(given["expression"], **of_interval, count=count, now=clock.now())
    values = {"zone": "UTC", "during": "", **fields.check(given)}
    schedule = preview.in_hours(definition.schedule_of(values), values["zone"], values["during"])
    now = clock.now() or clock.python_utc()
    kinds.never_fires(schedule, now, checks.NAMES[Kind(values["kind"])], given[named[0]])
    return preview.of(schedule, now, count)


EXPRESSION = doc("A schedule of any kind: 15m, 0 9 * * 1-5, Mon..Fri 09:00, 2027-01-01T00:00:00Z.", TEXT)
BODY = body({
    "expression": EXPRESSION, **fields.properties((*fields.SCHEDULES, fields.FIELDS["during"])), "count": limit(TIMES, "The number of times.", MOST_TIMES)
})  # fmt: skip

OPERATIONS = (
    Operation(
        "POST", "/schedules/validate", validate_schedule, {200: Preview}, body=BODY, offline=True,
        example={"expression": "0 9 * * 1-5", "zone": "Europe/Berlin"},
    ),
)  # fmt: skip
