"""docs/reference/http.md names what is there, and its examples do what they say."""

import json
import re
import subprocess
from itertools import pairwise

from starlette.testclient import TestClient

from tests.running import ROOT
from tests.web.asking import ALL, API
from ticker.web.api.openapi import PROBLEMS
from ticker.web.site import OF_RUNS, OF_TASKS

TEXT = (ROOT / "docs/reference/http.md").read_text(encoding="utf-8")


def test_the_table_has_every_operation_and_its_parameters() -> None:
    told = set()
    for cell, says in re.findall(r"^\| (`(?:GET|POST|PUT|DELETE).*?) \| (.*) \|$", TEXT, flags=re.MULTILINE):
        methods, paths = re.findall(r"GET|POST|PUT|PATCH|DELETE", cell), re.findall(r"/[\w/{}.-]+", cell)
        whole = [path if path.startswith(paths[0][:5]) else paths[0].rpartition("/")[0] + path for path in paths]
        told |= {(method, path) for method in methods for path in whole}
        for one in ALL:
            if (one.method, one.operation.template) == (methods[0], whole[0]):
                assert one.operation.query.keys() <= set(re.findall(r"`(\w+)`", says)), whole[0]
    assert told == {(one.method, one.operation.template) for one in ALL}


def test_the_examples_are_answered_as_they_say(client: TestClient) -> None:
    [block] = re.findall(r"```sh\n(curl .*?)```", TEXT, flags=re.DOTALL)
    shell = ["bash", "-c", f"curl() {{ printf '%s\\0' \"$@\" ''; }}\n{block}"]
    commands = subprocess.run(shell, check=True, capture_output=True, text=True).stdout.split("\0\0")[:-1]
    statuses = re.findall(r"  # (\d+)$", block, flags=re.MULTILINE)
    for command, status in zip(commands, statuses, strict=True):
        words = command.split("\0")
        [address] = [word for word in words if word.startswith("localhost:8765/")]
        said = dict(pairwise(words))
        method = said.get("-X") or ("POST" if "-d" in said else "GET")
        headers = {"Content-Type": "application/json"} if "-H" in said else {}
        answer = client.request(method, f"http://{address}", content=said.get("-d"), headers=headers)
        assert answer.status_code == int(status), (command, answer.text)


def test_the_statuses_are_those_that_are_told() -> None:
    table = TEXT[TEXT.index("| status | |") : TEXT.index("## Authentication")]
    told = {
        int(status)
        for cell in re.findall(r"^\| ([0-9, ]+) \|", table, flags=re.MULTILINE)
        for status in cell.split(",")
    }
    assert told == {*PROBLEMS, 405}


def test_the_problem_is_one_as_it_is_answered(client: TestClient) -> None:
    [shown] = re.findall(r"```json\n(.*?)```", TEXT, flags=re.DOTALL)
    assert client.post(f"{API}/tasks", json={"function": "poll", "every": "5M"}).json() == json.loads(shown)


def test_what_is_hidden_is_named() -> None:
    [sentence] = re.findall(r"TICKER_HIDE_ARGS=on`\*\*: (.*?) are null", TEXT, flags=re.DOTALL)
    assert set(re.findall(r"`(\w+)`", sentence)) == {*OF_TASKS, *OF_RUNS}
