"""Inputs, calls of every primitive, and a Python process, for the tests of the kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fedro import kernels

SRC = Path(__file__).parents[2] / "src"


def normal(n: int, d: int) -> np.ndarray:
    """The same normal numbers in every call."""
    return np.random.default_rng(0).standard_normal((n, d)).astype(np.float32)


def results(x: Any, backend: Any = "numba") -> list[np.ndarray]:
    """The results of every primitive."""
    n = len(x)
    mixing = np.stack([np.roll(np.arange(n), k)[: n // 2 + 1] for k in range(n)])
    return [
        kernels.distances(x, backend=backend).value,
        *kernels.facts(x, np.ones(x.shape[1]), backend=backend)[:3],
        kernels.combine(x, np.linspace(0, 1, n), backend=backend).value,
        *kernels.blend(x, np.linspace(0, 1, n), backend=backend)[:3],
        *kernels.blend(x, np.ones(n), x[0], plus=(0.5, x[1]), backend=backend)[:3],
        *kernels.moments(x, backend=backend)[:2],
        *kernels.geometry(x, backend=backend)[:3],
        kernels.band(x, n // 3, n - n // 3, backend=backend).value,
        kernels.band(x, n // 3, n - n // 3, mixing=mixing, backend=backend).value,
        kernels.band(x, nearest=n // 2, backend=backend).value,
    ]


def same(left: list[np.ndarray], right: list[np.ndarray]) -> bool:
    """Whether all arrays are equal."""
    return all(np.all(a == b) for a, b in zip(left, right, strict=True))


def python(code: str, **environment: str) -> str:
    """What a new Python process prints, in which warnings are errors."""
    path = {"PYTHONPATH": str(SRC)}
    command = [sys.executable, "-W", "error", "-c", code]
    process = subprocess.run(
        command,
        env={**os.environ, **path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout
