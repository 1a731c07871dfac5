"""Declares an operation of the API: its address, input and answers. The server and the OpenAPI document both use it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ticker.web.api.fields import Schema


@dataclass(frozen=True, slots=True)
class Operation:
    """A handler, and the schemas of its input and answers.

    The handler takes the site, an open connection (unless `offline`), the values in the path, and the query and the body as
    keywords. It returns data for JSON, or a response. `answers` maps each status to the type of its data (or a schema), with
    the usual status first. `of` and `query` map names in the path and the query to schemas. `body` is the schema of an object.
    If `body` is None, no body is read. `fails` has statuses of problems that only this operation has.
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
    fails: Collection[int] = ()

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def says(self) -> str:
        """The handler's docstring, which is published."""
        return " ".join((self.handler.__doc__ or "").split())

    @property
    def template(self) -> str:
        """The path in OpenAPI's notation."""
        return self.path.replace(":path}", "}")
