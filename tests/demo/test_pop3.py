"""The demo's POP3 server, its log and both of its sides, over real sockets."""

import poplib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from ticker.demo.mailbox import create_mailbox, deliver, open_mailbox, read_deliveries
from ticker.demo.pop3 import MAX_GARBAGE, MAX_LINE, Outcome, Pop3Server, Retrieval, read_log

HOST = "127.0.0.1"
LONG = 60.0  # a delay that no test lives to see the end of
SOON = 30.0  # within this, and long before LONG, what must happen has happened


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "mail"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "retrievals.jsonl"


@pytest.fixture
def server(root: Path, log: Path) -> Iterator[Pop3Server]:
    with Pop3Server(root, log) as server:
        yield server


@contextmanager
def logged_in(port: int, user: str = "ann") -> Iterator[poplib.POP3]:
    """A session that ends without QUIT, unless the test says it."""
    pop = poplib.POP3(HOST, port, timeout=SOON)
    try:
        pop.user(user)
        pop.pass_("secret")
        yield pop
    finally:
        pop.close()


def lines_of(answer: tuple[bytes, list[bytes], int]) -> list[str]:
    return [line.decode() for line in answer[1]]


def slow_down(root: Path, user: str, seconds: object) -> None:
    (create_mailbox(root, user) / ".delay").write_text(f"{seconds}")


def until(log: Path, condition: Callable[[list[Retrieval]], bool]) -> list[Retrieval]:
    """Waits for the log to say so; the test fails if it does not soon."""
    deadline = time.monotonic() + SOON
    while not condition(retrievals := read_log(log)):
        assert time.monotonic() < deadline, f"the log still says {retrievals}"
        threading.Event().wait(0.01)
    return retrievals


def ended(retrievals: list[Retrieval]) -> bool:
    return bool(retrievals) and all(one.ended_at is not None for one in retrievals)


def outcomes(log: Path) -> list[tuple[str, int, str]]:
    return [(one.user, one.uid, one.outcome) for one in read_log(log)]


def test_listing_names_every_message_with_its_size_and_uid(root: Path, server: Pop3Server) -> None:
    for subject in ("one", "two"):
        deliver(root, "ann", subject, "hello\n")
    with logged_in(server.port) as pop:
        sizes = [pop.retr(number)[2] for number in (1, 2)]
        assert lines_of(pop.list()) == [f"1 {sizes[0]}", f"2 {sizes[1]}"]
        assert pop.stat() == (2, sum(sizes))
        assert lines_of(pop.uidl()) == ["1 0000000001", "2 0000000002"]
        assert pop.uidl(2) == b"+OK 2 0000000002"
        assert set(pop.capa()) == {"USER", "TOP", "UIDL", "IMPLEMENTATION"}
        assert pop.noop() == b"+OK"


def test_an_empty_mailbox_has_no_messages(root: Path, server: Pop3Server) -> None:
    create_mailbox(root, "ann")
    with open_mailbox(HOST, server.port, "ann") as mailbox:
        assert mailbox.uids() == []


def test_a_message_arrives_as_it_was_delivered(root: Path, server: Pop3Server) -> None:
    body = ".\n..\n.hidden\n\nFrom afar\nGrüße\n.\n" + 3000 * "long " + "\n"
    uid = deliver(root, "ann", "Größe: .5", body)
    with open_mailbox(HOST, server.port, "ann") as mailbox:
        message = mailbox.read(uid)
    assert message["Subject"] == "Größe: .5"
    assert message["To"] == "ann@example.org"
    assert message.get_content() == body


def test_lines_that_begin_with_a_dot_are_stuffed_and_all_end_in_crlf(root: Path, server: Pop3Server) -> None:
    folder = create_mailbox(root, "ann")
    (folder / "new" / "0000000001").write_bytes(b"Subject: x\n\n.\n.a\r\nlast")
    with socket.create_connection((HOST, server.port), SOON) as raw, raw.makefile("rwb", buffering=0) as wire:
        wire.write(b"USER ann\nPASS secret\nLIST 1\nRETR 1\nQUIT\n")
        assert wire.readall() == (
            b"+OK the demo's mailboxes\r\n+OK now the password\r\n+OK 1 messages\r\n+OK 1 27\r\n"
            b"+OK\r\nSubject: x\r\n\r\n..\r\n..a\r\nlast\r\n.\r\n+OK bye\r\n"
        )


def test_top_gives_the_header_and_so_many_lines_of_the_body(root: Path, server: Pop3Server) -> None:
    deliver(root, "ann", "hello", ".one\ntwo\nthree\n")
    with logged_in(server.port) as pop:
        header = lines_of(pop.top(1, 0))
        assert "Subject: hello" in header
        assert header[-1] == ""
        assert lines_of(pop.top(1, 2)) == [*header, ".one", "two"]
        assert lines_of(pop.top(1, 99)) == lines_of(pop.retr(1))


def test_uids_increase_in_order_of_delivery_and_return_after_a_cursor(root: Path, server: Pop3Server) -> None:
    delivered = [deliver(root, "ann", f"number {count}", "") for count in range(12)]
    assert delivered == list(range(1, 13))
    with open_mailbox(HOST, server.port, "ann") as mailbox:
        assert mailbox.uids() == mailbox.uids(after=None) == delivered
        assert mailbox.uids(after=9) == mailbox.uids(after="9") == [10, 11, 12]
        assert mailbox.uids(after=12) == []
        assert mailbox.read(10)["Subject"] == "number 9"
        deliver(root, "ann", "later", "")
        assert mailbox.uids(after=12) == []
    with open_mailbox(HOST, server.port, "ann") as mailbox:
        assert mailbox.uids(after=12) == [13]


def test_a_uid_is_not_given_again_after_its_message_was_deleted(root: Path, server: Pop3Server) -> None:
    deliver(root, "ann", "first", "")
    with logged_in(server.port) as pop:
        pop.dele(1)
        pop.quit()
    assert deliver(root, "ann", "second", "") == 2


def test_several_deliverers_of_one_mailbox_never_share_a_uid(root: Path, tmp_path: Path) -> None:
    deliveries = tmp_path / "deliveries.jsonl"

    def one(count: int) -> int:
        return deliver(root, "ann", f"{count}", "", log=deliveries)

    with ThreadPoolExecutor(8) as pool:
        uids = list(pool.map(one, range(80)))
    assert sorted(uids) == list(range(1, 81))
    noted = read_deliveries(deliveries)
    assert [delivery.uid for delivery in noted] == list(range(1, 81))
    assert {one.uid: one.subject for one in noted} == {uid: f"{count}" for count, uid in enumerate(uids)}


@pytest.mark.parametrize("user", ["", ".", "../ann", "a/b", ".ann", "a b", "ann\n", "a" * 65])
def test_a_user_that_is_unfit_for_a_folder_gets_no_mailbox(root: Path, user: str) -> None:
    with pytest.raises(ValueError, match="user"):
        deliver(root, user, "x", "")
    assert not root.exists()


def test_files_that_were_not_delivered_here_are_not_served(root: Path, server: Pop3Server) -> None:
    folder = create_mailbox(root, "ann")
    (folder / "new" / "1700000000.M1P1Q1.host").write_text("Subject: stray\n\n")
    (folder / "tmp" / "0000000007").write_text("Subject: unfinished\n\n")
    with logged_in(server.port) as pop:
        assert pop.stat() == (0, 0)


def test_a_marked_message_is_deleted_at_quit_and_not_before(root: Path, server: Pop3Server) -> None:
    deliver(root, "ann", "one", "")
    deliver(root, "ann", "two", "")
    with logged_in(server.port) as pop:
        pop.dele(1)
        assert lines_of(pop.uidl()) == ["2 0000000002"]
        with pytest.raises(poplib.error_proto, match="no message with this number"):
            pop.retr(1)
    with logged_in(server.port) as pop:
        assert pop.stat()[0] == 2  # the first session had no QUIT
        pop.dele(1)
        pop.dele(2)
        pop.rset()
        pop.dele(2)
        pop.quit()
    with open_mailbox(HOST, server.port, "ann") as mailbox:
        assert mailbox.uids() == [1]


def test_two_sessions_on_one_mailbox_do_not_lock_each_other_out(root: Path, server: Pop3Server) -> None:
    deliver(root, "ann", "hello", "")
    with logged_in(server.port) as first, logged_in(server.port) as second:
        first.dele(1)
        first.quit()
        assert second.stat() == (1, 0)
        with pytest.raises(poplib.error_proto, match="another session deleted"):
            second.retr(1)
        assert second.noop() == b"+OK"


def test_a_slow_mailbox_keeps_nobody_else_waiting(root: Path, log: Path, server: Pop3Server) -> None:
    slow_down(root, "slow", LONG)
    deliver(root, "slow", "hello", "")
    deliver(root, "ann", "hello", "")
    with subprocess_that_retrieves(server.port, "slow"):
        with open_mailbox(HOST, server.port, "ann") as mailbox:
            mailbox.read(1)
        assert outcomes(log) == [("slow", 1, Outcome.OPEN), ("ann", 1, Outcome.COMPLETE)]


def test_a_slow_message_takes_its_delay_and_arrives_whole(root: Path, log: Path, server: Pop3Server) -> None:
    slow_down(root, "ann", 0.2)
    deliver(root, "ann", "hello", "text\n")
    with open_mailbox(HOST, server.port, "ann") as mailbox:
        assert mailbox.read(1).get_content() == "text\n"
    [retrieval] = read_log(log)
    assert retrieval.complete
    assert retrieval.ended_at is not None
    assert retrieval.ended_at - retrieval.began_at >= 0.2


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf", "1e9"])
def test_a_delay_that_is_none_is_an_error_and_no_retrieval(
    root: Path, log: Path, server: Pop3Server, text: str
) -> None:
    deliver(root, "ann", "hello", "")
    slow_down(root, "ann", text)
    with logged_in(server.port) as pop:
        with pytest.raises(poplib.error_proto, match="delay"):
            pop.retr(1)
        slow_down(root, "ann", "")
        pop.retr(1)
        pop.quit()
    assert outcomes(log) == [("ann", 1, Outcome.COMPLETE)]


@contextmanager
def subprocess_that_retrieves(port: int, user: str) -> Iterator[subprocess.Popen[str]]:
    """A client process that has received the first line of a message, and waits for the rest."""
    program = (
        f"import poplib; pop = poplib.POP3({HOST!r}, {port}); pop.user({user!r}); pop.pass_('secret')\n"
        "pop.set_debuglevel(2); pop.retr(1)"  # prints every line that it gets
    )
    command = [sys.executable, "-u", "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert any("*resp* b'+OK" in line for line in process.stdout)
            yield process
        finally:
            process.kill()


def test_a_retrieval_whose_client_was_killed_in_its_middle_is_logged_as_cut(
    root: Path, log: Path, server: Pop3Server
) -> None:
    slow_down(root, "ann", LONG)
    deliver(root, "ann", "hello", "text\n" * 100)
    with subprocess_that_retrieves(server.port, "ann") as client:
        assert outcomes(log) == [("ann", 1, Outcome.OPEN)]
        client.kill()
        [retrieval] = until(log, ended)
    assert retrieval.outcome is Outcome.CUT
    assert not retrieval.complete
    slow_down(root, "ann", 0)
    with open_mailbox(HOST, server.port, "ann") as mailbox:
        mailbox.read(1)
    assert outcomes(log) == [("ann", 1, Outcome.CUT), ("ann", 1, Outcome.COMPLETE)]


def test_a_retrieval_is_complete_only_once_the_client_was_heard_again(
    root: Path, log: Path, server: Pop3Server
) -> None:
    deliver(root, "ann", "hello", "")
    with logged_in(server.port) as pop:
        pop.retr(1)
        assert outcomes(log) == [("ann", 1, Outcome.OPEN)]
        pop.noop()
        assert outcomes(log) == [("ann", 1, Outcome.COMPLETE)]


def test_a_retrieval_whose_client_then_left_is_unconfirmed(root: Path, log: Path, server: Pop3Server) -> None:
    deliver(root, "ann", "hello", "")
    with logged_in(server.port) as pop:
        pop.retr(1)
    [retrieval] = until(log, ended)
    assert retrieval.outcome is Outcome.UNCONFIRMED
    assert not retrieval.complete


def test_a_client_that_reads_nothing_is_cut_after_the_idle_timeout(root: Path, log: Path) -> None:
    large = create_mailbox(root, "ann") / "new" / "0000000001"
    large.write_bytes(b"Subject: large\n\n" + b"x" * 32_000_000)  # a sender's buffer holds 4 MB by default
    with Pop3Server(root, log, idle_timeout=0.2) as server, socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        raw.connect((HOST, server.port))
        raw.sendall(b"USER ann\r\nPASS secret\r\nRETR 1\r\n")
        [retrieval] = until(log, ended)
        assert retrieval.outcome is Outcome.CUT


def test_an_idle_session_is_closed_without_a_word_and_deletes_nothing(root: Path, log: Path) -> None:
    deliver(root, "ann", "hello", "")
    with Pop3Server(root, log, idle_timeout=1) as server:
        with logged_in(server.port) as pop:
            pop.dele(1)
            assert pop.sock.recv(1) == b""
        with open_mailbox(HOST, server.port, "ann") as mailbox:
            assert mailbox.uids() == [1]


def test_a_line_that_is_still_being_written_is_not_read(log: Path) -> None:
    log.write_text(
        '{"at": 1.5, "event": "begin", "id": "a", "user": "ann", "uid": 7}\n'
        '{"at": 2.5, "event": "complete", "id": "a", "us'
    )
    assert read_log(log) == [Retrieval("ann", 7, 1.5, None, Outcome.OPEN)]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\x00\xff\xfe garbage",
        b"HELO there",
        b"RETR",
        b"RETR 0",
        b"RETR 2",
        b"RETR -1",
        b"RETR one",
        b"RETR \xb2",
        b"RETR " + b"9" * 200,
        b"RETR 1 2",
        b"TOP 1",
        b"TOP 1 -1",
        b"DELE 1 1",
        b"USER bob",
        b"NOOP".ljust(MAX_LINE),
        b"NOOP".ljust(MAX_GARBAGE - 2),
    ],
)
def test_a_line_that_makes_no_sense_gets_err_and_the_session_goes_on(
    root: Path, server: Pop3Server, line: bytes
) -> None:
    deliver(root, "ann", "hello", "")
    with logged_in(server.port) as pop:
        pop.sock.sendall(line + b"\r\n")
        assert pop.file.readline().startswith(b"-ERR ")
        assert pop.stat()[0] == 1


@pytest.mark.parametrize("garbage", [b"x" * MAX_GARBAGE, b"NOOP"], ids=["endless", "unfinished"])
def test_a_line_without_an_end_costs_its_session_alone(
    root: Path, server: Pop3Server, garbage: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    create_mailbox(root, "ann")
    with socket.create_connection((HOST, server.port), SOON) as raw, raw.makefile("rb") as answers:
        answers.readline()
        raw.sendall(garbage)
        if len(garbage) < MAX_GARBAGE:
            raw.shutdown(socket.SHUT_WR)
        assert answers.read() == b""
    with open_mailbox(HOST, server.port, "ann") as mailbox:
        assert mailbox.uids() == []
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("user", "password"), [("ann", "wrong"), ("bob", "secret"), ("../mail/ann", "secret"), (".", "secret")]
)
def test_a_wrong_user_or_password_gets_err(root: Path, server: Pop3Server, user: str, password: str) -> None:
    deliver(root, "ann", "hello", "")
    with pytest.raises(poplib.error_proto, match="-ERR"), open_mailbox(HOST, server.port, user, password):
        pytest.fail("it was opened")


def test_before_the_login_only_the_login_is_possible(root: Path, server: Pop3Server) -> None:
    deliver(root, "ann", "hello", "")
    pop = poplib.POP3(HOST, server.port, timeout=SOON)
    for command in (pop.stat, pop.list, pop.uidl, pop.noop, lambda: pop.retr(1), lambda: pop.pass_("secret")):
        with pytest.raises(poplib.error_proto, match="-ERR"):
            command()
    assert pop.quit() == b"+OK bye"


def test_an_error_in_the_block_ends_it_without_quit(root: Path, log: Path, server: Pop3Server) -> None:
    deliver(root, "ann", "hello", "")
    with pytest.raises(ZeroDivisionError), open_mailbox(HOST, server.port, "ann") as mailbox:
        mailbox.read(1)
        raise ZeroDivisionError
    [retrieval] = until(log, ended)
    assert retrieval.outcome is Outcome.UNCONFIRMED  # a QUIT would have made it complete


def test_a_server_that_is_too_slow_is_a_timeout_error(root: Path, log: Path, server: Pop3Server) -> None:
    slow_down(root, "ann", LONG)
    deliver(root, "ann", "hello", "")
    with pytest.raises(TimeoutError), open_mailbox(HOST, server.port, "ann", timeout=1) as mailbox:
        mailbox.read(1)
    [retrieval] = until(log, ended)
    assert retrieval.outcome is Outcome.CUT


def test_a_uid_that_the_session_does_not_have_is_a_lookup_error(root: Path, server: Pop3Server) -> None:
    create_mailbox(root, "ann")
    with (
        pytest.raises(LookupError, match="UID 5"),
        open_mailbox(HOST, server.port, "ann") as mailbox,
    ):
        mailbox.read(5)


def test_leaving_the_server_ends_its_sessions_and_deletes_nothing(root: Path, log: Path) -> None:
    deliver(root, "ann", "hello", "")
    with Pop3Server(root, log) as server:
        pop = poplib.POP3(HOST, server.port, timeout=SOON)
        pop.user("ann")
        pop.pass_("secret")
        pop.dele(1)
    with pytest.raises((poplib.error_proto, OSError)):
        pop.noop()
    pop.close()
    assert (root / "ann" / "new" / "0000000001").exists()
    with pytest.raises(ConnectionRefusedError):
        poplib.POP3(HOST, server.port)


def test_many_clients_at_once_each_read_their_own_mailbox(root: Path, log: Path, server: Pop3Server) -> None:
    users = [f"user{count}" for count in range(40)]
    for user in users:
        deliver(root, user, f"for {user}", "")
    together = threading.Barrier(len(users))

    def poll(user: str) -> str:
        with open_mailbox(HOST, server.port, user) as mailbox:
            together.wait(SOON)
            return str(mailbox.read(1)["Subject"])

    with ThreadPoolExecutor(len(users)) as pool:
        assert list(pool.map(poll, users)) == [f"for {user}" for user in users]
    assert sorted(outcomes(log)) == sorted((user, 1, "complete") for user in users)


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_with_0_even_in_the_middle_of_a_slow_message(
    root: Path, log: Path, tmp_path: Path, stop: signal.Signals
) -> None:
    slow_down(root, "ann", LONG)
    deliver(root, "ann", "hello", "")
    port_file = tmp_path / "port"
    command = [sys.executable, "-m", "ticker.demo.pop3", "--root", str(root), "--log", str(log)]
    command += ["--port-file", str(port_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            port = int(port_file.read_text())
            assert line == f"pop3: listening on 127.0.0.1:{port}\n"
            with subprocess_that_retrieves(port, "ann"):
                process.send_signal(stop)
                asked_at = time.monotonic()
                assert process.wait(SOON) == 0
                assert time.monotonic() - asked_at < 3
        finally:
            process.kill()
    assert outcomes(log) == [("ann", 1, Outcome.CUT)]
    assert not port_file.exists()
