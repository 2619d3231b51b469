"""Threads, shards and interruptions change no bits."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch

import reference_kernels as reference
from fedro import kernels
from fedro.kernels.parallel import ordered
from kernel_cases import normal, python, results, same


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
    sums = []
    for count in ("1", "2", "5"):
        monkeypatch.setenv("FEDRO_THREADS", count)
        sums.append(
            [
                kernels.distances(x, backend="numba").value,
                *kernels.facts(x, np.ones(x.shape[1]), backend="numba")[:3],
                *kernels.blend(x, np.ones(5), x[0], backend="numba")[1:3],
                kernels.geometry(x, backend="numba").sq,
            ]
        )
    assert same(sums[0], sums[1])
    assert same(sums[0], sums[2])
    wide = np.asarray(x, dtype=np.float64) if kind == "turned" else x.double().numpy()
    np.testing.assert_allclose(sums[0][0], reference.distances(wide), rtol=1e-5)
    np.testing.assert_allclose(sums[0][1], (wide**2).sum(1), rtol=1e-5)


def test_same_bits_whole_or_in_shards() -> None:
    x, cut = normal(13, 100_003), 2 * kernels.GRID
    left, right = x[:, :cut], x[:, cut:]
    first = kernels.distances(left, backend="numba").value
    value = kernels.distances(right, initial=first, backend="numba").value
    assert (value == kernels.distances(x, backend="numba").value).all()
    start = kernels.facts(left, backend="numba")
    assert same(list(kernels.facts(right, initial=start, backend="numba")), list(kernels.facts(x)))
    halves = [kernels.moments(part, backend="numba").std for part in (left, right)]
    assert (np.concatenate(halves) == kernels.moments(x, backend="numba").std).all()
    parts = [kernels.band(part, 4, 9, backend="numba").value for part in (left, right)]
    assert (np.concatenate(parts) == kernels.band(x, 4, 9).value).all()


def test_calls_from_many_threads_at_once() -> None:
    x = normal(13, 100_003)
    expected, others = results(x), []
    workers = [threading.Thread(target=lambda: others.append(results(x))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(others) == 4
    assert all(same(expected, other) for other in others)


def test_progress_reaches_the_end() -> None:
    seen: list[tuple[int, int]] = []
    for backend in ("numba", "torch"):
        kernels.band(normal(5, 20_000), progress=lambda *a: seen.append(a), backend=backend)
        assert seen[-1] == (20_000, 20_000)


FORKED = """
import os, signal, numpy as np
from fedro import kernels
x = np.random.default_rng(0).standard_normal((5, 200_000)).astype(np.float32)
before = kernels.facts(x, backend="numba").squared
child = os.fork()
signal.alarm(60)
if child == 0:
    os._exit(0 if (kernels.facts(x, backend="numba").squared == before).all() else 1)
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
    stops = ordered(task, 40, 10)
    assert next(stops) == 10
    stops.close()  # type: ignore[attr-defined]
    assert running == [50]
    assert list(ordered(task, 45, 10)) == [10, 20, 30, 40, 45]
