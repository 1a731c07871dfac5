"""Through Python: `register`, `edit`, `reconcile`, `pause`, `run_now`, `checkpoint`, `@task`."""

import json
import math
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import ticker
from tests.bad_input.rows import (
    ANY_TEXT,
    NO_ARGUMENTS,
    NO_CRON,
    NO_NAME,
    NO_PROSE,
    NO_REF,
    NO_TIME,
    NO_ZONE,
    ROWS,
    SHOWN_NOWHERE,
    SLOWLY,
    Silent,
    StatementSent,
    each,
    nested,
    refused,
)
from tests.refusals import SECRET
from tests.sentences import sentence
from ticker import BadInput, Wanted
from ticker.db import json_text
from ticker.schedules.duration import LONGEST
from ticker.tasks import fields
from wrappers import task
from wrappers.pipeline import registry
from wrappers.pipeline.context import Run
from wrappers.pipeline.database import Database

Db = psycopg.Connection[Any]

ALL = each(*(pair for pairs in ROWS.values() for pair in pairs))
EDITABLE = each(
    *(
        pair
        for pairs in ROWS.values()
        for pair in pairs
        if pair[0] in fields.FIELDS and not fields.FIELDS[pair[0]].is_schedule
    )
)
CURSORS = [value for value in NO_ARGUMENTS if isinstance(value, dict) and not {1, None} & value.keys()]


@pytest.mark.parametrize(("field", "value"), ALL)
def test_register_refuses_it_before_a_statement_is_sent(field: str, value: Any) -> None:
    said = {"function": "poll", "every": 60, field: value}
    sentence = refused(lambda: ticker.register(Silent(), **said), field)
    if isinstance(value, str) and field not in SHOWN_NOWHERE:
        assert repr(value)[:20] in sentence or ascii(value)[:8] in sentence


@pytest.mark.slow
@pytest.mark.parametrize(("field", "value"), EDITABLE)
def test_edit_and_reconcile_refuse_it_too(field: str, value: Any) -> None:
    refused(lambda: ticker.edit(Silent(), 1, **{field: value}), field)
    if field in fields.SETTINGS or field in ("function", "name"):
        refused(lambda: Wanted(**{"function": "poll", "every": 60, field: value}).given(), field)


@pytest.mark.parametrize(("field", "value"), each(("by", NO_NAME), ("reason", NO_PROSE), ("until", NO_TIME)))
def test_pause_refuses_it_too(field: str, value: Any) -> None:
    refused(lambda: ticker.pause(Silent(), 1, **{field: value}), field)


@pytest.mark.parametrize(
    "call", [ticker.pause, ticker.resume, ticker.run_now, ticker.unregister, ticker.edit, ticker.get]
)
@pytest.mark.parametrize(("field", "value"), each(("task", [None, *NO_REF])))
def test_what_names_no_task_is_refused_by_every_call(call: Callable[..., Any], field: str, value: Any) -> None:
    refused(lambda: call(Silent(), value), field)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "field", "limit"),
    [
        ({"tolerance": 31}, "tolerance", "29s"),
        ({"box": 56}, "box", "54s"),
        ({"tolerance": 20, "box": 40}, "box", "39s"),
    ],
)
def test_a_tolerance_and_a_box_that_do_not_fit_into_the_interval_write_nothing(
    said: dict[str, Any], field: str, limit: str, environ: dict[str, str], db: Db
) -> None:
    told = refused(lambda: ticker.register(db, "poll", every=60, **said), field)
    assert sentence("errors.does_not_fit", limit=limit, every="1m").within(told)
    assert ticker.list_tasks(db) == []


@pytest.mark.parametrize("value", CURSORS)
def test_a_cursor_that_is_no_json_is_refused_and_nothing_of_it_shown(value: Any) -> None:
    run = Run(1, 1, "poll", "", "", None, None, None, "", Database("", "ticker"))  # type: ignore[arg-type]
    refused(lambda: run.checkpoint(value, Silent()), "checkpoint")
    assert run.cursor is None


@pytest.mark.parametrize("name", NO_NAME)
def test_a_function_is_not_registered_under_it(name: Any, function: Any) -> None:
    refused(lambda: task(name)(print), "task")
    assert registry.functions() == {}


@pytest.mark.parametrize(
    "name", ["os.system", "builtins.eval", "__import__", "subprocess.call", "wrappers.run", "unknown"]
)
def test_a_function_is_found_by_its_registered_name_alone(name: str) -> None:
    assert name not in registry.functions()


@pytest.mark.parametrize(("option", "value"), [*(("cron", v) for v in NO_CRON), *(("zone", v) for v in NO_ZONE)])
def test_an_impossible_cron_or_zone_is_refused_by_a_sentence_or_is_no_argument_yet(option: str, value: str) -> None:
    said = {option: value} if option == "cron" else {option: value, "cron": "0 8 * * *"}
    with pytest.raises((BadInput, TypeError)) as caught:
        ticker.register(Silent(), "poll", **said)
    assert len(str(caught.value)) < 300 and str(caught.value).isprintable()


def test_a_secret_in_arguments_is_in_no_sentence() -> None:
    for value in (
        [SECRET],
        {"a": SECRET, "b": math.nan},
        {"a": SECRET * 20_000},
        {"a": f"{SECRET}\0"},
        {SECRET: print},
    ):
        for field in ("kwargs", "metadata"):
            assert SECRET not in refused(lambda f=field, v=value: ticker.register(Silent(), "poll", **{f: v}), field)  # type: ignore[misc]
    for one in (SECRET, {"a": SECRET}, [SECRET, math.nan], [SECRET * 20_000], [{SECRET: print}]):
        assert SECRET not in refused(lambda v=one: ticker.register(Silent(), "poll", args=v), "args")  # type: ignore[misc]


# -------------------------------------------------------------------------------------------------- whatever is given


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.binary(max_size=9), ANY_TEXT, st.timedeltas(),
    st.text(st.sampled_from("0123456789.dhmsPTDHMS-+e _٦"), max_size=12), st.lists(st.integers(), max_size=2),
)  # fmt: skip
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**320), 10**320), st.floats(), ANY_TEXT, st.binary(max_size=3)
)
ANY_JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3)
)


def taken(call: Callable[[], Any]) -> bool:
    """Whether it came as far as a statement; nothing but BadInput stops it on the way."""
    try:
        call()
    except StatementSent:
        return True
    except BadInput as error:
        assert str(error).isprintable() and len(str(error)) < 300
        return False
    raise AssertionError("neither taken nor refused")


@given(ANYTHING, st.sampled_from(["every", "tolerance", "box"]))
def test_any_value_is_a_duration_within_the_limits_or_refused(value: Any, field: str) -> None:
    if value is not None and taken(lambda: ticker.register(Silent(), "poll", **{field: value})):
        assert 0 <= fields.check({field: value})[f"{field}_ms"] <= LONGEST


@given(ANY_TEXT, st.sampled_from(["function", "name", "queue"]))
@example(" ", "queue")
def test_any_text_is_a_name_that_can_be_printed_or_refused(value: str, field: str) -> None:
    said = {"function": "poll", field: value}
    is_name = 0 < len(value) <= 200 and value.isprintable() and not value.isspace()
    assert taken(lambda: ticker.register(Silent(), **said)) == is_name


@pytest.mark.slow
@SLOWLY
@given(kwargs=st.dictionaries(ANY_TEXT, ANY_JSON, max_size=4))
@example(kwargs={"a": [5e-324, 1.7e308, -0.0, 10**307, -(10**307)]})
@example(kwargs={"a": [1.2345e25, -1.7e308, 1e16, 1e15, 1e-300]})
@example(kwargs={"a": nested(249)})
@example(kwargs={"a": "\\u0000"})
@example(kwargs={"": {"\x7f\u202e": '"'}})
def test_what_register_takes_of_any_arguments_the_table_takes_and_gives_back(
    kwargs: dict[str, Any], environ: dict[str, str], db: Db
) -> None:
    """Otherwise a value that passed the one would fail in the other, as an error of PostgreSQL's."""
    assume(taken(lambda: ticker.register(Silent(), "poll", kwargs=kwargs)))
    with db.transaction(force_rollback=True):
        registered = ticker.register(db, "poll", every="1m", kwargs=kwargs, metadata=kwargs)
        found = db.execute("UPDATE ticker.tasks SET cursor = %s RETURNING cursor", [json_text.dumps(kwargs)]).fetchone()
        assert (registered.kwargs, found) == (json_text.stored(json.dumps(kwargs)), (registered.kwargs,))
        assert ticker.register(db, "poll", every="1m", kwargs=kwargs).updated_at == registered.updated_at
