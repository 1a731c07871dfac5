"""Layers around a call, outermost first: a layer is handed the call and the next one, and says no by not calling it."""

from collections.abc import Callable, Sequence

from wrappers.pipeline.context import Call

Proceed = Callable[[Call], str]
Layer = Callable[[Call, Proceed], str]


def chain(layers: Sequence[Layer], innermost: Proceed) -> Proceed:
    """`layers[0](call, layers[1](call, ... innermost(call)))`."""
    proceed = innermost
    for layer in reversed(layers):
        proceed = _around(layer, proceed)
    return proceed


def _around(layer: Layer, proceed: Proceed) -> Proceed:
    return lambda call: layer(call, proceed)
