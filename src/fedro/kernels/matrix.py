"""One interface to every kind of input: torch tensors, NumPy arrays, memory maps, any strides."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from .backends import Array, Indices

Piece = tuple[Array, Indices, int, int]  # matrix, rows, start, stop: a kernel's first arguments

COPIED_COLUMNS = 8192  # copied at a time; a multiple of the width of every tile
FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class Matrix:
    """An (n, d) matrix of updates, read block by block as float32 or float64 and never modified."""

    source: Any  # a torch tensor or a plain ndarray
    shape: tuple[int, int]
    work: np.dtype[Any]  # type to compute in: float64 for float64, else float32
    direct: Array | None  # C-contiguous view without a copy, if there is one

    @property
    def is_torch(self) -> bool:
        """Whether the source is a tensor."""
        return not isinstance(self.source, np.ndarray)

    @property
    def on_cpu(self) -> bool:
        """Whether the source is in main memory."""
        return not self.is_torch or self.source.device.type == "cpu"

    def pieces(self, rows: Indices, start: int, stop: int) -> Iterator[tuple[Piece, slice]]:
        """Arguments for a kernel and the columns they cover: the matrix itself, or copies of parts.

        Both give the same numbers, up to the order in which sums in float64 are added.
        """
        if self.direct is not None:
            yield (self.direct, rows, start, stop), slice(start, stop)
            return
        for left in range(start, stop, COPIED_COLUMNS):
            right = min(left + COPIED_COLUMNS, stop)
            part = self.read(rows, left, right)
            yield (part, np.arange(rows.size), 0, right - left), slice(left, right)

    def read(self, rows: Indices, start: int, stop: int) -> Array:
        """Copy columns start..stop-1 of the rows, converted to the working type."""
        part = self.source[:, start:stop]
        if not self.is_torch:
            return np.ascontiguousarray(part[rows], dtype=self.work)
        torch = sys.modules["torch"]
        picked = part[torch.from_numpy(rows).to(part.device)]
        return picked.to(getattr(torch, self.work.name)).cpu().numpy()  # type: ignore[no-any-return]

    def empty(self) -> Any:
        """Uninitialized memory for a result (d,), of the kind and type of the input."""
        if not self.is_torch:
            return np.empty(self.shape[1], self.source.dtype)
        return sys.modules["torch"].empty(self.shape[1], dtype=self.source.dtype)

    @contextmanager
    def writing(self, result: Any, part: slice) -> Iterator[Array]:
        """Columns of a result to write to: its own memory, or a block that is converted after."""
        plain = result[part].numpy() if self.is_torch and self.direct is not None else None
        if not self.is_torch and result.dtype == self.work:
            plain = result[part]
        block = np.empty(part.stop - part.start, dtype=self.work) if plain is None else plain
        yield block
        if plain is None:
            with np.errstate(over="ignore"):  # a sum may exceed float16: that is Inf
                result[part] = sys.modules["torch"].from_numpy(block) if self.is_torch else block

    def like(self, vector: Any) -> Any:
        """Convert a tensor or array to the kind, type and device of the input."""
        if self.is_torch:
            tensor = sys.modules["torch"].as_tensor(vector)
            return tensor.to(dtype=self.source.dtype, device=self.source.device)
        with np.errstate(over="ignore"):
            return np.asarray(vector).astype(self.source.dtype, copy=False)


def matrix(updates: Any) -> Matrix:
    """Wrap `updates`; raise if it is not a non-empty floating-point matrix."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(updates, torch.Tensor):
        if updates.layout != torch.strided or updates.device.type == "meta":
            raise TypeError("updates must be a dense tensor with data: call .to_dense() first")
        source = updates.detach().resolve_neg()
    elif isinstance(updates, np.ndarray) and not isinstance(updates, np.ma.MaskedArray):
        source = updates.view(np.ndarray)
    else:
        raise TypeError(
            f"updates must be a torch tensor or NumPy array (n, d), not {type(updates).__name__}: "
            "use torch.stack or np.stack to make one from a list of rows"
        )
    name = str(source.dtype).removeprefix("torch.").lstrip("<>=")
    name = np.dtype(source.dtype).name if isinstance(source, np.ndarray) else name
    if name not in FLOATS:
        raise TypeError(f"updates hold {name}: need one of {', '.join(FLOATS)}")
    if source.ndim != 2 or 0 in source.shape:
        raise ValueError(
            f"updates have shape {tuple(source.shape)}: need (rows, columns), not empty"
        )
    work = np.dtype("float64" if name == "float64" else "float32")
    return Matrix(source, (source.shape[0], source.shape[1]), work, _direct(source, work))


def _direct(source: Any, work: np.dtype[Any]) -> Array | None:
    """A C-contiguous view of native floats, or None.

    Where there is a gap between rows (padding, every other row), the view shows the gap as further
    columns. After the last row these may lie outside the buffer; kernels never read them.
    """
    if not isinstance(source, np.ndarray):
        if source.device.type != "cpu" or str(source.dtype) != f"torch.{work.name}":
            return None
        source = source.numpy()
    (n, d), size = source.shape, work.itemsize
    step = source.strides[0] if n > 1 else d * size
    packed = d == 1 or source.strides[1] == size
    if source.dtype != work or not source.flags.aligned or not packed:
        return None
    if step % size or step < d * size:
        return None
    return as_strided(source, (n, step // size), (step, size), writeable=False)
