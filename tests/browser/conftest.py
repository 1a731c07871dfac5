"""Debian's Chromium, headless, before the real application on a real port. Every test ends without a word in its console."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.browser import scene

DESKTOP, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}

SCREENS = (
    "/",
    "/tasks",
    "/tasks/1",
    "/tasks/2/edit",
    "/tasks/new",
    "/tasks/all?action=pause",
    "/tasks/grid",
    "/tasks/due",
    "/tasks/spread",
    "/owners",
    "/owners/one?owner=mail_channels:2",
    "/limits",
    "/runs",
    "/runs/1",
    "/runs?by=reason",
    "/runs?at=2m",
    "/?at=2m",
    "/processes",
    "/api",
)


@contextmanager
def served(**said: Any) -> Iterator[str]:
    """The address of the application, which is open to this host unless `said` names tokens, while the block lasts."""
    import uvicorn

    from tests.web.serving import in_thread
    from ticker.web import application

    app = application(**({} if "tokens" in said else {"no_token": True}) | said)
    with in_thread(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning")) as server:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"


@pytest.fixture
def filled(play: Any, db: Any) -> Any:
    scene.fill(play, db)
    return play


@pytest.fixture
def address(filled: Any, environ: dict[str, str]) -> Iterator[str]:
    with served() as found:
        yield found


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="uv sync --group browser")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.fail("no Chromium is installed: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any, address: str) -> Iterator[Any]:
    with opened(chromium, address, DESKTOP) as found:
        yield found


@pytest.fixture
def phone(chromium: Any, address: str) -> Iterator[Any]:
    with opened(chromium, address, PHONE, has_touch=True, is_mobile=True) as found:
        yield found


@contextmanager
def opened(chromium: Any, address: str, size: dict[str, int], **more: Any) -> Iterator[Any]:
    """A page of a fresh browser; what its console says fails the test."""
    context = chromium.new_context(base_url=address, viewport=size, **more)
    found, complaints = context.new_page(), list[str]()
    found.on("console", lambda message: message.type in ("error", "warning") and complaints.append(message.text))
    found.on("pageerror", lambda error: complaints.append(str(error)))
    found.set_default_timeout(20_000)
    found.complaints = complaints
    yield found
    context.close()
    assert complaints == []


@pytest.fixture
def axe() -> Callable[[Any], list[str]]:
    """What axe-core finds on a page that is serious or worse, each with where."""
    from axe_playwright_python.sync_playwright import Axe

    def findings(page: Any) -> list[str]:
        found = Axe().run(page).response["violations"]
        return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found if one["impact"] in ("serious", "critical")]

    return findings
