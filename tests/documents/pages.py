"""Lists the pages and the picture that are generated from the code."""

from types import ModuleType

from tests.documents import commands, fields, log_lines, outcomes, python_api, rooms, settings, sql_tables

PAGES: tuple[ModuleType, ...] = (python_api, fields, settings, commands, outcomes, log_lines, sql_tables, rooms)
"""Modules with a FILE and a function `text()`, which returns the contents of that file."""
