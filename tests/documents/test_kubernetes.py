"""Plays the manifests of docs/guides/recipes/kubernetes.md with real processes, as a kubelet would."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import psycopg
import pytest
import yaml

import ticker
from tests.documents.recipes import RECIPES, files, process, run
from tests.running import ROOT, free_port, until
from wrappers.sandbox.subreaper import children

METRICS = ROOT / "docs/reference/metrics.md"  # a test compares it with what is served
GRACE = 30  # seconds: the default of terminationGracePeriodSeconds
UNITS = {"Mi": 1024}  # kB
POLLS = """
from wrappers import task

@task("mail.fetch", every="1m")
def fetch() -> None: ...
"""
EXTRAS = {"binary": "ticker", "web": "web", "metrics": "--metrics-port"}  # and the part of a command that needs it
READ_ONLY = 'mount --bind /tmp /tmp && mount -o remount,bind,ro /tmp && mount -o remount,bind,ro / && exec "$@"'
UNWRITABLE = ("unshare", "--mount", "sh", "-c", READ_ONLY, "sh")
"""Begins a command that runs as with readOnlyRootFilesystem."""


def manifests() -> Iterator[Any]:
    for text in files("kubernetes").values():
        yield from yaml.safe_load_all(text)


DEPLOYMENTS = {one["metadata"]["name"]: one["spec"] for one in manifests() if one["kind"] == "Deployment"}
[JOB] = [one["spec"] for one in manifests() if one["kind"] == "Job"]


def status(address: str) -> int:
    try:
        with urlopen(address, timeout=10) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code
    except OSError:
        return 0


def memory(pid: int) -> int:
    """The largest resident memory that a process and its children had, in kB."""
    return sum(
        int(re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{one}/status").read_text())[0])
        for one in (pid, *children(pid), *(grand for child in children(pid) for grand in children(child)))
    )


def container_of(spec: Any) -> Any:
    [container] = spec["template"]["spec"]["containers"]
    return container


def add_tasks(folder: Path) -> None:
    (folder / "myapp").mkdir()
    (folder / "myapp" / "polls.py").write_text(POLLS)


def play(name: str, folder: Path, environ: dict[str, str], *wrapper: str) -> None:
    pod, container = DEPLOYMENTS[name]["template"]["spec"], container_of(DEPLOYMENTS[name])
    command, ports = [str(part) for part in container["command"]], {}
    for place, part in enumerate(command):
        if part.endswith("-port") or part == "--port":
            ports[int(command[place + 1])] = free_port()
            command[place + 1] = str(ports[int(command[place + 1])])
    add_tasks(folder)
    with process(folder, *wrapper, *command, **environ) as started:
        for probe in ("livenessProbe", "readinessProbe"):
            if asked := container.get(probe, {}).get("httpGet"):
                address = f"http://127.0.0.1:{ports[asked['port']]}{asked['path']}"
                until(lambda address=address: status(address) == 200, f"{probe} of {name}")
        number, unit = re.fullmatch(r"(\d+)(\w+)", container["resources"]["limits"]["memory"]).groups()
        assert memory(started.pid) < int(number) * UNITS[unit]
        started.send_signal(signal.SIGTERM)
        assert started.wait(pod.get("terminationGracePeriodSeconds", GRACE)) == 0, started.stdout.read()


@pytest.mark.slow
@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_deployment_answers_its_probes_stays_within_its_limits_and_ends_in_time(
    name: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    play(name, tmp_path, environ)


@pytest.mark.netns
@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_deployment_needs_no_writable_root(name: str, tmp_path: Path, environ: dict[str, str]) -> None:
    play(name, tmp_path, environ, *UNWRITABLE)


@pytest.mark.parametrize(
    "wrapper", [pytest.param((), marks=pytest.mark.slow), pytest.param(UNWRITABLE, marks=pytest.mark.netns)]
)
def test_the_job_creates_the_tables_and_registers_the_declared_tasks(
    wrapper: tuple[str, ...], tmp_path: Path, environ: dict[str, str], db: psycopg.Connection
) -> None:
    db.execute("DROP SCHEMA ticker CASCADE")
    add_tasks(tmp_path)
    run(tmp_path, *wrapper, *container_of(JOB)["command"], **environ)
    assert [task.name for task in ticker.list_tasks(db)] == ["mail.fetch"]


def test_the_image_has_the_extras_that_the_commands_need() -> None:
    page = (RECIPES / "kubernetes.md").read_text(encoding="utf-8")
    [named] = re.findall(r"`rq-ticker\[([\w,]+)\]`", page)
    commands = [container_of(spec)["command"] for spec in (JOB, *DEPLOYMENTS.values())]
    needed = {extra for extra, part in EXTRAS.items() if any(part in command for command in commands)}
    assert set(named.split(",")) == needed


def test_selectors_users_and_the_query_of_the_scaler_fit() -> None:
    for spec in DEPLOYMENTS.values():
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    for spec in (JOB, *DEPLOYMENTS.values()):
        assert spec["template"]["spec"]["securityContext"]["runAsNonRoot"]
        assert container_of(spec)["securityContext"]["readOnlyRootFilesystem"]
    [scaler] = [one["spec"] for one in manifests() if one["kind"] == "ScaledObject"]
    assert scaler["scaleTargetRef"]["name"] in DEPLOYMENTS
    [trigger] = [one["metadata"] for one in scaler["triggers"]]
    assert trigger["ignoreNullValues"] == "false"  # a missing number is not 0
    [metric] = re.findall(r"ticker_\w+", trigger["query"])
    assert f"`{metric}`" in METRICS.read_text(encoding="utf-8")
