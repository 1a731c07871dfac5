"""Requests that Schemathesis makes up from the description: no error of ours, and every answer is as it is described."""

import pytest

from tests.web.schemathesis_run import ask


@pytest.mark.slow
def test_two_hundred_requests_are_answered_as_described(environ: dict[str, str], database_url: str) -> None:
    found = ask(database_url, examples=12, seed=1, phases="fuzzing")
    assert found.complete and not found.failed, found.words
    assert found.requests >= 200 and "Traceback" not in found.server, found.requests


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_two_thousand_requests_are_answered_as_described(environ: dict[str, str], database_url: str) -> None:
    found = ask(database_url, examples=25, seed=2)
    assert found.complete and not found.failed, found.words
    assert found.requests >= 2000 and "Traceback" not in found.server, found.requests
