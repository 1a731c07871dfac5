"""Chains layers around a call, outermost first. A layer gets the call and the next layer, which it may or may not call."""

from collections.abc import Callable, Sequence

from wrappers.pipeline.context import Call

Proceed = Callable[[Call], str]
Layer = Callable[[Call, Proceed], str]


def chain(layers: Sequence[Layer], innermost: Proceed) -> Proceed:
    """Returns `layers[0](call, layers[1](call, ... innermost(call)))` as a function of `call`."""
    proceed = innermost
    for layer in reversed(layers):
        proceed = _around(layer, proceed)
    return proceed


def _around(layer: Layer, proceed: Proceed) -> Proceed:
    return lambda call: layer(call, proceed)
