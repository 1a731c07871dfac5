"""Mail by SMTP, to a small server on a real socket."""

import socket
from base64 import b64encode
from dataclasses import replace

import pytest

import ticker
from tests.notify.stage import NOTICE, NOW, SECRET, Post, happens, mail, notices, subject_of, talking
from tests.running import work
from tests.sentences import sentence
from ticker.engine.tick import tick
from ticker.notify import wire
from ticker.notify.deliver import AFTER_FAILURE, IDLE
from ticker.notify.mail import Mail, compose
from ticker.notify.message import NotDelivered


def test_a_mail_says_it_in_its_subject_and_the_facts_below(db, notifier):
    post = Post()
    happens(db, "failed", owner_type="channels", owner_id="7", words="failed: TimeoutError: slow")
    with talking(post) as port:
        notifier(mail(port, to=("a@example.org", "b@example.org"))).round(NOW)
    assert notices(db) == []
    [sent] = post.messages
    assert sentence("notices.subject", task="mail.fetch of channels:7", error="TimeoutError: slow").within(sent)
    assert "To: a@example.org, b@example.org\r\n" in sent and "Auto-Submitted: auto-generated\r\n" in sent
    assert "task_owner_id: 7\r\n" in sent and "what: failed\r\n" in sent
    assert [line.lower() for line in post.lines if line.startswith("rcpt")] == [
        "rcpt to:<a@example.org>",
        "rcpt to:<b@example.org>",
    ]


def test_a_password_goes_over_tls(certificate):
    post = Post(certificate)
    with talking(post) as port:
        assert mail(port, f"me:{SECRET}@").deliver(NOTICE) == "accepted for 1 of 1"
    assert [line.split()[0] for line in post.lines][:4] == ["ehlo", "STARTTLS", "ehlo", "AUTH"]


def test_a_password_is_never_sent_in_the_clear():
    post = Post()
    with talking(post) as port, pytest.raises(NotDelivered, match="offers no STARTTLS"):
        mail(port, f"me:{SECRET}@").deliver(NOTICE)
    assert [line.split()[0] for line in post.lines] == ["ehlo"]


def test_smtps_is_tls_from_the_first_byte(certificate):
    post = Post()

    def secure(wire: socket.socket) -> None:
        with certificate.wrap_socket(wire, server_side=True) as inside:
            post(inside)

    with talking(secure) as port:
        assert Mail(f"smtps://localhost:{port}", "t@x.org", ["a@x.org"]).deliver(NOTICE) == "accepted for 1 of 1"
    assert len(post.messages) == 1


def test_a_receiver_who_is_refused_is_named_and_the_others_get_their_mail(caplog):
    post = Post(refuse="rcpt to:<b@")
    with talking(post) as port:
        assert mail(port, to=("a@example.org", "b@example.org")).deliver(NOTICE) == "accepted for 1 of 2"
    assert sentence("logs.mail_refused", event=7, address="b@example.org").within(caplog.messages)


@pytest.mark.parametrize(
    "words", [SECRET, f"{'x' * 180} {SECRET}", b64encode(f"\0me\0{SECRET}".encode()).decode()],
    ids=["as it is", "where a message is cut", "as it was sent"],
)  # fmt: skip
def test_a_server_that_repeats_the_password_does_not_bring_it_into_a_log(certificate, words):
    post = Post(certificate, refuse="mail from")
    post._answer = lambda verb, sent: Post._answer(post, verb, sent) if verb != "AUTH" else f"535 {words}\r\n".encode()  # type: ignore[method-assign]
    with talking(post) as port, pytest.raises(NotDelivered) as error:
        mail(port, f"me:{SECRET}@").deliver(NOTICE)
    assert str(error.value) == sentence("errors.mail_login", answer=535, setting="TICKER_SMTP_URL")


def test_a_password_that_smtp_cannot_send_is_not_shown(certificate):
    with talking(Post(certificate)) as port, pytest.raises(NotDelivered) as error:
        mail(port, "me:s%C3%A9@").deliver(NOTICE)
    assert str(error.value) == sentence("errors.mail_not_ascii", setting="TICKER_SMTP_URL")


@pytest.mark.slow
def test_a_mail_server_that_never_greets_is_given_up_in_time(db, notifier, monkeypatch):
    monkeypatch.setattr(wire, "SECONDS", 0.5)
    happens(db, "failed")
    with talking(Post(silent=True)) as port:
        assert notifier(mail(port)).round(NOW) == AFTER_FAILURE
    assert notices(db, "error") == [(sentence("errors.no_answer_within_span", span="0.5 s"),)]


def test_nothing_that_a_task_says_becomes_a_header_or_a_second_line():
    evil = "x\r\nBcc: all@example.org\r\n\r\nbody"
    sent = compose(
        replace(NOTICE, task_name=evil, owner_id=evil, subject=evil, error=evil, words=evil), "t@x.org", ["a@x.org"]
    )
    assert sent["Bcc"] is None and "\n" not in sent["Subject"]
    assert not any(line.startswith("Bcc:") for line in sent.as_bytes().decode().splitlines())


HOSTILE = (
    "=?utf-8?q?=0AReply-To:_evil@attacker.example=0AX-Forged:_yes?=",
    "=?utf-8?q?=0AContent-Type:_text/html=0A=0A<b>pay_here</b>?=",
    "=?us-ascii?Q?=0D=0ABcc:_all@example.org?= and more",
    "=?utf-8?b?ClgtRm9yZ2VkOiB5ZXM=?=",
    "=?utf-8*en?q?=0AX-Forged:_yes?=",
    "at (=?utf-8?q?=0AX-Forged:_yes?=) =?utf-8?q?=0AX-Forged:_yes?==?utf-8?q?=0AX-Forged:_yes?=",
    "caf\u00e9 =?utf-8?q?=0AX-Forged:_yes?= \u65e5\u672c\u8a9e",
    "==??utf-8?q?=0AX-Forged:_yes?=",
    "plain",
)


@pytest.mark.slow
def test_encoded_words_in_an_error_or_a_name_do_not_become_headers(environ, db, store, queue, notifier):
    """Some versions of Python decode them in a header's value, and send the newlines in them (CVE-2024-6923); others refuse."""
    for number, words in enumerate((*HOSTILE, "\r\nBcc: all@example.org\r\n\r\nbody")):
        ticker.register(db, "fails.saying", name=f"{number}", every="1m", kwargs={"words": words})
    for words in HOSTILE:
        whose = {"name": words, "owner": ("feeds", words), "subject": words}
        ticker.register(db, "fails.saying", every="1m", kwargs={"words": "no"}, **whose)
    tick(store, queue)
    work()
    tick(store, queue)
    post = Post()
    with talking(post) as port:
        assert notifier(mail(port)).round() == IDLE
    assert notices(db) == []
    subjects = ["".join(subject_of(message).split()) for message in post.messages]
    assert len(subjects) == 2 * len(HOSTILE) + 1
    for words in HOSTILE:
        shown = "".join(words.split())
        assert sum(f"failed:ValueError:{shown}" in subject for subject in subjects) == 1, (words, subjects)
        whose = f"[ticker]{shown}({shown}offeeds:"  # of which a subject, with at most 150 characters, may have only the beginning
        named = [subject for subject in subjects if subject.startswith(whose) or whose.startswith(subject.rstrip("…"))]
        assert len(named) == 1, (words, subjects)


def test_the_message_id_of_a_notice_is_the_same_each_time():
    assert compose(NOTICE, "t@x.org", ["a@x.org"])["Message-ID"] == "<ticker-ticker-7@x.org>"
