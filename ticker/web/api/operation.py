"""One thing that the API does: where, what may be asked of it, what it answers. The table of them is served and described."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ticker.web.api.fields import Field, Schema
from ticker.web.site import Site


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, read. `root` is the address of the API; `of` what the path names; `query` and `body` what was given."""

    root: str
    of: Any
    query: Mapping[str, Any]
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """`data` is JSON's; None: there is nothing to tell. `location` is the address of what was made."""

    data: Any = None
    status: int = 200
    location: str = ""


Handler = Callable[[Site, Asked], Answer]


@dataclass(frozen=True, slots=True)
class Operation:
    """`of` is the one piece of the path that is not fixed; `body` None: none is read. `answers` is by status, and
    `example` a body as somebody would send it."""

    method: str
    path: str
    handler: Handler
    answers: Mapping[int, Schema | None]
    of: Field | None = None
    query: tuple[Field, ...] = ()
    body: tuple[Field, ...] | None = None
    example: Mapping[str, Any] | None = None

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
