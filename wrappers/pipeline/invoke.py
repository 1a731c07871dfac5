"""Calls a task's function, and stores its answer."""

from typing import Any

from wrappers.pipeline import fan_out, serialize
from wrappers.pipeline.context import Call
from wrappers.pipeline.registry import Step


def called(call: Call, step: Step, *piece: Any) -> Any:
    """Calls the step with the run if it takes one, the piece if there is one, and the task's arguments."""
    assert call.start is not None
    arguments = (call.run, *piece) if step.takes_run else piece
    return step.call(*arguments, **call.start.kwargs)


def note(call: Call, returned: Any) -> None:
    """Stores what the function returned in the call's answer."""
    call.answer.nothing_to_do = returned is fan_out.NOTHING_TO_DO
    if not call.answer.nothing_to_do:
        result, call.answer.note = serialize.as_json(returned)
        call.answer.result = result or None
