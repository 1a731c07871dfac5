"""The pictures of the docs: `python -m tests.browser.shots [docs/pictures]`, of the page beside a running demo.

It notes what the pictures were made from, so that a test notices when they are older than the page.
"""

import hashlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from tests.browser.conftest import DESKTOP, PHONE
from tests.running import ROOT

PICTURES = {
    "now": ("/", DESKTOP, "light"), "now-phone": ("/", PHONE, "light"), "tasks": ("/tasks", DESKTOP, "light"),
    "task": ("/tasks/1", DESKTOP, "light"), "task-phone": ("/tasks/1", PHONE, "light"), "owners": ("/owners", DESKTOP, "light"),
    "runs-dark": ("/runs", DESKTOP, "dark"), "drops": ("/runs?by=reason", DESKTOP, "light"), "new": ("/tasks/new", DESKTOP, "light"),
    "processes-dark": ("/processes", DESKTOP, "dark"), "grid": ("/tasks/grid?span=10m", DESKTOP, "light"),
    "run": ("/runs?outcome=killed", DESKTOP, "light"),
}  # fmt: skip
WEB, NOTE = ROOT / "ticker/web", "made-from.txt"
PATIENCE, WORTH_SEEING = 60, 22.0  # seconds until the page is there, and until the demo has shown something


def source() -> str:
    """Returns the digest of the templates, the style and the script."""
    files = sorted([*WEB.glob("templates/*.html"), *WEB.glob("static/ticker.*")])
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


@contextmanager
def demo() -> Iterator[str]:
    with TemporaryFile("w+") as said:
        process = subprocess.Popen(["ticker", "demo", "--web"], stdout=said, stderr=said, start_new_session=True)
        try:
            yield address(said)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE)


def address(said) -> str:  # type: ignore[no-untyped-def]
    for _ in range(10 * PATIENCE):
        said.seek(0)
        if found := re.search(r"http://\S+@127\S+", said.read()):
            return found[0].rstrip("/")
        time.sleep(0.1)
    raise TimeoutError("the demo shows no page")


def main(folder: Path) -> None:
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    with demo() as url, sync_playwright() as driver:
        time.sleep(WORTH_SEEING)
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for name, (path, size, scheme) in PICTURES.items():
            page = browser.new_context(viewport=size, color_scheme=scheme).new_page()
            page.goto(url + path)
            if name == "new":
                page.fill("#function", "mail.fetch")
                page.fill("#schedule", "0 9 * * 1-5")
                page.fill("#zone", "Europe/Berlin")
                page.wait_for_selector("#preview b")
            if name == "run":
                page.click("tbody tr td:last-child a")
                page.wait_for_selector("svg.life")
            page.screenshot(path=folder / f"{name}.png", full_page=name in ("now-phone", "task", "task-phone", "new"))
        browser.close()
    (folder / NOTE).write_text(f"{source()}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures"))
