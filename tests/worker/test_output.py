"""What a function prints and logs is kept: bounded, safe to show, and nothing of it is in anybody's way."""

import io
import logging
import os
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.running import in_fork
from ticker.model import OUTPUT_AT_MOST
from wrappers.pipeline import serialize
from wrappers.pipeline.output import Capture
from wrappers.sandbox import ring_buffer
from wrappers.sandbox.ring_buffer import HALF


@contextmanager
def fresh_logging() -> Iterator[logging.Logger]:
    """The root logger as a fresh process has it: pytest puts handlers of its own there."""
    root = logging.getLogger()
    handlers, level, root.handlers = root.handlers, root.level, []
    yield root
    root.handlers = handlers
    root.setLevel(level)


@contextmanager
def writing() -> Iterator[list[str]]:
    """Keeps what is printed inside; afterwards the list holds output and error output."""
    found: list[str] = []
    with Capture() as kept:
        yield found
    found += kept.texts()


# --- What is kept of a function ------------------------------------------------------------------------------


def test_prints_and_errors_are_kept_apart():
    with writing() as found:
        print("to one", end="")
        print("to the other", file=sys.stderr)
    assert found == ["to one", "to the other\n"]


def test_bytes_go_in_through_the_buffer_and_invalid_ones_are_replaced():
    with writing() as found:
        sys.stdout.buffer.write("grüß ".encode())
        sys.stdout.buffer.write(memoryview(b"\xff\xfe."))
        sys.stdout.buffer.write(bytearray())
        click.echo(b"bytes")
        click.echo("text")
    assert found[0] == "grüß ��.bytes\ntext\n"


def test_a_name_that_is_no_utf_8_can_be_printed():
    with writing() as found:
        print(os.fsdecode(b"caf\xe9"), "\ud83d")
    assert found[0] == "caf\\udce9 \\ud83d\n"


@pytest.mark.parametrize("letter", ["x", "ü", "\ud83d"])
def test_a_large_text_is_not_copied_at_once(letter):
    text = letter * 4_000_000
    with writing() as found:
        tracemalloc.start()
        print(text, end="")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 2_000_000
    assert found[0].startswith(letter.encode(errors="backslashreplace").decode() * 9)
    assert "bytes left out" in found[0]


def test_a_threads_traceback_is_in_the_error_output():
    with writing() as found:
        thread = threading.Thread(target=lambda: 1 // 0)
        threading.excepthook, before = threading.__excepthook__, threading.excepthook  # pytest has its own
        thread.start()
        thread.join()
        threading.excepthook = before
    assert "ZeroDivisionError" in found[1]


def test_the_streams_are_the_workers_again_whatever_the_function_did_to_them():
    before = sys.stdout, sys.stderr, logging.lastResort, logging.getLogger().handlers[:]
    with suppress(Interruption), writing():
        sys.stdout = io.StringIO()
        sys.stderr.close()
        sys.stderr.detach()
        logging.lastResort = None
        raise Interruption
    assert (sys.stdout, sys.stderr, logging.lastResort, logging.getLogger().handlers) == before


def test_a_function_that_closes_or_wraps_its_output_still_prints():
    with writing() as found:
        io.TextIOWrapper(sys.stdout.buffer).write("wrapped, ")
        sys.stdout.close()
        with redirect_stdout(io.StringIO()):
            print("elsewhere")
        print("printed")
    assert found[0] == "wrapped, printed\n"


def test_a_function_that_reconfigures_its_output_changes_nothing_for_its_neighbours():
    with writing() as found:
        sys.stdout.reconfigure(encoding="ascii", errors="strict", newline="\r\n")
        print("café \ud83d")
        stream = sys.stdout
        stream.detach()
        stream.write("detached\n")
    assert found[0] == "café \\ud83d\ndetached\n"


def test_child_processes_are_given_the_workers_own_output(tmp_path):
    with (tmp_path / "worker").open("w+") as file, ExitStack() as stack:
        stack.enter_context(redirect_stdout(file))
        with writing() as found:
            subprocess.run(["echo", "child"], stdout=sys.stdout, check=True)
            assert in_fork(lambda: print("fork", flush=True)) == 0
            assert not sys.stdout.isatty()
        file.seek(0)
        assert (file.read(), found[0]) == ("child\nfork\n", "")


def test_what_a_fork_holds_of_the_streams_does_not_reach_the_parents(monkeypatch):
    monkeypatch.setattr(ring_buffer, "_memory", None)
    ring_buffer.share()
    with writing() as found:
        held = sys.stdout
        assert in_fork(lambda: held.write("in the fork")) == 0
        print("in the parent")
    assert found[0] == "in the parent\n"


def test_a_fork_prints_any_text_on_a_stdout_that_is_not_utf_8(tmp_path):
    with (tmp_path / "worker").open("w+", encoding="ascii") as file, ExitStack() as stack:
        stack.enter_context(redirect_stdout(file))
        with writing():
            held = sys.stdout
            assert in_fork(lambda: held.write("grüß\n")) == 0
        file.seek(0)
        assert file.read() == "gr\\xfc\\xdf\n"


# --- Logging -------------------------------------------------------------------------------------------------


def test_log_records_are_lines_of_the_error_output_with_their_traceback():
    with fresh_logging(), writing() as found:
        try:
            1 // 0  # noqa: B018
        except ZeroDivisionError:
            logging.getLogger("app.mail").exception("no %s", "luck")
    first, *_, last, end = found[1].split("\n")
    assert first[10:].endswith("Z ERROR app.mail: no luck")
    assert (last, end) == ("ZeroDivisionError: integer division or modulo by zero", "")


def test_a_handler_that_the_application_has_goes_on_beside_ours():
    elsewhere = io.StringIO()
    with fresh_logging() as root:
        root.addHandler(logging.StreamHandler(elsewhere))
        with writing() as found:
            logging.warning("once")
    assert elsewhere.getvalue() == "once\n"
    assert found[1].count("WARNING root: once\n") == 1


def test_a_function_may_set_up_logging_by_itself():
    with fresh_logging(), writing() as found:
        logging.basicConfig(level=logging.INFO, format="mine: %(message)s")
        logging.info("news")
    assert found[1] == "mine: news\n"


def test_a_broken_logging_call_harms_nothing():
    with fresh_logging(), writing() as found:
        logging.warning("%d", "no number")
        print("goes on")
    assert found[0] == "goes on\n"
    assert "--- Logging error ---" in found[1]


# --- Texts ---------------------------------------------------------------------------------------------------


def test_control_characters_become_visible_and_harmless():
    with writing() as found:
        print("a\0b\x1b[31mred\x07\x7f \x9b1m \u202egnp.exe\u2069", end="")
    assert found[0] == "a␀b␛[31mred␇␡ \ufffd1m \ufffdgnp.exe\ufffd"


@pytest.mark.parametrize("nasty", ["\x9b", "\u202e", "\0", "\x1b", "\x85\u2066"])
def test_no_text_becomes_longer_than_the_tables_take_by_being_made_visible(nasty):
    with writing() as found:
        print(nasty * 60_000)
    assert OUTPUT_AT_MOST > len(found[0]) > 20_000
    assert len(serialize.visible(nasty * 1000)) == len(nasty * 1000)


def test_a_return_begins_a_line():
    assert serialize.visible("10%\r20%\r\nnext\r\r\n\tend\r") == "10%\n20%\nnext\n\tend\n"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_what_is_shown_has_no_control_character(text):
    assert not {code for code in serialize.visible(text).replace("\t", "").replace("\n", "") if ord(code) in CONTROLS}


CONTROLS = {*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)}


@pytest.mark.parametrize("shift", range(4))
@pytest.mark.parametrize("character", ["é", "€", "😀"])
def test_a_long_output_is_cut_between_two_characters_and_says_how_much_is_missing(character, shift):
    written = "x" * shift + character * 2 * HALF
    with writing() as found:
        print(written, end="")
    first, mark, last = found[0].split("\n")
    left_out = int(mark.removeprefix("[... ").removesuffix(" bytes left out ...]"))
    assert left_out + len((first + last).encode()) == len(written.encode())
    assert (written.startswith(first), written.endswith(last), "�" in first + last) == (True, True, False)


def test_64_kb_are_kept_as_they_are_and_one_byte_more_is_cut():
    with writing() as found:
        print("x" * 2 * HALF, end="")
    assert found[0] == "x" * 2 * HALF
    with writing() as found:
        print("x" * 2 * HALF, end="y")
    assert found[0] == f"{'x' * HALF}\n[... 1 bytes left out ...]\n{'x' * (HALF - 1)}y"


def test_an_error_that_holds_an_escape_sequence_is_shown_without_it():
    error = ValueError("\x1b]0;title\x07")
    assert serialize.sentence(error) == "ValueError: ␛]0;title␇"
    assert "\x1b" not in serialize.trace(error)


# --- Interruptions --------------------------------------------------------------------------------------------


class Interruption(BaseException):
    pass


@pytest.mark.slow
def test_after_an_exception_in_the_middle_of_a_write_the_next_one_is_kept():
    def interrupt(_signum: int, _frame: object) -> None:
        raise Interruption

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for number in range(200):
            with writing() as found:
                with suppress(Interruption):
                    signal.setitimer(signal.ITIMER_REAL, 0.0001 + number * 0.000003)
                    while True:
                        print("a line", "x" * number)
                print("\nand on it goes")
            assert found[0].endswith("\nand on it goes\n")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
def test_a_handler_of_a_signal_may_print_in_the_middle_of_a_print():
    before = signal.signal(signal.SIGALRM, lambda *_: print("tick"))
    try:
        with writing() as found:
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            for number in range(100_000):
                print(number)
            signal.setitimer(signal.ITIMER_REAL, 0)
            print("end")
        assert found[0].endswith("\nend\n")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
