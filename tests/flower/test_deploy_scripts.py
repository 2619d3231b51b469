"""`down.sh` without a federation: it stops what is recorded, and never claims what is not so."""

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress

import pytest

from flower_app import APP

pytestmark = pytest.mark.skipif(shutil.which("ps") is None, reason="down.sh needs ps")


class FakeFederation:
    """A copy of the scripts under a long path, and programs that only sleep."""

    def __init__(self, folder):
        self.folder = folder / ("a" * 110) / ("b" * 110)
        shutil.copytree(APP / "deploy", self.folder / "deploy")
        self.federation = self.folder / "federation"
        self.federation.mkdir()
        self.processes = []

    def start(self, program, name, body="sleep 300"):
        path = self.folder / program
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)
        process = subprocess.Popen([path], start_new_session=True)
        self.processes.append(process)
        (self.federation / f"{name}.pid").write_text(f"{process.pid}\n")
        return process

    def down(self):
        return subprocess.run(
            [self.folder / "deploy" / "down.sh", self.federation],
            env={**os.environ, "COLUMNS": "80"},
            capture_output=True,
            text=True,
        )


@pytest.fixture
def federation(tmp_path):
    federation = FakeFederation(tmp_path)
    yield federation
    for process in federation.processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def group_is_alive(group):
    table = subprocess.run(["ps", "-eo", "pgid=,stat="], capture_output=True, text=True).stdout
    rows = [line.split() for line in table.splitlines()]
    return any(int(pgid) == group and not stat.startswith("Z") for pgid, stat in rows)


def test_processes_under_a_long_path_are_stopped(federation):
    process = federation.start("flower-superlink", "superlink")
    done = federation.down()
    assert done.returncode == 0, done.stderr
    assert process.wait(timeout=5) == -signal.SIGTERM
    assert not list(federation.federation.glob("*.pid"))
    assert "have ended" in done.stdout


def test_children_in_groups_of_their_own_are_stopped_too(federation):
    (federation.folder / "child").write_text("#!/bin/bash\necho $$ > child-pid\nsleep 300\n")
    body = f"cd {federation.federation}\nset -m\nbash {federation.folder}/child &\nwait"
    federation.start("flower-superlink", "superlink", body)
    file = federation.federation / "child-pid"
    end = time.monotonic() + 10
    while not (file.exists() and file.read_text().strip()):
        assert time.monotonic() < end
        time.sleep(0.02)
    assert federation.down().returncode == 0
    assert not group_is_alive(int(file.read_text()))


def test_a_recorded_process_that_still_runs_is_an_error(federation):
    """Its number may have been taken by another program, which is not to be killed."""
    process = federation.start("something-else", "node-0")
    done = federation.down()
    assert done.returncode == 1
    assert f"Process {process.pid} of {federation.federation}/node-0.pid is still running" in (
        done.stderr
    )
    assert f"kill -KILL {process.pid}" in done.stderr
    assert "delete node-0.pid" in done.stderr
    assert process.poll() is None
    assert (federation.federation / "node-0.pid").exists()
    assert "have ended" not in done.stdout


def test_a_federation_that_is_down_can_be_taken_down_again(federation):
    (federation.federation / "superlink.pid").write_text("999999999\n")
    assert federation.down().returncode == 0
    assert federation.down().returncode == 0
