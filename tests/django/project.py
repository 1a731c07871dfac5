"""A Django project: what docs/recipes/django.md takes for granted."""

SETTINGS = """
import os
from urllib.parse import parse_qs, unquote, urlsplit
at = urlsplit(os.environ["PROJECT_DATABASE"])
options = {name: values[0] for name, values in parse_qs(at.query).items()}
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": at.path[1:], "USER": unquote(at.username or ""),
    "PASSWORD": unquote(at.password or ""), "HOST": options.get("host", at.hostname), "PORT": options.get("port", at.port)}}
INSTALLED_APPS = ["django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions",
    "django.contrib.messages", "myapp"]
MIDDLEWARE = ["django.contrib.sessions.middleware.SessionMiddleware", "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware"]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True, "OPTIONS": {"context_processors": [
    "django.template.context_processors.request", "django.contrib.auth.context_processors.auth",
    "django.contrib.messages.context_processors.messages"]}}]
SECRET_KEY, ROOT_URLCONF, ALLOWED_HOSTS, USE_TZ = "secret", "project.urls", ["*"], True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
"""

URLS = """
from django.contrib import admin
from django.urls import path
urlpatterns = [path("admin/", admin.site.urls)]
"""

MAIL = """
from types import SimpleNamespace
def fetch(host, after):
    return [SimpleNamespace(uid=uid, save=lambda: None) for uid in range((after or 0) + 1, 4)]
"""
