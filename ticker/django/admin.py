"""Shows the tasks in the admin, and changes selected ones. The history names the user."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.db import connections, transaction
from django.db.models import QuerySet
from django.http import HttpRequest

import ticker
from ticker.django.apps import alias
from ticker.django.models import Task
from ticker.errors import TickerError

Change = Callable[[Any, int, str], object]
"""Takes a connection, the id of a task, and the name of the user."""


class TaskAction(NamedTuple):
    """What an action does to each of the selected tasks that have these values."""

    change: Change
    done: str
    of: dict[str, Any]


TASK_ACTIONS = {
    "enable": TaskAction(lambda db, id_, by: ticker.edit(db, id_, enabled=True, by=by), "Enabled", {"enabled": False}),
    "disable": TaskAction(
        lambda db, id_, by: ticker.edit(db, id_, enabled=False, by=by), "Disabled", {"enabled": True}
    ),
    "run": TaskAction(lambda db, id_, by: ticker.run_now(db, id_), "Requested a run", {}),
    "pause": TaskAction(lambda db, id_, by: ticker.pause(db, id_, by=by), "Paused", {}),
    "resume": TaskAction(lambda db, id_, by: ticker.resume(db, id_, by=by), "Resumed", {"paused_by__isnull": False}),
}


def act(action: TaskAction, _: "TaskAdmin", request: HttpRequest, tasks: "QuerySet[Task]") -> None:
    """Changes each task by itself. The history and the messages name only what was done."""
    changed, refusals = list[Task](), list[str]()
    with transaction.atomic(using=tasks.db):
        for task in tasks.filter(**action.of):
            try:
                with transaction.atomic(using=tasks.db):
                    action.change(connections[tasks.db], task.pk, request.user.get_username())
                changed.append(task)
            except TickerError as error:
                refusals.append(str(error))
        LogEntry.objects.log_actions(request.user.pk, changed, CHANGE, action.done)
    messages.success(request, f"{action.done}: {len(changed)} of {len(changed) + len(refusals)} tasks.")
    if refusals:
        more = f" (and {len(refusals) - 1} more)" if refusals[1:] else ""
        messages.error(request, f"{refusals[0]}{more}")


class TaskAdmin(admin.ModelAdmin):
    """Lists tasks. A task has no form: the ticker writes its row, too."""

    list_display = (
        *("name", "owner_type", "owner_id", "function", "queue", "enabled", "paused_by"),
        *("next_run", "last_outcome", "failures"),
    )
    list_filter = ("enabled", "owner_active")
    search_fields = ("name__exact", "function__exact", "owner_id__exact")
    ordering = ("id",)
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Task]":
        return super().get_queryset(request).using(alias())

    def has_add_permission(self, *_: Any) -> bool:
        return False

    def has_delete_permission(self, *_: Any) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Task | None = None) -> bool:
        return obj is None and super().has_change_permission(request)

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        def button(name: str) -> tuple[Callable[..., None], str, str]:
            return partial(act, TASK_ACTIONS[name]), name, f"{name.capitalize()} selected tasks"

        own = TASK_ACTIONS if self.has_change_permission(request) else ()
        return {**super().get_actions(request), **{name: button(name) for name in own}}


if connections[alias()].vendor == "postgresql":
    admin.site.register(Task, TaskAdmin)
