"""Serves the page and the HTTP API, as `ticker web` or mounted in your own application.

    from starlette.applications import Starlette
    from starlette.routing import Mount
    from ticker.web import application

    app = Starlette(routes=[Mount("/ticker", application())])

Requests need TICKER_WEB_TOKEN or, if it is not set, a token that the application generates and logs.
Needs the extra `web`: pip install "rq-ticker[web]".
"""

from ticker.web.access import Viewer
from ticker.web.app import application

__all__ = ["Viewer", "application"]
