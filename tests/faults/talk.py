"""What the proxy understands of Redis and PostgreSQL: which answer belongs to which request, and what becomes of it."""

import re
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.faults import wire
from tests.faults.link import Link
from tests.faults.push_record import TAKING, PushedJob, PushRecord, answers_to, pushed_jobs, taken_job

Push = tuple[Sequence[PushedJob], list[str | None]]
"""The jobs of one call, and the server's answers to them."""

SUBSCRIBING = frozenset({b"SUBSCRIBE", b"PSUBSCRIBE", b"SSUBSCRIBE", b"MONITOR"})
SCRIPTS = frozenset({b"EVALSHA", b"EVAL"})
# A server that loads its data, or refuses to write, still answers these; the error comes with the commands between.
NEVER_REFUSED = SUBSCRIBING | {b"MULTI", b"EXEC", b"DISCARD", b"WATCH", b"UNWATCH", b"HELLO", b"AUTH", b"CLIENT"}
DISCARD = b"*1\r\n$7\r\nDISCARD\r\n"
ABORTED = b"-EXECABORT Transaction discarded because of previous errors.\r\n"
COMMIT = re.compile(rb"\s*(COMMIT|END)\b", re.IGNORECASE)


def contains(part: bytes | None, text: bytes) -> bool:
    return part is None or part in text


def can_be_refused(name: bytes) -> bool:
    return name not in NEVER_REFUSED


def is_commit(statement: bytes) -> bool:
    return COMMIT.match(statement) is not None


@dataclass
class Tally:
    """Counts of what went through. Bytes are as read; commands by name, statements by their first word."""

    connections: int = 0
    to_server: int = 0
    to_client: int = 0
    swallowed: int = 0
    answered_instead: int = 0
    commands: Counter[bytes] = field(default_factory=Counter)


@dataclass
class Rule:
    """Of the requests that match, `skip` go through, and then `count` are treated: an error instead, or swallowed."""

    matches: Callable[[bytes], bool]
    skip: int
    count: int
    error: bytes | None = None


class Rules:
    """The rules that wait for their requests, on all links together. The oldest that wants a request gets it."""

    def __init__(self) -> None:
        self._waiting: list[Rule] = []

    def add(self, rule: Rule) -> None:
        self._waiting.append(rule)

    def clear(self) -> None:
        self._waiting.clear()

    def for_request(self, texts: Sequence[bytes]) -> Rule | None:
        """`texts`: a command's name, or the statements that are run up to one answer."""
        found = None
        for rule in [rule for rule in self._waiting if any(map(rule.matches, texts))]:
            if rule.skip:
                rule.skip -= 1
            elif found is None:
                found = rule
                rule.count -= 1
                if not rule.count:
                    self._waiting.remove(rule)
        return found


@dataclass(frozen=True, slots=True)
class Expected:
    """An answer that the client waits for."""

    is_swallowed: bool = False
    instead: bytes | None = None  # what the client gets in its place
    asks_server: bool = True
    jobs: Sequence[PushedJob] = ()
    takes: bool = False  # a job off a queue


PLAIN = Expected()


class RedisTalk:
    """Pairs commands with answers in their order. A connection that subscribes is passed on as it is from then on."""

    def __init__(
        self, link: Link, rules: Rules, tally: Tally, record: PushRecord, names: Mapping[bytes, bytes]
    ) -> None:
        self._names = names
        self._link, self._rules, self._tally, self._record = link, rules, tally, record
        self._requests, self._answers = wire.RedisStream(), wire.RedisStream()
        self._expected: deque[Expected] = deque()
        self._is_plain = False
        self._in_multi = self._multi_is_spoilt = False

    def asked(self, data: bytes) -> None:
        self._tally.to_server += len(data)
        onward = b"".join([self._onward(message) for message in self._requests.feed(data)])
        if onward:
            self._link.to_server.send(onward)
        if answers := b"".join(self._answers_of_our_own()):
            self._link.to_client.send(answers)

    def answered(self, data: bytes) -> None:
        self._tally.to_client += len(data)
        at, onward = time.monotonic(), []
        pushes: list[Push] = []
        for message in self._answers.feed(data):
            if self._is_plain or message[0] == wire.OUT_OF_BAND or not self._expected:
                onward.append(message)
                continue
            expected = self._expected.popleft()
            for name, instead in self._names.items():
                message = message.replace(name, instead)
            if expected.takes and (job := taken_job(message)) is not None:
                self._record.write_taken(job, at)
            if expected.is_swallowed:
                self._pass_on(onward, pushes, at)
                onward, pushes = [], []
                self._swallow(expected, message, at)
                continue
            onward += [expected.instead or message, *self._answers_of_our_own()]
            if expected.jobs:
                pushes.append((expected.jobs, answers_to(expected.jobs, message)))
        self._pass_on(onward, pushes, at)

    def ended(self) -> None:
        for expected in self._expected:
            self._record.write_unanswered(expected.jobs)
            if expected.takes:
                self._record.write_taken(None, time.monotonic())

    def _onward(self, message: bytes) -> bytes:
        """What goes to the server for this command of the client."""
        name = wire.command(message)
        self._tally.commands[name] += 1
        self._is_plain = self._is_plain or name in SUBSCRIBING
        if self._is_plain or not name:
            return message
        rule = self._rules.for_request((name,))
        if rule and rule.error is not None:
            return self._refuse(rule.error)
        if self._multi_is_spoilt and name == b"EXEC":
            return self._abort_transaction()
        self._note_transaction(name)
        jobs = pushed_jobs(wire.texts(message)) if name in SCRIPTS and self._record.is_wanted else ()
        takes = name in TAKING and self._record.is_wanted
        is_plain = not (rule or jobs or takes)
        self._expected.append(PLAIN if is_plain else Expected(is_swallowed=rule is not None, jobs=jobs, takes=takes))
        return message

    def _refuse(self, error: bytes) -> bytes:
        self._tally.answered_instead += 1
        self._multi_is_spoilt = self._in_multi
        self._expected.append(Expected(instead=b"-" + error + wire.CRLF, asks_server=False))
        return b""

    def _abort_transaction(self) -> bytes:
        """A server that refused a command between MULTI and EXEC runs none of them."""
        self._in_multi = self._multi_is_spoilt = False
        self._expected.append(Expected(instead=ABORTED))
        return DISCARD

    def _note_transaction(self, name: bytes) -> None:
        if name == b"MULTI":
            self._in_multi = True
        elif name in {b"EXEC", b"DISCARD"}:
            self._in_multi = self._multi_is_spoilt = False

    def _answers_of_our_own(self) -> list[bytes]:
        """Those whose turn it is."""
        answers = []
        while self._expected and not self._expected[0].asks_server:
            answers.append(self._expected.popleft().instead or b"")
        return answers

    def _swallow(self, expected: Expected, message: bytes, at: float) -> None:
        self._tally.swallowed += 1
        self._record.write(expected.jobs, answers_to(expected.jobs, message), at, False)
        self._link.hang_up()

    def _pass_on(self, messages: list[bytes], pushes: list[Push], at: float) -> None:
        def passed(delivered: bool) -> None:
            for jobs, answers in pushes:
                self._record.write(jobs, answers, at, delivered)

        if messages:
            self._link.to_client.send(b"".join(messages), passed if pushes else None)


class PostgresTalk:
    """Pairs what is sent up to a Query or a Sync with what is answered up to ReadyForQuery."""

    def __init__(self, link: Link, rules: Rules, tally: Tally) -> None:
        self._link, self._rules, self._tally = link, rules, tally
        self._requests, self._answers = wire.PostgresRequests(), wire.PostgresAnswers()
        self._is_swallowed: deque[bool] = deque()  # for each answer that is due
        self._prepared: dict[bytes, bytes] = {}
        self._statements: list[bytes] = []  # since the last Sync
        self._was_copying = False

    def asked(self, data: bytes) -> None:
        self._tally.to_server += len(data)
        onward = b"".join([self._onward(message) for message in self._requests.feed(data)])
        if onward:
            self._link.to_server.send(onward)

    def answered(self, data: bytes) -> None:
        self._tally.to_client += len(data)
        onward = []
        for piece, is_end in self._answers.feed(data):
            if not (self._is_swallowed and self._is_swallowed[0]):
                onward.append(piece)
            if is_end and self._is_swallowed and self._is_swallowed.popleft():
                self._pass_on(onward)
                onward = []
                self._tally.swallowed += 1
                self._link.hang_up()
        self._pass_on(onward)

    def ended(self) -> None:
        pass

    def _pass_on(self, pieces: list[bytes]) -> None:
        if pieces:
            self._link.to_client.send(b"".join(pieces))

    def _onward(self, message: bytes) -> bytes:
        """What goes to the server for this message of the client. Encryption is declined here: we have to read."""
        if self._requests.has_begun:
            self._note(chr(message[0]), message[5:])
        elif message[4:8] in wire.ENCRYPTION:
            self._link.to_client.send(b"N")
            return b""
        else:
            self._is_swallowed.append(False)
        return message

    def _note(self, letter: str, body: bytes) -> None:
        if letter == "P":
            name, text, _ = body.split(b"\0", 2)
            self._prepared[name] = text
        elif letter == "B":
            _, name, _ = body.split(b"\0", 2)
            self._statements.append(self._prepared.get(name, b""))
        elif letter == "Q":
            self._statements.append(body[:-1])
            self._expect()
        elif letter == "F" or (letter == "S" and not self._was_copying):
            self._expect()
        self._was_copying = letter in "cf"  # the Sync behind a COPY's end belongs to the request that began it

    def _expect(self) -> None:
        statements, self._statements = self._statements, []
        for text in statements:
            self._tally.commands[(text.split(None, 1) or [b""])[0].upper()] += 1
        self._is_swallowed.append(self._rules.for_request(statements) is not None)
