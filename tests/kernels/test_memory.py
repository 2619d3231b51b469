"""No primitive needs memory that grows with the number of rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_cases import python

MEMORY = """
import re, numpy as np
from fedro import kernels
def anonymous():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
shape, kind = (16, @COLUMNS@), "@KIND@"
x = np.memmap("@FILE@", np.float16 if kind == "half" else np.float32, "r", shape=shape)
x = x.reshape(shape[::-1]).T if kind == "transposed" else x
small = np.ones((16, 9000), x.dtype)
mixing = np.stack([np.roll(np.arange(16), k)[:9] for k in range(16)])
def run(x):
    out = []
    for call in (
        lambda: kernels.distances(x, backend="@BACKEND@"),
        lambda: kernels.facts(x, backend="@BACKEND@"),
        lambda: kernels.band(x, 5, 11, mixing=mixing, backend="@BACKEND@"),
        lambda: kernels.band(x, nearest=9, backend="@BACKEND@"),
        lambda: kernels.combine(x, np.ones(16), backend="@BACKEND@"),
        lambda: kernels.blend(x, np.ones(16), plus=(1.0, x[0]), backend="@BACKEND@"),
        lambda: kernels.moments(x, backend="@BACKEND@"),
        lambda: kernels.geometry(x, backend="@BACKEND@"),
    ):
        call()
        out.append(anonymous())
    return max(out)
before = run(small)
print(run(x) - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("kind", ["single", "half", "transposed"])
def test_memory_stays_small(kind: str, tmp_path: Path) -> None:
    """The matrix has 64 MB (32 in half precision), the results 4, the copies of tiles a few."""
    assert anonymous(tmp_path, kind, "numba", 1_000_000) < 28


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.slow
def test_memory_of_torch_operations_does_not_grow(tmp_path: Path) -> None:
    """Torch and its allocator keep some tens of MB; a copy in float64 would take 256."""
    assert anonymous(tmp_path, "single", "torch", 2_000_000) < 100


def anonymous(folder: Path, kind: str, backend: str, columns: int) -> float:
    """The largest growth of anonymous memory, in MB."""
    file, code = folder / "updates", MEMORY
    with file.open("wb") as stream:
        stream.truncate(16 * columns * 4)
    values = {"KIND": kind, "FILE": str(file), "BACKEND": backend, "COLUMNS": str(columns)}
    for name, value in values.items():
        code = code.replace(f"@{name}@", value)
    return float(python(code))
