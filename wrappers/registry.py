"""The functions that a worker may run: those registered with `@task`, found by their registered name alone."""

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from ticker.errors import BadInput, ConfigurationError, quoted

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Step:
    """Something to call; `takes_run` when its first parameter is called `run`."""

    call: Callable[..., Any]
    takes_run: bool
    is_async: bool

    @classmethod
    def of(cls, call: Callable[..., Any]) -> Self:
        first = next(iter(inspect.signature(call).parameters), "")
        return cls(call, first == "run", inspect.iscoroutinefunction(call))


@dataclass(frozen=True, slots=True)
class Function:
    """A registered function; with `process`, it generates pieces of work, each of which is processed by a run of its own."""

    name: str
    step: Step
    process: Step | None
    module: str
    declared: Mapping[str, Any]
    """What `@task` said beside the name, for `ticker sync`: fields of `ticker.register`."""


_functions: dict[str, Function] = {}
_identities: dict[str, tuple[str, str]] = {}


def task(name: str, **declared: Any) -> Callable[[F], F]:
    """Registers a function under the name that tasks run it by: `@task("mail.fetch")`.

    The function is called with the task's kwargs, and first with the `Run` if its first parameter is called `run`.
    It may be `async def`. A class stands for work in pieces: its `generate` yields them (JSON), and its `process` is
    called with each, in a run of its own. A schedule beside the name, `@task("reports.daily", cron="0 6 * * 1-5")`, declares a task
    without an owner, which `ticker sync` keeps in step; it takes the fields of `ticker.register`.
    BadInput where the name is no text, or already another function's, or where a class lacks one of the two.
    """
    if not isinstance(name, str) or not name or len(name) > 200 or not name.isprintable():
        raise BadInput(
            "task", name, "is no name for a function: a printable text of 1 to 200 characters, @task('mail.fetch')"
        )

    def register(call: F) -> F:
        known = _identities.get(name, _identity(call))
        if known != _identity(call):
            raise BadInput("task", name, f"is already the name of {'.'.join(known)}; names are unique")
        _functions[name] = _in_pieces(name, call, declared) if isinstance(call, type) else _whole(name, call, declared)
        _identities[name] = _identity(call)
        return call

    return register


def _whole(name: str, call: Callable[..., Any], declared: Mapping[str, Any]) -> Function:
    return Function(name, Step.of(call), None, _identity(call)[0], declared)


def _in_pieces(name: str, of: type, declared: Mapping[str, Any]) -> Function:
    worker = of()
    for method in ("generate", "process"):
        if not callable(getattr(worker, method, None)):
            raise BadInput("task", name, f"is the name of the class {of.__name__}, which has no method {method}")
    return Function(name, Step.of(worker.generate), Step.of(worker.process), of.__module__, declared)


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
