"""Declares one operation of the API: its address, what it takes, and what it answers. It is served and described by that."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ticker.web.api.fields import Schema


@dataclass(frozen=True, slots=True)
class Operation:
    """Holds the handler and the schemas of what it takes and answers.

    The handler takes the site, an open connection (unless `offline`), what the path names, and the query and the body as
    keywords. It returns data for JSON, or a response. `answers` maps a status to the type of its data (or a schema), the usual status first. `of` and
    `query` map names in the path and the query to schemas. `body` is the schema of an object; None: no body is read.
    """

    method: str
    path: str
    handler: Callable[..., Any]
    answers: Mapping[int, Any]
    of: Mapping[str, Schema] = field(default_factory=dict)
    query: Mapping[str, Schema] = field(default_factory=dict)
    body: Schema | None = None
    example: Mapping[str, Any] | None = None
    offline: bool = False

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def says(self) -> str:
        """Returns the handler's docstring, which is published."""
        return " ".join((self.handler.__doc__ or "").split())

    @property
    def template(self) -> str:
        """Returns the path as OpenAPI writes it."""
        return self.path.replace(":path}", "}")
