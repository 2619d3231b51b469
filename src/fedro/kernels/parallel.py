"""Run a task over blocks of columns on several threads, with the results in order."""

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

GRID = 32768  # columns in a block; sums are added block by block, so threads change no bits
MAX_BLOCKS_PER_TASK = 64
MAX_SUMS_PER_TASK = 65536


def blocks(columns: int, step: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of every block of a matrix with this many columns."""
    return ((start, min(start + step, columns)) for start in range(0, columns, step))


def stride(columns: int, numbers: int = 0) -> int:
    """Columns for one task: several blocks, so that each thread gets about four tasks.

    If every block yields `numbers` sums, a task has at most MAX_SUMS_PER_TASK of them.
    """
    limit = MAX_BLOCKS_PER_TASK
    limit = min(limit, MAX_SUMS_PER_TASK // numbers) if numbers else limit
    return GRID * max(min(columns // GRID // (4 * threads()), limit), 1)


def threads() -> int:
    """Number of threads: FEDRO_THREADS, else that of torch if loaded, else the available cores."""
    if "FEDRO_THREADS" in os.environ:
        return max(1, int(os.environ["FEDRO_THREADS"]))
    if "torch" in sys.modules:
        return int(sys.modules["torch"].get_num_threads())
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ordered(task: Callable[[int, int], R], columns: int, step: int) -> Iterator[R]:
    """Yield task(start, stop) for each block, in order."""
    count = min(threads(), -(-columns // step))
    if count == 1:
        yield from (task(*block) for block in blocks(columns, step))
        return
    yield from _shared(_helpers(count - 1), task, blocks(columns, step), 4 * count)


@cache
def _helpers(count: int) -> ThreadPoolExecutor:
    """A pool that is kept: starting threads takes a millisecond, as long as a small matrix."""
    return ThreadPoolExecutor(count, "fedro")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.cache_clear)  # threads do not survive a fork


def _shared(
    pool: ThreadPoolExecutor,
    task: Callable[[int, int], R],
    todo: Iterator[tuple[int, int]],
    size: int,
) -> Iterator[R]:
    """Yield the results in order; while the next one is missing, the caller runs a block itself.

    At most `size` blocks are pending, so that the memory does not grow with the columns.
    """
    pending: deque[tuple[tuple[int, int], Future[R]]] = deque()
    try:
        while True:
            pending.extend(
                (block, pool.submit(task, *block)) for block in islice(todo, size - len(pending))
            )
            if not pending:
                return
            if not pending[0][1].done():
                free = next((k for k, (_, part) in enumerate(pending) if part.cancel()), None)
                if free is not None:
                    block, own = pending[free][0], Future[R]()
                    pending[free] = block, own
                    own.set_result(task(*block))
                    continue
            yield pending.popleft()[1].result()
    finally:  # after an error no helper may go on writing
        wait([part for _, part in pending if not part.cancel()])
