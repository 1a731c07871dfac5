"""Serves the screens. Each screen is a function that returns the data for its template. No script or style is inline."""

from ticker.web.pages import due, grid, state, tasks
from ticker.web.pages.screen import error_page, of_owners, routes

__all__ = ["due", "error_page", "grid", "of_owners", "routes", "state", "tasks"]
