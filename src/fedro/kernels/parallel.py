"""Run a task over blocks of columns on a few threads; results come back in order."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from itertools import islice
from typing import TypeVar

R = TypeVar("R")

GRID = 32768  # columns in a block: sums are ordered block by block, whatever the threads


def blocks(columns: int, step: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of every block of a matrix with this many columns."""
    return ((start, min(start + step, columns)) for start in range(0, columns, step))


def stride(columns: int, numbers: int = 0) -> int:
    """A longer step where a task may do several blocks: four a thread, at most 64 blocks each.

    If each block gives some `numbers`, no more blocks than make 65,536 of them.
    """
    most = min(64, 65536 // numbers) if numbers else 64
    return GRID * max(min(columns // GRID // (4 * threads()), most), 1)


def threads() -> int:
    """FEDRO_THREADS if set, else what torch uses if it is loaded, else the cores we may run on."""
    if "FEDRO_THREADS" in os.environ:
        return max(1, int(os.environ["FEDRO_THREADS"]))
    if "torch" in sys.modules:
        return int(sys.modules["torch"].get_num_threads())
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ordered(task: Callable[[int, int], R], columns: int, step: int) -> Iterator[R]:
    """Yield task(start, stop) for each block, in order; the kernels inside release the GIL."""
    count = min(threads(), -(-columns // step))
    if count == 1:
        yield from (task(*block) for block in blocks(columns, step))
        return
    yield from _shared(_helpers(count - 1), task, blocks(columns, step), 4 * count)


@cache
def _helpers(count: int) -> ThreadPoolExecutor:
    """Threads that stay: starting some takes a millisecond, as long as a small matrix."""
    return ThreadPoolExecutor(count, "fedro")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.cache_clear)  # threads do not survive a fork


def _shared(
    pool: ThreadPoolExecutor,
    task: Callable[[int, int], R],
    todo: Iterator[tuple[int, int]],
    size: int,
) -> Iterator[R]:
    """The results in order; while the next is not there, the caller does a block itself.

    At most `size` blocks are under way, so that the memory does not grow with the columns.
    """
    flying: deque[tuple[tuple[int, int], Future[R]]] = deque()
    try:
        while True:
            flying.extend(
                (block, pool.submit(task, *block)) for block in islice(todo, size - len(flying))
            )
            if not flying:
                return
            if not flying[0][1].done():
                free = next((k for k, (_, part) in enumerate(flying) if part.cancel()), None)
                if free is not None:
                    block, own = flying[free][0], Future[R]()
                    flying[free] = block, own
                    own.set_result(task(*block))
                    continue
            yield flying.popleft()[1].result()
    finally:  # after an error: no helper may go on writing
        wait([part for _, part in flying if not part.cancel()])
