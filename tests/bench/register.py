"""What it costs to register tasks: `python -m tests.bench register [--tasks N]`.

A PostgreSQL of its own that syncs, and a table of owners with triggers. `register_many` for N owners, twice: the second time
finds nothing to change. Beside it, `register` for a hundredth of them, and plain INSERTs. Prints microseconds a task.
"""

import argparse
import sys
import time
from collections.abc import Callable
from statistics import median

import psycopg

import ticker
from ticker import embedded, migrations, owners

OWNERS = "INSERT INTO mail_channels SELECT n, 'imap' || n %% 50 FROM generate_series(1, %s) n"
LAPS = 3


def items(first: int, count: int) -> list[dict[str, object]]:
    return [
        {"function": "mail.fetch", "every": "1m", "spread": True, "owner": ("mail_channels", str(n)), "subject": f"{n}@example.org",
         "kwargs": {"channel_id": n}} for n in range(first, first + count)
    ]  # fmt: skip


def timed(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench register")
    parser.add_argument("--tasks", type=int, default=100_000)
    chosen = parser.parse_args()
    rows: dict[str, list[float]] = {"register_many": [], "register_many again": [], "register": [], "INSERT": []}
    with embedded.servers(syncs=True) as servers:
        migrations.upgrade(servers.database_url)
        with psycopg.connect(servers.database_url, autocommit=True) as db:
            db.execute("CREATE TABLE mail_channels (id bigint PRIMARY KEY, host text)")
            for statement in owners.triggers("mail_channels", key="id"):
                db.execute(statement)
            db.execute(OWNERS, (chosen.tasks,))
            single = items(1, max(chosen.tasks // 100, 1))
            many = items(1, chosen.tasks)
            for _ in range(LAPS):
                rows["register_many"].append(timed(lambda: ticker.register_many(db, many)) / len(many))
                rows["register_many again"].append(timed(lambda: ticker.register_many(db, many)) / len(many))
                db.execute("TRUNCATE ticker.tasks CASCADE")
                with db.transaction():
                    rows["register"].append(
                        timed(lambda: [ticker.register(db, **item) for item in single]) / len(single)
                    )  # type: ignore[arg-type, misc]
                db.execute("TRUNCATE ticker.tasks CASCADE")
                with db.transaction():
                    rows["INSERT"].append(
                        timed(
                            lambda: [
                                db.execute("INSERT INTO mail_channels VALUES (%s, '')", (-n,))
                                for n in range(1, len(single) + 1)
                            ]
                        )
                        / len(single)
                    )
                db.execute("DELETE FROM mail_channels WHERE id < 0")
    for name, laps in rows.items():
        sys.stdout.write(
            f"{name:20} {1e6 * median(laps):8.1f} us a task ({1e6 * min(laps):.1f} to {1e6 * max(laps):.1f})\n"
        )


if __name__ == "__main__":
    main()
