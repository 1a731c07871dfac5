"""The functions that a worker may run: those registered with `@task`, found by their registered name alone."""

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ticker.errors import BadInput, ConfigurationError, quoted

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Function:
    """A registered function; `takes_run` when its first parameter is called `run`."""

    name: str
    call: Callable[..., Any]
    takes_run: bool
    is_async: bool
    declared: Mapping[str, Any]
    """What `@task` said beside the name, for `ticker sync`: fields of `ticker.register`."""


_functions: dict[str, Function] = {}


def task(name: str, **declared: Any) -> Callable[[F], F]:
    """Registers a function under the name that tasks run it by: `@task("mail.fetch")`.

    The function is called with the task's kwargs, and first with the `Run` if its first parameter is called `run`.
    It may be `async def`. A schedule beside the name, `@task("reports.daily", cron="0 6 * * 1-5")`, declares a task
    without an owner, which `ticker sync` keeps in step; it takes the fields of `ticker.register`.
    BadInput where the name is no text, or already another function's.
    """
    if not isinstance(name, str) or not name or len(name) > 200 or not name.isprintable():
        raise BadInput(
            "task", name, "is no name for a function: a printable text of 1 to 200 characters, @task('mail.fetch')"
        )

    def register(call: F) -> F:
        known = _functions.get(name)
        if known and _identity(known.call) != _identity(call):
            raise BadInput("task", name, f"is already the name of {'.'.join(_identity(known.call))}; names are unique")
        first = next(iter(inspect.signature(call).parameters), "")
        _functions[name] = Function(name, call, first == "run", inspect.iscoroutinefunction(call), declared)
        return call

    return register


def functions() -> Mapping[str, Function]:
    """The registered functions by name."""
    return _functions


def load(modules: Iterable[str]) -> None:
    """Imports the modules that hold the functions; ConfigurationError in one sentence where one is not there."""
    for module in modules:
        import_named("--tasks (TICKER_TASKS)", module)


def import_named(option: str, module: str) -> None:
    """Imports the module that an option names; ConfigurationError in one sentence where it is none, or not there."""
    if "" in module.split("."):
        raise ConfigurationError(f"{option}: {quoted(module)} is no module's full name; write it as in myapp.polls")
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, and something that it imports is not: its author needs the traceback
        raise ConfigurationError(f"{option}: there is no module {quoted(module)} on the import path") from None


def _identity(call: Callable[..., Any]) -> tuple[str, str]:
    return getattr(call, "__module__", "?"), getattr(call, "__qualname__", repr(call))
