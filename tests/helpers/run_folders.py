"""A small run folder for the tests of fedro.runs."""

import math
from pathlib import Path
from typing import Any

from fedro.runs import RunFolder

CONFIG = {"rounds": 4, "rule": "nnm | krum", "target": None, "lr": [(0, 0.1)], "tau": math.inf}
FINGERPRINT = {"torch": "2.13.0", "device": "cpu", "threads": 2}


def create(path: Path) -> RunFolder:
    """Begin a run."""
    return RunFolder.create(path, config=CONFIG, fingerprint=FINGERPRINT)


def resume(path: Path, **changes: Any) -> RunFolder:
    """Resume the run, with another configuration or fingerprint."""
    given = {"config": CONFIG, "fingerprint": FINGERPRINT, **changes}
    return RunFolder.resume(path, **given)
