"""Faults in who may see and change something on the page and in the HTTP API."""

from tests.mutants.mutant import Mutant

ACCESS = "ticker/web/access.py"

PAGES = (
    Mutant(
        "form-of-another-site",
        ACCESS,
        'or is_json(headers) or headers.get(SCRIPT) == "true":',
        "or True:",
        "A form of another site changes nothing: a POST holds JSON, or the header that only the page's own script can send.",
        ("tests/web/test_forms.py::test_a_form_that_the_pages_script_did_not_send_changes_nothing",),
    ),
)
