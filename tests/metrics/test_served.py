"""Metrics as they are scraped: of a real ticker over HTTP, of the page, and by what the documents name."""

import json
import os
import re
import socket
import subprocess
import sys
from itertools import pairwise
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from starlette.testclient import TestClient

import ticker
from tests.factories import a_need
from tests.metrics.scraping import samples
from tests.running import PATIENCE, ROOT, Ticking
from tests.sentences import sentence
from ticker.db import sql
from ticker.metrics.families import BY_NAME, OF_A_PROCESS, OF_THE_DATABASE, Family
from ticker.web import application

DOCS = ROOT / "docs"
NAMED = re.compile(r"\bticker_[a-z_]+")
NO_LIBRARY = "import sys; sys.modules['prometheus_client'] = None; from ticker.cli import main; main(sys.argv[1:])"


class Serving(Ticking):
    """A `ticker run` that serves its metrics at any free port."""

    @property
    def url(self) -> str:
        self.says(pattern := r"metrics at (\S+)")
        return re.search(pattern, "".join(self.lines))[1]

    def scrape(self, **headers: str) -> str:
        with urlopen(Request(self.url, headers=headers), timeout=PATIENCE) as answer:
            return answer.read().decode()


@pytest.fixture
def served(environ, db):
    """A ticker with a task that waits, a limit, and a function that a worker has announced."""
    sql.on(db, "ticker")(
        "announce", names=["poll"], batches=[1], concurrencies=[1], repeatables=[False], queues=["polling"]
    )
    ticker.register(db, "poll", every="1d", owner="mail_channels:4711")
    ticker.limit(db, "imap.*", concurrency=1, rate="1/1s")
    a_need(db)
    with Serving("--metrics-port", "0") as found:
        found.says("tick due=0")
        yield found


def names(text):
    """Of all samples, with `_bucket`, `_count` and `_sum` of histograms, and of the histograms themselves."""
    found = {name.partition("{")[0] for name in samples(text)}
    return found | {name for name in BY_NAME if f"{name}_bucket" in found}


def command(*words, **environ):
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=os.environ | environ, capture_output=True, text=True, timeout=PATIENCE
    )


# ------------------------------------------------------------------------------------------------------ a real ticker


@pytest.mark.slow
def test_a_scrape_has_every_metric_that_there_is_and_every_one_that_a_document_names(served):
    found = names(served.scrape())
    assert set(BY_NAME) <= found
    for document in ("operations/alerts.yml", "operations/grafana.json", "reference/metrics.md"):
        named = set(NAMED.findall((DOCS / document).read_text(encoding="utf-8")))
        assert named - {"ticker_tick_"} <= found, document
        assert named


@pytest.mark.slow
def test_a_scrape_tells_functions_and_queues_and_never_an_owner_a_task_or_a_host(served):
    text = served.scrape()
    labels = set(re.findall(r'[{,]([a-z_]+)="', text))
    assert labels == {"function", "queue", "limit", "outcome", "reason", "le"}
    assert "mail_channels" not in text and socket.gethostname() not in text
    assert not [name for name in samples(text) if "4711" in name]  # a value may hold these digits by chance


@pytest.mark.slow
def test_the_ticks_and_the_push_of_this_process_are_in_it(served):
    found = samples(served.scrape())
    assert found["ticker_tick_due_total"] == found["ticker_tick_enqueued_total"] == 1
    assert found['ticker_push_delay_seconds_count{function="poll"}'] == 1
    assert found["ticker_tick_duration_seconds_count"] >= 2
    assert found["ticker_tickers_alive"] == found['ticker_queue_unattended_jobs{queue="polling"}'] == 1
    assert found["ticker_tick_last_timestamp_seconds"] >= found["ticker_last_tick_timestamp_seconds"] - 1


@pytest.mark.slow
def test_every_histogram_rises_to_its_count(served):
    found = samples(served.scrape())
    for family in (family for family in BY_NAME.values() if family.bounds):
        rows = [(name, value) for name, value in found.items() if name.startswith(f"{family.name}_bucket")]
        assert len(rows) == len(family.bounds) + 1
        assert all(a <= b for (_, a), (_, b) in pairwise(rows))
        assert (
            rows[-1][1]
            == found[rows[-1][0].replace("_bucket", "_count").replace(',le="+Inf"', "").replace('{le="+Inf"}', "")]
        )


@pytest.mark.slow
def test_openmetrics_is_spoken_with_whoever_asks_for_it(served):
    text = served.scrape(Accept="application/openmetrics-text; version=1.0.0")
    assert {family.name for family in openmetrics(text)} == {name.removesuffix("_total") for name in BY_NAME}


@pytest.mark.slow
def test_nothing_else_is_served(served):
    for path in ("/", "/metrics/..", "/healthz"):
        with pytest.raises(HTTPError, match="only /metrics is served here"):
            urlopen(served.url.removesuffix("/metrics") + path, timeout=PATIENCE)


@pytest.mark.slow
def test_it_stops_at_once_whoever_holds_a_connection(served):
    host, port = re.search(r"//(.+):(\d+)/", served.url).groups()
    with socket.create_connection((host, int(port))):
        assert served.stop() == 0
    assert host == "127.0.0.1"


# --------------------------------------------------------------------------------------------------- the command line


@pytest.mark.slow
def test_a_port_that_is_taken_is_one_sentence(environ):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = command("-m", "ticker", "run", "--metrics-port", str(port))
    assert (found.returncode, found.stderr) == (
        78, sentence("cli.error_port_taken", option="--metrics-port", port=port, host="127.0.0.1", error="Address already in use")
    )  # fmt: skip


@pytest.mark.slow
def test_an_address_without_a_port_is_refused(environ):
    found = command("-m", "ticker", "run", "--metrics-host", "0.0.0.0")
    assert found.returncode == 2
    assert found.stderr == sentence(
        "cli.error_host_without_port", option="--metrics-host", host="'0.0.0.0'", remedy="--metrics-port"
    )


@pytest.mark.slow
def test_without_the_library_the_option_says_how_to_install_it(environ):
    found = command("-c", NO_LIBRARY, "run", "--metrics-port", "0")
    assert (found.returncode, found.stderr) == (
        78, sentence("cli.error_metrics_need", library="prometheus-client", remedy="pip install \"rq-ticker[metrics]\"")
    )  # fmt: skip


@pytest.mark.slow
def test_without_the_option_the_library_is_not_loaded():
    program = "import sys, ticker.cli.run, ticker.daemon.loop, ticker.web; print('prometheus_client' in sys.modules)"
    assert command("-c", program).stdout == "False\n"


# ------------------------------------------------------------------------------------------------------------ the page


def test_the_page_has_what_the_servers_tell(environ, db):
    sql.on(db, "ticker")(
        "announce", names=["poll"], batches=[1], concurrencies=[1], repeatables=[False], queues=["polling"]
    )
    ticker.register(db, "poll", every="1d")
    ticker.limit(db, "imap.*", concurrency=1, rate="1/1s")
    db.execute("UPDATE ticker.tasks SET waiting = ARRAY[clock_timestamp()]")
    db.execute(
        "INSERT INTO ticker.tickers (id, pid, started_at, last_tick_at, last_report)"
        " VALUES (gen_random_uuid(), 1, now(), now(), '{\"crews\": []}')"
    )
    a_need(db)
    with TestClient(application(trusted=True), base_url="http://localhost") as client:
        answer = client.get("/metrics")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain; version=")
    found = names(answer.text)
    assert {family.name for family in OF_THE_DATABASE} <= found
    assert found.isdisjoint(family.name for family in OF_A_PROCESS)


def test_the_page_shows_them_to_nobody_without_its_token(environ):
    with TestClient(application(tokens=["a token of 24 characters"]), base_url="http://localhost") as client:
        assert client.get("/metrics").status_code == 401
        assert client.get("/metrics", headers={"Authorization": "Bearer a token of 24 characters"}).status_code == 200


# ------------------------------------------------------------------------------------------------------- the documents


def row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {labels}{' ' if labels else ''}| {family.words} |"


def test_the_document_says_of_every_metric_what_the_scrape_says():
    lines = (DOCS / "reference/metrics.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("| `ticker_")] == [
        row(f) for f in (*OF_A_PROCESS, *OF_THE_DATABASE)
    ]


def test_every_alert_says_what_to_do():
    [group] = yaml.safe_load((DOCS / "operations/alerts.yml").read_text(encoding="utf-8"))["groups"]
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"])
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}


def test_what_every_ticker_says_is_never_added_up():
    """Of the counts of the tables, one ticker's are taken: a sum over tickers would count each run several times."""
    rules = yaml.safe_load((DOCS / "operations/alerts.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    panels = json.loads((DOCS / "operations/grafana.json").read_text(encoding="utf-8"))["panels"]
    expressions = [rule["expr"] for rule in rules]
    expressions += [target["expr"] for panel in panels for target in panel.get("targets", ())]
    shared = {family.name for family in OF_THE_DATABASE}
    innermost = re.compile(
        r"(sum|max|min|avg)(?: by \([a-z, ]+\))? \(?(?:\(?(?:rate|increase|deriv)\()?(ticker_[a-z_]+)"
    )
    for expression in expressions:
        for aggregation, name in innermost.findall(expression.replace("max(", "max (").replace("sum(", "sum (")):
            is_shared = re.sub("_(bucket|count|sum)$", "", name) in shared
            assert aggregation == ("max" if is_shared else "sum"), expression


def test_the_dashboard_can_be_imported():
    dashboard = json.loads((DOCS / "operations/grafana.json").read_text(encoding="utf-8"))
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert dashboard["schemaVersion"] >= 36 and len(ids) == len(set(ids))
    assert all(panel["datasource"]["uid"] == "${datasource}" and panel["targets"] for panel in panels)
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
