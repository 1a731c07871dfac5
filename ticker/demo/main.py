"""`ticker demo`: a small application and its mail, on real servers, polled for half a minute. Then it checks itself."""

import re
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from rich.console import Console

from ticker import embedded, settings
from ticker.db import connections
from ticker.demo import chart, verdict
from ticker.demo.evidence import Check
from ticker.demo.live import Show
from ticker.demo.post import Post
from ticker.demo.processes import Processes, ProcessFailed, procfile
from ticker.demo.scene import Scene
from ticker.demo.stage import Interrupted, Interruption, prepared, signals, workers_on
from ticker.schedules.duration import words

INTERRUPTED = 130
ROWS_AT_MOST = 12
LINES_AT_MOST = 5
LAST_ACT = 5.0  # seconds that the last polls, the end of the workers and the verdict usually take


def demo(seconds: float = 30, keep: bool = False, web: bool = False) -> int:
    """Plays for about `seconds`, start-up included, or until all was seen; with `keep`, goes on until Ctrl-C.

    `web`: with the page beside it.

    0: everything was as promised. 1: something was not, and is named. 130: interrupted before that was known.
    """
    ends_at = time.monotonic() + seconds - LAST_ACT
    show = Show(Console())
    with signals() as interruption:
        try:
            return play(ends_at, keep, web, show, interruption)
        except Interrupted:
            show.say("interrupted; everything is stopped and removed")
            return INTERRUPTED


def play(ends_at: float, keep: bool, web: bool, show: Show, interruption: Interruption) -> int:
    """Sets the stage, and takes it down again, whatever happens in between."""
    with ExitStack() as stage:
        folder = Path(stage.enter_context(tempfile.TemporaryDirectory(prefix="ticker-demo-")))
        show.say("starting PostgreSQL, Valkey, a POP3 server, and the Procfile: a ticker and two workers")
        environ = stage.enter_context(prepared(stage.enter_context(embedded.servers_or_given()).environ))
        post = Post(folder)
        mail_server, processes = (stage.enter_context(Processes(folder)) for _ in range(2))
        try:
            start(mail_server, processes, post, interruption)
            page = open_page(processes, interruption) if web else ""
            if page:
                show.say(f"the page: {page}")
            database = stage.enter_context(connections.connect(settings.from_environment().require_database()))
            scene = Scene(database, post, processes, show, interruption)
            good = perform(scene, ends_at, None if keep else processes.stop, show)
            if not good:
                show.say(processes.tails())
            if keep:
                invite(environ, show, page)
                with suppress(Interrupted), show:
                    scene.go_on()
        except ProcessFailed as failure:
            show.say(f"{failure}\n{processes.tails()}")
            return 1
    return 0 if good else 1


def perform(scene: Scene, ends_at: float, stop: Callable[[], None] | None, show: Show) -> bool:
    """The play, and what is to be said of it; whether all was as promised."""
    with show:
        scene.play(ends_at)
        scene.fetch_the_rest()
        if stop:
            stop()
        scene.look()
    checks = verdict.checks(scene.evidence())
    report(scene, checks, show)
    return all(check.ok for check in checks)


def start(mail_server: Processes, processes: Processes, post: Post, interruption: Interruption) -> None:
    """The POP3 server, and the Procfile as honcho starts it, with a second worker; returns when they are ready."""
    mail_server.start("pop3", post.server)
    lines = procfile()
    for name, line in (("ticker", "ticker"), ("worker-1", "worker"), ("worker-2", "worker")):
        processes.start(name, lines[line])
    while not post.open or workers_on("polling") < 2:
        mail_server.check()
        processes.check()
        interruption.pause(0.05)


def open_page(processes: Processes, interruption: Interruption) -> str:
    """Its address, once it is served: on a port that was free."""
    processes.start("web", "ticker web --port 0")
    while not (address := re.search(r"http://\S+", processes.log("web"))):
        processes.check()
        interruption.pause(0.05)
    return address[0]


def report(scene: Scene, checks: Sequence[Check], show: Show) -> None:
    """Charts, summary, verdict."""
    watch = scene.watch
    charts = {"a late first run": scene.reports["support"], "a full mailbox": scene.polls["archive"]}
    for title, task in charts.items():
        rows = chart.history(task, watch.pushes, watch.runs)[:ROWS_AT_MOST]
        show.say(f"\n{title}: {task.name} of {task.subject}, every {words(task.every_ms)}\n")
        show.say("\n".join(chart.table(rows, scene.zero)))
    for why in scene.evidence().whys.values():
        show.say(f"\n$ ticker why {why.task_id}\n")
        show.say("\n".join(map(str, why.lines[:LINES_AT_MOST])))
    show.say("\nall tasks\n")
    show.say("\n".join(chart.lanes(watch.tasks.values(), watch.pushes, watch.runs, scene.zero, scene.now())))
    show.say("\n".join(["", *verdict.summary(watch.runs), "", *map(str, checks)]))


def invite(environ: Mapping[str, str], show: Show, page: str) -> None:
    """How to look in from another terminal; what the user has set, passwords and all, is not repeated."""
    names = " ".join(f"{name}={shlex.quote(value)}" for name, value in environ.items())
    where = f"the page is at {page}\n" if page else ""
    show.say(f"\n{where}everything goes on until Ctrl-C; in another terminal:\n\nexport {names}\nticker list\n")
