"""Serves the screens. Each screen is a function that returns the data for its template. No script or style is inline."""

from ticker.web.pages.routes import routes
from ticker.web.pages.screen import error_page

__all__ = ["error_page", "routes"]
