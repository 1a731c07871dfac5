"""Which workers listen to which queues, as RQ knows them."""

from datetime import timedelta

import pytest

from ticker import clock
from ticker.engine import jobs
from ticker.errors import QueueUnavailable
from ticker.queue.rq import Crew, RedisQueue


def worker(redis, name, *queues, state="idle"):
    redis.hset(f"rq:worker:{name}", "state", state)
    for queue in queues:
        redis.sadd(f"rq:workers:{queue}", f"rq:worker:{name}")


def test_workers_that_listen_to_the_same_queues_are_counted_together(queue, redis):
    worker(redis, "a", "polling", state="busy")
    worker(redis, "b", "polling")
    worker(redis, "c", "polling", "reports", state="busy")
    redis.sadd("rq:workers:polling", "rq:worker:killed")
    redis.sadd("rq:queues", "rq:queue:polling")
    redis.rpush("rq:queue:polling", "x", "y")
    waiting, crews = queue.staff(["reports"])
    assert waiting == {"polling": 2, "reports": 0}
    assert sorted(crews) == [Crew(("polling",), 2, 1), Crew(("polling", "reports"), 1, 1)]


def test_a_queue_with_jobs_whose_workers_are_gone_is_unattended(queue, redis):
    redis.sadd("rq:queues", "rq:queue:polling", "rq:queue:reports")
    redis.sadd("rq:workers:polling", "rq:worker:killed")
    redis.rpush("rq:queue:polling", "x")
    assert queue.staff().unattended == {"polling": 1}


def test_keys_of_another_type_count_as_empty(queue, redis):
    redis.sadd("rq:queues", "rq:queue:text")
    redis.set("rq:queue:text", "x")
    redis.set("rq:workers:text", "x")
    assert queue.staff() == ({"text": 0}, [])


@pytest.mark.parametrize(("age", "listed"), [(-3, [0]), (0, [0]), (599, [599]), (700, [])])
def test_a_worker_that_refuses_is_listed_for_ten_minutes_also_by_a_clock_that_is_behind_its_own(
    age, listed, queue, redis, monkeypatch
):
    noted = clock.python_utc().replace(microsecond=0)
    monkeypatch.setattr(clock, "python_utc", lambda: noted + timedelta(seconds=age, milliseconds=300))
    redis.sadd("rq:workers", "rq:worker:w")
    redis.hset("rq:worker:w", mapping={"queues": "polling", jobs.REFUSES: f"{noted.timestamp():.0f} a reason"})
    assert [one.age for one in queue.refusing()] == listed


def test_a_server_that_does_not_answer_is_an_error_of_the_queue(closed_port):
    with pytest.raises(QueueUnavailable):
        RedisQueue.from_url(f"redis://127.0.0.1:{closed_port}").staff()


def test_the_first_job_of_a_queue_says_for_how_long_it_has_waited(queue, redis, monkeypatch):
    queue.push(
        [
            jobs.JobSpec("t1-1", "polling", (1, 1), 61, 3660, "poll"),
            jobs.JobSpec("t2-1", "polling", (2, 1), 61, 3660, "poll"),
        ]
    )
    redis.rpush("rq:queue:gone", "x")
    redis.rpush("rq:queue:foreign", "y")
    redis.hset("rq:job:y", "enqueued_at", "yesterday")
    later = clock.python_utc() + timedelta(seconds=10)
    monkeypatch.setattr(clock, "python_utc", lambda: later)
    [(name, seconds)] = queue.ages(["polling", "empty", "gone", "foreign"]).items()
    assert name == "polling" and 10 <= seconds < 70
