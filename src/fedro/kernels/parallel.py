"""Run a task over blocks of columns on a few threads; results come back in order."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

R = TypeVar("R")

GRID = 32768  # columns in a block: sums are ordered block by block, whatever the threads


def blocks(columns: int, step: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of every block of a matrix with this many columns."""
    return ((start, min(start + step, columns)) for start in range(0, columns, step))


def stride(columns: int) -> int:
    """A longer step where a task may do several blocks: four a thread, at most 64 blocks each."""
    return GRID * min(max(columns // GRID // (4 * threads()), 1), 64)


def threads() -> int:
    """FEDRO_THREADS if set, else what torch uses if it is loaded, else the cores we may run on."""
    if "FEDRO_THREADS" in os.environ:
        return max(1, int(os.environ["FEDRO_THREADS"]))
    if "torch" in sys.modules:
        return int(sys.modules["torch"].get_num_threads())
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ordered(task: Callable[[int, int], R], columns: int, step: int) -> Iterator[R]:
    """Yield task(start, stop) for each block, in order; the kernels inside release the GIL.

    A pool per call costs 0.1 ms, and none is left over for a later fork to trip on.
    """
    count = min(threads(), -(-columns // step))
    if count == 1:
        yield from (task(*block) for block in blocks(columns, step))
        return
    with ThreadPoolExecutor(count, "fedro") as pool:
        yield from _window(pool, task, blocks(columns, step), 4 * count)


def _window(
    pool: ThreadPoolExecutor,
    task: Callable[[int, int], R],
    todo: Iterator[tuple[int, int]],
    size: int,
) -> Iterator[R]:
    """Keep `size` blocks in flight, so that the memory does not grow with the columns."""
    flying: deque[Future[R]] = deque(pool.submit(task, *block) for block in islice(todo, size))
    while flying:
        result = flying.popleft().result()
        flying.extend(pool.submit(task, *block) for block in islice(todo, 1))
        yield result
