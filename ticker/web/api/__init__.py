"""The HTTP API, version 1: JSON in, JSON out; errors are RFC 9457 problem details that name the field."""

from ticker.web.api.openapi import described
from ticker.web.api.routes import routes as resources
from starlette.routing import Route

routes = [*resources, Route("/openapi.json", described(resources), methods=["GET"])]

__all__ = ["routes"]
