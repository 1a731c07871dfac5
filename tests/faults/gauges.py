"""What must not grow in a soak: memory, descriptors, connections, tables, indexes, and keys in Redis.

A ticker and a worker that nothing kills are measured, since the others are replaced all the time.
"""

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

import psycopg
from redis.exceptions import RedisError

from tests.faults.stage import Process, Stage

SAMPLES, LEAST = 600, 5.0  # per run; seconds between two of them
SIZES = """
SELECT pg_table_size('ticker.tasks') / 1e6, pg_indexes_size('ticker.tasks') / 1e6,
    pg_table_size('ticker.runs')::float / greatest(1, runs.n_live_tup), pg_indexes_size('ticker.runs')::float / greatest(1, runs.n_live_tup),
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')
FROM pg_stat_user_tables runs WHERE relid = 'ticker.runs'::regclass"""
NAMES = ("table tasks, MB", "indexes of tasks, MB", "table runs, bytes per row", "indexes of runs, bytes per row",
         "sessions of PostgreSQL")  # fmt: skip
SLACK = {"MB": 20.0, "bytes per row": 300.0, "": 20.0}  # by unit: less than that is no growth
RATIO = 1.3
FORGOTTEN = {"rq:job:*", "rq:executions:*", "rq:results:*", "rq:queue:*"}  # of jobs, all of which have ended

Sample = dict[str, float]


@contextmanager
def measured(stage: Stage, seconds: float, spared: Sequence[Process], folder: Path) -> Iterator[list[Sample]]:
    """Yields the samples of the block, which are also written to `gauges.jsonl`. The spared processes run in it."""
    samples: list[Sample] = []
    over = threading.Event()

    def take() -> None:
        with (folder / "gauges.jsonl").open("w") as file:
            while not over.wait(max(LEAST, seconds / SAMPLES)):
                with suppress(psycopg.Error, RedisError, OSError, IndexError):
                    samples.append(sample(stage, *spared))
                    print(json.dumps(samples[-1]), file=file, flush=True)

    thread = threading.Thread(target=take, daemon=True)
    for process in spared:
        process.look()
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()


def sample(stage: Stage, ticker: Process, worker: Process) -> Sample:
    found: Sample = {}
    for role, pids in (("ticker", [ticker.pid]), ("worker and supervisor", [worker.pid, worker.level(0)[0]])):
        found[f"memory of {role}, MB"] = sum(map(memory, pids))
        found[f"descriptors of {role}"] = sum(len([*Path(f"/proc/{pid}/fd").iterdir()]) for pid in pids)
    with stage.redis() as redis:
        found["connections of Redis"] = redis.info("clients")["connected_clients"]
        found["keys in Redis that never expire"] = staying(redis.info("keyspace").get("db0", {}))
        found["data in Redis, MB"] = redis.info("memory")["used_memory"] / 1e6
    with stage.database() as db:
        found |= zip(NAMES, map(float, db.execute(SIZES).fetchall()[0]), strict=True)
    return found


def staying(keys: Mapping[str, int]) -> int:
    """A failed job is kept for an hour, so how many there are depends on the last FLUSHALL."""
    return keys.get("keys", 0) - keys.get("expires", 0)


def memory(pid: int) -> float:
    """MB of a process: a page that several share is divided among them."""
    return int(re.findall(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)[0]) / 1000


def grown(samples: Sequence[Sample]) -> list[str]:
    """What was larger in the last quarter of the time than in its second one; the first one is for warming up."""
    quarter = len(samples) // 4
    found = []
    for name in samples[0] if quarter else ():
        before, after = (median(one[name] for one in samples[k * quarter : (k + 1) * quarter]) for k in (1, 3))
        if after > RATIO * before and after > before + SLACK[name.partition(", ")[2]]:
            found.append(f"{name} grew from {before:.1f} to {after:.1f}")
    return found


def shown(samples: Sequence[Sample]) -> Iterator[str]:
    yield f"{len(samples)} samples: first, median, largest, last"
    for name in samples[0] if samples else ():
        values = [one[name] for one in samples]
        yield f"  {name}: {values[0]:.1f}, {median(values):.1f}, {max(values):.1f}, {values[-1]:.1f}"


def leftovers(stage: Stage) -> Counter[str]:
    """Counts the keys in Redis by their shape; those that never expire end with `, stays`. Not so the jobs of killed workers
    for which RQ's next maintenance looks, every ten minutes.
    """
    with stage.redis() as redis:
        begun = {
            b"rq:job:" + one.split(b":")[0] for key in redis.scan_iter("rq:wip:*") for one in redis.zrange(key, 0, -1)
        }
        return Counter(
            re.sub(r"^(rq:[a-z-]+:|ticker:[a-z-]+:).*", r"\1*", key.decode("utf-8", "replace"))
            + (", stays" if redis.ttl(key) == -1 and key not in begun else "")
            for key in redis.scan_iter(count=1000)
        )


def forgotten(keys: Counter[str]) -> list[str]:
    return [
        f"{keys[f'{name}, stays']} keys {name} never expire" for name in sorted(FORGOTTEN) if keys[f"{name}, stays"]
    ]
