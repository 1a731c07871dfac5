"""Defines a model of the tasks, for the admin. The tables have their own migrations."""

import os

from django.conf import settings
from django.db import models

SCHEMA = os.environ.get("TICKER_SCHEMA") or getattr(settings, "TICKER_SCHEMA", None) or "ticker"
OPTIONS = {"managed": False, "db_table": f'"{SCHEMA}"."tasks"', "default_permissions": ("view", "change")}


class Task(models.Model):
    """A row of the tasks. Only read it: to change a task, call the functions of `ticker`."""

    id = models.BigIntegerField(primary_key=True)
    name = models.TextField()
    owner_type = models.TextField()
    owner_id = models.TextField()
    function = models.TextField()
    queue = models.TextField()
    kind = models.TextField()
    expression = models.TextField()
    every_ms = models.BigIntegerField()
    enabled = models.BooleanField()
    owner_active = models.BooleanField()
    paused_by = models.TextField(null=True)
    next_run = models.DateTimeField(null=True)
    last_run = models.DateTimeField(null=True)
    last_outcome = models.TextField(null=True)
    failures = models.IntegerField()

    Meta = type("Meta", (), OPTIONS)

    def __str__(self) -> str:
        return f"{self.name} of {self.owner_type}:{self.owner_id}" if self.owner_type else self.name
