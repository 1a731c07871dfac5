"""What docs/reference/stability.md calls stable is there."""

import re
from importlib import import_module

import pytest

from tests.running import ROOT

PAGE = (ROOT / "docs" / "reference" / "stability.md").read_text(encoding="utf-8")


def there(name: str) -> bool:
    """Whether a dotted name is a module, or is in one."""
    module, _, last = name.rpartition(".")
    try:
        return last in dir(import_module(module)) or import_module(name) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.slow
def test_every_public_name_of_the_page_is_there():
    [further] = re.findall(r"^\| Python: further modules \|([^|]+)\|", PAGE, flags=re.MULTILINE)
    names = re.findall(r"`(ticker[\w.]+)`", further)
    assert len(names) >= 7
    assert [name for name in names if not there(name)] == []
