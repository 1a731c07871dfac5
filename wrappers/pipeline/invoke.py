"""Calls a task's function, and stores its answer."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from ticker import model
from ticker.errors import ConfigurationError
from ticker.model import RunKind
from wrappers.pipeline import fan_out, registry, serialize
from wrappers.pipeline.context import Call, HoldLost
from wrappers.pipeline.registry import Step
from wrappers.sandbox import limits
from wrappers.sandbox.limits import Stopped, soft_limit


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
    args, kwargs = model.split_arguments(call.start.kwargs)
    arguments = (call.run, *piece) if step.takes_run else piece
    try:
        return step.call(*arguments, *args, **kwargs)
    except TypeError as error:
        assert error.__traceback__ is not None
        if error.__traceback__.tb_next is not None:  # of a frame of the function
            raise
        given = (f"{len(args)} args and " if args else "") + f"kwargs ({', '.join(kwargs) or 'none'})"
        signature = inspect.signature(step.call, follow_wrapped=False)
        raise TypeError(f"the task's {given} do not fit {call.start.function}{signature}: {error}") from None


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


def call_function(call: Call) -> None:
    """Calls the registered function with the task's arguments. Stores its answer in the call."""
    assert call.start is not None
    function = registry.functions()[call.start.function]
    if call.start.kind is RunKind.PIECE:
        if function.process is None:
            raise ConfigurationError(f"{function.name} no longer has generate and process: the piece was not processed")
        note(call, invoke(call, function.process, call.start.piece))
    elif function.process is None:
        note(call, invoke(call, function.step))
    else:
        generate(call, function.step)
        call.answer.nothing_to_do = call.answer.pieces is None


def generate(call: Call, step: Step) -> None:
    """Stores the pieces of work in the call's answer. A generator runs while they are collected, within the run's
    limits.
    """
    pieces = fan_out.Pieces(lambda texts: keep(call, texts))
    answer = called(call, step)
    if inspect.isasyncgen(answer):
        asyncio.run(within(call, pieces.collect_async(answer)))
    else:
        pieces.collect(complete(call, answer))
    call.answer.pieces, call.answer.made = pieces.last(), pieces.made


def keep(call: Call, texts: str) -> None:
    """Records some of a large number of pieces. Ticks do not see them until the run has made all of its pieces."""
    assert call.start is not None
    if not call.database.execute("add_pieces", token=call.start.token, items=texts):
        raise HoldLost(f"the run no longer holds task {call.task_id}: its pieces were not written")


def invoke(call: Call, step: Step, *piece: Any) -> Any:
    return complete(call, called(call, step, *piece))


def complete(call: Call, answer: Any) -> Any:
    """Returns the answer of a function, which is awaited if it is an awaitable."""
    return asyncio.run(within(call, answer)) if inspect.isawaitable(answer) else answer


async def within(call: Call, awaitable: Any) -> Any:
    async with cancelling(call):
        return await awaited(awaitable)


@asynccontextmanager
async def cancelling(call: Call, is_stopped: Callable[[], bool] = lambda: False) -> AsyncIterator[asyncio.Timeout]:
    """Cancels the block at B + g/4, before the soft limit interrupts a function that does not wait. If its run is
    stopped, the caller may end the timeout earlier.
    """
    limit = asyncio.timeout(call.at(1 / 4) - limits.now())
    try:
        async with limit:
            yield limit
    except TimeoutError as error:
        if limit.expired():
            reached = Stopped if is_stopped() else soft_limit(call.seconds(1 / 4))
            raise reached().with_traceback((error.__cause__ or error).__traceback__) from None
        raise
    finally:
        call.answer.overlooked = limit.expired()
        call.answer.stopped = limit.expired() and is_stopped()
