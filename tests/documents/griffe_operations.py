"""An extension of griffe, for the reference of Python: shows the functions of `ticker` as they are called.

`ticker.db.steps` makes each of them from its steps, which take no connection. Griffe reads the source, where `db` is not
among the parameters.
"""

from typing import Any

import griffe


class Operations(griffe.Extension):
    """Adds `db` to the parameters of an operation, and shows what it returns instead of `Steps[...]`."""

    def on_function_instance(self, *, func: griffe.Function, **_: Any) -> None:
        if not {"reads", "writes"} & {decorator.callable_path.rpartition(".")[2] for decorator in func.decorators}:
            return
        kind = griffe.ParameterKind.positional_or_keyword
        db = griffe.Parameter("db", annotation="Database", kind=kind)
        func.parameters = griffe.Parameters(db, *func.parameters)
        if isinstance(func.returns, griffe.ExprSubscript):
            func.returns = func.returns.slice
