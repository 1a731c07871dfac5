"""Plays the manifests of docs/guides/recipes/kubernetes.md with real processes, as a kubelet would."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import yaml

from tests.documents.recipes import files, process
from tests.running import ROOT, free_port, until
from wrappers.sandbox.subreaper import children

METRICS = ROOT / "docs/reference/metrics.md"  # a test compares it with what is served
GRACE = 30  # seconds: the default of terminationGracePeriodSeconds
UNITS = {"Mi": 1024}  # kB
POLLS = """
from wrappers import task

@task("mail.fetch")
def fetch(channel_id: int) -> None: ...
"""
READ_ONLY = 'mount --bind /tmp /tmp && mount -o remount,bind,ro / && exec "$@"'
"""What a container has with readOnlyRootFilesystem, and with an emptyDir at /tmp."""


def manifests() -> Iterator[Any]:
    for text in files("kubernetes").values():
        yield from yaml.safe_load_all(text)


DEPLOYMENTS = {one["metadata"]["name"]: one["spec"] for one in manifests() if one["kind"] == "Deployment"}


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


def play(name: str, folder: Path, environ: dict[str, str], *wrapper: str) -> None:
    pod = DEPLOYMENTS[name]["template"]["spec"]
    [container] = pod["containers"]
    command, ports = [str(part) for part in container["command"]], {}
    for place, part in enumerate(command):
        if part.endswith("-port") or part == "--port":
            ports[int(command[place + 1])] = free_port()
            command[place + 1] = str(ports[int(command[place + 1])])
    (folder / "myapp").mkdir()
    (folder / "myapp" / "polls.py").write_text(POLLS)
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
    play(name, tmp_path, environ, "unshare", "--mount", "sh", "-c", READ_ONLY, "sh")


def test_selectors_users_and_the_query_of_the_scaler_fit() -> None:
    for spec in DEPLOYMENTS.values():
        pod = spec["template"]
        assert spec["selector"]["matchLabels"] == pod["metadata"]["labels"]
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
        assert all(one["securityContext"]["readOnlyRootFilesystem"] for one in pod["spec"]["containers"])
    [scaler] = [one["spec"] for one in manifests() if one["kind"] == "ScaledObject"]
    assert scaler["scaleTargetRef"]["name"] in DEPLOYMENTS
    [metric] = re.findall(r"ticker_\w+", scaler["triggers"][0]["metadata"]["query"])
    assert f"`{metric}`" in METRICS.read_text(encoding="utf-8")
