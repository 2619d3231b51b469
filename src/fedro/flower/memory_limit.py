"""A limit on the memory that the server allocates while it reads what clients sent."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

RESERVE_BYTES = 2**30  # for all that is allocated besides the replies


@contextmanager
def memory_limit(max_growth: int) -> Iterator[None]:
    """Let this process allocate at most `max_growth` bytes more than now, and a reserve.

    Beyond the limit Python raises a MemoryError, which the reader of a reply survives. Without it
    the operating system might kill the process. Only Linux has this limit; elsewhere nothing
    happens.
    """
    used = allocated_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if used is None or soft != resource.RLIM_INFINITY:  # the operator has set a limit already
        yield
        return
    limit = used + max_growth + RESERVE_BYTES
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def allocated_bytes() -> int | None:
    """The memory that counts towards the limit, or None if the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))
    except (OSError, StopIteration, ValueError):
        return None
