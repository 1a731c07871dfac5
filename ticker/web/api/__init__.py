"""The HTTP API, version 1: JSON in, JSON out; errors are RFC 9457 problem details that name the field."""

from ticker.web.api.routes import router

__all__ = ["router"]
