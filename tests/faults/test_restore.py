"""An older copy of the database takes the place of the present one, which is exported first."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.faults import journal, restore
from tests.faults.journal import Journal
from tests.faults.stage import opened

pytestmark = pytest.mark.slow


@pytest.mark.timeout(240)
def test_a_restore_brings_back_the_copy_and_exports_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adopted: list[tuple[str, ...]] = []

    def adopt(_stage: object, *arguments: str) -> "subprocess.CompletedProcess[str]":
        adopted.append(arguments)
        return subprocess.CompletedProcess(arguments, 0, "adopted", "")

    monkeypatch.setattr(restore, "_ticker", adopt)
    tmp_path.chmod(0o755)
    with Journal(tmp_path) as events, opened(tmp_path, events) as stage:
        journal.install_audit(stage.postgres.url)
        add = "INSERT INTO ticker.events (at, task_id, task_name, function, owner_type, owner_id, what) VALUES (now(), %s, '', '', '', '', 'paused')"
        for number in (1, 2):
            with stage.database() as db:
                db.execute(add, [number])
            if number == 1:
                copied = restore.copy_database(stage)
        restore.restore(stage, copied)
        with stage.database() as db:
            left = [task for (task,) in db.execute("SELECT task_id FROM ticker.events")]
    written = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    (restored,) = [line for line in written if line["event"] == "restored"]
    exported = [json.loads(line) for line in (tmp_path / "database-0.jsonl").read_text().splitlines()]
    assert left == [1]
    assert [line["row"]["task_id"] for line in exported if line["event"] == "noted"] == [1, 2]
    assert restored["dumped"] == copied < restored["stopped"] < restored["at"]
    assert adopted == [("db", "adopt", "--resume", "--force")]
    assert stage.edits.restores == 1
