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
    Mutant(
        "route-without-a-decision",
        "ticker/web/pages/state.py",
        '@screen("/processes", "processes.html", offline=True)',
        '@screen("/machines", "processes.html", offline=True)\n@screen("/processes", "processes.html", offline=True)',
        "For each route, it is decided whether viewers of some owners have it.",
        ("tests/web/test_viewers_of_owners.py::test_each_route_is_decided",),
    ),
    Mutant(
        "all-routes-for-all-viewers",
        "ticker/web/pages/screen.py",
        "    if owned:",
        "    if True:",
        "A viewer of some owners has the screens of tasks and runs, and no others.",
        ("tests/web/test_viewers_of_owners.py::test_what_concerns_all_does_not_exist",),
    ),
    Mutant(
        "viewer-sees-all-owners",
        "ticker/db/sql/rules.sql",
        "    OR (t.owner_type, t.owner_id) IN (SELECT",
        "    OR true OR (t.owner_type, t.owner_id) IN (SELECT",
        "A viewer of some owners reads and changes only the tasks and runs of these owners.",
        ("tests/web/test_viewers_of_owners.py::test_those_of_other_owners_do_not",),
    ),
)
