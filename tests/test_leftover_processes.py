"""A test session that leaves processes behind fails, names them and kills them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # its tests train models or start processes

TESTS = Path(__file__).parent
CLEAN = """
import subprocess
def test_clean():
    subprocess.run(["true"], check=True)
"""
LEAVES = """
import subprocess
def test_leaves_a_process_behind():
    subprocess.run("sleep 617 & echo $! > pid", shell=True, check=True)  # its parent ends
"""


def run_pytest(folder, source, *options):
    (folder / "test_inner.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\n")
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS / 'helpers'}"}
    quick = "import leftover_processes, pytest, sys; leftover_processes.SECONDS_TO_END = 0.5; "
    command = [sys.executable, "-c", quick + "sys.exit(pytest.main())", "-p", "conftest", *options]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["-n", "1"]], ids=["alone", "xdist"])
def test_a_session_that_leaves_a_process_behind_fails(tmp_path, options):
    leaves = run_pytest(tmp_path, LEAVES, *options)
    assert leaves.returncode == 1, leaves.stdout + leaves.stderr
    pid = (tmp_path / "pid").read_text().strip()
    assert f"{pid} (killed): sleep 617" in leaves.stdout
    assert "1 passed" in leaves.stdout
    state = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True).stdout
    assert state.strip()[:1] in ("", "Z")


def test_a_session_that_leaves_nothing_behind_passes(tmp_path):
    clean = run_pytest(tmp_path, CLEAN)
    assert clean.returncode == 0, clean.stdout + clean.stderr
