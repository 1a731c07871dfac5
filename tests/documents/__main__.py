"""Writes the pages of docs/reference and the picture of the rooms from the code: `python -m tests.documents`."""

from tests.documents.pages import PAGES

for page in PAGES:
    page.FILE.parent.mkdir(parents=True, exist_ok=True)
    page.FILE.write_text(page.text(), encoding="utf-8")
