"""Which channels there are: settings, entry points of anybody's, the running ticker and the commands."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.harness import command
from tests.notify.stage import NOW, SECRET, Kept, happens, notices
from tests.running import ROOT, Ticking, until
from tests.sentences import sentence
from ticker import notify
from ticker.errors import ConfigurationError
from ticker.notify.deliver import AFTER_FAILURE
from ticker.settings import CHANNELS, Settings, from_environment

# ------------------------------------------------------------------------------------------------------ entry points


def test_an_entry_point_gets_the_notice_as_a_dict(db, notifier, pager):
    event = happens(db, "failed")
    [channel] = notify.channels(Settings(notify=("pager",)))
    notifier(channel).round(NOW)
    assert [(notice["id"], notice["task"]["name"]) for notice in pager] == [(event, "mail.fetch")]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nobody", sentence("errors.channel_unknown", setting="TICKER_NOTIFY", value="'nobody'", channels=", ".join(CHANNELS), group="ticker.notices", installed="broken, later, pager, thing")),
        ("broken", sentence("errors.channel_cannot_be_loaded", setting="TICKER_NOTIFY", name="broken", value="'pager_of_test:nothing'", error="AttributeError")),
        ("later", sentence("errors.channel_is_no_function", setting="TICKER_NOTIFY", name="later", value="'pager_of_test:later'")),
        ("thing", sentence("errors.channel_is_no_function", setting="TICKER_NOTIFY", name="thing", value="'pager_of_test:GOT'")),
    ],
)  # fmt: skip
def test_an_entry_point_that_cannot_be_called_is_one_sentence_at_the_start(name, said, pager):
    with pytest.raises(ConfigurationError) as error:
        notify.load(name)
    assert said.begins(error.value) and str(error.value).isprintable()


def test_an_entry_point_that_raises_is_tried_again(db, notifier, caplog):
    def page(notice: dict[str, Any]) -> None:
        raise ValueError("no\nluck")

    happens(db, "failed")
    assert notifier(notify.EntryPoint("pager", page)).round(NOW) == AFTER_FAILURE
    assert notices(db, "error") == [("ValueError: no luck",)]


# ---------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"TICKER_NOTIFY": "log, a b"}, sentence("errors.channel_misnamed", setting="TICKER_NOTIFY", value="'a b'", channels=", ".join(CHANNELS), group="ticker.notices")),
        *(({"TICKER_WEBHOOK_URL": url}, sentence("errors.no_webhook_url", setting="TICKER_WEBHOOK_URL"))
          for url in (f"ftp://h/{SECRET}", f"https://u:{SECRET}@h/", f"https:///{SECRET}", f"https://h/a {SECRET}", "https://h:0/",
                      "https://h:99999/", "https://h/\r\nX: y", SECRET)),
        ({"TICKER_WEBHOOK_KEY": "short"}, sentence("errors.key_too_short", setting="TICKER_WEBHOOK_KEY", length=16)),
        *(({"TICKER_SMTP_URL": url}, sentence("errors.smtp_url_unreadable", setting="TICKER_SMTP_URL", remedy="smtp://user:password@host:587 or smtps://"))
          for url in (f"http://{SECRET}", f"smtp://u:{SECRET}/@h", f"smtp://u@{SECRET}@h", f"smtp://u:{SECRET}%zz@h", "smtp://",
                      "smtp://h:99999", "smtp://u:p%00@h")),
        ({"TICKER_MAIL_FROM": "me"}, sentence("errors.no_mail_address", setting="TICKER_MAIL_FROM", value="'me'", remedy="name@host")),
        ({"TICKER_MAIL_FROM": "a.=?utf-8?q?=0AX=3A_y?=@x"}, sentence("errors.no_mail_address", setting="TICKER_MAIL_FROM", value="'a.=?utf-8?q?=0AX=3A_y?=@x'", remedy="name@host")),
        ({"TICKER_MAIL_FROM": "a@x,b@x"}, sentence("errors.addresses_over_the_limit", setting="TICKER_MAIL_FROM", value="'a@x,b@x'", number=2, limit=1)),
        ({"TICKER_MAIL_TO": "a@x, b@x\r\nBcc: c@x"}, sentence("errors.no_mail_address", setting="TICKER_MAIL_TO", value="'b@x\\r\\nBcc: c@x'", remedy="name@host")),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_taken_is_one_sentence_without_a_secret(environ, said):
    with pytest.raises(ConfigurationError) as error:
        from_environment(environ)
    assert said.begins(error.value)
    assert str(error.value).isprintable() and SECRET not in str(error.value)


@pytest.mark.parametrize(
    "environ",
    [
        {"TICKER_NOTIFY": ""}, {"TICKER_NOTIFY": "webhook,log,webhook"}, {"TICKER_WEBHOOK_URL": "https://h.example.org"},
        {"TICKER_WEBHOOK_URL": "http://[::1]:8080/a?b=c&d=%20"}, {"TICKER_SMTP_URL": "smtp://localhost:25"},
        {"TICKER_SMTP_URL": "smtps://me%40x.org:p%2Fw@mail.example.org/"}, {"TICKER_MAIL_TO": "a@x.org, b+c@y.example.org"},
    ],
)  # fmt: skip
def test_these_are_taken(environ):
    from_environment(environ)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (Settings(notify=("webhook",)), sentence("errors.channel_without_setting", setting="TICKER_WEBHOOK_URL", notify="TICKER_NOTIFY", channel="webhook")),
        (Settings(notify=("mail",)), sentence("errors.channel_without_setting", setting="TICKER_SMTP_URL", notify="TICKER_NOTIFY", channel="mail")),
        (Settings(notify=("mail",), smtp_url="smtp://h", mail_from="a@x"), sentence("errors.channel_without_setting", setting="TICKER_MAIL_TO", notify="TICKER_NOTIFY", channel="mail")),
    ],
)  # fmt: skip
def test_a_channel_without_its_setting_is_named_at_the_start(settings, said):
    with pytest.raises(ConfigurationError) as error:
        notify.channels(settings)
    assert str(error.value) == said


@pytest.mark.parametrize("name", CHANNELS)
def test_each_channel_of_ours_is_made_under_its_name_and_documented(name):
    given = {"webhook_url": "https://h", "smtp_url": "smtp://h", "mail_from": "a@x", "mail_to": ("b@x",)}
    [channel] = notify.channels(Settings(notify=(name,), **given))
    assert channel.name == name
    [page] = (ROOT / "docs").rglob("notifications.md")
    assert f"\n| `{name}` |" in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_ticker_run_refuses_to_start_so(environ, monkeypatch):
    monkeypatch.setenv("TICKER_NOTIFY", "webhook")
    done = subprocess.run([sys.executable, "-m", "ticker", "run"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (
        78,
        sentence(
            "cli.error_channel_without_setting", setting="TICKER_WEBHOOK_URL", notify="TICKER_NOTIFY", channel="webhook"
        ),
    )


# -------------------------------------------------------------------------------------------------- the running ticker


@pytest.mark.slow
def test_a_running_ticker_tells_and_stops_fast_although_the_endpoint_hangs(environ, db, endpoint):
    endpoint.answers = [None]
    told = {"TICKER_NOTIFY": "log,webhook", "TICKER_WEBHOOK_URL": endpoint.url}
    event = happens(db, "failed", at=datetime.now(UTC), words="failed: no luck")
    with Ticking(**told) as process:
        process.says(rf"WARNING ticker\.notify notice event={event} what=failed task=1: mail\.fetch failed: no luck")
        assert endpoint.held.wait(60)
        heard = process.says("tick due=0")
        process.says("tick due=0", after=heard)
        assert process.stop() == 0
    assert "ticker stopped" in process.lines[-1]
    assert notices(db, "event_id, channel, tries, error") == [(event, "webhook", 1, "")]


@pytest.mark.slow
def test_by_default_the_log_is_told(environ, db):
    event = happens(db, "recovered", at=datetime.now(UTC))
    with Ticking() as process:
        process.says(rf"notice event={event} what=recovered task=1: mail\.fetch works again")
        until(lambda: notices(db) == [], "the notice has arrived")
        assert process.stop() == 0


# ------------------------------------------------------------------------------------------------------ command line


def test_a_test_notice_goes_through_each_channel_and_each_answer_is_shown(environ, endpoint, closed_port, monkeypatch):
    monkeypatch.setenv("TICKER_NOTIFY", "webhook")
    monkeypatch.setenv("TICKER_WEBHOOK_URL", endpoint.url)
    assert command("notify", "--test") == (sentence("cli.webhook_answered", answer="204 No Content"), "")
    told = json.loads(endpoint.got[0][1])
    assert (told["what"], told["schema"]) == ("test", "ticker") and told["text"].endswith("this channel works")
    monkeypatch.setenv("TICKER_WEBHOOK_URL", f"http://127.0.0.1:{closed_port}/{SECRET}")
    out, err = command("notify", "--test", code=1)
    assert out == sentence("cli.webhook_not_delivered", error="[Errno 111] Connection refused")
    assert err == sentence("cli.error_not_delivered", channel="webhook")
    [one] = json.loads(command("notify", "--test", "--json", code=1)[0])["channels"]
    assert one == {"channel": "webhook", "delivered": False, "answer": None, "error": "[Errno 111] Connection refused"}


def test_a_test_without_channels_says_so(environ, monkeypatch):
    monkeypatch.setenv("TICKER_NOTIFY", "")
    assert command("notify", "--test")[0] == sentence("cli.no_channel", setting="TICKER_NOTIFY")


def test_what_waits_is_listed_with_its_reason(environ, db, notifier):
    assert sentence("cli.no_notices") == command("notify")[0]
    event = happens(db, "failed", owner_type="channels", owner_id="7")
    notifier(Kept("pager", OSError("no \x1b[31mluck"))).round(NOW)
    out, _ = command("notify")
    assert "channels:7" in out and "pager" in out and "2026-03-01 12:00:30" in out and r"no \x1b[31mluck" in out
    [row] = json.loads(command("notify", "--json")[0])
    assert row == {
        "event_id": event, "channel": "pager", "tries": 1, "due_at": "2026-03-01T12:00:30.000000Z", "error": r"no \x1b[31mluck",
        "at": "2026-03-01T12:00:00.000000Z", "what": "failed", "task_id": 1, "task_name": "mail.fetch",
        "owner_type": "channels", "owner_id": "7",
    }  # fmt: skip
