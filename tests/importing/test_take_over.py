"""An entry is scheduled in at most one place, whenever the take-over or the give-back is interrupted."""

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

import ticker
from tests.documents.recipes import run, shown, write
from tests.harness import command
from tests.importing.conftest import listens
from tests.importing.kills import Killed, killed_after
from tests.importing.rq_schedule import NOON, schedule
from tests.running import ROOT, Ticking
from tests.sentences import sentence
from ticker.errors import BadInput, ConfigurationError
from ticker.importing import take_over
from ticker.importing.sources import rq_scheduler
from ticker.importing.sources.rq_scheduler import LOCK, PARKED, SCHEDULE, TAKEN, RqScheduler

LATER = datetime(2099, 1, 31, 6, tzinfo=UTC)


@pytest.fixture
def source(redis_url):
    return RqScheduler(redis_url)


@pytest.fixture
def taken(db, source):
    """Takes over what fits."""

    def taken(of=source, **options):
        return take_over.take_over(of, db, "ticker", chosen, **options)

    return taken


def task(db, name):
    return next(task for task in ticker.list_tasks(db) if task.name == name)


def chosen(founds):
    return [one for one in founds if not one.refusals and not one.decisions]


def places(redis, db):
    """Where each entry is: there, here, or parked."""
    there, parked = ({id_.decode() for id_ in ids} for ids in (redis.zrange(SCHEDULE, 0, -1), redis.hkeys(PARKED)))
    return there, {task.name for task in ticker.list_tasks(db)}, parked


def test_entries_become_tasks_that_are_first_due_when_they_were_there(redis, db, taken):
    for number in range(3):
        schedule(redis, f"poll-{number}", NOON + timedelta(seconds=number), interval=60, kwargs={"channel": number})
    schedule(redis, "asks", interval=60, timeout=180)
    assert sorted(taken().moved) == ["poll-0", "poll-1", "poll-2"]
    assert places(redis, db) == ({"asks"}, {"poll-0", "poll-1", "poll-2"}, set())
    third = task(db, "poll-2")
    assert (third.next_run, third.kwargs) == (NOON + timedelta(seconds=2), {"channel": 2})
    assert third.metadata == {"taken_from": {"source": "rq-scheduler", "id": "poll-2"}}
    assert db.execute("SELECT taken_from FROM ticker.installation").fetchone() == (["rq-scheduler"],)
    assert taken().moved == []


@pytest.mark.parametrize(
    ("step", "there", "here", "parked"),
    [("insert", 1, 0, 0), ("park", 0, 0, 1), ("commit", 0, 1, 1), ("note", 0, 1, 0)],
)
def test_a_second_call_completes_what_a_kill_has_left(redis, redis_url, db, taken, step, there, here, parked):
    schedule(redis, "poll-5", interval=60)
    with pytest.raises(Killed):
        taken(killed_after(step, RqScheduler(redis_url)))
    assert [len(names) for names in places(redis, db)] == [there, here, parked]
    taken()
    assert places(redis, db) == (set(), {"poll-5"}, set())
    assert task(db, "poll-5").next_run == NOON


def test_no_pass_of_the_scheduler_is_at_work_while_entries_move(redis, db, taken, source):
    schedule(redis, "poll-5", interval=60)
    held = []
    park = source.park
    source.park = lambda *given: held.append(redis.get(LOCK)) or park(*given)
    taken()
    assert held[0].startswith(b"ticker import ")
    assert redis.get(LOCK) is None


def test_a_lock_that_was_lost_moves_nothing_and_is_left_to_its_owner(redis, db, taken, source):
    schedule(redis, "poll-5", interval=60)
    park = source.park
    source.park = lambda *given: redis.set(LOCK, "a pass") and park(*given)
    with pytest.raises(ticker.TickerError, check=sentence("imports.lock_lost", lock="rq:scheduler_lock").within):
        taken()
    assert places(redis, db) == ({"poll-5"}, set(), set())
    assert redis.get(LOCK) == b"a pass"


def test_a_lock_that_is_not_given_up_is_named(redis, taken, monkeypatch):
    monkeypatch.setattr(rq_scheduler, "LOCK_AT_MOST", 0.1)
    redis.set(LOCK, "a pass")
    with pytest.raises(
        ConfigurationError, check=sentence("imports.lock_held", lock="rq:scheduler_lock", seconds=0).within
    ):
        taken()


def test_an_entry_that_an_application_changes_meanwhile_is_read_again(redis, db, taken, source):
    schedule(redis, "poll-5", interval=60)
    park, later = source.park, (NOON + timedelta(seconds=7)).timestamp()
    source.park = lambda *given: (redis.zadd(SCHEDULE, {"poll-5": later}), park(*given))[1]
    assert taken().moved == ["poll-5"]
    assert task(db, "poll-5").next_run == NOON + timedelta(seconds=7)


def test_a_task_of_the_same_name_is_left_alone(redis, db, taken):
    ticker.register(db, "reports", name="poll-5", every="1h")
    schedule(redis, "poll-5", interval=60)
    assert sentence("imports.name_is_taken").within(taken().left["poll-5"])
    assert places(redis, db) == ({"poll-5"}, {"poll-5"}, set())


def test_jobs_that_wait_in_rq_need_a_word_of_the_operator(redis, db, taken):
    schedule(redis, "poll-5", interval=60)
    redis.rpush("rq:queue:polling", "poll-5", "poll-5")
    with pytest.raises(BadInput, check=sentence("imports.say_how", jobs="2 jobs", wait="wait", runs=0).within):
        taken()
    assert places(redis, db) == ({"poll-5"}, set(), set())


def test_jobs_that_wait_can_be_removed(redis, db, taken):
    schedule(redis, "poll-5", interval=60)
    redis.rpush("rq:queue:polling", "another", "poll-5", "poll-5")
    assert taken(old_jobs="remove").moved == ["poll-5"]
    assert redis.lrange("rq:queue:polling", 0, -1) == [b"another"]


def test_an_entry_is_taken_when_its_last_job_has_run_and_the_others_at_once(redis, db, taken, monkeypatch):
    monkeypatch.setattr(take_over, "LOOK_EVERY", 0.0)
    job = schedule(redis, "late", interval=60)
    schedule(redis, "free", interval=60)
    redis.rpush("rq:queue:polling", "late")
    seen = []

    def runs(sentence):
        seen.append((sentence, {task.name for task in ticker.list_tasks(db)}))
        if redis.lpop("rq:queue:polling"):
            redis.zadd("rq:wip:polling", {"late:execution": 4e9})
        else:
            redis.hset(job.key, "started_at", (NOON + timedelta(seconds=50)).isoformat())
            redis.delete("rq:wip:polling")

    assert sorted(taken(old_jobs="wait", tell=runs).moved) == ["free", "late"]
    assert [names for _, names in seen] == [{"free"}, {"free"}]
    assert sentence("imports.old_jobs", jobs="1 job", wait="wait").within(seen[0][0])
    assert task(db, "late").next_run == NOON + timedelta(seconds=110)


def test_a_job_that_a_worker_has_taken_from_its_list_runs_until_a_second_look(redis, source, monkeypatch):
    job = schedule(redis, "poll-5", interval=60)
    redis.hset(job.key, "status", "queued")
    assert [source.waiting(["poll-5"]).running for _ in range(2)] == [{"poll-5"}] * 2
    monkeypatch.setattr(rq_scheduler, "ASTRAY_AFTER", 0.0)
    assert source.waiting(["poll-5"]).running == set()


def test_entries_go_back_byte_for_byte_with_their_next_times(redis, db, taken, source):
    for number in range(3):
        schedule(redis, f"poll-{number}", interval=60, kwargs={"channel": number})
    schedule(redis, "daily", cron_string="*/5 * * * *")
    schedule(redis, "asks", interval=60, timeout=180)
    before = {key: redis.hgetall(key) for key in redis.keys("rq:job:*")}
    taken()
    db.execute("UPDATE ticker.tasks SET last_run = %s, next_run = %s WHERE name = 'poll-1'", [NOON, NOON])
    redis.delete("rq:job:poll-2")
    assert len(take_over.give_back(source, db, "ticker").moved) == 4
    assert places(redis, db) == ({"poll-0", "poll-1", "poll-2", "daily", "asks"}, set(), set())
    assert {key: redis.hgetall(key) for key in redis.keys("rq:job:*")} == before
    assert redis.zscore(SCHEDULE, "poll-0") == NOON.timestamp()
    assert redis.zscore(SCHEDULE, "poll-1") == NOON.timestamp() + 60
    assert redis.keys("ticker:*rq-scheduler") == []
    assert db.execute("SELECT taken_from FROM ticker.installation").fetchone() == ([],)


@pytest.mark.parametrize("step", ["unpark_at", "give_back"])
@pytest.mark.parametrize("then", [take_over.give_back, take_over.take_over])
def test_an_interrupted_give_back_is_completed_either_way(redis, redis_url, db, taken, source, step, then):
    schedule(redis, "poll-5", interval=60)
    taken()
    dying = RqScheduler(redis_url)

    def kill(*given):
        if step == "unpark_at":
            RqScheduler.unpark_at(dying, *given)
        raise Killed

    setattr(dying, step, kill)
    with pytest.raises(Killed):
        take_over.give_back(dying, db, "ticker")
    if then is take_over.give_back:
        take_over.give_back(source, db, "ticker")
        assert places(redis, db) == ({"poll-5"}, set(), set())
    else:
        taken()
        assert places(redis, db) == (set(), {"poll-5"}, set())


def test_tasks_that_are_paused_or_done_are_not_given_back(redis, db, taken, source):
    for name in ("paused", "removed", "poll-5"):
        schedule(redis, name, interval=60)
    taken()
    ticker.pause(db, "paused")
    ticker.unregister(db, task="removed")
    result = take_over.give_back(source, db, "ticker")
    assert result.moved == ["poll-5"]
    assert "disabled or paused" in result.left["paused"]
    assert sentence("imports.task_is_gone").within(result.left["removed"])
    assert sorted(redis.hkeys(TAKEN)) == [b"paused", b"removed"]
    assert redis.exists("rq:job:removed")


@pytest.mark.slow
def test_the_guide_moves_tasks_to_owners_without_an_extra_run(redis, db, environ, taken, source, tmp_path):
    for number in (1, 2):
        schedule(redis, f"poll-{number}", interval=60, args=(number,))
    taken()
    db.execute("UPDATE ticker.tasks SET last_run = %s WHERE name = 'poll-2'", [NOON - timedelta(seconds=10)])
    write(tmp_path, **shown(ROOT / "docs/guides/coming-from.md"))
    for _ in range(2):
        run(tmp_path, sys.executable, "name_owners.py")
    assert {(task.owner, task.next_run) for task in ticker.list_tasks(db)} == {
        ("mailboxes:1", NOON),
        ("mailboxes:2", NOON + timedelta(seconds=50)),
    }
    result = take_over.give_back(source, db, "ticker")
    assert (result.moved, {*result.left}, len(source.taken())) == ([], {"poll-1", "poll-2"}, 2)


def test_a_task_of_another_source_is_not_given_back(redis, db, taken, source):
    schedule(redis, "poll-5", interval=60)
    schedule(redis, "parked", interval=60)
    taken()
    source.unpark_at(db, {"parked": NOON})
    ticker.unregister(db, task="poll-5")
    ticker.unregister(db, task="parked")
    for name in ("poll-5", "parked"):
        ticker.register(db, "poll", name=name, every=60, metadata={"taken_from": {"source": "rq-cron", "id": name}})
    result = take_over.give_back(source, db, "ticker")
    assert (result.moved, [*result.left]) == (["parked"], ["poll-5"])
    assert sentence("imports.not_from_here").within(result.left["poll-5"])
    assert places(redis, db) == ({"parked"}, {"poll-5", "parked"}, set())


def test_a_warning_names_what_is_scheduled_there_again_and_the_next_call_takes_it(redis, db, taken, source):
    schedule(redis, "poll-5", interval=60)
    schedule(redis, "poll-6", interval=60, args=())
    taken()
    assert list(take_over.remains(source, NOON)) == []
    schedule(redis, "poll-5", interval=60)
    schedule(redis, "new", interval=120)
    [warning] = take_over.remains(source, NOON)
    assert "(poll-5)" in warning
    taken()
    assert places(redis, db) == (set(), {"poll-5", "poll-6", "new"}, set())


def test_an_entry_scheduled_again_under_another_id_is_the_same_task(redis, db, environ, taken, source, tmp_path):
    schedule(redis, "0d8f", interval=60, kwargs={"channel": 5})
    taken()
    schedule(redis, "77a1", interval=60, kwargs={"channel": 5})
    [warning] = take_over.remains(source, NOON)
    assert "(77a1)" in warning
    out, _ = imported(folder=tmp_path)
    assert sentence("imports.like_a_taken_one", entry="0d8f", task="0d8f").within(out)
    assert "tests.importing.rq_schedule:poll every 1m" in out
    taken()
    assert places(redis, db) == (set(), {"0d8f"}, set())


@pytest.mark.parametrize(
    ("id_", "said"),
    [
        ("0d8f", sentence("imports.taken_and_gone", task="0d8f")),
        ("77a1", sentence("imports.like_a_taken_one_gone", task="0d8f", entry="0d8f")),
    ],
)
def test_an_entry_whose_task_was_deleted_becomes_a_task_again(redis, db, environ, taken, id_, said, tmp_path):
    schedule(redis, "0d8f", interval=60, kwargs={"channel": 5})
    taken()
    ticker.unregister(db, task="0d8f")
    schedule(redis, id_, interval=60, kwargs={"channel": 5})
    out, _ = imported(folder=tmp_path)
    assert said.within(" ".join(out.split()))
    taken()
    assert places(redis, db) == (set(), {"0d8f"}, set())


def test_an_entry_under_another_id_is_the_same_task_after_a_kill_too(redis, redis_url, db, taken, source):
    schedule(redis, "0d8f", interval=60)
    taken()
    schedule(redis, "77a1", interval=60)
    with pytest.raises(Killed):
        taken(killed_after("park", RqScheduler(redis_url)))
    taken()
    assert places(redis, db) == (set(), {"0d8f"}, set())
    assert {one.name for one in source.taken()} == {"0d8f"}


def named(name):
    """Chooses what fits, with a decision about its name."""
    return lambda founds: [replace(one, wanted={**one.wanted, "name": name}) for one in chosen(founds)]


def test_an_id_with_another_schedule_is_the_task_that_it_became(redis, db, taken, source):
    schedule(redis, "poll-2", interval=60)
    take_over.take_over(source, db, "ticker", named("mail 2"))
    schedule(redis, "poll-2", interval=120)
    taken()
    assert places(redis, db) == (set(), {"mail 2"}, set())
    assert take_over.give_back(source, db, "ticker").moved == ["poll-2"]
    assert places(redis, db) == ({"poll-2"}, set(), set())


def test_a_parked_entry_becomes_the_task_whose_name_was_decided_when_it_was_parked(redis, redis_url, db, taken, source):
    for id_, step in (("at-noon", "commit"), ("each-hour", "park")):
        schedule(redis, id_, LATER, **({"interval": 3600} if step == "park" else {}))
        with pytest.raises(Killed):
            take_over.take_over(killed_after(step, RqScheduler(redis_url)), db, "ticker", named(f"mail {id_}"))
    taken()
    assert places(redis, db) == (set(), {"mail at-noon", "mail each-hour"}, set())
    assert sorted(take_over.give_back(source, db, "ticker").moved) == ["at-noon", "each-hour"]


def test_each_single_time_is_a_task_of_its_own(redis, db, taken, source):
    schedule(redis, "today", LATER)
    taken()
    schedule(redis, "tomorrow", LATER + timedelta(days=1))
    assert list(take_over.remains(source, NOON)) == []
    taken()
    assert places(redis, db) == (set(), {"today", "tomorrow"}, set())


def test_an_entry_that_is_scheduled_again_while_it_is_parked_is_taken_once(redis, redis_url, db, taken, source):
    schedule(redis, "poll-5", interval=60)
    with pytest.raises(Killed):
        taken(killed_after("park", RqScheduler(redis_url)))
    schedule(redis, "poll-5", interval=60)
    taken()
    assert places(redis, db) == (set(), {"poll-5"}, set())
    assert list(take_over.remains(source, NOON)) == []


def test_of_entries_that_became_one_task_one_goes_back(redis, db, taken, source):
    for id_ in ("first", "again", "and-again"):
        schedule(redis, id_, interval=60, kwargs={"channel": 5})
        taken()
    ticker.unregister(db, task="first")
    for id_ in ("third", "fourth"):
        schedule(redis, id_, interval=60, kwargs={"channel": 5})
    taken()
    assert places(redis, db) == (set(), {"first"}, set())
    assert len(take_over.give_back(source, db, "ticker").moved) == 1
    there, here, parked = places(redis, db)
    assert (len(there), here, parked, source.taken(), source.again(NOON)) == (1, set(), set(), [], [])


def test_a_warning_names_what_an_interrupted_call_has_left_parked(redis, redis_url, db, taken, source):
    schedule(redis, "poll-5", interval=60)
    with pytest.raises(Killed):
        taken(killed_after("park", RqScheduler(redis_url)))
    [warning] = take_over.remains(source, NOON)
    assert "parked (poll-5)" in warning


def test_what_was_taken_is_forgotten_with_its_jobs_but_not_what_is_used_or_parked(redis, redis_url, db, taken, source):
    for id_ in ("old", "again", "waits"):
        schedule(redis, id_, interval=60, args=(id_,))
    taken()
    schedule(redis, "again", interval=60, args=("again",))
    redis.rpush("rq:queue:polling", "waits")
    assert sorted(take_over.forget_old(source, db, "ticker")) == ["again", "old", "waits"]
    assert {key.decode() for key in redis.keys("rq:job:*")} == {"rq:job:again", "rq:job:waits"}
    assert (source.taken(), len(ticker.list_tasks(db))) == ([], 3)
    assert db.execute("SELECT taken_from FROM ticker.installation").fetchone() == ([],)
    redis.delete(SCHEDULE)
    schedule(redis, "parked", interval=60)
    with pytest.raises(Killed):
        taken(killed_after("park", RqScheduler(redis_url)))
    with pytest.raises(BadInput, check=sentence("imports.would_lose", entry="parked").within):
        take_over.forget_old(source, db, "ticker")


# ---------------------------------------------------------------------------------------------------------- the commands


def imported(*words, code=0, folder):
    return command("import", "rq-scheduler", "--plan-file", str(folder / "plan.json"), *words, code=code)


def test_the_commands_plan_take_over_and_give_back(redis, db, environ, served, tmp_path):
    schedule(redis, "poll-5", interval=60)
    schedule(redis, "asks", interval=60, timeout=180)
    redis.rpush("rq:queue:polling", "poll-5")
    out, _ = imported(code=1, folder=tmp_path)
    assert sentence("imports.needs_a_worker", jobs="1 job", wait="wait", runs=0).within(out)
    out, _ = imported("--decide", "*:box=30s", folder=tmp_path)
    _, err = imported("--take-over", code=2, folder=tmp_path)
    assert sentence("imports.say_how", jobs="1 job", wait="wait", runs=0).within(err)
    imported("--take-over", "--old-jobs", "remove", folder=tmp_path)
    assert places(redis, db) == (set(), {"poll-5", "asks"}, set())
    imported("--give-back", folder=tmp_path)
    assert places(redis, db) == ({"poll-5", "asks"}, set(), set())
    imported("--take-over", folder=tmp_path)
    assert imported("--forget-old", folder=tmp_path)[0] == "forgot 2 entries\n"
    assert imported("--give-back", folder=tmp_path)[0] == "gave back 0 entries\n"


@pytest.mark.parametrize("step", ["--give-back", "--forget-old"])
def test_the_way_back_is_that_of_the_plan_or_of_its_options(redis, db, environ, taken, source, tmp_path, step):
    for id_ in ("mail-5", "mail-6", "report", "audit"):
        schedule(redis, id_, interval=60, args=(id_,))
    imported("--only", "mail-*", folder=tmp_path)
    taken()
    _, err = imported(step, folder=tmp_path)
    assert sentence("imports.stay_taken", entries="2 entries", only="'mail-*'").within(err)
    assert sorted(one.id for one in source.taken()) == ["audit", "report"]
    assert db.execute("SELECT taken_from FROM ticker.installation").fetchone() == (["rq-scheduler"],)
    imported(step, "--only", "audit", folder=tmp_path)
    assert [one.id for one in source.taken()] == ["report"]
    imported(step, "--only", "*", folder=tmp_path)
    assert db.execute("SELECT taken_from FROM ticker.installation").fetchone() == ([],)


@pytest.mark.parametrize("step", ["--give-back", "--forget-old"])
def test_without_its_plan_the_way_back_needs_the_place_of_the_source(
    redis, redis_url, db, environ, taken, source, tmp_path, step
):
    schedule(redis, "poll-5", interval=60)
    taken()
    needed = sentence("imports.from_is_missing", source="rq-scheduler")
    assert needed.within(imported(step, code=2, folder=tmp_path)[1])
    (tmp_path / "crontab").write_text("@daily backup\n")
    plan_file = ("--plan-file", str(tmp_path / "plan.json"))
    words = ("--from", str(tmp_path / "crontab"), "--zone", "UTC", "--command-task", "backup", "--no-user-column")
    command("import", "crontab", *plan_file, *words, code=1)
    assert needed.within(imported(step, code=2, folder=tmp_path)[1])
    assert len(source.taken()) == 1
    imported(step, "--from", redis_url, folder=tmp_path)
    assert source.taken() == []


def test_a_take_over_needs_a_worker_of_ours_for_queue_and_function_or_an_option(redis, db, environ, tmp_path):
    schedule(redis, "poll-5", interval=60)
    imported(folder=tmp_path)
    refusal = sentence("imports.without_worker", queue="polling", entries="1 entry")
    assert refusal.within(imported("--take-over", code=2, folder=tmp_path)[1])
    listens(redis, "polling", ours=False)
    assert refusal.within(imported("--take-over", code=2, folder=tmp_path)[1])
    listens(redis, "reports", ours=True)
    assert refusal.within(imported("--take-over", code=2, folder=tmp_path)[1])
    listens(redis, "polling", ours=True)
    db.execute(
        "INSERT INTO ticker.functions (name, batch, concurrency, repeatable, announced_at) VALUES ('other', 1, 1, false, now())"
    )
    refusal = sentence(
        "imports.without_function", function="'tests.importing.rq_schedule:poll'", entries="1 entry", others="other"
    )
    assert refusal.within(imported("--take-over", code=2, folder=tmp_path)[1])
    assert places(redis, db) == ({"poll-5"}, set(), set())
    imported("--take-over", "--without-worker", folder=tmp_path)
    assert places(redis, db) == (set(), {"poll-5"}, set())


def test_an_owner_cannot_be_decided_for_an_entry_that_can_go_back(redis, db, environ, tmp_path):
    schedule(redis, "poll-5", interval=60)
    _, err = imported("--decide", "poll-5:owner=mail_channels:5", code=2, folder=tmp_path)
    assert sentence("imports.owner", text="'poll-5:owner=mail_channels:5'", source="rq-scheduler").within(err)
    assert [*tmp_path.iterdir()] == []


def test_an_entry_that_was_pushed_since_the_plan_still_fits_it(redis, db, environ, served, tmp_path):
    schedule(redis, "poll-5", interval=60, repeat=5)
    imported(folder=tmp_path)
    schedule(redis, "poll-5", NOON + timedelta(seconds=60), interval=60, repeat=4)
    imported("--take-over", folder=tmp_path)
    assert task(db, "poll-5").max_runs == 4


def test_an_entry_that_is_new_since_the_plan_is_left_and_the_others_are_taken(redis, db, environ, served, tmp_path):
    schedule(redis, "poll-5", interval=60)
    imported(folder=tmp_path)
    schedule(redis, "enqueued-in", NOON + timedelta(days=40000))
    out, _ = imported("--take-over", code=1, folder=tmp_path)
    assert sentence("imports.new", entry="enqueued-in").within(out)
    assert places(redis, db) == ({"enqueued-in"}, {"poll-5"}, set())
    schedule(redis, "poll-5", interval=90)
    _, err = imported("--take-over", code=1, folder=tmp_path)
    assert sentence("imports.changed", entries="1 entry", example="'poll-5'").within(err)


def test_a_new_plan_has_what_an_interrupted_call_has_left_parked(
    redis, redis_url, db, environ, served, taken, tmp_path
):
    schedule(redis, "poll-5", interval=60)
    with pytest.raises(Killed):
        taken(killed_after("park", RqScheduler(redis_url)))
    schedule(redis, "poll-6", interval=60)
    imported(folder=tmp_path)
    imported("--take-over", folder=tmp_path)
    assert places(redis, db) == (set(), {"poll-5", "poll-6"}, set())


@pytest.mark.slow
def test_doctor_and_the_start_of_a_ticker_warn_of_what_is_scheduled_again(redis, db, environ, taken):
    schedule(redis, "poll-5", interval=60)
    taken()
    out, _ = command("doctor", code=1)
    assert "ok: tasks" in out
    schedule(redis, "poll-5", interval=60)
    out, _ = command("doctor", code=1)
    assert sentence("imports.problem_again", entry="poll-5").within(out)
    with Ticking() as ticking:
        ticking.says(repr(sentence("imports.warning_again")))


@pytest.mark.slow
def test_a_ticker_starts_although_it_may_not_read_the_old_schedule(redis, db, environ, taken):
    schedule(redis, "poll-5", interval=60)
    taken()
    redis.set(SCHEDULE, "no right to read this")
    with Ticking() as ticking:
        ticking.says(repr(sentence("imports.warning_unknown")))
        ticking.says("ticker started")


@pytest.mark.slow
def test_the_room_of_imports_is_loaded_only_after_an_import(environ):
    program = """
import sys
from ticker import clock
from ticker.cli import run
from ticker.daemon import loop

loop.run = lambda *_: print([name for name in sys.modules if name.startswith("ticker.importing")])
run.run.main([], standalone_mode=False)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "[]\n"
