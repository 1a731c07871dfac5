"""What every handler works with: the settings, the database, and what may be shown."""

from dataclasses import dataclass
from typing import Any, cast

from starlette.requests import Request

from ticker import display
from ticker.settings import Settings
from ticker.task import Task
from ticker.web.access import Access, Forms
from ticker.web.database import Database

HIDDEN = "hidden by TICKER_HIDE_ARGS"


@dataclass(frozen=True, slots=True)
class Site:
    """One application: made once, at its start."""

    settings: Settings
    database: Database
    access: Access
    forms: Forms

    def task_data(self, task: Task) -> dict[str, Any]:
        """As JSON has it. Arguments, cursors and metadata of users' own are left out where they are to be hidden."""
        data = display.task_data(task)
        return data | dict.fromkeys(("kwargs", "cursor", "metadata"), HIDDEN) if self.settings.hide_args else data


def site(request: Request) -> Site:
    return cast(Site, request.app.state.site)
