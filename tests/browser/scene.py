"""A scene for a browser: owners whose tasks are well, fail, are late, paused, dropped; written by a played ticker."""

from typing import Any

import ticker
from tests.harness import Played

SCRIPT = "<script>document.title='broken in'</script>"


def fill(play: Played, db: Any) -> None:
    """Ten minutes of three mailboxes, the last of which goes on failing, and tasks of other kinds beside them."""
    db.execute(
        "INSERT INTO ticker.functions (name, batch, announced_at) VALUES ('poll', 1, now()), ('mail.fetch', 1, now())"
    )
    good = ticker.register(
        db, "poll", name="support", owner="mail_channels:1", every="1m", subject="support@example.org"
    )
    bad = ticker.register(db, "poll", name="archive", owner="mail_channels:2", every="1m", kwargs={"host": SCRIPT})
    for minute in range(10):
        play.at(60 * minute - 600)
        play.tick()
        for taken in play.take():
            if taken.refusal is None:
                play.at(60 * minute - 597)
                failed = taken.task_id == bad.id and minute > 3
                play.end(
                    taken, "failed" if failed else "succeeded", f"OSError: no route to host {SCRIPT}" if failed else ""
                )
    drop_one(play, good.id)
    ticker.limit(db, "feeds.example.org", concurrency=2, rate="10/1m")
    ticker.register(db, "mail.fetch", name="report", cron="0 9 * * 1-5", zone="Europe/Berlin")
    ticker.register(
        db, "mail.fetch", name="sync", owner="feeds:7", every="5m", first=play.at(3600), limits=["feeds.example.org"]
    )
    paused = ticker.register(db, "mail.fetch", name="quiet", owner="feeds:8", every="5m")
    ticker.pause(db, paused, by="ada", reason="holiday")
    play.at(0)


def drop_one(play: Played, task_id: int) -> None:
    """A job that comes 27 s too early."""
    play.at(-40)
    play.db.execute("UPDATE ticker.tasks SET next_run = %s WHERE id = %s", [play.now, task_id])
    play.tick()
    play.take()
