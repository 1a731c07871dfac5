"""The rights that docs/operations/security.md names."""

import re
from urllib.parse import urlsplit, urlunsplit

from tests.running import ROOT

SECURITY = (ROOT / "docs/operations/security.md").read_text(encoding="utf-8")
PASSWORD = "not-a-secret"


def block(language: str) -> str:
    [found] = re.findall(rf"```{language}\n(.*?)```", SECURITY, flags=re.DOTALL)
    return str(found)


def with_user(url: str, user: str) -> str:
    """The same server, as another user."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{user}:{PASSWORD}@{parts.netloc.rpartition('@')[2]}"))
