"""What a worker takes for work in pieces: what `generate` may yield, and which classes may be registered."""

import asyncio
import json

import pytest

from tests.sentences import sentence
from ticker.errors import BadInput
from wrappers import NOTHING_TO_DO
from wrappers.pipeline import fan_out, registry


def collect(generated):
    """What would be recorded last, and what before."""
    kept: list[str] = []
    found = fan_out.Pieces(kept.append)
    found.collect(generated)
    return found.last(), kept


# ------------------------------------------------------------------------------------------------- what may be a piece


@pytest.mark.parametrize("nothing", [None, NOTHING_TO_DO, [], (), iter([])])
def test_no_pieces_are_nothing_to_do(nothing):
    assert collect(nothing) == (None, [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("generated", "said"),
    [
        ("abc", sentence("errors.no_series", type="str")),
        (b"abc", sentence("errors.no_series", type="bytes")),
        ({"uid": 1}, sentence("errors.no_series", type="dict")),
        (7, sentence("errors.no_series", type="int")),
        ([object()], sentence("errors.no_piece", type="object", error="Object of type object is not JSON serializable")),
        ([float("nan")], sentence("errors.no_piece", type="float", error="Out of range float values are not JSON compliant")),
        (["a\0"], sentence("errors.no_piece", type="str", error="it has a NUL character")),
        ([NOTHING_TO_DO], sentence("errors.no_piece", type="NothingToDo", error="Object of type NothingToDo is not JSON serializable")),
        (["x" * 16_384], sentence("errors.large_piece", type="str", bytes=16386, limit=16384)),
        (range(1_000_001), sentence("errors.many_pieces", value=1000001, limit="1,000,000")),
        (
            ["ä" * 8_000] * 8_388,
            sentence("errors.large_pieces", value=134224776, limit="134,217,728"),
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_handed_out_is_refused_with_a_sentence(generated, said):
    with pytest.raises(BadInput) as refused:
        collect(generated)
    assert said.begins(refused.value)


@pytest.mark.slow
def test_the_largest_and_the_most_pieces_are_taken():
    assert collect(["x" * 16_382]) == (f'["{"x" * 16_382}"]', [])
    last, kept = collect(iter(range(1_000_000)))
    assert sum(len(json.loads(text)) for text in (last, *kept)) == 1_000_000


@pytest.mark.slow
def test_of_many_pieces_few_are_in_memory():
    last, kept = collect(range(4_001))
    assert (json.loads(last), [json.loads(text)[0] for text in kept]) == ([4000], [0, 2000])
    last, kept = collect(["x" * 16_000] * 100)
    assert all(len(text) <= fan_out.BYTES_AT_MOST + 1000 for text in (last, *kept)) and len(kept) == 1


@pytest.mark.slow
def test_an_endless_stream_is_not_read_behind_its_limit():
    read = []

    async def stream():
        while True:
            read.append(None)
            yield 1

    with pytest.raises(BadInput, check=sentence("errors.too_many_pieces", value=1000001, limit="1,000,000").within):
        asyncio.run(fan_out.Pieces(lambda texts: None).collect_async(stream()))
    assert len(read) == 1_000_001


# ----------------------------------------------------------------------------------------------------------- registered


def a_class(**methods):
    return type("Feeds", (), methods)


def yields(self):
    yield 1


async def streams(self):
    yield 1


def returns(self, *piece):
    return []


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (a_class(generate=yields), sentence("errors.class_without_method", task="'feeds'", cls="Feeds", method="process")),
        (a_class(process=returns), sentence("errors.class_without_method", task="'feeds'", cls="Feeds", method="generate")),
        (a_class(generate=returns, process=returns, __init__=lambda self, url: None),
         sentence("errors.class_with_arguments", task="'feeds'", cls="Feeds", error="missing a required argument: 'url'")),
        (a_class(generate=yields, process=yields), sentence("errors.yields", task="'feeds'")),
        (yields, sentence("errors.yields", task="'feeds'")),
        (streams, sentence("errors.yields", task="'feeds'")),
    ],
)  # fmt: skip
def test_what_cannot_work_in_pieces_is_refused_where_it_is_registered(function, call, said):
    with pytest.raises(BadInput, check=said.within):
        function("feeds")(call)
    assert "feeds" not in registry.functions()


def test_a_class_that_is_imported_again_takes_the_place_of_itself(function):
    first, again = (a_class(generate=yields, process=returns) for _ in range(2))
    function("feeds")(first)
    assert function("feeds")(again) is again
    assert registry.functions()["feeds"].step.call.__self__.__class__ is again
