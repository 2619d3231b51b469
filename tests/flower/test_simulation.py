"""A whole Flower app over Ray, with bad clients."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedro.record import read

pytest.importorskip("ray")
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@pytest.mark.slow
def test_an_app_with_bad_clients_learns(tmp_path):
    script = Path(__file__).with_name("simulated.py")
    done = subprocess.run(
        [sys.executable, script, tmp_path / "run", "10"],
        env={**os.environ, **QUIET, "FLWR_HOME": str(tmp_path / "flwr")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    found = re.search(r"ERROR (\S+) LOSS (\S+)", done.stdout)
    assert found is not None, done.stdout[-3000:] + done.stderr[-3000:]
    assert float(found[1]) < 0.03
    assert float(found[2]) < 0.001  # and not the liar's
    run = read(tmp_path / "run")
    assert run.finished
    assert [line["void"] for line in run.rounds] == [None] * 10
    rejected = [line["rejected"] for line in run.rounds]
    missing = [line["missing"] for line in run.rounds]
    assert any(rejected)
    assert {reason for lost in rejected for reason in lost.values()} == {"holds NaN or Inf"}
    assert all("no data" in reason for lost in missing for reason in lost.values())
    assert len({client for lost in (*rejected, *missing) for client in lost}) == 2
