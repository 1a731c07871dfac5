"""Registers the functions that a worker may run, with `@task`. They are looked up only by their registered names."""

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from ticker import logs
from ticker.errors import BadInput, ConfigurationError, quoted
from ticker.model import BATCH_AT_MOST, REGISTERED, RegisteredFunction

if TYPE_CHECKING:
    from ticker.tasks.fields import Changes

F = TypeVar("F", bound=Callable[..., Any])

FUNCTIONS = "--functions (TICKER_FUNCTIONS)"


@dataclass(frozen=True, slots=True)
class Step:
    """A callable. `takes_run` means that its first parameter is named `run`; `yields` means that the callable is a
    generator.
    """

    call: Callable[..., Any]
    takes_run: bool
    is_async: bool
    yields: bool

    @classmethod
    def of(cls, call: Callable[..., Any]) -> Self:
        first = next(iter(inspect.signature(call).parameters), "")
        streams = inspect.isasyncgenfunction(call)
        return cls(
            call,
            first == "run",
            streams or inspect.iscoroutinefunction(call),
            streams or inspect.isgeneratorfunction(call),
        )


@dataclass(frozen=True, slots=True)
class Function:
    """A registered function. With `process`, it generates pieces of work, and each piece is processed in its own run."""

    name: str
    step: Step
    process: Step | None
    module: str
    qualname: str
    batch: int
    """The maximum number of due tasks with this function in one job."""
    concurrency: int
    """The maximum number of them that run at the same time in one process."""
    repeatable: bool
    """Whether an interrupted run is retried, even if its task has no retries."""
    declared: Mapping[str, Any]
    """The arguments of `@task` other than the name, for `ticker sync`: fields of `ticker.register`."""


_functions: dict[str, Function] = {}
_offered: set[str] = set()
_limits: dict[str, tuple[str, Mapping[str, Any]]] = {}


def task(
    name: str,
    *,
    batch: int | None = None,
    concurrency: int = 1,
    repeatable: bool = False,
    **declared: "Unpack[Changes]",
) -> Callable[[F], F]:
    """Registers a function under the name that tasks use for it: `@task("mail.fetch")`.

    The function is called with the task's args and kwargs. If its first parameter is named `run`, it gets the `Run`
    before them. It may be `async def`. A class does work in pieces: its `generate` yields them (JSON), and its
    `process` is called with each piece, in its own run.

    A schedule after the name, `@task("reports.daily", cron="0 6 * * 1-5")`, declares a task without an owner. `ticker
    sync` keeps that task up to date. `@task` takes the fields of `ticker.register`, except
    `name`, `owner` and `first`.

    With `concurrency`, one process runs up to that many due tasks at the same time: coroutines on one event loop, plain
    functions in threads. Each has its own start, box and record. This suits runs that wait for the network.

    With `batch` alone, one RQ job carries up to that many due tasks (at most 1,000), which run one after another in one
    process. This suits many short runs of a function that leaves its process unchanged. With `concurrency`, `batch` is
    rarely needed: a job carries as many tasks as their measured durations allow.

    With `repeatable=True`, an `interrupted` run gets a second attempt, even if its task has no retries.

    Raises BadInput if the name is invalid or belongs to another function, or if a class lacks one of the two methods.
    Also raises it if a function other than `generate` yields, because nothing would iterate over it.
    """
    if not isinstance(name, str) or not name or len(name) > 200 or not name.isprintable():
        raise BadInput(
            "task",
            name,
            "is not a function name: use a printable string of 1 to 200 characters, as in @task('mail.fetch')",
        )
    most = batch if batch is not None else 1 if concurrency == 1 else BATCH_AT_MOST
    if type(most) is not int or not 1 <= most <= BATCH_AT_MOST:
        raise BadInput("batch", batch, f"is not a number of tasks per job: use 1 to {BATCH_AT_MOST}")
    if type(concurrency) is not int or not 1 <= concurrency <= most:
        raise BadInput("concurrency", concurrency, f"is not a number of tasks at a time: use 1 to {most}, the batch")
    if type(repeatable) is not bool:
        raise BadInput("repeatable", repeatable, "is not a bool: use True or False")

    def register(call: F) -> F:
        known, identity = _functions.get(name), _identity(call)
        if known and (known.module, known.qualname) != identity:
            raise BadInput("task", name, f"is already the name of {known.module}.{known.qualname}; names are unique")
        step, process = _steps_of_class(name, call) if isinstance(call, type) else (_plain_step(name, call), None)
        if concurrency > 1 and process is not None:
            raise BadInput(
                "concurrency", concurrency, f"is for functions, but {call.__name__} is a class: leave it out"
            )
        _functions[name] = Function(name, step, process, *identity, most, concurrency, repeatable, declared)
        REGISTERED[name] = RegisteredFunction(most, concurrency, repeatable)
        return call

    return register


def limit(key: str, *, concurrency: int | None = None, rate: str | None = None, burst: int | None = None) -> None:
    """Declares the limit of a key in a module. The arguments are those of `ticker.limit`.

    `ticker sync` applies the declaration. Raises BadInput if a value is invalid, or if the key is already declared with
    other values.
    """
    from ticker.tasks import checks  # imported here, because a work-horse without limits does not need it

    said: dict[str, Any] = {"concurrency": concurrency, "rate": rate, "burst": burst}
    checks.limit_of_key(key, **said)
    module, known = _limits.setdefault(key, (sys._getframe(1).f_globals.get("__name__", "?"), said))
    if known != said:
        raise BadInput("limit", key, f"is already declared with other values in {module}; declare each key once")


def _steps_of_class(name: str, of: type) -> tuple[Step, Step]:
    """Returns the step that generates pieces and the step that processes them."""
    for method in ("generate", "process"):
        if not callable(getattr(of, method, None)):
            raise BadInput("task", name, f"is the name of the class {of.__name__}, which has no method {method}")
    worker = _made(name, of)
    return Step.of(worker.generate), _plain_step(name, worker.process)


def _made(name: str, of: type) -> Any:
    """Creates the only instance of a class. Its methods run in forks of the worker, so they share nothing through it."""
    try:
        inspect.signature(of).bind()
    except TypeError as error:
        raise BadInput(
            "task", name, f"is the name of the class {of.__name__}, which cannot be called without arguments: {error}"
        ) from None
    return of()


def _plain_step(name: str, call: Callable[..., Any]) -> Step:
    step = Step.of(call)
    if step.yields:
        raise BadInput(
            "task",
            name,
            "yields, but nothing iterates over it; only a class's `generate` may yield: see pieces of work",
        )
    return step


def functions() -> Mapping[str, Function]:
    """Returns the registered functions by name."""
    return _functions


def limits() -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    """Returns the declared limits by key: the module, and the other arguments of `limit`."""
    return _limits


def load(modules: Iterable[str], plain: Iterable[str] = ()) -> None:
    """Imports the modules that register functions, and registers the plain functions that the worker's operator names.

    Raises ConfigurationError if one is missing or fails.
    """
    logs.keep_enabled()
    for module in modules:
        import_named("--tasks (TICKER_TASKS)", module)
    for name in plain:
        if name not in _offered:  # called before every run
            offer(name)
            _offered.add(name)


def offer(name: str) -> None:
    """Registers plain functions as `myapp.jobs:poll`: one that is named in full, or all public ones that a module defines.

    Leaves out a module's generators, which nothing would iterate over. Raises ConfigurationError if there is no function.
    """
    module, function = _place(name)
    defined = _defined_in(module)
    chosen = [
        one for one, call in defined.items() if one == function or (function is None and not Step.of(call).yields)
    ]
    if not chosen:
        what = "defines no public function" if function is None else f"is not a public function that {module} defines"
        raise ConfigurationError(
            f"{FUNCTIONS}: {quoted(name)} {what}; write a module such as myapp.jobs, or a function with the module that "
            "defines it, such as myapp.reports.daily"
        )
    for one in chosen:
        task(f"{module}:{one}")(defined[one])


def _place(name: str) -> tuple[str, str | None]:
    """Imports the module of a name in `--functions`, and returns it with the function, or None for all of its functions."""
    module, colon, function = name.partition(":")
    parent, _, last = name.rpartition(".")
    if not colon and parent:
        import_named(FUNCTIONS, parent)
        if not hasattr(sys.modules[parent], "__path__") or last in _defined_in(parent):
            return parent, last
    import_named(FUNCTIONS, module)
    return module, function if colon else None


def _defined_in(module: str) -> dict[str, Callable[..., Any]]:
    """Returns the public functions that a module defines, by name. Leaves out classes and imported functions."""
    return {
        name: value
        for name, value in vars(sys.modules[module]).items()
        if inspect.isfunction(value) and value.__module__ == module and not name.startswith("_")
    }


def import_named(option: str, module: str) -> None:
    """Imports the module that an option names. Raises ConfigurationError if the name is invalid or the import fails."""
    if "" in module.split("."):
        raise ConfigurationError(
            f"{option}: {quoted(module)} is not the full name of a module; write a name such as myapp.polls"
        )
    if sys.modules.get(module) is not None:
        return  # called before every run: a signal that stops the worker here is not an error of the module
    try:
        importlib.import_module(module)
    except (BadInput, ConfigurationError):
        raise  # our own error: @task or limit refused something
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module}.".startswith(f"{missing}."):
            raise ConfigurationError(f"{option}: there is no module {quoted(module)} on the import path") from None
        raise ConfigurationError(
            f"{option}: cannot import {quoted(module)}: {_summary(error)}; TICKER_DEBUG=1 shows the traceback"
        ) from error


def _summary(error: Exception) -> str:
    """Returns the error's type, the first line of its text, and the file and line that raised it."""
    if isinstance(error, SyntaxError) and error.filename:
        text, file, line = error.msg, error.filename, error.lineno
    else:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen ")]
        text, file, line = (str(error).strip() or "no text").splitlines()[0], frames[-1].filename, frames[-1].lineno
    return f"{type(error).__name__}: {text.strip().rstrip('.')}, in {file}, line {line}"


def _identity(call: Callable[..., Any]) -> tuple[str, str]:
    return getattr(call, "__module__", "?"), getattr(call, "__qualname__", repr(call))
