"""No rule copies the matrix: its extra memory is tiles, a few vectors and n² numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from memory import peak_extra
from rule_cases import EVERY, make

N, B, D = 15, 3, 600_000
MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    x = np.random.default_rng(0).standard_normal((N, D), dtype=np.float32)
    path = tmp_path_factory.mktemp("memory") / "updates.bin"
    x.tofile(path)
    tensor = torch.from_numpy(x)
    wide = np.zeros((N, 2 * D), dtype=np.float32)
    wide[:, ::2] = x
    return {
        "tensor": tensor,
        "bfloat16": tensor.bfloat16(),
        "float16": tensor.half(),
        "float64": tensor.double(),
        "array": x,
        "memmap": np.memmap(path, dtype=np.float32, mode="r", shape=(N, D)),
        "every other column": wide[:, ::2],
        "columns first": np.asfortranarray(x),
    }


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("text", EVERY)
def test_extra_memory(text: str, kinds: dict[str, Any]) -> None:
    rule = make(text, B)
    wants = any(entry.reference != "no" for entry in rule.entries)
    for kind, x in kinds.items():
        ones = torch.ones(D) if isinstance(x, torch.Tensor) else np.ones(D, dtype=np.float32)
        call = {"reference": ones} if wants else {}
        rule(x, **call)  # compiled and warm
        extra = peak_extra(lambda x=x, call=call: rule(x, **call))
        copy = N * D * (8 if kind == "float64" else 4)  # of the matrix; a few vectors are a third
        assert extra < 0.6 * copy, f"{kind}: {extra / MEGABYTE:.1f} MB of {copy / MEGABYTE:.1f}"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_more_data_than_the_memory_used(tmp_path: Path) -> None:
    """A sparse file of 4 GB; benchmarks/memory.py does it with 20."""
    shape = (101, 10_000_000)
    big = np.memmap(tmp_path / "updates.bin", dtype=np.float32, mode="w+", shape=shape)
    big[0, ::100_000] = 1.0
    extra = peak_extra(lambda: make("trimmed_mean", 40)(big))
    assert extra < 300 * MEGABYTE
