"""Memory for results, used again: fresh pages of a large vector cost as much as a pass over it."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGE = 1 << 20  # bytes that are worth it
MOST = 1 << 26  # bytes that are kept, at most

_shelf: deque[NDArray[np.uint8]] = deque()


def empty(size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Like np.empty: one dimension, any numbers in it."""
    bytes_ = size * dtype.itemsize
    if bytes_ < LARGE:
        return np.empty(size, dtype)
    return np.asarray(_Loan(_take(bytes_))).view(dtype)


class _Loan:
    """Memory that goes back to the shelf when no array and no tensor uses it any more."""

    def __init__(self, memory: NDArray[np.uint8], shelf: deque[NDArray[np.uint8]] = _shelf) -> None:
        self.memory, self.shelf = memory, shelf
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        shelf = self.shelf
        shelf.append(self.memory)
        while sum(part.nbytes for part in tuple(shelf)) > MOST:
            try:
                shelf.popleft()  # what was put there first
            except IndexError:  # another thread was faster
                break


def _take(bytes_: int) -> NDArray[np.uint8]:
    """A part of this size: one from the shelf, or a new one."""
    for _ in range(len(_shelf)):
        try:
            part = _shelf.popleft()  # in one step, whatever other threads do
        except IndexError:
            break
        if part.nbytes == bytes_:
            return part
        _shelf.append(part)
    return np.empty(bytes_, np.uint8)  # asks for huge pages
