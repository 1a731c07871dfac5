from ticker.web.pages.routes import error_page, routes

__all__ = ["error_page", "routes"]
