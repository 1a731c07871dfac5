"""Serves version 1 of the HTTP API: JSON in, JSON out. Errors are RFC 9457 problem details that name the field."""

from ticker.web.api.routes import router

__all__ = ["router"]
