"""A proxy as a process of its own, for a host that has only its own network.

    python -m tests.faults.proxy --listen tcp:10.0.0.1:0 --server unix:/run/redis --kind redis --record pushes.jsonl

It writes one line of JSON when it listens, {"listening": ["tcp:10.0.0.1:40001"]}, and one for each line that it reads:
{"do": "delay", "seconds": 0.05} is answered by {"done": "delay", "result": null}, or by {"failed": ...} with a reason.
It ends with its standard input.
"""

import argparse
import json
import sys
from typing import Any

from tests.faults.proxy import Proxy

CALLS = frozenset({
    "delay", "cut", "join", "flap", "refuse", "reset", "heal", "swallow_commit", "swallow_answer", "answer_instead",
    "summary",
})  # fmt: skip
BYTES = frozenset({"matching", "error"})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.proxy", description=__doc__)
    parser.add_argument("--listen", action="append", required=True, help="unix:PATH or tcp:ADDRESS:PORT; repeatable")
    parser.add_argument("--server", required=True, help="the same, where the server is")
    parser.add_argument("--kind", choices=["redis", "postgres"], required=True)
    parser.add_argument("--record", help="the file for push events")
    parser.add_argument("--seed", type=int, default=0)
    with Proxy(**vars(parser.parse_args())) as proxy:
        say({"listening": [str(address) for address in proxy.addresses]})
        for line in sys.stdin:
            say(answer_to(proxy, line))


def answer_to(proxy: Proxy, line: str) -> dict[str, Any]:
    try:
        given = json.loads(line)
        name = given.pop("do")
        if name not in CALLS:
            raise ValueError(f"{name!r} is not one of: {', '.join(sorted(CALLS))}")
        arguments = {key: value.encode() if key in BYTES and value else value for key, value in given.items()}
        return {"done": name, "result": getattr(proxy, name)(**arguments)}
    except Exception as error:  # a bad line costs only itself
        return {"failed": f"{type(error).__name__}: {error}"}


def say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
