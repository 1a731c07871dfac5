"""`ticker pause` and `resume` of many tasks: what they say, and what every other command says meanwhile."""

import re

import pytest

import ticker
from tests.cli.answers import answer, refused
from tests.doubles import NOW
from tests.factories import a_run
from tests.harness import command
from tests.sentences import sentence
from ticker.cli import connection, pauses

pytestmark = pytest.mark.usefixtures("environ")
ANY = re.compile(r"[-0-9T: ]+(Z|\+00:00)")
SCOPES = [
    (("--all",), "all", ""),
    (("--group", "news"), "group", "news"),
    (("--function", "poll"), "function", "poll"),
    (("--queue", "polling"), "queue", "polling"),
    (("--owner-type", "mail_channels"), "owner_type", "mail_channels"),
    (("--limit", "imap.*"), "limit", "imap.*"),
]


@pytest.fixture
def poll(db):
    return ticker.register(db, "poll", owner="mail_channels:5", every="1m", group="news", limits=["imap.gmail.com"])


@pytest.mark.parametrize(("options", "scope", "value"), SCOPES)
def test_tasks_of_a_scope_are_paused_and_resumed(options, scope, value, db, poll):
    made = answer("pause", *options, "--reason", "upgrade", "--by", "ann", "--until", "2h")
    assert (made["scope"], made["value"], made["by"], made["reason"], made["in_force"]) == (
        scope, value, "ann", "upgrade", True,
    )  # fmt: skip
    assert [one["id"] for one in answer("pause", "--list")] == [made["id"]]
    assert answer("list", str(poll.id))["state"] == "paused"
    assert answer("resume", *options)["resumed_at"]
    assert answer("pause", "--list") == []
    assert answer("list", str(poll.id))["state"] == "ok"
    assert " 0 " not in command("runs", "--journal")[0]


@pytest.mark.slow
def test_a_pause_is_said_by_every_command_that_shows_tasks_or_health(db, poll):
    out, err = command("pause", "--group", "news", "--by", "ann", "--reason", "upgrade")
    assert (out, err) == (sentence("cli.paused_many", words="tasks of the group news"), "")
    standing = sentence(
        "pauses.in_force", words="tasks of the group news", by="ann", since=ANY, reason="upgrade", waiting="0"
    )
    assert standing.within(command("pause", "--list")[0])
    assert standing.within(command("list")[1])
    assert standing.within(command("top", "--once")[0])
    assert standing.within(command("health", code=1)[0])
    assert sentence("pauses.of_a_task", words="tasks of the group news", by="ann", reason="upgrade").within(
        command("why", str(poll.id))[0]
    )
    assert command("list")[0].count("paused with tasks of the group news") == 1


def test_a_task_that_is_paused_with_its_group_is_not_resumed_alone_and_says_so(db, poll):
    command("pause", "--group", "news", "--by", "ann", "--reason", "upgrade")
    out, err = command("resume", str(poll.id))
    assert out == "nothing was resumed\n"
    assert err == sentence(
        "cli.resume_of_another_pause", name="poll", tasks="tasks of the group news", by="ann", reason="upgrade"
    )


def test_a_name_that_no_task_has_is_warned_about(db, poll):
    out, err = command("pause", "--group", "mews")
    assert out == sentence("cli.paused_many", words="tasks of the group mews")
    assert err == sentence("cli.pause_without_tasks", words="tasks of the group mews")


def test_a_pause_that_is_not_in_force_cannot_be_resumed(poll):
    assert command("resume", "--group", "news")[0] == sentence("cli.no_such_pause")
    assert answer("resume", "--group", "news") is None


def test_one_scope_at_a_time_is_paused(poll):
    for words in (("--all", "--group", "news"), ("--queue", "a", "--function", "b"), ("poll", "--all")):
        assert sentence("cli.one_scope").within(refused("pause", *words))
    over = refused("pause", "--all", "--until", "2020-01-01T00:00:00Z")
    assert sentence(
        "errors.until_is_over", field="until", value=re.compile("'2020-[^ ]+"), now=re.compile(r"20\S+")
    ).within(over)
    assert answer("pause", "--list") == []


def test_a_pause_that_waits_returns_when_nothing_runs(db, poll, monkeypatch):
    monkeypatch.setattr(pauses, "LATEST_START", 0.0)
    assert command("pause", "--all", "--wait", "10m")[0] == sentence("cli.drained", remedy="ticker resume --all")
    [pause] = answer("pause", "--list")
    assert (pause["scope"], pause["reason"]) == ("all", "drain")


def test_a_wait_leaves_a_pause_of_all_tasks_as_it_is_unless_there_is_a_new_reason(db, poll, monkeypatch):
    monkeypatch.setattr(pauses, "LATEST_START", 0.0)
    made = answer("pause", "--all", "--by", "ann", "--reason", "upgrade")
    waited = answer("pause", "--all", "--wait", "10m", "--by", "bob")
    assert waited == {"pause": made, "active": 0}
    waited = answer("pause", "--all", "--wait", "10m", "--by", "bob", "--reason", "move")
    assert (waited["pause"]["by"], waited["pause"]["reason"]) == ("bob", "move")


@pytest.mark.parametrize("words", [("--wait", "1m"), ("poll", "--wait", "1m"), ("--queue", "a", "--wait", "1m")])
def test_only_a_pause_of_all_tasks_waits(words, db):
    assert "--wait needs --all" in refused("pause", *words)


@pytest.mark.parametrize("words", [("poll",), ("--all",), ("--reason", "x"), ("--wait", "1m")])
def test_a_list_of_pauses_pauses_nothing(words, db, poll):
    assert sentence("cli.list_of_pauses_alone").within(refused("pause", "--list", *words))
    assert answer("pause", "--list") == []


@pytest.mark.slow
def test_a_pause_that_waits_says_how_many_runs_have_not_ended(db, poll, monkeypatch):
    monkeypatch.setattr(pauses, "LATEST_START", 0.0)
    a_run(
        db,
        poll,
        state="running",
        outcome=None,
        ended_at=None,
        started_at=NOW,
        token="00000000-0000-0000-0000-000000000007",
    )
    out, err = command("pause", "--all", "--wait", "1s", code=1)
    assert (out, err) == ("", sentence("cli.not_drained", runs="1 run", wait="1s"))


def test_it_waits_until_a_start_that_was_requested_before_it_cannot_begin(db, poll, monkeypatch):
    waited = []
    monkeypatch.setattr(connection.threading.Event, "wait", lambda self, seconds: waited.append(seconds))
    monkeypatch.setattr(connection.clock, "monotonic", lambda: 0.5 * len(waited))
    command("pause", "--all", "--wait", "10m")
    assert 0.5 * len(waited) >= pauses.LATEST_START > 2.0  # `SLOWEST_ANSWER` of a start
