"""How a process died, as far as its wait status, the clock and the cgroup tell."""

import signal
from pathlib import Path

import pytest

from tests.sentences import sentence
from wrappers.sandbox import deaths, limits, shared_state


@pytest.fixture(autouse=True)
def own_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_state, "_page", None)
    shared_state.share()
    shared_state.begin(limits.now() + 100)


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file in which this process's cgroup counts."""
    file = tmp_path / "memory.events"
    monkeypatch.setattr(deaths, "_events_file", lambda: file)
    return file


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, "exited with status 0"),
        (3, "exited with status 3"),
        (-signal.SIGSEGV, "died of SIGSEGV"),
        (-signal.SIGTERM, "died of SIGTERM"),
        (-41, "died of signal 41"),
        (-signal.SIGKILL, "killed by SIGKILL"),
        (None, sentence("why.died_unobserved")),
    ],
)
def test_a_wait_status_in_words(code: int | None, said: str, events: Path) -> None:
    assert deaths.cause(code) == said


@pytest.mark.parametrize(
    ("code", "seconds_left", "said"),
    [
        (-signal.SIGKILL, -0.001, sentence("why.killed_at_hard_limit", limit="2.0 s")),
        (-signal.SIGKILL, 60, "killed by SIGKILL"),
        (-signal.SIGSEGV, -0.001, "died of SIGSEGV"),
    ],
)
def test_a_kill_is_that_of_the_hard_limit_only_behind_its_instant(code: int, seconds_left: float, said: str) -> None:
    shared_state.write_deadline(limits.now() + seconds_left, 2.0)
    assert deaths.cause(code) == said


@pytest.mark.parametrize(
    ("seconds_left", "said"),
    [(-1, sentence("why.killed_seen_after", signal="SIGKILL", limit="2.0 s")), (60, "killed by SIGKILL")],
)
def test_a_kill_that_nobody_saw_happen_may_have_been_the_hard_limits(seconds_left: float, said: str) -> None:
    shared_state.write_deadline(limits.now() + seconds_left, 2.0)
    assert deaths.cause(-signal.SIGKILL, just_now=False) == said


def test_the_deadline_of_a_whole_batch_is_no_hard_limit() -> None:
    shared_state.write_deadline(limits.now() - 1, 2.0)
    shared_state.write_deadline(limits.now() - 1)
    assert deaths.cause(-signal.SIGKILL) == "killed by SIGKILL"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (0, 1, sentence("why.killed_out_of_memory", signal="SIGKILL")),
        (1, 1, "killed by SIGKILL"),
        (None, 1, "killed by SIGKILL"),
    ],
)
def test_a_kill_was_for_its_memory_only_where_the_cgroup_has_counted_one_since(
    before: int | None, after: int, said: str, events: Path
) -> None:
    events.write_text(f"low 0\nhigh 0\nmax 7\noom {after}\noom_kill {after}\noom_group_kill 0\n")
    assert deaths.cause(-signal.SIGKILL, before) == said


@pytest.mark.parametrize("content", ["", "oom_kill", "oom_kill x", "\xff"])
def test_a_count_that_cannot_be_read_is_none(content: str, events: Path) -> None:
    events.write_text(content, encoding="utf-8")
    assert deaths.oom_kills() is None


@pytest.mark.parametrize(
    ("listed", "path"), [("0::/", "memory.events"), ("1:name=x:/a\n0::/b/c\n", "b/c/memory.events")]
)
def test_the_cgroup_is_that_of_the_second_version(
    listed: str, path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(deaths, "OWN_CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(deaths, "CGROUPS", tmp_path)
    (tmp_path / "cgroup").write_text(listed)
    deaths._events_file.cache_clear()
    assert deaths._events_file() == tmp_path / path
    deaths._events_file.cache_clear()
