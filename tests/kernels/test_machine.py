"""Threads, shards, memory, caches: what the numbers must not depend on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import reference_kernels as reference
from fedro import kernels
from fedro.kernels import compiled, shelf
from fedro.kernels.jit import announced
from fedro.kernels.parallel import ordered

SRC = Path(__file__).parents[2] / "src"


def normal(n: int, d: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, d)).astype(np.float32)


def results(x: Any) -> list[np.ndarray]:
    n = len(x)
    mixing = np.stack([np.roll(np.arange(n), k)[: n // 2 + 1] for k in range(n)])
    return [
        kernels.distances(x, backend="cpu").value,
        *kernels.facts(x, np.ones(x.shape[1]), backend="cpu")[:3],
        kernels.combine(x, np.linspace(0, 1, n), backend="cpu").value,
        *kernels.blend(x, np.linspace(0, 1, n), backend="cpu")[:3],
        *kernels.blend(x, np.ones(n), x[0], plus=(0.5, x[1]), backend="cpu")[:3],
        *kernels.moments(x, backend="cpu")[:2],
        *kernels.geometry(x, backend="cpu")[:3],
        kernels.band(x, n // 3, n - n // 3, backend="cpu").value,
        kernels.band(x, n // 3, n - n // 3, mixing=mixing, backend="cpu").value,
        kernels.band(x, nearest=n // 2, backend="cpu").value,
    ]


def same(left: list[np.ndarray], right: list[np.ndarray]) -> bool:
    return all(np.all(a == b) for a, b in zip(left, right, strict=True))


def test_same_bits_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    x = normal(13, 100_003)
    expected = []
    for count in ("1", "2", "5"):
        monkeypatch.setenv("FEDRO_THREADS", count)
        expected.append(results(x))
    assert same(expected[0], expected[1])
    assert same(expected[0], expected[2])


@pytest.mark.parametrize("kind", ["turned", "bfloat16"])
def test_same_bits_for_copies_of_several_blocks_too(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread takes several blocks of the grid at once, and what is copied in smaller parts."""
    plain = normal(5, 12 * kernels.GRID + 17)
    turned = np.asfortranarray(plain.astype(np.float64) * np.linspace(1, 3e7, plain.shape[1]))
    x = turned if kind == "turned" else torch.from_numpy(plain).bfloat16()
    found = []
    for count in ("1", "2", "5"):
        monkeypatch.setenv("FEDRO_THREADS", count)
        found.append(
            [
                kernels.distances(x, backend="cpu").value,
                *kernels.facts(x, np.ones(x.shape[1]), backend="cpu")[:3],
                *kernels.blend(x, np.ones(5), x[0], backend="cpu")[1:3],
                kernels.geometry(x, backend="cpu").sq,
            ]
        )
    assert same(found[0], found[1])
    assert same(found[0], found[2])
    wide = np.asarray(x, dtype=np.float64) if kind == "turned" else x.double().numpy()
    np.testing.assert_allclose(found[0][0], reference.distances(wide), rtol=1e-5)
    np.testing.assert_allclose(found[0][1], (wide**2).sum(1), rtol=1e-5)


def test_same_bits_whole_or_in_shards() -> None:
    x, cut = normal(13, 100_003), 2 * kernels.GRID
    left, right = x[:, :cut], x[:, cut:]
    first = kernels.distances(left, backend="cpu").value
    value = kernels.distances(right, initial=first, backend="cpu").value
    assert (value == kernels.distances(x, backend="cpu").value).all()
    start = kernels.facts(left, backend="cpu")
    assert same(list(kernels.facts(right, initial=start, backend="cpu")), list(kernels.facts(x)))
    halves = [kernels.moments(part, backend="cpu").std for part in (left, right)]
    assert (np.concatenate(halves) == kernels.moments(x, backend="cpu").std).all()
    parts = [kernels.band(part, 4, 9, backend="cpu").value for part in (left, right)]
    assert (np.concatenate(parts) == kernels.band(x, 4, 9).value).all()


def test_calls_from_many_threads_at_once() -> None:
    x = normal(13, 100_003)
    expected, found = results(x), []
    workers = [threading.Thread(target=lambda: found.append(results(x))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 4
    assert all(same(expected, other) for other in found)


def test_another_shape_compiles_nothing() -> None:
    results(normal(26, 20_000))
    found = [getattr(compiled, name) for name in compiled.__all__]
    before = [len(kernel.dispatcher.overloads) for kernel in found]
    for n in range(3, 23):
        results(normal(n, 9000 + n))
        results(torch.from_numpy(normal(n, 9000))[::2])
    assert before == [len(kernel.dispatcher.overloads) for kernel in found]
    assert all(count <= 2 for count in before)


def test_progress_reaches_the_end() -> None:
    seen: list[tuple[int, int]] = []
    for backend in ("cpu", "generic"):
        kernels.band(normal(5, 20_000), progress=lambda *a: seen.append(a), backend=backend)
        assert seen[-1] == (20_000, 20_000)


def test_a_long_wait_is_announced(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "fedro")
    with announced("thinking", patience=0.0):
        threading.Event().wait(0.2)
    assert "thinking" in caplog.text
    with announced("nothing", patience=9.0):
        pass
    assert "nothing" not in caplog.text


def python(code: str, **environment: str) -> str:
    path = {"PYTHONPATH": str(SRC)}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(
        command,
        env={**os.environ, **path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


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
print(kernels.combine(np.ones((3, 9000), np.float32), [1, 1, 1], backend="cpu").value[0])
"""


@pytest.mark.slow
def test_without_a_cache_folder() -> None:
    assert python(NO_CACHE).strip() == "3.0"


FORKED = """
import os, signal, numpy as np
from fedro import kernels
x = np.random.default_rng(0).standard_normal((5, 200_000)).astype(np.float32)
before = kernels.facts(x, backend="cpu").squared
child = os.fork()
signal.alarm(60)
if child == 0:
    os._exit(0 if (kernels.facts(x, backend="cpu").squared == before).all() else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
def test_helpers_after_a_fork() -> None:
    assert python(FORKED, FEDRO_THREADS="2").strip() == "0"


def test_an_error_in_a_block_is_raised_and_nothing_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDRO_THREADS", "3")
    running = []

    def task(start: int, stop: int) -> int:
        running.append(start)
        time.sleep(0.01)
        if start == 50:
            raise OverflowError("block 5")
        running.remove(start)
        return stop

    with pytest.raises(OverflowError, match="block 5"):
        list(ordered(task, 1000, 10))
    assert running == [50]
    found = ordered(task, 40, 10)
    assert next(found) == 10
    found.close()  # type: ignore[attr-defined]
    assert running == [50]
    assert list(ordered(task, 45, 10)) == [10, 20, 30, 40, 45]


def test_the_cache_knows_all_sources(tmp_path: Path) -> None:
    shutil.copytree(SRC / "fedro", tmp_path / "fedro", ignore=shutil.ignore_patterns("__pycache__"))
    code = "from fedro.kernels.compiled import pairs; print(pairs.dispatcher.__qualname__)"
    names = []
    for _ in range(2):
        names.append(python(code, PYTHONPATH=str(tmp_path)))
        with (tmp_path / "fedro" / "kernels" / "vectors" / "tile.py").open("a") as file:
            file.write("# edited\n")
    assert names[0] == python(code)
    assert names[0] != names[1]


def test_memory_of_a_result_is_used_again_only_when_nobody_has_it() -> None:
    x = torch.from_numpy(normal(5, 300_000))
    weights = np.ones(5)
    first = kernels.combine(x, weights).value
    part, place, expected = first[1000:], first.data_ptr(), first.clone()
    held = first.numpy()[5:]
    del first
    others = [kernels.combine(x, np.zeros(5) + k).value for k in range(3)]
    assert torch.equal(part, expected[1000:])
    assert place not in [other.data_ptr() for other in others]
    del part
    others += [kernels.combine(x, np.zeros(5) + k).value for k in range(3)]
    assert (held == expected.numpy()[5:]).all()
    assert place not in [other.data_ptr() for other in others]
    del held
    assert place in [kernels.combine(x, weights).value.data_ptr() for _ in range(5)]
    array = kernels.combine(x.numpy(), weights).value
    place = array.ctypes.data
    copy, kept = array.copy(), memoryview(array[7:])
    del array
    again = [kernels.combine(x.numpy(), weights).value.ctypes.data for _ in range(5)]
    assert place not in again
    assert (np.asarray(kept) == copy[7:]).all()


def test_the_shelf_keeps_what_was_used_last() -> None:
    for size in (1 << 24, 1 << 20):  # one that fills it, and a smaller one
        part = shelf.empty(size, np.dtype(np.float32))
        place = part.ctypes.data
        del part
    assert shelf.empty(1 << 20, np.dtype(np.float32)).ctypes.data == place


def test_the_shelf_keeps_little() -> None:
    found = [shelf.empty(1 << 22, np.dtype(np.float32)) for _ in range(9)]  # 16 MB each
    assert len({array.ctypes.data for array in found}) == 9
    found.clear()
    assert sum(part.nbytes for part in shelf._shelf) <= shelf.MOST
    small, large = shelf.empty(10, np.dtype(">f4")), shelf.empty(1 << 19, np.dtype(">f4"))
    assert small.dtype == large.dtype == np.dtype(">f4")


def test_room_for_another_vector() -> None:
    for kind in torch.float16, torch.float32, torch.float64:
        vector = torch.ones(400_000, dtype=kind)
        room = kernels.empty_like(vector)
        assert (room.shape, room.dtype, room.device) == (vector.shape, kind, vector.device)
        room.fill_(2.0)
        assert vector.max() == 1


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
    assert anonymous(tmp_path, kind, "cpu", 1_000_000) < 28


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.slow
def test_memory_of_torch_operations_does_not_grow(tmp_path: Path) -> None:
    """Torch and its allocator keep some tens of MB, of a matrix of 256."""
    assert anonymous(tmp_path, "single", "generic", 4_000_000) < 128


def anonymous(folder: Path, kind: str, backend: str, columns: int) -> float:
    """The largest growth of anonymous memory, in MB."""
    file, code = folder / "updates", MEMORY
    with file.open("wb") as stream:
        stream.truncate(16 * columns * 4)
    values = {"KIND": kind, "FILE": str(file), "BACKEND": backend, "COLUMNS": str(columns)}
    for name, value in values.items():
        code = code.replace(f"@{name}@", value)
    return float(python(code))
