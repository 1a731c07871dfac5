"""Calls a task's function, and stores its answer."""

import inspect
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any

from ticker import model
from wrappers.pipeline import fan_out, serialize
from wrappers.pipeline.context import Call
from wrappers.pipeline.registry import Step


@contextmanager
def at_work(call: Call) -> Iterator[None]:
    """Lets `run_now` know which run calls it."""
    assert call.start is not None
    token = model.at_work.set((call.task_id, call.start.now))
    try:
        yield
    finally:
        model.at_work.reset(token)


def called(call: Call, step: Step, *piece: Any) -> Any:
    """Calls the step with the run if it takes one, the piece if there is one, and the task's arguments."""
    assert call.start is not None
    arguments = (call.run, *piece) if step.takes_run else piece
    try:
        return step.call(*arguments, **call.start.kwargs)
    except TypeError as error:
        assert error.__traceback__ is not None
        if error.__traceback__.tb_next is not None:  # of a frame of the function
            raise
        given, signature = ", ".join(call.start.kwargs) or "none", inspect.signature(step.call, follow_wrapped=False)
        raise TypeError(f"the task's kwargs ({given}) do not fit {call.start.function}{signature}: {error}") from None


async def awaited(answer: Awaitable[Any]) -> Any:
    """Awaits an answer until it is no awaitable: decorators may pass on the coroutine of an `async def`, which has not
    begun.
    """
    result = await answer
    while inspect.isawaitable(result):
        result = await result
    return result


def note(call: Call, returned: Any) -> None:
    """Stores what the function returned in the call's answer. Raises TypeError if it is a generator that has not begun."""
    has_not_begun = inspect.isgenerator(returned) and inspect.getgeneratorstate(returned) == inspect.GEN_CREATED
    if inspect.isasyncgen(returned) or (has_not_begun and returned.gi_code.co_name != "<genexpr>"):
        raise TypeError(
            f"the function returned the generator {returned.__qualname__}, which nothing iterates over, so its body did not run; "
            "iterate over it in the function, or yield pieces of work in a class's generate"
        )
    call.answer.nothing_to_do = returned is fan_out.NOTHING_TO_DO
    if not call.answer.nothing_to_do:
        result, call.answer.note = serialize.as_json(returned)
        call.answer.result = result or None
