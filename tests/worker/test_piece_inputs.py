"""What a worker takes for work in pieces: what `generate` may yield, and which classes may be registered."""

import asyncio
import json

import pytest

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


@pytest.mark.parametrize(
    ("generated", "sentence"),
    [
        ("abc", "'str' is not a series of pieces: yield them one by one, or return a list"),
        (b"abc", "'bytes' is not a series of pieces: yield them one by one, or return a list"),
        ({"uid": 1}, "'dict' is not a series of pieces: yield them one by one, or return a list"),
        (7, "'int' is not a series of pieces: yield them one by one, or return a list"),
        ([object()], "'object' is no piece that can be kept: Object of type object is not JSON serializable"),
        ([float("nan")], "'float' is no piece that can be kept: Out of range float values are not JSON compliant: nan"),
        (["a\0"], "'str' is no piece that can be kept: it has a NUL character"),
        ([NOTHING_TO_DO], "'NothingToDo' is no piece that can be kept: Object of type NothingToDo is not JSON serializable"),
        (["x" * 16_384], "'str' is no piece that can be kept: it has 16386 bytes, over the limit of 16384"),
        (range(1_000_001), "1000001 is over the limit of 1,000,000 pieces of a run; make them larger"),
        (
            ["ä" * 8_000] * 8_388,
            "134224776 is over the limit of 134,217,728 bytes of all pieces; name the work, do not send it",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_handed_out_is_refused_with_a_sentence(generated, sentence):
    with pytest.raises(BadInput) as refused:
        collect(generated)
    assert str(refused.value).startswith(f"generate: {sentence.partition(': nan')[0]}")


def test_the_largest_and_the_most_pieces_are_taken():
    assert collect(["x" * 16_382]) == (f'["{"x" * 16_382}"]', [])
    last, kept = collect(iter(range(1_000_000)))
    assert sum(len(json.loads(text)) for text in (last, *kept)) == 1_000_000


def test_of_many_pieces_few_are_in_memory():
    last, kept = collect(range(4_001))
    assert (json.loads(last), [json.loads(text)[0] for text in kept]) == ([4000], [0, 2000])
    last, kept = collect(["x" * 16_000] * 100)
    assert all(len(text) <= fan_out.BYTES_AT_MOST + 1000 for text in (last, *kept)) and len(kept) == 1


def test_an_endless_stream_is_not_read_behind_its_limit():
    read = []

    async def stream():
        while True:
            read.append(None)
            yield 1

    with pytest.raises(BadInput, match="1000001 is over the limit of 1,000,000 pieces of a run"):
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
    ("call", "sentence"),
    [
        (a_class(generate=yields), "is the name of the class Feeds, which has no method process"),
        (a_class(process=returns), "is the name of the class Feeds, which has no method generate"),
        (a_class(generate=returns, process=returns, __init__=lambda self, url: None),
         "is the name of the class Feeds, made without arguments: missing a required argument: 'url'"),
        (a_class(generate=yields, process=yields), "yields, and nobody goes through it"),
        (yields, "yields, and nobody goes through it"),
        (streams, "yields, and nobody goes through it"),
    ],
)  # fmt: skip
def test_what_cannot_work_in_pieces_is_refused_where_it_is_registered(function, call, sentence):
    with pytest.raises(BadInput, match=f"task: 'feeds' {sentence}"):
        function("feeds")(call)
    assert "feeds" not in registry.functions()


def test_a_class_that_is_imported_again_takes_the_place_of_itself(function):
    first, again = (a_class(generate=yields, process=returns) for _ in range(2))
    function("feeds")(first)
    assert function("feeds")(again) is again
    assert registry.functions()["feeds"].step.call.__self__.__class__ is again
