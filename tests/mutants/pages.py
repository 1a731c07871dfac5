"""Faults in who may see and change something on the page and in the HTTP API."""

from tests.mutants.mutant import Mutant

ACCESS = "ticker/web/access.py"

PAGES = (
    Mutant(
        "host-header-believed",
        ACCESS,
        "if not (loopback(client[0]) if client else _on_unix_socket(scope)):",
        "if False:",
        "Without a token, only clients on this host are served, whatever name a request has in Host.",
        ("tests/web/test_access.py::test_open_access_refuses_a_client_that_is_not_on_this_host",),
    ),
    Mutant(
        "open-without-being-asked",
        "ticker/web/app.py",
        "no_token = no_token or settings.web_no_token",
        "no_token = no_token or settings.web_no_token or not tokens",
        "The page is open without a token only if that was requested.",
        ("tests/web/test_access.py::test_where_no_token_is_set_one_is_made_and_logged_and_nothing_opens_without_it",),
    ),
    Mutant(
        "proxied-requests-are-local",
        ACCESS,
        'if name in PROXIED or name.startswith("x-forwarded-")]:',
        "if name in PROXIED and False]:",
        "Without a token, requests that a proxy has forwarded are refused.",
        ("tests/web/test_access.py::test_open_access_refuses_what_a_proxy_has_passed_on",),
    ),
    Mutant(
        "form-of-another-site",
        ACCESS,
        'or is_json(headers) or headers.get(SCRIPT) == "true":',
        "or True:",
        "A form on another site cannot change anything: a POST needs JSON, or the header that only the page's own script can send.",
        ("tests/web/test_forms.py::test_a_form_that_the_pages_script_did_not_send_changes_nothing",),
    ),
)
