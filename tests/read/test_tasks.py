"""Pages of tasks among many: each looks through so many, says so where it ends there, and leaves nobody out."""

import pytest

import ticker
from tests.factories import a_run, ticked
from tests.sentences import sentence
from ticker.errors import BadInput
from ticker.read import formatting, tasks
from ticker.tasks import filters

STATES = {
    "failing": "failures = 1", "late": "next_run = '2020-01-01Z'", "paused": "paused_by = 'ann'", "inactive": "enabled = false",
    "waiting": "waiting = '{2020-01-01Z}'", "no_room": "limits = '{imap}', next_run = '2020-01-01Z'",  # a tick has left it
}  # fmt: skip


@pytest.fixture
def ten(environ, db, monkeypatch):
    """Ten tasks, of which one in three runs `feeds.read`; a page looks through four."""
    monkeypatch.setattr(filters, "SEARCHED", 4)
    for number in range(10):
        ticker.register(
            db, "mail.fetch" if number % 3 else "feeds.read", name=f"n{number}", owner=f"a:{number // 5}", every="1m"
        )
    db.execute("UPDATE ticker.tasks SET next_run = '2100-01-01Z'")
    ticker.limit(db, "imap", concurrency=1)
    db.execute(
        "INSERT INTO ticker.limited_keys (key, limited_by, concurrency) VALUES ('imap', 'imap', 1) ON CONFLICT DO NOTHING"
    )
    ticked(db)


def pages(db, **filters):
    """Of each page its names, and through how many tasks it looked."""
    found, after = [], 0
    while after is not None:
        page = tasks.page_of_tasks(db, after=after, **filters)
        found.append(("".join(task.name[1:] for task in page.tasks), page.looked_through))
        after = page.next
    return found


def names(db, **filters):
    return "".join(task.name[1:] for task in ticker.list_tasks(db, **filters))


@pytest.mark.slow
@pytest.mark.parametrize(
    "filters", [{"function": "feeds.read"}, {"search": "FEEDS"}, {"search": "feeds", "owner_type": "a"}]
)
def test_what_no_index_knows_is_looked_for_in_so_many_tasks_a_page(ten, db, filters):
    assert pages(db, **filters) == [("03", 4), ("6", 4), ("9", None)]
    assert pages(db, limit=1, **filters) == [("0", None), ("3", 4), ("6", 4), ("9", None)]
    assert names(db, **filters) == "0369"


def test_a_search_that_finds_nothing_says_how_far_it_looked(ten, db):
    assert pages(db, search="nowhere") == [("", 4), ("", 4), ("", None)]
    assert pages(db, queue="nowhere") == [("", 4), ("", 4), ("", None)]
    assert names(db, search="nowhere") == ""


@pytest.fixture
def failing(ten, db):
    """All ten fail with one cause, three of them with an error that names a host."""
    db.execute("UPDATE ticker.tasks SET failures = 1, cause = 'OSError: *'")
    for task in ticker.list_tasks(db):
        if task.name in ("n2", "n5", "n9"):
            run = a_run(db, task, outcome="failed", reason="OSError: imap.a.example")
            db.execute("UPDATE ticker.tasks SET last_run_id = %s WHERE id = %s", [run, task.id])


def test_an_error_is_looked_for_in_so_many_tasks_a_page_even_with_a_cause(failing, db):
    wanted = {"cause": "OSError: *", "error": "imap.a"}
    assert pages(db, **wanted) == [("2", 4), ("5", 4), ("9", None)]
    assert pages(db, owner="a:1", **wanted) == [("59", None)]
    assert names(db, **wanted) == "259"


def test_an_error_is_looked_for_in_so_many_tasks_a_page_in_the_order_of_failures(failing, db):
    db.execute("UPDATE ticker.tasks SET failures = 20 - id")
    assert pages(db, error="imap.a", sort="failures") == [("2", 4), ("5", 4), ("9", None)]
    db.execute("UPDATE ticker.tasks SET failures = id")
    assert pages(db, error="imap.a", sort="failures") == [("9", 4), ("52", 4), ("", None)]
    assert pages(db, error="imap.a", sort="failures", limit=1) == [("9", 4), ("5", None), ("2", 4), ("", None)]
    assert pages(db, error="imap.a", sort="failures", owner="a:1", limit=1) == [("9", None), ("5", None)]


@pytest.mark.slow
@pytest.mark.parametrize("filters", [{}, {"owner_type": "a"}, {"state": "late"}])
def test_what_an_index_knows_fills_its_pages(ten, db, filters):
    db.execute("UPDATE ticker.tasks SET next_run = '2020-01-01Z'")
    assert pages(db, limit=6, **filters) == [("012345", None), ("6789", None)]
    assert pages(db, search="feeds", owner="a:1") == [("69", None)]
    assert pages(db, search="feeds", state="late") == [("0369", None)]


@pytest.mark.slow
@pytest.mark.parametrize("many", [2, 20_000], ids=["in a crowd", "of few"])
@pytest.mark.parametrize("state", STATES)
def test_a_state_that_many_are_in_is_listed_as_one_of_few(state, many, ten, db, monkeypatch):
    monkeypatch.setattr(filters, "CROWD", many)
    db.execute(f"UPDATE ticker.tasks SET {STATES[state]} WHERE name IN ('n1', 'n4', 'n8')")
    assert names(db, state=state) == "148"
    whole = [("14", None), ("8", None)]
    assert pages(db, state=state, limit=2) == ([("1", 4), ("4", 4), ("8", None)] if many == 2 else whole)
    assert names(db, state=state, owner="a:1") == "8"
    assert (
        "".join(found for found, _ in pages(db, state=state, search="n8")) == names(db, state=state, search="n8") == "8"
    )


def test_what_is_no_state_or_no_limit_is_refused(environ, db):
    with pytest.raises(BadInput, check=sentence("errors.is_none_of", values="failing").within):
        tasks.page_of_tasks(db, state="ill")
    with pytest.raises(BadInput, check=sentence("errors.whole_number_from_to", first=1, last=10000).within):
        tasks.page_of_tasks(db, limit=0)


def test_counts_of_one_are_in_the_singular(environ, db):
    told = formatting.on_failure(ticker.register(db, "mail.fetch", every="1m", pause_after=1, dead_man=1))
    assert (told["pauses itself"], told["notifies"].split(" without")[0]) == ("after 1 failure", "after 1 interval")
