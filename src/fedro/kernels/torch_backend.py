"""The torch back end: for other devices, for small inputs, and where Numba does not work.

It computes in float64, over chunks of columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .backends import Array, Doubles, Indices, Mask, Progress
from .matrix import Matrix

CPU_CHUNK = 1 << 17  # numbers in a chunk on the CPU: it stays in the cache
DEVICE_CHUNK = 1 << 24  # on other devices: enough to keep them busy


def distances(
    x: Matrix, rows: Indices, initial: Doubles, progress: Progress
) -> tuple[Doubles, Mask]:
    """Squared distances from differences, added to `initial`."""
    total, finite = torch.from_numpy(np.triu(initial, 1)), torch.ones(rows.size, dtype=torch.bool)
    for _, chunk in _chunks(x, rows, progress):
        finite &= chunk.isfinite().all(1).cpu()
        wide = chunk.double()
        for i in range(rows.size - 1):
            total[i, i + 1 :] += _row_sums((wide[i + 1 :] - wide[i]).square())
    total = total + total.T
    total[~finite] = total[:, ~finite] = torch.inf
    return total.fill_diagonal_(0.0).numpy(), finite.numpy()


def facts(
    x: Matrix, rows: Indices, reference: Array, initial: Doubles, progress: Progress
) -> tuple[Doubles, Mask]:
    """(m, 3): ‖x_i‖², x_i·r and ‖x_i − r‖², added to `initial`."""
    total, finite = torch.from_numpy(initial.copy()), torch.ones(rows.size, dtype=torch.bool)
    for part, chunk in _chunks(x, rows, progress):
        finite &= chunk.isfinite().all(1).cpu()
        wide = chunk.double()
        squared = _row_sums(wide.square())
        parts = (squared, torch.zeros_like(squared), squared)
        if reference[part].any():
            r = torch.from_numpy(reference[part].astype(np.float64)).to(chunk.device)
            parts = (squared, _row_sums(wide * r), _row_sums((wide - r).square()))
        total += torch.stack(parts, 1)
    return total.numpy(), finite.numpy()


def combine(x: Matrix, rows: Indices, weights: Doubles, progress: Progress) -> tuple[Any, Mask]:
    """Σ w_i·x_i: products first, then the sum."""
    out, finite = _vector(x), torch.ones(rows.size, dtype=torch.bool)
    for part, chunk in _chunks(x, rows, progress):
        finite &= chunk.isfinite().all(1).cpu()
        w = torch.from_numpy(weights).to(chunk.device)
        out[part] = (chunk.double() * w[:, None]).sum(0).to(chunk.dtype)
    return x.like(out), finite.numpy()


def blend(
    x: Matrix,
    rows: Indices,
    weights: Doubles,
    share: float,
    base: Array | None,
    reference: Array | None,
    progress: Progress,
) -> tuple[Any, float, Doubles, Mask]:
    """Σ w_i·x_i + share·base, its product with the reference, and the rows'."""
    out, finite = _vector(x), torch.ones(rows.size, dtype=torch.bool)
    dots = torch.zeros(rows.size + 1, dtype=torch.float64)
    for part, chunk in _chunks(x, rows, progress):
        finite &= chunk.isfinite().all(1).cpu()
        wide, w = chunk.double(), torch.from_numpy(weights).to(chunk.device)
        near, far = (
            None if v is None else torch.from_numpy(v[part].astype(np.float64)).to(chunk.device)
            for v in (base, reference)
        )
        total = (wide * w[:, None]).sum(0)
        total = total if near is None else total + share * near
        out[part] = total.to(chunk.dtype)
        far = total if far is None else far
        dots += _row_sums(torch.cat([wide, total[None]]) * far)
    return x.like(out), float(dots[-1]), dots[:-1].numpy(), finite.numpy()


def moments(x: Matrix, rows: Indices, progress: Progress) -> tuple[Any, Any, Mask]:
    """Mean and standard deviation (1/n) of each column: products first, then the sums."""
    mean, std, finite = _vector(x), _vector(x), torch.ones(rows.size, dtype=torch.bool)
    share = 1 / rows.size
    for part, chunk in _chunks(x, rows, progress):
        finite &= chunk.isfinite().all(1).cpu()
        wide = chunk.double()
        center = (wide * share).sum(0)
        mean[part] = center.to(chunk.dtype)
        std[part] = ((wide - center).square() * share).sum(0).sqrt().to(chunk.dtype)
    return x.like(mean), x.like(std), finite.numpy()


def geometry(x: Matrix, rows: Indices, progress: Progress) -> tuple[Any, Any, Mask, None]:
    """Moments; the caller computes the distances in further passes."""
    return *moments(x, rows, progress), None


def band(
    x: Matrix,
    rows: Indices,
    low: int,
    high: int,
    nearest: int,
    mixing: list[Indices] | Doubles | None,
    scale: Doubles,
    progress: Progress,
) -> tuple[Any, Mask]:
    """Mean of order statistics low..high-1 of the mixed rows, or of the nearest to the median."""
    out, finite = _vector(x), torch.ones(rows.size, dtype=torch.bool)
    dense = _means(mixing, rows.size) if isinstance(mixing, list) else mixing
    for part, chunk in _chunks(x, rows, progress):
        finite &= chunk.isfinite().all(1).cpu()
        values = chunk * torch.from_numpy(scale).to(chunk)[:, None]
        if dense is not None:
            matrix = torch.from_numpy(dense).to(chunk.device)
            values = (matrix @ values.double()).to(chunk.dtype)
        values = _sorted(values)
        values = _nearest(values, nearest) if nearest else values[low:high]
        out[part] = (values.double() / len(values)).sum(0).to(chunk.dtype)
    return x.like(out), finite.numpy()


def _row_sums(values: Tensor) -> Tensor:
    """The sum of each row. In NumPy, since torch's result depends on the number of threads."""
    if values.device.type != "cpu":
        return values.sum(1).cpu()
    with np.errstate(all="ignore"):  # the caller drops rows that are not finite
        return torch.from_numpy(values.numpy().sum(axis=1))


def _sorted(values: Tensor) -> Tensor:
    """Sort each column; on the CPU NumPy is several times faster."""
    if values.device.type == "cpu":
        return torch.from_numpy(np.sort(values.numpy(), axis=0))
    return values.sort(0).values


def _chunks(x: Matrix, rows: Indices, progress: Progress) -> Iterator[tuple[slice, Tensor]]:
    """Copies of the rows, some columns at a time, in the working type and on the input's device."""
    numbers = CPU_CHUNK if x.on_cpu else DEVICE_CHUNK
    size = max(numbers // max(rows.size, 1), 1)
    for start in range(0, x.shape[1], size):
        stop = min(start + size, x.shape[1])
        yield slice(start, stop), _chunk(x, rows, start, stop)
        if progress is not None:
            progress(stop, x.shape[1])


def _chunk(x: Matrix, rows: Indices, start: int, stop: int) -> Tensor:
    if not x.is_torch:
        return torch.from_numpy(x.read(rows, start, stop))
    index: Any = torch.from_numpy(rows).to(x.source.device)
    part: Tensor = x.source[:, start:stop][index]
    return part.to(_type(x))


def _vector(x: Matrix) -> Tensor:
    """Memory for the whole result: keeping its parts in a list would fragment the heap."""
    return torch.empty(x.shape[1], dtype=_type(x), device=x.source.device if x.is_torch else "cpu")


def _type(x: Matrix) -> torch.dtype:
    return torch.float64 if x.work == np.float64 else torch.float32


def _means(lists: list[Indices], m: int) -> Doubles:
    """The (n, m) matrix whose row i averages the rows in lists[i]."""
    matrix = np.zeros((len(lists), m))
    for row, part in zip(matrix, lists, strict=True):
        row[part] = 1.0 / len(part)
    return matrix


def _nearest(ordered: Tensor, count: int) -> Tensor:
    """The `count` values nearest to the median: the nearest of each residue class of ranks.

    They are neighbors in sorted order, so each class modulo `count` has exactly one of them.
    """
    n = len(ordered)
    center = 0.5 * ordered[(n - 1) // 2] + 0.5 * ordered[n // 2]
    chosen = ordered[:count].clone()
    for k in range(count, n):
        low, high = chosen[k % count], ordered[k]
        chosen[k % count] = torch.where(center - low > high - center, high, low)
    return chosen
