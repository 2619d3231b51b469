"""Compiled once: for another shape, in another process, without a cache folder."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from fedro.kernels import compiled
from fedro.kernels.compilation import Kernel, announce_if_slow
from kernel_cases import SRC, normal, python, results

pytestmark = pytest.mark.slow  # its tests train models or start processes


def test_another_shape_compiles_nothing() -> None:
    results(normal(26, 20_000))
    all_kernels = [getattr(compiled, name) for name in compiled.__all__]
    before = [len(kernel.dispatcher.overloads) for kernel in all_kernels]
    for n in range(3, 23):
        results(normal(n, 9000 + n))
        results(torch.from_numpy(normal(n, 9000))[::2])
    assert before == [len(kernel.dispatcher.overloads) for kernel in all_kernels]
    assert all(count <= 2 for count in before)


def test_a_long_wait_is_announced(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "fedro")
    with announce_if_slow("thinking", after=0.0):
        threading.Event().wait(0.2)
    assert "thinking" in caplog.text
    with announce_if_slow("nothing", after=9.0):
        pass
    assert "nothing" not in caplog.text


def test_small_inputs_load_no_compiler() -> None:
    python(
        "import sys, numpy as np; from fedro import kernels\n"
        "assert 'numba' not in sys.modules and 'torch' not in sys.modules\n"
        "x = np.ones((20, 100)); kernels.band(x, 2, 5); kernels.distances(x)\n"
        "assert 'numba' not in sys.modules"
    )


NO_CACHE = """
import logging, numba, numpy as np
logging.disable(logging.WARNING)
real = numba.njit
def njit(*arguments, cache=False, **options):
    if cache:
        raise RuntimeError("cannot cache function: no locator available")
    return real(*arguments, **options)
numba.njit = njit
from fedro import kernels
print(kernels.combine(np.ones((3, 9000), np.float32), [1, 1, 1], backend="numba").value[0])
"""


@pytest.mark.slow
def test_without_a_cache_folder() -> None:
    assert python(NO_CACHE).strip() == "3.0"


def test_the_cache_knows_all_sources(tmp_path: Path) -> None:
    shutil.copytree(SRC / "fedro", tmp_path / "fedro", ignore=shutil.ignore_patterns("__pycache__"))
    code = "from fedro.kernels.compiled import band; print(band.dispatcher.__qualname__)"
    names = []
    for _ in range(2):
        names.append(python(code, PYTHONPATH=str(tmp_path)))
        with (tmp_path / "fedro" / "kernels" / "vectors" / "tile.py").open("a") as file:
            file.write("# edited\n")
    assert names[0] == python(code)
    assert names[0] != names[1]


def test_a_full_disk_only_costs_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(lambda x: None, ("T[:]",))

    class Full:
        """A dispatcher whose cache cannot be written."""

        def disable_compile(self, yes: bool) -> None:
            pass

        def compile(self, types: object) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(kernel, "dispatcher", Full())
    assert kernel.prepare(np.dtype("float32"))(np.zeros(3, dtype=np.float32)) is None
    assert kernel.compiled == {"float32"}
