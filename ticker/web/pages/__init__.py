"""The screens. Each is a function from a request to the data of its template. No build step, no inline script or style."""

from ticker.web.pages.routes import routes
from ticker.web.pages.screen import error_page

__all__ = ["error_page", "routes"]
