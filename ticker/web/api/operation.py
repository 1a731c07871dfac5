"""One thing that the API does: where, what may be asked of it, what it answers. The table of them is served and described."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ticker.web.api.fields import OWNER, Schema, told


@dataclass(frozen=True, slots=True)
class Operation:
    """`handler` takes the site, an open connection unless `offline`, what the path names, and by name what the query and the
    body say. It returns JSON's data, or a whole response.

    `answers` is by status, the usual one first. `query` is by name, `body` an object's schema (None: none is read), and
    `example` a body as somebody would send it.
    """

    method: str
    path: str
    handler: Callable[..., Any]
    answers: Mapping[int, Schema | None]
    query: Mapping[str, Schema] = field(default_factory=dict)
    body: Schema | None = None
    example: Mapping[str, Any] | None = None
    offline: bool = False

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def says(self) -> str:
        """The handler's own words."""
        return " ".join((self.handler.__doc__ or "").split())

    @property
    def template(self) -> str:
        """The path as OpenAPI writes it."""
        return self.path.replace(":path}", "}")

    @property
    def noun(self) -> str:
        """Of what the path names."""
        return self.path.split("/")[1].removesuffix("s")

    @property
    def piece(self) -> Mapping[str, Schema]:
        """What of the path is not fixed: an owner or an id, or nothing."""
        schemas = {
            "owner": told("The owner, as type:id.", OWNER),
            "id": told(f"The {self.noun}'s id.", {"type": "integer", "minimum": 1}),
        }
        return {name: schemas[name] for name in re.findall(r"{(\w+)", self.path)}
