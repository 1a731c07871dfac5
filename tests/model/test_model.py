"""The protocol, checked exhaustively over small bounds (`python -m tests.model` prints more)."""

from dataclasses import replace

import pytest

from tests.model.explore import LIVENESS, explore
from tests.model.rules import Bounds
from tests.model.variants import LIMITS, NIGHTLY, QUICK, WRONG, Variant

EVERY_VARIANT = [*WRONG, *LIMITS]
SLOW = {
    "overdue_by_its_own_clock",
    "sweep_keeps_the_hold",
}  # over 20,000 states each: the command shows them


@pytest.mark.slow
@pytest.mark.parametrize("bounds", QUICK, ids=lambda bounds: bounds.name)
def test_every_invariant_holds_in_every_state_within_a_small_bound(bounds: Bounds) -> None:
    found = explore(bounds)
    assert (found.broken, found.trace) == ("", [])
    assert found.states > 4_000


def variants(slow: bool) -> list[Variant]:
    return [variant for variant in EVERY_VARIANT if slow == (not SLOW.isdisjoint(variant.changes))]


@pytest.mark.slow
@pytest.mark.parametrize("variant", variants(slow=False), ids=lambda variant: variant.name)
def test_a_wrong_variant_breaks_the_invariant_that_it_names(variant: Variant) -> None:
    found = explore(variant.bounds, variant.rules(), liveness=variant.breaks in LIVENESS)
    assert (found.broken, bool(found.trace)) == (variant.breaks, True)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("variant", variants(slow=True), ids=lambda variant: variant.name)
def test_a_wrong_variant_that_shows_itself_late_breaks_it_too(variant: Variant) -> None:
    test_a_wrong_variant_breaks_the_invariant_that_it_names(variant)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("variant", WRONG, ids=lambda variant: variant.name)
def test_the_bounds_of_a_wrong_variant_break_nothing_with_the_right_rules(variant: Variant) -> None:
    found = explore(replace(variant.bounds, at_most=5_000), liveness=variant.breaks in LIVENESS)
    assert (found.broken, found.trace) == ("", [])


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_invariant_holds_in_a_million_states() -> None:
    results = [explore(bounds) for bounds in NIGHTLY]
    assert [(result.name, result.broken, result.trace) for result in results if result.broken] == []
    assert max(result.states for result in results) >= 1_000_000
